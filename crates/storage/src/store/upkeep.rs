//! Upkeep of a small and fast store: writes back merged rows, sweeps rows under old deletions,
//! reclaims schemas.

use super::error::StoreError;
use super::shared::{Shared, Store};
use crate::catalogue::{
    RecordView, decode_header, decode_row, decode_unmerged, encode_header, encode_row,
    is_worth_folding,
};
use crate::engine::{Found, QUICK_BYTES_MAX, ReadTier, Span, Stall, Write};
use crate::key::{self, Target};
use crate::row::{Deletion, Header, Row, TableId};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, PoisonError};

/// Results of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Rows under an old deletion of their partition or range.
    pub rows: u64,
    /// Headers that lost deletions.
    pub headers: u64,
}

/// Most fragments in one batch of a sweep.
const SWEEP_BATCH: usize = 256;

/// Attempts to merge a record between its writes.
const ATTEMPTS: usize = 2;

/// The upkeep thread: writes back records on request of reads, writes and compaction, until an
/// empty key ends it.
pub(super) fn run(shared: &Arc<Shared>, asked: &Receiver<Vec<u8>>) {
    while let Ok(key) = asked.recv() {
        if key.is_empty() {
            return;
        }
        // A record that cannot be written back stays unchanged; its reads and writes report the
        // fault.
        let _ = shared.write_back(&key);
        shared.changes.ends_to_wait(&key);
    }
}

impl Shared {
    /// Replaces a record, merged from its fragments, with the result of `make`; returns whether it
    /// did. The result must be equivalent, or remove only data that no other code adds.
    ///
    /// The record is read, merged and encoded while writers continue, and written with writers
    /// excluded if it has not changed in the meantime. A record under constant writes is read and
    /// merged with the gate closed, if that is quick.
    fn replace(
        &self,
        key: &[u8],
        make: impl Fn(&[u8], u32) -> Result<Option<Write>, StoreError>,
        write: impl Fn(&[Write]) -> Result<(), StoreError>,
    ) -> Result<bool, StoreError> {
        self.commit.check()?;
        for _ in 0..ATTEMPTS {
            let seen = self.changes.seen(key);
            let Found::Value { bytes, fragments } = self.engine.get(key, ReadTier::Disk)? else {
                return Ok(false);
            };
            let Some(made) = make(&bytes, fragments)? else { return Ok(false) };
            let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
            if self.changes.seen(key) == seen {
                return write(&[made]).map(|()| true);
            }
        }
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        match self.engine.get(key, ReadTier::Memory)? {
            Found::Value { bytes, fragments } if bytes.len() <= QUICK_BYTES_MAX => {
                match make(&bytes, fragments)? {
                    Some(made) => write(&[made]).map(|()| true),
                    None => Ok(false),
                }
            }
            _ => Ok(false),
        }
    }

    /// Replaces a record's fragments with the merged record.
    fn write_back(&self, key: &[u8]) -> Result<(), StoreError> {
        let Some((table, _, target)) = key::split(key) else { return Ok(()) };
        let make = |bytes: &[u8], fragments| {
            let folded = match target {
                Target::Header => self.fold_header(key, bytes, fragments)?,
                Target::Row(_) | Target::Static => self.fold_row(table, key, bytes, fragments)?,
            };
            if folded.is_none() && fragments < 2 {
                self.changes.put_together(key);
            }
            Ok(folded)
        };
        // With the gate closed this must not wait for compaction: the next reader requests it
        // again.
        if self.replace(key, make, |writes| self.write(writes, Stall::Refuse))? {
            self.figures.wrote_back();
        }
        Ok(())
    }

    fn fold_row(
        &self,
        table: TableId,
        key: &[u8],
        bytes: &[u8],
        fragments: u32,
    ) -> Result<Option<Write>, StoreError> {
        let row =
            decode_row(bytes, &self.catalogue).map_err(|what| StoreError::corrupt(key, what))?;
        let now = (self.options.clock)();
        let mut purged = row.clone();
        purged.purge(now, self.grace.gc_before(table, now));
        if fragments < 2 && purged == row {
            return Ok(None);
        }
        if purged.is_empty() {
            return Ok(Some(Write::Delete(key.to_vec())));
        }
        let mut record = Vec::new();
        encode_row(&purged, table, &self.catalogue, &mut record);
        Ok(Some(Write::Put(key.to_vec(), record)))
    }

    /// Purges nothing: only a sweep knows which rows the deletions still cover.
    fn fold_header(
        &self,
        key: &[u8],
        bytes: &[u8],
        fragments: u32,
    ) -> Result<Option<Write>, StoreError> {
        if fragments < 2 || !is_worth_folding(bytes) {
            return Ok(None);
        }
        let header = decode_header(bytes).map_err(|what| StoreError::corrupt(key, what))?;
        let mut record = Vec::new();
        encode_header(&header, &mut record);
        Ok(Some(Write::Put(key.to_vec(), record)))
    }
}

impl Store {
    /// Merges and purges a table in its files. Takes long but blocks no caller.
    pub fn compact(&self, table: TableId) -> Result<(), StoreError> {
        self.shared.engine.flush()?;
        self.shared.engine.compact(&key::token_start(table, None), &key::table_end(table));
        Ok(())
    }

    /// True if a table ever had deletions of partitions or ranges, the subject of a sweep.
    pub fn has_deletions(&self, table: TableId) -> bool {
        self.shared.has_headers(table)
    }

    /// Stops sweeps before the store is dropped; one in progress stops at the end of a partition.
    /// Unswept data stays deleted.
    pub fn stop_sweeping(&self) {
        self.shared.stop_sweeping.store(true, Ordering::Release);
    }

    /// Removes the rows covered by deletions of partitions and ranges older than the table's grace,
    /// and then these deletions. Compaction cannot: it sees one key at a time. Takes as long as a
    /// scan of the table but blocks no caller. Call it periodically for tables with such deletions.
    pub fn sweep(&self, table: TableId) -> Result<Swept, StoreError> {
        let _one = self.shared.lock_upkeep();
        if !self.shared.has_headers(table) {
            return Ok(Swept::default());
        }
        let gc_before = self.shared.grace.gc_before(table, (self.shared.options.clock)());
        let mut sweep = Sweep::new(&self.shared, table, gc_before);
        let (from, to) = (key::token_start(table, None), key::table_end(table));
        let span = Span {
            from: from.clone(),
            to,
            one_partition: false,
            cache: false,
            tier: ReadTier::Disk,
        };
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

    /// Drops schemas that no record uses any more; returns their number. Also compacts everything.
    /// Ongoing reads can still read records with these schemas until the next call; the row cache
    /// drops its own.
    ///
    /// A schema named by a record that may ever be read again must never be dropped. Only schemas
    /// named by records and fragments that the engine returns after the compaction therefore count
    /// as in use, whatever the compaction achieved; and records that hide older ones are durable
    /// before the schemas of the older ones are dropped.
    pub fn reclaim_schemas(&self) -> Result<usize, StoreError> {
        let shared = &self.shared;
        let _one = shared.lock_upkeep();
        {
            // Earlier encoders have written when this point is reached; later ones are recorded in
            // `used`.
            let _gate = shared.gate.write().unwrap_or_else(PoisonError::into_inner);
            shared.catalogue.forget_uses();
            // A thread that merges a record has encoded it without the gate, and does so again.
            shared.changes.all_changed();
        }
        shared.engine.flush()?;
        // Merged fragments name fewer schemas. The engine does not report how far it came.
        shared.engine.compact(&EVERYTHING.0, &EVERYTHING.1);
        shared.merger.looks_for_schemas.store(true, Ordering::Release);
        let in_use = shared.schemas_in_use();
        shared.merger.looks_for_schemas.store(false, Ordering::Release);
        let in_use = in_use?;
        shared.commit.wait(shared.commit.settle_all(shared.engine.sequence()))?;
        let (retired, written) = shared.catalogue.reclaim(&in_use);
        // Before they are dropped at the next call, no cached record may name one.
        let tables: BTreeSet<TableId> = retired.iter().map(|schema| schema.table).collect();
        tables.into_iter().for_each(|table| shared.clear_cached(table));
        written?;
        Ok(retired.len())
    }
}

/// Range of all keys.
const EVERYTHING: ([u8; 4], [u8; 4]) = ([0; 4], [u8::MAX; 4]);

impl Shared {
    /// Lists the schemas that values name. The merger marks the schemas of fragments that it merges
    /// on the way.
    fn schemas_in_use(&self) -> Result<BTreeSet<u32>, StoreError> {
        let (from, to) = (EVERYTHING.0.to_vec(), EVERYTHING.1.to_vec());
        let span = Span {
            from: from.clone(),
            to,
            one_partition: false,
            cache: false,
            tier: ReadTier::Disk,
        };
        let mut cursor = self.engine.cursor(&span);
        cursor.seek(&from);
        let mut in_use = BTreeSet::new();
        while let Some((_, record)) = cursor.entry()? {
            let parts = decode_unmerged(record).unwrap_or_else(|| vec![record]);
            let schema = |part| RecordView::parse(part, &self.catalogue).ok()?.schema_id();
            in_use.extend(parts.into_iter().filter_map(schema));
            cursor.next();
        }
        Ok(in_use)
    }
}

/// A sweep in progress: merges old deletions into the rows that they cover, then removes them from
/// the headers.
struct Sweep<'a> {
    shared: &'a Shared,
    table: TableId,
    /// Limit in seconds.
    gc_before: i64,
    /// The prefix of the current partition, and its old deletions.
    prefix: Vec<u8>,
    old: Header,
    batch: Vec<Write>,
    /// Keys of headers with their old deletions, for partitions whose rows are in the batch or
    /// written.
    headers: Vec<(Vec<u8>, Header)>,
    swept: Swept,
}

impl<'a> Sweep<'a> {
    fn new(shared: &'a Shared, table: TableId, gc_before: i64) -> Self {
        let (prefix, old, swept) = (Vec::new(), Header::default(), Swept::default());
        Sweep {
            shared,
            table,
            gc_before,
            prefix,
            old,
            batch: Vec::new(),
            headers: Vec::new(),
            swept,
        }
    }

    /// Returns whether the record was the first of its partition.
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
                self.old.deletion =
                    self.old.deletion.filter(|deletion| deletion.local < self.gc_before);
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
            self.tell(key, record, deletion)?;
        }
        if self.batch.len() >= SWEEP_BATCH {
            self.write_rows()?;
        }
        Ok(first)
    }

    /// Adds a deletion to a row that it covers. A row without values has nothing that could come
    /// back.
    fn tell(&mut self, key: &[u8], record: &[u8], deletion: Deletion) -> Result<(), StoreError> {
        // Unreadable records get the deletion too; reads of them report the fault.
        let row = decode_row(record, &self.shared.catalogue);
        if row.as_ref().is_ok_and(Row::has_counter) {
            self.swept.rows += u64::from(self.shared.cover_counters(self.table, key, deletion)?);
        } else if row.map_or(true, |row| row.has_values()) {
            // Merged like any write, so that no concurrent write is lost.
            let row = Row { deletion: Some(deletion), ..Row::default() };
            let mut record = Vec::new();
            encode_row(&row, self.table, &self.shared.catalogue, &mut record);
            self.batch.push(Write::Merge(key.to_vec(), record));
            self.swept.rows += 1;
        }
        Ok(())
    }

    fn write_rows(&mut self) -> Result<(), StoreError> {
        let batch = &self.batch;
        self.shared.write_patiently(|shared, stall| shared.write_visibly(batch, stall))?;
        self.batch.clear();
        Ok(())
    }

    /// Writes the rows, and then the headers. Only between two partitions.
    fn write(&mut self) -> Result<(), StoreError> {
        self.write_rows()?;
        for (key, old) in std::mem::take(&mut self.headers) {
            self.swept.headers += u64::from(self.shared.forget_deletions(&key, &old)?);
        }
        Ok(())
    }
}

impl Shared {
    /// Removes the part of a row of counters that a deletion covers. A merge would make the
    /// deletion newer than all later deltas and remove them too.
    fn cover_counters(
        &self,
        table: TableId,
        key: &[u8],
        deletion: Deletion,
    ) -> Result<bool, StoreError> {
        let make = |bytes: &[u8], _| {
            let row = decode_row(bytes, &self.catalogue)
                .map_err(|what| StoreError::corrupt(key, what))?;
            let mut covered = row.clone();
            covered.cover(deletion);
            if covered == row {
                return Ok(None);
            }
            if covered.is_empty() {
                return Ok(Some(Write::Delete(key.to_vec())));
            }
            let mut record = Vec::new();
            encode_row(&covered, table, &self.catalogue, &mut record);
            Ok(Some(Write::Put(key.to_vec(), record)))
        };
        self.replace(key, make, |writes| self.write_visibly(writes, Stall::Refuse))
    }

    /// Removes deletions from a header with writers excluded, since only this code removes data.
    fn forget_deletions(&self, key: &[u8], old: &Header) -> Result<bool, StoreError> {
        let make = |bytes: &[u8], _| {
            let mut header = decode_header(bytes).map_err(|what| StoreError::corrupt(key, what))?;
            header.forget(old);
            if header.is_empty() {
                return Ok(Some(Write::Delete(key.to_vec())));
            }
            let mut record = Vec::new();
            encode_header(&header, &mut record);
            Ok(Some(Write::Put(key.to_vec(), record)))
        };
        // A stall ends the sweep, and the next one continues: this must not wait with the gate
        // closed.
        self.replace(key, make, |writes| self.write_visibly(writes, Stall::Refuse))
    }
}
