//! Three replicas of the table of durable locks: the last write wins, writes reach replicas late or never, and a read at QUORUM asks two
//! and repairs them.

use std::collections::BTreeMap;

use super::world::Random;
use crate::types::{Row, Write};

/// A row's key: its lock's name and its slot.
type Key = (Vec<u8>, Vec<u8>);

/// A row as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stored {
    timestamp_us: i64,
    owner: Vec<u8>,
    role: Vec<u8>,
    token: i64,
    ttl_ms: u32,
}

impl Stored {
    pub(super) fn row<'a>(&'a self, (name, slot): &'a Key) -> Row<'a> {
        let Self { timestamp_us, owner, role, token, ttl_ms } = self;
        Row { name, slot, owner, role, token: *token, ttl_ms: *ttl_ms, timestamp_us: *timestamp_us }
    }
}

/// What is on its way to a replica.
struct Late {
    at_ms: u64,
    replica: usize,
    bucket: u16,
    key: Key,
    stored: Stored,
}

#[derive(Default)]
pub(super) struct Store {
    replicas: [BTreeMap<(u16, Key), Stored>; 3],
    late: Vec<Late>,
}

impl Store {
    /// Writes to so many replicas within this time. The others get it later, or never.
    pub(super) fn write(
        &mut self,
        (now_ms, within_ms): (u64, u64),
        write: &Write<'_>,
        reached: usize,
        random: &mut Random,
    ) {
        let row = &write.row;
        let key = (row.name.to_vec(), row.slot.to_vec());
        let (owner, role) = (row.owner.to_vec(), row.role.to_vec());
        let stored = Stored { timestamp_us: row.timestamp_us, owner, role, token: row.token, ttl_ms: row.ttl_ms };
        let first = random.below(3) as usize;
        for offset in 0..3 {
            let replica = (first + offset) % 3;
            if offset < reached || random.below(3) > 0 {
                let later_ms = if random.below(4) == 0 { 20_000 } else { 300 };
                let at_ms = now_ms + random.below(if offset < reached { within_ms + 1 } else { later_ms });
                self.late.push(Late { at_ms, replica, bucket: write.bucket, key: key.clone(), stored: stored.clone() });
            }
        }
    }

    fn apply(&mut self, replica: usize, bucket: u16, key: Key, stored: Stored) {
        let place = self.replicas[replica].entry((bucket, key)).or_insert_with(|| stored.clone());
        if stored > *place {
            *place = stored;
        }
    }

    /// Late writes arrive.
    pub(super) fn deliver(&mut self, now_ms: u64) {
        let (due, late) = std::mem::take(&mut self.late).into_iter().partition(|late| late.at_ms <= now_ms);
        self.late = late;
        for Late { replica, bucket, key, stored, .. } in due {
            self.apply(replica, bucket, key, stored);
        }
    }

    /// The rows of a partition, by two replicas, which have them both from then on.
    pub(super) fn read(&mut self, bucket: u16, random: &mut Random) -> Vec<(Key, Stored)> {
        let without = random.below(3) as usize;
        let asked: Vec<usize> = (0..3).filter(|replica| *replica != without).collect();
        let mut merged: BTreeMap<Key, Stored> = BTreeMap::new();
        for replica in &asked {
            for ((_, key), stored) in self.replicas[*replica].iter().filter(|((of, _), _)| *of == bucket) {
                let place = merged.entry(key.clone()).or_insert_with(|| stored.clone());
                if stored > place {
                    *place = stored.clone();
                }
            }
        }
        for (key, stored) in &merged {
            for replica in &asked {
                self.apply(*replica, bucket, key.clone(), stored.clone());
            }
        }
        merged.into_iter().collect()
    }
}
