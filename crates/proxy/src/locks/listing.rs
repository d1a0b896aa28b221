//! A list of those who hold a lock or wait for it, as it travels from the core that keeps the lock.

use shunt_language::facade::Table;
use shunt_language::facade::reply::Row;
use shunt_locks::{Holder, Mode};

/// Rows of one list; the rest is left out.
pub(super) const ROWS_MAX: usize = 1_000;
/// What comes before the texts of an entry: fast, waits, shared, fence, time, and the lengths of owner and role.
const HEAD_BYTES: usize = 3 + 8 + 4 + 2 + 2;

/// Appends an entry.
pub(crate) fn put(out: &mut Vec<u8>, fast: bool, waits: bool, holder: &Holder<'_>, role: &[u8]) {
    out.extend_from_slice(&[u8::from(fast), u8::from(waits), u8::from(holder.mode == Mode::Shared)]);
    out.extend_from_slice(&holder.fence.to_be_bytes());
    out.extend_from_slice(&holder.ttl_ms.to_be_bytes());
    out.extend_from_slice(&(holder.owner.len() as u16).to_be_bytes());
    out.extend_from_slice(&(role.len() as u16).to_be_bytes());
    out.extend_from_slice(holder.owner);
    out.extend_from_slice(role);
}

/// The entries as rows of a table; of one owner, unless that is empty. The tables of locks show holders only.
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
        let lengths = [u16::from_be_bytes([head[15], head[16]]), u16::from_be_bytes([head[17], head[18]])];
        let (found, texts) = texts.split_at_checked(usize::from(lengths[0]))?;
        let (role, after) = texts.split_at_checked(usize::from(lengths[1]))?;
        rest = after;
        position += 1;
        let waits = head[1] != 0;
        let fence = i64::from_be_bytes([head[3], head[4], head[5], head[6], head[7], head[8], head[9], head[10]]);
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
        (table == Table::LockQueue || row.waits == Some(false)) && (owner.is_empty() || row.owner == Some(owner))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_read_and_garbage_ends_it() {
        let mut list = Vec::new();
        let holder = Holder { owner: b"ann", mode: Mode::Shared, fence: 7, ttl_ms: 8 };
        put(&mut list, false, false, &holder, b"role");
        put(&mut list, true, true, &Holder { owner: b"bob", fence: 0, ..holder }, b"");
        list.extend_from_slice(b"garbage");
        let read = |table, owner| rows(&list, b"n", table, owner, 3).map(|row| row.owner).collect::<Vec<_>>();
        assert_eq!(read(Table::LockQueue, b""), [Some(&b"ann"[..]), Some(b"bob")]);
        assert_eq!(read(Table::RwLocks, b""), [Some(&b"ann"[..])]);
        assert_eq!(read(Table::LockQueue, b"bob"), [Some(&b"bob"[..])]);
        let first = rows(&list, b"n", Table::RwLocks, b"", 3).next().unwrap_or_default();
        assert_eq!(
            (first.fence, first.ttl_ms, first.role, first.position),
            (Some(7), Some(8), Some(&b"role"[..]), Some(0))
        );
    }
}
