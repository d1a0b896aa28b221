//! Serializes literals of statements as the server would.
//!
//! Cassandra's `Constants.Literal.testAssignment` defines which literals a type accepts; its
//! serializers and the native protocol (v4, section 6) define the bytes.

use std::net::{IpAddr, Ipv6Addr};

use super::{CqlType, time};

/// Appends the serialized value of a literal (one token, with its quotes) for a column of the given
/// type.
///
/// Returns false and leaves `out` unchanged if the text is not a literal of that type or its bytes
/// are uncertain.
pub fn literal(cql_type: &CqlType, text: &str, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let written = write(cql_type, text, out).is_some();
    if !written {
        out.truncate(start);
    }
    written
}

fn write(cql_type: &CqlType, text: &str, out: &mut Vec<u8>) -> Option<()> {
    match cql_type {
        CqlType::Text => write_string(text, out)?,
        CqlType::Ascii => {
            let start = out.len();
            write_string(text, out)?;
            out[start..].is_ascii().then_some(())?;
        }
        CqlType::Tinyint => {
            out.extend_from_slice(&i8::try_from(integer(text)?).ok()?.to_be_bytes())
        }
        CqlType::Smallint => {
            out.extend_from_slice(&i16::try_from(integer(text)?).ok()?.to_be_bytes())
        }
        CqlType::Int => out.extend_from_slice(&i32::try_from(integer(text)?).ok()?.to_be_bytes()),
        CqlType::Bigint => out.extend_from_slice(&bigint(text)?),
        CqlType::Varint => write_varint(integer(text)?, out),
        CqlType::Decimal => write_decimal(text, out)?,
        CqlType::Float => out.extend_from_slice(&float::<f32>(text)?.to_be_bytes()),
        CqlType::Double => out.extend_from_slice(&float::<f64>(text)?.to_be_bytes()),
        CqlType::Boolean => out.push(u8::from(boolean(text)?)),
        CqlType::Uuid | CqlType::Timeuuid => out.extend_from_slice(&uuid(text)?.to_be_bytes()),
        CqlType::Blob => write_blob(text, out)?,
        CqlType::Inet => write_inet(plain_string(text)?, out)?,
        CqlType::Timestamp => match plain_string(text) {
            Some(text) => out.extend_from_slice(&time::timestamp_ms(text)?.to_be_bytes()),
            None => out.extend_from_slice(&bigint(text)?),
        },
        CqlType::Date => {
            let days = match plain_string(text) {
                Some(text) => time::date_days(text)?,
                None => u32::try_from(integer(text)?).ok()?,
            };
            out.extend_from_slice(&days.to_be_bytes());
        }
        CqlType::Time => {
            let nanoseconds = match plain_string(text) {
                Some(text) => time::time_ns(text)?,
                None => i64::try_from(integer(text)?)
                    .ok()
                    .filter(|ns| (0..time::DAY_NS).contains(ns))?,
            };
            out.extend_from_slice(&nanoseconds.to_be_bytes());
        }
        // Not one token, or never part of a key.
        CqlType::Counter
        | CqlType::Duration
        | CqlType::List(_)
        | CqlType::Set(_)
        | CqlType::Map(..)
        | CqlType::Tuple(_)
        | CqlType::Udt { .. }
        | CqlType::Custom(_) => return None,
    }
    Some(())
}

/// The inside of `'..'` or `$$..$$`, and whether quotes in it are doubled.
fn quoted(text: &str) -> Option<(&str, bool)> {
    if let Some(inside) = text.strip_prefix("$$") {
        return Some((inside.strip_suffix("$$")?, false));
    }
    Some((text.strip_prefix('\'')?.strip_suffix('\'')?, true))
}

fn write_string(text: &str, out: &mut Vec<u8>) -> Option<()> {
    let (inside, doubled) = quoted(text)?;
    if !doubled {
        out.extend_from_slice(inside.as_bytes());
        return Some(());
    }
    let mut parts = inside.split("''");
    out.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        out.push(b'\'');
        out.extend_from_slice(part.as_bytes());
    }
    Some(())
}

/// A string literal without inner quotes, the form of addresses and dates.
fn plain_string(text: &str) -> Option<&str> {
    quoted(text).map(|(inside, _)| inside).filter(|inside| !inside.contains('\''))
}

/// `-?[0-9]+`. Values beyond 128 bits, which only `varint` and `decimal` could hold, are not worth
/// big integers.
fn integer(text: &str) -> Option<i128> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some(())?;
    text.parse().ok()
}

fn bigint(text: &str) -> Option<[u8; 8]> {
    Some(i64::try_from(integer(text)?).ok()?.to_be_bytes())
}

/// Two's complement, big-endian, of minimal length (`BigInteger.toByteArray`).
fn write_varint(value: i128, out: &mut Vec<u8>) {
    let sign_bits = if value < 0 { value.leading_ones() } else { value.leading_zeros() };
    // One sign bit must stay.
    let redundant = (sign_bits as usize - 1) / 8;
    out.extend_from_slice(&value.to_be_bytes()[redundant..]);
}

/// `[int] scale`, then the unscaled value as a varint. The scale is that of `new BigDecimal(text)`,
/// so `1.50` and `1.5` differ, on the server too.
fn write_decimal(text: &str, out: &mut Vec<u8>) -> Option<()> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => {
            (mantissa, integer(exponent.strip_prefix('+').unwrap_or(exponent))?)
        }
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let negative = whole.starts_with('-');
    let mut unscaled = integer(whole)?;
    for digit in fraction.bytes() {
        let digit = i128::from(char::from(digit).to_digit(10)?);
        unscaled = unscaled.checked_mul(10)?.checked_add(if negative { -digit } else { digit })?;
    }
    let scale = i32::try_from((fraction.len() as i128).checked_sub(exponent)?).ok()?;
    out.extend_from_slice(&scale.to_be_bytes());
    write_varint(unscaled, out);
    Some(())
}

/// Java and Rust both round decimal text to the nearest value, and use the same bits for NaN.
fn float<F: std::str::FromStr>(text: &str) -> Option<F> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let number = unsigned.starts_with(|first: char| first.is_ascii_digit())
        && unsigned
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    let constant = text.eq_ignore_ascii_case("nan") || unsigned.eq_ignore_ascii_case("infinity");
    (number || constant).then(|| text.parse().ok())?
}

fn boolean(text: &str) -> Option<bool> {
    match () {
        () if text.eq_ignore_ascii_case("true") => Some(true),
        () if text.eq_ignore_ascii_case("false") => Some(false),
        () => None,
    }
}

/// `8-4-4-4-12` hexadecimal digits.
fn uuid(text: &str) -> Option<u128> {
    if text.len() != 36 {
        return None;
    }
    text.bytes().enumerate().try_fold(0u128, |value, (position, byte)| match position {
        8 | 13 | 18 | 23 => (byte == b'-').then_some(value),
        _ => Some(value << 4 | u128::from(hex_digit(byte)?)),
    })
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

fn write_blob(text: &str, out: &mut Vec<u8>) -> Option<()> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else {
        return None;
    };
    for [high, low] in pairs {
        out.push(hex_digit(*high)? << 4 | hex_digit(*low)?);
    }
    Some(())
}

/// Accepts addresses only: the server would look up a host name. Java turns an IPv4-mapped IPv6
/// address into an IPv4 address.
fn write_inet(text: &str, out: &mut Vec<u8>) -> Option<()> {
    match text.parse().ok()? {
        IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
        IpAddr::V6(address) => match Ipv6Addr::to_ipv4_mapped(&address) {
            Some(mapped) => out.extend_from_slice(&mapped.octets()),
            None => out.extend_from_slice(&address.octets()),
        },
    }
    Some(())
}
