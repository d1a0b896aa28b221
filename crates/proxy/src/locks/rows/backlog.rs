//! Backlog of free rows that could not be sent. If a free row is lost, the shard's next owner takes
//! the lock as held for a whole TTL.
//!
//! The backlog has a limit in number and bytes, and each role has half of it. At the limit, no
//! durable lock is released ([`super::keeper`]). Otherwise a role that takes and releases locks
//! faster than nodes write rows would leave behind holds that nobody has.
//!
//! The limit must never:
//! - lose the row of a release that was admitted;
//! - refuse a role's release because of another role's rows alone.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::locks::effects::RowWrite;

/// Most rows.
const ROWS_MAX: usize = 32_768;
/// Most bytes of the rows.
const BYTES_MAX: usize = 16 << 20;
/// Parts of these limits; the releases of a role have half of them.
const PARTS: usize = 4;
/// Parts for the other rows of a role: of expired holds, and of holds that nobody wanted.
const ROLE_PARTS: usize = 3;

/// Number and bytes of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    rows: usize,
    bytes: usize,
}

impl Usage {
    /// True if some parts of the limits have room for this many rows and one more.
    fn has_room(self, more: usize, parts: usize) -> bool {
        self.rows + more < ROWS_MAX / PARTS * parts && self.bytes < BYTES_MAX / PARTS * parts
    }
}

/// A waiting row: its timestamp, its values as in [`RowWrite`], and the role that it counts for.
pub(in crate::locks) struct FreeRow {
    pub(in crate::locks) timestamp_us: i64,
    pub(in crate::locks) values: Box<[u8]>,
    role: Arc<[u8]>,
}

impl FreeRow {
    fn bytes(&self) -> usize {
        self.values.len() + self.role.len()
    }
}

/// The rows, in the order in which they are sent.
#[derive(Default)]
pub(in crate::locks) struct Backlog {
    rows: VecDeque<FreeRow>,
    all: Usage,
    by_role: HashMap<Arc<[u8]>, Usage>,
}

impl Backlog {
    /// True if there is room for this many rows and the row of a release by this role, whatever
    /// their names.
    pub(in crate::locks) fn has_room(&self, more: usize, role: &[u8]) -> bool {
        self.all.has_room(more, PARTS) && self.of_role(role).has_room(more, PARTS / 2)
    }

    fn of_role(&self, role: &[u8]) -> Usage {
        self.by_role.get(role).copied().unwrap_or_default()
    }

    /// Keeps a row. The row of a release always has room, which [`Self::has_room`] checked. The row
    /// of an expired hold, or of a hold that nobody wanted, is lost beyond the limit.
    pub(in crate::locks) fn keep(&mut self, row: &RowWrite<'_>) {
        let role = row.role;
        let has_room = self.all.has_room(0, PARTS) && self.of_role(role).has_room(0, ROLE_PARTS);
        if row.is_release || has_room {
            let known = self.by_role.get_key_value(role).map(|(role, _)| Arc::clone(role));
            let role = known.unwrap_or_else(|| role.into());
            let kept = FreeRow { timestamp_us: row.timestamp_us, values: row.values.into(), role };
            self.add(&kept);
            self.rows.push_back(kept);
        }
    }

    fn add(&mut self, row: &FreeRow) {
        let of_role = self.by_role.entry(Arc::clone(&row.role)).or_default();
        for usage in [&mut self.all, of_role] {
            usage.rows += 1;
            usage.bytes += row.bytes();
        }
    }

    /// Takes the row that has waited longest.
    pub(in crate::locks) fn take(&mut self) -> Option<FreeRow> {
        let row = self.rows.pop_front()?;
        for usage in [Some(&mut self.all), self.by_role.get_mut(&row.role)].into_iter().flatten() {
            usage.rows -= 1;
            usage.bytes -= row.bytes();
        }
        if self.by_role.get(&row.role).is_some_and(|usage| usage.rows == 0) {
            self.by_role.remove(&row.role);
        }
        if self.rows.is_empty() {
            self.rows = VecDeque::new();
        }
        Some(row)
    }

    /// Puts a row back in front.
    pub(in crate::locks) fn put_back(&mut self, row: FreeRow) {
        self.add(&row);
        self.rows.push_front(row);
    }
}

/// The partition, which is the first value of a row.
pub(in crate::locks) fn bucket_of(values: &[u8]) -> Option<u16> {
    let value = values.get(4..8)?.try_into().ok()?;
    u16::try_from(i32::from_be_bytes(value)).ok()
}

#[cfg(test)]
mod tests {
    use shunt_locks::{
        Asked, Lease, Limits, Locks, Mode, Namespace, Now, SHARDS, Ticket, WriteId, Written,
    };

    use super::*;
    use crate::locks::effects::Effects;

    const NOW: Now = Now { boot_ns: 1, wall_us: 1_700_000_000_000_000 };

    /// The free row of a lock with this name that a role held, and released; its TTL is over if
    /// not. The locks themselves write it.
    fn with_row(role: &[u8], name: &[u8], is_release: bool, see: impl FnOnce(&RowWrite<'_>)) {
        let (mut locks, mut effects) = (Locks::new(Limits::default()), Effects::default());
        let lease = Lease { valid_until_ns: u64::MAX, ts_limit_us: i64::MAX };
        locks.set_lease(NOW, lease, &mut effects);
        (0..SHARDS as u8).for_each(|shard| locks.gain(NOW, shard, 0, 0, &mut effects));
        let namespace = Namespace::Durable;
        let asked = Asked { namespace, name, role, owner: b"me", ticket: Ticket(1) };
        locks.acquire(NOW, &asked, Mode::Exclusive, (9_000, 0), &mut effects);
        for load in std::mem::take(&mut effects.loads) {
            locks.loaded(NOW, load, std::iter::empty(), true, &mut effects);
        }
        let id = effects.rows().next().expect("a row").id;
        effects.clear();
        locks.written(NOW, id, Written::Acknowledged, &mut effects);
        if is_release {
            locks.release(NOW, &asked, None, false, &mut effects);
        } else {
            let late = Now { boot_ns: 60_000_000_000, ..NOW };
            while locks.tick(late, &mut effects) {}
        }
        let row = effects.rows().next().expect("a free row");
        assert_eq!(row.id, WriteId::UNWATCHED);
        see(&row);
    }

    fn keep_many(backlog: &mut Backlog, numbers: std::ops::Range<i64>, row: &RowWrite<'_>) {
        numbers.for_each(|timestamp_us| backlog.keep(&RowWrite { timestamp_us, ..*row }));
    }

    #[test]
    fn rows_wait_in_order_and_there_are_so_many_at_most() {
        let mut backlog = Backlog::default();
        with_row(b"one", b"name", false, |row| keep_many(&mut backlog, 0..20_000, row));
        with_row(b"two", b"name", false, |row| keep_many(&mut backlog, 20_000..40_000, row));
        assert!(backlog.rows.len() == ROWS_MAX && !backlog.has_room(0, b"three"));
        let first = backlog.take().expect("the first");
        assert!(first.timestamp_us == 0);
        assert!(backlog.has_room(0, b"three") && !backlog.has_room(1, b"three"));
        backlog.put_back(first);
        let times = std::iter::from_fn(|| backlog.take()).map(|row| row.timestamp_us);
        assert_eq!(times.collect::<Vec<_>>(), (0..32_768).collect::<Vec<_>>());
        assert_eq!((backlog.all, backlog.rows.capacity()), (Usage::default(), 0));
        assert!(backlog.by_role.is_empty());
    }

    #[test]
    fn the_bytes_of_all_rows_are_limited() {
        let mut backlog = Backlog::default();
        let values = vec![b'a'; BYTES_MAX / 4];
        let id = WriteId::UNWATCHED;
        for role in [b"one", b"two", b"six", b"ten", b"ann"] {
            let row = RowWrite { id, timestamp_us: 5, values: &values, role, is_release: false };
            backlog.keep(&row);
        }
        assert_eq!(backlog.rows.len(), 4);
    }

    #[test]
    fn a_roles_releases_have_half_and_others_have_room() {
        let mut backlog = Backlog::default();
        with_row(b"one", b"name", true, |row| {
            keep_many(&mut backlog, 0..16_383, row);
            assert!(backlog.has_room(0, b"one") && !backlog.has_room(1, b"one"));
            keep_many(&mut backlog, 0..1, row);
        });
        assert!(!backlog.has_room(0, b"one"));
        // Rows of holds whose time was over go on beyond that, but leave the others room, too.
        with_row(b"one", b"name", false, |row| keep_many(&mut backlog, 0..24_000, row));
        assert_eq!(backlog.rows.len(), 24_576);
        assert!(backlog.has_room(8_191, b"two") && !backlog.has_room(8_192, b"two"));
    }

    /// A release may be answered long after it was admitted: its rows are not read yet.
    #[test]
    fn the_row_of_a_release_is_never_lost() {
        let mut backlog = Backlog::default();
        with_row(b"one", b"name", false, |row| keep_many(&mut backlog, 0..40_000, row));
        with_row(b"two", b"name", false, |row| keep_many(&mut backlog, 0..40_000, row));
        assert_eq!(backlog.rows.len(), ROWS_MAX);
        with_row(b"one", b"name", true, |row| keep_many(&mut backlog, 0..1, row));
        assert_eq!(backlog.rows.len(), ROWS_MAX + 1);
    }

    #[test]
    fn the_partition_is_read_from_a_row_as_it_is_written() {
        let bucket = shunt_locks::bucket_of(b"name");
        with_row(b"one", b"name", true, |row| assert_eq!(bucket_of(row.values), Some(bucket)));
        assert_eq!(bucket_of(b""), None);
    }
}
