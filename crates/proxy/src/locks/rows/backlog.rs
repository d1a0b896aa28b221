//! Free rows that could not be sent, until they are: a lock whose free row is lost is held for the
//! shard's next owner, for a whole TTL.
//!
//! The number and bytes of these rows have a limit, and each role has half of it. At the limit, no
//! durable lock is released ([`super::keeper`]): else a role that takes and releases locks faster
//! than rows can be written would leave holds behind that nobody has.
//!
//! The limit must never:
//! - lose the row of a release that was admitted;
//! - refuse a role's release because of another role's rows alone.

use std::collections::{HashMap, VecDeque};

use shunt_wire::cql::message::{Value, Values};

use crate::fleet::statements;
use crate::locks::effects::ROW_VALUES;

/// Rows that are kept.
const ROWS_MAX: usize = 32_768;
/// Bytes of the rows that are kept.
const BYTES_MAX: usize = 16 << 20;
/// Parts of these limits of which a role's releases have half.
const PARTS: usize = 4;
/// Parts for a role with its other rows: of holds whose time is over, and of holds that nobody
/// wanted.
const ROLE_PARTS: usize = 3;

/// Place of the role among the values of a row.
const ROLE: usize = 4;

/// Number and bytes of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    rows: usize,
    bytes: usize,
}

impl Usage {
    /// True if there is room for so many more rows and another one, in some parts of the limits.
    fn has_room(self, more: usize, parts: usize) -> bool {
        self.rows + more < ROWS_MAX / PARTS * parts && self.bytes < BYTES_MAX / PARTS * parts
    }
}

/// Rows: the timestamp, and the values as [`super::effects::Effects::rows`] has them.
#[derive(Default)]
pub(in crate::locks) struct Backlog {
    rows: VecDeque<(i64, Box<[u8]>)>,
    all: Usage,
    by_role: HashMap<Box<[u8]>, Usage>,
}

impl Backlog {
    /// True if there is room for so many more rows and that of a release by this role, whatever
    /// their names.
    pub(in crate::locks) fn has_room(&self, more: usize, role: &[u8]) -> bool {
        self.all.has_room(more, PARTS) && self.of_role(role).has_room(more, PARTS / 2)
    }

    fn of_role(&self, role: &[u8]) -> Usage {
        self.by_role.get(role).copied().unwrap_or_default()
    }

    /// Keeps a row. Beyond the limit it is lost: that is of a hold whose time was over, or of one
    /// that nobody wanted.
    pub(in crate::locks) fn keep(&mut self, timestamp_us: i64, values: &[u8]) {
        let role = role_of(values);
        if self.all.has_room(0, PARTS) && self.of_role(role).has_room(0, ROLE_PARTS) {
            self.add(values);
            self.rows.push_back((timestamp_us, values.into()));
        }
    }

    fn add(&mut self, values: &[u8]) {
        let role = role_of(values);
        if !self.by_role.contains_key(role) {
            self.by_role.insert(role.into(), Usage::default());
        }
        for usage in [Some(&mut self.all), self.by_role.get_mut(role)].into_iter().flatten() {
            usage.rows += 1;
            usage.bytes += values.len();
        }
    }

    /// The row that has waited longest.
    pub(in crate::locks) fn take(&mut self) -> Option<(i64, Box<[u8]>)> {
        let row = self.rows.pop_front()?;
        let role = role_of(&row.1);
        for usage in [Some(&mut self.all), self.by_role.get_mut(role)].into_iter().flatten() {
            usage.rows -= 1;
            usage.bytes -= row.1.len();
        }
        if self.by_role.get(role).is_some_and(|usage| usage.rows == 0) {
            self.by_role.remove(role);
        }
        if self.rows.is_empty() {
            self.rows = VecDeque::new();
        }
        Some(row)
    }

    /// The same is to be the next again.
    pub(in crate::locks) fn put_back(&mut self, timestamp_us: i64, values: Box<[u8]>) {
        self.add(&values);
        self.rows.push_front((timestamp_us, values));
    }
}

/// The role that held the lock of a row.
fn role_of(values: &[u8]) -> &[u8] {
    match Values::positional(statements::VERSION, ROW_VALUES, values).iter().nth(ROLE) {
        Some((_, Value::Bytes(role))) => role,
        _ => &[],
    }
}

/// The partition, which is the first of a row's values.
pub(in crate::locks) fn bucket_of(values: &[u8]) -> Option<u16> {
    let value = values.get(4..8)?.try_into().ok()?;
    u16::try_from(i32::from_be_bytes(value)).ok()
}

#[cfg(test)]
mod tests {
    use shunt_locks::{Row, Sink, Write, WriteId};

    use super::*;
    use crate::locks::effects::Effects;

    /// The values of a free row, of a lock that this role held.
    fn values(role: &[u8], name: &[u8]) -> Vec<u8> {
        let mut effects = Effects::default();
        let (slot, owner, token) = (&b""[..], &b""[..], 5);
        let row = Row { name, slot, owner, role, token, ttl_ms: 0, timestamp_us: 5 };
        effects.write(Write { id: WriteId::UNWATCHED, bucket: 1_023, row });
        effects.rows().map(|(_, _, values)| values.to_vec()).next().expect("a row")
    }

    #[test]
    fn rows_wait_in_order_and_there_are_so_many_at_most() {
        let mut backlog = Backlog::default();
        let (one, two) = (values(b"one", b"name"), values(b"two", b"name"));
        (0..40_000)
            .for_each(|number| backlog.keep(number, if number % 2 == 0 { &one } else { &two }));
        assert!(backlog.rows.len() == ROWS_MAX && !backlog.has_room(0, b"three"));
        let (first, values) = backlog.take().expect("the first");
        assert!(first == 0 && backlog.has_room(0, b"three") && !backlog.has_room(1, b"three"));
        backlog.put_back(first, values);
        assert_eq!(
            std::iter::from_fn(|| backlog.take()).map(|row| row.0).collect::<Vec<_>>(),
            (0..32_768).collect::<Vec<_>>()
        );
        assert_eq!((backlog.all, backlog.rows.capacity()), (Usage::default(), 0));
        assert!(backlog.by_role.is_empty());
    }

    #[test]
    fn the_bytes_of_all_rows_are_limited() {
        let mut backlog = Backlog::default();
        let long = vec![b'a'; BYTES_MAX / 4];
        for (number, role) in (0..).zip([b"one", b"two", b"six", b"ten", b"ann"]) {
            backlog.keep(number, &values(role, &long));
        }
        assert_eq!(backlog.rows.len(), 4);
    }

    #[test]
    fn a_roles_releases_have_half_and_others_have_room() {
        let mut backlog = Backlog::default();
        let one = values(b"one", b"name");
        (0..16_383).for_each(|number| backlog.keep(number, &one));
        assert!(backlog.has_room(0, b"one") && !backlog.has_room(1, b"one"));
        backlog.keep(16_383, &one);
        assert!(!backlog.has_room(0, b"one"));
        // Rows of holds whose time was over go on beyond that, but leave the others room, too.
        (16_384..40_000).for_each(|number| backlog.keep(number, &one));
        assert_eq!(backlog.rows.len(), 24_576);
        assert!(backlog.has_room(8_191, b"two") && !backlog.has_room(8_192, b"two"));
    }

    #[test]
    fn the_partition_is_read_from_a_row_as_it_is_written() {
        let mut effects = Effects::default();
        let row = Row {
            name: b"name",
            slot: b"",
            owner: b"",
            role: b"",
            token: 5,
            ttl_ms: 0,
            timestamp_us: 5,
        };
        effects.write(Write { id: WriteId::UNWATCHED, bucket: 1_023, row });
        assert_eq!(
            effects.rows().map(|(_, _, values)| bucket_of(values)).collect::<Vec<_>>(),
            [Some(1_023)]
        );
        assert_eq!(bucket_of(b""), None);
    }
}
