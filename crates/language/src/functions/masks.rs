//! Functions that hide values: `mask_null`, `mask_default`, `mask_replace`, `mask_inner` and
//! `mask_outer`.

use super::time;
use crate::ast::NativeType;
use crate::error::InvalidRequest;
use crate::types::CqlType;
use crate::values::{Decimal, Duration, split};

/// The character that hides a text unless another is given.
const PADDING: u16 = b'*' as u16;

/// The mask function.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mask {
    Null,
    Default,
    Replace,
    /// Masks all but the first and the last characters.
    Inner,
    /// Masks the first and the last characters.
    Outer,
}

/// Returns the masked value; `cql_type` is that of the hidden value.
pub(super) fn apply(
    mask: Mask,
    cql_type: &CqlType,
    arguments: &[Option<&[u8]>],
) -> Result<Option<Vec<u8>>, InvalidRequest> {
    match mask {
        Mask::Null => Ok(None),
        Mask::Default => default(cql_type).map(Some),
        Mask::Replace => Ok(arguments.get(1).copied().flatten().map(<[u8]>::to_vec)),
        Mask::Inner | Mask::Outer => {
            let Some(Some(value)) = arguments.first() else { return Ok(None) };
            let number = |position: usize| {
                let bytes = arguments
                    .get(position)
                    .copied()
                    .flatten()
                    .and_then(|bytes| bytes.try_into().ok());
                bytes.map_or(0, i32::from_be_bytes)
            };
            let padding =
                arguments.get(3).copied().flatten().map(padding).transpose()?.unwrap_or(PADDING);
            Ok(Some(partial(value, number(1), number(2), padding, mask == Mask::Outer)))
        }
    }
}

/// The character that replaces others.
fn padding(bytes: &[u8]) -> Result<u16, InvalidRequest> {
    let text = String::from_utf8_lossy(bytes);
    let units: Vec<u16> = text.encode_utf16().collect();
    match units[..] {
        [unit] => Ok(unit),
        _ => Err(InvalidRequest::new(format!(
            "The padding argument of a masking function should be single-character, but '{text}' has {} characters.",
            units.len()
        ))),
    }
}

/// Positions count UTF-16 units, as in Java.
fn partial(value: &[u8], begin: i32, end: i32, padding: u16, outer: bool) -> Vec<u8> {
    let mut units: Vec<u16> = String::from_utf8_lossy(value).encode_utf16().collect();
    let size = i64::try_from(units.len()).unwrap_or(i64::MAX);
    let last = size - 1 - i64::from(end);
    for (position, unit) in (0..).zip(&mut units) {
        let within = position >= i64::from(begin) && position <= last;
        if within != outer {
            *unit = padding;
        }
    }
    // A lone surrogate becomes the character that Java substitutes.
    let text: String = char::decode_utf16(units).map(|found| found.unwrap_or('?')).collect();
    text.into_bytes()
}

/// A value without information.
fn default(cql_type: &CqlType) -> Result<Vec<u8>, InvalidRequest> {
    let each = |types: &mut dyn Iterator<Item = &CqlType>| -> Result<Vec<u8>, InvalidRequest> {
        let parts = types.map(|part| default(part).map(Some)).collect::<Result<Vec<_>, _>>()?;
        Ok(split::join_tuple(parts))
    };
    Ok(match cql_type {
        CqlType::Native(native) => of_native(*native),
        CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. } => vec![0; 4],
        CqlType::Tuple(types) => each(&mut types.iter())?,
        CqlType::Udt { definition, .. } => {
            each(&mut definition.fields.iter().map(|(_, field)| field))?
        }
        CqlType::Vector { element, dimension } => {
            let value = default(element)?;
            split::join_vector(element, (0..*dimension).map(|_| &value))
        }
        CqlType::Custom(_) => {
            return Err(InvalidRequest::new(format!(
                "There isn't a defined masked value for type {cql_type}"
            )));
        }
    })
}

fn of_native(native: NativeType) -> Vec<u8> {
    use NativeType as N;
    match native {
        N::Ascii | N::Text => b"****".to_vec(),
        N::Blob => Vec::new(),
        N::Boolean | N::Tinyint | N::Varint => vec![0],
        N::Smallint => vec![0; 2],
        N::Int | N::Float | N::Inet => vec![0; 4],
        N::Date => (1_u32 << 31).to_be_bytes().to_vec(),
        N::Bigint | N::Counter | N::Double | N::Time | N::Timestamp => vec![0; 8],
        N::Uuid => vec![0; 16],
        N::Timeuuid => time::bound_of_timeuuids(&[0; 8], false).unwrap_or_default(),
        N::Decimal => Decimal::parse("0").map(|zero| zero.encode()).unwrap_or_default(),
        N::Duration => Duration::default().encode(),
    }
}
