//! Values of commands that have flags only (`shunt node`, `shunt up`), taken one by one, with all
//! that is wrong gathered.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::SettingsError;
use super::given::Given;

/// The faults found up to now.
#[derive(Debug, Default)]
pub(crate) struct Checked(Vec<String>);

impl Checked {
    /// A value; `instead` if it could not be read, to go on with.
    pub(crate) fn take<T: Clone>(&mut self, flag: &str, given: &Given<T>, instead: T) -> T {
        given.0.clone().unwrap_or_else(|message| {
            self.add(flag, message);
            instead
        })
    }

    /// A number that must be within bounds.
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

    /// Something else is wrong with a flag.
    pub(crate) fn add(&mut self, flag: &str, message: impl Display) {
        self.0.push(format!("--{flag}: {message}"));
    }

    /// `value` if nothing is wrong.
    pub(crate) fn finish<T>(self, value: T) -> Result<T, SettingsError> {
        if self.0.is_empty() { Ok(value) } else { Err(SettingsError(self.0)) }
    }
}
