//! `timestamp`, `date` and `time`: text in Cassandra's formats, in UTC unless the text has a time
//! zone.

use std::fmt::Write as _;

const DAY_MS: i64 = 86_400_000;
/// Nanoseconds of a day.
pub(super) const DAY_NS: i64 = 86_400_000_000_000;
/// The serialized `date` of 1970-01-01.
const EPOCH_DAY: i64 = 1 << 31;

/// Milliseconds since 1970, or the current time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Timestamp {
    /// A fixed time.
    At(i64),
    /// A time without a zone, taken as UTC. A node takes its own zone.
    Local(i64),
    /// The literal `'now'`.
    Now,
}

/// The `date` of a time in milliseconds. As in Cassandra, seconds before 1970 belong to the
/// following day, and dates out of range wrap around.
#[must_use]
pub fn day_of_timestamp(ms: i64) -> u32 {
    let days = ms.div_euclid(1000) / (DAY_MS / 1000);
    ((days + EPOCH_DAY).cast_unsigned() & 0xFFFF_FFFF).try_into().unwrap_or(0)
}

/// The first millisecond of a `date`.
#[must_use]
pub fn timestamp_of_day(day: u32) -> i64 {
    (i64::from(day) - EPOCH_DAY) * DAY_MS
}

/// Days since 1970 of a (proleptic) Gregorian date; `None` if there is no such day.
fn days_of(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = lengths.get(usize::try_from(month.checked_sub(1)?).ok()?)?;
    if !(1..=*length).contains(&day) {
        return None;
    }
    // Years begin in March here, so that a leap day is the last of its year.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year
            - 719_468,
    )
}

/// Year, month and day of days since 1970.
fn date_of(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Formats a `timestamp`; `separator` is between date and time.
pub(super) fn timestamp_text(ms: i64, separator: char) -> String {
    let (year, month, day) = date_of(ms.div_euclid(DAY_MS));
    // Java formats the year of the era here, and years of more than four digits with a sign.
    let year = if year <= 0 { 1 - year } else { year };
    let sign = if year > 9999 { "+" } else { "" };
    let time = ms.rem_euclid(DAY_MS);
    format!(
        "{sign}{year:04}-{month:02}-{day:02}{separator}{:02}:{:02}:{:02}.{:03}Z",
        time / 3_600_000,
        time / 60_000 % 60,
        time / 1000 % 60,
        time % 1000
    )
}

/// A `date` as text.
pub(super) fn date_text(serialized: u32) -> String {
    let (year, month, day) = date_of(i64::from(serialized) - EPOCH_DAY);
    let mut text = match year {
        10_000.. => format!("+{year}"),
        0..=9999 => format!("{year:04}"),
        _ => format!("-{:04}", -year),
    };
    let _ = write!(text, "-{month:02}-{day:02}");
    text
}

/// A `time` as text.
pub(super) fn time_text(ns: i64) -> String {
    let seconds = ns / 1_000_000_000;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{:09}", seconds % 60, ns % 1_000_000_000)
}

/// Parses a `timestamp`: a number of milliseconds, `now`, or a date with optional time and zone.
pub(super) fn parse_timestamp(text: &str) -> Result<Timestamp, String> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let number = text.parse().map(Timestamp::At);
        return number.map_err(|_| format!("Unable to make long (for date) from: '{text}'"));
    }
    if text.eq_ignore_ascii_case("now") {
        return Ok(Timestamp::Now);
    }
    let mut cursor = Cursor(text);
    let time = cursor.timestamp().filter(|_| cursor.0.is_empty());
    time.ok_or_else(|| format!("Unable to parse a date/time from '{text}'"))
}

/// The things beside a text that its value as a `timestamp` depends on.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum TimeDependence {
    /// Nothing.
    #[default]
    Nothing,
    /// The time zone of the node that reads it.
    Zone,
    /// The time at which a node prepares the statement.
    Now,
}

impl TimeDependence {
    /// The dependence of a text. A zone that is unknown here may be known to nodes.
    #[must_use]
    pub fn of(text: &str) -> TimeDependence {
        match parse_timestamp(text) {
            Ok(Timestamp::At(_)) => TimeDependence::Nothing,
            Ok(Timestamp::Local(_)) => TimeDependence::Zone,
            Ok(Timestamp::Now) => TimeDependence::Now,
            Err(_) if text.starts_with(|first: char| first.is_ascii_digit()) => {
                TimeDependence::Zone
            }
            Err(_) => TimeDependence::Nothing,
        }
    }
}

/// Parses a `date`: its unsigned number, or `yyyy-mm-dd`.
pub(super) fn parse_date(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return text
            .parse()
            .map_err(|_| format!("Unable to make unsigned int (for date) from: '{text}'"));
    }
    let mut cursor = Cursor(text);
    let days = cursor.date(true).filter(|_| cursor.0.is_empty());
    let serialized = days.and_then(|days| u32::try_from(days + EPOCH_DAY).ok());
    serialized.ok_or_else(|| format!("Unable to coerce '{text}' to a formatted date (long)"))
}

/// Parses a `time`: nanoseconds of the day, or `h:m:s[.fraction]`.
pub(super) fn parse_time(text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let number = text.parse().ok().filter(|ns| (0..DAY_NS).contains(ns));
        return number.ok_or_else(|| format!("Unable to make long (for time) from: '{text}'"));
    }
    let mut cursor = Cursor(text);
    let ns = cursor.time_ns().filter(|_| cursor.0.is_empty());
    ns.ok_or_else(|| format!("(TimeType) Unable to coerce '{text}' to a formatted time (long)"))
}

/// The unread part of the text.
struct Cursor<'a>(&'a str);

impl Cursor<'_> {
    fn eat(&mut self, wanted: char) -> Option<()> {
        self.0 = self.0.strip_prefix(wanted)?;
        Some(())
    }

    /// From `least` to `most` digits.
    fn number(&mut self, least: usize, most: usize) -> Option<i64> {
        let digits = self.0.bytes().take(most).take_while(u8::is_ascii_digit).count();
        if digits < least {
            return None;
        }
        let (number, rest) = self.0.split_at(digits);
        self.0 = rest;
        number.parse().ok()
    }

    /// Days since 1970; `wide` years may have a sign and more than four digits.
    fn date(&mut self, wide: bool) -> Option<i64> {
        let negative = self.eat('-').is_some();
        let plus = !negative && wide && self.eat('+').is_some();
        let year = self.number(4, if wide && (negative || plus) { 9 } else { 4 })?;
        self.eat('-')?;
        let month = self.number(2, 2)?;
        self.eat('-')?;
        let day = self.number(2, 2)?;
        days_of(if negative { -year } else { year }, month, day)
    }

    fn timestamp(&mut self) -> Option<Timestamp> {
        let days = self.date(false)?;
        let mut ms = days.checked_mul(DAY_MS)?;
        let time = self
            .0
            .strip_prefix(['T', ' '])
            .filter(|rest| rest.starts_with(|next: char| next.is_ascii_digit()));
        if let Some(rest) = time {
            self.0 = rest;
            ms += self.clock_ms()?;
        }
        let _ = self.eat(' ');
        if self.0.is_empty() {
            return Some(Timestamp::Local(ms));
        }
        Some(Timestamp::At(ms - self.zone_minutes()? * 60_000))
    }

    /// `hh:mm[:ss[.fraction]]`
    fn clock_ms(&mut self) -> Option<i64> {
        let hours = self.number(2, 2).filter(|hours| *hours < 24)?;
        self.eat(':')?;
        let minutes = self.number(2, 2).filter(|minutes| *minutes < 60)?;
        let mut ms = (hours * 60 + minutes) * 60_000;
        if self.eat(':').is_some() {
            ms += self.number(2, 2).filter(|seconds| *seconds < 60)? * 1000;
            if self.eat('.').is_some() {
                let digits = self.0.bytes().take_while(u8::is_ascii_digit).count();
                let fraction = self.number(1, 9)?;
                ms += fraction * 1_000_000_000
                    / 10i64.pow(u32::try_from(digits.min(9)).ok()?)
                    / 1_000_000;
            }
        }
        Some(ms)
    }

    /// `Z`, `UTC`, `GMT`, `+hh`, `+hhmm` or `+hh:mm`
    fn zone_minutes(&mut self) -> Option<i64> {
        for utc in ["Z", "UTC", "GMT"] {
            if let Some(rest) = self.0.strip_prefix(utc) {
                self.0 = rest;
                return Some(0);
            }
        }
        let sign = if self.eat('+').is_some() { 1 } else { self.eat('-').map(|()| -1)? };
        let hours = self.number(2, 2).filter(|hours| *hours <= 18)?;
        let separated = self.eat(':').is_some();
        let minutes = if self.0.is_empty() && !separated { 0 } else { self.number(2, 2)? };
        (minutes < 60).then_some(sign * (hours * 60 + minutes))
    }

    /// `h:m:s[.fraction]`
    fn time_ns(&mut self) -> Option<i64> {
        let hours = self.number(1, 2).filter(|hours| *hours < 24)?;
        self.eat(':')?;
        let minutes = self.number(1, 2).filter(|minutes| *minutes < 60)?;
        self.eat(':')?;
        let seconds = self.number(1, 2).filter(|seconds| *seconds < 60)?;
        let mut ns = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000;
        if self.eat('.').is_some() {
            let digits = self.0.bytes().take_while(u8::is_ascii_digit).count();
            let fraction = self.number(1, 9)?;
            ns += fraction * 10i64.pow(9 - u32::try_from(digits.min(9)).ok()?);
        }
        Some(ns)
    }
}

/// Shifts a time in milliseconds by months; a missing day becomes the last of its month.
pub(crate) fn add_months(ms: i64, months: i64) -> Option<i64> {
    let (days, time) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
    let (year, month, day) = date_of(days);
    let total = year.checked_mul(12)?.checked_add(month - 1)?.checked_add(months)?;
    let (year, month) = (total.div_euclid(12), total.rem_euclid(12) + 1);
    let day = (day - 3..=day).rev().find_map(|day| days_of(year, month, day))?;
    day.checked_mul(DAY_MS)?.checked_add(time)
}

/// Months between the year 0 and a time in milliseconds.
pub(crate) fn month_of(ms: i64) -> i64 {
    let (year, month, _) = date_of(ms.div_euclid(DAY_MS));
    year * 12 + month - 1
}
