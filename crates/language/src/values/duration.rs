//! `duration`: months, days and nanoseconds, as bytes and in three notations.

use std::fmt;

use super::split::{read_unsigned_vint, write_unsigned_vint};
use crate::error::InvalidRequest;

const MICROSECOND: i64 = 1_000;
const MILLISECOND: i64 = 1_000_000;
const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// A duration; its parts have the same sign.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Duration {
    /// Months.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Nanoseconds.
    pub nanoseconds: i64,
}

/// Units of the notation with letters, largest first: name, plural for messages, counted part and
/// factor.
const UNITS: [(&str, &str, Part, i64); 10] = [
    ("y", "years", Part::Months, 12),
    ("mo", "months", Part::Months, 1),
    ("w", "weeks", Part::Days, 7),
    ("d", "days", Part::Days, 1),
    ("h", "hours", Part::Nanoseconds, HOUR),
    ("m", "minutes", Part::Nanoseconds, MINUTE),
    ("s", "seconds", Part::Nanoseconds, SECOND),
    ("ms", "milliseconds", Part::Nanoseconds, MILLISECOND),
    ("us", "microseconds", Part::Nanoseconds, MICROSECOND),
    ("ns", "nanoseconds", Part::Nanoseconds, 1),
];

#[derive(Clone, Copy, Eq, PartialEq)]
enum Part {
    Months,
    Days,
    Nanoseconds,
}

impl Duration {
    /// Decodes bytes: three signed variable-length integers.
    ///
    /// # Errors
    /// If the bytes are malformed, or the signs differ.
    pub fn decode(bytes: &[u8]) -> Result<Duration, InvalidRequest> {
        if bytes.len() < 3 {
            let message = format!("Expected at least 3 bytes for a duration ({})", bytes.len());
            return Err(InvalidRequest::new(message));
        }
        let mut input = bytes;
        let mut next = || {
            let value = read_unsigned_vint(&mut input);
            let value =
                value.ok_or_else(|| InvalidRequest::new("Not enough bytes to read a duration"))?;
            Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
        };
        let (months, days, nanoseconds) = (next()?, next()?, next()?);
        let wide = |what: &str| {
            InvalidRequest::new(format!(
                "The duration {what} must be a 32 bits integer but was: {months}"
            ))
        };
        let whole_months = i32::try_from(months).map_err(|_| wide("months"))?;
        let whole_days = i32::try_from(days).map_err(|_| wide("days"))?;
        let (low, high) = (months.min(days).min(nanoseconds), months.max(days).max(nanoseconds));
        if low < 0 && high > 0 {
            return Err(InvalidRequest::new(format!(
                "The duration months, days and nanoseconds must be all of the same sign ({months}, {days}, {nanoseconds})"
            )));
        }
        Ok(Duration { months: whole_months, days: whole_days, nanoseconds })
    }

    /// Encodes the duration.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(11);
        for value in [i64::from(self.months), i64::from(self.days), self.nanoseconds] {
            write_unsigned_vint((value << 1 ^ value >> 63).cast_unsigned(), &mut out);
        }
        out
    }

    /// Parses `1h30m`, `PT1H30M` or `P0000-00-00T01:30:00`, each with an optional minus in front.
    ///
    /// # Errors
    /// If the text is none of these, or a part of it is too large.
    pub fn parse(text: &str) -> Result<Duration, InvalidRequest> {
        let unreadable =
            || InvalidRequest::new(format!("Unable to convert '{text}' to a duration"));
        let (negative, positive) =
            text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        if positive.is_empty() {
            return Err(unreadable());
        }
        let mut builder = Builder { negative, totals: [0; 3], last: None };
        if let Some(iso) = positive.strip_prefix('P') {
            let done = if iso.ends_with('W') {
                builder.units(iso, "w")
            } else if iso.contains('-') {
                builder.alternative(iso)
            } else {
                builder.designators(iso)
            };
            done?.ok_or_else(unreadable)?;
        } else {
            builder.units(positive, "")?.ok_or_else(unreadable)?;
        }
        Ok(builder.finish())
    }
}

/// Accumulates the parts of a duration.
struct Builder {
    negative: bool,
    totals: [i64; 3],
    last: Option<usize>,
}

impl Builder {
    /// Parses alternating digits and units; with `only`, the one unit allowed.
    fn units(&mut self, mut rest: &str, only: &str) -> Result<Option<()>, InvalidRequest> {
        if rest.is_empty() {
            return Ok(None);
        }
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, tail) = rest.split_at(digits);
            let letters = tail.bytes().take_while(|byte| !byte.is_ascii_digit()).count();
            let (unit, tail) = tail.split_at(letters);
            let name = unit.to_lowercase().replace('µ', "u");
            let unit = UNITS
                .iter()
                .position(|(known, ..)| *known == name && (only.is_empty() || *known == only));
            let Some(unit) = unit.filter(|_| digits > 0) else { return Ok(None) };
            self.add(number, unit)?;
            rest = tail;
        }
        Ok(Some(()))
    }

    /// `1Y2M3DT4H5M6S`
    fn designators(&mut self, iso: &str) -> Result<Option<()>, InvalidRequest> {
        let (date, time) = iso.split_once('T').unwrap_or((iso, ""));
        for (mut rest, units) in
            [(date, [("Y", 0), ("M", 1), ("D", 3)]), (time, [("H", 4), ("M", 5), ("S", 6)])]
        {
            for (letter, unit) in units {
                let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
                if digits > 0 && rest[digits..].starts_with(letter) {
                    self.add(&rest[..digits], unit)?;
                    rest = &rest[digits + 1..];
                }
            }
            if !rest.is_empty() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    }

    /// `0001-02-03T04:05:06`
    fn alternative(&mut self, iso: &str) -> Result<Option<()>, InvalidRequest> {
        let numbers: Vec<&str> = iso.split(['-', 'T', ':']).collect();
        let shape: Vec<usize> = numbers.iter().map(|number| number.len()).collect();
        let digits = numbers.iter().all(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        if shape != [4, 2, 2, 2, 2, 2] || !digits {
            return Ok(None);
        }
        for (number, unit) in numbers.iter().zip([0, 1, 3, 4, 5, 6]) {
            self.add(number, unit)?;
        }
        Ok(Some(()))
    }

    fn add(&mut self, number: &str, unit: usize) -> Result<(), InvalidRequest> {
        let (_, plural, part, factor) = UNITS[unit];
        let invalid = |why: String| InvalidRequest::new(format!("Invalid duration. {why}"));
        match self.last {
            Some(last) if last == unit => {
                return Err(invalid(format!("The {plural} are specified multiple times")));
            }
            Some(last) if last > unit => {
                let before = UNITS[last].1;
                return Err(invalid(format!("The {before} should be after {plural}")));
            }
            _ => self.last = Some(unit),
        }
        let (name, max) = match part {
            Part::Months => ("months", i64::from(i32::MAX)),
            Part::Days => ("days", i64::from(i32::MAX)),
            Part::Nanoseconds => ("nanoseconds", i64::MAX),
        };
        let total = &mut self.totals[part as usize];
        let sum = number
            .parse::<i64>()
            .ok()
            .and_then(|number| number.checked_mul(factor)?.checked_add(*total));
        match sum {
            Some(sum) if sum <= max => *total = sum,
            _ => {
                return Err(invalid(format!(
                    "The total number of {name} must be less or equal to {max}"
                )));
            }
        }
        Ok(())
    }

    fn finish(self) -> Duration {
        let sign = if self.negative { -1 } else { 1 };
        let part = |total: i64| i32::try_from(total * sign).unwrap_or(i32::MAX);
        let [months, days, nanoseconds] = self.totals;
        Duration { months: part(months), days: part(days), nanoseconds: nanoseconds * sign }
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.months < 0 || self.days < 0 || self.nanoseconds < 0 {
            f.write_str("-")?;
        }
        let mut months = self.months.unsigned_abs();
        for (unit, size) in [("y", 12), ("mo", 1)] {
            if months / size > 0 {
                write!(f, "{}{unit}", months / size)?;
            }
            months %= size;
        }
        if self.days != 0 {
            write!(f, "{}d", self.days.unsigned_abs())?;
        }
        let mut nanoseconds = self.nanoseconds.unsigned_abs();
        for (unit, _, _, size) in &UNITS[4..] {
            let size = size.unsigned_abs();
            if nanoseconds / size > 0 {
                write!(f, "{}{unit}", nanoseconds / size)?;
            }
            nanoseconds %= size;
        }
        Ok(())
    }
}
