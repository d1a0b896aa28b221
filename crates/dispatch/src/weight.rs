//! What all clients are known to take up together.

use crate::limits;

/// What all clients of an event loop take up.
#[derive(Debug)]
pub(crate) struct Weight {
    pub(crate) most: usize,
    /// As they were weighed last, and what has come since.
    pub(crate) weighed: usize,
    grown: usize,
}

impl Default for Weight {
    fn default() -> Self {
        Self { most: limits::CLIENTS_BYTES_MAX, weighed: 0, grown: 0 }
    }
}

impl Weight {
    /// There are so many bytes more. What has gone since is seen when they are weighed again.
    pub(crate) fn grow(&mut self, bytes: usize) {
        self.grown += bytes;
    }

    /// They were weighed.
    pub(crate) fn set(&mut self, bytes: usize) {
        (self.weighed, self.grown) = (bytes, 0);
    }

    /// They may be too much. Close below the bound not every byte has all weighed again: it is
    /// passed by a sixteenth.
    pub(crate) fn is_due(&self) -> bool {
        self.weighed + self.grown > self.most && self.grown > self.most / 16
    }
}
