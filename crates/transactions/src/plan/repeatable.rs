//! Refuses statements whose result would differ when they are executed again, or by another node.

use shunt_language::ast::{
    Conditions, Deletion, LiteralKind, Mutation, NativeType, Operation, QualifiedName, Relation,
    Selector, Term,
};
use shunt_language::terms::{self, Scope};
use shunt_language::transaction::{Inner, is_pure};
use shunt_language::{CqlType, InvalidRequest, functions};

use crate::plan::schema::Table;

/// The terms of an assignment.
fn terms_of(operation: &Operation) -> impl Iterator<Item = &Term> {
    let (first, second) = match operation {
        Operation::Set(term)
        | Operation::Add(term)
        | Operation::Subtract(term)
        | Operation::Prepend(term) => (term, None),
        Operation::SetElement(key, term) => (key, Some(term)),
        Operation::SetField(_, term) => (term, None),
    };
    std::iter::once(first).chain(second)
}

/// Refuses a term that two nodes, or one node at another time, may evaluate differently: a call of
/// a user-defined function, or a time without a time zone.
pub(super) fn check_term(
    column: &str,
    term: &Term,
    cql_type: Option<&CqlType>,
) -> Result<(), InvalidRequest> {
    if !calls_native(term) {
        return Err(InvalidRequest::new(format!(
            "the value of {column} calls a function that users have defined, which is not taken in a transaction: its writes may be made \
             again, and would differ; bind the value"
        )));
    }
    if cql_type.is_some_and(has_timestamp) && !texts_in(term).iter().all(|text| names_zone(text)) {
        return Err(InvalidRequest::new(format!(
            "the time in the value of {column} says no time zone, and each node would take its own: say it, as in \
             '2024-01-31 12:00:00+0000', or bind the value"
        )));
    }
    Ok(())
}

/// Refuses a value that a node computes from a bind value, and a null as an element's key: a node
/// could refuse it each time, after the commit.
pub(super) fn check_computable(column: &str, term: &Term) -> Result<(), InvalidRequest> {
    let computes = matches!(
        term,
        Term::Call { .. } | Term::Arithmetic { .. } | Term::Cast(..) | Term::Negation(_)
    );
    if computes && has_marker(term) {
        return Err(InvalidRequest::new(format!(
            "the value of {column} is computed from a bind marker or a row, which a node may refuse when it is committed: bind what comes of it"
        )));
    }
    term.parts().into_iter().try_for_each(|part| check_computable(column, part))
}

fn has_marker(term: &Term) -> bool {
    matches!(term, Term::Marker(_)) || term.parts().into_iter().any(has_marker)
}

fn check_element(column: &str, key: &Term) -> Result<(), InvalidRequest> {
    check_pure([key])?;
    let mut bare = key;
    while let Term::Hint(_, inner) | Term::Cast(inner, _) = bare {
        bare = inner;
    }
    match bare {
        Term::Null => {
            Err(InvalidRequest::new(format!("Invalid null value for an element of {column}")))
        }
        _ => check_computable(column, key),
    }
}

fn calls_native(term: &Term) -> bool {
    let is_native = match term {
        Term::Call { name, .. } => is_native(name),
        _ => true,
    };
    is_native && term.parts().into_iter().all(calls_native)
}

/// True if the selected values come from built-in functions. Others need rights that are not
/// checked here.
pub(super) fn selects_native(selector: &Selector) -> bool {
    let is_native = match selector {
        Selector::Term(term) => calls_native(term),
        Selector::Call { name, .. } => is_native(name),
        _ => true,
    };
    is_native && selector.parts().into_iter().all(selects_native)
}

fn is_native(function: &QualifiedName) -> bool {
    matches!(function.keyspace.as_deref(), None | Some("system"))
        && functions::is_native(&function.name)
}

/// True if a statement calls only built-in functions. Calling others needs a right that is not
/// checked here.
pub(super) fn calls_only_native(mutation: &Mutation) -> bool {
    let attributes = mutation.attributes();
    let attributes = attributes.timestamp.iter().chain(&attributes.time_to_live);
    let (relations, conditions) = match mutation {
        Mutation::Insert(_) | Mutation::InsertJson(_) => (&[][..], &Conditions::None),
        Mutation::Update(update) => (&update.relations[..], &update.conditions),
        Mutation::Delete(delete) => (&delete.relations[..], &delete.conditions),
    };
    let written: Vec<&Term> = match mutation {
        Mutation::Insert(insert) => insert.values.iter().collect(),
        Mutation::InsertJson(insert) => vec![&insert.json],
        Mutation::Update(update) => {
            update.assignments.iter().flat_map(|one| terms_of(&one.operation)).collect()
        }
        Mutation::Delete(delete) => {
            let elements = delete.deletions.iter().filter_map(|one| match one {
                Deletion::Element(_, key) => Some(key),
                Deletion::Column(_) | Deletion::Field(..) => None,
            });
            elements.collect()
        }
    };
    let compared = match conditions {
        Conditions::All(all) => &all[..],
        Conditions::None | Conditions::Exists => &[],
    };
    let compared = compared.iter().flat_map(|one| one.element.iter().chain(&one.values));
    let named = relations.iter().flat_map(terms_of_relation);
    attributes.chain(written).chain(compared).chain(named).all(calls_native)
}

fn terms_of_relation(relation: &Relation) -> Vec<&Term> {
    match relation {
        Relation::Column { value, .. }
        | Relation::Token { value, .. }
        | Relation::Tuple { value, .. }
        | Relation::Custom { value, .. } => vec![value],
        Relation::Element { key, value, .. } => vec![key, value],
        Relation::In { values, .. } | Relation::TupleIn { values, .. } => values.iter().collect(),
        Relation::InMarker { .. } | Relation::TupleInMarker { .. } | Relation::IsNotNull(_) => {
            Vec::new()
        }
    }
}

/// The strings in a term.
fn texts_in(term: &Term) -> Vec<&str> {
    match term {
        Term::Literal(literal) if literal.kind == LiteralKind::String => vec![&literal.text],
        _ => term.parts().into_iter().flat_map(texts_in).collect(),
    }
}

/// True if a time names its zone, or a text is no time. `'now'` names none.
fn names_zone(text: &str) -> bool {
    let is_a_time =
        text.eq_ignore_ascii_case("now") || text.starts_with(|first: char| first.is_ascii_digit());
    let zone = text.rsplit(['+', '-']).next().unwrap_or_default();
    let is_offset = zone.len() >= 4
        && zone.len() < text.len()
        && zone.bytes().all(|byte| byte.is_ascii_digit() || byte == b':');
    !is_a_time || text.ends_with(['Z', 'z']) || text.contains(':') && is_offset
}

fn has_timestamp(cql_type: &CqlType) -> bool {
    match cql_type {
        CqlType::Native(native) => *native == NativeType::Timestamp,
        CqlType::List { element, .. }
        | CqlType::Set { element, .. }
        | CqlType::Vector { element, .. } => has_timestamp(element),
        CqlType::Map { key, value, .. } => has_timestamp(key) || has_timestamp(value),
        CqlType::Tuple(elements) => elements.iter().any(has_timestamp),
        CqlType::Udt { definition, .. } => {
            definition.fields.iter().any(|(_, field)| has_timestamp(field))
        }
        CqlType::Custom(_) => false,
    }
}

/// Refuses a literal that nodes may read in two ways.
pub(super) fn check_unambiguous(column: &str, scope: &Scope<'_>) -> Result<(), InvalidRequest> {
    match scope.is_ambiguous {
        true => Err(InvalidRequest::new(format!(
            "the value of {column} has an element of a set, or a key of a map, twice, and nodes take one of them as it happens: name each once"
        ))),
        false => Ok(()),
    }
}

/// Refuses such a literal as the value of a column. Nodes report what else is wrong with it.
fn check_term_once(
    column: &str,
    term: &Term,
    inner: &Inner,
    table: &Table,
) -> Result<(), InvalidRequest> {
    let Some(cql_type) = table.column(column) else { return Ok(()) };
    let mut scope = Scope::new(&table.types, None, 0, inner.markers.len());
    drop(terms::prepare(term, column, cql_type, &mut scope));
    check_unambiguous(column, &scope)
}

pub(super) fn unrepeatable() -> InvalidRequest {
    InvalidRequest::new(
        "now(), uuid() and the like are taken as values of INSERT and SET in transactions, and nowhere else: bind the value",
    )
}

/// Refuses a term with a new value each time, where it is not computed once.
pub(super) fn check_pure<'t>(
    terms: impl IntoIterator<Item = &'t Term>,
) -> Result<(), InvalidRequest> {
    if terms.into_iter().all(is_pure) { Ok(()) } else { Err(unrepeatable()) }
}

/// Refuses a statement whose result would differ if it were repeated.
pub(super) fn check_repeatable(
    mutation: &Mutation,
    inner: &Inner,
    table: &Table,
) -> Result<(), InvalidRequest> {
    let terms: Vec<(&str, &Term)> = match mutation {
        Mutation::Insert(insert) => {
            insert.columns.iter().map(String::as_str).zip(&insert.values).collect()
        }
        Mutation::Update(update) => update
            .assignments
            .iter()
            .flat_map(|one| terms_of(&one.operation).map(|term| (one.column.as_str(), term)))
            .collect(),
        Mutation::Delete(_) | Mutation::InsertJson(_) => Vec::new(),
    };
    for (column, term) in terms {
        check_term(column, term, table.column(column))?;
        check_computable(column, term)?;
        check_term_once(column, term, inner, table)?;
    }
    match mutation {
        Mutation::Update(update) => {
            for assignment in &update.assignments {
                if let Operation::SetElement(key, _) = &assignment.operation {
                    check_element(&assignment.column, key)?;
                }
            }
        }
        Mutation::Delete(delete) => {
            for deletion in &delete.deletions {
                if let Deletion::Element(column, key) = deletion {
                    check_term(column, key, table.column(column))?;
                    check_element(column, key)?;
                }
            }
        }
        Mutation::Insert(_) | Mutation::InsertJson(_) => {}
    }
    let columns: Vec<&str> = match mutation {
        Mutation::Insert(insert) => insert.columns.iter().map(String::as_str).collect(),
        Mutation::Update(update) => {
            update.assignments.iter().map(|assignment| assignment.column.as_str()).collect()
        }
        Mutation::Delete(delete) => {
            let elements = delete.deletions.iter().filter_map(|deletion| match deletion {
                Deletion::Element(column, _) => Some(column.as_str()),
                _ => None,
            });
            elements.collect()
        }
        Mutation::InsertJson(_) => Vec::new(),
    };
    let is_list =
        |name: &&&str| matches!(table.column(name), Some(CqlType::List { frozen: false, .. }));
    if let Some(column) = columns.iter().find(is_list) {
        return Err(InvalidRequest::new(format!(
            "column {column} is a list that is not frozen: nodes name its elements anew each time they are written, and the writes \
             of a transaction may be made again; use frozen<list<..>>, a set or a map"
        )));
    }
    if let Mutation::Update(update) = mutation
        && update
            .assignments
            .iter()
            .any(|assignment| matches!(assignment.operation, Operation::Prepend(_)))
    {
        return Err(unrepeatable());
    }
    Ok(())
}
