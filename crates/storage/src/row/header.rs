//! A partition's header: the deletions that cover more than one row.

use super::{Bytes, Deletion};
use std::cmp::Ordering;
use std::ops::Bound;

/// A place between two rows of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cut {
    /// Before every row.
    Start,
    /// Before the row of these clustering bytes.
    Before(Bytes),
    /// After it.
    After(Bytes),
    /// After every row.
    End,
}

impl Cut {
    fn rank(&self) -> (u8, &[u8], u8) {
        match self {
            Cut::Start => (0, &[], 0),
            Cut::Before(bytes) => (1, bytes, 0),
            Cut::After(bytes) => (1, bytes, 1),
            Cut::End => (2, &[], 0),
        }
    }

    fn is_before(&self, clustering: &[u8]) -> bool {
        self.rank() <= (1, clustering, 0)
    }
}

impl Ord for Cut {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Cut {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The deletion of all rows between two cuts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeTombstone {
    /// Where it begins.
    pub start: Cut,
    /// Where it ends.
    pub end: Cut,
    /// What it deletes there.
    pub deletion: Deletion,
}

impl RangeTombstone {
    /// From bounds as a statement has them.
    pub fn new(start: Bound<Bytes>, end: Bound<Bytes>, deletion: Deletion) -> Self {
        let start = match start {
            Bound::Included(bytes) => Cut::Before(bytes),
            Bound::Excluded(bytes) => Cut::After(bytes),
            Bound::Unbounded => Cut::Start,
        };
        let end = match end {
            Bound::Included(bytes) => Cut::After(bytes),
            Bound::Excluded(bytes) => Cut::Before(bytes),
            Bound::Unbounded => Cut::End,
        };
        RangeTombstone { start, end, deletion }
    }

    /// As bounds of a read.
    pub fn bounds(&self) -> (Bound<Bytes>, Bound<Bytes>) {
        let start = match &self.start {
            Cut::Before(bytes) => Bound::Included(bytes.clone()),
            Cut::After(bytes) => Bound::Excluded(bytes.clone()),
            Cut::Start | Cut::End => Bound::Unbounded,
        };
        let end = match &self.end {
            Cut::After(bytes) => Bound::Included(bytes.clone()),
            Cut::Before(bytes) => Bound::Excluded(bytes.clone()),
            Cut::Start | Cut::End => Bound::Unbounded,
        };
        (start, end)
    }
}

/// The deletions of a partition, or a fragment of them.
///
/// In canonical form ([`Header::canonicalise`]) ranges are sorted, do not overlap, touch only if their deletions
/// differ, and each supersedes the deletion of the partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    /// Of the whole partition, the static row included.
    pub deletion: Option<Deletion>,
    /// Of ranges of rows.
    pub ranges: Vec<RangeTombstone>,
}

impl Header {
    /// Whether nothing is deleted.
    pub fn is_empty(&self) -> bool {
        self.deletion.is_none() && self.ranges.is_empty()
    }

    /// Merges another fragment into this one: everywhere the superseding deletion stays.
    pub fn merge(&mut self, other: Header) {
        self.deletion = self.deletion.max(other.deletion);
        self.ranges = merge_ranges(std::mem::take(&mut self.ranges), other.ranges);
        self.drop_covered();
    }

    /// Brings a fragment made by hand into canonical form.
    pub fn canonicalise(&mut self) {
        self.ranges.retain(|range| range.start < range.end);
        self.ranges = canonical_ranges(std::mem::take(&mut self.ranges));
        self.drop_covered();
    }

    /// What is deleted at the row of these clustering bytes.
    pub fn covering(&self, clustering: &[u8]) -> Option<Deletion> {
        let after = self.ranges.partition_point(|range| range.start.is_before(clustering));
        let range = after.checked_sub(1).map(|at| &self.ranges[at]);
        let ranged = range.filter(|range| !range.end.is_before(clustering)).map(|range| range.deletion);
        self.deletion.max(ranged)
    }

    /// Drops what `swept` deletes as well, wherever it is dropped: for when the rows that `swept` covers know it themselves.
    /// What came since stays, however old it says that it is.
    pub fn forget(&mut self, swept: &Header) {
        self.deletion = self.deletion.filter(|deletion| swept.deletion.is_none_or(|swept| *deletion > swept));
        self.ranges.retain(|range| {
            let within = |other: &&RangeTombstone| other.start <= range.start && range.end <= other.end;
            let ranged = swept.ranges.iter().find(within).map(|range| range.deletion);
            swept.deletion.max(ranged).is_none_or(|swept| range.deletion > swept)
        });
    }

    fn drop_covered(&mut self) {
        if let Some(deletion) = self.deletion {
            self.ranges.retain(|range| range.deletion > deletion);
        }
    }
}

/// Of ranges in any order; by halves, so that thousands of them do not take the square of that.
fn canonical_ranges(mut ranges: Vec<RangeTombstone>) -> Vec<RangeTombstone> {
    if ranges.len() <= 1 {
        return ranges;
    }
    let upper = ranges.split_off(ranges.len() / 2);
    merge_ranges(canonical_ranges(ranges), canonical_ranges(upper))
}

/// Both canonical, as is the result: walks along all cuts of both.
fn merge_ranges(left: Vec<RangeTombstone>, right: Vec<RangeTombstone>) -> Vec<RangeTombstone> {
    if left.is_empty() {
        return right;
    }
    if right.is_empty() {
        return left;
    }
    let mut cuts: Vec<&Cut> = left.iter().chain(&right).flat_map(|range| [&range.start, &range.end]).collect();
    cuts.sort();
    cuts.dedup();
    let mut merged: Vec<RangeTombstone> = Vec::with_capacity(left.len() + right.len());
    let (mut in_left, mut in_right) = (0, 0);
    for pair in cuts.windows(2) {
        let (start, end) = (pair[0], pair[1]);
        let here = deletion_at(&left, &mut in_left, start).max(deletion_at(&right, &mut in_right, start));
        let Some(deletion) = here else { continue };
        match merged.last_mut().filter(|last| last.end == *start && last.deletion == deletion) {
            Some(last) => last.end = end.clone(),
            None => merged.push(RangeTombstone { start: start.clone(), end: end.clone(), deletion }),
        }
    }
    merged
}

/// The deletion of the range that begins at `cut` or before and ends after it; `next` only ever moves on.
fn deletion_at(ranges: &[RangeTombstone], next: &mut usize, cut: &Cut) -> Option<Deletion> {
    while ranges.get(*next).is_some_and(|range| range.end <= *cut) {
        *next += 1;
    }
    ranges.get(*next).filter(|range| range.start <= *cut).map(|range| range.deletion)
}
