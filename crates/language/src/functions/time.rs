//! Functions of dates, times and UUIDs.

use crate::ast::{NativeType, Operator};
use crate::error::InvalidRequest;
use crate::values::{Duration, day_of_timestamp, month_of, timestamp_of_day};

/// Units of 100 ns from the start of the Gregorian calendar to 1970.
const GREGORIAN_TICKS: i64 = 0x01B2_1DD2_1381_4000;
const DAY_MS: i64 = 86_400_000;
const TICKS_PER_MS: i64 = 10_000;
const NS_PER_MS: i64 = 1_000_000;

/// A version 4 UUID of random bits.
pub(super) fn random_uuid(bits: u128) -> [u8; 16] {
    let mut bytes = bits.to_be_bytes();
    bytes[6] = 0x40 | bytes[6] & 0x0F;
    bytes[8] = 0x80 | bytes[8] & 0x3F;
    bytes
}

/// The current time as a value of a type.
pub(super) fn current(native: NativeType, now_ms: i64) -> Option<Vec<u8>> {
    match native {
        NativeType::Time => Some((now_ms.rem_euclid(DAY_MS) * 1_000_000).to_be_bytes().to_vec()),
        _ => convert(NativeType::Timestamp, native, &now_ms.to_be_bytes()),
    }
}

/// Milliseconds since 1970 of a `timestamp`, `date` or `timeuuid`.
pub(super) fn milliseconds(from: NativeType, bytes: &[u8]) -> Option<i64> {
    match from {
        NativeType::Timestamp => Some(i64::from_be_bytes(bytes.try_into().ok()?)),
        NativeType::Date => Some(timestamp_of_day(u32::from_be_bytes(bytes.try_into().ok()?))),
        NativeType::Timeuuid => {
            let most = u64::from_be_bytes(*bytes.first_chunk::<8>()?);
            let ticks = (most & 0x0FFF) << 48 | (most >> 16 & 0xFFFF) << 32 | most >> 32;
            Some((ticks.cast_signed() - GREGORIAN_TICKS) / TICKS_PER_MS)
        }
        _ => None,
    }
}

/// Converts between kinds of time: `timestamp` or `date`.
pub(super) fn convert(from: NativeType, to: NativeType, bytes: &[u8]) -> Option<Vec<u8>> {
    let ms = milliseconds(from, bytes)?;
    Some(match to {
        NativeType::Date => day_of_timestamp(ms).to_be_bytes().to_vec(),
        _ => ms.to_be_bytes().to_vec(),
    })
}

/// The smallest or largest `timeuuid` of a time.
pub(super) fn bound_of_timeuuids(timestamp: &[u8], largest: bool) -> Option<Vec<u8>> {
    let ms = i64::from_be_bytes(timestamp.try_into().ok()?);
    let ms = if largest { ms.wrapping_add(1) } else { ms };
    let ticks = ms
        .wrapping_mul(TICKS_PER_MS)
        .wrapping_add(GREGORIAN_TICKS)
        .wrapping_sub(i64::from(largest));
    let ticks = ticks.cast_unsigned();
    let most = ticks << 32 | (ticks >> 32 & 0xFFFF) << 16 | 0x1000 | ticks >> 48;
    let least: u64 = if largest { 0x7F7F_7F7F_7F7F_7F7F } else { 0x8080_8080_8080_8080 };
    Some([most.to_be_bytes(), least.to_be_bytes()].concat())
}

/// `timestamp + duration`, `date - duration` and similar: first the months, then the rest.
pub(super) fn add_duration(
    operator: Operator,
    native: NativeType,
    bytes: &[u8],
    duration: &[u8],
) -> Result<Vec<u8>, String> {
    let invalid = || "an operand is no time".to_owned();
    let duration = Duration::decode(duration).map_err(|error| error.message)?;
    let sign = if operator == Operator::Subtract { -1 } else { 1 };
    let ms = milliseconds(native, bytes).ok_or_else(invalid)?;
    if native == NativeType::Date && duration.nanoseconds % (DAY_MS * 1_000_000) != 0 {
        return Err(
            "The duration must have a day precision. Was: ".to_owned() + &duration.to_string()
        );
    }
    let ms = crate::values::add_months(ms, i64::from(duration.months) * sign)
        .and_then(|ms| ms.checked_add(i64::from(duration.days) * sign * DAY_MS))
        .and_then(|ms| ms.checked_add(duration.nanoseconds / 1_000_000 * sign))
        .ok_or_else(|| "the result is out of range".to_owned())?;
    convert(NativeType::Timestamp, native, &ms.to_be_bytes()).ok_or_else(invalid)
}

/// `floor(time, duration[, start])`: the last multiple of the duration since `start` that is not
/// after `time`.
pub(super) fn floor(
    native: NativeType,
    bytes: &[u8],
    duration: &[u8],
    start: Option<&[u8]>,
) -> Result<Option<Vec<u8>>, InvalidRequest> {
    let duration = Duration::decode(duration)?;
    let refuse = |message: String| Err(InvalidRequest::new(message));
    if native == NativeType::Time {
        return floor_of_day(bytes, &duration).map(Some);
    }
    if native == NativeType::Date && duration.nanoseconds != 0 {
        return refuse(format!(
            "The floor on date values cannot be computed for the {duration} duration as precision is below 1 day"
        ));
    }
    if duration.nanoseconds % NS_PER_MS != 0 {
        return refuse(format!(
            "The floor cannot be computed for the {duration} duration as precision is below 1 millisecond"
        ));
    }
    let Some(ms) = milliseconds(native, bytes) else { return Ok(None) };
    let start_type = if native == NativeType::Date { native } else { NativeType::Timestamp };
    let start = start.and_then(|start| milliseconds(start_type, start)).unwrap_or(0);
    if start > ms {
        return refuse(
            "The floor function starting time is greater than the provided time".to_owned(),
        );
    }
    refuse_negative(&duration)?;
    let floor = floor_ms(ms, &duration, start);
    Ok(convert(NativeType::Timestamp, start_type, &floor.to_be_bytes()))
}

fn refuse_negative(duration: &Duration) -> Result<(), InvalidRequest> {
    if duration.months < 0 || duration.days < 0 || duration.nanoseconds < 0 {
        return Err(InvalidRequest::new(
            "Negative durations are not supported by the floor function",
        ));
    }
    Ok(())
}

fn floor_of_day(bytes: &[u8], duration: &Duration) -> Result<Vec<u8>, InvalidRequest> {
    refuse_negative(duration)?;
    if duration.months != 0 || duration.days != 0 || duration.nanoseconds > DAY_MS * NS_PER_MS {
        let message =
            "For time values, the floor can only be computed for durations smaller that a day";
        return Err(InvalidRequest::new(message));
    }
    let ns = bytes.try_into().map_or(0, i64::from_be_bytes);
    let floor = if duration.nanoseconds == 0 { ns } else { ns - ns % duration.nanoseconds };
    Ok(floor.to_be_bytes().to_vec())
}

/// Like Cassandra's `Duration.floorTimestamp`: whole months by the calendar, the rest by the
/// millisecond. Numbers that overflow there overflow here too.
fn floor_ms(ms: i64, duration: &Duration, start: i64) -> i64 {
    let step_ms = i64::from(duration.days)
        .wrapping_mul(DAY_MS)
        .wrapping_add(duration.nanoseconds / NS_PER_MS);
    if duration.months == 0 {
        return if step_ms == 0 { ms } else { ms - ms.wrapping_sub(start) % step_ms };
    }
    let months = (month_of(ms) - month_of(start)) as i32;
    let mut multiplier = i64::from(months / duration.months);
    let months_on = |multiplier: i64| {
        let months = i64::from((multiplier as i32).wrapping_mul(duration.months));
        crate::values::add_months(start, months).unwrap_or(start)
    };
    if step_ms == 0 {
        return months_on(multiplier);
    }
    loop {
        let floor = months_on(multiplier).wrapping_add(multiplier.wrapping_mul(step_ms));
        if floor <= ms {
            return floor.max(start);
        }
        multiplier -= 1;
    }
}
