//! Reads the values of commands that have only flags (`shunt node`, `shunt up`), and gathers all
//! faults.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::SettingsError;
use super::flag_value::Given;

/// The faults found so far.
#[derive(Debug, Default)]
pub(crate) struct Checked(Vec<String>);

impl Checked {
    /// Returns the value; if it could not be read, notes that and continues with `instead`.
    pub(crate) fn take<T: Clone>(&mut self, flag: &str, given: &Given<T>, instead: T) -> T {
        given.0.clone().unwrap_or_else(|message| {
            self.add(flag, message);
            instead
        })
    }

    /// Returns a number that must be within bounds.
    pub(crate) fn within<N: PartialOrd + Display>(
        &mut self,
        flag: &str,
        number: N,
        allowed: RangeInclusive<N>,
    ) -> N {
        if !allowed.contains(&number) {
            let (start, end) = (allowed.start(), allowed.end());
            self.0
                .push(format!("--{flag}: {number} is out of range; allowed are {start} to {end}"));
        }
        number
    }

    /// Adds another fault of a flag.
    pub(crate) fn add(&mut self, flag: &str, message: impl Display) {
        self.0.push(format!("--{flag}: {message}"));
    }

    /// Returns `value` if no fault was found.
    pub(crate) fn finish<T>(self, value: T) -> Result<T, SettingsError> {
        if self.0.is_empty() { Ok(value) } else { Err(SettingsError(self.0)) }
    }
}
