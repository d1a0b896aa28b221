//! The sweep slowly deletes obsolete rows of durable locks. [`shunt_locks::Unneeded`] says which
//! rows are obsolete, and which must never be deleted.
//!
//! Each core goes through the partitions of its shards that may have rows, a page at a time.
//! Replicas forget a deletion `gc_grace_seconds` after it. Unless all replicas are known to have
//! it, the sweep writes a free row that says the same. Otherwise a replica that missed both would
//! bring the last holder back, once the others have forgotten.

pub(crate) mod progress;

use shunt_language::lock_tables::NAME_BYTES_MAX;
use shunt_locks::{LoadId, Row, Sink, Unneeded, Write, WriteId};
use shunt_reactor::Io;
use shunt_wire::cql::message::{Consistency, ResultMessage, Value, ValueList, error_code};

use crate::core::Core;
use crate::fleet::statements::{self, Heard, Levels, Whose};
use crate::locks::sweep::progress::Deleting;
use crate::locks::{LockKeeper, keeper, rows};
use crate::metrics::LockEvent;

const DELETE: &str = "DELETE FROM shunt_meta.lock WHERE bucket = ? AND name = ?";
const DELETE_SHARES: &str =
    "DELETE FROM shunt_meta.lock WHERE bucket = ? AND name = ? AND slot > ?";
/// Pauses in pages: between two rounds of reading ahead, and after a partition that failed.
const AHEAD_PAGES: u64 = 10;
/// Rows of a page.
const PAGE_ROWS: i32 = 100;

/// Reads a page, if it is time.
pub(crate) fn tick(core: &mut Core, io: &mut Io) {
    let (now, now_ns) = (keeper::now(io), io.now_ns());
    // A younger row is likely to be overwritten soon, because its lock is in use.
    let kept_ns = core.context.config.lock_rows_kept_ms * 1_000_000;
    if core.fleet.locks.level.is_none() || kept_ns == 0 {
        return;
    }
    read_ahead(core, io);
    let locks = &mut core.fleet.locks;
    let sweep = &mut locks.sweep;
    if sweep.is_reading || !sweep.deleting.is_empty() || now_ns < sweep.next_ns {
        return;
    }
    let Some(table) = locks.table.as_mut() else { return };
    let Some(bucket) = sweep.next(now_ns, |from| table.with_rows_from(from)) else {
        sweep.end_round(now_ns, kept_ns);
        return;
    };
    let Some(known) = table.known(bucket) else {
        // The partition has another owner by now, or was read anew.
        sweep.go_on();
        return;
    };
    sweep.page.take_if(|(of, _)| *of != known);
    sweep.next_ns = now_ns + sweep.pace.page_ns;
    let page = sweep.page.take();
    let at = page.as_ref().map(|(_, at)| &at[..]);
    if page.is_none() {
        table.looks_for_rows(now, known);
    }
    // All replicas answer, so all of them have these rows. If one had lost the deletion, it would
    // have a free row and no row of a holder.
    let is_sent =
        rows::ask(core, io, Whose::Sweep(known), known.bucket, Consistency::ALL, (PAGE_ROWS, at));
    let sweep = &mut core.fleet.locks.sweep;
    (sweep.page, sweep.is_reading) = (page, is_sent);
    if !is_sent {
        core.fleet.locks.table().0.has_rows(known.bucket);
    }
}

/// Reads ahead: loads the next partition that no request has asked for since this core owns its
/// shard. Its content is not known before. Only one is read at a time, because it may have very
/// many rows.
fn read_ahead(core: &mut Core, io: &mut Io) {
    let (now, now_ns) = (keeper::now(io), io.now_ns());
    let LockKeeper { sweep, table, effects, .. } = &mut core.fleet.locks;
    let (ahead, page_ns) = (&mut sweep.ahead, sweep.pace.page_ns);
    let Some(table) = table.as_mut().filter(|_| now_ns >= ahead.at_ns) else { return };
    if let Some(load) = ahead.begun {
        if table.is_awaited(load) {
            return;
        }
        let is_read = table.known(load.bucket).is_some();
        ahead.ended(load.bucket, is_read, now_ns, (AHEAD_PAGES * page_ns, sweep.pace.rest_ns));
    }
    ahead.at_ns = now_ns + page_ns;
    let Some(bucket) = ahead.next(now_ns, |from| table.unread_from(from)) else {
        ahead.from = 0;
        ahead.at_ns = now_ns + AHEAD_PAGES * page_ns;
        return;
    };
    ahead.from = bucket + 1;
    ahead.begun = table.read_ahead(now, bucket, effects);
}

/// Takes in a page of a partition.
pub(crate) fn take_page(core: &mut Core, io: &mut Io, known: LoadId, heard: &Heard<'_>) {
    let sweep = &mut core.fleet.locks.sweep;
    sweep.is_reading = false;
    let Heard::Result(ResultMessage::Rows(found)) = heard else {
        // Goes on with the next partition, because this one may be unreadable for long.
        sweep.go_on();
        sweep.next_ns = io.now_ns() + sweep.pace.rest_ns;
        core.fleet.locks.table().0.has_rows(known.bucket);
        return;
    };
    if found.row_count > 0 || found.metadata.paging_state.is_some() {
        core.fleet.locks.table().0.has_rows(known.bucket);
    }
    let sweep = &mut core.fleet.locks.sweep;
    let before = sweep.page.take();
    match found.metadata.paging_state {
        Some(at) => sweep.read_page((known, at.into())),
        None => sweep.go_on(),
    }
    if core.context.config.lock_rows_kept_ms == 0 {
        return;
    }
    // The reads for locks log rows that no proxy wrote.
    let Ok(found) = rows::decode(found) else { return };
    for of_name in found.chunk_by(|one, other| one.name == other.name) {
        let Some(unneeded) = unneeded(core, io, known, of_name) else { continue };
        let sweep = &mut core.fleet.locks.sweep;
        if !sweep.has_room(io.now_ns(), known.bucket) {
            sweep.leave(known.bucket, before);
            return;
        }
        if !delete(core, io, known.bucket, of_name[0].name, unneeded) {
            return;
        }
    }
}

/// The rows of one name, if they are worth a deletion.
fn unneeded(core: &Core, io: &mut Io, known: LoadId, rows: &[Row<'_>]) -> Option<Unneeded> {
    let newest_us = rows.iter().map(|row| row.timestamp_us).max()?;
    let now = keeper::now(io);
    let locks = &core.fleet.locks;
    let unneeded = locks.table.as_ref()?.unneeded(now, known, rows[0].name, newest_us)?;
    let old_us = now.wall_us - core.context.config.lock_rows_kept_ms as i64 * 1_000;
    if !unneeded.of_shares {
        return (newest_us <= old_us).then_some(unneeded);
    }
    let up_to_us = unneeded.up_to_us.min(old_us);
    let count =
        rows.iter().filter(|row| !row.slot.is_empty() && row.timestamp_us <= up_to_us).count();
    // Above all rows that are deleted, and below all that stay.
    let free_us = unneeded.free_us.min(up_to_us + 1);
    (count >= locks.sweep.pace.shares_min).then_some(Unneeded { up_to_us, free_us, ..unneeded })
}

fn delete(core: &mut Core, io: &mut Io, bucket: u16, name: &[u8], unneeded: Unneeded) -> bool {
    debug_assert!(name.len() <= NAME_BYTES_MAX);
    let Unneeded { up_to_us, of_shares, free_us } = unneeded;
    let key =
        core.fleet.locks.sweep.deleting.insert(Deleting { bucket, name: name.into(), free_us });
    let levels = Levels {
        consistency: Consistency::ALL,
        serial: None,
        timestamp_us: Some(up_to_us),
        elsewhere: false,
    };
    let mut list = ValueList::positional(statements::VERSION);
    list.push(Value::Bytes(&i32::from(bucket).to_be_bytes()));
    list.push(Value::Bytes(name));
    if of_shares {
        list.push(Value::Bytes(b""));
    }
    let text = if of_shares { DELETE_SHARES } else { DELETE };
    let is_sent = statements::ask::ask(
        core,
        io,
        Whose::Deletion(key as u32),
        text,
        list.values(),
        &levels,
        None,
    );
    if !is_sent {
        core.fleet.locks.sweep.deleting.remove(key);
    }
    is_sent
}

/// Takes in the answer to a deletion.
pub(crate) fn deleted(core: &mut Core, io: &mut Io, key: u32, heard: &Heard<'_>) {
    let Some(Deleting { bucket, name, free_us }) =
        core.fleet.locks.sweep.deleting.try_remove(key as usize)
    else {
        return;
    };
    if let Heard::Result(_) = heard {
        core.context.metrics.locks.events.of(LockEvent::RowsDeleted).add(1);
        return;
    }
    let sweep = &mut core.fleet.locks.sweep;
    sweep.next_ns = io.now_ns() + sweep.pace.rest_ns;
    if let Heard::Error(error) = heard
        && (error.code == error_code::UNAVAILABLE || error.code >= error_code::SYNTAX_ERROR)
    {
        tracing::debug!(
            bucket,
            why = error.message,
            "rows of locks that say nothing any more stay for now"
        );
        return;
    }
    let row = Row {
        name: &name,
        slot: b"",
        owner: b"",
        role: b"",
        token: free_us,
        ttl_ms: 0,
        timestamp_us: free_us,
    };
    let (_, effects) = core.fleet.locks.table();
    effects.write(Write { id: WriteId::UNWATCHED, bucket, row, role: b"", is_release: false });
}
