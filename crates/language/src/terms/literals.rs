//! Literals for a type: constants to bytes, collections and similar values to their parts.

use super::{Prepared, Scope, assignment, evaluate, prepare};
use crate::ast::{Literal, LiteralKind, NativeType, Term};
use crate::error::InvalidRequest;
use crate::types::{CqlType, UserType};
use crate::values::{TimeDependence, compare, from_string, split, validate};

/// A constant as a value of a type.
pub(super) fn constant(
    literal: &Literal,
    name: &str,
    cql_type: &CqlType,
    scope: &mut Scope<'_>,
) -> Result<Prepared, InvalidRequest> {
    if assignment::literal_fits(literal, cql_type).is_none() {
        let kind = literal.kind.name();
        let text = &literal.text;
        return Err(InvalidRequest::new(format!(
            "Invalid {kind} constant ({text}) for \"{name}\" of type {cql_type}"
        )));
    }
    let text = &literal.text;
    let bytes = match cql_type {
        // Bytes are taken unchanged, whatever their type.
        _ if literal.kind == LiteralKind::Hex => {
            let bytes =
                from_string(NativeType::Blob, text.get(2..).unwrap_or_default(), scope.now_ms)?;
            let other = |_| InvalidRequest::new(format!("{text} is no value of type {cql_type}"));
            validate(cql_type, &bytes).map_err(other)?;
            bytes
        }
        CqlType::Native(native) => native_text(*native, text, scope)?,
        CqlType::Tuple(types) => tuple_text(&types.iter().collect::<Vec<_>>(), text, scope)?,
        _ => from_string(NativeType::Blob, text, scope.now_ms)?,
    };
    Ok(Prepared::Constant(Some(bytes)))
}

fn native_text(
    native: NativeType,
    text: &str,
    scope: &mut Scope<'_>,
) -> Result<Vec<u8>, InvalidRequest> {
    if native == NativeType::Timestamp {
        scope.time_dependence = scope.time_dependence.max(TimeDependence::of(text));
    }
    from_string(native, text, scope.now_ms)
}

/// The value of a text for a type inside a tuple: collections are given as hexadecimal bytes.
fn part_text(
    cql_type: &CqlType,
    text: &str,
    scope: &mut Scope<'_>,
) -> Result<Vec<u8>, InvalidRequest> {
    let refused = || InvalidRequest::new(format!("'{text}' is no value of type {cql_type}"));
    match cql_type {
        CqlType::Native(native) => {
            native_text(*native, &text.replace("\\:", ":").replace("\\@", "@"), scope)
        }
        CqlType::Tuple(types) => tuple_text(&types.iter().collect::<Vec<_>>(), text, scope),
        CqlType::Udt { definition, .. } => tuple_text(
            &definition.fields.iter().map(|(_, cql_type)| cql_type).collect::<Vec<_>>(),
            text,
            scope,
        ),
        CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. } => {
            let bytes = from_string(NativeType::Blob, text, scope.now_ms)?;
            validate(cql_type, &bytes).map(|()| bytes).map_err(|_| refused())
        }
        CqlType::Vector { .. } | CqlType::Custom(_) => Err(refused()),
    }
}

/// A tuple in the notation of Cassandra's tools: `1:a:@`, where `@` is null and a backslash escapes
/// a colon or `@`.
fn tuple_text(
    types: &[&CqlType],
    text: &str,
    scope: &mut Scope<'_>,
) -> Result<Vec<u8>, InvalidRequest> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for letter in text.chars() {
        match letter {
            ':' if !escaped => parts.push(String::new()),
            letter => parts.last_mut().into_iter().for_each(|part| part.push(letter)),
        }
        escaped = letter == '\\';
    }
    if parts.len() > types.len() {
        return Err(InvalidRequest::new(format!(
            "Invalid tuple literal: too many elements. Type has {} but got {}",
            types.len(),
            parts.len()
        )));
    }
    let mut part = |(text, cql_type): (&String, &&CqlType)| match text.as_str() {
        "@" => Ok(None),
        text => part_text(cql_type, text, scope).map(Some),
    };
    let parts = parts.iter().zip(types).map(&mut part).collect::<Result<Vec<_>, _>>()?;
    Ok(split::join_tuple(parts))
}

/// A collection, tuple, vector or value of a user-defined type.
pub(super) fn composite(
    term: &Term,
    name: &str,
    cql_type: &CqlType,
    scope: &mut Scope<'_>,
) -> Result<Prepared, InvalidRequest> {
    let wrong = |what: &str| {
        Err(InvalidRequest::new(format!("Invalid {what} literal for {name} of type {cql_type}")))
    };
    let parts = match (term, cql_type) {
        (Term::List(terms), CqlType::List { element, .. }) => {
            elements("list", terms, name, element, scope)?
        }
        (Term::List(terms), CqlType::Vector { element, dimension }) => {
            if usize::try_from(*dimension) != Ok(terms.len()) {
                let given = terms.len();
                return Err(InvalidRequest::new(format!(
                    "Invalid vector literal for {name} of type {cql_type}; expected {dimension} elements, but given {given}"
                )));
            }
            elements("vector", terms, name, element, scope)?
        }
        (Term::List(_), CqlType::Custom(_)) | (Term::List(_), _) => return wrong("list"),
        (Term::Set(terms), CqlType::Map { .. }) if terms.is_empty() => Vec::new(),
        (Term::Set(terms), CqlType::Set { element, .. }) => {
            elements("set", terms, name, element, scope)?
        }
        (Term::Set(_), _) => return wrong("set"),
        (Term::Map(entries), CqlType::Map { key, value, .. }) => {
            map(entries, name, key, value, scope)?
        }
        (Term::Map(_), _) => return wrong("map"),
        (Term::Udt(fields), CqlType::Udt { definition, .. }) => {
            user_type(fields, name, definition, scope)?
        }
        (Term::Udt(_), _) => return wrong("user type"),
        (Term::Tuple(terms), CqlType::Tuple(types)) => tuple(terms, name, types, scope)?,
        (Term::Tuple(terms), _) if terms.len() == 1 => {
            return prepare(&terms[0], name, cql_type, scope);
        }
        _ => return wrong("tuple type"),
    };
    let known = parts.iter().all(|part| matches!(part, Prepared::Constant(_)));
    scope.is_ambiguous |= known && is_ambiguous(cql_type, &parts);
    let composite = Prepared::Composite { cql_type: cql_type.clone(), parts };
    if known {
        return Ok(Prepared::Constant(composite.evaluate(&evaluate::Nothing)?.into_bytes()));
    }
    Ok(composite)
}

/// True if the result of these elements (or alternating keys and values) depends on their order,
/// which Cassandra does not preserve.
fn is_ambiguous(cql_type: &CqlType, parts: &[Prepared]) -> bool {
    let bytes = |part: &Prepared| match part {
        Prepared::Constant(Some(bytes)) => bytes.clone(),
        _ => Vec::new(),
    };
    let (compared, of_each) = match cql_type {
        CqlType::Set { element, .. } => (element, 1),
        CqlType::Map { key, .. } => (key, 2),
        _ => return false,
    };
    let mut all: Vec<Vec<Vec<u8>>> =
        parts.chunks(of_each).map(|one| one.iter().map(bytes).collect()).collect();
    all.sort_by(|left, right| compare(compared, &left[0], &right[0]));
    all.windows(2)
        .any(|pair| compare(compared, &pair[0][0], &pair[1][0]).is_eq() && pair[0] != pair[1])
}

/// One part of a collection, which must not be a marker there.
fn part(
    what: &str,
    role: &str,
    term: &Term,
    name: &str,
    cql_type: &CqlType,
    scope: &mut Scope<'_>,
) -> Result<Prepared, InvalidRequest> {
    if assignment::fits(term, cql_type, scope).is_none() {
        return Err(InvalidRequest::new(format!(
            "Invalid {what} literal for {name}: {role} {term} is not of type {cql_type}"
        )));
    }
    let prepared = prepare(term, &format!("{role}({name})"), cql_type, scope)?;
    if prepared.has_marker() && what != "vector" {
        return Err(InvalidRequest::new(format!(
            "Invalid {what} literal for {name}: bind variables are not supported inside collection literals"
        )));
    }
    Ok(prepared)
}

fn elements(
    what: &str,
    terms: &[Term],
    name: &str,
    element: &CqlType,
    scope: &mut Scope<'_>,
) -> Result<Vec<Prepared>, InvalidRequest> {
    terms.iter().map(|term| part(what, "value", term, name, element, scope)).collect()
}

fn map(
    entries: &[(Term, Term)],
    name: &str,
    key: &CqlType,
    value: &CqlType,
    scope: &mut Scope<'_>,
) -> Result<Vec<Prepared>, InvalidRequest> {
    let mut parts = Vec::with_capacity(entries.len() * 2);
    for (key_term, value_term) in entries {
        parts.push(part("map", "key", key_term, name, key, scope)?);
        parts.push(part("map", "value", value_term, name, value, scope)?);
    }
    Ok(parts)
}

fn tuple(
    terms: &[Term],
    name: &str,
    types: &[CqlType],
    scope: &mut Scope<'_>,
) -> Result<Vec<Prepared>, InvalidRequest> {
    if terms.len() > types.len() {
        let (expected, found) = (types.len(), terms.len());
        let cql_type = CqlType::tuple(types.to_vec());
        return Err(InvalidRequest::new(format!(
            "Invalid tuple literal for {name}: too many elements. Type {cql_type} expects {expected} but got {found}"
        )));
    }
    let mut parts = Vec::with_capacity(terms.len());
    for (position, (term, cql_type)) in terms.iter().zip(types).enumerate() {
        if assignment::fits(term, cql_type, scope).is_none() {
            return Err(InvalidRequest::new(format!(
                "Invalid tuple literal for {name}: component {position} is not of type {cql_type}"
            )));
        }
        parts.push(prepare(term, &format!("{name}[{position}]"), cql_type, scope)?);
    }
    Ok(parts)
}

fn user_type(
    fields: &[(String, Term)],
    name: &str,
    definition: &UserType,
    scope: &mut Scope<'_>,
) -> Result<Vec<Prepared>, InvalidRequest> {
    if let Some((unknown, _)) = fields.iter().find(|(field, _)| definition.field(field).is_none()) {
        let type_name = &definition.name;
        return Err(InvalidRequest::new(format!(
            "Unknown field '{unknown}' in value of user defined type {type_name}"
        )));
    }
    let mut parts = Vec::with_capacity(definition.fields.len());
    for (field, cql_type) in &definition.fields {
        let Some((_, term)) = fields.iter().rev().find(|(given, _)| given == field) else {
            parts.push(Prepared::Constant(None));
            continue;
        };
        if assignment::fits(term, cql_type, scope).is_none() {
            return Err(InvalidRequest::new(format!(
                "Invalid user type literal for {name}: field {field} is not of type {cql_type}"
            )));
        }
        parts.push(prepare(term, &format!("{name}.{field}"), cql_type, scope)?);
    }
    Ok(parts)
}
