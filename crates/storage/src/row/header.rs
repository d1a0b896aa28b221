//! A partition's header: the deletions that cover more than one row.

use super::{Bytes, Deletion};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Bound;

/// A place between two rows of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cut {
    /// Before every row.
    Start,
    /// Before the row with these clustering bytes.
    Before(Bytes),
    /// After the row with these clustering bytes.
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
    /// Start of the range.
    pub start: Cut,
    /// End of the range.
    pub end: Cut,
    /// Deletion of the rows in the range.
    pub deletion: Deletion,
}

impl RangeTombstone {
    /// A range from the bounds of a statement.
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

    /// The range as bounds of a read.
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
/// In canonical form ([`Header::canonicalise`]) ranges are sorted, do not overlap, touch only if
/// their deletions differ, and each supersedes the deletion of the partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    /// The deletion of the whole partition, the static row included.
    pub deletion: Option<Deletion>,
    /// The deletions of ranges of rows.
    pub ranges: Vec<RangeTombstone>,
}

impl Header {
    /// True if the header deletes nothing.
    pub fn is_empty(&self) -> bool {
        self.deletion.is_none() && self.ranges.is_empty()
    }

    /// Merges another fragment into this one: at every place the superseding deletion wins.
    pub fn merge(&mut self, other: Header) {
        *self = Header::merge_all([std::mem::take(self), other]);
    }

    /// Merges fragments in any order and number: n ranges take n log n steps, however they are
    /// spread over fragments.
    pub fn merge_all(fragments: impl IntoIterator<Item = Header>) -> Header {
        let mut merged = Header::default();
        let mut several = false;
        for mut fragment in fragments {
            merged.deletion = merged.deletion.max(fragment.deletion);
            if merged.ranges.is_empty() {
                merged.ranges = fragment.ranges;
            } else if !fragment.ranges.is_empty() {
                several = true;
                merged.ranges.append(&mut fragment.ranges);
            }
        }
        if several {
            merged.ranges = canonical_ranges(merged.ranges);
        }
        merged.drop_covered();
        merged
    }

    /// Brings a hand-made fragment into canonical form.
    pub fn canonicalise(&mut self) {
        self.ranges.retain(|range| range.start < range.end);
        self.ranges = canonical_ranges(std::mem::take(&mut self.ranges));
        self.drop_covered();
    }

    /// Returns the deletion at the row with these clustering bytes.
    pub fn covering(&self, clustering: &[u8]) -> Option<Deletion> {
        let after = self.ranges.partition_point(|range| range.start.is_before(clustering));
        let range = after.checked_sub(1).map(|at| &self.ranges[at]);
        let ranged =
            range.filter(|range| !range.end.is_before(clustering)).map(|range| range.deletion);
        self.deletion.max(ranged)
    }

    /// Drops the deletions that `swept` contains, once the rows that `swept` covers hold them.
    /// Later deletions stay, whatever their timestamp.
    pub fn forget(&mut self, swept: &Header) {
        self.deletion =
            self.deletion.filter(|deletion| swept.deletion.is_none_or(|swept| *deletion > swept));
        self.ranges.retain(|range| {
            let after = swept.ranges.partition_point(|other| other.start <= range.start);
            let around = after
                .checked_sub(1)
                .map(|at| &swept.ranges[at])
                .filter(|other| range.end <= other.end);
            let ranged = around.map(|other| other.deletion);
            swept.deletion.max(ranged).is_none_or(|swept| range.deletion > swept)
        });
    }

    fn drop_covered(&mut self) {
        if let Some(deletion) = self.deletion {
            self.ranges.retain(|range| range.deletion > deletion);
        }
    }
}

/// A range open at the current place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Open<'a> {
    deletion: Deletion,
    end: &'a Cut,
}

/// Makes the canonical form of nonempty ranges in any order. One pass over all cuts, with the
/// deletions over the current place in a heap: n ranges take n log n steps, and only the result
/// copies cuts.
fn canonical_ranges(mut ranges: Vec<RangeTombstone>) -> Vec<RangeTombstone> {
    if ranges.len() <= 1 {
        return ranges;
    }
    // Consecutive canonical fragments are sorted runs, which the sort only has to merge.
    ranges.sort_by(|left, right| left.start.cmp(&right.start));
    let mut cuts: Vec<&Cut> = ranges.iter().flat_map(|range| [&range.start, &range.end]).collect();
    cuts.sort();
    cuts.dedup();
    let mut merged: Vec<RangeTombstone> = Vec::with_capacity(ranges.len());
    let mut open: BinaryHeap<Open<'_>> = BinaryHeap::new();
    let mut begins = ranges.iter().peekable();
    // The current deletion and its start.
    let mut current: Option<(Deletion, &Cut)> = None;
    for cut in cuts {
        while let Some(range) = begins.next_if(|range| range.start == *cut) {
            open.push(Open { deletion: range.deletion, end: &range.end });
        }
        // Ended ranges below the strongest are dropped when they reach the top.
        while open.peek().is_some_and(|top| top.end <= cut) {
            open.pop();
        }
        let here = open.peek().map(|top| top.deletion);
        if current.map(|(deletion, _)| deletion) != here {
            if let Some((deletion, start)) = current {
                merged.push(RangeTombstone { start: start.clone(), end: cut.clone(), deletion });
            }
            current = here.map(|deletion| (deletion, cut));
        }
    }
    merged
}
