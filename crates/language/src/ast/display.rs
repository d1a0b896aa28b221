//! Formats parts of statements as text that parses to the same parts, for `DESCRIBE` and result
//! column names. Names of terms follow Cassandra even where its text means something else: a minus
//! in front of a number becomes part of the number, and in front of another minus begins a comment.
//! Where Cassandra's text would be meaningless, a blank separates the minus.

use std::fmt::{self, Display};

use super::name::QualifiedName;
use super::select::{CellMetadata, Selector};
use super::term::{Literal, LiteralKind, Term};
use super::type_name::{NativeType, TypeName};
use crate::keyword;

/// Formats a name for a statement: in quotes unless it is all lower case and not reserved.
#[must_use]
pub fn quoted_name(name: &str) -> String {
    let plain = name.starts_with(|first: char| first.is_ascii_lowercase())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && !keyword::is_reserved(name);
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Formats the name of a user-defined type for a statement: some words that other names may use
/// mean something else as a type.
#[must_use]
pub fn quoted_type_name(name: &str) -> String {
    let plain =
        keyword::is_type_name(name) && !keyword::is_reserved_type_name(name) && name != "set";
    if plain { quoted_name(name) } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// A string as a literal.
#[must_use]
pub fn quoted_string(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.keyspace {
            Some(keyspace) => write!(f, "{}.{}", quoted_name(keyspace), quoted_name(&self.name)),
            None => f.write_str(&quoted_name(&self.name)),
        }
    }
}

impl fmt::Display for NativeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TypeName::Native(native) => native.fmt(f),
            TypeName::List(element) => write!(f, "list<{element}>"),
            TypeName::Set(element) => write!(f, "set<{element}>"),
            TypeName::Map(key, value) => write!(f, "map<{key}, {value}>"),
            TypeName::Tuple(elements) => {
                f.write_str("tuple<")?;
                separated(f, elements, |f, element| element.fmt(f))?;
                f.write_str(">")
            }
            TypeName::Vector(element, dimension) => write!(f, "vector<{element}, {dimension}>"),
            TypeName::Frozen(inner) => write!(f, "frozen<{inner}>"),
            TypeName::UserDefined(QualifiedName { keyspace, name }) => {
                if let Some(keyspace) = keyspace {
                    write!(f, "{}.", quoted_name(keyspace))?;
                }
                f.write_str(&quoted_type_name(name))
            }
            TypeName::Custom(class) => f.write_str(&quoted_string(class)),
        }
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            LiteralKind::String => f.write_str(&quoted_string(&self.text)),
            _ => f.write_str(&self.text),
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Term::Literal(literal) => literal.fmt(f),
            Term::Null => f.write_str("NULL"),
            Term::Marker(_) => f.write_str("?"),
            Term::List(elements) => bracketed(f, "[", elements, "]"),
            Term::Set(elements) => bracketed(f, "{", elements, "}"),
            Term::Tuple(elements) => bracketed(f, "(", elements, ")"),
            Term::Map(entries) => {
                f.write_str("{")?;
                separated(f, entries, |f, (key, value)| write!(f, "{key}: {value}"))?;
                f.write_str("}")
            }
            Term::Udt(fields) => {
                f.write_str("{")?;
                separated(f, fields, |f, (field, value)| {
                    write!(f, "{}: {value}", quoted_name(field))
                })?;
                f.write_str("}")
            }
            Term::Call { name, arguments } => {
                write!(f, "{name}")?;
                bracketed(f, "(", arguments, ")")
            }
            Term::Hint(type_name, term) => write!(f, "({type_name}){term}"),
            Term::Cast(term, native) => write!(f, "cast({term} as {native})"),
            Term::Negation(term) if takes_minus(term) => write!(f, "- {term}"),
            Term::Negation(term) => write!(f, "-{term}"),
            Term::Arithmetic { operator, left, right } => {
                write!(f, "{left} {} {right}", operator.symbol())
            }
        }
    }
}

/// Formats the name of a selected value without an alias in the metadata of a result.
impl Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = |f: &mut fmt::Formatter<'_>, open: &str, selectors: &[Selector], close: &str| {
            f.write_str(open)?;
            separated(f, selectors, |f, selector| selector.fmt(f))?;
            f.write_str(close)
        };
        match self {
            // Column names stay unquoted, the form that clients look up.
            Selector::Column(name) => f.write_str(name),
            Selector::Term(term) => term.fmt(f),
            Selector::CountRows => f.write_str("count"),
            Selector::Metadata(CellMetadata::WriteTime, of) => write!(f, "writetime({of})"),
            Selector::Metadata(CellMetadata::MaxWriteTime, of) => write!(f, "maxwritetime({of})"),
            Selector::Metadata(CellMetadata::TimeToLive, of) => write!(f, "ttl({of})"),
            Selector::Cast(of, native) => write!(f, "cast({of} as {native})"),
            Selector::Call { name, arguments } => {
                let keyspace = name.keyspace.as_deref().unwrap_or("system");
                // `count(1)` counts rows as `count(*)` does.
                if let ("system", "count", [Selector::Term(_)]) =
                    (keyspace, name.name.as_str(), &arguments[..])
                {
                    return f.write_str("count");
                }
                write!(f, "{keyspace}.{}", name.name)?;
                all(f, "(", arguments, ")")
            }
            Selector::Field(of, field) => write!(f, "{of}.{field}"),
            Selector::Element(of, key) => write!(f, "{of}[{key}]"),
            Selector::Slice(of, from, to) => {
                let shown =
                    |end: &Option<Term>| end.as_ref().map_or_else(String::new, Term::to_string);
                write!(f, "{of}[{}..{}]", shown(from), shown(to))
            }
            Selector::Hint(type_name, of) => write!(f, "({type_name}){of}"),
            Selector::Tuple(of) => match &of[..] {
                [one] => write!(f, "{one}"),
                _ => all(f, "(", of, ")"),
            },
            Selector::List(of) => all(f, "[", of, "]"),
            Selector::Set(of) => all(f, "{", of, "}"),
            Selector::Map(of) => {
                f.write_str("{")?;
                separated(f, of, |f, (key, value)| write!(f, "{key}: {value}"))?;
                f.write_str("}")
            }
            Selector::Negation(of) => write!(f, "-{of}"),
            Selector::Arithmetic { operator, left, right } => {
                write!(f, "{left} {} {right}", operator.symbol())
            }
        }
    }
}

/// True if a minus directly in front of the term would form another token than its negation: with a
/// blob or a UUID that begins with a digit, which would split into a number and a word, and with
/// NaN, which has no sign.
fn takes_minus(term: &Term) -> bool {
    let Term::Literal(literal) = term else { return false };
    match literal.kind {
        LiteralKind::Hex => true,
        LiteralKind::Uuid => literal.text.starts_with(|first: char| first.is_ascii_digit()),
        LiteralKind::Float => literal.text == "NaN",
        _ => false,
    }
}

fn bracketed(f: &mut fmt::Formatter<'_>, open: &str, terms: &[Term], close: &str) -> fmt::Result {
    f.write_str(open)?;
    separated(f, terms, |f, term| term.fmt(f))?;
    f.write_str(close)
}

fn separated<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    mut write: impl FnMut(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (position, item) in items.iter().enumerate() {
        if position > 0 {
            f.write_str(", ")?;
        }
        write(f, item)?;
    }
    Ok(())
}
