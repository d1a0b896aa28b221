//! Numbers: `varint` and `decimal` as bytes and text, and floats as parsed by Java.

use std::cmp::Ordering;
use std::fmt;

use num_bigint::{BigInt, BigUint, Sign};

use crate::ast::NativeType;
use crate::error::InvalidRequest;
use crate::types::CqlType;
use crate::values::split;

/// Most digits of a number in text, and of a decimal that is computed. Java would build a larger
/// number, but no application needs one.
pub(crate) const DIGITS_MAX: usize = 10_000;
/// Bytes of a `varint` or `decimal` with which anything is computed: as many digits, and a scale.
/// The time to convert, multiply or divide numbers grows faster than their bytes.
pub const NUMBER_BYTES_MAX: usize = 4_160;
/// The logarithm of 2 to the base 10, in parts of a billion, rounded down and up.
const LOG_2: (i128, i128) = (301_029_995, 301_029_996);
const BILLION: i128 = 1_000_000_000;

/// Checks that no number in a value is too large to be computed with: see [`NUMBER_BYTES_MAX`].
/// Bytes that are no value of the type pass.
///
/// # Errors
/// A number is too large.
pub fn check_numbers(cql_type: &CqlType, bytes: &[u8]) -> Result<(), InvalidRequest> {
    if bytes.len() <= NUMBER_BYTES_MAX {
        return Ok(());
    }
    let each = |types: &[&CqlType], what: &str| {
        let has_none = types.iter().all(|cql_type| !has_numbers(cql_type));
        let elements = if has_none { None } else { split::collection(what, bytes).ok() };
        let mut elements = elements.into_iter().flatten().zip(types.iter().cycle());
        elements.try_for_each(|(value, cql_type)| check_numbers(cql_type, value))
    };
    match cql_type {
        CqlType::Native(native @ (NativeType::Varint | NativeType::Decimal)) => {
            Err(InvalidRequest::new(format!(
                "Shunt: a {native} of {} bytes is too large: the limit for comparisons and arithmetic is {NUMBER_BYTES_MAX} bytes",
                bytes.len()
            )))
        }
        CqlType::Native(_) | CqlType::Custom(_) => Ok(()),
        CqlType::List { element, .. } => each(&[element], "list"),
        CqlType::Set { element, .. } => each(&[element], "set"),
        CqlType::Map { key, value, .. } => each(&[key, value], "map"),
        CqlType::Tuple(types) => {
            let values = split::tuple(types.len(), bytes).unwrap_or_default();
            let mut values = values.into_iter().zip(types.iter());
            values.try_for_each(|(value, of)| check_numbers(of, value.unwrap_or_default()))
        }
        CqlType::Udt { definition, .. } => {
            let values = split::tuple(definition.fields.len(), bytes).unwrap_or_default();
            let mut values = values.into_iter().zip(&definition.fields);
            values.try_for_each(|(value, (_, of))| check_numbers(of, value.unwrap_or_default()))
        }
        CqlType::Vector { element, dimension } => {
            let values = split::vector(element, *dimension, bytes).unwrap_or_default();
            values.into_iter().try_for_each(|value| check_numbers(element, value))
        }
    }
}

/// True if values of the type may have numbers of any length.
pub(crate) fn has_numbers(cql_type: &CqlType) -> bool {
    match cql_type {
        CqlType::Native(native) => matches!(native, NativeType::Varint | NativeType::Decimal),
        CqlType::List { element, .. }
        | CqlType::Set { element, .. }
        | CqlType::Vector { element, .. } => has_numbers(element),
        CqlType::Map { key, value, .. } => has_numbers(key) || has_numbers(value),
        CqlType::Tuple(_) | CqlType::Udt { .. } => true,
        CqlType::Custom(_) => false,
    }
}

/// Decodes a `varint`.
#[must_use]
pub fn decode_varint(bytes: &[u8]) -> BigInt {
    BigInt::from_signed_bytes_be(bytes)
}

/// Encodes a `varint` of minimal length.
#[must_use]
pub fn encode_varint(value: &BigInt) -> Vec<u8> {
    value.to_signed_bytes_be()
}

/// Parses an integer: digits with a sign.
pub(crate) fn parse_integer(text: &str) -> Option<BigInt> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let valid = !digits.is_empty()
        && digits.len() <= DIGITS_MAX
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    valid.then(|| text.strip_prefix('+').unwrap_or(text).parse().ok()).flatten()
}

/// `unscaled * 10^-scale`
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Decimal {
    /// The digits.
    pub unscaled: BigInt,
    /// Number of digits behind the point.
    pub scale: i32,
}

impl Decimal {
    /// Decodes a `decimal`; `None` if there are too few bytes.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Decimal> {
        let (scale, unscaled) = bytes.split_first_chunk::<4>()?;
        Some(Decimal { unscaled: decode_varint(unscaled), scale: i32::from_be_bytes(*scale) })
    }

    /// Encodes a `decimal`.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.scale.to_be_bytes().to_vec();
        out.extend(encode_varint(&self.unscaled));
        out
    }

    /// Parses `-1.50e3` and similar texts, with the scale of Java's `new BigDecimal(text)`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Decimal> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => {
                let exponent = exponent.strip_prefix('+').unwrap_or(exponent);
                let digits = exponent.strip_prefix('-').unwrap_or(exponent);
                let valid = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
                (mantissa, valid.then(|| exponent.parse::<i64>().ok()).flatten()?)
            }
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let unsigned = whole.strip_prefix(['-', '+']).unwrap_or(whole);
        let digits = unsigned.bytes().chain(fraction.bytes());
        if (unsigned.is_empty() && fraction.is_empty())
            || !digits.clone().all(|byte| byte.is_ascii_digit())
        {
            return None;
        }
        let unscaled = parse_integer(&format!("{whole}{fraction}"))?;
        let scale = i64::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
        Some(Decimal { unscaled, scale: i32::try_from(scale).ok()? })
    }

    /// The sign, the digits without zeros at either end, and the exponent `e` of `0.digits * 10^e`.
    pub(crate) fn normal_form(&self) -> (Sign, String, i64) {
        let sign = self.unscaled.sign();
        let digits = self.unscaled.magnitude().to_string();
        let exponent = i64::try_from(digits.len()).unwrap_or(i64::MAX) - i64::from(self.scale);
        (sign, digits.trim_end_matches('0').to_owned(), exponent)
    }

    /// Like `BigDecimal.compareTo`: 1.0 and 1.00 are equal.
    ///
    /// Numbers of different magnitude are compared by their signs, lengths and scales. Only numbers
    /// of about the same magnitude are brought to the same scale.
    #[must_use]
    pub fn compare(&self, other: &Decimal) -> Ordering {
        let sign = self.unscaled.sign();
        if sign != other.unscaled.sign() || sign == Sign::NoSign || self.scale == other.scale {
            return self.unscaled.cmp(&other.unscaled);
        }
        let ((least, most), (other_least, other_most)) = (self.magnitude(), other.magnitude());
        let magnitude = if most <= other_least {
            Ordering::Less
        } else if other_most <= least {
            Ordering::Greater
        } else {
            let factor = BigUint::from(10u32).pow(self.scale.abs_diff(other.scale));
            let (own, others) = (self.unscaled.magnitude(), other.unscaled.magnitude());
            if self.scale < other.scale {
                (own * factor).cmp(others)
            } else {
                own.cmp(&(others * factor))
            }
        };
        if sign == Sign::Minus { magnitude.reverse() } else { magnitude }
    }

    /// Bounds of the logarithm to the base 10 of a number that is not zero, in parts of a billion:
    /// it is at least the first and below the second.
    fn magnitude(&self) -> (i128, i128) {
        let (bits, scale) = (i128::from(self.unscaled.bits()), i128::from(self.scale) * BILLION);
        ((bits - 1) * LOG_2.0 - scale, bits * LOG_2.1 - scale)
    }
}

impl fmt::Display for Decimal {
    /// Formats like `BigDecimal.toString`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.unscaled.magnitude().to_string();
        let sign = if self.unscaled.sign() == Sign::Minus { "-" } else { "" };
        let scale = i64::from(self.scale);
        let length = i64::try_from(digits.len()).unwrap_or(i64::MAX);
        let adjusted = length - 1 - scale;
        if scale == 0 {
            return write!(f, "{sign}{digits}");
        }
        if scale > 0 && adjusted >= -6 {
            let digits =
                format!("{}{digits}", "0".repeat(usize::try_from(scale + 1 - length).unwrap_or(0)));
            let (whole, fraction) =
                digits.split_at(digits.len() - usize::try_from(scale).unwrap_or(0));
            return write!(f, "{sign}{whole}.{fraction}");
        }
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        write!(f, "{sign}{first}{point}{rest}")?;
        if adjusted == 0 { Ok(()) } else { write!(f, "E{adjusted:+}") }
    }
}

/// Parses a float like Java's `parseDouble`, without its hexadecimal forms and type suffixes.
pub(crate) fn parse_float<F: std::str::FromStr>(text: &str) -> Option<F> {
    let trimmed = text.trim();
    let unsigned = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    let number = unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && unsigned
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    (number || unsigned == "NaN" || unsigned == "Infinity").then(|| trimmed.parse().ok()).flatten()
}

/// The number of decimal digits; 1 for zero.
pub(crate) fn count_digits(value: &BigInt) -> i64 {
    let bits = i128::from(value.bits());
    if bits == 0 {
        return 1;
    }
    // Digits of the smallest and the largest number with as many bits.
    let (least, most) = ((bits - 1) * LOG_2.0 / BILLION + 1, bits * LOG_2.1 / BILLION + 1);
    let digits = (least..most).find(|digits| {
        let power = u32::try_from(*digits).ok().map(|digits| BigUint::from(10u32).pow(digits));
        power.is_none_or(|power| *value.magnitude() < power)
    });
    i64::try_from(digits.unwrap_or(most)).unwrap_or(i64::MAX)
}

/// The number without the zeros at its end, and their number.
pub(crate) fn without_zeros(mut value: BigInt) -> (BigInt, u32) {
    let mut zeros = 0;
    // A number that ends with n zeros is divisible by the nth power of 2.
    let most = value.trailing_zeros().and_then(|most| u32::try_from(most).ok()).unwrap_or(0);
    let mut step = if most == 0 { 0 } else { 1 << most.ilog2() };
    while step > 0 {
        let power = BigInt::from(10).pow(step);
        // Too few digits are left for as many zeros.
        if power.bits() <= value.bits() {
            let quotient = &value / &power;
            if &quotient * &power == value {
                (value, zeros) = (quotient, zeros + step);
            }
        }
        step /= 2;
    }
    (value, zeros)
}

#[cfg(test)]
mod tests;
