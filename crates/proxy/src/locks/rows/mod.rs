//! Rows of durable locks. A row is written at QUORUM when a lock is granted or freed. The rows of a
//! partition are read when its shard is new.
//!
//! ADR 14 says what a row means and when it is written.

pub(super) mod backlog;
pub(super) mod damage;

use shunt_language::lock_tables::{NAME_BYTES_MAX, OWNER_BYTES_MAX};
use shunt_locks::{LoadId, Row, WriteId, Written};
use shunt_reactor::Io;
use shunt_wire::cql::message::{
    self, Consistency, ResultMessage, Rows, Value, ValueList, Values, error_code,
};

use crate::core::Core;
use crate::fleet::levels;
use crate::fleet::statements::{self, Heard, Levels, Whose};
use crate::limits;
use crate::locks::effects::{ROW_VALUES, RowWrite};
use crate::locks::keeper;
use crate::log_limits::Logged;
use shunt_wire::printable::printable_to;

const WRITE: &str = "INSERT INTO shunt_meta.lock (bucket, name, slot, owner, role, mode, fence, ttl_ms) \
                     VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
const READ: &str = "SELECT name, slot, owner, role, fence, ttl_ms, WRITETIME(fence) FROM shunt_meta.lock WHERE bucket = ?";
/// A role comes from a login, which cannot be longer.
const ROLE_BYTES_MAX: usize = limits::HANDSHAKE_BYTES_MAX as usize - 1;
/// Rows of one page of a partition.
const PAGE_ROWS: i32 = 2_000;

/// Free rows of the backlog that are sent after a free row was written. Fast nodes thus get more of
/// them than a tick sends, and no answer costs more than these.
const SENT_PER_ANSWER: usize = 64;

/// Writes a row. A free row that cannot be sent now is sent later, because its lock would stay held
/// for the shard's next owner.
pub(super) fn write(core: &mut Core, io: &mut Io, row: &RowWrite<'_>) {
    if send(core, io, row.id, row.timestamp_us, row.values) {
        return;
    }
    if row.id == WriteId::UNWATCHED {
        core.fleet.locks.backlog.keep(row);
    } else {
        keeper::written(core, io, row.id, Written::NotSent);
    }
}

fn send(core: &mut Core, io: &mut Io, id: WriteId, timestamp_us: i64, values: &[u8]) -> bool {
    let levels = Levels {
        consistency: levels::quorum(core.fleet.locks.level),
        serial: None,
        timestamp_us: Some(timestamp_us),
        elsewhere: false,
    };
    let values = Values::positional(statements::VERSION, ROW_VALUES, values);
    statements::ask::ask(core, io, Whose::Write(id), WRITE, values, &levels, None)
}

/// Sends up to `max` free rows of the backlog. A late row does no harm: a later grant of the lock
/// has a later row.
fn send_unsent(core: &mut Core, io: &mut Io, max: usize) {
    for _ in 0..max {
        let Some(row) = core.fleet.locks.backlog.take() else { return };
        if !send(core, io, WriteId::UNWATCHED, row.timestamp_us, &row.values) {
            core.fleet.locks.backlog.put_back(row);
            return;
        }
        if let Some(bucket) = backlog::bucket_of(&row.values) {
            let now = keeper::now(io);
            core.fleet.locks.table().0.writes_late(now, bucket);
        }
    }
}

/// Sends a read of a partition, from its beginning or from the end of the last page.
pub(super) fn ask(
    core: &mut Core,
    io: &mut Io,
    whose: Whose,
    bucket: u16,
    consistency: Consistency,
    page: (i32, Option<&[u8]>),
) -> bool {
    let levels = Levels { consistency, serial: None, timestamp_us: None, elsewhere: false };
    let mut list = ValueList::positional(statements::VERSION);
    list.push(Value::Bytes(&i32::from(bucket).to_be_bytes()));
    statements::ask::ask(core, io, whose, READ, list.values(), &levels, Some(page))
}

/// Reads a partition for its locks, from its beginning or from the end of the last page.
pub(super) fn read_partition(core: &mut Core, io: &mut Io, load: LoadId, page: Option<&[u8]>) {
    let consistency = levels::quorum(core.fleet.locks.level);
    if !ask(core, io, Whose::Load(load), load.bucket, consistency, (PAGE_ROWS, page)) {
        match page {
            // The locks themselves answer the waiting requests in time.
            None => core.fleet.locks.unread.push(load),
            Some(_) => _ = keeper::load_failed(core, io, load),
        }
    }
}

/// Repeats what could not be sent: reads of partitions, and writes of free rows.
pub(crate) fn tick(core: &mut Core, io: &mut Io) {
    for load in std::mem::take(&mut core.fleet.locks.unread) {
        if is_awaited(core, load) {
            read_partition(core, io, load, None);
        }
    }
    send_unsent(core, io, usize::MAX);
}

fn is_awaited(core: &Core, load: LoadId) -> bool {
    core.fleet.locks.table.as_ref().is_some_and(|table| table.is_awaited(load))
}

/// Takes in the answer to a write.
pub(crate) fn written(core: &mut Core, io: &mut Io, id: WriteId, heard: &Heard<'_>) {
    if id == WriteId::UNWATCHED {
        // After an error, nodes get no more rows until the next tick.
        if matches!(heard, Heard::Result(_)) {
            send_unsent(core, io, SENT_PER_ANSWER);
        }
        return;
    }
    let written = match heard {
        Heard::Result(_) => Written::Acknowledged,
        // A coordinator counts replicas before it sends anything, and does not begin what it cannot
        // parse or does not allow. If another node had got the write before, this would be a write
        // timeout (`retry::failure`).
        Heard::Error(error)
            if error.code == error_code::UNAVAILABLE || error.code >= error_code::SYNTAX_ERROR =>
        {
            if let Some(suppressed) = core.context.log_limits.admit(Logged::LockRow, io.now_ns()) {
                tracing::warn!(
                    code = error.code,
                    why = error.message,
                    suppressed,
                    "a lock's row could not be written"
                );
            }
            Written::NotSent
        }
        Heard::Error(_) | Heard::Unreadable => Written::Unknown,
    };
    keeper::written(core, io, id, written);
}

/// Takes in a page of a partition.
pub(crate) fn loaded(core: &mut Core, io: &mut Io, load: LoadId, heard: &Heard<'_>) {
    match heard {
        Heard::Result(ResultMessage::Rows(rows)) => match decode(rows) {
            Ok(decoded) => {
                let page = rows.metadata.paging_state;
                if !keeper::loaded(core, io, load, &decoded, page.is_none()) {
                    tell_full(core, io, load);
                } else if page.is_none() {
                    core.fleet.locks.damaged.remove(load.bucket);
                } else if is_awaited(core, load) {
                    read_partition(core, io, load, page);
                }
            }
            Err(name) => {
                let name =
                    printable_to(&String::from_utf8_lossy(name), limits::NAME_SHOWN_BYTES_MAX);
                if let Some(suppressed) =
                    core.context.log_limits.admit(Logged::LockRow, io.now_ns())
                {
                    tracing::warn!(
                        bucket = load.bucket,
                        name = &*name,
                        suppressed,
                        "a row of shunt_meta.lock has a form that no proxy writes, so no lock of its partition is served: find out what \
                         wrote the row, and delete it"
                    );
                }
                if keeper::load_failed(core, io, load) {
                    core.fleet.locks.damaged.add(load.bucket, name);
                }
            }
        },
        Heard::Error(error) => {
            tracing::debug!(
                bucket = load.bucket,
                why = error.message,
                "rows of locks could not be read"
            );
            keeper::load_failed(core, io, load);
        }
        Heard::Result(_) | Heard::Unreadable => _ = keeper::load_failed(core, io, load),
    }
}

fn tell_full(core: &Core, io: &Io, load: LoadId) {
    if let Some(suppressed) = core.context.log_limits.admit(Logged::LockRow, io.now_ns()) {
        tracing::warn!(
            bucket = load.bucket,
            suppressed,
            "rows of locks show more holders than this proxy can keep: it does not serve the locks of the partition until some of them \
             expire"
        );
    }
}

/// Decodes all rows of a page.
///
/// # Errors
/// The name in the first row that no proxy can have written. Without that row, a lock could be
/// granted twice.
pub(super) fn decode<'a>(rows: &Rows<'a>) -> Result<Vec<Row<'a>>, &'a [u8]> {
    // A row of a hostile node may have four bytes; it ends the loop.
    let mut decoded = Vec::new();
    for row in rows.rows() {
        let row = row.map_err(|_| &b"?"[..])?;
        let row =
            decode_row(&row).filter(is_a_proxys).ok_or_else(|| row.get(0).unwrap_or_default())?;
        decoded.push(row);
    }
    Ok(decoded)
}

fn decode_row<'a>(row: &message::Row<'a>) -> Option<Row<'a>> {
    let number = |value: Option<&[u8]>| value?.try_into().ok().map(i64::from_be_bytes);
    let mut values = row.values();
    let mut next = || values.next().flatten();
    let (name, slot, owner, role) = (next()?, next()?, next()?, next()?);
    let (token, ttl_ms, timestamp_us) = (number(next())?, next()?, number(next())?);
    let ttl_ms = u32::try_from(i32::from_be_bytes(ttl_ms.try_into().ok()?)).ok()?;
    Some(Row { name, slot, owner, role, token, ttl_ms, timestamp_us })
}

/// Half of the highest value of a member. After a token or timestamp up to this, as much is left
/// for later ones.
const TIME_MAX_US: i64 = shunt_fleet::TIMESTAMP_MAX_US / 2;

/// True if a proxy can have written a row, with any clock.
fn is_a_proxys(row: &Row<'_>) -> bool {
    let is_time = |time_us: i64| (0..=TIME_MAX_US).contains(&time_us);
    row.name.len() <= NAME_BYTES_MAX
        && row.slot.len() <= OWNER_BYTES_MAX
        && row.owner.len() <= OWNER_BYTES_MAX
        && row.role.len() <= ROLE_BYTES_MAX
        && is_time(row.token)
        && is_time(row.timestamp_us)
}

#[cfg(test)]
mod tests;
