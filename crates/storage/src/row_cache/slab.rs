//! Numbered slots of resident rows, in chunks: growing allocates one more chunk and moves nothing.

use super::memory::Resident;

/// No slot.
pub(super) const NIL: u32 = u32::MAX;

const CHUNK_ROWS: usize = 64;

enum Place {
    Taken(Resident),
    /// Number of the next free slot, or `NIL`.
    Free(u32),
}

pub(super) struct Slab {
    chunks: Vec<Vec<Place>>,
    free: u32,
}

impl Slab {
    pub(super) fn new() -> Self {
        Slab { chunks: Vec::new(), free: NIL }
    }

    pub(super) fn add(&mut self, resident: Resident) -> u32 {
        if self.free == NIL {
            self.grow();
        }
        let place = self.free;
        let (chunk, at) = split(place);
        if let Place::Free(next) =
            std::mem::replace(&mut self.chunks[chunk][at], Place::Taken(resident))
        {
            self.free = next;
        }
        place
    }

    pub(super) fn get(&self, place: u32) -> Option<&Resident> {
        let (chunk, at) = split(place);
        match self.chunks.get(chunk)?.get(at)? {
            Place::Taken(resident) => Some(resident),
            Place::Free(_) => None,
        }
    }

    pub(super) fn get_mut(&mut self, place: u32) -> Option<&mut Resident> {
        let (chunk, at) = split(place);
        match self.chunks.get_mut(chunk)?.get_mut(at)? {
            Place::Taken(resident) => Some(resident),
            Place::Free(_) => None,
        }
    }

    pub(super) fn take(&mut self, place: u32) -> Option<Resident> {
        self.get(place)?;
        let (chunk, at) = split(place);
        match std::mem::replace(&mut self.chunks[chunk][at], Place::Free(self.free)) {
            Place::Taken(resident) => {
                self.free = place;
                Some(resident)
            }
            Place::Free(_) => None,
        }
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        self.chunks.len() * CHUNK_ROWS * size_of::<Place>()
            + self.chunks.capacity() * size_of::<Vec<Place>>()
    }

    fn grow(&mut self) {
        let first = (self.chunks.len() * CHUNK_ROWS) as u32;
        let last = first + CHUNK_ROWS as u32 - 1;
        let links =
            (first..=last).map(|place| Place::Free(if place == last { NIL } else { place + 1 }));
        self.chunks.push(links.collect());
        self.free = first;
    }
}

fn split(place: u32) -> (usize, usize) {
    (place as usize / CHUNK_ROWS, place as usize % CHUNK_ROWS)
}
