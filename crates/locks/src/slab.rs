//! Entries under small numbers that are reused.

use std::ops::{Index, IndexMut};

/// Stands for no entry.
pub(crate) const NIL: u32 = u32::MAX;

/// Entries by number. A removed entry keeps its place, so that in steady state nothing is
/// allocated.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Slab<T> {
    entries: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, entry: T) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        }
    }

    /// Takes a free number whose entry is left as it was, for callers that reuse its allocations.
    pub(crate) fn take_free(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Frees a number; the entry stays as it is until the number is used again.
    pub(crate) fn remove(&mut self, index: u32) {
        self.free.push(index);
    }

    /// Number of entries in use.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Number of places, which [`Self::all`] visits: in use or not.
    pub(crate) fn places(&self) -> usize {
        self.entries.len()
    }

    /// Entries with their numbers, in order, including removed ones as they were left.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &T)> {
        self.entries.iter().enumerate().map(|(index, entry)| (index as u32, entry))
    }

    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.entries.get(index as usize)
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: u32) -> &T {
        &self.entries[index as usize]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.entries[index as usize]
    }
}
