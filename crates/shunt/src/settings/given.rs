//! Values of the flags of `shunt node` and `shunt up`: each is kept together with what is wrong
//! with it, so that all that is wrong can be told at once.

use std::str::FromStr;

use shunt_proxy::config::{Kind, Written};

/// A value that was given, or what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given<T>(pub(crate) Result<T, String>);

/// Clap takes anything; what is wrong is told with all else.
impl<T: Kind> FromStr for Given<T> {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(T::from_written(&Written::Text(text.to_owned()))))
    }
}
