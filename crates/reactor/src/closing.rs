//! Accepted connections that are closing: the service has forgotten them, so it can no longer count
//! their memory or end them. Their last output is being sent, or they wait for the peer to close
//! its side, for the time that [`LoopOptions::linger_ns`](crate::LoopOptions::linger_ns) allows.
//!
//! A peer that closes its side, or breaks a rule, and then reads nothing would keep that memory and
//! a file for that time; thousands of such peers could take all of either. So the loop resets the
//! oldest, once the memory of all exceeds its bound, or when a new connection needs the place.
//!
//! This must never: reset the only one; count a connection that is gone.

use std::collections::VecDeque;

/// The accepted connections of a loop that are closing.
pub(crate) struct Closing {
    /// Slots with their generations, the oldest at the front. Those that are gone are skipped.
    pub(crate) order: VecDeque<(u32, u32)>,
    /// Memory of all, in bytes.
    pub(crate) bytes: usize,
    pub(crate) bytes_max: usize,
}

impl Closing {
    pub(crate) fn new(bytes_max: usize) -> Closing {
        Closing { order: VecDeque::new(), bytes: 0, bytes_max }
    }
}
