//! Primitives that decide races in the row cache: std's types, or with the feature `loom` their
//! twins, so that models (`row_cache/models.rs`) cover every interleaving of threads. Excludes pure
//! counters and the SSD tier's own parts.

#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(feature = "loom")]
pub(crate) use loom::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
