//! The work of evaluating conditions and references: the bytes of values that they read, bounded
//! for all of a statement or transaction.
//!
//! A text of some kilobytes may test one value of many megabytes a thousand times.

use std::cell::Cell;

use crate::ast::NativeType;
use crate::error::InvalidRequest;
use crate::types::CqlType;
use crate::values::has_numbers;

/// Bytes that the conditions and references of one statement or transaction read, each counted as
/// often as it is read.
pub const WORK_BYTES_MAX: usize = 64 << 20;

/// The weight of a byte of a `varint` or `decimal` beside that of others.
const NUMBER_WEIGHT: usize = 8;

/// Bytes that may still be read.
#[derive(Clone, Debug)]
pub struct Work {
    /// `None` once the bound was exceeded.
    left: Cell<Option<usize>>,
}

impl Default for Work {
    fn default() -> Self {
        Self { left: Cell::new(Some(WORK_BYTES_MAX)) }
    }
}

impl Work {
    /// Takes these bytes from what may still be read.
    ///
    /// # Errors
    /// Less is left, now or at an earlier call.
    pub fn charge(&self, bytes: usize) -> Result<(), InvalidRequest> {
        self.left.set(self.left.get().and_then(|left| left.checked_sub(bytes)));
        self.check()
    }

    /// Checks that the bound was not exceeded.
    ///
    /// # Errors
    /// The bound was exceeded.
    pub fn check(&self) -> Result<(), InvalidRequest> {
        match self.left.get() {
            Some(_) => Ok(()),
            None => Err(InvalidRequest::new(format!(
                "Shunt: the conditions and references read more than {WORK_BYTES_MAX} bytes of values; each read counts, and numbers count {NUMBER_WEIGHT} times; nothing was written. Use fewer conditions or smaller values"
            ))),
        }
    }

    /// Charges the comparison of two values.
    pub(crate) fn compare(
        &self,
        cql_type: &CqlType,
        left: &[u8],
        right: &[u8],
    ) -> Result<(), InvalidRequest> {
        self.charge(match weight(cql_type) {
            0 => left.len().min(right.len()),
            weight => left.len().saturating_add(right.len()).saturating_mul(weight),
        })
    }

    /// Charges the search for an element or key of this type in a whole collection.
    pub(crate) fn search(
        &self,
        element: &CqlType,
        whole: &[u8],
        wanted: &[u8],
    ) -> Result<(), InvalidRequest> {
        let count = whole.first_chunk::<4>().map_or(0, |count| i32::from_be_bytes(*count));
        let count = usize::try_from(count).unwrap_or(0).min(whole.len() / size_of::<i32>());
        let weight = weight(element);
        let compared = count.saturating_mul(wanted.len()).saturating_mul(weight);
        self.charge(whole.len().saturating_mul(weight.max(1)).saturating_add(compared))
    }
}

/// The weight of a byte in a comparison; 0 if values are compared as bytes, until they differ.
fn weight(cql_type: &CqlType) -> usize {
    match cql_type {
        CqlType::Native(NativeType::Varint | NativeType::Decimal) => NUMBER_WEIGHT,
        CqlType::Native(_) | CqlType::Custom(_) => 0,
        other if has_numbers(other) => NUMBER_WEIGHT,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_work_than_the_bound_is_refused_from_then_on() {
        let work = Work::default();
        assert_eq!(work.charge(WORK_BYTES_MAX), Ok(()));
        assert_eq!(work.check(), Ok(()));
        let error = work.charge(1).expect_err("too much");
        assert!(error.message.contains("nothing was written"), "{error}");
        assert!(work.charge(0).is_err() && work.check().is_err());
    }

    #[test]
    fn bytes_are_compared_until_they_differ_and_numbers_as_a_whole() {
        let work = Work::default();
        let blob = CqlType::Native(NativeType::Blob);
        let (large, small) = (vec![0; 12 << 20], [1]);
        for _ in 0..1_000 {
            assert_eq!(work.compare(&blob, &large, &small), Ok(()));
        }
        let varint = CqlType::Native(NativeType::Varint);
        assert!(work.compare(&varint, &large, &small).is_err());
    }
}
