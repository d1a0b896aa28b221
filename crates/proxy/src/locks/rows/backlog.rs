//! Free rows that could not be sent, until they are: a lock whose free row is lost is held for the
//! shard's next owner, for a whole TTL.
//!
//! There are so many at most. With as many as may be, no durable lock is released
//! ([`super::keeper`]): else whoever takes and releases locks faster than rows can be written would
//! leave behind holds that nobody has.

use std::collections::VecDeque;

/// Rows that are kept.
const ROWS_MAX: usize = 32_768;
/// Bytes of the rows that are kept.
const BYTES_MAX: usize = 16 << 20;

/// Rows: the timestamp, and the values as [`super::effects::Effects::rows`] has them.
#[derive(Default)]
pub(in crate::locks) struct Backlog {
    rows: VecDeque<(i64, Box<[u8]>)>,
    bytes: usize,
}

impl Backlog {
    /// True if there is room for so many more rows, whatever their names.
    pub(in crate::locks) fn has_room(&self, more: usize) -> bool {
        self.rows.len() + more < ROWS_MAX && self.bytes < BYTES_MAX
    }

    /// Keeps a row. Beyond the bound it is lost: that is of a hold whose time was over, or of one
    /// that nobody wanted.
    pub(in crate::locks) fn keep(&mut self, timestamp_us: i64, values: &[u8]) {
        if self.has_room(0) {
            self.bytes += values.len();
            self.rows.push_back((timestamp_us, values.into()));
        }
    }

    /// The row that has waited longest.
    pub(in crate::locks) fn take(&mut self) -> Option<(i64, Box<[u8]>)> {
        let row = self.rows.pop_front()?;
        self.bytes -= row.1.len();
        if self.rows.is_empty() {
            self.rows = VecDeque::new();
        }
        Some(row)
    }

    /// The same is to be the next again.
    pub(in crate::locks) fn put_back(&mut self, timestamp_us: i64, values: Box<[u8]>) {
        self.bytes += values.len();
        self.rows.push_front((timestamp_us, values));
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

    #[test]
    fn rows_wait_in_order_and_there_are_so_many_at_most() {
        let mut backlog = Backlog::default();
        (0..40_000).for_each(|number| backlog.keep(number, b"12345678"));
        assert!(backlog.rows.len() == ROWS_MAX && !backlog.has_room(0));
        let (first, values) = backlog.take().expect("the first");
        assert!(first == 0 && backlog.has_room(0) && !backlog.has_room(1));
        backlog.put_back(first, values);
        assert_eq!(
            std::iter::from_fn(|| backlog.take()).map(|row| row.0).collect::<Vec<_>>(),
            (0..32_768).collect::<Vec<_>>()
        );
        assert_eq!((backlog.bytes, backlog.rows.capacity()), (0, 0));
        let long = vec![0; BYTES_MAX / 2];
        (0..3).for_each(|number| backlog.keep(number, &long));
        assert_eq!(backlog.rows.len(), 2);
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
