//! Values to JSON text.

use std::fmt::Write as _;

use crate::ast::NativeType;
use crate::types::CqlType;
use crate::values::{plain_text, split, time};

/// Formats a value as JSON; `None` for bytes invalid for the type.
#[must_use]
pub fn to_json(cql_type: &CqlType, value: Option<&[u8]>) -> Option<String> {
    let Some(bytes) = value else { return Some("null".to_owned()) };
    let array = |cql_type: &CqlType, values: Vec<&[u8]>| {
        let elements = values
            .into_iter()
            .map(|value| to_json(cql_type, Some(value)))
            .collect::<Option<Vec<_>>>()?;
        Some(format!("[{}]", elements.join(", ")))
    };
    match cql_type {
        CqlType::Native(native) => native_json(*native, bytes),
        CqlType::List { element, .. } => array(element, split::collection("list", bytes).ok()?),
        CqlType::Set { element, .. } => array(element, split::collection("set", bytes).ok()?),
        CqlType::Vector { element, dimension } => {
            array(element, split::vector(element, *dimension, bytes).ok()?)
        }
        CqlType::Map { key, value, .. } => {
            let elements = split::collection("map", bytes).ok()?;
            let (entries, _) = elements.as_chunks::<2>();
            let entry = |[k, v]: &[&[u8]; 2]| {
                // Keys are strings in JSON, whatever their type.
                let name = to_json(key, Some(k))?;
                let name = if name.starts_with('"') { name } else { json_string(&name) };
                Some(format!("{name}: {}", to_json(value, Some(v))?))
            };
            Some(format!(
                "{{{}}}",
                entries.iter().map(entry).collect::<Option<Vec<_>>>()?.join(", ")
            ))
        }
        CqlType::Tuple(types) => {
            let elements = split::tuple(types.len(), bytes).ok()?;
            let elements = elements
                .into_iter()
                .zip(types.iter())
                .map(|(value, cql_type)| to_json(cql_type, value));
            Some(format!("[{}]", elements.collect::<Option<Vec<_>>>()?.join(", ")))
        }
        CqlType::Udt { definition, .. } => {
            let elements = split::tuple(definition.fields.len(), bytes).ok()?;
            let field = |(value, (name, cql_type)): (Option<&[u8]>, &(String, CqlType))| {
                Some(format!("{}: {}", json_key(name), to_json(cql_type, value)?))
            };
            let fields = elements.into_iter().zip(&definition.fields).map(field);
            Some(format!("{{{}}}", fields.collect::<Option<Vec<_>>>()?.join(", ")))
        }
        CqlType::Custom(_) => native_json(NativeType::Blob, bytes),
    }
}

fn native_json(native: NativeType, bytes: &[u8]) -> Option<String> {
    let text = plain_text(native, bytes)?;
    if bytes.is_empty() {
        return Some(if native == NativeType::Blob {
            "\"0x\"".to_owned()
        } else {
            "\"\"".to_owned()
        });
    }
    Some(match native {
        NativeType::Bigint
        | NativeType::Counter
        | NativeType::Int
        | NativeType::Smallint
        | NativeType::Tinyint
        | NativeType::Varint
        | NativeType::Decimal
        | NativeType::Boolean => text,
        // JSON has no notation for values that are not finite.
        NativeType::Double | NativeType::Float if text.ends_with(['N', 'y']) => "null".to_owned(),
        NativeType::Double | NativeType::Float => text,
        NativeType::Timestamp => {
            json_string(&time::timestamp_text(i64::from_be_bytes(bytes.try_into().ok()?), ' '))
        }
        _ => json_string(&text),
    })
}

/// A quoted string with JSON's escapes.
#[must_use]
pub fn json_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04X}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// The key of a column or field: a name with capital letters is also quoted inside the JSON key.
#[must_use]
pub fn json_key(name: &str) -> String {
    json_string(&if name == name.to_lowercase() { name.to_owned() } else { format!("\"{name}\"") })
}
