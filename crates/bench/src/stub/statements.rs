//! Ids of prepared statements, and a node's collection of them.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use crate::{random::scramble, stub::plan::Planned};

/// The statements that a node has prepared.
pub(super) type Statements = HashMap<StatementId, Planned, BuildHasherDefault<IdHasher>>;

/// Id of a prepared statement, as long as those of Cassandra.
pub(super) type StatementId = [u8; 16];

/// A hasher for ids, which are hashes already: their first bytes are used as they are.
#[derive(Debug, Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 ^= bytes.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
    }

    fn write_usize(&mut self, _length: usize) {}
}

/// Returns the id of a statement; equal on all nodes for the same text and keyspace, as in
/// Cassandra.
pub(super) fn statement_id(keyspace: Option<&str>, text: &str) -> StatementId {
    let (mut first, mut second) = (0x0123_4567_89AB_CDEFu64, 0xFEDC_BA98_7654_3210u64);
    // Tests prepare texts of many megabytes, and run without optimisation: one plain loop.
    for part in [keyspace.unwrap_or_default().as_bytes(), &[0], text.as_bytes()] {
        for &byte in part {
            first = scramble(first.rotate_left(9) ^ u64::from(byte));
            second = scramble(second.rotate_left(9) ^ u64::from(byte));
        }
    }
    let mut id = [0; 16];
    id[..8].copy_from_slice(&first.to_be_bytes());
    id[8..].copy_from_slice(&second.to_be_bytes());
    id
}
