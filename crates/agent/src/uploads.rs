//! Requests whose bodies are still arriving from their clients, which may take any time. They may
//! use a share of the connections to the server; the rest stay free for complete requests. A
//! request without a connection is taken in as far as its first credit goes; if that is all of it,
//! it queues like any other.

use crate::line::Line;

/// Exchanges with incomplete requests and no connection.
#[derive(Debug, Default)]
pub(crate) struct Uploads {
    /// Exchanges that have used up their credit.
    pub(crate) full: Line,
    pub(crate) others: Line,
}

impl Uploads {
    pub(crate) fn len(&self) -> usize {
        self.full.len() + self.others.len()
    }

    /// Removes an exchange that has ended or is complete; false if it is not queued.
    pub(crate) fn remove(&mut self, exchange: usize) -> bool {
        self.full.remove(exchange) || self.others.remove(exchange)
    }
}
