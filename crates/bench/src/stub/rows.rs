//! The rows of the bench table: the newest value of each key, by Cassandra's rules.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

/// The written rows, shared by all nodes of a consistent ring.
pub type Memory = Arc<Mutex<Rows>>;

/// The rows of the bench table.
///
/// A write without a timestamp is always the newest, because a node stamps it when it executes it.
/// So a write that was delayed overrides later ones, as in Cassandra.
#[derive(Debug, Default)]
pub struct Rows {
    by_key: HashMap<Vec<u8>, Cell>,
}

#[derive(Debug)]
struct Cell {
    /// Timestamp of the write, in microseconds.
    written_us: i64,
    /// The value; `None` for a deletion.
    value: Option<Vec<u8>>,
}

impl Rows {
    /// Writes a value, or deletes it with `None`. Of two writes with the same timestamp a deletion
    /// wins, then the greater value.
    pub fn write(&mut self, key: &[u8], value: Option<&[u8]>, timestamp_us: Option<i64>) {
        let before = self.by_key.get(key);
        let written_us = timestamp_us
            .unwrap_or_else(|| before.map_or(i64::MIN, |cell| cell.written_us.saturating_add(1)));
        if before.is_none_or(|cell| {
            order(cell.written_us, cell.value.as_deref()) < order(written_us, value)
        }) {
            self.by_key.insert(key.to_vec(), Cell { written_us, value: value.map(<[u8]>::to_vec) });
        }
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.by_key.get(key)?.value.as_deref()
    }

    /// Iterates over the keys with a value, in any order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.by_key.iter().filter_map(|(key, cell)| Some((key.as_slice(), cell.value.as_deref()?)))
    }

    /// Returns the number of keys with a value.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// True if no key has a value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes every trace of writes to this key.
    pub fn forget(&mut self, key: &[u8]) {
        self.by_key.remove(key);
    }
}

/// Sort key of writes; the greater one is newer.
fn order(written_us: i64, value: Option<&[u8]>) -> (i64, bool, Option<&[u8]>) {
    (written_us, value.is_none(), value)
}

#[cfg(test)]
mod tests {
    use super::Rows;

    #[test]
    fn the_newest_stays() {
        let mut rows = Rows::default();
        rows.write(b"k", Some(b"b"), Some(5));
        rows.write(b"k", Some(b"z"), Some(4));
        rows.write(b"k", Some(b"a"), Some(5));
        assert_eq!(rows.get(b"k"), Some(&b"b"[..]), "an older one, or as old and smaller");
        rows.write(b"k", None, Some(5));
        assert_eq!((rows.get(b"k"), rows.len()), (None, 0));
        rows.write(b"k", Some(b"c"), Some(6));
        assert_eq!(rows.get(b"k"), Some(&b"c"[..]));
    }

    #[test]
    fn without_a_timestamp_the_last_to_come_is_the_newest() {
        let mut rows = Rows::default();
        for value in [b"a", b"c", b"b"] {
            rows.write(b"k", Some(value), None);
            assert_eq!(rows.get(b"k"), Some(&value[..]));
        }
        rows.write(b"k", Some(b"d"), Some(1_000_000));
        rows.write(b"k", Some(b"a"), None);
        assert_eq!(rows.iter().collect::<Vec<_>>(), [(&b"k"[..], &b"a"[..])]);
    }
}
