//! `CAST(a AS type)`

use super::{arithmetic, time};
use crate::ast::NativeType;
use crate::values::{decode_varint, encode_varint, plain_text};

/// True if the conversion exists.
pub(super) fn is_castable(from: NativeType, to: NativeType) -> bool {
    use NativeType::{Ascii, Boolean, Counter, Date, Inet, Text, Time, Timestamp, Timeuuid, Uuid};
    let text = matches!(to, Ascii | Text);
    match from {
        _ if from == to => true,
        _ if arithmetic::is_number(from) => (arithmetic::is_number(to) && to != Counter) || text,
        Ascii => to == Text,
        Boolean | Inet | Time | Uuid => text,
        Timestamp => text || to == Date,
        Date => text || to == Timestamp,
        Timeuuid => text || matches!(to, Date | Timestamp | Uuid),
        _ => false,
    }
}

/// Converts a value; an empty one becomes null.
pub(super) fn cast(from: NativeType, to: NativeType, bytes: &[u8]) -> Option<Vec<u8>> {
    match (from, to) {
        _ if from == to => Some(bytes.to_vec()),
        (NativeType::Inet, _) if bytes.is_empty() => None,
        (_, NativeType::Ascii | NativeType::Text) => {
            plain_text(from, bytes).map(String::into_bytes)
        }
        (NativeType::Timeuuid, NativeType::Uuid) => Some(bytes.to_vec()),
        (_, NativeType::Date | NativeType::Timestamp) => time::convert(from, to, bytes),
        // A float becomes the decimal of its own digits, not of those of the equal double.
        (NativeType::Float, NativeType::Decimal) => {
            crate::values::Decimal::parse(&plain_text(from, bytes)?).map(|value| value.encode())
        }
        // Through a `bigint`, however large the number.
        (_, NativeType::Varint) => {
            let number = arithmetic::read(from, bytes)?.write(NativeType::Bigint)?;
            Some(encode_varint(&decode_varint(&number)))
        }
        _ => arithmetic::read(from, bytes)?.write(to),
    }
}
