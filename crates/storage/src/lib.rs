//! Rows on disk and in caches: fragments of rows merged by an LSM engine, records without column
//! names.
//!
//! The crate knows bytes and their order, but not CQL's text or types: callers encode keys so that
//! their byte order is the desired order. Data flows down on writes and up on reads:
//!
//! ```text
//! store       the node's interface: apply, read, scan, durability, snapshot, check
//! row         the data model: fragments, their merge, deletion and expiry
//! catalogue   schema ids and the binary record format
//! engine      ordered keys and merged values: RocksDB, and a twin in memory
//! row_cache   cache of whole records: memory, then SSD; in the store's path of reads and writes
//! ```

#![cfg_attr(not(feature = "store"), allow(dead_code, reason = "the store uses it"))]

pub mod catalogue;
pub mod engine;
pub mod files;
mod key;
#[cfg(feature = "store")]
mod merger;
#[doc(hidden)]
pub mod raw;
pub mod row;
pub mod row_cache;
#[cfg(feature = "store")]
pub mod store;
mod sync;

pub use key::{CLUSTERING_BYTES_MAX, KEY_BYTES_MAX, KeyError, Target};
#[cfg(feature = "store")]
pub use merger::{Clock, GC_GRACE_DEFAULT_S};
#[cfg(feature = "store")]
pub use store::{Store, StoreError, StoreOptions};
