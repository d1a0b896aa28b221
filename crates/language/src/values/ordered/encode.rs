//! Encoder of sortable keys: one function for each kind of order.

use num_bigint::Sign;

use super::header;
use crate::ast::NativeType;
use crate::types::CqlType;
use crate::values::compare::{timeuuid_order, uuid_order};
use crate::values::number::{Decimal, decode_varint, encode_varint};
use crate::values::split;

/// Longest `varint` with its length in the first byte; longer ones have four additional length
/// bytes.
pub(super) const SHORT_VARINT_MAX: usize = 100;
/// First byte of a long positive `varint`.
pub(super) const LONG_VARINT: u8 = 0xFE;
/// First bytes of decimals.
pub(super) const NEGATIVE: u8 = 0x7F;
pub(super) const ZERO: u8 = 0x80;
pub(super) const POSITIVE: u8 = 0x81;

/// Encodes a component; `None` if the value is not of its type.
pub(super) fn value(cql_type: &CqlType, value: Option<&[u8]>, out: &mut Vec<u8>) -> Option<()> {
    let Some(bytes) = value else {
        out.push(header::NULL);
        return Some(());
    };
    if bytes.is_empty() {
        out.push(header::EMPTY);
        return Some(());
    }
    out.push(header::VALUE);
    match cql_type {
        CqlType::Native(native) => native_value(*native, bytes, out),
        CqlType::List { element, .. } => collection("list", &[element], bytes, out),
        CqlType::Set { element, .. } => collection("set", &[element], bytes, out),
        CqlType::Map { key, value, .. } => collection("map", &[key, value], bytes, out),
        CqlType::Tuple(types) => {
            let mut elements = split::tuple(types.len(), bytes).ok()?.into_iter().zip(types.iter());
            elements.try_for_each(|(element, cql_type)| self::value(cql_type, element, out))
        }
        CqlType::Udt { definition, .. } => {
            let fields = &definition.fields;
            let mut elements = split::tuple(fields.len(), bytes).ok()?.into_iter().zip(fields);
            elements.try_for_each(|(element, (_, cql_type))| self::value(cql_type, element, out))
        }
        CqlType::Vector { element, dimension } => {
            let mut elements = split::vector(element, *dimension, bytes).ok()?.into_iter();
            elements.try_for_each(|value| self::value(element, Some(value), out))
        }
        CqlType::Custom(_) => {
            escaped(bytes, out);
            Some(())
        }
    }
}

fn native_value(native: NativeType, bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    match native {
        NativeType::Tinyint => signed(<[u8; 1]>::try_from(bytes).ok()?, out),
        NativeType::Smallint => signed(<[u8; 2]>::try_from(bytes).ok()?, out),
        NativeType::Int => signed(<[u8; 4]>::try_from(bytes).ok()?, out),
        NativeType::Bigint | NativeType::Counter | NativeType::Timestamp => {
            signed(<[u8; 8]>::try_from(bytes).ok()?, out);
        }
        NativeType::Date => out.extend_from_slice(&<[u8; 4]>::try_from(bytes).ok()?),
        NativeType::Time => out.extend_from_slice(&<[u8; 8]>::try_from(bytes).ok()?),
        NativeType::Boolean => out.push(u8::from(<[u8; 1]>::try_from(bytes).ok()? != [0])),
        NativeType::Float => {
            let value = f32::from_be_bytes(bytes.try_into().ok()?);
            let bits =
                if value.is_nan() { f32::NAN.to_bits() & !(1 << 31) } else { value.to_bits() };
            out.extend_from_slice(
                &(if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }).to_be_bytes(),
            );
        }
        NativeType::Double => {
            let value = f64::from_be_bytes(bytes.try_into().ok()?);
            let bits =
                if value.is_nan() { f64::NAN.to_bits() & !(1 << 63) } else { value.to_bits() };
            out.extend_from_slice(
                &(if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }).to_be_bytes(),
            );
        }
        NativeType::Uuid => {
            let (version, most, least) = uuid_order(bytes)?;
            out.push(version);
            out.extend_from_slice(&most.to_be_bytes());
            out.extend_from_slice(&least.to_be_bytes());
        }
        NativeType::Timeuuid => out.extend_from_slice(&timeuuid_order(bytes)?.to_be_bytes()),
        NativeType::Varint => varint(bytes, out)?,
        NativeType::Decimal => decimal(&Decimal::decode(bytes)?, out),
        NativeType::Ascii
        | NativeType::Blob
        | NativeType::Duration
        | NativeType::Inet
        | NativeType::Text => {
            escaped(bytes, out);
        }
    }
    Some(())
}

/// Two's complement with the sign bit flipped.
fn signed<const N: usize>(mut bytes: [u8; N], out: &mut Vec<u8>) {
    if let Some(first) = bytes.first_mut() {
        *first ^= 0x80;
    }
    out.extend_from_slice(&bytes);
}

/// Bytes of any length: zeros are followed by 0xFF, and two zeros mark the end.
fn escaped(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        out.push(*byte);
        if *byte == 0 {
            out.push(0xFF);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

/// The number of bytes, then the bytes; both inverted for a negative number.
fn varint(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let canonical = encode_varint(&decode_varint(bytes));
    let negative = canonical.first()? & 0x80 != 0;
    let start = out.len();
    match u8::try_from(canonical.len()) {
        Ok(length) if usize::from(length) <= SHORT_VARINT_MAX => out.push(0x80 + length),
        _ => {
            out.push(LONG_VARINT);
            out.extend_from_slice(&u32::try_from(canonical.len()).ok()?.to_be_bytes());
        }
    }
    if negative {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    out.extend_from_slice(&canonical);
    Some(())
}

/// Sign, exponent and digits, two per byte; all but the sign inverted for a negative number.
fn decimal(value: &Decimal, out: &mut Vec<u8>) {
    let (sign, digits, exponent) = value.normal_form();
    out.push(match sign {
        Sign::Minus => NEGATIVE,
        Sign::NoSign => ZERO,
        Sign::Plus => POSITIVE,
    });
    if sign == Sign::NoSign {
        return;
    }
    let start = out.len();
    signed(exponent.to_be_bytes(), out);
    for pair in digits.as_bytes().chunks(2) {
        let (high, low) = (pair[0] - b'0', pair.get(1).map_or(0, |low| low - b'0'));
        out.push(high * 10 + low + 1);
    }
    out.push(0);
    if sign == Sign::Minus {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// The elements in sequence, then an end that sorts before any of them.
fn collection(what: &str, types: &[&CqlType], bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let elements = split::collection(what, bytes).ok()?;
    let mut elements = elements.into_iter().zip(types.iter().cycle());
    elements.try_for_each(|(element, cql_type)| value(cql_type, Some(element), out))?;
    out.push(header::END);
    Some(())
}
