//! Merges rows, and drops expired and purgeable data from them.

use super::{Cell, CellValue, ColumnId, Deletion, Liveness, Row};
use std::cmp::Ordering;

impl Row {
    /// True if the row has no content.
    pub fn is_empty(&self) -> bool {
        self.liveness.is_none()
            && self.deletion.is_none()
            && self.complex.is_empty()
            && self.cells.is_empty()
    }

    /// True if a reader sees the row at `now` (s): it was inserted, or has a live value.
    pub fn is_live(&self, now: i64) -> bool {
        self.liveness.is_some_and(|liveness| liveness.is_live(now))
            || self.cells.iter().any(|cell| cell.is_live(now))
    }

    /// True if any cell is a counter.
    pub fn has_counter(&self) -> bool {
        self.cells.iter().any(Cell::is_counter)
    }

    /// True if the row has content that a reader may have seen, expired or not: an insertion or a
    /// value other than a counter.
    pub fn has_values(&self) -> bool {
        self.liveness.is_some()
            || self
                .cells
                .iter()
                .any(|cell| matches!(cell.value, CellValue::Live(_)) && !cell.is_key())
    }

    /// True if the row has only values: no counter, no expiry, no deletion.
    pub fn is_plain(&self) -> bool {
        self.deletion.is_none()
            && self.complex.is_empty()
            && self.liveness.is_none_or(|liveness| liveness.expiry.is_none())
            && self
                .cells
                .iter()
                .all(|cell| matches!(cell.value, CellValue::Live(_)) && cell.expiry.is_none())
    }

    /// Merges `newer` into this row. The order in the store matters only for counters and keys.
    pub fn merge(&mut self, newer: Row) {
        if newer.deletion.is_some() {
            // Counters have no client timestamps: a deletion removes all earlier deltas.
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

    /// Merges fragments, oldest first. Merges by halves: a collection written element by element is
    /// copied a logarithmic number of times, not once per element.
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

    /// True if the row is in canonical form, as far as a cheap check shows: a fragment with
    /// deletions may not be.
    pub(crate) fn is_canonical(&self) -> bool {
        self.deletion.is_none()
            && self.complex.is_empty()
            && self.cells.is_sorted_by(|left, right| left.place() < right.place())
    }

    /// Brings a hand-made fragment into canonical form; see [`Row`].
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

    /// Drops the values of cells expired at `now` (s), and drops tombstones, expired cells and
    /// deletions from before `gc_before` (s). `i64::MIN` keeps them all.
    ///
    /// Cassandra turns an expired cell into a tombstone. Here the cell stays an expired cell
    /// without its value: a tombstone would win over a later cell with the same timestamp and a
    /// longer TTL; the expired cell does not.
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
                // The second of the write, as for a tombstone.
                expiry.at.saturating_sub(i64::from(expiry.ttl)) >= gc_before
            }
            _ => true,
        });
        self.drop_lone_key();
    }

    /// Drops the written form of the key if no other content remains.
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

/// Both inputs are sorted by `key` without duplicates, and so is the result.
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

/// Like `merge_sorted`, for a key that borrows from the cell.
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
