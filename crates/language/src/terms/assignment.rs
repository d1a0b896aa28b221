//! Decides whether a term can be a value of a type, exactly or by conversion (`AssignmentTestable`
//! of Cassandra).

use super::{Scope, function_name, operator_name};
use crate::ast::{Literal, LiteralKind, NativeType, Term};
use crate::error::InvalidRequest;
use crate::functions::{self, Argument, Function};
use crate::types::CqlType;
use crate::values::{Decimal, float_text};

/// The type of a literal where any type would do.
#[must_use]
pub fn preferred_type(literal: &Literal) -> NativeType {
    match literal.kind {
        LiteralKind::String if literal.text.is_ascii() => NativeType::Ascii,
        LiteralKind::String => NativeType::Text,
        LiteralKind::Integer if literal.text.parse::<i32>().is_ok() => NativeType::Int,
        LiteralKind::Integer if literal.text.parse::<i64>().is_ok() => NativeType::Bigint,
        LiteralKind::Integer => NativeType::Varint,
        LiteralKind::Float => {
            // A number that a double represents with all its digits is a double.
            let double = literal.text.parse::<f64>().ok().map(|value| float_text(value, false));
            let exact = Decimal::parse(&literal.text);
            match (exact, double.and_then(|text| Decimal::parse(&text))) {
                (Some(exact), double)
                    if double.as_ref().is_none_or(|double| !double.compare(&exact).is_eq()) =>
                {
                    NativeType::Decimal
                }
                _ => NativeType::Double,
            }
        }
        LiteralKind::Boolean => NativeType::Boolean,
        LiteralKind::Duration => NativeType::Duration,
        // The digit behind the second dash is the version.
        LiteralKind::Uuid if literal.text.as_bytes().get(14) == Some(&b'1') => NativeType::Timeuuid,
        LiteralKind::Uuid => NativeType::Uuid,
        // Surprising, but the same in Cassandra.
        LiteralKind::Hex => NativeType::Tinyint,
    }
}

/// `Constants.Literal.testAssignment`
pub(super) fn literal_fits(literal: &Literal, cql_type: &CqlType) -> Option<bool> {
    use NativeType::{
        Ascii, Bigint, Blob, Boolean, Counter, Date, Decimal, Double, Duration, Float, Inet, Int,
        Smallint, Text, Time, Timestamp, Timeuuid, Tinyint, Uuid, Varint,
    };
    let native = match cql_type {
        CqlType::Native(native) => *native,
        CqlType::Custom(_) | CqlType::Tuple(_) => return Some(false),
        _ => return None,
    };
    if native == preferred_type(literal) {
        return Some(true);
    }
    let fits = match literal.kind {
        LiteralKind::String => matches!(native, Ascii | Text | Inet | Date | Time | Timestamp),
        LiteralKind::Integer => matches!(
            native,
            Bigint
                | Counter
                | Date
                | Decimal
                | Double
                | Duration
                | Float
                | Int
                | Smallint
                | Time
                | Timestamp
                | Tinyint
                | Varint
        ),
        LiteralKind::Uuid => matches!(native, Uuid | Timeuuid),
        LiteralKind::Float => matches!(native, Decimal | Double | Float),
        LiteralKind::Boolean => native == Boolean,
        LiteralKind::Hex => native == Blob,
        LiteralKind::Duration => native == Duration,
    };
    fits.then_some(false)
}

/// Returns whether a term can be a value of a type: `Some(true)` if it has that type, `Some(false)`
/// if it can be converted.
pub(super) fn fits(term: &Term, cql_type: &CqlType, scope: &Scope<'_>) -> Option<bool> {
    match (term, cql_type) {
        (Term::Literal(literal), _) => literal_fits(literal, cql_type),
        (Term::Null | Term::Marker(_), _) => Some(false),
        (Term::List(terms), CqlType::List { element, .. } | CqlType::Vector { element, .. })
        | (Term::Set(terms), CqlType::Set { element, .. }) => {
            all(terms.iter().map(|term| fits(term, element, scope)))
        }
        (Term::Set(terms), CqlType::Map { .. }) if terms.is_empty() => Some(false),
        (Term::Map(entries), CqlType::Map { key, value, .. }) => {
            let keys = entries.iter().map(|(term, _)| fits(term, key, scope));
            all(keys.chain(entries.iter().map(|(_, term)| fits(term, value, scope))))
        }
        (Term::Tuple(terms), CqlType::Tuple(types)) if terms.len() <= types.len() => {
            all(terms.iter().zip(types.iter()).map(|(term, cql_type)| fits(term, cql_type, scope)))
        }
        // Parentheses around one term.
        (Term::Tuple(terms), _) if terms.len() == 1 => fits(&terms[0], cql_type, scope),
        (Term::Udt(fields), CqlType::Udt { definition, .. }) => {
            all(fields.iter().map(|(field, term)| {
                let position = definition.field(field)?;
                fits(term, &definition.fields.get(position)?.1, scope)
            }))
        }
        (Term::List(_) | Term::Set(_) | Term::Map(_) | Term::Tuple(_) | Term::Udt(_), _) => None,
        (
            Term::Call { .. }
            | Term::Hint(..)
            | Term::Cast(..)
            | Term::Negation(_)
            | Term::Arithmetic { .. },
            _,
        ) => {
            match known_type(term, scope) {
                Some(known) => cql_type.accepts(&known).then_some(known == *cql_type),
                // The receiver decides.
                None => is_from_json(term).then_some(false),
            }
        }
    }
}

/// Combines results: whether all fit, and whether all fit exactly.
fn all(mut results: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    results.try_fold(true, |exact, result| result.map(|result| exact && result))
}

fn is_from_json(term: &Term) -> bool {
    matches!(term, Term::Call { name, .. } if matches!(name.name.as_str(), "from_json" | "fromjson"))
}

/// Type of a term, if independent of its receiver. Examines each part of the term once.
fn known_type(term: &Term, scope: &Scope<'_>) -> Option<CqlType> {
    let of_call = |name: &str, arguments: &[&Term]| {
        resolve_call(name, arguments, None, scope).ok().map(|found| found.returns)
    };
    match term {
        Term::Hint(type_name, _) => CqlType::resolve(type_name, scope.types).ok(),
        Term::Cast(_, native) => Some((*native).into()),
        Term::Call { name, arguments } => {
            of_call(&function_name(name).ok()?, &arguments.iter().collect::<Vec<_>>())
        }
        Term::Negation(inner) => of_call("_negate", &[inner]),
        Term::Arithmetic { operator, left, right } => {
            of_call(operator_name(*operator), &[left, right])
        }
        Term::Tuple(terms) if terms.len() == 1 => known_type(&terms[0], scope),
        _ => None,
    }
}

/// Type of a term, or the preferred type of its literals.
pub(super) fn known_or_preferred(term: &Term, scope: &Scope<'_>) -> Option<CqlType> {
    let each = |terms: &[Term]| {
        terms.iter().map(|term| known_or_preferred(term, scope)).collect::<Option<Vec<_>>>()
    };
    match term {
        Term::Literal(literal) => Some(preferred_type(literal).into()),
        Term::List(terms) => {
            each(terms)?.into_iter().next().map(|element| CqlType::list(element).freeze())
        }
        Term::Set(terms) => {
            each(terms)?.into_iter().next().map(|element| CqlType::set(element).freeze())
        }
        Term::Map(entries) => {
            let (key, value) = entries.first()?;
            let (key, value) = (known_or_preferred(key, scope)?, known_or_preferred(value, scope)?);
            Some(CqlType::map(key, value).freeze())
        }
        Term::Tuple(terms) if terms.len() > 1 => each(terms).map(CqlType::tuple),
        _ => known_type(term, scope),
    }
}

/// Resolves the function of a call.
pub(super) fn resolve_call<T: AsRef<Term>>(
    name: &str,
    arguments: &[T],
    receiver: Option<&CqlType>,
    scope: &Scope<'_>,
) -> Result<Function, InvalidRequest> {
    let arguments: Vec<_> =
        arguments.iter().map(|term| TermArgument::new(term.as_ref(), scope)).collect();
    let arguments: Vec<&dyn Argument> =
        arguments.iter().map(|argument| argument as &dyn Argument).collect();
    functions::resolve(name, &arguments, receiver, scope.key_types)
}

/// An argument whose type, possibly that of another call, is determined once.
struct TermArgument<'t> {
    term: &'t Term,
    scope: &'t Scope<'t>,
    known: Option<CqlType>,
}

impl<'t> TermArgument<'t> {
    fn new(term: &'t Term, scope: &'t Scope<'t>) -> TermArgument<'t> {
        // A literal has many types.
        let known =
            if matches!(term, Term::Literal(_)) { None } else { known_or_preferred(term, scope) };
        TermArgument { term, scope, known }
    }
}

impl Argument for TermArgument<'_> {
    fn known_type(&self) -> Option<CqlType> {
        self.known.clone()
    }

    fn fits(&self, cql_type: &CqlType) -> Option<bool> {
        match (self.term, &self.known) {
            (
                Term::Call { .. }
                | Term::Hint(..)
                | Term::Cast(..)
                | Term::Negation(_)
                | Term::Arithmetic { .. },
                Some(known),
            ) => cql_type.accepts(known).then_some(known == cql_type),
            _ => fits(self.term, cql_type, self.scope),
        }
    }

    fn shown(&self) -> String {
        self.term.to_string()
    }

    fn list_length(&self) -> Option<usize> {
        match self.term {
            Term::List(terms) => Some(terms.len()),
            _ => None,
        }
    }
}
