//! The rows of the bench table: of each key the newest value, as Cassandra decides which that is.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

/// The rows that were written, shared by all nodes that should agree.
pub type Memory = Arc<Mutex<Rows>>;

/// The rows of the bench table.
///
/// A write without a timestamp is the newest whenever it comes, because a node stamps it with the
/// time at which it carries it out; so one that lay somewhere for long takes back what was written
/// meanwhile, as it does in Cassandra.
#[derive(Debug, Default)]
pub struct Rows {
    by_key: HashMap<Vec<u8>, Cell>,
}

#[derive(Debug)]
struct Cell {
    /// Microseconds.
    written_us: i64,
    /// `None`: deleted.
    value: Option<Vec<u8>>,
}

impl Rows {
    /// Writes a value, or deletes it with `None`. Of two writes of one time a deletion is the newer
    /// one, then the greater value.
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

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.by_key.get(key)?.value.as_deref()
    }

    /// All keys that have a value, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.by_key.iter().filter_map(|(key, cell)| Some((key.as_slice(), cell.value.as_deref()?)))
    }

    /// Number of keys that have a value.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// True if no key has a value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// As if nothing had been written to this key.
    pub fn forget(&mut self, key: &[u8]) {
        self.by_key.remove(key);
    }
}

/// By which of two writes the newer is found.
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
