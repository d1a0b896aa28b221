//! Formats values as text: as literals for `DESCRIBE` and messages, and as bare strings for JSON
//! and casts.

use std::net::Ipv6Addr;

use super::duration::Duration;
use super::float::float_text;
use super::number::{Decimal, decode_varint};
use super::validate::hex;
use super::{split, time};
use crate::ast::{NativeType, quoted_name, quoted_string};
use crate::types::CqlType;

/// The text of a native value without quotes, empty for an empty value; `None` if the bytes are not
/// of the type.
#[must_use]
pub fn plain_text(native: NativeType, bytes: &[u8]) -> Option<String> {
    if bytes.is_empty() && !matches!(native, NativeType::Blob) {
        return Some(String::new());
    }
    Some(match native {
        NativeType::Ascii | NativeType::Text => std::str::from_utf8(bytes).ok()?.to_owned(),
        NativeType::Bigint | NativeType::Counter => {
            i64::from_be_bytes(bytes.try_into().ok()?).to_string()
        }
        NativeType::Int => i32::from_be_bytes(bytes.try_into().ok()?).to_string(),
        NativeType::Smallint => i16::from_be_bytes(bytes.try_into().ok()?).to_string(),
        NativeType::Tinyint => i8::from_be_bytes(bytes.try_into().ok()?).to_string(),
        NativeType::Blob => format!("0x{}", hex(bytes)),
        NativeType::Boolean => (*bytes.first()? != 0).to_string(),
        NativeType::Date => time::date_text(u32::from_be_bytes(bytes.try_into().ok()?)),
        NativeType::Decimal => Decimal::decode(bytes)?.to_string(),
        NativeType::Double => float_text(f64::from_be_bytes(bytes.try_into().ok()?), false),
        NativeType::Float => {
            float_text(f64::from(f32::from_be_bytes(bytes.try_into().ok()?)), true)
        }
        NativeType::Duration => Duration::decode(bytes).ok()?.to_string(),
        NativeType::Inet => match bytes.len() {
            4 => bytes.iter().map(u8::to_string).collect::<Vec<_>>().join("."),
            _ => {
                let address = Ipv6Addr::from(u128::from_be_bytes(bytes.try_into().ok()?));
                address.segments().map(|segment| format!("{segment:x}")).join(":")
            }
        },
        NativeType::Time => time::time_text(i64::from_be_bytes(bytes.try_into().ok()?)),
        NativeType::Timestamp => {
            time::timestamp_text(i64::from_be_bytes(bytes.try_into().ok()?), 'T')
        }
        NativeType::Uuid | NativeType::Timeuuid => {
            let digits = hex(<&[u8; 16]>::try_from(bytes).ok()?);
            let parts =
                [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
            parts.join("-")
        }
        NativeType::Varint => decode_varint(bytes).to_string(),
    })
}

/// A value as a literal of its type; `null` for an empty value of a type without empty literals.
#[must_use]
pub fn literal(cql_type: &CqlType, bytes: &[u8]) -> String {
    write(cql_type, bytes).unwrap_or_else(|| format!("0x{}", hex(bytes)))
}

fn write(cql_type: &CqlType, bytes: &[u8]) -> Option<String> {
    let nested = |cql_type: &CqlType, values: Vec<&[u8]>| -> Vec<String> {
        values.into_iter().map(|value| literal(cql_type, value)).collect()
    };
    Some(match cql_type {
        CqlType::Native(native) => native_literal(*native, bytes)?,
        CqlType::List { element, .. } => {
            format!("[{}]", nested(element, split::collection("list", bytes).ok()?).join(", "))
        }
        CqlType::Set { element, .. } => {
            format!("{{{}}}", nested(element, split::collection("set", bytes).ok()?).join(", "))
        }
        CqlType::Map { key, value, .. } => {
            let elements = split::collection("map", bytes).ok()?;
            let (entries, _) = elements.as_chunks::<2>();
            let entry = |[k, v]: &[&[u8]; 2]| format!("{}: {}", literal(key, k), literal(value, v));
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        CqlType::Tuple(types) => {
            let elements = split::tuple(types.len(), bytes).ok()?;
            let element = |(value, cql_type): (Option<&[u8]>, &CqlType)| {
                value.map_or_else(|| "null".to_owned(), |value| literal(cql_type, value))
            };
            format!(
                "({})",
                elements.into_iter().zip(types.iter()).map(element).collect::<Vec<_>>().join(", ")
            )
        }
        CqlType::Udt { definition, .. } => {
            let elements = split::tuple(definition.fields.len(), bytes).ok()?;
            let field = |(value, (name, cql_type)): (Option<&[u8]>, &(String, CqlType))| {
                let value =
                    value.map_or_else(|| "null".to_owned(), |value| literal(cql_type, value));
                format!("{}: {value}", quoted_name(name))
            };
            let fields = elements.into_iter().zip(&definition.fields).map(field);
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        CqlType::Vector { element, dimension } => {
            format!(
                "[{}]",
                nested(element, split::vector(element, *dimension, bytes).ok()?).join(", ")
            )
        }
        CqlType::Custom(_) => return None,
    })
}

fn native_literal(native: NativeType, bytes: &[u8]) -> Option<String> {
    let text = plain_text(native, bytes)?;
    let quoted = matches!(
        native,
        NativeType::Ascii
            | NativeType::Text
            | NativeType::Date
            | NativeType::Time
            | NativeType::Timestamp
            | NativeType::Inet
    );
    let string = matches!(native, NativeType::Ascii | NativeType::Text);
    Some(match (bytes.is_empty(), quoted) {
        (true, _) if !string && native != NativeType::Blob => "null".to_owned(),
        (_, true) => quoted_string(&text),
        (_, false) => text,
    })
}
