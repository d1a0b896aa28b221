//! Kinds of option values: their forms, and how they are read from a flag's text or from the file.
//! Readers report all faults of a value, so that one run shows them all.

use std::fmt;
use std::path::PathBuf;

/// A value as written: the text of a flag, or a value of the file.
#[derive(Clone, PartialEq)]
pub enum Written {
    /// Text, in quotes in the file.
    Text(String),
    /// A whole number of the file.
    Number(i128),
    /// A number of the file that is not whole, or larger than any option's.
    Fraction(f64),
    /// `true` or `false` in the file.
    Truth(bool),
    /// A list of the file, or a flag's texts between commas.
    List(Vec<Written>),
    /// A table of the file with its entries; a date has none.
    Table(Vec<(String, Written)>),
}

/// Shows nothing, because the value may be a password.
impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Written")
    }
}

/// Names the value for messages.
impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "`{text}`"),
            Self::Number(number) => write!(f, "`{number}`"),
            Self::Fraction(number) => write!(f, "`{number}`"),
            Self::Truth(truth) => write!(f, "`{truth}`"),
            Self::List(_) => f.write_str("a list"),
            Self::Table(_) => f.write_str("a table or a date"),
        }
    }
}

/// A kind of value.
pub trait Kind: Sized {
    /// Form of the value; messages put it behind "expected".
    const EXPECTED: &'static str;
    /// True if the value must never be shown, not even when it is wrong.
    const SECRET: bool = false;

    /// Reads the value from text.
    ///
    /// # Errors
    /// The fault, for the caller to put behind the text; empty if [`Kind::EXPECTED`] says it all.
    fn from_text(text: &str) -> Result<Self, String>;

    /// Reads the value from a number of the file; `None` if its form is not a number.
    fn from_number(_number: i64) -> Option<Self> {
        None
    }

    /// Reads the value as written.
    ///
    /// # Errors
    /// The expected form and the value found.
    fn from_written(written: &Written) -> Result<Self, String> {
        let unexpected = || match Self::SECRET {
            true => format!("must be {}", Self::EXPECTED),
            false => format!("expected {}, found {written}", Self::EXPECTED),
        };
        match written {
            Written::Text(text) => Self::from_text(text).map_err(|why| match why.as_str() {
                "" => unexpected(),
                why => format!("`{text}` {why}"),
            }),
            Written::Number(number) => {
                i64::try_from(*number).ok().and_then(Self::from_number).ok_or_else(unexpected)
            }
            _ => Err(unexpected()),
        }
    }
}

/// The readable form of an option's value: a [`Kind`], or a [`List`] of one.
pub trait Readable: Sized {
    /// True if a flag has commas between its parts, and the file a list.
    const IS_LIST: bool;

    /// Reads a value, and adds a message for each fault. `None` if no part of it is usable.
    fn read(written: &Written, faults: &mut Vec<String>) -> Option<Self>;
}

impl<K: Kind> Readable for K {
    const IS_LIST: bool = false;

    fn read(written: &Written, faults: &mut Vec<String>) -> Option<Self> {
        K::from_written(written).map_err(|fault| faults.push(fault)).ok()
    }
}

/// Several values of one kind.
pub struct List<K>(pub Vec<K>);

impl<K: Kind> Readable for List<K> {
    const IS_LIST: bool = true;

    fn read(written: &Written, faults: &mut Vec<String>) -> Option<Self> {
        let form = format!("expected a list in square brackets, each of it {}", K::EXPECTED);
        faults.push(match written {
            Written::List(items) => {
                return Some(Self(items.iter().filter_map(|item| K::read(item, faults)).collect()));
            }
            Written::Text(_) => format!("{form}, found {written}"),
            Written::Number(_) => format!("invalid type: integer {written}, {form}"),
            Written::Fraction(_) => format!("invalid type: floating point {written}, {form}"),
            Written::Truth(_) => format!("invalid type: boolean {written}, {form}"),
            Written::Table(_) => format!("invalid type: map, {form}"),
        });
        None
    }
}

impl<K: Into<F>, F> From<List<K>> for Vec<F> {
    fn from(list: List<K>) -> Self {
        list.0.into_iter().map(Into::into).collect()
    }
}

impl Kind for String {
    const EXPECTED: &'static str = "text in quotes";

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl Kind for PathBuf {
    const EXPECTED: &'static str = "a path in quotes";

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(text.into())
    }
}

macro_rules! numbers {
    ($($number:ty = $expected:literal),+ $(,)?) => {$(
        impl Kind for $number {
            const EXPECTED: &'static str = $expected;

            fn from_text(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| String::new())
            }

            fn from_number(number: i64) -> Option<Self> {
                number.try_into().ok()
            }
        }
    )+};
}

numbers!(
    u8 = "a whole number from 1 to 254",
    u16 = "a port from 1 to 65535",
    u32 = "a whole number from 1 to 4294967295",
    usize = "a whole number from 1",
);

/// A time in the unit of its key: milliseconds (`_ms`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Millis(pub u64);

/// A time in the unit of its key: microseconds (`_us`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Micros(pub u64);

/// A size; a plain number is bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl From<Millis> for u64 {
    fn from(time: Millis) -> Self {
        time.0
    }
}

impl From<Micros> for u64 {
    fn from(time: Micros) -> Self {
        time.0
    }
}

/// A size that does not fit exceeds every bound, and so does the largest one that fits.
impl From<Bytes> for u32 {
    fn from(size: Bytes) -> Self {
        size.0.try_into().unwrap_or(Self::MAX)
    }
}

/// A size that does not fit exceeds every bound, and so does the largest one that fits.
impl From<Bytes> for usize {
    fn from(size: Bytes) -> Self {
        size.0.try_into().unwrap_or(Self::MAX)
    }
}

/// Units of time, microseconds each.
const TIMES: &[(&str, u64)] = &[
    ("us", 1),
    ("µs", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("min", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
];

/// Units of size, bytes each. A single letter means decimal units in some programs and binary ones
/// in others, so none is accepted.
const SIZES: &[(&str, u64)] = &[
    ("b", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];

impl Kind for Millis {
    const EXPECTED: &'static str =
        "a time such as `12s`, `500ms` or `1h`, or a number of milliseconds";

    fn from_text(text: &str) -> Result<Self, String> {
        quantity(text, TIMES, 1_000, "milliseconds").map(Self)
    }

    fn from_number(number: i64) -> Option<Self> {
        number.try_into().ok().map(Self)
    }
}

impl Kind for Micros {
    const EXPECTED: &'static str = "a time such as `100us` or `1ms`, or a number of microseconds";

    fn from_text(text: &str) -> Result<Self, String> {
        quantity(text, TIMES, 1, "microseconds").map(Self)
    }

    fn from_number(number: i64) -> Option<Self> {
        number.try_into().ok().map(Self)
    }
}

impl Kind for Bytes {
    const EXPECTED: &'static str = "a size such as `256MiB`, `1GB` or `4096`, which is bytes";

    fn from_text(text: &str) -> Result<Self, String> {
        quantity(text, SIZES, 1, "bytes").map(Self)
    }

    fn from_number(number: i64) -> Option<Self> {
        number.try_into().ok().map(Self)
    }
}

/// Reads a number with an optional unit, in whole `own`s, which is also the unit of a plain number.
/// `1.5` needs a unit.
///
/// # Errors
/// Empty if the text is no quantity; otherwise the fault, for the caller to put behind the text.
fn quantity(text: &str, units: &[(&str, u64)], own: u64, own_name: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..split], text[split..].trim_start().to_lowercase());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || number.ends_with('.') || fraction.contains('.') {
        return Err(String::new());
    }
    let unit = match unit.as_str() {
        "" if fraction.is_empty() => own,
        unit => units.iter().find(|(name, _)| *name == unit).ok_or_else(String::new)?.1,
    };
    let too_large = || "is too large".to_owned();
    let not_whole = || format!("is not a whole number of {own_name}");
    let digits: u128 = format!("{whole}{fraction}").parse().map_err(|_| too_large())?;
    let scale = 10u128.checked_pow(fraction.len() as u32).ok_or_else(not_whole)?;
    let total = digits.checked_mul(unit.into()).ok_or_else(too_large)?;
    let one = scale.checked_mul(own.into()).ok_or_else(not_whole)?;
    if total % one != 0 {
        return Err(not_whole());
    }
    (total / one).try_into().map_err(|_| too_large())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_a_plain_number_is_in_the_unit_of_the_key() {
        for (text, ms) in [
            ("12s", 12_000),
            ("500ms", 500),
            ("500", 500),
            ("1.5s", 1_500),
            ("2 h", 7_200_000),
            ("3m", 180_000),
            ("3min", 180_000),
            ("1d", 86_400_000),
            ("0", 0),
            ("7000us", 7),
            ("12S", 12_000),
        ] {
            assert_eq!(Millis::from_text(text), Ok(Millis(ms)), "{text}");
        }
        assert_eq!(Micros::from_text("1ms"), Ok(Micros(1_000)));
        assert_eq!(Micros::from_text("25µs"), Ok(Micros(25)));
        assert_eq!(
            Millis::from_text("1500us"),
            Err("is not a whole number of milliseconds".to_owned())
        );
        for wrong in [
            "",
            "s",
            "12x",
            "-1s",
            "1.5",
            "1..5s",
            "5.s",
            ".5s",
            "1h30m",
            "99999999999999999999999999999999999999999s",
        ] {
            assert!(Millis::from_text(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Millis::from_text("99999999999999999999d"), Err("is too large".to_owned()));
    }

    #[test]
    fn sizes_have_units_of_both_kinds_and_a_letter_alone_is_none() {
        for (text, bytes) in [
            ("256MiB", 256 << 20),
            ("256mib", 256 << 20),
            ("1GB", 1_000_000_000),
            ("1.5 GiB", 3 << 29),
            ("64kib", 64 << 10),
            ("4096", 4096),
            ("4096B", 4096),
        ] {
            assert_eq!(Bytes::from_text(text), Ok(Bytes(bytes)), "{text}");
        }
        for wrong in ["256M", "1g", "-1", "1.5", "0.3B", "MiB", "999999999TiB"] {
            assert!(Bytes::from_text(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn messages_say_what_was_expected_and_what_was_found() {
        let fault = |written| Bytes::from_written(&written).expect_err("wrong");
        let found = fault(Written::Text("256M".to_owned()));
        assert_eq!(
            found,
            "expected a size such as `256MiB`, `1GB` or `4096`, which is bytes, found `256M`"
        );
        assert!(fault(Written::Number(-1)).ends_with(", found `-1`"));
        assert!(fault(Written::Number(1 << 70)).ends_with(", found `1180591620717411303424`"));
        assert_eq!(fault(Written::Text("99999999TiB".to_owned())), "`99999999TiB` is too large");
        assert_eq!(Bytes::from_written(&Written::Number(7)), Ok(Bytes(7)));
    }

    #[test]
    fn valid_items_of_a_list_are_kept() {
        let mut faults = Vec::new();
        let items = vec![Written::Number(1), Written::Truth(true), Written::Text("3".to_owned())];
        let list = List::<u16>::read(&Written::List(items), &mut faults).map(|list| list.0);
        assert_eq!(list, Some(vec![1, 3]));
        assert_eq!(faults, ["expected a port from 1 to 65535, found `true`"]);
    }
}
