//! Aggregates: `count`, `min`, `max`, `sum` and `avg`.

use num_bigint::BigInt;

use super::arithmetic::{self, Number};
use crate::ast::{NativeType, Operator};
use crate::error::InvalidRequest;
use crate::types::CqlType;
use crate::values::{Decimal, compare};

/// Kinds of aggregates.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub enum AggregateKind {
    /// `count(*)`, `count(1)`: number of rows.
    CountRows,
    /// `count(a)`: number of non-null values.
    Count,
    /// `min(a)`
    Min,
    /// `max(a)`
    Max,
    /// `sum(a)`
    Sum,
    /// `avg(a)`
    Average,
}

/// An aggregate with the type of its argument.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Aggregate {
    kind: AggregateKind,
    argument: CqlType,
}

impl Aggregate {
    /// An aggregate of values of a type.
    ///
    /// # Errors
    /// If the type has no such aggregate: only numbers have sums.
    pub fn new(kind: AggregateKind, argument: CqlType) -> Result<Aggregate, InvalidRequest> {
        let number = matches!(argument, CqlType::Native(native) if arithmetic::is_number(native));
        if matches!(kind, AggregateKind::Sum | AggregateKind::Average) && !number {
            let name = if kind == AggregateKind::Sum { "sum" } else { "avg" };
            return Err(InvalidRequest::new(format!(
                "Function {name} requires a numeric argument, but found {argument}"
            )));
        }
        Ok(Aggregate { kind, argument })
    }

    /// Type of the result.
    #[must_use]
    pub fn returns(&self) -> CqlType {
        match self.kind {
            AggregateKind::CountRows | AggregateKind::Count => NativeType::Bigint.into(),
            _ => self.argument.clone(),
        }
    }

    /// Starts an aggregation.
    #[must_use]
    pub fn start(&self) -> AggregateState {
        AggregateState {
            aggregate: self.clone(),
            count: 0,
            best: None,
            sum: self.zero(),
            compensation: 0.0,
            exact: None,
        }
    }

    fn native(&self) -> NativeType {
        if let CqlType::Native(native) = self.argument { native } else { NativeType::Blob }
    }

    fn zero(&self) -> Number {
        match self.native() {
            NativeType::Float | NativeType::Double => Number::Float(0.0),
            NativeType::Decimal => Number::Decimal(Decimal { unscaled: BigInt::ZERO, scale: 0 }),
            _ => Number::Big(BigInt::ZERO),
        }
    }
}

/// An aggregation in progress.
#[derive(Clone, Debug)]
pub struct AggregateState {
    aggregate: Aggregate,
    count: i64,
    best: Option<Vec<u8>>,
    sum: Number,
    compensation: f64,
    /// Exact sum of the floats of an average, once it exceeds the range of a double.
    exact: Option<Decimal>,
}

impl AggregateState {
    /// Adds the value of one more row.
    ///
    /// # Errors
    /// If a sum of decimals cannot be computed.
    pub fn add(&mut self, value: Option<&[u8]>) -> Result<(), InvalidRequest> {
        let kind = self.aggregate.kind;
        if kind == AggregateKind::CountRows {
            self.count += 1;
            return Ok(());
        }
        let Some(value) = value else { return Ok(()) };
        match kind {
            AggregateKind::CountRows | AggregateKind::Count => self.count += 1,
            AggregateKind::Min | AggregateKind::Max => {
                let better = self.best.as_ref().is_none_or(|best| {
                    let order = compare(&self.aggregate.argument, value, best);
                    if kind == AggregateKind::Min { order.is_lt() } else { order.is_gt() }
                });
                if better {
                    self.best = Some(value.to_vec());
                }
            }
            AggregateKind::Sum | AggregateKind::Average => {
                if let Some(number) = arithmetic::read(self.aggregate.native(), value) {
                    self.count += 1;
                    self.add_number(&number)?;
                }
            }
        }
        Ok(())
    }

    /// Integers add in full width; floats carry the error of each addition.
    fn add_number(&mut self, number: &Number) -> Result<(), InvalidRequest> {
        match &mut self.sum {
            Number::Float(sum) if self.exact.is_some() => {
                // Cassandra fails for an infinite value or NaN; here the average becomes that
                // value.
                self.exact = self
                    .exact
                    .take()
                    .zip(number.to_decimal())
                    .map(|(exact, value)| add_exactly(&exact, &value));
                *sum += number.to_float();
            }
            Number::Float(sum) => {
                let corrected = number.to_float() - self.compensation;
                let next = *sum + corrected;
                // An infinite sum has no error to carry.
                self.compensation = if next.is_finite() { next - *sum - corrected } else { 0.0 };
                if next.is_infinite() && self.aggregate.kind == AggregateKind::Average {
                    let before = Number::Float(*sum).to_decimal();
                    self.exact = before
                        .zip(number.to_decimal())
                        .map(|(sum, value)| add_exactly(&sum, &value));
                }
                *sum = next;
            }
            Number::Decimal(sum) => {
                let decimal = NativeType::Decimal;
                let calculate = |operator: Operator, left: &Decimal, right: &Decimal| {
                    let bytes = arithmetic::apply(
                        operator,
                        (decimal, &left.encode()),
                        (decimal, &right.encode()),
                        decimal,
                    );
                    let bytes = bytes.map_err(InvalidRequest::new)?;
                    Ok(Decimal::decode(&bytes).unwrap_or_else(|| left.clone()))
                };
                let Some(value) = number.to_decimal() else { return Ok(()) };
                // An average moves by its share of each difference, and is rounded each time.
                let step = match self.aggregate.kind {
                    AggregateKind::Average => {
                        let difference = calculate(Operator::Subtract, &value, sum)?;
                        let unscaled =
                            divide_half_even(&difference.unscaled, &BigInt::from(self.count));
                        Decimal { unscaled, scale: difference.scale }
                    }
                    _ => value,
                };
                *sum = calculate(Operator::Add, sum, &step)?;
            }
            Number::Big(sum) => match number {
                Number::Whole(value) => *sum += *value,
                Number::Big(value) => *sum += value,
                _ => {}
            },
            Number::Whole(_) => {}
        }
        Ok(())
    }

    /// Returns the result; `None` is null.
    #[must_use]
    pub fn finish(&self) -> Option<Vec<u8>> {
        let native = self.aggregate.native();
        match self.aggregate.kind {
            AggregateKind::CountRows | AggregateKind::Count => {
                Some(self.count.to_be_bytes().to_vec())
            }
            AggregateKind::Min | AggregateKind::Max => self.best.clone(),
            // A sum of integers wraps around at the range of its type.
            AggregateKind::Sum => self.sum.write(native),
            AggregateKind::Average if self.count == 0 => self.aggregate.zero().write(native),
            AggregateKind::Average => self.average().write(native),
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "a double has digits enough for a count of rows")]
    fn average(&self) -> Number {
        match &self.sum {
            Number::Float(sum) => match &self.exact {
                Some(Decimal { unscaled, scale }) => {
                    let unscaled = divide_half_even(unscaled, &BigInt::from(self.count));
                    Number::Float(Number::Decimal(Decimal { unscaled, scale: *scale }).to_float())
                }
                None => Number::Float(sum / self.count as f64),
            },
            Number::Decimal(average) => Number::Decimal(average.clone()),
            Number::Big(sum) => Number::Big(sum / self.count),
            Number::Whole(sum) => Number::Whole(sum / self.count.max(1)),
        }
    }
}

/// A sum with the larger of both scales. Used for doubles, whose magnitudes are within some hundred
/// digits.
fn add_exactly(left: &Decimal, right: &Decimal) -> Decimal {
    let scale = left.scale.max(right.scale);
    let unscaled = |of: &Decimal| &of.unscaled * BigInt::from(10).pow(scale.abs_diff(of.scale));
    Decimal { unscaled: unscaled(left) + unscaled(right), scale }
}

/// A quotient rounded to the nearest whole, halves to the even one.
fn divide_half_even(left: &BigInt, right: &BigInt) -> BigInt {
    let down = left / right;
    let up = arithmetic::divide_half_up(left, right);
    let remainder: BigInt = left % right;
    let half = remainder.magnitude() * 2u32 == *right.magnitude();
    let even = !down.bit(0);
    if half && even { down } else { up }
}
