//! Requests for locks, on their way from the client's core to the core that keeps the lock.

use shunt_language::lock_tables::Table;
use shunt_locks::{Mode, Namespace, Ticket};

/// An operation on a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Acquire {
        mode: Mode,
        ttl_ms: u32,
        wait_ms: u32,
    },
    /// Only a hold in this mode, where the statement names one.
    Renew {
        mode: Option<Mode>,
        ttl_ms: u32,
        fence: Option<i64>,
    },
    Release {
        fence: Option<i64>,
    },
    /// Releases a grant that nobody wants, unless its owner has asked again and has it.
    GiveBack {
        fence: i64,
    },
    Look,
    /// Lists holders and waiters: those in memory, or the durable ones, if `fast` says so.
    List {
        fast: Option<bool>,
    },
}

impl Operation {
    /// True if an operation may wait for a lock.
    pub(crate) fn may_wait(self) -> bool {
        matches!(self, Operation::Acquire { wait_ms: 1.., .. })
    }
}

/// A request as it reaches the core that keeps the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeeperRequest<'a> {
    pub(crate) ticket: Ticket,
    pub(crate) namespace: Namespace,
    pub(crate) operation: Operation,
    pub(crate) name: &'a [u8],
    pub(crate) role: &'a [u8],
    pub(crate) owner: &'a [u8],
}

/// A client's request about one lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockRequest<'a> {
    /// The table that the client named. Its role needs the permission on this table, here and at
    /// another proxy.
    pub(crate) table: Table,
    pub(crate) namespace: Namespace,
    pub(crate) operation: Operation,
    pub(crate) name: &'a [u8],
    pub(crate) owner: &'a [u8],
}
