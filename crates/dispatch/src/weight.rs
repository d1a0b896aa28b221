//! Estimate of the bytes that all clients take up together.

use crate::limits;

/// Bytes of all clients of an event loop.
#[derive(Debug)]
pub(crate) struct Weight {
    pub(crate) most: usize,
    /// Bytes at the last weighing, and those added since.
    pub(crate) weighed: usize,
    grown: usize,
}

impl Default for Weight {
    fn default() -> Self {
        Self { most: limits::CLIENTS_BYTES_MAX, weighed: 0, grown: 0 }
    }
}

impl Weight {
    /// Adds bytes. Bytes that have gone since are noticed at the next weighing.
    pub(crate) fn grow(&mut self, bytes: usize) {
        self.grown += bytes;
    }

    /// Notes the result of a weighing.
    pub(crate) fn set(&mut self, bytes: usize) {
        (self.weighed, self.grown) = (bytes, 0);
    }

    /// True if a weighing is due. Close to the limit it may be exceeded by a sixteenth, so that not
    /// every byte causes one.
    pub(crate) fn is_due(&self) -> bool {
        self.weighed + self.grown > self.most && self.grown > self.most / 16
    }
}
