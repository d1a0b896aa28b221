//! Rights of clients' roles, which nodes decide. Locks and transactions share them.
//!
//! The proxy answers statements on locks itself, and carries transactions out under its own login,
//! so no node would check the role of the client. The proxy asks a node for each right, over a link
//! of the client's own pool, by a statement that does nothing ([`probe`], ADR 16). A node looks
//! at rights before it looks at anything else. One cache keeps the verdicts of a core for
//! `auth_cache_ms`, by login ([`cache`]). Here a login is a number without the password in it
//! ([`LoginId`](crate::client::account::LoginId)).
//!
//! ```text
//! request -> verdict --known--> request goes on, or is refused
//!               |
//!            unknown -> ask -> [node] -> answer -> verdict is kept; waiting requests go on
//! ```
//!
//! | module | subject |
//! |---|---|
//! | [`right`] | a login and an action |
//! | [`ask`] | a node is asked, and its verdict kept |
//! | [`cache`] | verdicts of nodes, by login and action |
//! | [`inquiries`] | questions on their way to nodes |
//! | [`probe`] | the text of a question, and what a node's answer means |
//! | [`waiters`] | requests that wait for a verdict, limited by number, bytes and role |
//!
//! This must never:
//! - allow a request that was received later than `auth_cache_ms` after the node was asked. A
//!   verdict's age counts from the time at which its question was sent, and is compared with the
//!   time at which the request came;
//! - use the verdict on one login for another. The login is part of the key, and an answer that
//!   comes to a pool with another login is ignored;
//! - let an older answer replace a newer one. Answers may overtake one another;
//! - allow a request whose right no node has confirmed.

pub(crate) mod ask;
pub(crate) mod cache;
pub(crate) mod inquiries;
pub(crate) mod probe;
pub(crate) mod right;
pub(crate) mod waiters;

use self::cache::{Verdict, Verdicts};
use self::inquiries::Inquiries;
use self::right::Right;

/// The owner of the rights that a core knows.
#[derive(Default)]
pub(crate) struct Rights {
    verdicts: Verdicts,
    inquiries: Inquiries,
}

impl Rights {
    /// The verdict for a request that came at this time; none: no node has given one that is young
    /// enough.
    pub(crate) fn verdict(&self, right: &Right, came_ns: u64, cache_ns: u64) -> Option<&Verdict> {
        self.verdicts.verdict(right, came_ns, cache_ns)
    }

    /// True if a request that came at this time should have the right asked about: the verdict is
    /// missing, or older than half of `auth_cache_ms`; and no question is on its way.
    pub(crate) fn needs_question(
        &self,
        right: &Right,
        (came_ns, now_ns): (u64, u64),
        cache_ns: u64,
    ) -> bool {
        self.verdicts.is_aging(right, came_ns, cache_ns)
            && !self.inquiries.is_pending(right, now_ns)
            && !self.inquiries.is_paused(right, now_ns)
    }

    /// The number of a question about this right whose answer a request that came at this time may
    /// share.
    pub(crate) fn shared_question(&self, right: &Right, came_ns: u64) -> Option<u64> {
        self.inquiries.shared(right, came_ns)
    }

    /// No question about this right before this time.
    pub(crate) fn pause(&mut self, right: &Right, until_ns: u64, now_ns: u64) {
        self.inquiries.pause(right, until_ns, now_ns);
    }
}
