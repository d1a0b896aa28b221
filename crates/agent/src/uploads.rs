//! Requests that are still on their way from their clients, who may take any time for them: they
//! have a share of the connections to the server, so that the others are there for requests that
//! are here as a whole. One that gets none is taken in as far as its first credit goes, and has one
//! like any other when that was all of it.

use std::collections::VecDeque;

/// Exchanges with requests that are not here as a whole, and without a connection, each in order.
#[derive(Debug, Default)]
pub(crate) struct Uploads {
    /// Those that have sent as much as they may before somebody takes it.
    pub(crate) full: VecDeque<usize>,
    pub(crate) others: VecDeque<usize>,
}

impl Uploads {
    pub(crate) fn len(&self) -> usize {
        self.full.len() + self.others.len()
    }

    /// Removes one that has ended, or is whole; false if it is not there.
    pub(crate) fn remove(&mut self, exchange: usize) -> bool {
        let before = self.len();
        self.full.retain(|one| *one != exchange);
        self.others.retain(|one| *one != exchange);
        self.len() < before
    }
}
