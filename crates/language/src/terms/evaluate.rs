//! Evaluates prepared terms with bind values to bytes.

use super::Prepared;
use crate::error::InvalidRequest;
use crate::functions::Environment;
use crate::types::CqlType;
use crate::values::{check_numbers, compare, normal, split, validate};

/// A value of an evaluated term.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Value {
    /// `null`
    Null,
    /// An unset bind value: its target stays unchanged.
    Unset,
    /// A serialized value.
    Bytes(Vec<u8>),
}

impl Value {
    /// The bytes; `None` for null and unset.
    #[must_use]
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        if let Value::Bytes(bytes) = self { Some(bytes) } else { None }
    }
}

/// Bind values, and the inputs of functions.
pub trait Bindings: Environment {
    /// The bind value with an index, as sent by the client.
    fn value(&self, index: u16) -> Value;
}

/// No bind values, for values known at preparation.
pub(super) struct Nothing;

impl Environment for Nothing {
    fn now_ms(&self) -> i64 {
        0
    }

    fn timeuuid(&self) -> [u8; 16] {
        [0; 16]
    }

    fn random(&self) -> u128 {
        0
    }

    fn token(&self, _: &[u8]) -> i64 {
        0
    }
}

impl Bindings for Nothing {
    fn value(&self, _: u16) -> Value {
        Value::Unset
    }
}

impl Prepared {
    /// Evaluates the term.
    ///
    /// # Errors
    /// If a bind value is not of its type, or is null or unset where a value is required.
    pub fn evaluate(&self, bindings: &dyn Bindings) -> Result<Value, InvalidRequest> {
        match self {
            Prepared::Constant(value) => Ok(value.clone().map_or(Value::Null, Value::Bytes)),
            Prepared::Marker { index, cql_type } => {
                let value = bindings.value(*index);
                let Value::Bytes(bytes) = value else { return Ok(value) };
                validate(cql_type, &bytes)?;
                if cql_type.is_collection() {
                    // Their elements are brought into order.
                    check_numbers(cql_type, &bytes)?;
                }
                Ok(Value::Bytes(normal(cql_type, bytes)))
            }
            Prepared::Composite { cql_type, parts } => composite(cql_type, parts, bindings),
            Prepared::Call { function, arguments } => {
                let mut values = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    match argument.evaluate(bindings)? {
                        Value::Unset => {
                            let name = &function.name;
                            return Err(InvalidRequest::new(format!(
                                "Invalid unset value for argument in call to function {name}"
                            )));
                        }
                        value => values.push(value.into_bytes()),
                    }
                }
                let values: Vec<_> = values.iter().map(Option::as_deref).collect();
                Ok(function.evaluate(&values, bindings)?.map_or(Value::Null, Value::Bytes))
            }
        }
    }
}

/// A part of a tuple or user-defined type must have a value, at least null.
fn unset_part(cql_type: &CqlType, position: usize) -> InvalidRequest {
    let CqlType::Udt { definition, .. } = cql_type else {
        return InvalidRequest::new(format!(
            "Invalid unset value for tuple field number {position}"
        ));
    };
    let field = definition.fields.get(position).map_or("", |(field, _)| field);
    InvalidRequest::new(format!(
        "Invalid unset value for field '{field}' of user defined type {}",
        definition.name
    ))
}

/// Composes parts; sets and maps are sorted, and the last of equal elements or keys wins.
fn composite(
    cql_type: &CqlType,
    parts: &[Prepared],
    bindings: &dyn Bindings,
) -> Result<Value, InvalidRequest> {
    if matches!(cql_type, CqlType::Tuple(_) | CqlType::Udt { .. }) {
        let mut values = Vec::with_capacity(parts.len());
        for (position, part) in parts.iter().enumerate() {
            match part.evaluate(bindings)? {
                Value::Unset => return Err(unset_part(cql_type, position)),
                value => values.push(value.into_bytes()),
            }
        }
        return Ok(Value::Bytes(split::join_tuple(values)));
    }
    let mut values = Vec::with_capacity(parts.len());
    for part in parts {
        values.push(match part.evaluate(bindings)? {
            Value::Bytes(bytes) => bytes,
            Value::Null => {
                return Err(InvalidRequest::new("null is not supported inside collections"));
            }
            Value::Unset => {
                return Err(InvalidRequest::new("unset value is not supported inside collections"));
            }
        });
    }
    if let CqlType::Set { element: compared, .. } | CqlType::Map { key: compared, .. } = cql_type {
        values.iter().try_for_each(|value| check_numbers(compared, value))?;
    }
    Ok(Value::Bytes(match cql_type {
        CqlType::Set { element, .. } => {
            values.sort_by(|left, right| compare(element, left, right));
            values.dedup_by(|left, right| compare(element, left, right).is_eq());
            split::join_collection(values.len(), values)
        }
        CqlType::Map { key, .. } => {
            let mut entries = Vec::with_capacity(values.len() / 2);
            let mut values = values.into_iter();
            while let (Some(key), Some(value)) = (values.next(), values.next()) {
                entries.push((key, value));
            }
            entries.sort_by(|(left, _), (right, _)| compare(key, left, right));
            // Of equal keys the first one stays, with the last one's value.
            entries.dedup_by(|(later, value), (first, kept)| {
                let same = compare(key, later, first).is_eq();
                if same {
                    std::mem::swap(kept, value);
                }
                same
            });
            split::join_collection(
                entries.len(),
                entries.into_iter().flat_map(|(key, value)| [key, value]),
            )
        }
        CqlType::Vector { element, .. } => split::join_vector(element, values),
        _ => split::join_collection(values.len(), values),
    }))
}
