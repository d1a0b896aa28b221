//! Foreign rows: the tables of locks must have no rows. A row shows a lock that nobody holds to
//! clients that read past the proxies, and shows that some role may write there. Core 0 searches
//! when this proxy has become a member, and then every hour. It logs and counts what it finds.

use shunt_language::lock_tables::Table;
use shunt_reactor::Io;
use shunt_wire::cql::message::{Consistency, ResultMessage, error_code};

use crate::core::Core;
use crate::fleet::statements::{self, Heard, Whose};
use crate::limits::SECOND_NS;

/// Interval between two searches of a table, each of which reads all ranges of the ring.
const EVERY_NS: u64 = 3_600 * SECOND_NS;
/// Pause between two tables, and after a query that could not be sent.
const PAUSE_NS: u64 = SECOND_NS;

fn question(table: Table) -> &'static str {
    match table {
        Table::Locks => "SELECT name FROM shunt.locks LIMIT 1",
        Table::FastLocks => "SELECT name FROM shunt.fast_locks LIMIT 1",
        Table::RwLocks => "SELECT name FROM shunt.rwlocks LIMIT 1",
        Table::FastRwLocks => "SELECT name FROM shunt.fast_rwlocks LIMIT 1",
        Table::LockQueue => "SELECT name FROM shunt.lock_queue LIMIT 1",
    }
}

/// Searches the next table, if it is time.
pub(crate) fn tick(core: &mut Core, io: &mut Io) {
    let now_ns = io.now_ns();
    let looks = &core.fleet.locks.foreign;
    if core.context.index != 0 || core.fleet.locks.level.is_none() || now_ns < looks.next_ns {
        return;
    }
    let table = Table::ALL[looks.place % Table::ALL.len()];
    let pool = statements::ask::pool(core, io);
    let is_sent = pool.is_some_and(|pool| {
        statements::ask::ask_in(
            core,
            io,
            pool,
            Whose::Foreign(table),
            question(table),
            Consistency::LOCAL_ONE,
        )
    });
    let looks = &mut core.fleet.locks.foreign;
    looks.next_ns = now_ns + PAUSE_NS;
    if is_sent {
        looks.place = (looks.place + 1) % Table::ALL.len();
        if looks.place == 0 {
            looks.next_ns = now_ns + EVERY_NS;
        }
    }
}

/// Notes the answer of a node, or its absence.
pub(crate) fn take_answer(core: &mut Core, table: Table, heard: &Heard<'_>) {
    let bit = 1 << table as u32;
    let looks = &mut core.fleet.locks.foreign;
    let name = table.name();
    match heard {
        Heard::Result(ResultMessage::Rows(rows)) if rows.row_count > 0 => {
            looks.found |= bit;
            tracing::warn!(
                table = name,
                "a row lies in a table of the keyspace shunt, where no proxy puts any: see who has MODIFY on it, then TRUNCATE it \
                 at a node"
            );
        }
        Heard::Result(ResultMessage::Rows(_)) => looks.found &= !bit,
        Heard::Error(error) if error.code == error_code::UNAUTHORIZED => {
            tracing::info!(
                table = name,
                why = error.message,
                "cannot see if rows lie in a table of the keyspace shunt: GRANT SELECT ON KEYSPACE shunt to the proxy's role"
            );
        }
        Heard::Error(_) | Heard::Result(_) | Heard::Unreadable => {
            tracing::debug!(
                table = name,
                "no node said if rows lie in a table of the keyspace shunt"
            );
        }
    }
    core.context.metrics.locks.foreign.set(u64::from(looks.found.count_ones()));
}
