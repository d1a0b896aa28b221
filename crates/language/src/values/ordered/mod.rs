//! Encodes values as bytes in the order of the values, for keys of a store that only knows bytes.
//!
//! A component has a header (null, empty, or a value) and a sortable, self-terminating encoding, so
//! that no component is a prefix of another and several can be concatenated. For a descending
//! column all of its bytes are inverted. No component begins with 0xFF or 0x00: a prefix of a
//! clustering key sorts before every key that begins with it, and with 0xFF appended after them
//! ([`after_prefix`]).
//!
//! Values that compare as equal have the same bytes. Decoding gives the canonical one: a `decimal`
//! without trailing zeros, a NaN of the usual bits, a tuple with all its nulls.

mod decode;
mod encode;

use crate::ast::NativeType;
use crate::error::InvalidRequest;
use crate::types::CqlType;
use crate::values::check_numbers;

pub use decode::decode;

/// Headers of components, inverted for descending columns.
mod header {
    /// The end of a collection, inside its component.
    pub(super) const END: u8 = 0x01;
    /// Null, inside tuples.
    pub(super) const NULL: u8 = 0x02;
    /// An empty value.
    pub(super) const EMPTY: u8 = 0x03;
    /// A value.
    pub(super) const VALUE: u8 = 0x04;
}

/// Appends a value so that the bytes of values of one type and direction sort like
/// [`crate::values::compare`], or in reverse if `descending`.
///
/// # Errors
/// If `bytes` are not a value of the type, or have a number that is too large
/// ([`check_numbers`]); `out` is then unchanged.
pub fn encode(
    cql_type: &CqlType,
    descending: bool,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), InvalidRequest> {
    check_numbers(cql_type, bytes)?;
    let start = out.len();
    if encode::value(cql_type, Some(bytes), out).is_none() {
        out.truncate(start);
        return Err(InvalidRequest::new(format!(
            "{} bytes that are no value of type {cql_type}",
            bytes.len()
        )));
    }
    if descending {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    Ok(())
}

/// True if equal values of the type can differ visibly: in trailing zeros of a decimal, or in
/// trailing nulls of a tuple.
#[must_use]
pub fn has_forms(cql_type: &CqlType) -> bool {
    match cql_type {
        CqlType::Native(native) => *native == NativeType::Decimal,
        CqlType::List { element, .. }
        | CqlType::Set { element, .. }
        | CqlType::Vector { element, .. } => has_forms(element),
        CqlType::Map { key, value, .. } => has_forms(key) || has_forms(value),
        CqlType::Tuple(_) | CqlType::Udt { .. } => true,
        CqlType::Custom(_) => false,
    }
}

/// Turns the encoded prefix of a clustering key into a bound above every key that begins with it.
///
/// Bounds of a slice over the first n columns: `prefix` is the inclusive start and the exclusive
/// end, and the extended prefix the exclusive start and the inclusive end.
pub fn after_prefix(prefix: &mut Vec<u8>) {
    prefix.push(0xFF);
}
