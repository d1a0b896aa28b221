//! What counters and heartbeats share between threads: std's types, or with the feature `loom`
//! their twins, so that models (`models.rs`) go through every order in which threads can meet in
//! them.

#[cfg(feature = "loom")]
pub(crate) use loom::sync::Mutex;
#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::Mutex;
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
