//! Why a request is refused before anything was written.

use std::borrow::Cow;

use shunt_language::{InvalidRequest, Refusal};

/// True if asking again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The request is wrong, and would be refused again.
    Invalid,
    /// The text is no CQL.
    Syntax,
    /// A limit is reached, or something is not known now.
    Overloaded,
}

/// A refusal, as the client is told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// True if asking again can help.
    pub kind: Kind,
    /// The error message: what is wrong, and what to do.
    pub why: Cow<'static, str>,
}

impl Rejection {
    /// Refuses a request that is wrong.
    pub fn invalid(why: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: Kind::Invalid, why: why.into() }
    }

    /// Refuses a request that may be served later.
    pub fn overloaded(why: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: Kind::Overloaded, why: why.into() }
    }
}

impl From<InvalidRequest> for Rejection {
    fn from(error: InvalidRequest) -> Self {
        Self::invalid(format!("Shunt: {}", error.message))
    }
}

impl From<Refusal> for Rejection {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Syntax(error) => Self { kind: Kind::Syntax, why: error.message.into() },
            Refusal::Invalid(error) => error.into(),
        }
    }
}
