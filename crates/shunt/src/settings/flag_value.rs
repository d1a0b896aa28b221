//! Values of the flags of `shunt node` and `shunt up`. Each keeps its fault, so that all faults can
//! be reported at once.

use std::str::FromStr;

use shunt_proxy::config::{Kind, Written};

/// A given value, or its fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given<T>(pub(crate) Result<T, String>);

/// Clap accepts any text; the fault is reported together with all others.
impl<T: Kind> FromStr for Given<T> {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(T::from_written(&Written::Text(text.to_owned()))))
    }
}
