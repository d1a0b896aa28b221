//! The mailbox's shared parts: locks, and the eventfd that wakes a loop. With the feature `loom`
//! these are twins, so that models (`mailbox/models.rs`) go through every order in which threads
//! can meet in them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

#[cfg(feature = "loom")]
use loom::sync::Condvar;
#[cfg(feature = "loom")]
pub(crate) use loom::sync::{Arc, Mutex, MutexGuard};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::{Arc, Mutex, MutexGuard};

/// An eventfd: readable from the first [`Wake::ring`] until [`Wake::quiet`].
pub(crate) struct Wake {
    event: OwnedFd,
    /// A model cannot wait in the kernel; it waits for this.
    #[cfg(feature = "loom")]
    rung: (Mutex<bool>, Condvar),
}

impl Wake {
    /// Fails if no eventfd is available.
    pub(crate) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Wake {
            event,
            #[cfg(feature = "loom")]
            rung: (Mutex::new(false), Condvar::new()),
        })
    }

    #[cfg(not(feature = "loom"))]
    pub(crate) fn ring(&self) {
        // Fails only if the counter would overflow, and then the loop is awake anyway.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    #[cfg(not(feature = "loom"))]
    pub(crate) fn quiet(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.event, &mut count);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(feature = "loom")]
#[allow(clippy::unwrap_used, reason = "a model may panic")]
impl Wake {
    pub(crate) fn ring(&self) {
        *self.rung.0.lock().unwrap() = true;
        self.rung.1.notify_one();
    }

    pub(crate) fn quiet(&self) {
        *self.rung.0.lock().unwrap() = false;
    }

    /// The loop's wait for events: returns whether this is readable; `block` waits until it is.
    #[cfg(test)]
    pub(crate) fn wait(&self, block: bool) -> bool {
        let mut rung = self.rung.0.lock().unwrap();
        while block && !*rung {
            rung = self.rung.1.wait(rung).unwrap();
        }
        *rung
    }
}
