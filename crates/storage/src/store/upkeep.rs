//! The work that keeps a store small and quick: merged rows written back, rows under old deletions
//! swept out, schemas reclaimed.

use super::{Shared, Store, StoreError};
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

/// The results of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Rows under an old deletion of their partition or range.
    pub rows: u64,
    /// Headers that lost deletions.
    pub headers: u64,
}

/// Fragments put into one batch by a sweep.
const SWEEP_BATCH: usize = 256;

/// Attempts to put a record together while nobody writes it.
const ATTEMPTS: usize = 2;

/// The upkeep thread: writes back what reads, writes and compaction ask for, until an empty key
/// ends it.
pub(super) fn run(shared: &Arc<Shared>, asked: &Receiver<Vec<u8>>) {
    while let Ok(key) = asked.recv() {
        if key.is_empty() {
            return;
        }
        // A record that cannot be written back is as it was; reads and writes of it report what is
        // wrong.
        let _ = shared.write_back(&key);
        shared.changes.ends_to_wait(&key);
    }
}

impl Shared {
    /// Puts what `make` makes of a record, and of how many fragments it was, in its place; says
    /// whether it did. `make` has to say the same record in other words, or take away what nobody
    /// else adds.
    ///
    /// A record is read, merged and encoded with writers going on, and written with none of them in
    /// between if none has written it meanwhile. One that is always being written is read and
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

    /// Puts a record in the place of its fragments.
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
        // With the gate closed nobody waits for compaction: who reads next asks again.
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

    /// Nothing is forgotten: only a sweep knows which rows the deletions still cover.
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
    /// Merges and purges a table in its files. Takes long, blocks nobody.
    pub fn compact(&self, table: TableId) -> Result<(), StoreError> {
        self.shared.engine.flush()?;
        self.shared.engine.compact(&key::token_start(table, None), &key::table_end(table));
        Ok(())
    }

    /// True if a table ever had deletions of partitions or ranges, which a sweep would look for.
    pub fn has_deletions(&self, table: TableId) -> bool {
        self.shared.has_headers(table)
    }

    /// Ends sweeps, the one under way at the end of a partition, before the store is dropped. What
    /// is not swept stays deleted.
    pub fn stop_sweeping(&self) {
        self.shared.stop_sweeping.store(true, Ordering::Release);
    }

    /// Removes the rows that deletions of partitions and ranges cover, if these are older than the
    /// table's grace, and then these deletions. Compaction cannot: it sees one key at a time. Takes
    /// as long as a scan of the table; blocks nobody. To be called now and then for tables with
    /// such deletions.
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

    /// Drops schemas that no record uses any more; says how many. Compacts everything on the way.
    /// Reads that go on meanwhile can still read records with them, until this is called again; the
    /// row cache drops its own.
    ///
    /// A schema that a record names which may ever be read again may never be dropped. So what
    /// counts is what records and fragments name that the engine hands over after the compaction,
    /// whatever came of that; and what hides older ones is durable before the schemas of these are
    /// dropped.
    pub fn reclaim_schemas(&self) -> Result<usize, StoreError> {
        let shared = &self.shared;
        let _one = shared.lock_upkeep();
        {
            // Whoever encoded before has written when this is reached; whoever encodes after is
            // seen in `used`.
            let _gate = shared.gate.write().unwrap_or_else(PoisonError::into_inner);
            shared.catalogue.forget_uses();
            // Who puts a record together has encoded it without the gate, and does so again.
            shared.changes.all_changed();
        }
        shared.engine.flush()?;
        // Merged fragments name fewer schemas. How far it came, it does not say.
        shared.engine.compact(&EVERYTHING.0, &EVERYTHING.1);
        shared.merger.looks_for_schemas.store(true, Ordering::Release);
        let in_use = shared.schemas_in_use();
        shared.merger.looks_for_schemas.store(false, Ordering::Release);
        let in_use = in_use?;
        shared.commit.wait(shared.commit.settle_all(shared.engine.sequence()))?;
        let (retired, written) = shared.catalogue.reclaim(&in_use);
        // Before they are forgotten, which is the next time: then no cached record names one.
        let tables: BTreeSet<TableId> = retired.iter().map(|schema| schema.table).collect();
        tables.into_iter().for_each(|table| shared.clear_cached(table));
        written?;
        Ok(retired.len())
    }
}

/// All keys.
const EVERYTHING: ([u8; 4], [u8; 4]) = ([0; 4], [u8::MAX; 4]);

impl Shared {
    /// Lists the schemas that values name. What fragments name that are merged on the way, the
    /// merger notes as used.
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

/// A sweep under way: old deletions are merged into the rows that they cover, then taken out of the
/// headers.
struct Sweep<'a> {
    shared: &'a Shared,
    table: TableId,
    /// In seconds.
    gc_before: i64,
    /// The prefix of the partition at hand, and what of its deletions is old.
    prefix: Vec<u8>,
    old: Header,
    batch: Vec<Write>,
    /// Keys of headers with the old deletions in them, of partitions whose rows are in the batch or
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

    /// Lets a row know itself what of it a deletion covers. What has no values has nothing that
    /// could come back.
    fn tell(&mut self, key: &[u8], record: &[u8], deletion: Deletion) -> Result<(), StoreError> {
        // What cannot be read is told all the same; reads of it report what is wrong.
        let row = decode_row(record, &self.shared.catalogue);
        if row.as_ref().is_ok_and(Row::has_counter) {
            self.swept.rows += u64::from(self.shared.cover_counters(self.table, key, deletion)?);
        } else if row.map_or(true, |row| row.has_values()) {
            // Merged as any write is, so that nothing written meanwhile is lost.
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
    /// Takes out of a row of counters what a deletion covers. Merged, the deletion would be newer
    /// than all that was added since it came, and take that as well.
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

    /// Takes deletions out of a header; with no writer in between, for nothing else can take
    /// something away.
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
        // A stall ends the sweep, and the next one goes on: with the gate closed nobody waits.
        self.replace(key, make, |writes| self.write_visibly(writes, Stall::Refuse))
    }
}
