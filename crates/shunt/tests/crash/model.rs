//! The data as known from the outside: what was acknowledged, and what was sent and never answered.

/// Xorshift, so that runs differ and can be had again as far as the program's own choices go.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) % end
    }

    pub(crate) fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }
}

/// A thing with one writer at a time: as it was acknowledged, and as it may be instead.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fact<S> {
    known: S,
    maybe: Option<S>,
}

impl<S: Clone + PartialEq + std::fmt::Debug> Fact<S> {
    /// The state that was acknowledged last.
    pub(crate) fn known(&self) -> &S {
        &self.known
    }

    /// A change is on its way.
    pub(crate) fn sent(&mut self, state: S) {
        assert!(self.maybe.is_none(), "two changes at once");
        self.maybe = Some(state);
    }

    /// It was acknowledged.
    pub(crate) fn acknowledged(&mut self) {
        self.known = self.maybe.take().expect("something was sent");
    }

    /// After a crash, as found. Says whether a change that nobody acknowledged is there.
    pub(crate) fn found(&mut self, state: S, what: &str) -> bool {
        let kept = self.maybe.as_ref() == Some(&state);
        assert!(
            kept || self.known == state,
            "{what} is {state:?}; acknowledged was {:?}, under way {:?}",
            self.known,
            self.maybe
        );
        self.known = state;
        self.maybe = None;
        kept
    }
}

/// Counts of what a run has seen, to be printed: a test that met nothing proves nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Statements that were acknowledged.
    pub(crate) acknowledged: u64,
    /// Changes that were under way at a kill and are there all the same.
    pub(crate) kept: u64,
    /// Batches over several nodes of which one node has its part and another has not.
    pub(crate) split: u64,
    /// Conditional statements of two clients for one thing, so that one was refused.
    pub(crate) refused: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, other: Seen) {
        self.acknowledged += other.acknowledged;
        self.kept += other.kept;
        self.split += other.split;
        self.refused += other.refused;
    }
}
