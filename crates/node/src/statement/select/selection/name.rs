//! Names of result columns, as in Cassandra.

use shunt_language::ast::{CellMetadata, LiteralKind, NativeType, QualifiedName, Selector, Term};

/// The name of a function of metadata.
pub(super) fn metadata_name(what: CellMetadata) -> &'static str {
    match what {
        CellMetadata::WriteTime => "writetime",
        CellMetadata::MaxWriteTime => "maxwritetime",
        CellMetadata::TimeToLive => "ttl",
    }
}

/// True if a call is `count(1)` and so counts rows.
pub(super) fn counts_rows(name: &QualifiedName, arguments: &[Selector]) -> bool {
    name.name == "count" && matches!(arguments, [Selector::Term(Term::Literal(_))])
}

/// The name of a selector in messages.
pub(in crate::statement::select) fn name_of(selector: &Selector) -> String {
    name_without(selector, &|_, _| false)
}

/// Name of a selector's column without an alias. Casts for which `is_none` is true are omitted.
pub(super) fn name_without(
    selector: &Selector,
    is_none: &dyn Fn(&Selector, NativeType) -> bool,
) -> String {
    let name_of = |selector: &Selector| name_without(selector, is_none);
    let all = |selectors: &[Selector]| selectors.iter().map(name_of).collect::<Vec<_>>().join(", ");
    let shown = |term: &Option<Term>| term.as_ref().map_or_else(String::new, raw);
    match selector {
        Selector::Column(name) => name.clone(),
        Selector::Term(term) => raw(term),
        Selector::CountRows => "count".to_owned(),
        Selector::Metadata(what, of) => format!("{}({})", metadata_name(*what), name_of(of)),
        Selector::Cast(of, native) if is_none(of, *native) => name_of(of),
        Selector::Cast(of, native) => format!("cast({} as {native})", name_of(of)),
        Selector::Call { name, arguments } if counts_rows(name, arguments) => "count".to_owned(),
        Selector::Call { name, arguments } => {
            let keyspace = name.keyspace.as_deref().unwrap_or("system");
            format!("{keyspace}.{}({})", name.name, all(arguments))
        }
        Selector::Field(of, field) => format!("{}.{field}", name_of(of)),
        Selector::Element(of, key) => format!("{}[{}]", name_of(of), raw(key)),
        Selector::Slice(of, from, to) => format!("{}[{}..{}]", name_of(of), shown(from), shown(to)),
        Selector::Hint(type_name, of) => format!("({type_name}){}", name_of(of)),
        Selector::Tuple(parts) => format!("({})", all(parts)),
        Selector::List(parts) => format!("[{}]", all(parts)),
        Selector::Set(parts) => format!("{{{}}}", all(parts)),
        Selector::Map(entries) => {
            let entries: Vec<String> = entries
                .iter()
                .map(|(key, value)| format!("{}: {}", name_of(key), name_of(value)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        Selector::Negation(of) => format!("-{}", name_of(of)),
        Selector::Arithmetic { operator, left, right } => {
            format!("{} {} {}", name_of(left), operator.symbol(), name_of(right))
        }
    }
}

/// A term as Cassandra shows it: strings stand unescaped between quotes, even if they contain
/// quotes.
fn raw(term: &Term) -> String {
    let all = |terms: &[Term]| terms.iter().map(raw).collect::<Vec<_>>().join(", ");
    let pair = |(name, value): (String, &Term)| format!("{name}: {}", raw(value));
    match term {
        Term::Literal(literal) if literal.kind == LiteralKind::String => {
            format!("'{}'", literal.text)
        }
        Term::List(terms) => format!("[{}]", all(terms)),
        Term::Set(terms) => format!("{{{}}}", all(terms)),
        Term::Tuple(terms) => format!("({})", all(terms)),
        Term::Map(entries) => {
            let entries: Vec<_> =
                entries.iter().map(|(key, value)| pair((raw(key), value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Term::Udt(fields) => {
            let fields: Vec<_> =
                fields.iter().map(|(field, value)| pair((field.clone(), value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}
