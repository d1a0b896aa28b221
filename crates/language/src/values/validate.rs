//! Checks that bytes are a value of a type, with Cassandra's messages.

use std::fmt::Write as _;

use super::duration::Duration;
use super::split::{self, TupleError};
use super::time::DAY_NS;
use crate::ast::NativeType;
use crate::error::InvalidRequest;
use crate::types::CqlType;

/// Checks that `bytes` are a value of the type.
///
/// # Errors
/// If they are not; Cassandra answers such a value with an `Invalid` error of this message.
pub fn validate(cql_type: &CqlType, bytes: &[u8]) -> Result<(), InvalidRequest> {
    match cql_type {
        CqlType::Native(native) => native_value(*native, bytes).map_err(InvalidRequest::new),
        CqlType::List { element, .. } => collection("list", &[element], bytes),
        CqlType::Set { element, .. } => collection("set", &[element], bytes),
        CqlType::Map { key, value, .. } => collection("map", &[key, value], bytes),
        CqlType::Tuple(types) => tuple(types, bytes),
        CqlType::Udt { definition, .. } => user_type(&definition.fields, bytes),
        CqlType::Vector { element, dimension } => {
            if bytes.is_empty() {
                return Err(InvalidRequest::new("Invalid empty vector value"));
            }
            split::vector(element, *dimension, bytes)?
                .into_iter()
                .try_for_each(|value| validate(element, value))
        }
        CqlType::Custom(_) => Ok(()),
    }
}

fn native_value(native: NativeType, bytes: &[u8]) -> Result<(), String> {
    let length = bytes.len();
    let expect = |fits: bool, what: &str| {
        if fits { Ok(()) } else { Err(format!("Expected {what} ({length})")) }
    };
    match native {
        NativeType::Ascii => match bytes.iter().find(|byte| !byte.is_ascii()) {
            Some(byte) => Err(format!("Invalid byte for ascii: {}", byte.cast_signed())),
            None => Ok(()),
        },
        NativeType::Text => {
            std::str::from_utf8(bytes).map(drop).map_err(|_| "String didn't validate.".to_owned())
        }
        NativeType::Blob | NativeType::Varint => Ok(()),
        NativeType::Bigint | NativeType::Counter => {
            expect(matches!(length, 0 | 8), "8 or 0 byte long")
        }
        NativeType::Timestamp => expect(matches!(length, 0 | 8), "8 or 0 byte long for date"),
        NativeType::Boolean => expect(length <= 1, "1 or 0 byte value"),
        NativeType::Date => expect(length == 4, "4 byte long for date"),
        NativeType::Decimal => expect(length == 0 || length >= 4, "0 or at least 4 bytes"),
        NativeType::Double => expect(matches!(length, 0 | 8), "8 or 0 byte value for a double"),
        NativeType::Float => expect(matches!(length, 0 | 4), "4 or 0 byte value for a float"),
        NativeType::Duration => Duration::decode(bytes).map(drop).map_err(|error| error.message),
        NativeType::Inet if matches!(length, 0 | 4 | 16) => Ok(()),
        NativeType::Inet => Err(format!("Expected 4 or 16 byte inetaddress; got {}", hex(bytes))),
        NativeType::Int => expect(matches!(length, 0 | 4), "4 or 0 byte int"),
        NativeType::Smallint => expect(length == 2, "2 bytes for a smallint"),
        NativeType::Tinyint => expect(length == 1, "1 byte for a tinyint"),
        NativeType::Time => {
            expect(length == 8, "8 byte long for time")?;
            let ns = bytes.try_into().map_or(0, i64::from_be_bytes);
            if (0..DAY_NS).contains(&ns) {
                return Ok(());
            }
            Err(format!("Input long out of bounds: {ns}"))
        }
        NativeType::Uuid | NativeType::Timeuuid => {
            if !matches!(length, 0 | 16) {
                return Err(format!("UUID should be 16 or 0 bytes ({length})"));
            }
            if native == NativeType::Timeuuid && length == 16 && bytes[6] & 0xF0 != 0x10 {
                return Err(format!("Invalid version for TimeUUID type: 0x{:x}", bytes[6] >> 4));
            }
            Ok(())
        }
    }
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn collection(what: &str, types: &[&CqlType], bytes: &[u8]) -> Result<(), InvalidRequest> {
    // Bytes of a number, bound for a collection, may begin like this.
    if bytes.first_chunk::<4>().is_some_and(|count| i32::from_be_bytes(*count) < 0) {
        let why = format!("The data cannot be deserialized as a {what}");
        return Err(InvalidRequest::new(why));
    }
    let elements = split::collection(what, bytes)?;
    elements
        .into_iter()
        .zip(types.iter().cycle())
        .try_for_each(|(value, cql_type)| validate(cql_type, value))
}

/// `0th`, `1st`, and so on.
fn ordinal(position: usize) -> String {
    let suffix = match (position % 10, position % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{position}{suffix}")
}

fn tuple(types: &[CqlType], bytes: &[u8]) -> Result<(), InvalidRequest> {
    let elements = split::tuple(types.len(), bytes).map_err(|error| {
        InvalidRequest::new(match error {
            TupleError::Size(position) => {
                format!("Not enough bytes to read size of {} component", ordinal(position))
            }
            TupleError::Value(position) => {
                format!("Not enough bytes to read {} component", ordinal(position))
            }
            TupleError::Rest => "Invalid remaining data after end of tuple value".to_owned(),
        })
    })?;
    let mut values = elements.into_iter().zip(types);
    values.try_for_each(|(value, cql_type)| value.map_or(Ok(()), |value| validate(cql_type, value)))
}

fn user_type(fields: &[(String, CqlType)], bytes: &[u8]) -> Result<(), InvalidRequest> {
    let name = |position: usize| fields.get(position).map_or("", |(name, _)| name);
    let elements = split::tuple(fields.len(), bytes).map_err(|error| {
        InvalidRequest::new(match error {
            TupleError::Size(position) => {
                format!(
                    "Not enough bytes to read size of {} field {}",
                    ordinal(position),
                    name(position)
                )
            }
            TupleError::Value(position) => {
                format!("Not enough bytes to read {} field {}", ordinal(position), name(position))
            }
            TupleError::Rest => "Invalid remaining data after end of UDT value".to_owned(),
        })
    })?;
    for (position, (value, (name, cql_type))) in elements.into_iter().zip(fields).enumerate() {
        if let Some(Err(error)) = value.map(|value| validate(cql_type, value)) {
            let position = ordinal(position);
            return Err(InvalidRequest::new(format!(
                "Failure validating the {position} field {name}; {error}"
            )));
        }
    }
    Ok(())
}
