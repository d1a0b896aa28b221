//! Names, owners and roles: short texts that are compared often and stored once.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use crate::slab::Slab;

/// A lock's name: up to 15 bytes inline, longer ones in [`LongNames`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    /// Length; with [`LONG`] the bytes are the number of a long name.
    length: u8,
    bytes: [u8; INLINE_BYTES],
}

const INLINE_BYTES: usize = 15;
const LONG: u8 = u8::MAX;

/// A forgotten text leaves its allocation to the next one, unless it is larger than this.
const ROOM_KEPT_BYTES: usize = 128;

fn give_back(room: &mut Vec<u8>) {
    if room.capacity() > ROOM_KEPT_BYTES {
        *room = Vec::new();
    }
}

/// Names that do not fit into [`Name`].
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct LongNames(Slab<Vec<u8>>);

impl Name {
    pub(crate) fn new(name: &[u8], long: &mut LongNames) -> Self {
        let mut bytes = [0; INLINE_BYTES];
        if name.len() <= INLINE_BYTES {
            bytes[..name.len()].copy_from_slice(name);
            return Self { length: name.len() as u8, bytes };
        }
        let index = long.0.take_free().unwrap_or_else(|| long.0.insert(Vec::new()));
        long.0[index].clear();
        long.0[index].extend_from_slice(name);
        bytes[..4].copy_from_slice(&index.to_ne_bytes());
        Self { length: LONG, bytes }
    }

    #[inline]
    pub(crate) fn bytes<'a>(&'a self, long: &'a LongNames) -> &'a [u8] {
        if self.length == LONG {
            &long.0[self.long_index()]
        } else {
            &self.bytes[..usize::from(self.length)]
        }
    }

    /// Frees its entry in `long`.
    pub(crate) fn release(&self, long: &mut LongNames) {
        if self.length == LONG {
            give_back(&mut long.0[self.long_index()]);
            long.0.remove(self.long_index());
        }
    }

    fn long_index(&self) -> u32 {
        u32::from_ne_bytes([self.bytes[0], self.bytes[1], self.bytes[2], self.bytes[3]])
    }
}

/// Texts stored once, under a number, while they have references.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Texts {
    index: HashTable<u32>,
    texts: Slab<Text>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
struct Text {
    bytes: Vec<u8>,
    hash: u64,
    references: u32,
}

impl Texts {
    /// Number of a text that has references.
    #[inline]
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(bytes);
        self.index.find(hash, |&index| self.texts[index].bytes == bytes).copied()
    }

    /// Number of a text, with one more reference to it.
    pub(crate) fn refer(&mut self, bytes: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(bytes);
        if let Some(&index) = self.index.find(hash, |&index| self.texts[index].bytes == bytes) {
            self.texts[index].references += 1;
            return index;
        }
        let index = self.texts.take_free().unwrap_or_else(|| self.texts.insert(Text::default()));
        let text = &mut self.texts[index];
        text.bytes.clear();
        text.bytes.extend_from_slice(bytes);
        (text.hash, text.references) = (hash, 1);
        self.index.insert_unique(hash, index, |&index| self.texts[index].hash);
        index
    }

    /// Adds a reference to a text that has some.
    pub(crate) fn refer_again(&mut self, index: u32) {
        self.texts[index].references += 1;
    }

    /// Drops a reference; without any the text is forgotten.
    pub(crate) fn release(&mut self, index: u32) {
        let text = &mut self.texts[index];
        text.references -= 1;
        if text.references > 0 {
            return;
        }
        if let Ok(entry) = self.index.find_entry(text.hash, |&other| other == index) {
            entry.remove();
        }
        give_back(&mut self.texts[index].bytes);
        self.texts.remove(index);
    }

    #[inline]
    pub(crate) fn bytes(&self, index: u32) -> &[u8] {
        &self.texts[index].bytes
    }

    /// Number of references to a text, by holds and by requests.
    pub(crate) fn references(&self, index: u32) -> u32 {
        self.texts[index].references
    }

    /// Number of texts with references.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_lengths_come_back() {
        let mut long = LongNames::default();
        let all: Vec<Vec<u8>> = [0usize, 1, 14, 15, 16, 254, 255, 256, 1024]
            .iter()
            .map(|&length| vec![7; length])
            .collect();
        let names: Vec<Name> = all.iter().map(|name| Name::new(name, &mut long)).collect();
        for (name, bytes) in names.iter().zip(&all) {
            assert_eq!(name.bytes(&long), bytes);
        }
        for name in &names {
            name.release(&mut long);
        }
        assert_eq!(long.0.len(), 0);
        assert_eq!(Name::new(&[9; 20], &mut long).bytes(&long), [9; 20], "a place is used again");
    }

    #[test]
    fn long_texts_leave_no_room_behind() {
        let (mut long, mut texts) = (LongNames::default(), Texts::default());
        for length in [100, 1024] {
            let name = Name::new(&vec![7; length], &mut long);
            name.release(&mut long);
            let text = texts.refer(&vec![7; length]);
            texts.release(text);
            let room = (long.0[0].capacity(), texts.texts[text].bytes.capacity());
            assert!(
                room.0 <= ROOM_KEPT_BYTES && room.1 <= ROOM_KEPT_BYTES,
                "{room:?} after {length}"
            );
        }
    }

    #[test]
    fn a_text_is_forgotten_with_its_last_reference() {
        let mut texts = Texts::default();
        let ann = texts.refer(b"ann");
        assert_eq!(texts.refer(b"ann"), ann);
        texts.release(ann);
        assert_eq!(texts.find(b"ann"), Some(ann));
        texts.release(ann);
        assert_eq!((texts.find(b"ann"), texts.len()), (None, 0));
        let bob = texts.refer(b"bob");
        assert_eq!((bob, texts.bytes(bob)), (ann, &b"bob"[..]));
    }
}
