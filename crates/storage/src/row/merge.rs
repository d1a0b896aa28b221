//! Merging rows, and taking out of them what has expired or may be forgotten.

use super::{Cell, CellValue, ColumnId, Deletion, Liveness, Row};
use std::cmp::Ordering;

impl Row {
    /// True if it says nothing at all.
    pub fn is_empty(&self) -> bool {
        self.liveness.is_none()
            && self.deletion.is_none()
            && self.complex.is_empty()
            && self.cells.is_empty()
    }

    /// True if a reader sees the row at `now` (s): it was inserted, or has a value.
    pub fn is_live(&self, now: i64) -> bool {
        self.liveness.is_some_and(|liveness| liveness.is_live(now))
            || self.cells.iter().any(|cell| cell.is_live(now))
    }

    /// True if any cell is a counter.
    pub fn has_counter(&self) -> bool {
        self.cells.iter().any(Cell::is_counter)
    }

    /// True if it has anything that a reader may have seen, expired or not: it was inserted, or has
    /// a value. Counters are none.
    pub fn has_values(&self) -> bool {
        self.liveness.is_some()
            || self
                .cells
                .iter()
                .any(|cell| matches!(cell.value, CellValue::Live(_)) && !cell.is_key())
    }

    /// True if it has values and nothing else: no counter, nothing that expires, nothing that
    /// deletes.
    pub fn is_plain(&self) -> bool {
        self.deletion.is_none()
            && self.complex.is_empty()
            && self.liveness.is_none_or(|liveness| liveness.expiry.is_none())
            && self
                .cells
                .iter()
                .all(|cell| matches!(cell.value, CellValue::Live(_)) && cell.expiry.is_none())
    }

    /// Merges `newer` into this row. Which of the two is newer in the store matters for counters
    /// and keys alone.
    pub fn merge(&mut self, newer: Row) {
        if newer.deletion.is_some() {
            // Counters have no timestamps of clients: a deletion takes what was added before it
            // came.
            self.cells.retain(|cell| !cell.is_counter());
        }
        self.deletion = self.deletion.max(newer.deletion);
        self.liveness = match (self.liveness, newer.liveness) {
            (Some(mine), Some(other)) => {
                Some(if mine.rank() >= other.rank() { mine } else { other })
            }
            (mine, other) => mine.or(other),
        };
        self.complex = merge_sorted(
            std::mem::take(&mut self.complex),
            newer.complex,
            |pair| pair.0,
            max_deletion,
        );
        self.cells = merge_cells(std::mem::take(&mut self.cells), newer.cells);
        self.drop_covered();
    }

    /// Merges fragments, oldest first. By halves: a collection written element by element is taken
    /// up as often as it can be halved, and not once for each element.
    pub fn merge_all(mut fragments: Vec<Row>) -> Row {
        if fragments.len() > 2 {
            let newer = fragments.split_off(fragments.len() / 2);
            fragments = vec![Row::merge_all(fragments), Row::merge_all(newer)];
        }
        let merged = fragments.into_iter().reduce(|mut older, newer| {
            older.merge(newer);
            older
        });
        merged.unwrap_or_default()
    }

    /// Drops everything that `deletion`, of the partition or of a range around the row, covers.
    pub fn cover(&mut self, deletion: Deletion) {
        self.liveness = self.liveness.filter(|liveness| !deletion.covers(liveness.timestamp));
        self.deletion = self.deletion.filter(|own| *own > deletion);
        self.complex.retain(|(_, own)| *own > deletion);
        self.cells.retain(|cell| cell.is_key() || !deletion.covers(cell.timestamp));
        self.drop_lone_key();
    }

    /// True if it is in canonical form as far as that is cheap to see: a fragment with deletions
    /// may not be.
    pub(crate) fn is_canonical(&self) -> bool {
        self.deletion.is_none()
            && self.complex.is_empty()
            && self.cells.is_sorted_by(|left, right| left.place() < right.place())
    }

    /// Brings a fragment made by hand into canonical form; see [`Row`].
    pub fn canonicalise(&mut self) {
        if !self.complex.is_sorted_by(|left, right| left.0 < right.0) {
            self.complex.sort();
            // Sorted by column, then deletion: the later one of a column supersedes.
            self.complex.reverse();
            self.complex.dedup_by_key(|pair| pair.0);
            self.complex.reverse();
        }
        if !self.cells.is_sorted_by(|left, right| left.place() < right.place()) {
            let mut cells = std::mem::take(&mut self.cells);
            cells.sort_by(|left, right| left.place().cmp(&right.place()));
            for cell in cells {
                match self.cells.pop_if(|last| last.place() == cell.place()) {
                    Some(last) => self.cells.push(Cell::reconcile(last, cell)),
                    None => self.cells.push(cell),
                }
            }
        }
        self.drop_covered();
    }

    fn drop_covered(&mut self) {
        if let Some(deletion) = self.deletion {
            self.liveness = self.liveness.filter(|liveness| !deletion.covers(liveness.timestamp));
            self.complex.retain(|(_, own)| *own > deletion);
            self.cells.retain(|cell| {
                cell.is_counter() || cell.is_key() || !deletion.covers(cell.timestamp)
            });
        }
        if !self.complex.is_empty() {
            let complex = &self.complex;
            self.cells.retain(|cell| {
                let deletion = complex
                    .binary_search_by_key(&cell.column, |pair| pair.0)
                    .ok()
                    .map(|at| complex[at].1);
                cell.is_counter()
                    || deletion.is_none_or(|deletion| !deletion.covers(cell.timestamp))
            });
        }
    }

    /// Takes the values out of what has expired at `now` (s), and drops tombstones, expired cells
    /// and deletions from before `gc_before` (s). `i64::MIN` keeps them all.
    ///
    /// Cassandra turns an expired cell into a tombstone. Here it stays what it is, without its
    /// value: a tombstone would win against a cell of the same timestamp and a longer TTL that
    /// comes later, which the expired cell does not.
    pub fn purge(&mut self, now: i64, gc_before: i64) {
        let collectable = |liveness: &Liveness| {
            !liveness.is_live(now) && liveness.expiry.is_some_and(|expiry| expiry.at < gc_before)
        };
        self.liveness = self.liveness.filter(|liveness| !collectable(liveness));
        self.deletion = self.deletion.filter(|deletion| deletion.local >= gc_before);
        self.complex.retain(|(_, deletion)| deletion.local >= gc_before);
        self.cells.retain_mut(|cell| match (&mut cell.value, cell.expiry) {
            (CellValue::Tombstone { local }, _) => *local >= gc_before,
            (CellValue::Live(value), Some(expiry)) if expiry.at <= now => {
                *value = Vec::new();
                // The second in which it was written, as of a tombstone.
                expiry.at.saturating_sub(i64::from(expiry.ttl)) >= gc_before
            }
            _ => true,
        });
        self.drop_lone_key();
    }

    /// Where nothing else is left to say, how the key was written is nothing either.
    fn drop_lone_key(&mut self) {
        let says_more =
            self.liveness.is_some() || self.deletion.is_some() || !self.complex.is_empty();
        if !says_more && self.cells.iter().all(Cell::is_key) {
            self.cells.clear();
        }
    }
}

fn max_deletion(left: (ColumnId, Deletion), right: (ColumnId, Deletion)) -> (ColumnId, Deletion) {
    left.max(right)
}

/// Both sorted by `key` without repetition, as is the result.
fn merge_sorted<T, K: Ord>(
    left: Vec<T>,
    right: Vec<T>,
    key: impl Fn(&T) -> K,
    join: impl Fn(T, T) -> T,
) -> Vec<T> {
    if left.is_empty() {
        return right;
    }
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(mine), Some(other)) = (left.peek(), right.peek()) {
        match key(mine).cmp(&key(other)) {
            Ordering::Less => merged.extend(left.next()),
            Ordering::Greater => merged.extend(right.next()),
            Ordering::Equal => {
                merged.extend(left.next().zip(right.next()).map(|(mine, other)| join(mine, other)))
            }
        }
    }
    merged.extend(left);
    merged.extend(right);
    merged
}

/// As `merge_sorted`, for a key that borrows from the cell.
fn merge_cells(left: Vec<Cell>, right: Vec<Cell>) -> Vec<Cell> {
    if left.is_empty() {
        return right;
    }
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(mine), Some(other)) = (left.peek(), right.peek()) {
        match mine.place().cmp(&other.place()) {
            Ordering::Less => merged.extend(left.next()),
            Ordering::Greater => merged.extend(right.next()),
            Ordering::Equal => {
                merged.extend(
                    left.next().zip(right.next()).map(|(mine, other)| Cell::reconcile(mine, other)),
                );
            }
        }
    }
    merged.extend(left);
    merged.extend(right);
    merged
}
