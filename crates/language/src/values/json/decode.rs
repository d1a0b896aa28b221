//! Converts JSON to values, with Cassandra's messages for wrong types.

use super::syntax::{self, Json};
use crate::ast::NativeType;
use crate::error::InvalidRequest;
use crate::types::CqlType;
use crate::values::float::float_text;
use crate::values::number::{Decimal, parse_float};
use crate::values::string::unhex;
use crate::values::{compare, from_string, split};

/// The value of a type from JSON; `None` for null.
///
/// # Errors
/// If the JSON is not such a value.
pub fn from_json(
    cql_type: &CqlType,
    json: &Json,
    now_ms: i64,
) -> Result<Option<Vec<u8>>, InvalidRequest> {
    let value = match (cql_type, json) {
        (_, Json::Null) => return Ok(None),
        (CqlType::Native(native), _) => from_native(*native, json, now_ms)?,
        (CqlType::Custom(_), _) => from_native(NativeType::Blob, json, now_ms)?,
        // A string contains JSON, except for types written as strings.
        (_, Json::String(text)) => {
            let inner = syntax::parse(text).map_err(|error| {
                InvalidRequest::new(format!("Error decoding JSON string: {error}"))
            })?;
            return match inner {
                Json::String(_) => Err(expected("a list", &inner)),
                inner => from_json(cql_type, &inner, now_ms),
            };
        }
        (CqlType::List { element, .. }, _) => {
            let elements = array(json, "a list", "list", element, now_ms)?;
            split::join_collection(elements.len(), elements)
        }
        (CqlType::Set { element, .. }, _) => {
            let mut elements = array(json, "a list (representing a set)", "set", element, now_ms)?;
            elements.sort_by(|left, right| compare(element, left, right));
            elements.dedup_by(|left, right| compare(element, left, right).is_eq());
            split::join_collection(elements.len(), elements)
        }
        (CqlType::Map { key, value, .. }, _) => map(json, key, value, now_ms)?,
        (CqlType::Vector { element, dimension }, _) => {
            let elements = array(json, "a list", "vector", element, now_ms)?;
            if elements.len() != usize::try_from(*dimension).unwrap_or(0) {
                let message = format!(
                    "List had incorrect size: expected {dimension} but given {}; {}",
                    elements.len(),
                    json.shown()
                );
                return Err(InvalidRequest::new(message));
            }
            split::join_vector(element, elements)
        }
        (CqlType::Tuple(types), _) => tuple(json, types, now_ms)?,
        (CqlType::Udt { definition, .. }, _) => user_type(json, &definition.fields, now_ms)?,
    };
    Ok(Some(value))
}

/// The columns of `INSERT JSON`: names with their values, including null.
///
/// # Errors
/// If the text is not a JSON object.
pub fn from_json_row(text: &str) -> Result<Vec<(String, Json)>, InvalidRequest> {
    let unreadable = |error| {
        InvalidRequest::new(format!(
            "Could not decode JSON string as a map: {error}. (String was: {text})"
        ))
    };
    match syntax::parse(text).map_err(unreadable)? {
        Json::Object(entries) => {
            Ok(entries.into_iter().map(|(name, value)| (column_name(&name), value)).collect())
        }
        Json::Null => Err(InvalidRequest::new("Got null for INSERT JSON values")),
        other => Err(unreadable(InvalidRequest::new(format!("found a {}", other.class())))),
    }
}

/// A JSON key as a name: case-sensitive in quotes.
pub(super) fn column_name(key: &str) -> String {
    let inside = key.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inside.map_or_else(|| key.to_lowercase(), |inside| inside.replace("\"\"", "\""))
}

fn expected(what: &str, json: &Json) -> InvalidRequest {
    InvalidRequest::new(format!("Expected {what}, but got a {}: {}", json.class(), json.shown()))
}

/// Cassandra's expectation for a type that JSON represents only as a string.
fn described(native: NativeType) -> &'static str {
    match native {
        NativeType::Ascii => "an ascii string",
        NativeType::Text => "a UTF-8 string",
        NativeType::Boolean => "a boolean value",
        NativeType::Tinyint => "a byte value",
        NativeType::Smallint => "a short value",
        NativeType::Int => "an int value",
        NativeType::Bigint | NativeType::Counter => "a bigint value",
        NativeType::Double => "a double value",
        NativeType::Float => "a float value",
        NativeType::Date => "a string representation of a date value",
        NativeType::Time => "a string representation of a time value",
        NativeType::Timestamp => "a long or a datestring representation of a timestamp value",
        NativeType::Duration => "a string representation of a duration",
        NativeType::Inet => "a string representation of an inet value",
        NativeType::Uuid => "a string representation of a uuid",
        NativeType::Timeuuid => "a string representation of a timeuuid",
        NativeType::Blob | NativeType::Varint | NativeType::Decimal => "a string",
    }
}

fn from_native(native: NativeType, json: &Json, now_ms: i64) -> Result<Vec<u8>, InvalidRequest> {
    let wrong = || Err(expected(described(native), json));
    let no_number = || {
        let name = native.name();
        InvalidRequest::new(format!(
            "Value '{}' is not a valid representation of a {name} value",
            json.shown()
        ))
    };
    match (native, json) {
        (NativeType::Blob, Json::String(text)) => {
            let digits = text.strip_prefix("0x").and_then(unhex);
            digits.ok_or_else(|| {
                let problem = format!("String representation of blob is missing 0x prefix: {text}");
                InvalidRequest::new(format!(
                    "Value '{text}' is not a valid blob representation: {problem}"
                ))
            })
        }
        (NativeType::Blob, other) => Err(InvalidRequest::new(format!(
            "Value '{}' is not a valid blob representation",
            other.shown()
        ))),
        (NativeType::Varint, Json::Number(text) | Json::String(text)) if !text.is_empty() => {
            from_string(native, text, now_ms).map_err(|_| no_number())
        }
        // Cassandra's parser turns a number that is not whole into a double, and loses precision.
        (NativeType::Decimal, Json::Number(text)) if text.contains(['.', 'e', 'E']) => {
            let double = parse_float::<f64>(text).map(|value| float_text(value, false));
            let decimal = double.and_then(|text| Decimal::parse(&text));
            decimal.map(|value| value.encode()).ok_or_else(no_number)
        }
        (NativeType::Decimal, Json::Number(text) | Json::String(text)) => {
            if text.is_empty() {
                Ok(Vec::new())
            } else {
                Decimal::parse(text).map(|value| value.encode()).ok_or_else(no_number)
            }
        }
        (NativeType::Varint | NativeType::Decimal, _) => Err(no_number()),
        (_, Json::String(text)) => from_string(native, text, now_ms),
        (NativeType::Boolean, Json::Boolean(value)) => Ok(vec![u8::from(*value)]),
        (NativeType::Tinyint | NativeType::Smallint, Json::Number(text)) => {
            from_string(native, text, now_ms)
        }
        (NativeType::Int | NativeType::Bigint | NativeType::Counter, Json::Number(text)) => {
            from_string(native, text, now_ms).or_else(|_| wrong())
        }
        // Java parses a small number as an Integer, which it does not accept for the Long of a
        // time.
        (NativeType::Timestamp, Json::Number(text)) if text.parse::<i32>().is_ok() => wrong(),
        (NativeType::Timestamp, Json::Number(text)) => {
            text.parse().map(|ms: i64| ms.to_be_bytes().to_vec()).or_else(|_| wrong())
        }
        (NativeType::Double, Json::Number(text)) => {
            parse_float::<f64>(text).map_or_else(wrong, |value| Ok(value.to_be_bytes().to_vec()))
        }
        (NativeType::Float, Json::Number(text)) => {
            parse_float::<f32>(text).map_or_else(wrong, |value| Ok(value.to_be_bytes().to_vec()))
        }
        _ => wrong(),
    }
}

fn array(
    json: &Json,
    what: &str,
    kind: &str,
    element: &CqlType,
    now_ms: i64,
) -> Result<Vec<Vec<u8>>, InvalidRequest> {
    let Json::Array(elements) = json else { return Err(expected(what, json)) };
    let value = |json: &Json| {
        let value = from_json(element, json, now_ms)?;
        value.ok_or_else(|| InvalidRequest::new(format!("Invalid null element in {kind}")))
    };
    elements.iter().map(value).collect()
}

fn map(
    json: &Json,
    key: &CqlType,
    value: &CqlType,
    now_ms: i64,
) -> Result<Vec<u8>, InvalidRequest> {
    let Json::Object(entries) = json else { return Err(expected("a map", json)) };
    let mut values = Vec::with_capacity(entries.len());
    for (name, json) in entries {
        let name = from_json(key, &Json::String(name.clone()), now_ms)?;
        let name = name.ok_or_else(|| InvalidRequest::new("Invalid null key in map"))?;
        let found = from_json(value, json, now_ms)?;
        values.push((name, found.ok_or_else(|| InvalidRequest::new("Invalid null value in map"))?));
    }
    values.sort_by(|(left, _), (right, _)| compare(key, left, right));
    // The last of equal keys counts.
    values.reverse();
    values.dedup_by(|(left, _), (right, _)| compare(key, left, right).is_eq());
    values.reverse();
    Ok(split::join_collection(
        values.len(),
        values.into_iter().flat_map(|(key, value)| [key, value]),
    ))
}

fn tuple(json: &Json, types: &[CqlType], now_ms: i64) -> Result<Vec<u8>, InvalidRequest> {
    let Json::Array(elements) = json else {
        return Err(expected("a list representation of a tuple", json));
    };
    let (found, wanted) = (elements.len(), types.len());
    if found > wanted {
        return Err(InvalidRequest::new(format!(
            "Tuple contains extra items (expected {wanted}): {}",
            json.shown()
        )));
    }
    if found < wanted {
        return Err(InvalidRequest::new(format!(
            "Tuple is missing items (expected {wanted}): {}",
            json.shown()
        )));
    }
    let values =
        elements.iter().zip(types).map(|(json, cql_type)| from_json(cql_type, json, now_ms));
    Ok(split::join_tuple(values.collect::<Result<Vec<_>, _>>()?))
}

fn user_type(
    json: &Json,
    fields: &[(String, CqlType)],
    now_ms: i64,
) -> Result<Vec<u8>, InvalidRequest> {
    let Json::Object(entries) = json else { return Err(expected("a map", json)) };
    let names: Vec<String> = entries.iter().map(|(key, _)| column_name(key)).collect();
    if let Some(unknown) = names.iter().find(|name| fields.iter().all(|(field, _)| field != *name))
    {
        return Err(InvalidRequest::new(format!(
            "Unknown field '{unknown}' in value of user defined type"
        )));
    }
    let values = fields.iter().map(|(field, cql_type)| {
        let entry =
            names.iter().position(|name| name == field).and_then(|position| entries.get(position));
        entry.map_or(Ok(None), |(_, json)| from_json(cql_type, json, now_ms))
    });
    Ok(split::join_tuple(values.collect::<Result<Vec<_>, _>>()?))
}
