//! Choice of the loop for an accepted connection.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::mailbox::Mailer;
use crate::service::Accepted;
use crate::tunnel::Arrival;

/// A loop that takes connections.
pub struct CoreSlot<M> {
    /// The loop's mailbox.
    pub mailer: Mailer<M>,
    /// Connections the loop carries: the acceptor counts up when it hands one over, and the loop
    /// counts down when one is gone, if [`LoopOptions::load`](crate::LoopOptions::load) is the same
    /// counter.
    pub load: Arc<AtomicUsize>,
}

/// An accepted socket on its way to a loop, with its session if it has one.
pub(crate) type Parcel = (OwnedFd, Option<Box<Arrival>>);

/// The loops that take connections, for all threads that accept.
pub(crate) struct Placement<M> {
    cores: Vec<CoreSlot<M>>,
    /// Start of the search for the least load, so that equals take turns.
    next: AtomicUsize,
}

impl<M> Placement<M> {
    pub(crate) fn new(cores: Vec<CoreSlot<M>>) -> Self {
        Placement { cores, next: AtomicUsize::new(0) }
    }

    /// True if every loop has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.cores.iter().all(|core| core.mailer.is_closed())
    }

    /// Offers a connection to the least loaded loop, and to the others in turn if that one is full.
    pub(crate) fn offer(&self, mut parcel: Parcel, origin: Accepted) -> Result<(), Parcel> {
        let count = self.cores.len();
        let next = self.next.load(Ordering::Relaxed);
        let least = (0..count)
            .map(|step| (next + step) % count)
            .min_by_key(|&core| self.cores[core].load.load(Ordering::Relaxed));
        let Some(least) = least else {
            return Err(parcel);
        };
        for step in 0..count {
            let chosen = (least + step) % count;
            let core = &self.cores[chosen];
            core.load.fetch_add(1, Ordering::Relaxed);
            match core.mailer.adopt_secured(parcel, origin) {
                Ok(()) => {
                    self.next.store((chosen + 1) % count, Ordering::Relaxed);
                    return Ok(());
                }
                Err(back) => {
                    core.load.fetch_sub(1, Ordering::Relaxed);
                    parcel = back;
                }
            }
        }
        Err(parcel)
    }
}
