//! Limits of the requests that other proxies have not answered, for one core.
//!
//! An acquire may wait as long as its client likes, and any role may send acquires, so waits have a
//! limit of their own. A role has half of each limit. Waits have three quarters of a connection,
//! because all clients share it where nobody logs in.
//!
//! The limits must never:
//! - refuse anything but an acquire because of acquires that wait;
//! - refuse a renewal or release because of other requests: a holder would lose its lock;
//! - count what waits on this core or on other cores of this proxy, where the keeper of a lock has
//!   limits.

use std::collections::HashMap;
use std::sync::Arc;

use crate::locks::request::Operation;

/// Acquires that wait, on all connections.
const WAITS_MAX: usize = 131_072;
/// Requests on all connections that neither wait nor renew nor release.
const PROMPT_MAX: usize = 65_536;
/// Renewals and releases on all connections, and the requests above that take their room.
const KEEPS_MAX: usize = PROMPT_MAX + PROMPT_MAX / 2;
/// Parts of a limit; one role has one part.
const PARTS: usize = 2;

/// Requests in flight on one connection.
const CONNECTION_MAX: usize = 16_384;
/// Requests in flight on one connection that are neither renewals nor releases.
const CONNECTION_OTHERS_MAX: usize = CONNECTION_MAX - 1_024;
/// Acquires that wait on one connection.
const CONNECTION_WAITS_MAX: usize = CONNECTION_MAX / 4 * 3;

/// Kinds of requests, by the limits that apply to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// An acquire that may wait.
    Wait,
    /// A renewal or release.
    Keep,
    /// Any other request, answered without a wait.
    Prompt,
}

impl RequestKind {
    /// The kind of a request; `None` is a transaction.
    pub(super) fn of(operation: Option<Operation>) -> Self {
        match operation {
            Some(operation) if operation.may_wait() => Self::Wait,
            Some(
                Operation::Renew { .. } | Operation::Release { .. } | Operation::GiveBack { .. },
            ) => Self::Keep,
            Some(Operation::Acquire { .. } | Operation::Look | Operation::List { .. }) | None => {
                Self::Prompt
            }
        }
    }
}

/// Requests that are not answered, of a role, a connection or a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    waits: usize,
    others: usize,
}

impl Usage {
    fn has_room(self, kind: RequestKind, parts: usize) -> bool {
        match kind {
            RequestKind::Wait => self.waits < WAITS_MAX / parts,
            RequestKind::Prompt => self.others < PROMPT_MAX / parts,
            RequestKind::Keep => self.others < KEEPS_MAX / parts,
        }
    }

    /// True if one connection may take another request.
    pub(super) fn has_room_on_connection(self, kind: RequestKind) -> bool {
        let total = self.waits + self.others;
        match kind {
            RequestKind::Wait => self.waits < CONNECTION_WAITS_MAX && total < CONNECTION_OTHERS_MAX,
            RequestKind::Prompt => total < CONNECTION_OTHERS_MAX,
            RequestKind::Keep => total < CONNECTION_MAX,
        }
    }

    pub(super) fn add(&mut self, kind: RequestKind) {
        *self.of(kind) += 1;
    }

    pub(super) fn subtract(&mut self, kind: RequestKind) {
        let count = self.of(kind);
        *count = count.saturating_sub(1);
    }

    fn of(&mut self, kind: RequestKind) -> &mut usize {
        if kind == RequestKind::Wait { &mut self.waits } else { &mut self.others }
    }
}

/// Requests of a core that other proxies have not answered.
#[derive(Default)]
pub(super) struct ForwardQuota {
    all: Usage,
    by_role: HashMap<Option<Arc<str>>, Usage>,
}

impl ForwardQuota {
    /// True if a role may forward another request.
    pub(super) fn has_room(&self, role: &Option<Arc<str>>, kind: RequestKind) -> bool {
        let own = self.by_role.get(role).copied().unwrap_or_default();
        self.all.has_room(kind, 1) && own.has_room(kind, PARTS)
    }

    /// Counts a request that is forwarded.
    pub(super) fn add(&mut self, role: &Option<Arc<str>>, kind: RequestKind) {
        self.all.add(kind);
        match self.by_role.get_mut(role) {
            Some(own) => own.add(kind),
            None => self.by_role.entry(role.clone()).or_default().add(kind),
        }
    }

    /// A request was answered, or its connection has ended.
    pub(super) fn subtract(&mut self, role: &Option<Arc<str>>, kind: RequestKind) {
        self.all.subtract(kind);
        if let Some(own) = self.by_role.get_mut(role) {
            own.subtract(kind);
            if *own == Usage::default() {
                self.by_role.remove(role);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RequestKind::{Keep, Prompt, Wait};

    fn role(name: &str) -> Option<Arc<str>> {
        Some(name.into())
    }

    /// Takes all that one role may have of one kind.
    fn fill(quota: &mut ForwardQuota, name: &str, kind: RequestKind) -> usize {
        let (role, mut count) = (role(name), 0);
        while quota.has_room(&role, kind) {
            quota.add(&role, kind);
            count += 1;
        }
        count
    }

    #[test]
    fn waits_of_one_role_leave_half_to_others_and_keep_only_waits_out() {
        let mut quota = ForwardQuota::default();
        assert_eq!(fill(&mut quota, "one", Wait), 65_536);
        assert_eq!(fill(&mut quota, "two", Wait), 65_536);
        assert!(!quota.has_room(&role("three"), Wait), "all places of waits are taken");
        for name in ["one", "three"] {
            assert!(quota.has_room(&role(name), Prompt) && quota.has_room(&role(name), Keep));
        }
    }

    #[test]
    fn renewals_and_releases_pass_when_nothing_else_does() {
        let mut quota = ForwardQuota::default();
        assert_eq!(fill(&mut quota, "one", Prompt), 32_768);
        assert_eq!(fill(&mut quota, "one", Keep), 16_384);
        assert_eq!(fill(&mut quota, "two", Prompt), 32_768 - 16_384);
        assert!(!quota.has_room(&role("three"), Prompt));
        assert!(quota.has_room(&role("three"), Keep));
    }

    #[test]
    fn answered_requests_are_forgotten_with_their_role() {
        let mut quota = ForwardQuota::default();
        for kind in [Wait, Keep, Prompt] {
            quota.add(&role("one"), kind);
            quota.add(&None, kind);
        }
        for kind in [Prompt, Wait, Keep] {
            quota.subtract(&role("one"), kind);
            quota.subtract(&None, kind);
        }
        assert!(quota.by_role.is_empty());
        assert_eq!(quota.all, Usage::default());
    }

    #[test]
    fn a_connection_that_all_share_always_has_room_for_what_does_not_wait() {
        let mut connection = Usage::default();
        let mut fill = |kind| {
            let before = connection.waits + connection.others;
            while connection.has_room_on_connection(kind) {
                connection.add(kind);
            }
            connection.waits + connection.others - before
        };
        assert_eq!((fill(Wait), fill(Prompt), fill(Keep)), (12_288, 3_072, 1_024));
    }
}
