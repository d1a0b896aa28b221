//! Levels of transactions' statements, and the meaning of their answers.

use shunt_locks::{Written, shard_of};
use shunt_wire::cql::message::{Consistency, error_code};

use crate::core::Core;
use crate::fleet::levels;
pub(super) use crate::fleet::levels::now;
use crate::fleet::statements::Heard;

/// The shard of a keyspace's transactions.
pub(super) fn shard_of_domain(domain: &str) -> u8 {
    shard_of(format!("transactions of {domain}").as_bytes())
}

pub(super) fn quorum(core: &Core) -> Consistency {
    levels::quorum(core.fleet.locks.level())
}

/// The same, by the level that was known last: also of a proxy that is no member now.
pub(super) fn last_quorum(core: &Core) -> Consistency {
    match (core.fleet.transactions.modes.level, &core.router.cluster) {
        (None, Some(cluster)) => levels::unknown_quorum(cluster.routing.nodes()),
        (level, _) => levels::quorum(level),
    }
}

pub(super) fn serial(core: &Core) -> Consistency {
    levels::serial(core.fleet.locks.level())
}

/// The outcome of a write, from a node's answer.
pub(super) fn written(heard: &Heard<'_>) -> Written {
    match heard {
        Heard::Result(_) => Written::Acknowledged,
        // The coordinator looks for enough replicas before it sends anything. After any other
        // error, an earlier attempt may have been another node's.
        Heard::Error(error) if error.code == error_code::UNAVAILABLE => Written::NotSent,
        Heard::Error(_) | Heard::Unreadable => Written::Unknown,
    }
}

/// True of errors that say what is wrong with a statement: they are the client's, and consist of
/// their text alone.
pub(super) fn is_clients(code: i32) -> bool {
    matches!(code, error_code::SYNTAX_ERROR | error_code::UNAUTHORIZED | error_code::INVALID)
}
