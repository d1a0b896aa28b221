//! A model of the data from the client's view: writes acknowledged, and writes sent without an
//! answer.

/// Xorshift, so that runs differ but can be repeated, as far as the test's own choices go.
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

/// A value with one writer at a time: its acknowledged state, and the state of a pending change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fact<S> {
    known: S,
    maybe: Option<S>,
}

impl<S: Clone + PartialEq + std::fmt::Debug> Fact<S> {
    /// Returns the state acknowledged last.
    pub(crate) fn known(&self) -> &S {
        &self.known
    }

    /// Records that a change was sent.
    pub(crate) fn sent(&mut self, state: S) {
        assert!(self.maybe.is_none(), "two changes at once");
        self.maybe = Some(state);
    }

    /// Records that the change was acknowledged.
    pub(crate) fn acknowledged(&mut self) {
        self.known = self.maybe.take().expect("something was sent");
    }

    /// Checks the state found after a crash; true if an unacknowledged change is there.
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

/// Counts of the events in a run, printed at its end: a test without any events proves nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Acknowledged statements.
    pub(crate) acknowledged: u64,
    /// Changes under way at a kill that survived.
    pub(crate) kept: u64,
    /// Batches over several nodes of which one node has its part and another does not.
    pub(crate) split: u64,
    /// Conditional statements of two clients on one row, of which one was refused.
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
