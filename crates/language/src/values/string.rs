//! Parses text to values like `AbstractType.fromString`, for string literals, JSON and map keys in
//! JSON.

use std::net::{IpAddr, Ipv6Addr};

use num_bigint::BigInt;

use super::duration::Duration;
use super::number::{Decimal, encode_varint, parse_float, parse_integer};
use super::time::{self, Timestamp};
use crate::ast::NativeType;
use crate::error::InvalidRequest;

/// Parses the value of a native type.
///
/// # Errors
/// If the text is invalid for the type. `'now'` as a timestamp uses `now_ms`, milliseconds since
/// 1970.
pub fn from_string(native: NativeType, text: &str, now_ms: i64) -> Result<Vec<u8>, InvalidRequest> {
    read(native, text, now_ms).map_err(InvalidRequest::new)
}

fn read(native: NativeType, text: &str, now_ms: i64) -> Result<Vec<u8>, String> {
    let has_empty = !matches!(native, NativeType::Date | NativeType::Time | NativeType::Boolean);
    if text.is_empty() && has_empty {
        return Ok(Vec::new());
    }
    Ok(match native {
        NativeType::Text => text.as_bytes().to_vec(),
        NativeType::Ascii if text.is_ascii() => text.as_bytes().to_vec(),
        NativeType::Ascii => return Err("Invalid ASCII character in string literal".to_owned()),
        NativeType::Blob => {
            unhex(text).ok_or_else(|| format!("cannot parse '{text}' as hex bytes"))?
        }
        NativeType::Boolean => match text.to_ascii_lowercase().as_str() {
            "" | "false" => vec![0],
            "true" => vec![1],
            _ => return Err(format!("Unable to make boolean from '{text}'")),
        },
        NativeType::Tinyint => whole::<i8>(text, "byte")?.to_be_bytes().to_vec(),
        NativeType::Smallint => whole::<i16>(text, "short")?.to_be_bytes().to_vec(),
        NativeType::Int => whole::<i32>(text, "int")?.to_be_bytes().to_vec(),
        NativeType::Bigint | NativeType::Counter => {
            whole::<i64>(text, "long")?.to_be_bytes().to_vec()
        }
        NativeType::Varint => {
            let value =
                parse_integer(text).ok_or_else(|| format!("unable to make int from '{text}'"))?;
            encode_varint(&value)
        }
        NativeType::Decimal => Decimal::parse(text)
            .ok_or_else(|| format!("unable to make BigDecimal from '{text}'"))?
            .encode(),
        NativeType::Double => {
            let value = parse_float::<f64>(text)
                .ok_or_else(|| format!("Unable to make double from '{text}'"))?;
            value.to_be_bytes().to_vec()
        }
        NativeType::Float => {
            let value = parse_float::<f32>(text)
                .ok_or_else(|| format!("Unable to make float from '{text}'"))?;
            value.to_be_bytes().to_vec()
        }
        NativeType::Timestamp => match time::parse_timestamp(text)? {
            Timestamp::At(ms) | Timestamp::Local(ms) => ms.to_be_bytes().to_vec(),
            Timestamp::Now => now_ms.to_be_bytes().to_vec(),
        },
        NativeType::Date => time::parse_date(text)?.to_be_bytes().to_vec(),
        NativeType::Time => time::parse_time(text)?.to_be_bytes().to_vec(),
        NativeType::Duration => Duration::parse(text).map_err(|error| error.message)?.encode(),
        NativeType::Inet => {
            inet(text).ok_or_else(|| format!("Unable to make inet address from '{text}'"))?
        }
        NativeType::Uuid => {
            uuid(text).ok_or_else(|| format!("Unable to make UUID from '{text}'"))?
        }
        NativeType::Timeuuid => {
            let value =
                uuid(text).ok_or_else(|| format!("Unknown timeuuid representation: {text}"))?;
            if value[6] & 0xF0 != 0x10 {
                return Err("TimeUUID supports only version 1 UUIDs".to_owned());
            }
            value
        }
    })
}

fn whole<N: TryFrom<BigInt>>(text: &str, name: &str) -> Result<N, String> {
    let number = parse_integer(text).and_then(|value| N::try_from(value).ok());
    number.ok_or_else(|| format!("Unable to make {name} from '{text}'"))
}

/// Pairs of hexadecimal digits.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    if rest.is_empty() { bytes } else { None }
}

/// `8-4-4-4-12` hexadecimal digits.
fn uuid(text: &str) -> Option<Vec<u8>> {
    let dashes =
        |(position, byte): (usize, u8)| (byte == b'-') == matches!(position, 8 | 13 | 18 | 23);
    let shaped = text.len() == 36 && text.bytes().enumerate().all(dashes);
    if shaped { unhex(&text.replace('-', "")) } else { None }
}

/// Accepts addresses only: names are not looked up. Java turns IPv4-mapped addresses into IPv4
/// ones, and accepts short forms of these.
fn inet(text: &str) -> Option<Vec<u8>> {
    if let Ok(address) = text.parse() {
        return Some(match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => match Ipv6Addr::to_ipv4_mapped(&address) {
                Some(mapped) => mapped.octets().to_vec(),
                None => address.octets().to_vec(),
            },
        });
    }
    let parts: Vec<&str> = text.split('.').collect();
    let (last, first) = parts.split_last().filter(|(_, first)| first.len() < 4)?;
    let digits =
        parts.iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    let mut address = first
        .iter()
        .map(|part| part.parse::<u8>().ok())
        .collect::<Option<Vec<u8>>>()
        .filter(|_| digits)?;
    let missing = 4 - address.len();
    let last: u32 = last.parse().ok()?;
    let bytes = last.to_be_bytes();
    let (above, below) = bytes.split_at(4 - missing);
    address.extend(below);
    above.iter().all(|byte| *byte == 0).then_some(address)
}
