//! Keys of the cache, their hash, and the epochs that invalidate whole tables at once.
//!
//! An epoch is a growing counter, chosen by the key's table. A cached row remembers the epoch at
//! which its read began, and is void once the epoch has changed; that is enough to drop a table of
//! any size. Tables with equal hashes share a counter, which costs a few rows their place and never
//! shows a stale one.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;

use crate::sync::{AtomicU32, Ordering};

/// Number of table counters. Two tables with equal hashes are cleared together. A model recreates
/// the counters for every execution.
const TABLE_EPOCHS: usize = if cfg!(feature = "loom") { 2 } else { 1024 };

/// A key with the derived values that one access to the cache needs, computed once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe<'a> {
    pub(super) key: &'a [u8],
    pub(super) hash: u64,
    pub(super) epoch: u32,
}

/// Hashes keys with a seed of this process, so that no client can choose colliding keys, and holds
/// the epochs.
pub(super) struct Keys {
    seed: DefaultHashBuilder,
    table_prefix_bytes: usize,
    tables: Box<[AtomicU32]>,
}

impl Keys {
    pub(super) fn new(table_prefix_bytes: usize) -> Self {
        let tables = (0..TABLE_EPOCHS).map(|_| AtomicU32::new(0)).collect();
        Keys { seed: DefaultHashBuilder::default(), table_prefix_bytes, tables }
    }

    pub(super) fn probe<'a>(&self, key: &'a [u8]) -> Probe<'a> {
        Probe { key, hash: self.hash(key), epoch: self.table(key).load(Ordering::SeqCst) }
    }

    /// Hash of a key found on SSD. Every bit of the hash depends on every bit of the key: different
    /// uses take different bits.
    pub(super) fn hash(&self, bytes: &[u8]) -> u64 {
        mix(self.seed.hash_one(bytes))
    }

    /// Voids every row of the table named by `prefix`.
    pub(super) fn clear_table(&self, prefix: &[u8]) {
        self.table(prefix).fetch_add(1, Ordering::SeqCst);
    }

    fn table(&self, key: &[u8]) -> &AtomicU32 {
        let mut prefix = [0; 8];
        let bytes = self.table_prefix_bytes.min(key.len());
        prefix[..bytes].copy_from_slice(&key[..bytes]);
        &self.tables[mix(u64::from_le_bytes(prefix)) as usize % TABLE_EPOCHS]
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        self.tables.len() * size_of::<AtomicU32>()
    }
}

/// Spreads every bit of the input over the output (the finaliser of Murmur3).
pub(super) fn mix(mut bits: u64) -> u64 {
    bits ^= bits >> 33;
    bits = bits.wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits ^= bits >> 33;
    bits = bits.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    bits ^ (bits >> 33)
}
