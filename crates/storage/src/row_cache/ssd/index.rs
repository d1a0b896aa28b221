//! Locations of one shard's rows on the SSD: eight bytes a row and no keys.
//!
//! Buckets of eight entries, one cache line each; a row may be in either of two. An entry is `tag
//! (24 bits) | referenced (1) | page (31) | slot (8)`. The tag confuses two rows of a bucket once
//! in sixteen million; the key in the record resolves that at the cost of one read. A row never has
//! two entries, so a look-up names at most one page. A look-up takes a shared lock: it only sets
//! the reference bit, atomically.

use std::sync::atomic::{AtomicU64, Ordering};

use super::super::key::mix;

const WAYS: usize = 8;
const TAG_SHIFT: u32 = 40;
const REFERENCED: u64 = 1 << 39;
const LOCATION_MASK: u64 = REFERENCED - 1;
/// Load in percent that two choices of eight reach before more than one or two rows in a thousand
/// find no room.
const LOAD_PERCENT: usize = 85;
/// Pages have 31 bits; page 0 stays unused, so that no entry is zero.
pub(crate) const PAGES_MAX: u64 = (1 << 31) - 1;

/// A page of the log and a slot in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) page: u32,
    pub(crate) slot: u8,
}

impl Location {
    fn bits(self) -> u64 {
        u64::from(self.page) << 8 | u64::from(self.slot)
    }

    fn of(entry: u64) -> Self {
        Location { page: ((entry & LOCATION_MASK) >> 8) as u32, slot: entry as u8 }
    }
}

#[repr(align(64))]
#[derive(Default)]
struct Bucket([AtomicU64; WAYS]);

pub(crate) struct SsdIndex {
    buckets: Box<[Bucket]>,
    entries: usize,
}

impl SsdIndex {
    /// An index with room for `rows` rows.
    pub(crate) fn new(rows: usize) -> Self {
        let buckets = (rows * 100).div_ceil(LOAD_PERCENT * WAYS).max(2);
        SsdIndex { buckets: (0..buckets).map(|_| Bucket::default()).collect(), entries: 0 }
    }

    /// Location of the row, if any; marks it as referenced.
    pub(crate) fn reference(&self, hash: u64) -> Option<Location> {
        let (place, entry) = self.find(hash)?;
        if entry & REFERENCED == 0 {
            place.fetch_or(REFERENCED, Ordering::Relaxed);
        }
        Some(Location::of(entry))
    }

    pub(crate) fn contains(&self, hash: u64) -> bool {
        self.find(hash).is_some()
    }

    /// Checks whether the row is at this place, and if so whether it was referenced since it was
    /// put there.
    pub(crate) fn referenced_at(&self, hash: u64, location: Location) -> Option<bool> {
        let (_, entry) = self.find(hash)?;
        (Location::of(entry) == location).then_some(entry & REFERENCED != 0)
    }

    /// Points the row to a new, unreferenced place. Returns the place that was displaced: the row's
    /// old one, or that of an evicted row.
    pub(crate) fn put(&mut self, hash: u64, location: Location) -> Option<Location> {
        let entry = tag(hash) << TAG_SHIFT | location.bits();
        if let Some((place, old)) = self.find(hash) {
            place.store(entry, Ordering::Relaxed);
            return Some(Location::of(old));
        }
        let (first, second) = self.pair(hash);
        let free =
            |bucket: usize| self.buckets[bucket].0.iter().filter(|place| is_free(place)).count();
        let bucket = if free(first) >= free(second) { first } else { second };
        let ways = &self.buckets[bucket].0;
        if let Some(place) = ways.iter().find(|place| is_free(place)) {
            place.store(entry, Ordering::Relaxed);
            self.entries += 1;
            return None;
        }
        // Both buckets are full: evicts an entry, preferably an unreferenced one.
        let unreferenced = |place: &&AtomicU64| place.load(Ordering::Relaxed) & REFERENCED == 0;
        let victim = ways.iter().find(unreferenced).unwrap_or(&ways[hash as usize % WAYS]);
        Some(Location::of(victim.swap(entry, Ordering::Relaxed)))
    }

    /// Removes the row and returns its place.
    pub(crate) fn remove(&mut self, hash: u64) -> Option<Location> {
        let (place, entry) = self.find(hash)?;
        place.store(0, Ordering::Relaxed);
        self.entries -= 1;
        Some(Location::of(entry))
    }

    /// Removes the row if it is still at this place.
    pub(crate) fn remove_at(&mut self, hash: u64, location: Location) -> bool {
        self.referenced_at(hash, location).is_some() && self.remove(hash).is_some()
    }

    /// Removes every row on these pages, reporting the place of each; returns their number.
    pub(crate) fn remove_pages(
        &mut self,
        pages: std::ops::Range<u32>,
        mut removed_at: impl FnMut(Location),
    ) -> u32 {
        let mut removed = 0;
        for place in self.buckets.iter().flat_map(|bucket| &bucket.0) {
            let entry = place.load(Ordering::Relaxed);
            if entry != 0 && pages.contains(&Location::of(entry).page) {
                place.store(0, Ordering::Relaxed);
                removed_at(Location::of(entry));
                removed += 1;
            }
        }
        self.entries -= removed as usize;
        removed
    }

    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    pub(crate) fn allocated_bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    fn find(&self, hash: u64) -> Option<(&AtomicU64, u64)> {
        let (first, second) = self.pair(hash);
        let wanted = tag(hash);
        let in_bucket = |bucket: usize| {
            let entries =
                self.buckets[bucket].0.iter().map(|place| (place, place.load(Ordering::Relaxed)));
            entries.into_iter().find(|(_, entry)| entry >> TAG_SHIFT == wanted && *entry != 0)
        };
        in_bucket(first).or_else(|| in_bucket(second))
    }

    fn pair(&self, hash: u64) -> (usize, usize) {
        let scale =
            |bits: u64| (((bits & u64::from(u32::MAX)) * self.buckets.len() as u64) >> 32) as usize;
        (scale(hash), scale(mix(hash)))
    }
}

/// Bits 38 to 61: the buckets take the lower 32, the shard the six between.
fn tag(hash: u64) -> u64 {
    hash >> 38 & 0xff_ffff
}

fn is_free(place: &AtomicU64) -> bool {
    place.load(Ordering::Relaxed) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u32) -> Location {
        Location { page: number + 1, slot: (number % 200) as u8 }
    }

    #[test]
    fn a_full_index_loses_few_rows_and_needs_nine_and_a_half_bytes_a_row() {
        let rows = 100_000;
        let mut index = SsdIndex::new(rows);
        let lost = (0..rows as u32)
            .filter(|row| index.put(mix(u64::from(*row)), at(*row)).is_some())
            .count();
        assert!(lost < rows / 500, "{lost} rows found no room");
        assert_eq!(index.entries(), rows - lost);
        let bytes_per_row = index.allocated_bytes() as f64 / rows as f64;
        assert!(bytes_per_row < 9.5, "{bytes_per_row} bytes a row");
    }

    #[test]
    fn rows_that_are_not_there_are_not_found() {
        let mut index = SsdIndex::new(100_000);
        (0..100_000).for_each(|row| _ = index.put(mix(row), at(row as u32)));
        let found = (100_000..400_000).filter(|row| index.contains(mix(*row))).count();
        assert!(found < 10, "{found} of 300,000 look-ups met a foreign tag");
    }

    #[test]
    fn a_row_has_one_place_and_its_reference_goes_with_it() {
        let mut index = SsdIndex::new(100);
        let hash = mix(7);
        assert_eq!(index.put(hash, at(1)), None);
        assert_eq!(index.referenced_at(hash, at(1)), Some(false));
        assert_eq!(index.reference(hash), Some(at(1)));
        assert_eq!(index.referenced_at(hash, at(1)), Some(true));
        assert_eq!(index.put(hash, at(2)), Some(at(1)));
        assert_eq!(index.referenced_at(hash, at(2)), Some(false));
        assert!(!index.remove_at(hash, at(1)), "another place");
        assert!(index.remove_at(hash, at(2)));
        assert_eq!((index.entries(), index.reference(hash)), (0, None));
    }

    #[test]
    fn pages_are_swept() {
        let mut index = SsdIndex::new(1_000);
        (0..900).for_each(|row| _ = index.put(mix(row), at(row as u32)));
        let before = index.entries();
        let removed = index.remove_pages(101..201, drop);
        assert!((95..=100).contains(&removed), "{removed} of 100");
        assert_eq!(index.entries(), before - removed as usize);
        assert!((100..200).all(|row| !index.contains(mix(row))));
        assert!(index.contains(mix(99)) && index.contains(mix(200)));
    }
}
