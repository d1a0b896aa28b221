//! Dates and times in string literals, limited to the forms whose meaning does not depend on the
//! server's settings: a timestamp without a time zone is refused.

const HOUR_NS: i64 = 3_600_000_000_000;
pub(super) const DAY_NS: i64 = 24 * HOUR_NS;
const DAY_MS: i64 = 86_400_000;

/// Reads `yyyy-mm-dd`, or a plain number of days, as the unsigned day number: 2^31 is 1970-01-01.
pub(super) fn date_days(text: &str) -> Option<u32> {
    if let Some(number) = plain_number(text) {
        return u32::try_from(number).ok();
    }
    let mut cursor = Cursor(text.as_bytes());
    let days = cursor.date()?;
    cursor.end()?;
    u32::try_from(days + (1 << 31)).ok()
}

/// `hh:mm:ss[.fffffffff]`, or a plain number, in nanoseconds of the day.
pub(super) fn time_ns(text: &str) -> Option<i64> {
    if let Some(number) = plain_number(text) {
        return Some(number).filter(|ns| (0..DAY_NS).contains(ns));
    }
    let mut cursor = Cursor(text.as_bytes());
    let (hour, minute) = cursor.hour_and_minute()?;
    cursor.byte(b':')?;
    let second = cursor.number(2, 0..=59)?;
    let mut fraction_ns = 0;
    if cursor.byte(b'.').is_some() {
        let digits = cursor.0.len();
        fraction_ns =
            cursor.number(digits, 0..=999_999_999)? * 10i64.pow(9u32.checked_sub(digits as u32)?);
    }
    cursor.end()?;
    Some(hour * HOUR_NS + (minute * 60 + second) * 1_000_000_000 + fraction_ns)
}

/// `yyyy-mm-dd[( |T)hh:mm[:ss[.fff]]]` with a time zone (`Z`, `+hh`, `+hhmm`, `+hh:mm`), or a plain
/// number, in milliseconds since 1970.
pub(super) fn timestamp_ms(text: &str) -> Option<i64> {
    if let Some(number) = plain_number(text) {
        return Some(number);
    }
    let mut cursor = Cursor(text.as_bytes());
    let mut ms = cursor.date()? * DAY_MS;
    if let [b'T' | b' ', b'0'..=b'9', ..] = cursor.0 {
        cursor.0 = &cursor.0[1..];
        let (hour, minute) = cursor.hour_and_minute()?;
        ms += (hour * 60 + minute) * 60_000;
        if cursor.byte(b':').is_some() {
            ms += cursor.number(2, 0..=59)? * 1000;
            if cursor.byte(b'.').is_some() {
                // Servers disagree about fewer digits: a fraction, or a number of milliseconds.
                ms += cursor.number(3, 0..=999)?;
            }
        }
    }
    let _ = cursor.byte(b' ');
    let offset_ms = cursor.zone_minutes()? * 60_000;
    cursor.end()?;
    Some(ms - offset_ms)
}

fn plain_number(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The unread part of the text.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn byte(&mut self, wanted: u8) -> Option<()> {
        let (&first, rest) = self.0.split_first()?;
        (first == wanted).then(|| self.0 = rest)
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }

    /// Exactly `digits` digits (1 to 9) with a value in `range`.
    fn number(&mut self, digits: usize, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
        let (number, rest) =
            self.0.split_at_checked(digits).filter(|_| (1..=9).contains(&digits))?;
        let value = number.iter().try_fold(0, |value, byte| {
            byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0'))
        })?;
        self.0 = rest;
        range.contains(&value).then_some(value)
    }

    /// Days since 1970. Years before the Gregorian calendar are left to the server, whose versions
    /// differ on them.
    fn date(&mut self) -> Option<i64> {
        let year = self.number(4, 1583..=9999)?;
        self.byte(b'-')?;
        let month = self.number(2, 1..=12)?;
        self.byte(b'-')?;
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let month_index = month as usize - 1;
        let day = self.number(2, 1..=lengths[month_index])?;
        let leap_days = |year: i64| year / 4 - year / 100 + year / 400;
        let years = (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969);
        Some(years + lengths[..month_index].iter().sum::<i64>() + day - 1)
    }

    fn hour_and_minute(&mut self) -> Option<(i64, i64)> {
        let hour = self.number(2, 0..=23)?;
        self.byte(b':')?;
        Some((hour, self.number(2, 0..=59)?))
    }

    fn zone_minutes(&mut self) -> Option<i64> {
        if self.byte(b'Z').is_some() {
            return Some(0);
        }
        let sign = if self.byte(b'+').is_some() { 1 } else { self.byte(b'-').map(|()| -1)? };
        let hours = self.number(2, 0..=18)?;
        let separated = self.byte(b':').is_some();
        let minutes = if self.0.is_empty() && !separated {
            0
        } else {
            self.number(2, if hours < 18 { 0..=59 } else { 0..=0 })?
        };
        Some(sign * (hours * 60 + minutes))
    }
}
