//! Numbers: `varint` and `decimal` as bytes and text, and floats as parsed by Java.

use std::cmp::Ordering;
use std::fmt;

use num_bigint::{BigInt, Sign};

/// Most digits of a decimal in text. Java would build a larger number, but no application needs
/// one.
const DIGITS_MAX: usize = 65_536;

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
    #[must_use]
    pub fn compare(&self, other: &Decimal) -> Ordering {
        let ((sign, digits, exponent), (other_sign, other_digits, other_exponent)) =
            (self.normal_form(), other.normal_form());
        let magnitude = exponent.cmp(&other_exponent).then_with(|| digits.cmp(&other_digits));
        sign.cmp(&other_sign).then(match sign {
            Sign::Plus => magnitude,
            Sign::Minus => magnitude.reverse(),
            Sign::NoSign => Ordering::Equal,
        })
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
