//! Numbers: reading, writing and arithmetic as in Java.

use num_bigint::{BigInt, Sign};

use crate::ast::{NativeType, Operator};
use crate::values::{
    DIGITS_MAX, Decimal, check_numbers, count_digits, decode_varint, encode_varint, without_zeros,
};

/// Functions of one number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Math {
    Abs,
    Exp,
    Log,
    Log10,
    Round,
}

/// Digits by which operands may differ in scale: more than a result may have.
const SHIFT_MAX: u32 = 20_000;
/// Least and most digits behind the point of a quotient.
const SCALE_MIN: i64 = 32;
const SCALE_MAX: i64 = 1000;

/// A number in one of the four representations for arithmetic.
#[derive(Clone, Debug)]
pub(super) enum Number {
    Whole(i64),
    Float(f64),
    Big(BigInt),
    Decimal(Decimal),
}

/// Width of a number type, and whether it has fractions; the result takes the wider of two.
fn width(native: NativeType) -> Option<(u32, bool)> {
    Some(match native {
        NativeType::Tinyint => (1, false),
        NativeType::Smallint => (2, false),
        NativeType::Int => (4, false),
        NativeType::Bigint | NativeType::Counter => (8, false),
        NativeType::Varint => (16, false),
        NativeType::Float => (4, true),
        NativeType::Double => (8, true),
        NativeType::Decimal => (16, true),
        _ => return None,
    })
}

/// True for a number type.
#[must_use]
pub fn is_number(native: NativeType) -> bool {
    width(native).is_some()
}

/// Result type of an operation on two numbers.
pub(super) fn result_type(left: NativeType, right: NativeType) -> Option<NativeType> {
    let ((left, left_floats), (right, right_floats)) = (width(left)?, width(right)?);
    Some(match (left.max(right), left_floats || right_floats) {
        (1, false) => NativeType::Tinyint,
        (2, false) => NativeType::Smallint,
        (4, false) => NativeType::Int,
        (8, false) => NativeType::Bigint,
        (_, false) => NativeType::Varint,
        (4, true) => NativeType::Float,
        (8, true) => NativeType::Double,
        (_, true) => NativeType::Decimal,
    })
}

/// Decodes a number; `None` if the bytes are empty or invalid for the type.
pub(super) fn read(native: NativeType, bytes: &[u8]) -> Option<Number> {
    if bytes.is_empty() {
        return None;
    }
    Some(match native {
        NativeType::Tinyint => Number::Whole(i64::from(i8::from_be_bytes(bytes.try_into().ok()?))),
        NativeType::Smallint => {
            Number::Whole(i64::from(i16::from_be_bytes(bytes.try_into().ok()?)))
        }
        NativeType::Int => Number::Whole(i64::from(i32::from_be_bytes(bytes.try_into().ok()?))),
        NativeType::Bigint | NativeType::Counter => {
            Number::Whole(i64::from_be_bytes(bytes.try_into().ok()?))
        }
        NativeType::Float => Number::Float(f64::from(f32::from_be_bytes(bytes.try_into().ok()?))),
        NativeType::Double => Number::Float(f64::from_be_bytes(bytes.try_into().ok()?)),
        NativeType::Varint => Number::Big(decode_varint(bytes)),
        NativeType::Decimal => Number::Decimal(Decimal::decode(bytes)?),
        _ => return None,
    })
}

impl Number {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "Java's conversions are lossy"
    )]
    fn to_whole(&self) -> i64 {
        match self {
            Number::Whole(value) => *value,
            Number::Float(value) => *value as i64,
            Number::Big(value) => low_bits(value),
            // The last 64 bits of a number with more zeros are zeros.
            Number::Decimal(value) => value.truncated().map_or(0, |whole| low_bits(&whole)),
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "Java's conversions are lossy")]
    pub(super) fn to_float(&self) -> f64 {
        match self {
            Number::Whole(value) => *value as f64,
            Number::Float(value) => *value,
            Number::Big(value) => value.to_string().parse().unwrap_or(f64::NAN),
            Number::Decimal(value) => value.to_string().parse().unwrap_or(f64::NAN),
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "Java's conversions are lossy")]
    fn to_big(&self) -> Option<BigInt> {
        Some(match self {
            Number::Whole(value) => BigInt::from(*value),
            Number::Big(value) => value.clone(),
            // Through a long.
            Number::Float(value) => BigInt::from(*value as i64),
            Number::Decimal(value) => return value.truncated(),
        })
    }

    /// Like `BigDecimal.valueOf`: a float takes the digits of its text.
    pub(super) fn to_decimal(&self) -> Option<Decimal> {
        match self {
            Number::Whole(value) => Some(Decimal { unscaled: BigInt::from(*value), scale: 0 }),
            Number::Big(value) => Some(Decimal { unscaled: value.clone(), scale: 0 }),
            Number::Float(value) => Decimal::parse(&crate::values::float_text(*value, false)),
            Number::Decimal(value) => Some(value.clone()),
        }
    }

    /// Converts an operand of decimals. Cassandra converts small integers to doubles here, so 1
    /// becomes 1.0.
    fn to_operand(&self) -> Option<Decimal> {
        if let Number::Whole(_) = self {
            Number::Float(self.to_float()).to_decimal()
        } else {
            self.to_decimal()
        }
    }

    /// Encodes the number for a type: integers lose their upper bits, floats are clamped to the
    /// type's range.
    #[allow(clippy::cast_possible_truncation, reason = "Java's conversions are lossy")]
    pub(super) fn write(&self, native: NativeType) -> Option<Vec<u8>> {
        // A float converts to a small integer through an int.
        let whole = || match self {
            Number::Float(value) => i64::from(*value as i32),
            other => other.to_whole(),
        };
        Some(match native {
            NativeType::Tinyint => (whole() as i8).to_be_bytes().to_vec(),
            NativeType::Smallint => (whole() as i16).to_be_bytes().to_vec(),
            NativeType::Int => (whole() as i32).to_be_bytes().to_vec(),
            NativeType::Bigint | NativeType::Counter => self.to_whole().to_be_bytes().to_vec(),
            // Java has one NaN, processors have many.
            NativeType::Float if self.to_float().is_nan() => f32::NAN.to_be_bytes().to_vec(),
            NativeType::Double if self.to_float().is_nan() => f64::NAN.to_be_bytes().to_vec(),
            NativeType::Float => (self.to_float() as f32).to_be_bytes().to_vec(),
            NativeType::Double => self.to_float().to_be_bytes().to_vec(),
            NativeType::Varint => encode_varint(&self.to_big()?),
            NativeType::Decimal => self.to_decimal()?.encode(),
            _ => return None,
        })
    }
}

/// The last 64 bits of a big number.
fn low_bits(value: &BigInt) -> i64 {
    let low = value.iter_u64_digits().next().unwrap_or(0).cast_signed();
    if value.sign() == Sign::Minus { low.wrapping_neg() } else { low }
}

impl Decimal {
    /// The whole part; none if it ends with more than [`SHIFT_MAX`] zeros.
    fn truncated(&self) -> Option<BigInt> {
        let digits = self.scale.unsigned_abs();
        Some(match self.scale {
            0 => self.unscaled.clone(),
            ..0 if self.unscaled == BigInt::ZERO => BigInt::ZERO,
            ..0 if digits > SHIFT_MAX => return None,
            ..0 => &self.unscaled * BigInt::from(10).pow(digits),
            _ if u64::from(digits) > self.unscaled.bits() => BigInt::ZERO,
            _ => &self.unscaled / BigInt::from(10).pow(digits),
        })
    }

    /// The unscaled value with more digits behind the point.
    fn rescaled(&self, scale: i32) -> Option<BigInt> {
        let more = u32::try_from(i64::from(scale) - i64::from(self.scale)).ok()?;
        (more <= SHIFT_MAX).then(|| &self.unscaled * BigInt::from(10).pow(more))
    }

    fn precision(&self) -> i64 {
        count_digits(&self.unscaled)
    }

    /// Rounds to the most digits that a result may have.
    fn rounded(self) -> Decimal {
        let excess = self.precision() - i64::try_from(DIGITS_MAX).unwrap_or(0);
        match (u32::try_from(excess), i32::try_from(i64::from(self.scale) - excess)) {
            (Ok(excess), Ok(scale)) if excess > 0 => Decimal {
                unscaled: divide_half_up(&self.unscaled, &BigInt::from(10).pow(excess)),
                scale,
            },
            _ => self,
        }
    }

    fn stripped(self) -> Decimal {
        if self.unscaled == BigInt::ZERO {
            return Decimal { unscaled: BigInt::ZERO, scale: 0 };
        }
        let (unscaled, zeros) = without_zeros(self.unscaled.clone());
        match i32::try_from(zeros).ok().and_then(|zeros| self.scale.checked_sub(zeros)) {
            Some(scale) => Decimal { unscaled, scale },
            None => self,
        }
    }
}

/// A quotient rounded to the nearest whole, halves away from zero.
pub(super) fn divide_half_up(left: &BigInt, right: &BigInt) -> BigInt {
    let (quotient, remainder) = (left / right, left % right);
    if remainder.magnitude() * 2u32 < *right.magnitude() {
        return quotient;
    }
    let negative = (left.sign() == Sign::Minus) != (right.sign() == Sign::Minus);
    if negative { quotient - 1 } else { quotient + 1 }
}

/// Computes `left operator right` as a value of the result type.
pub(super) fn apply(
    operator: Operator,
    left: (NativeType, &[u8]),
    right: (NativeType, &[u8]),
    result: NativeType,
) -> Result<Vec<u8>, String> {
    let invalid = || "an operand is no number".to_owned();
    for (native, bytes) in [left, right] {
        check_numbers(&native.into(), bytes).map_err(|error| error.message)?;
    }
    let left = read(left.0, left.1).ok_or_else(invalid)?;
    let right = read(right.0, right.1).ok_or_else(invalid)?;
    let number = match result {
        NativeType::Float | NativeType::Double => Number::Float(floats(
            operator,
            left.to_float(),
            right.to_float(),
            result == NativeType::Float,
        )),
        NativeType::Varint => {
            let (left, right) = left.to_big().zip(right.to_big()).ok_or_else(invalid)?;
            Number::Big(bigs(operator, &left, &right)?)
        }
        NativeType::Decimal => {
            let no_decimal =
                || "A NaN or an infinity cannot be converted into a decimal".to_owned();
            let left = left.to_operand().ok_or_else(no_decimal)?;
            Number::Decimal(decimals(operator, &left, &right.to_operand().ok_or_else(no_decimal)?)?)
        }
        _ => Number::Whole(wholes(operator, left.to_whole(), right.to_whole())?),
    };
    number.write(result).ok_or_else(invalid)
}

fn wholes(operator: Operator, left: i64, right: i64) -> Result<i64, String> {
    if right == 0 && matches!(operator, Operator::Divide | Operator::Modulo) {
        return Err("/ by zero".to_owned());
    }
    Ok(match operator {
        Operator::Add => left.wrapping_add(right),
        Operator::Subtract => left.wrapping_sub(right),
        Operator::Multiply => left.wrapping_mul(right),
        Operator::Divide => left.wrapping_div(right),
        Operator::Modulo => left.wrapping_rem(right),
    })
}

#[allow(clippy::cast_possible_truncation, reason = "operands of a float are floats")]
fn floats(operator: Operator, left: f64, right: f64, single: bool) -> f64 {
    let double = |left: f64, right: f64| match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        Operator::Modulo => left % right,
    };
    // An operation in double width, rounded to single width, equals the operation in single width.
    if single {
        double(f64::from(left as f32), f64::from(right as f32))
    } else {
        double(left, right)
    }
}

fn bigs(operator: Operator, left: &BigInt, right: &BigInt) -> Result<BigInt, String> {
    if *right == BigInt::ZERO && matches!(operator, Operator::Divide | Operator::Modulo) {
        return Err("BigInteger divide by zero".to_owned());
    }
    Ok(match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        Operator::Modulo => left % right,
    })
}

fn decimals(operator: Operator, left: &Decimal, right: &Decimal) -> Result<Decimal, String> {
    let scale = left.scale.max(right.scale);
    let too_far = || "the operands differ too much in scale".to_owned();
    let aligned = |value: &Decimal| value.rescaled(scale).ok_or_else(too_far);
    if matches!(operator, Operator::Divide | Operator::Modulo) && right.unscaled == BigInt::ZERO {
        let modulo = operator == Operator::Modulo;
        return Err(
            if modulo { "Division by zero" } else { "BigInteger divide by zero" }.to_owned()
        );
    }
    Ok(match operator {
        Operator::Add => Decimal { unscaled: aligned(left)? + aligned(right)?, scale }.rounded(),
        Operator::Subtract => {
            Decimal { unscaled: aligned(left)? - aligned(right)?, scale }.rounded()
        }
        Operator::Multiply => {
            let scale = left.scale.checked_add(right.scale).ok_or_else(too_far)?;
            Decimal { unscaled: &left.unscaled * &right.unscaled, scale }.rounded()
        }
        Operator::Divide => quotient(left, right).ok_or_else(too_far)?,
        Operator::Modulo => remainder(left, &aligned(left)?, right, &aligned(right)?),
    })
}

/// A remainder with Java's scale: trailing zeros of the whole quotient reduce the divisor's digits.
fn remainder(
    left: &Decimal,
    left_aligned: &BigInt,
    right: &Decimal,
    right_aligned: &BigInt,
) -> Decimal {
    let (quotient, rest) = (left_aligned / right_aligned, left_aligned % right_aligned);
    let spare = (i64::from(right.scale) - i64::from(left.scale)).max(0);
    let is_zero = quotient == BigInt::ZERO;
    let (_, zeros) = without_zeros(quotient);
    let dropped = if is_zero { spare } else { i64::from(zeros).min(spare) };
    let divisor = BigInt::from(10).pow(u32::try_from(dropped).unwrap_or(0));
    let scale = left.scale.max(right.scale).saturating_sub(i32::try_from(dropped).unwrap_or(0));
    Decimal { unscaled: rest / divisor, scale }
}

/// A quotient with as many digits as in Cassandra.
fn quotient(left: &Decimal, right: &Decimal) -> Option<Decimal> {
    let first_digit =
        (left.precision() - i64::from(left.scale)) - (right.precision() - i64::from(right.scale));
    let scale = (SCALE_MIN - first_digit).max(i64::from(left.scale)).max(i64::from(right.scale));
    let scale = scale.clamp(SCALE_MIN, SCALE_MAX);
    let shift = scale - i64::from(left.scale) + i64::from(right.scale);
    let factor = BigInt::from(10)
        .pow(u32::try_from(shift.unsigned_abs()).ok().filter(|shift| *shift <= SHIFT_MAX)?);
    let unscaled = match shift {
        0.. => divide_half_up(&(&left.unscaled * factor), &right.unscaled),
        _ => divide_half_up(&left.unscaled, &(&right.unscaled * factor)),
    };
    Some(Decimal { unscaled, scale: i32::try_from(scale).ok()? }.stripped())
}

/// `-a`
pub(super) fn negate(native: NativeType, bytes: &[u8]) -> Option<Vec<u8>> {
    let negated = match read(native, bytes)? {
        Number::Whole(value) => Number::Whole(value.wrapping_neg()),
        Number::Float(value) => Number::Float(-value),
        Number::Big(value) => Number::Big(-value),
        Number::Decimal(value) => {
            Number::Decimal(Decimal { unscaled: -value.unscaled, scale: value.scale })
        }
    };
    negated.write(native)
}

/// `abs` and similar functions. Powers and logarithms have the precision of a double.
pub(super) fn math(
    math: Math,
    native: NativeType,
    bytes: &[u8],
) -> Result<Option<Vec<u8>>, String> {
    let Some(number) = read(native, bytes) else { return Ok(None) };
    let result = match (math, &number) {
        (Math::Abs, Number::Whole(value)) => Number::Whole(value.wrapping_abs()),
        (Math::Abs, Number::Float(value)) => Number::Float(value.abs()),
        (Math::Abs, Number::Big(value)) => Number::Big(BigInt::from(value.magnitude().clone())),
        (Math::Abs, Number::Decimal(value)) => {
            let unscaled = BigInt::from(value.unscaled.magnitude().clone());
            Number::Decimal(Decimal { unscaled, scale: value.scale })
        }
        (Math::Round, Number::Whole(_) | Number::Big(_)) => number,
        // Halves round up, not away from zero; the result is an integer before it becomes a float
        // again.
        (Math::Round, Number::Float(value)) => {
            Number::Float(round(*value, native == NativeType::Float))
        }
        (Math::Round, Number::Decimal(value)) => match u32::try_from(value.scale) {
            Ok(scale) if i64::from(scale) > value.precision() + 1 => {
                Number::Decimal(Decimal { unscaled: BigInt::ZERO, scale: 0 })
            }
            Ok(scale) => {
                let unscaled = divide_half_up(&value.unscaled, &BigInt::from(10).pow(scale));
                Number::Decimal(Decimal { unscaled, scale: 0 })
            }
            Err(_) => {
                let too_long = || format!("the decimal {value} has too many digits to be rounded");
                let unscaled = value.truncated().ok_or_else(too_long)?;
                Number::Decimal(Decimal { unscaled, scale: 0 })
            }
        },
        (Math::Exp, _) => Number::Float(number.to_float().exp()),
        (Math::Log, _) => Number::Float(number.to_float().ln()),
        (Math::Log10, _) => Number::Float(number.to_float().log10()),
    };
    Ok(result.write(native))
}

/// True if the logarithm exists: `varint` and `decimal` have no infinity.
pub(super) fn has_logarithm(native: NativeType, bytes: &[u8]) -> bool {
    match read(native, bytes) {
        Some(number @ (Number::Big(_) | Number::Decimal(_))) => number.to_float() > 0.0,
        _ => true,
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "Java rounds to an int or a long"
)]
fn round(value: f64, single: bool) -> f64 {
    let rounded = (value + 0.5).floor();
    if single { f64::from(rounded as i32) } else { rounded as i64 as f64 }
}
