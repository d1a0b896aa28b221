//! The log of a shard that is being opened.

use std::collections::HashMap;
use std::sync::Arc;

use shunt_transactions::{Opening, Place};

/// The opening of one shard.
pub(super) struct Open {
    pub(super) shard: u8,
    pub(super) opening: Opening,
    /// Records that were read and are not done with.
    pub(super) bodies: HashMap<Place, Arc<[u8]>>,
    /// Nobody asks for its shard: if the shard has no log, none is begun.
    pub(super) only_recovers: bool,
}

impl Open {
    pub(super) fn next_due_ms(&self) -> Option<u64> {
        self.opening.next_due_ms()
    }

    pub(super) fn is_of(&self, shard: u8) -> bool {
        self.shard == shard
    }
}
