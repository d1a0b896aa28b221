//! Formats floats with the digits of Java before 19, which are not always the fewest that identify
//! a number.
//!
//! The algorithm is that of OpenJDK 17's `jdk.internal.math.FloatingDecimal`, on which Cassandra
//! 5.0 runs: clients see the text of floats (JSON, casts to text, names of columns), including
//! superfluous digits.

use std::cmp::Ordering;

use num_bigint::BigUint;

/// Bits of a double behind the first one.
const FRACTION_BITS: i32 = 52;

/// A decomposed number: `significand` has `FRACTION_BITS + 1` bits, the first of them set, and the
/// value is `significand * 2^(exponent - FRACTION_BITS)`. Only the first `bits` are significant.
struct Parts {
    significand: u64,
    exponent: i32,
    significant_bits: i32,
}

/// Digits and the place of the point: `0.digits * 10^point`.
struct Digits {
    digits: Vec<u8>,
    point: i32,
}

/// Formats a `double` or, with `single`, a `float` like Java.
#[must_use]
pub fn float_text(value: f64, single: bool) -> String {
    match value {
        _ if value.is_nan() => "NaN".to_owned(),
        _ if value.is_infinite() => if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
        _ if value == 0.0 => if value.is_sign_negative() { "-0.0" } else { "0.0" }.to_owned(),
        #[allow(clippy::cast_possible_truncation, reason = "the value was a float before")]
        _ if single => format_digits(value < 0.0, &digits(&Parts::of_float(value as f32))),
        _ => format_digits(value < 0.0, &digits(&Parts::of_double(value))),
    }
}

/// Between 10^-3 and 10^7 plain, otherwise with an exponent; always with a digit behind the point.
fn format_digits(negative: bool, Digits { digits, point }: &Digits) -> String {
    let sign = if negative { "-" } else { "" };
    let text = |digits: &[u8]| -> String {
        let text: String = digits.iter().map(|digit| char::from(b'0' + digit)).collect();
        if text.is_empty() { "0".to_owned() } else { text }
    };
    match usize::try_from(*point) {
        Ok(whole @ 1..8) => {
            let padded: Vec<u8> =
                digits.iter().copied().chain(std::iter::repeat_n(0, whole)).collect();
            let rest = digits.get(whole..).unwrap_or_default();
            format!("{sign}{}.{}", text(&padded[..whole]), text(rest))
        }
        _ if (-2..=0).contains(point) => {
            format!("{sign}0.{}{}", "0".repeat(point.unsigned_abs() as usize), text(digits))
        }
        _ => format!("{sign}{}.{}E{}", text(&digits[..1]), text(&digits[1..]), point - 1),
    }
}

impl Parts {
    fn of_double(value: f64) -> Parts {
        let bits = value.to_bits();
        let biased = (bits >> 52 & 0x7FF) as i32;
        Parts::new(bits & ((1 << 52) - 1), biased, 52, 1023)
    }

    fn of_float(value: f32) -> Parts {
        let bits = value.to_bits();
        let biased = (bits >> 23 & 0xFF) as i32;
        Parts::new(u64::from(bits & ((1 << 23) - 1)), biased, 23, 127)
    }

    /// Builds the parts from the fields of a number with this many fraction bits.
    fn new(fraction: u64, biased: i32, fraction_bits: i32, bias: i32) -> Parts {
        let widen = |significand: u64| significand << (FRACTION_BITS - fraction_bits);
        if biased > 0 {
            let significand = widen(fraction | 1 << fraction_bits);
            return Parts {
                significand,
                exponent: biased - bias,
                significant_bits: fraction_bits + 1,
            };
        }
        let significant_bits = 64 - fraction.leading_zeros() as i32;
        let shift = fraction_bits + 1 - significant_bits;
        Parts {
            significand: widen(fraction << shift),
            exponent: 1 - shift - bias,
            significant_bits,
        }
    }
}

/// The bits of 5^power, or a little more.
fn bits_of_5_pow(power: i32) -> i32 {
    const BITS: [i32; 27] = [
        0, 3, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28, 31, 33, 35, 38, 40, 42, 45, 47, 49, 52, 54,
        56, 59, 61,
    ];
    usize::try_from(power).ok().and_then(|power| BITS.get(power).copied()).unwrap_or(power * 3)
}

/// `FloatingDecimal.BinaryToASCIIBuffer.dtoa`
fn digits(parts: &Parts) -> Digits {
    let Parts { significand, exponent, significant_bits } = *parts;
    let used_bits = FRACTION_BITS + 1 - significand.trailing_zeros() as i32;
    let bits_behind_point = (used_bits - exponent - 1).max(0);
    if bits_behind_point == 0 && (-21..=62).contains(&exponent) {
        return whole(parts);
    }
    let tens = estimate(significand, exponent);
    let (b5, s5) = ((-tens).max(0), tens.max(0));
    let (mut b2, mut s2) = (b5 + bits_behind_point + exponent, s5 + bits_behind_point);
    let mut m2 = b2 - significant_bits;
    b2 -= used_bits - 1;
    let common = b2.min(s2);
    (b2, s2, m2) = (b2 - common, s2 - common, m2 - common);
    if used_bits == 1 {
        // Below a power of two, numbers lie twice as close.
        m2 -= 1;
    }
    if m2 < 0 {
        (b2, s2, m2) = (b2 - m2, s2 - m2, 0);
    }
    let significand = significand >> significand.trailing_zeros();
    let bits = (used_bits + b2 + bits_of_5_pow(b5)).max(s2 + 1 + bits_of_5_pow(s5 + 1));
    if bits < 64 {
        let scaled = |fives: i32, twos: i32| 5_i64.pow(fives.unsigned_abs()) << twos;
        let value = significand.cast_signed() * scaled(b5, b2);
        let (unit, margin) = (scaled(s5, s2), scaled(b5, m2));
        return match bits {
            #[allow(clippy::cast_possible_truncation, reason = "so many bits they have at most")]
            ..32 => develop(tens, value as i32, &(unit as i32), margin as i32),
            _ => develop(tens, value, &unit, margin),
        };
    }
    let scaled = |fives: i32, twos: i32| BigUint::from(5_u32).pow(fives.unsigned_abs()) << twos;
    develop(tens, BigUint::from(significand) * scaled(b5, b2), &scaled(s5, s2), scaled(b5, m2))
}

/// A whole number that fits a long: its digits, without insignificant ones.
fn whole(parts: &Parts) -> Digits {
    let Parts { significand, exponent, significant_bits } = *parts;
    let mut number = match exponent - FRACTION_BITS {
        up @ 0.. => significand << up,
        down => significand >> -down,
    };
    let mut dropped = 0;
    let insignificant = exponent - significant_bits - 1;
    if exponent > significant_bits && insignificant > 1 {
        dropped = (1_u64 << insignificant).ilog10();
        let unit = 10_u64.pow(dropped);
        number = number / unit + u64::from(unit > 1 && number % unit >= unit / 2);
    }
    let text = number.to_string();
    let digits = text.trim_end_matches('0').bytes().map(|digit| digit - b'0').collect();
    Digits { digits, point: (text.len() + dropped as usize) as i32 }
}

/// The power of ten of the first digit, or one more.
#[allow(clippy::approx_constant, reason = "Java's constants have fewer digits")]
fn estimate(significand: u64, exponent: i32) -> i32 {
    let mantissa = f64::from_bits(1023 << 52 | significand & ((1 << 52) - 1));
    let estimate = (mantissa - 1.5) * 0.289_529_654
        + 0.176_091_259
        + f64::from(exponent) * 0.301_029_995_663_981;
    estimate.floor() as i32
}

/// Arithmetic for the algorithm. Java uses the smallest type that holds the values, though not
/// always their sums: overflows are reproduced.
trait Natural: Clone {
    fn times_10(&mut self);
    /// Divides and leaves the remainder.
    fn divide(&mut self, by: &Self) -> u8;
    /// Returns whether this remainder is within the margin of zero, and of `tenfold`.
    fn is_near(&self, margin: &Self, tenfold: &Self, first: bool) -> (bool, bool);
    /// Compares twice this with `tenfold`.
    fn half_order(&self, tenfold: &Self) -> Ordering;
}

macro_rules! natural {
    ($($type:ty),*) => {$(
        impl Natural for $type {
            fn times_10(&mut self) {
                *self = self.wrapping_mul(10);
            }

            fn divide(&mut self, by: &$type) -> u8 {
                let quotient = *self / by;
                *self %= by;
                quotient.try_into().unwrap_or(u8::MAX)
            }

            fn is_near(&self, margin: &$type, tenfold: &$type, first: bool) -> (bool, bool) {
                if *margin <= 0 && !first {
                    return (true, true);
                }
                (self < margin, self.wrapping_add(*margin) > *tenfold)
            }

            fn half_order(&self, tenfold: &$type) -> Ordering {
                self.wrapping_add(*self).wrapping_sub(*tenfold).cmp(&0)
            }
        }
    )*};
}

natural!(i32, i64);

impl Natural for BigUint {
    fn times_10(&mut self) {
        *self *= 10_u32;
    }

    fn divide(&mut self, by: &BigUint) -> u8 {
        let quotient = &*self / by;
        *self %= by;
        quotient.try_into().unwrap_or(u8::MAX)
    }

    fn is_near(&self, margin: &BigUint, tenfold: &BigUint, _: bool) -> (bool, bool) {
        // Unlike above, an exact match of the bound counts.
        (self < margin, self + margin >= *tenfold)
    }

    fn half_order(&self, tenfold: &BigUint) -> Ordering {
        (self + self).cmp(tenfold)
    }
}

/// Digits of `value / unit * 10^tens`, as many as distinguish it from values `margin` away.
fn develop<N: Natural>(mut tens: i32, mut value: N, unit: &N, mut margin: N) -> Digits {
    let mut tenfold = unit.clone();
    tenfold.times_10();
    let mut digits = Vec::with_capacity(20);
    let mut step = |digits: &mut Vec<u8>, first| {
        digits.push(value.divide(unit));
        value.times_10();
        margin.times_10();
        value.is_near(&margin, &tenfold, first)
    };
    let (mut low, mut high) = step(&mut digits, true);
    if digits == [0] && !high {
        tens -= 1;
        digits.clear();
    }
    // At least one digit behind the point of the form with an exponent.
    if !(-3..8).contains(&tens) {
        (low, high) = (false, false);
    }
    while !low && !high {
        (low, high) = step(&mut digits, false);
    }
    let half = value.half_order(&tenfold);
    let odd = digits.last().is_some_and(|digit| digit % 2 == 1);
    let mut found = Digits { digits, point: tens + 1 };
    if high && (!low || half.is_gt() || half.is_eq() && odd) {
        found.round_up();
    }
    found
}

impl Digits {
    fn round_up(&mut self) {
        for digit in self.digits.iter_mut().rev() {
            if *digit < 9 {
                *digit += 1;
                return;
            }
            *digit = 0;
        }
        // Every digit was nine.
        self.point += 1;
        if let Some(first) = self.digits.first_mut() {
            *first = 1;
        }
    }
}
