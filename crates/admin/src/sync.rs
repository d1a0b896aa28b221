//! The types through which threads share counters and heartbeats: those of std, or, with the
//! feature `loom`, those of loom, so that `models.rs` can try every order of the threads.

#[cfg(feature = "loom")]
pub(crate) use loom::sync::Mutex;
#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::Mutex;
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
