//! Values as they are given, on the command line or in the file: each kind says what it looks like, and a value that does
//! not is kept together with what is wrong with it, so that all that is wrong can be told at once.

use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A kind of value.
pub(crate) trait Kind: Sized {
    /// Its form, to be put behind "expected".
    const EXPECTED: &'static str;
    /// It is told to nobody, not even when it is wrong.
    const SECRET: bool = false;

    /// Reads it from text; the message is put behind the text, and is empty where [`Kind::EXPECTED`] says it all.
    fn from_text(text: &str) -> Result<Self, String>;

    /// Reads it from a number of the file; `None`: it is not written as a number.
    fn from_number(_number: i64) -> Option<Self> {
        None
    }
}

/// A value that was given, or what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given<T>(Result<T, String>);

impl<T> Given<T> {
    /// The value, if nothing is wrong with it.
    pub(crate) fn value(self) -> Option<T> {
        self.0.ok()
    }
}

impl<T: Kind> Given<T> {
    fn text(text: &str) -> Self {
        Self(T::from_text(text).map_err(|why| match why.as_str() {
            "" => wrong::<T>(&format!("`{text}`")),
            why => format!("`{text}` {why}"),
        }))
    }

    fn number(number: i64) -> Self {
        Self(T::from_number(number).ok_or_else(|| wrong::<T>(&format!("`{number}`"))))
    }

    fn other(found: &str) -> Self {
        Self(Err(wrong::<T>(found)))
    }
}

fn wrong<T: Kind>(found: &str) -> String {
    if T::SECRET { format!("must be {}", T::EXPECTED) } else { format!("expected {}, found {found}", T::EXPECTED) }
}

/// Clap takes anything; what is wrong is told with all else.
impl<T: Kind> FromStr for Given<T> {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self::text(text))
    }
}

impl<'de, T: Kind> Deserialize<'de> for Given<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(Any(PhantomData))
    }
}

/// Takes whatever TOML has.
struct Any<T>(PhantomData<T>);

impl<'de, T: Kind> Visitor<'de> for Any<T> {
    type Value = Given<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Given<T>, E> {
        Ok(Given::text(text))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Given<T>, E> {
        Ok(Given::number(number))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Given<T>, E> {
        Ok(i64::try_from(number).map_or_else(|_| Given::other(&format!("`{number}`")), Given::number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Given<T>, E> {
        Ok(Given::other(&format!("`{number}`")))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Given<T>, E> {
        Ok(Given::other(&format!("`{value}`")))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Given<T>, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Given::other("a list"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Given<T>, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Given::other("a table or a date"))
    }
}

/// Reads a list of the file. A single value is none, as a comma in it would be no comma.
pub(crate) fn list<'de, T: Kind, D: Deserializer<'de>>(input: D) -> Result<Option<Vec<Given<T>>>, D::Error> {
    /// Takes a list of whatever TOML has.
    struct Items<T>(PhantomData<T>);
    impl<'de, T: Kind> Visitor<'de> for Items<T> {
        type Value = Vec<Given<T>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list in square brackets, each of it {}", T::EXPECTED)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut list = Vec::new();
            while let Some(item) = items.next_element()? {
                list.push(item);
            }
            Ok(list)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            Err(E::custom(format_args!(
                "expected a list in square brackets, each of it {}, found `{text}`",
                T::EXPECTED
            )))
        }
    }
    input.deserialize_any(Items(PhantomData)).map(Some)
}

/// A value, or several, that may have faults.
pub(crate) trait Faults {
    /// One message each.
    fn faults(&self) -> Vec<String>;
}

impl<T> Faults for Given<T> {
    fn faults(&self) -> Vec<String> {
        self.0.as_ref().err().cloned().into_iter().collect()
    }
}

impl<T> Faults for Vec<Given<T>> {
    fn faults(&self) -> Vec<String> {
        self.iter().flat_map(Faults::faults).collect()
    }
}

impl Kind for String {
    const EXPECTED: &'static str = "text in quotes";

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

/// A password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Password(pub(crate) String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

impl Kind for Password {
    const EXPECTED: &'static str = "text in quotes";
    const SECRET: bool = true;

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(Self(text.to_owned()))
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
    u64 = "a whole number from 0",
    usize = "a whole number from 1",
);

/// A time in the unit of its key: milliseconds (`_ms`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Millis(pub(crate) u64);

/// A time in the unit of its key: microseconds (`_us`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Micros(pub(crate) u64);

/// A size; a plain number is bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

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

/// Units of size, bytes each. A letter alone stands for both kinds in other programs, and so for neither here.
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
    const EXPECTED: &'static str = "a time such as `12s`, `500ms` or `1h`, or a number of milliseconds";

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

/// Reads a number with an optional unit, in whole `own`s, which is also the unit of a plain number. `1.5` needs a unit.
///
/// # Errors
/// Empty where the text is none; otherwise says what is wrong with the text, to be put behind it.
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
        assert_eq!(Millis::from_text("1500us"), Err("is not a whole number of milliseconds".to_owned()));
        for wrong in
            ["", "s", "12x", "-1s", "1.5", "1..5s", "5.s", ".5s", "1h30m", "99999999999999999999999999999999999999999s"]
        {
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
        let fault = |given: Given<Bytes>| given.faults().remove(0);
        let found = fault("256M".parse().unwrap());
        assert_eq!(found, "expected a size such as `256MiB`, `1GB` or `4096`, which is bytes, found `256M`");
        assert!(fault(Given::number(-1)).ends_with(", found `-1`"));
        assert_eq!(fault("99999999TiB".parse().unwrap()), "`99999999TiB` is too large");
        assert_eq!(Given::<Bytes>::number(7).value(), Some(Bytes(7)));
    }
}
