//! Order of values, as defined by each type of Cassandra (`AbstractType.compare`).

use std::cmp::Ordering;

use super::number::{Decimal, decode_varint};
use super::split;
use crate::ast::NativeType;
use crate::types::CqlType;

/// Compares two values of a type. Both must be valid: invalid ones are compared as bytes.
///
/// An empty value sorts before all others. Durations have no order and compare as bytes, too.
#[must_use]
pub fn compare(cql_type: &CqlType, left: &[u8], right: &[u8]) -> Ordering {
    let found = match cql_type {
        CqlType::Native(native) => native_values(*native, left, right),
        CqlType::List { element, .. } => elements("list", &[element], left, right),
        CqlType::Set { element, .. } => elements("set", &[element], left, right),
        CqlType::Map { key, value, .. } => elements("map", &[key, value], left, right),
        CqlType::Tuple(types) => tuples(types.len(), |position| &types[position], left, right),
        CqlType::Udt { definition, .. } => {
            let fields = &definition.fields;
            tuples(fields.len(), |position| &fields[position].1, left, right)
        }
        CqlType::Vector { element, dimension } => vectors(element, *dimension, left, right),
        CqlType::Custom(_) => None,
    };
    found.unwrap_or_else(|| left.cmp(right))
}

fn native_values(native: NativeType, left: &[u8], right: &[u8]) -> Option<Ordering> {
    if left.is_empty() || right.is_empty() {
        return Some(right.is_empty().cmp(&left.is_empty()));
    }
    Some(match native {
        NativeType::Bigint | NativeType::Counter | NativeType::Timestamp => {
            long(left)?.cmp(&long(right)?)
        }
        NativeType::Int => int(left)?.cmp(&int(right)?),
        NativeType::Smallint => i16::from_be_bytes(left.try_into().ok()?)
            .cmp(&i16::from_be_bytes(right.try_into().ok()?)),
        NativeType::Tinyint => left.first()?.cast_signed().cmp(&right.first()?.cast_signed()),
        NativeType::Boolean => (*left.first()? != 0).cmp(&(*right.first()? != 0)),
        NativeType::Double => java_order(
            f64::from_be_bytes(left.try_into().ok()?),
            f64::from_be_bytes(right.try_into().ok()?),
        ),
        NativeType::Float => java_order(
            f64::from(f32::from_be_bytes(left.try_into().ok()?)),
            f64::from(f32::from_be_bytes(right.try_into().ok()?)),
        ),
        NativeType::Varint => decode_varint(left).cmp(&decode_varint(right)),
        NativeType::Decimal => Decimal::decode(left)?.compare(&Decimal::decode(right)?),
        NativeType::Timeuuid => timeuuid_order(left)?.cmp(&timeuuid_order(right)?),
        NativeType::Uuid => uuid_order(left)?.cmp(&uuid_order(right)?),
        NativeType::Ascii
        | NativeType::Blob
        | NativeType::Date
        | NativeType::Duration
        | NativeType::Inet
        | NativeType::Text
        | NativeType::Time => left.cmp(right),
    })
}

fn long(bytes: &[u8]) -> Option<i64> {
    bytes.try_into().ok().map(i64::from_be_bytes)
}

fn int(bytes: &[u8]) -> Option<i32> {
    bytes.try_into().ok().map(i32::from_be_bytes)
}

/// `Double.compare`: -0.0 below 0.0, every NaN equal and above all.
fn java_order(left: f64, right: f64) -> Ordering {
    left.is_nan()
        .cmp(&right.is_nan())
        .then_with(|| if left.is_nan() { Ordering::Equal } else { left.total_cmp(&right) })
}

/// The 60 time bits of a UUID, most significant first, with the version on top.
fn time_first(most: u64) -> u64 {
    most << 48 | (most << 16 & 0xFFFF_0000_0000) | most >> 32
}

fn halves(bytes: &[u8]) -> Option<(u64, u64)> {
    let value = u128::from_be_bytes(bytes.try_into().ok()?);
    Some(((value >> 64) as u64, value as u64))
}

/// Sort key of version 1 UUIDs as `timeuuid`: the time, then the rest as signed bytes.
pub(super) fn timeuuid_order(bytes: &[u8]) -> Option<u128> {
    let (most, least) = halves(bytes)?;
    Some(u128::from(time_first(most)) << 64 | u128::from(least ^ 0x8080_8080_8080_8080))
}

/// Restores the bytes from a key of [`timeuuid_order`].
pub(super) fn timeuuid_from_order(order: u128) -> [u8; 16] {
    let (time, least) = ((order >> 64) as u64, order as u64);
    uuid_bytes(time_last(time), least ^ 0x8080_8080_8080_8080)
}

fn time_last(time: u64) -> u64 {
    time << 32 | (time >> 16 & 0xFFFF_0000) | time >> 48
}

fn uuid_bytes(most: u64, least: u64) -> [u8; 16] {
    (u128::from(most) << 64 | u128::from(least)).to_be_bytes()
}

/// Sort key of UUIDs: the version, then the time of version 1 or else the bytes, then the rest.
pub(super) fn uuid_order(bytes: &[u8]) -> Option<(u8, u64, u64)> {
    let (most, least) = halves(bytes)?;
    let version = (most >> 12 & 0xF) as u8;
    Some((version, if version == 1 { time_first(most) } else { most }, least))
}

/// Restores the bytes from a key of [`uuid_order`].
pub(super) fn uuid_from_order(version: u8, most: u64, least: u64) -> [u8; 16] {
    uuid_bytes(if version == 1 { time_last(most) } else { most }, least)
}

/// Compares collections element by element, then by size. `types` is the type of elements, or those
/// of keys and values.
fn elements(what: &str, types: &[&CqlType], left: &[u8], right: &[u8]) -> Option<Ordering> {
    if left.is_empty() || right.is_empty() {
        return Some(right.is_empty().cmp(&left.is_empty()));
    }
    let (left, right) = (split::collection(what, left).ok()?, split::collection(what, right).ok()?);
    let types = types.iter().cycle();
    let mut pairs = left.iter().zip(&right).zip(types);
    let differing = pairs.find_map(|((left, right), cql_type)| {
        Some(compare(cql_type, left, right)).filter(|order| *order != Ordering::Equal)
    });
    Some(differing.unwrap_or_else(|| left.len().cmp(&right.len())))
}

/// Compares tuples element by element, null before any value and equal to a missing element; but an
/// empty tuple sorts before one of nulls.
fn tuples<'t>(
    count: usize,
    type_of: impl Fn(usize) -> &'t CqlType,
    left: &[u8],
    right: &[u8],
) -> Option<Ordering> {
    if left.is_empty() || right.is_empty() {
        return Some(right.is_empty().cmp(&left.is_empty()));
    }
    let (left, right) = (split::tuple(count, left).ok()?, split::tuple(count, right).ok()?);
    let order = |position: usize| match (left[position], right[position]) {
        (Some(left), Some(right)) => compare(type_of(position), left, right),
        (left, right) => left.is_some().cmp(&right.is_some()),
    };
    Some((0..count).map(order).find(|order| *order != Ordering::Equal).unwrap_or(Ordering::Equal))
}

fn vectors(element: &CqlType, dimension: u32, left: &[u8], right: &[u8]) -> Option<Ordering> {
    if left.is_empty() || right.is_empty() {
        return Some(right.is_empty().cmp(&left.is_empty()));
    }
    let (left, right) = (
        split::vector(element, dimension, left).ok()?,
        split::vector(element, dimension, right).ok()?,
    );
    let mut orders = left.iter().zip(right).map(|(left, right)| compare(element, left, right));
    Some(orders.find(|order| *order != Ordering::Equal).unwrap_or(Ordering::Equal))
}
