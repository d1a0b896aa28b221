//! How far the looking for rows in the tables of locks has come ([`super::foreign`]).

/// How far the looking has come.
#[derive(Default)]
pub(super) struct Looks {
    /// When the next table is looked at.
    pub(super) next_ns: u64,
    /// Its place among all.
    pub(super) place: usize,
    /// A bit for each table in which a row was.
    pub(super) found: u32,
}

impl Looks {
    /// Begins anew.
    pub(super) fn restart(&mut self) {
        (self.next_ns, self.place) = (0, 0);
    }
}
