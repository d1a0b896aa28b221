//! Times on the command lines of the lock commands, in the same units as the proxy's options.

use std::ops::RangeInclusive;

use shunt_proxy::config::{Kind as _, Millis};

/// Reads whole seconds, as a plain number or with a unit.
///
/// # Errors
/// The text is no time, or out of range; the message says what is allowed.
pub(crate) fn seconds(text: &str, allowed: RangeInclusive<u64>) -> Result<u32, String> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let read = if plain {
        text.parse().ok()
    } else {
        ms(text).filter(|ms| ms % 1_000 == 0).map(|ms| ms / 1_000)
    };
    let value =
        read.filter(|value| allowed.contains(value)).and_then(|value| value.try_into().ok());
    value.ok_or_else(|| {
        format!(
            "whole seconds are allowed, {} to {}, such as `10`, `10s` or `1m`",
            allowed.start(),
            allowed.end()
        )
    })
}

/// Reads milliseconds, as a plain number or with a unit.
///
/// # Errors
/// See [`seconds`].
pub(crate) fn millis(text: &str, allowed: RangeInclusive<i32>) -> Result<i32, String> {
    let value = ms(text).and_then(|ms| ms.try_into().ok()).filter(|value| allowed.contains(value));
    value.ok_or_else(|| {
        format!(
            "{} to {} milliseconds are allowed, such as `6000` or `6s`",
            allowed.start(),
            allowed.end()
        )
    })
}

fn ms(text: &str) -> Option<u64> {
    Millis::from_text(text).ok().map(u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_take_units_and_a_plain_number_is_seconds() {
        for (text, expected) in
            [("10", 10), ("10s", 10), ("2m", 120), ("3000ms", 3), ("1.5m", 90), ("0", 0), ("0s", 0)]
        {
            assert_eq!(seconds(text, 0..=86_400), Ok(expected), "{text}");
        }
    }

    #[test]
    fn parts_of_seconds_and_what_is_out_of_range_are_refused() {
        for text in ["", "s", "10q", "-1", "1.5", "1500ms", "2d", "86401", "99999999999999999999"] {
            let error = seconds(text, 0..=86_400).expect_err(text);
            assert!(error.contains("0 to 86400") && error.contains("`10s`"), "{text}: {error}");
        }
        seconds("2s", 3..=86_400).expect_err("below the range");
    }

    #[test]
    fn milliseconds_take_units_and_a_plain_number_is_milliseconds() {
        assert_eq!(millis("6000", 1_000..=60_000), Ok(6_000));
        assert_eq!(millis("6s", 1_000..=60_000), Ok(6_000));
        for text in ["6", "2m", "6q", ""] {
            millis(text, 1_000..=60_000).expect_err(text);
        }
    }
}
