//! At which level statements are asked, by which clocks, and what their answers say.

use shunt_fleet::Level;
use shunt_locks::{Now, Written, shard_of};
use shunt_reactor::Io;
use shunt_transactions::Refused;
use shunt_wire::cql::message::{Consistency, error_code};

use crate::client::who::printable_to;
use crate::core::Core;
use crate::limits;
use crate::log_limits::Logged;
use crate::own::Heard;

/// A write that nodes have refused each time for so long will not be made: what it names is not there any more.
const REFUSED_FOR_NS: u64 = 30 * limits::SECOND_NS;

/// The shard of a keyspace's transactions.
pub(super) fn shard_of_domain(domain: &str) -> u8 {
    shard_of(format!("transactions of {domain}").as_bytes())
}

pub(super) fn quorum(core: &Core) -> Consistency {
    match core.fleet.locks.level() {
        Some(Level::LocalSerial) => Consistency::LOCAL_QUORUM,
        Some(Level::Serial) | None => Consistency::QUORUM,
    }
}

/// Both clocks, read anew: what they say of the lease must be true now.
pub(super) fn now(io: &mut Io) -> Now {
    Now { boot_ns: io.read_clock_ns(), wall_us: io.wall_us() }
}

pub(super) fn serial(core: &Core) -> Consistency {
    match core.fleet.locks.level() {
        Some(Level::LocalSerial) => Consistency::LOCAL_SERIAL,
        Some(Level::Serial) | None => Consistency::SERIAL,
    }
}

/// What an answer says of a write.
pub(super) fn written(heard: &Heard<'_>) -> Written {
    match heard {
        Heard::Result(_) => Written::Acknowledged,
        // The coordinator looks for enough replicas before it sends anything. All else, an earlier attempt may have been another node's.
        Heard::Error(error) if error.code == error_code::UNAVAILABLE => Written::NotSent,
        Heard::Error(_) | Heard::Unreadable => Written::Unknown,
    }
}

/// What an answer says of a write that nodes have refused since then. One node that refuses it may not know the schema yet; nodes that have
/// done so for long, each time, know that what it names is gone.
pub(super) fn verdict(
    core: &Core,
    heard: &Heard<'_>,
    refused_since_ns: Option<u64>,
    now_ns: u64,
) -> Result<Written, Refused> {
    match (heard, refused_since_ns) {
        (Heard::Error(error), Some(since_ns)) if now_ns.saturating_sub(since_ns) >= REFUSED_FOR_NS => {
            if let Some(suppressed) = core.context.log_limits.admit(Logged::Transactions, now_ns) {
                let why = printable_to(error.message, limits::NAME_SHOWN_BYTES_MAX);
                tracing::error!(why, suppressed, "nodes refuse a write of a committed transaction, and it is given up");
            }
            Err(Refused)
        }
        _ => Ok(written(heard)),
    }
}

/// True of errors that say what is wrong with a statement: they are the client's, and consist of their text alone.
pub(super) fn is_clients(code: i32) -> bool {
    matches!(code, error_code::SYNTAX_ERROR | error_code::UNAUTHORIZED | error_code::INVALID)
}
