//! The outcome of a request, as it travels from the core that keeps the lock to the client.

use shunt_locks::{Holder, Mode, NotServed, Outcome, Quota};

/// An outcome, without the text of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Granted,
    Released,
    Refused,
    Seen,
    /// A list of holders and waiters.
    Listed,
    /// A list of several locks.
    Locks,
    NotServed(NotServed),
    InDoubt,
    /// Another role holds the lock under the same owner's text.
    Unauthorized,
    /// Another proxy says that the role may not use the table.
    NotAllowed,
    OtherMode,
    /// The proxy that owns the lock refuses the statement.
    NotAccepted,
    Quota(Quota),
}

/// The holder of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held<'a> {
    pub(crate) owner: &'a [u8],
    pub(crate) mode: Mode,
    pub(crate) fence: i64,
    pub(crate) ttl_ms: u32,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply<'a> {
    pub(crate) verdict: Verdict,
    pub(crate) holder: Option<Held<'a>>,
    pub(crate) waiters: u32,
    /// Entries as [`super::listing`] writes them.
    pub(crate) list: &'a [u8],
}

impl From<Verdict> for Reply<'_> {
    fn from(verdict: Verdict) -> Self {
        Reply { verdict, holder: None, waiters: 0, list: &[] }
    }
}

impl<'a> From<Outcome<'a>> for Reply<'a> {
    fn from(outcome: Outcome<'a>) -> Self {
        let held = |holder: Holder<'a>| Held {
            owner: holder.owner,
            mode: holder.mode,
            fence: holder.fence,
            ttl_ms: holder.ttl_ms,
        };
        match outcome {
            Outcome::Granted { holder, waiters } => {
                Reply { holder: Some(held(holder)), waiters, ..Verdict::Granted.into() }
            }
            Outcome::Released { waiters } => Reply { waiters, ..Reply::from(Verdict::Released) },
            Outcome::Refused { holder, waiters } => {
                Reply { holder: holder.map(held), waiters, ..Verdict::Refused.into() }
            }
            Outcome::Seen { holder, waiters } => {
                Reply { holder: holder.map(held), waiters, ..Verdict::Seen.into() }
            }
            Outcome::NotServed(why) => Reply::from(Verdict::NotServed(why)),
            Outcome::InDoubt => Reply::from(Verdict::InDoubt),
            Outcome::Unauthorized => Reply::from(Verdict::Unauthorized),
            Outcome::OtherMode => Reply::from(Verdict::OtherMode),
            Outcome::Quota(quota) => Reply::from(Verdict::Quota(quota)),
        }
    }
}
