//! Lists on their way from the core that keeps the locks: the holders and waiters of one lock, or
//! several locks.

use std::cmp::Reverse;

use shunt_language::lock_tables::Table;
use shunt_language::lock_tables::reply::Row;
use shunt_locks::{Holder, Mode};

use crate::locks::reply::{Reply, Verdict};

/// Most rows of a list; the rest is left out.
pub(crate) const ROWS_MAX: usize = 1_000;
/// Warning of a list that may be incomplete.
pub(super) const CUT: &str = "Shunt: a list of locks, or of those who hold or await one, has the first 1000; there may be more";
/// Warning of a list of all locks, if other proxies keep some of them.
pub(super) const PART: &str = "Shunt: these are the locks of this proxy alone; `shunt locks` shows those of all proxies of the fleet";
/// Bytes before the texts of an entry: fast, waits, shared, fence, time, and the lengths of owner
/// and role.
const HEAD_BYTES: usize = 3 + 8 + 4 + 2 + 2;

/// Appends an entry.
pub(crate) fn put(out: &mut Vec<u8>, fast: bool, waits: bool, holder: &Holder<'_>, role: &[u8]) {
    out.extend_from_slice(&[
        u8::from(fast),
        u8::from(waits),
        u8::from(holder.mode == Mode::Shared),
    ]);
    out.extend_from_slice(&holder.fence.to_be_bytes());
    out.extend_from_slice(&holder.ttl_ms.to_be_bytes());
    out.extend_from_slice(&(holder.owner.len() as u16).to_be_bytes());
    out.extend_from_slice(&(role.len() as u16).to_be_bytes());
    out.extend_from_slice(holder.owner);
    out.extend_from_slice(role);
}

/// The entries as rows of a table; those of one owner, unless `owner` is empty. The tables of locks
/// show holders only.
pub(super) fn rows<'a>(
    list: &'a [u8],
    name: &'a [u8],
    table: Table,
    owner: &'a [u8],
    waiters: u32,
) -> impl Iterator<Item = Row<'a>> + Clone {
    let mut rest = list;
    let mut position = 0;
    let entries = std::iter::from_fn(move || {
        let (head, texts) = rest.split_first_chunk::<HEAD_BYTES>()?;
        let lengths =
            [u16::from_be_bytes([head[15], head[16]]), u16::from_be_bytes([head[17], head[18]])];
        let (found, texts) = texts.split_at_checked(usize::from(lengths[0]))?;
        let (role, after) = texts.split_at_checked(usize::from(lengths[1]))?;
        rest = after;
        position += 1;
        let waits = head[1] != 0;
        let fence = i64::from_be_bytes([
            head[3], head[4], head[5], head[6], head[7], head[8], head[9], head[10],
        ]);
        let ttl_ms = u32::from_be_bytes([head[11], head[12], head[13], head[14]]);
        Some(Row {
            name: Some(name),
            owner: Some(found),
            role: Some(role),
            fast: Some(head[0] != 0),
            position: Some(position - 1),
            shared: Some(head[2] != 0),
            waits: Some(waits),
            fence: (!waits).then_some(fence),
            ttl_ms: Some(ttl_ms),
            waiters: Some(waiters),
        })
    });
    entries.filter(move |row| {
        (table == Table::LockQueue || row.waits == Some(false))
            && (owner.is_empty() || row.owner == Some(owner))
    })
}

/// True if a list has the most entries that it may have, and the client wants more. Other proxies
/// send no more entries than that either.
pub(super) fn may_be_cut(reply: &Reply<'_>, limit: u32) -> bool {
    limit as usize > ROWS_MAX
        && match reply.verdict {
            Verdict::Listed => rows(reply.list, b"", Table::LockQueue, b"", 0).count() >= ROWS_MAX,
            Verdict::Locks => longest(reply.list, usize::MAX).len() >= ROWS_MAX,
            _ => false,
        }
}

/// Bytes before the texts of a lock: number of waiters, whether it is held, shared, fence, time,
/// and the lengths of name and owner.
const LOCK_BYTES: usize = 4 + 2 + 8 + 4 + 2 + 2;

/// Appends a lock, with the first of its holders.
pub(super) fn put_lock(out: &mut Vec<u8>, name: &[u8], holder: Option<&Holder<'_>>, waiters: u32) {
    let owner = holder.map_or(&[][..], |holder| holder.owner);
    out.extend_from_slice(&waiters.to_be_bytes());
    let is_shared = holder.is_some_and(|holder| holder.mode == Mode::Shared);
    out.extend_from_slice(&[u8::from(holder.is_some()), u8::from(is_shared)]);
    out.extend_from_slice(&holder.map_or(0, |holder| holder.fence).to_be_bytes());
    out.extend_from_slice(&holder.map_or(0, |holder| holder.ttl_ms).to_be_bytes());
    out.extend_from_slice(&(name.len() as u16).to_be_bytes());
    out.extend_from_slice(&(owner.len() as u16).to_be_bytes());
    out.extend_from_slice(name);
    out.extend_from_slice(owner);
}

/// The first `most` locks of all cores, longest queues first.
pub(crate) fn longest(list: &[u8], most: usize) -> Vec<Row<'_>> {
    let mut rest = list;
    let entries = std::iter::from_fn(move || {
        let (head, texts) = rest.split_first_chunk::<LOCK_BYTES>()?;
        let (name, texts) =
            texts.split_at_checked(usize::from(u16::from_be_bytes([head[18], head[19]])))?;
        let (owner, after) =
            texts.split_at_checked(usize::from(u16::from_be_bytes([head[20], head[21]])))?;
        rest = after;
        let is_held = head[4] != 0;
        let fence = i64::from_be_bytes([
            head[6], head[7], head[8], head[9], head[10], head[11], head[12], head[13],
        ]);
        Some(Row {
            name: Some(name),
            owner: is_held.then_some(owner),
            shared: is_held.then_some(head[5] != 0),
            fence: is_held.then_some(fence),
            ttl_ms: is_held.then_some(u32::from_be_bytes([head[14], head[15], head[16], head[17]])),
            waiters: Some(u32::from_be_bytes([head[0], head[1], head[2], head[3]])),
            ..Row::default()
        })
    });
    let mut rows: Vec<Row<'_>> = entries.collect();
    // Among queues of the same length, the lock that was granted longest ago comes first.
    rows.sort_by_key(|row| (Reverse(row.waiters), row.fence, row.name));
    rows.truncate(most);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_list_is_read_and_garbage_ends_it() {
        let mut list = Vec::new();
        let holder = Holder { owner: b"ann", mode: Mode::Shared, fence: 7, ttl_ms: 8 };
        put(&mut list, false, false, &holder, b"role");
        put(&mut list, true, true, &Holder { owner: b"bob", fence: 0, ..holder }, b"");
        list.extend_from_slice(b"garbage");
        let read = |table, owner| {
            rows(&list, b"n", table, owner, 3).map(|row| row.owner).collect::<Vec<_>>()
        };
        assert_eq!(read(Table::LockQueue, b""), [Some(&b"ann"[..]), Some(b"bob")]);
        assert_eq!(read(Table::RwLocks, b""), [Some(&b"ann"[..])]);
        assert_eq!(read(Table::LockQueue, b"bob"), [Some(&b"bob"[..])]);
        let first = rows(&list, b"n", Table::RwLocks, b"", 3).next().unwrap_or_default();
        assert_eq!(
            (first.fence, first.ttl_ms, first.role, first.position),
            (Some(7), Some(8), Some(&b"role"[..]), Some(0))
        );
    }

    #[test]
    fn a_list_may_be_cut_by_its_length_or_its_limit() {
        let holder = Holder { owner: b"ann", mode: Mode::Shared, fence: 7, ttl_ms: 8 };
        let (mut list, mut locks) = (Vec::new(), Vec::new());
        let cut = |list: &[u8], verdict: Verdict, limit| {
            may_be_cut(&Reply { list, ..verdict.into() }, limit)
        };
        for number in 0..ROWS_MAX {
            assert!(
                !cut(&list, Verdict::Listed, u32::MAX) && !cut(&locks, Verdict::Locks, u32::MAX),
                "{number}"
            );
            put(&mut list, false, false, &holder, b"");
            put_lock(&mut locks, b"n", Some(&holder), 0);
        }
        for (limit, expected) in [(1, false), (1_000, false), (1_001, true), (u32::MAX, true)] {
            assert_eq!(cut(&list, Verdict::Listed, limit), expected, "{limit}");
            assert_eq!(cut(&locks, Verdict::Locks, limit), expected, "{limit}");
        }
        assert!(!cut(&[], Verdict::Seen, u32::MAX));
        assert!(CUT.contains(&ROWS_MAX.to_string()));
    }

    #[test]
    fn the_lists_of_several_cores_are_one_in_order() {
        let mut list = Vec::new();
        let holder = Holder { owner: b"ann", mode: Mode::Shared, fence: 7, ttl_ms: 8 };
        put_lock(&mut list, b"quiet", Some(&holder), 0);
        put_lock(&mut list, b"nobodys", None, 5);
        put_lock(&mut list, b"old", Some(&Holder { fence: 3, ..holder }), 0);
        put_lock(&mut list, b"busy", Some(&holder), 300);
        list.extend_from_slice(b"garbage");
        let names =
            |most| longest(&list, most).iter().filter_map(|row| row.name).collect::<Vec<_>>();
        assert_eq!(names(9), [&b"busy"[..], b"nobodys", b"old", b"quiet"]);
        assert_eq!(names(1), [b"busy"]);
        let rows = longest(&list, 9);
        assert_eq!(
            (rows[1].owner, rows[1].fence, rows[1].ttl_ms, rows[1].shared),
            (None, None, None, None)
        );
        let busy = Row {
            name: Some(b"busy"),
            owner: Some(b"ann"),
            shared: Some(true),
            fence: Some(7),
            ..rows[0]
        };
        assert_eq!((rows[0], rows[0].ttl_ms, rows[0].waiters), (busy, Some(8), Some(300)));
    }
}
