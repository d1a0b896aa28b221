//! Three replicas of the table of durable locks: the last write wins, writes reach replicas late or
//! never, and a read at QUORUM asks two and repairs them. A deletion is remembered only as long as
//! any write may be late.

use std::collections::BTreeMap;

use super::world::Random;
use crate::Unneeded;
use crate::types::{Row, Write};

/// Time for which a replica remembers a deletion: longer than any write is late.
const DELETION_KEPT_MS: u64 = 25_000;

/// A row's key: its lock's name and its slot.
type Key = (Vec<u8>, Vec<u8>);

/// A row as stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stored {
    timestamp_us: i64,
    owner: Vec<u8>,
    role: Vec<u8>,
    token: i64,
    ttl_ms: u32,
}

impl Stored {
    pub(super) fn of(row: &Row<'_>) -> Self {
        let (owner, role) = (row.owner.to_vec(), row.role.to_vec());
        Self { timestamp_us: row.timestamp_us, owner, role, token: row.token, ttl_ms: row.ttl_ms }
    }

    pub(super) fn timestamp_us(&self) -> i64 {
        self.timestamp_us
    }

    pub(super) fn is_held(&self) -> bool {
        !self.owner.is_empty()
    }

    pub(super) fn row<'a>(&'a self, (name, slot): &'a Key) -> Row<'a> {
        let Self { timestamp_us, owner, role, token, ttl_ms } = self;
        Row { name, slot, owner, role, token: *token, ttl_ms: *ttl_ms, timestamp_us: *timestamp_us }
    }
}

/// Deletion of a lock's rows.
#[derive(Clone, Debug)]
struct Deletion {
    bucket: u16,
    name: Vec<u8>,
    unneeded: Unneeded,
    /// Time at which it is forgotten.
    until_ms: u64,
}

impl Deletion {
    fn covers(&self, bucket: u16, (name, slot): &Key, timestamp_us: i64) -> bool {
        let Unneeded { up_to_us, of_shares, .. } = self.unneeded;
        (self.bucket, &self.name) == (bucket, name)
            && timestamp_us <= up_to_us
            && !(of_shares && slot.is_empty())
    }
}

/// Content of a late message to a replica.
enum What {
    Row(u16, Key, Stored),
    Deletion(Deletion),
}

struct Late {
    at_ms: u64,
    replica: usize,
    what: What,
}

#[derive(Default)]
struct Replica {
    rows: BTreeMap<(u16, Key), Stored>,
    deletions: Vec<Deletion>,
}

impl Replica {
    fn put(&mut self, bucket: u16, key: Key, stored: Stored) {
        if self.deletions.iter().any(|deletion| deletion.covers(bucket, &key, stored.timestamp_us))
        {
            return;
        }
        let place = self.rows.entry((bucket, key)).or_insert_with(|| stored.clone());
        if stored > *place {
            *place = stored;
        }
    }

    fn delete(&mut self, deletion: Deletion) {
        self.rows
            .retain(|(bucket, key), stored| !deletion.covers(*bucket, key, stored.timestamp_us));
        let same = |known: &Deletion| {
            (known.bucket, &known.name, known.unneeded)
                == (deletion.bucket, &deletion.name, deletion.unneeded)
        };
        if !self.deletions.iter().any(same) {
            self.deletions.push(deletion);
        }
    }
}

#[derive(Default)]
pub(super) struct Store {
    replicas: [Replica; 3],
    late: Vec<Late>,
}

impl Store {
    /// Writes to this many replicas within this time. The others get it later, or never.
    pub(super) fn write(
        &mut self,
        (now_ms, within_ms): (u64, u64),
        write: &Write<'_>,
        reached: usize,
        random: &mut Random,
    ) {
        let row = &write.row;
        let key = (row.name.to_vec(), row.slot.to_vec());
        let stored = Stored::of(row);
        let first = random.below(3) as usize;
        for offset in 0..3 {
            let replica = (first + offset) % 3;
            if offset < reached || random.below(3) > 0 {
                let later_ms = if random.below(4) == 0 { 20_000 } else { 300 };
                let at_ms =
                    now_ms + random.below(if offset < reached { within_ms + 1 } else { later_ms });
                self.late.push(Late {
                    at_ms,
                    replica,
                    what: What::Row(write.bucket, key.clone(), stored.clone()),
                });
            }
        }
    }

    /// Deletes rows of a lock on this many replicas within this time, and on the others late or
    /// never.
    pub(super) fn delete(
        &mut self,
        (now_ms, within_ms): (u64, u64),
        (bucket, name, unneeded): (u16, &[u8], Unneeded),
        reached: usize,
        random: &mut Random,
    ) {
        let first = random.below(3) as usize;
        for offset in 0..3 {
            if offset < reached || random.below(2) > 0 {
                let at_ms =
                    now_ms + random.below(if offset < reached { within_ms + 1 } else { 20_000 });
                let deletion = Deletion {
                    bucket,
                    name: name.to_vec(),
                    unneeded,
                    until_ms: at_ms + DELETION_KEPT_MS,
                };
                self.late.push(Late {
                    at_ms,
                    replica: (first + offset) % 3,
                    what: What::Deletion(deletion),
                });
            }
        }
    }

    /// Writes to these replicas.
    pub(super) fn write_to(&mut self, replicas: &[usize], at_ms: u64, bucket: u16, row: Row<'_>) {
        for &replica in replicas {
            let what = What::Row(bucket, (row.name.to_vec(), row.slot.to_vec()), Stored::of(&row));
            self.late.push(Late { at_ms, replica, what });
        }
    }

    /// Deletes from these replicas.
    pub(super) fn delete_from(
        &mut self,
        replicas: &[usize],
        at_ms: u64,
        (bucket, name, unneeded): (u16, &[u8], Unneeded),
    ) {
        for &replica in replicas {
            let deletion = Deletion {
                bucket,
                name: name.to_vec(),
                unneeded,
                until_ms: at_ms + DELETION_KEPT_MS,
            };
            self.late.push(Late { at_ms, replica, what: What::Deletion(deletion) });
        }
    }

    /// Delivers late writes.
    pub(super) fn deliver(&mut self, now_ms: u64) {
        let (due, late) =
            std::mem::take(&mut self.late).into_iter().partition(|late| late.at_ms <= now_ms);
        self.late = late;
        for Late { replica, what, .. } in due {
            match what {
                What::Row(bucket, key, stored) => self.replicas[replica].put(bucket, key, stored),
                What::Deletion(deletion) => self.replicas[replica].delete(deletion),
            }
        }
        for replica in &mut self.replicas {
            replica.deletions.retain(|deletion| deletion.until_ms > now_ms);
        }
    }

    /// Rows of a partition from two replicas, both of which then have all of them.
    pub(super) fn read(&mut self, bucket: u16, random: &mut Random) -> Vec<(Key, Stored)> {
        let without = random.below(3) as usize;
        let asked: Vec<usize> = (0..3).filter(|replica| *replica != without).collect();
        let deletions: Vec<Deletion> = asked
            .iter()
            .flat_map(|replica| &self.replicas[*replica].deletions)
            .filter(|of| of.bucket == bucket)
            .cloned()
            .collect();
        for (replica, deletion) in asked
            .iter()
            .flat_map(|replica| deletions.iter().map(move |deletion| (replica, deletion)))
        {
            self.replicas[*replica].delete(deletion.clone());
        }
        let mut merged: BTreeMap<Key, Stored> = BTreeMap::new();
        for replica in &asked {
            for ((_, key), stored) in
                self.replicas[*replica].rows.iter().filter(|((of, _), _)| *of == bucket)
            {
                let place = merged.entry(key.clone()).or_insert_with(|| stored.clone());
                if stored > place {
                    *place = stored.clone();
                }
            }
        }
        for (key, stored) in &merged {
            for replica in &asked {
                self.replicas[*replica].put(bucket, key.clone(), stored.clone());
            }
        }
        merged.into_iter().collect()
    }
}
