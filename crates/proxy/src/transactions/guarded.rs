//! A request that waits to hear if the lock is held that it relies on.

use std::sync::Arc;

/// One such request.
pub(super) struct Guarded {
    /// The core that is sent it then, and whose share it counts to.
    pub(super) to: (usize, Arc<str>),
    pub(super) message: Box<[u8]>,
}
