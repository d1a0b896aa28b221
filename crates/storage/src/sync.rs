//! What the row cache decides races by: std's types, or with the feature `loom` their twins, so
//! that models (`row_cache/models.rs`) go through every order in which threads can meet in them.
//! What only counts, and the SSD tier's own parts, are not among them.

#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(feature = "loom")]
pub(crate) use loom::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
