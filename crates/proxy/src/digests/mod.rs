//! Digests: counts and times of statements that differ only in their values, for the admin pages.
//!
//! A digest is a statement without its values, in one keyspace and by one kind of request. The path
//! of a query knows only its number (`Plan::digest`) and adds to a row at the answer. A core finds
//! the number of an EXECUTE beside its prepared statement, and that of a text by a hash of its
//! bytes ([`texts`]). A statement without a row gets one at its answer ([`attribution`]), off the
//! path. A core gives out a limited number of rows in a second; all other statements count in one
//! row for each kind of request.
//!
//! No client may push out the digests of others, or have the core read texts without end: [`table`]
//! says who gets a row (ADR 37).

pub(crate) mod attribution;
pub mod histogram;
pub mod table;
pub(crate) mod texts;
pub mod totals;

/// The number of a digest's row: its place, and how often another digest had that place before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Digest(u32);

impl Digest {
    /// A statement that has not asked for a row, or got none.
    pub(crate) const UNKNOWN: Digest = Digest(u32::MAX);
    /// A statement that never has a row: its text is not kept, or too long.
    pub(crate) const NONE: Digest = Digest(u32::MAX - 1);

    fn new(place: usize, generation: u16) -> Self {
        Self(u32::from(generation) << 16 | place as u32)
    }

    #[inline]
    fn place(self) -> usize {
        (self.0 & 0xFFFF) as usize
    }

    /// The number of the next digest in the same place.
    fn successor(self) -> Self {
        Self::new(self.place(), ((self.0 >> 16) as u16).wrapping_add(1))
    }
}
