//! The [`Opening`] of a proxy, with what it waits for. What it has heard says which state it is in.

use super::state::Change;
use crate::{Claim, Generation, Opening, OpeningEffects, Place, Row};

/// Effects of an opening.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    pub(super) row: bool,
    pub(super) lows: Vec<Generation>,
    pub(super) page: Option<Place>,
    pub(super) appends: Vec<Place>,
    pub(super) applies: Vec<(Place, u16)>,
    pub(super) change: Option<Change>,
}

#[derive(Clone)]
pub(super) struct Opener {
    pub(super) opening: Opening,
    pub(super) wanted: Wanted,
    pub(super) heard: Vec<u8>,
}

impl OpeningEffects for Wanted {
    fn read_row(&mut self, _: u8) {
        self.row = true;
    }
    fn claim(&mut self, _: u8, row: Option<Row>, _: Claim) {
        self.change = Some(Change::Claim(row.map(|row| (row.generation, row.sealed))));
    }
    fn read_low(&mut self, _: u8, generation: Generation) {
        self.lows.push(generation);
    }
    fn read(&mut self, _: u8, from: Place) {
        self.page = Some(from);
    }
    fn append(&mut self, _: u8, place: Place) {
        self.appends.push(place);
    }
    fn apply(&mut self, _: u8, place: Place, write: u16) {
        self.applies.push((place, write));
    }
    fn forget(&mut self, _: u8, _: Place) {}
    fn seal(&mut self, _: u8, claimed: Generation, _: Claim) {
        self.change = Some(Change::Seal(claimed));
    }
    // No mark is ever told, so nothing is deleted; what an opening would delete nobody reads any
    // more.
    fn delete_bucket(&mut self, _: u8, _: Generation, _: u64) {}
    fn delete_low(&mut self, _: u8, _: Generation) {}
}
