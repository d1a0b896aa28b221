//! Keys of the cache, their hash, and the epochs that void whole tables and partitions at once.
//!
//! An epoch is the sum of two counters that only grow: one chosen by the key's table, one by its partition. A cached row
//! remembers the sum at the time its read began, and is void once the sum is another: that is all it takes to drop a table
//! of any size. Counters are shared by what hashes alike, which costs a few rows their place and never shows a stale one.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, Ordering};

use hashbrown::DefaultHashBuilder;

/// Counters of tables. Two of some tables that hash alike are cleared together.
const TABLE_EPOCHS: usize = 1024;
/// Counters of partitions: deleting one partition voids one cached row in so many.
const PARTITION_EPOCHS: usize = 8 * 1024;

/// The key of a row: the bytes it is stored under, and how many of them name its partition.
#[derive(Debug, Clone, Copy)]
pub struct RowKey<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) partition_bytes: usize,
}

impl<'a> RowKey<'a> {
    /// A row that is alone in its partition.
    pub fn new(bytes: &'a [u8]) -> Self {
        RowKey { bytes, partition_bytes: bytes.len() }
    }

    /// A row whose partition is named by the first `partition_bytes` of its key (table prefix included). Every call for
    /// this row must give the same number, or [`super::RowCache::clear_partition`] does not reach it.
    pub fn in_partition(bytes: &'a [u8], partition_bytes: usize) -> Self {
        RowKey { bytes, partition_bytes: partition_bytes.min(bytes.len()) }
    }
}

impl<'a> From<&'a [u8]> for RowKey<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        RowKey::new(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for RowKey<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        RowKey::new(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for RowKey<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        RowKey::new(bytes)
    }
}

/// A key with what one visit to the cache needs of it, computed once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe<'a> {
    pub(super) key: RowKey<'a>,
    pub(super) hash: u64,
    pub(super) epoch: u32,
}

/// Hashes keys with a seed of this process, so that no client can choose keys that collide, and keeps the epochs.
pub(super) struct Keys {
    seed: DefaultHashBuilder,
    table_prefix_bytes: usize,
    tables: Box<[AtomicU32]>,
    partitions: Box<[AtomicU32]>,
}

impl Keys {
    pub(super) fn new(table_prefix_bytes: usize) -> Self {
        let counters = |count| (0..count).map(|_| AtomicU32::new(0)).collect();
        Keys {
            seed: DefaultHashBuilder::default(),
            table_prefix_bytes,
            tables: counters(TABLE_EPOCHS),
            partitions: counters(PARTITION_EPOCHS),
        }
    }

    pub(super) fn probe<'a>(&self, key: RowKey<'a>) -> Probe<'a> {
        let hash = self.hash(key.bytes);
        let partition =
            if key.partition_bytes == key.bytes.len() { hash } else { self.hash(&key.bytes[..key.partition_bytes]) };
        Probe { key, hash, epoch: self.epoch(key.bytes, partition) }
    }

    /// The hash of a key found on SSD. Every bit of it depends on every bit of the key: different uses take different bits.
    pub(super) fn hash(&self, bytes: &[u8]) -> u64 {
        mix(self.seed.hash_one(bytes))
    }

    /// Voids every row of the table named by `prefix`.
    pub(super) fn clear_table(&self, prefix: &[u8]) {
        self.table(prefix).fetch_add(1, Ordering::SeqCst);
    }

    /// Voids every row of the partition named by `prefix`.
    pub(super) fn clear_partition(&self, prefix: &[u8]) {
        self.partition(self.hash(prefix)).fetch_add(1, Ordering::SeqCst);
    }

    /// Each counter only grows, so two sums are equal only if nothing was voided in between (or four thousand million
    /// times).
    fn epoch(&self, key: &[u8], partition: u64) -> u32 {
        let table = self.table(key).load(Ordering::SeqCst);
        table.wrapping_add(self.partition(partition).load(Ordering::SeqCst))
    }

    fn table(&self, key: &[u8]) -> &AtomicU32 {
        let mut prefix = [0; 8];
        let bytes = self.table_prefix_bytes.min(key.len());
        prefix[..bytes].copy_from_slice(&key[..bytes]);
        &self.tables[mix(u64::from_le_bytes(prefix)) as usize % TABLE_EPOCHS]
    }

    fn partition(&self, hash: u64) -> &AtomicU32 {
        &self.partitions[hash as usize % PARTITION_EPOCHS]
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        (self.tables.len() + self.partitions.len()) * size_of::<AtomicU32>()
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
