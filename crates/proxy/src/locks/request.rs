//! A request for a lock, as it reaches the core that keeps the lock, or another proxy.

use shunt_locks::{Mode, Namespace, Ticket};

/// What is asked of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Acquire {
        mode: Mode,
        ttl_ms: u32,
        wait_ms: u32,
    },
    /// Only of a hold in this mode, where the statement names one.
    Renew {
        mode: Option<Mode>,
        ttl_ms: u32,
        fence: Option<i64>,
    },
    Release {
        fence: Option<i64>,
    },
    /// Releases what was granted to nobody who wants it, unless its owner has asked again and
    /// knows.
    GiveBack {
        fence: i64,
    },
    Look,
    /// Who holds it and who waits; of those in memory or the others only, if it says so.
    List {
        fast: Option<bool>,
    },
}

impl Operation {
    /// True of one that may wait for a lock.
    pub(crate) fn may_wait(self) -> bool {
        matches!(self, Operation::Acquire { wait_ms: 1.., .. })
    }
}

/// A request as it reaches the core that keeps the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) ticket: Ticket,
    pub(crate) namespace: Namespace,
    pub(crate) operation: Operation,
    pub(crate) name: &'a [u8],
    pub(crate) role: &'a [u8],
    pub(crate) owner: &'a [u8],
}
