//! Splits and joins collections, tuples and vectors.

use crate::error::InvalidRequest;
use crate::types::CqlType;

/// Reads an unsigned variable-length integer, with as many extra bytes as the first byte has
/// leading ones.
pub(super) fn read_unsigned_vint(input: &mut &[u8]) -> Option<u64> {
    let (first, rest) = input.split_first()?;
    let extra = first.leading_ones() as usize;
    let (bytes, rest) = rest.split_at_checked(extra)?;
    let start = if extra >= 7 { 0 } else { u64::from(first & (0xFF >> (extra + 1))) };
    *input = rest;
    Some(bytes.iter().fold(start, |value, byte| value << 8 | u64::from(*byte)))
}

/// Appends an unsigned variable-length integer.
pub(super) fn write_unsigned_vint(value: u64, out: &mut Vec<u8>) {
    let bits = 64 - value.max(1).leading_zeros() as usize;
    let extra = if bits > 56 { 8 } else { (bits - 1) / 7 };
    let bytes = value.to_be_bytes();
    let mut encoded = [0; 9];
    encoded[9 - 8..].copy_from_slice(&bytes);
    let start = 8 - extra;
    encoded[start] |= u8::try_from(0xFF00u32 >> extra & 0xFF).unwrap_or(0xFF);
    out.extend_from_slice(&encoded[start..]);
}

fn read_length(input: &mut &[u8]) -> Option<i32> {
    let (length, rest) = input.split_first_chunk::<4>()?;
    *input = rest;
    Some(i32::from_be_bytes(*length))
}

/// A value behind its length; null for a negative length.
fn read_value<'a>(input: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let Ok(length) = usize::try_from(read_length(input)?) else {
        return Some(None);
    };
    let (value, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(Some(value))
}

/// The elements of a list or set, or the alternating keys and values of a map (`what`). A null
/// element is an error, as in Cassandra.
///
/// # Errors
/// If the bytes are not such a collection.
pub fn collection<'a>(what: &str, bytes: &'a [u8]) -> Result<Vec<&'a [u8]>, InvalidRequest> {
    let cut = || InvalidRequest::new(format!("Not enough bytes to read a {what}"));
    let mut input = bytes;
    let count = read_length(&mut input).ok_or_else(cut)?;
    let count =
        usize::try_from(count).unwrap_or(0).saturating_mul(if what == "map" { 2 } else { 1 });
    // The count is not trusted: the vector grows as elements are read.
    let mut elements = Vec::with_capacity(count.min(bytes.len() / 4));
    for _ in 0..count {
        let value = read_value(&mut input).ok_or_else(cut)?;
        elements.push(
            value.ok_or_else(|| InvalidRequest::new("null is not supported inside collections"))?,
        );
    }
    if input.is_empty() {
        return Ok(elements);
    }
    Err(InvalidRequest::new(format!("Unexpected extraneous bytes after {what} value")))
}

/// A fault in the bytes of a tuple.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TupleError {
    /// The bytes end in the length of this element.
    Size(usize),
    /// The bytes end in this element.
    Value(usize),
    /// Bytes follow the last element.
    Rest,
}

/// The elements of a tuple or the fields of a user-defined type's value: `count` of them, null
/// where the value ends early.
///
/// # Errors
/// The unreadable element, or bytes behind the last one.
pub fn tuple(count: usize, bytes: &[u8]) -> Result<Vec<Option<&[u8]>>, TupleError> {
    let mut input = bytes;
    let mut elements = Vec::with_capacity(count);
    for position in 0..count {
        if input.is_empty() {
            elements.push(None);
            continue;
        }
        let size = input.len() >= 4;
        let value = read_value(&mut input);
        elements.push(value.ok_or(if size {
            TupleError::Value(position)
        } else {
            TupleError::Size(position)
        })?);
    }
    if input.is_empty() { Ok(elements) } else { Err(TupleError::Rest) }
}

/// The elements of a vector.
///
/// # Errors
/// If there are too few or too many bytes.
pub fn vector<'a>(
    element: &CqlType,
    dimension: u32,
    bytes: &'a [u8],
) -> Result<Vec<&'a [u8]>, InvalidRequest> {
    let cut = || {
        InvalidRequest::new(format!("Not enough bytes to read a vector<{element}, {dimension}>"))
    };
    let mut input = bytes;
    let mut elements = Vec::new();
    for _ in 0..dimension {
        let length = match element.fixed_length() {
            Some(length) => length,
            None => read_unsigned_vint(&mut input)
                .and_then(|length| usize::try_from(length).ok())
                .ok_or_else(cut)?,
        };
        let (value, rest) = input.split_at_checked(length).ok_or_else(cut)?;
        input = rest;
        elements.push(value);
    }
    if input.is_empty() {
        return Ok(elements);
    }
    let left = input.len();
    Err(InvalidRequest::new(format!(
        "Unexpected {left} extraneous bytes after vector<{element}, {dimension}> value"
    )))
}

fn write_value(value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&i32::try_from(value.len()).unwrap_or(i32::MAX).to_be_bytes());
    out.extend_from_slice(value);
}

/// A list or set of `elements`, or a map of alternating keys and values with `count` entries.
pub fn join_collection<V: AsRef<[u8]>>(
    count: usize,
    elements: impl IntoIterator<Item = V>,
) -> Vec<u8> {
    let mut out = i32::try_from(count).unwrap_or(i32::MAX).to_be_bytes().to_vec();
    for element in elements {
        write_value(element.as_ref(), &mut out);
    }
    out
}

/// A tuple or a value of a user-defined type.
pub fn join_tuple<V: AsRef<[u8]>>(elements: impl IntoIterator<Item = Option<V>>) -> Vec<u8> {
    let mut out = Vec::new();
    for element in elements {
        match element {
            Some(element) => write_value(element.as_ref(), &mut out),
            None => out.extend_from_slice(&(-1i32).to_be_bytes()),
        }
    }
    out
}

/// A vector of elements of the type `element`.
pub fn join_vector<V: AsRef<[u8]>>(
    element: &CqlType,
    elements: impl IntoIterator<Item = V>,
) -> Vec<u8> {
    let mut out = Vec::new();
    for value in elements {
        let value = value.as_ref();
        if element.fixed_length().is_none() {
            write_unsigned_vint(value.len() as u64, &mut out);
        }
        out.extend_from_slice(value);
    }
    out
}
