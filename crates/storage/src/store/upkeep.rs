//! What keeps a store small and quick: merged rows written back, rows under old deletions swept out, schemas reclaimed.

use super::{Shared, Store, StoreError};
use crate::catalogue::{RecordView, decode_header, decode_row, decode_unmerged, encode_header, encode_row};
use crate::engine::{Found, ReadTier, Span, Stall, Write};
use crate::key::{self, Target};
use crate::row::{Header, Row, TableId};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, PoisonError, RwLockWriteGuard};

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Rows under an old deletion of their partition or range.
    pub rows: u64,
    /// Headers that lost deletions.
    pub headers: u64,
}

/// Fragments put into one batch by a sweep.
const SWEEP_BATCH: usize = 256;

/// Attempts to find a value in memory just after it was read.
const READS_MAX: usize = 3;

type Gated<'a> = (RwLockWriteGuard<'a, ()>, Vec<u8>, u32);

/// The upkeep thread: writes back what reads and compaction ask for, until an empty key ends it.
pub(super) fn run(shared: &Arc<Shared>, asked: &Receiver<Vec<u8>>) {
    while let Ok(key) = asked.recv() {
        if key.is_empty() {
            return;
        }
        // A row that cannot be written back is as it was; reads and writes of it report what is wrong.
        let _ = shared.write_back(&key);
    }
}

impl Shared {
    /// A value with how many fragments it has, and the gate that keeps writers away from it. The value is brought into
    /// memory first, so that no writer waits for the disk meanwhile; `None` if it is gone, or does not stay there.
    fn read_gated(&self, key: &[u8]) -> Result<Option<Gated<'_>>, StoreError> {
        for _ in 0..READS_MAX {
            if self.engine.get(key, ReadTier::Disk)? == Found::Absent {
                return Ok(None);
            }
            let gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
            // A compaction may have put it elsewhere in between.
            if let Found::Value { bytes, fragments } = self.engine.get(key, ReadTier::Memory)? {
                return Ok(Some((gate, bytes, fragments)));
            }
        }
        Ok(None)
    }

    /// Puts a row in the place of its fragments. With no writer in between, so none of theirs is lost.
    fn write_back(&self, key: &[u8]) -> Result<(), StoreError> {
        self.commit.check()?;
        let Some((table, _, Target::Row(_) | Target::Static)) = key::split(key) else { return Ok(()) };
        let Some((_gate, bytes, fragments)) = self.read_gated(key)? else { return Ok(()) };
        let row = decode_row(&bytes, &self.catalogue).map_err(|what| StoreError::corrupt(key, what))?;
        if row.has_counter() {
            return Ok(());
        }
        let now = (self.options.clock)();
        let mut purged = row.clone();
        purged.purge(now, self.grace.gc_before(table, now));
        if fragments < 2 && purged == row {
            return Ok(());
        }
        let write = if purged.is_empty() {
            Write::Delete(key.to_vec())
        } else {
            let mut record = Vec::new();
            encode_row(&purged, table, &self.catalogue, &mut record);
            Write::Put(key.to_vec(), record)
        };
        // With the gate closed nobody waits for compaction: the next read asks again.
        self.write(&[write], Stall::Refuse)?;
        self.figures.wrote_back();
        Ok(())
    }
}

impl Store {
    /// Merges and purges a table in its files. Takes long, blocks nobody.
    pub fn compact(&self, table: TableId) -> Result<(), StoreError> {
        self.shared.engine.flush()?;
        self.shared.engine.compact(&key::token_start(table, None), &key::table_end(table));
        Ok(())
    }

    /// Whether a table ever had deletions of partitions or ranges, which a sweep would look for.
    pub fn has_deletions(&self, table: TableId) -> bool {
        self.shared.has_headers(table)
    }

    /// Ends sweeps, the one under way at the end of a partition, before the store is dropped. What is not swept stays deleted.
    pub fn stop_sweeping(&self) {
        self.shared.stop_sweeping.store(true, Ordering::Release);
    }

    /// Removes the rows that deletions of partitions and ranges cover, if these are older than the table's grace, and
    /// then these deletions. Compaction cannot: it sees one key at a time. Takes as long as a scan of the table; blocks
    /// nobody. To be called now and then for tables with such deletions.
    pub fn sweep(&self, table: TableId) -> Result<Swept, StoreError> {
        let _one = self.shared.lock_upkeep();
        if !self.shared.has_headers(table) {
            return Ok(Swept::default());
        }
        let gc_before = self.shared.grace.gc_before(table, (self.shared.options.clock)());
        let mut sweep = Sweep::new(&self.shared, table, gc_before);
        let (from, to) = (key::token_start(table, None), key::table_end(table));
        let span = Span { from: from.clone(), to, one_partition: false, cache: false, tier: ReadTier::Disk };
        let mut cursor = self.shared.engine.cursor(&span);
        cursor.seek(&from);
        while let Some((key, record)) = cursor.entry()? {
            if sweep.meet(key, record)? && self.shared.stop_sweeping.load(Ordering::Acquire) {
                return Ok(sweep.swept);
            }
            cursor.next();
        }
        sweep.write()?;
        Ok(sweep.swept)
    }

    /// Drops schemas that no record uses any more; says how many. Compacts everything on the way. Reads that go on meanwhile
    /// can still read records with them, until this is called again; the row cache drops its own.
    pub fn reclaim_schemas(&self) -> Result<usize, StoreError> {
        let shared = &self.shared;
        let _one = shared.lock_upkeep();
        {
            // Whoever encoded before has written when this is reached; whoever encodes after is seen in `used`.
            let _gate = shared.gate.write().unwrap_or_else(PoisonError::into_inner);
            shared.catalogue.forget_uses();
        }
        shared.engine.flush()?;
        let (from, to) = (vec![0; 4], vec![u8::MAX; 4]);
        // Fragments of before are merged, so that what they name is either in a value or in no record.
        shared.engine.compact(&from, &to);
        let mut in_use = BTreeSet::new();
        let mut cursor = shared.engine.cursor(&Span {
            from: from.clone(),
            to,
            one_partition: false,
            cache: false,
            tier: ReadTier::Disk,
        });
        cursor.seek(&from);
        while let Some((_, record)) = cursor.entry()? {
            let parts = decode_unmerged(record).unwrap_or_else(|| vec![record]);
            in_use.extend(
                parts.into_iter().filter_map(|part| RecordView::parse(part, &shared.catalogue).ok()?.schema_id()),
            );
            cursor.next();
        }
        drop(cursor);
        let retired = shared.catalogue.reclaim(&in_use)?;
        // Before they are forgotten, which is the next time: then no cached record names one.
        let tables: BTreeSet<TableId> = retired.iter().map(|schema| schema.table).collect();
        tables.into_iter().for_each(|table| shared.clear_cached(table));
        Ok(retired.len())
    }
}

/// A sweep under way: old deletions are merged into the rows that they cover, then taken out of the headers.
struct Sweep<'a> {
    shared: &'a Shared,
    table: TableId,
    /// In seconds.
    gc_before: i64,
    /// Of the partition at hand, and what of its deletions is old.
    prefix: Vec<u8>,
    old: Header,
    batch: Vec<Write>,
    /// Keys of headers with the old deletions in them, of partitions whose rows are in the batch or written.
    headers: Vec<(Vec<u8>, Header)>,
    swept: Swept,
}

impl<'a> Sweep<'a> {
    fn new(shared: &'a Shared, table: TableId, gc_before: i64) -> Self {
        let (prefix, old, swept) = (Vec::new(), Header::default(), Swept::default());
        Sweep { shared, table, gc_before, prefix, old, batch: Vec::new(), headers: Vec::new(), swept }
    }

    /// Says whether it was the first record of a partition.
    fn meet(&mut self, key: &[u8], record: &[u8]) -> Result<bool, StoreError> {
        let first = self.prefix != key[..key::prefix_bytes(key)];
        if first {
            if self.headers.len() >= SWEEP_BATCH {
                self.write()?;
            }
            self.prefix = key[..key::prefix_bytes(key)].to_vec();
            self.old = Header::default();
        }
        let deletion = match key::split(key) {
            Some((_, _, Target::Header)) => {
                self.old = decode_header(record).map_err(|what| StoreError::corrupt(key, what))?;
                self.old.ranges.retain(|range| range.deletion.local < self.gc_before);
                self.old.deletion = self.old.deletion.filter(|deletion| deletion.local < self.gc_before);
                if !self.old.is_empty() {
                    self.headers.push((key.to_vec(), self.old.clone()));
                }
                None
            }
            Some((_, _, Target::Static)) => self.old.deletion,
            Some((_, _, Target::Row(clustering))) => self.old.covering(clustering),
            None => None,
        };
        if let Some(deletion) = deletion {
            // Merged as any write is, so that nothing written meanwhile is lost.
            let row = Row { deletion: Some(deletion), ..Row::default() };
            let mut record = Vec::new();
            encode_row(&row, self.table, &self.shared.catalogue, &mut record);
            self.batch.push(Write::Merge(key.to_vec(), record));
            self.swept.rows += 1;
        }
        if self.batch.len() >= SWEEP_BATCH {
            self.write_rows()?;
        }
        Ok(first)
    }

    fn write_rows(&mut self) -> Result<(), StoreError> {
        let batch = &self.batch;
        self.shared.write_patiently(|shared, stall| shared.write_visibly(batch, stall))?;
        self.batch.clear();
        Ok(())
    }

    /// The rows, and then the headers. Only between two partitions.
    fn write(&mut self) -> Result<(), StoreError> {
        self.write_rows()?;
        for (key, old) in std::mem::take(&mut self.headers) {
            self.swept.headers += u64::from(self.shared.forget_deletions(&key, &old)?);
        }
        Ok(())
    }
}

impl Shared {
    /// Takes deletions out of a header; with no writer in between, for nothing else can take something away.
    fn forget_deletions(&self, key: &[u8], old: &Header) -> Result<bool, StoreError> {
        self.commit.check()?;
        let Some((_gate, bytes, _)) = self.read_gated(key)? else { return Ok(false) };
        let mut header = decode_header(&bytes).map_err(|what| StoreError::corrupt(key, what))?;
        header.forget(old);
        let write = if header.is_empty() {
            Write::Delete(key.to_vec())
        } else {
            let mut record = Vec::new();
            encode_header(&header, &mut record);
            Write::Put(key.to_vec(), record)
        };
        // A stall ends the sweep, and the next one goes on: with the gate closed nobody waits.
        self.write_visibly(&[write], Stall::Refuse)?;
        Ok(true)
    }
}
