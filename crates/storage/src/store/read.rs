//! Reads of single records, and of a few in a partition as of one moment.

use super::error::StoreError;
use super::partition::PartitionRows;
use super::shared::{Shared, Store};
use crate::catalogue::{
    DecodeError, RecordView, covering, decode_header, decode_row, is_plain, is_worth_folding,
};
use crate::engine::{EngineError, Found, QUICK_BYTES_MAX, ReadTier};
use crate::key::{self, Target};
use crate::row::{Bytes, ColumnId, Deletion, Header, PartitionKey, Row, TableId};
use std::ops::Bound;
use std::time::Instant;

/// Result of a read that must not wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read<T> {
    /// The whole result was in memory.
    Ready(T),
    /// The read must be repeated where it may wait for the disk.
    WouldBlock,
}

impl<T> Read<T> {
    /// The result, if available.
    pub fn ready(self) -> Option<T> {
        match self {
            Read::Ready(answer) => Some(answer),
            Read::WouldBlock => None,
        }
    }
}

/// A row as stored: merged, but without applying the partition's deletions, and including expired
/// data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Encoded record, see [`crate::catalogue::RecordView`]. Its schema may be reclaimed with
    /// others.
    pub bytes: Bytes,
    /// Number of fragments that it was merged from.
    pub fragments: u32,
}

/// A row as seen by a reader.
#[derive(Debug, Clone, Copy)]
pub enum RowRef<'a> {
    /// In place in its record: values of one time, which neither expire nor are deleted.
    InPlace(&'a RecordView<'a>),
    /// Decoded from its record, without deleted and expired data.
    Decoded(&'a Row),
}

/// Selection of a partition's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// Lower bound of the clustering, whatever the direction.
    pub from: Bound<Bytes>,
    /// Upper bound of the clustering.
    pub to: Bound<Bytes>,
    /// True to read from the upper bound down.
    pub reversed: bool,
    /// Most live rows to return.
    pub limit: usize,
    /// Limits of the read.
    pub reach: Reach,
}

/// Limits of a read of many records. Beyond them it fails with [`EngineError::WouldBlock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Tier that may be read.
    pub tier: ReadTier,
    /// Most records, live or not.
    pub records: usize,
    /// Approximate deadline.
    pub until: Option<Instant>,
}

/// Records between two checks of the clock.
const RECORDS_PER_LOOK: usize = 256;

impl Default for Reach {
    fn default() -> Self {
        Reach { tier: ReadTier::Disk, records: usize::MAX, until: None }
    }
}

impl Reach {
    /// Counts one more record.
    pub(super) fn look_at(&mut self, record: &[u8]) -> Result<(), EngineError> {
        let left = self.records.checked_sub(1).filter(|_| !takes_long(record, self.tier));
        self.records = left.ok_or(EngineError::WouldBlock)?;
        let looks = self.records.is_multiple_of(RECORDS_PER_LOOK);
        match self.until.filter(|until| looks && Instant::now() >= *until) {
            Some(_) => Err(EngineError::WouldBlock),
            None => Ok(()),
        }
    }
}

impl Default for Slice {
    fn default() -> Self {
        Slice {
            from: Bound::Unbounded,
            to: Bound::Unbounded,
            reversed: false,
            limit: usize::MAX,
            reach: Reach::default(),
        }
    }
}

impl Store {
    /// A row (static or not) as seen by a reader at `now` (s); `None` if it is not live.
    pub fn read_row(
        &self,
        table: TableId,
        partition: PartitionKey<'_>,
        target: Target<'_>,
        now: i64,
    ) -> Result<Option<Row>, StoreError> {
        let read = self.shared.read_row(table, partition, target, now, ReadTier::Disk)?;
        Ok(read.ready().flatten())
    }

    /// Like [`Store::read_row`], from memory alone: the first tier of the row cache, and the
    /// engine's memory.
    pub fn read_row_nonblocking(
        &self,
        table: TableId,
        partition: PartitionKey<'_>,
        target: Target<'_>,
        now: i64,
    ) -> Result<Read<Option<Row>>, StoreError> {
        self.shared.read_row(table, partition, target, now, ReadTier::Memory)
    }

    /// Passes a row (static or not) as seen by a reader at `now` (s) to `use_it`; `None` if it is
    /// not live. Plain rows are not decoded for it, wherever they were found.
    pub fn with_row<T>(
        &self,
        (table, partition, target): (TableId, PartitionKey<'_>, Target<'_>),
        now: i64,
        tier: ReadTier,
        use_it: impl FnOnce(Option<RowRef<'_>>) -> T,
    ) -> Result<Read<T>, StoreError> {
        let shared = &*self.shared;
        shared.with_record((table, partition, target), tier, |key, record, deletion| {
            let Some(record) = record else { return Ok(use_it(None)) };
            if deletion.is_none() && is_plain(record) {
                let view = RecordView::parse(record, &shared.catalogue);
                let view = view.map_err(|what| StoreError::corrupt(key, what))?;
                // A row with the written form of its key shows that instead.
                if !view.has_column(ColumnId::KEY_AS_WRITTEN) {
                    return Ok(use_it(view.has_content().then_some(RowRef::InPlace(&view))));
                }
            }
            let row = shared.resolve(key, record, deletion, now)?;
            Ok(use_it(row.as_ref().map(RowRef::Decoded)))
        })
    }

    /// A row from the engine, past the row cache: for tools and tests.
    pub fn read_record(
        &self,
        table: TableId,
        partition: PartitionKey<'_>,
        target: Target<'_>,
        tier: ReadTier,
    ) -> Result<Read<Option<Record>>, StoreError> {
        self.shared.read_record(&key::record(table, partition, target)?, tier)
    }

    /// The deletions of a partition and its ranges. Free if the table never had any.
    pub fn read_header(
        &self,
        table: TableId,
        partition: PartitionKey<'_>,
        tier: ReadTier,
    ) -> Result<Read<Header>, StoreError> {
        self.shared.read_header(table, partition, tier)
    }

    /// Returns the part of a stored record under `deletion` that a reader sees at `now` (s).
    pub fn resolve(
        &self,
        record: &[u8],
        deletion: Option<Deletion>,
        now: i64,
    ) -> Result<Option<Row>, StoreError> {
        self.shared.resolve(&[], record, deletion, now)
    }

    /// Rows of a partition (static or not) as seen by a reader at `now` (s), all as of one moment;
    /// `None` for each that is not live. Keeps all of them in memory: only for a few.
    pub fn read_rows(
        &self,
        place: (TableId, PartitionKey<'_>),
        targets: &[Target<'_>],
        now: i64,
        tier: ReadTier,
    ) -> Result<Read<Vec<Option<Row>>>, StoreError> {
        self.shared.read_rows(place, targets, now, tier)
    }

    /// The rows of a partition. The iterator sees the partition's current state.
    pub fn read_partition(
        &self,
        table: TableId,
        partition: PartitionKey<'_>,
        slice: &Slice,
        now: i64,
    ) -> Result<PartitionRows<'_>, StoreError> {
        PartitionRows::new(&self.shared, key::partition_prefix(table, partition)?, slice, now)
    }
}

impl Shared {
    fn read_row(
        &self,
        table: TableId,
        partition: PartitionKey<'_>,
        target: Target<'_>,
        now: i64,
        tier: ReadTier,
    ) -> Result<Read<Option<Row>>, StoreError> {
        self.with_record((table, partition, target), tier, |key, record, deletion| match record {
            Some(record) => self.resolve(key, record, deletion, now),
            None => Ok(None),
        })
    }

    /// A row's record with the deletion over it, as of one moment.
    fn with_record<T>(
        &self,
        (table, partition, target): (TableId, PartitionKey<'_>, Target<'_>),
        tier: ReadTier,
        use_it: impl FnOnce(&[u8], Option<&[u8]>, Option<Deletion>) -> Result<T, StoreError>,
    ) -> Result<Read<T>, StoreError> {
        let key = key::record(table, partition, target)?;
        let seen = self.stamps.look(&key);
        let stored = match self.fetch(&key, tier)? {
            Read::WouldBlock => return Ok(Read::WouldBlock),
            Read::Ready(stored) => stored,
        };
        let Some(record) = stored.record() else {
            return use_it(&key, None, None).map(Read::Ready);
        };
        if takes_long(record, tier) {
            self.figures.blocked();
            return Ok(Read::WouldBlock);
        }
        if !self.has_headers(table) {
            return use_it(&key, Some(record), None).map(Read::Ready);
        }
        let deletion = match self.read_covering((table, partition, target), tier)? {
            Read::WouldBlock => return Ok(Read::WouldBlock),
            Read::Ready(deletion) => deletion,
        };
        if self.stamps.are_as(seen, &key) {
            return use_it(&key, Some(record), deletion).map(Read::Ready);
        }
        // Row and header may be of two moments.
        let Read::Ready(mut view) = self.view(table, partition, tier)? else {
            return Ok(Read::WouldBlock);
        };
        let deletion = view.deletion(target)?;
        match view.record(&key)? {
            Read::WouldBlock => Ok(Read::WouldBlock),
            Read::Ready(record) => use_it(&key, record, deletion).map(Read::Ready),
        }
    }

    /// Rows as of one moment.
    fn read_rows(
        &self,
        (table, partition): (TableId, PartitionKey<'_>),
        targets: &[Target<'_>],
        now: i64,
        tier: ReadTier,
    ) -> Result<Read<Vec<Option<Row>>>, StoreError> {
        let prefix = key::partition_prefix(table, partition)?;
        let seen = self.stamps.look(&prefix);
        let mut rows = Vec::with_capacity(targets.len());
        for target in targets {
            match self.read_row(table, partition, *target, now, tier)? {
                Read::WouldBlock => return Ok(Read::WouldBlock),
                Read::Ready(row) => rows.push(row),
            }
        }
        if self.stamps.are_as(seen, &prefix) {
            return Ok(Read::Ready(rows));
        }
        rows.clear();
        let Read::Ready(mut view) = self.view(table, partition, tier)? else {
            return Ok(Read::WouldBlock);
        };
        for target in targets {
            let key = key::record(table, partition, *target)?;
            let deletion = view.deletion(*target)?;
            match view.record(&key)? {
                Read::WouldBlock => return Ok(Read::WouldBlock),
                Read::Ready(None) => rows.push(None),
                Read::Ready(Some(record)) => rows.push(self.resolve(&key, record, deletion, now)?),
            }
        }
        Ok(Read::Ready(rows))
    }

    fn read_header(
        &self,
        table: TableId,
        partition: PartitionKey<'_>,
        tier: ReadTier,
    ) -> Result<Read<Header>, StoreError> {
        self.with_header(table, partition, tier, decode_header)
    }

    /// Returns the deletion in the partition's header for a place, without decoding the others.
    pub(super) fn read_covering(
        &self,
        (table, partition, target): (TableId, PartitionKey<'_>, Target<'_>),
        tier: ReadTier,
    ) -> Result<Read<Option<Deletion>>, StoreError> {
        self.with_header(table, partition, tier, |record| covering(record, clustering(target)))
    }

    fn with_header<T: Default>(
        &self,
        table: TableId,
        partition: PartitionKey<'_>,
        tier: ReadTier,
        use_it: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<Read<T>, StoreError> {
        if !self.has_headers(table) {
            return Ok(Read::Ready(T::default()));
        }
        let key = key::record(table, partition, Target::Header)?;
        let stored = match self.fetch(&key, tier)? {
            Read::WouldBlock => return Ok(Read::WouldBlock),
            Read::Ready(stored) => stored,
        };
        match stored.record() {
            None => Ok(Read::Ready(T::default())),
            Some(record) if takes_long(record, tier) => {
                self.figures.blocked();
                Ok(Read::WouldBlock)
            }
            Some(record) => {
                use_it(record).map(Read::Ready).map_err(|what| StoreError::corrupt(&key, what))
            }
        }
    }

    pub(super) fn read_record(
        &self,
        key: &[u8],
        tier: ReadTier,
    ) -> Result<Read<Option<Record>>, StoreError> {
        if tier == ReadTier::Memory && self.changes.is_piled_up(key) {
            self.figures.blocked();
            return Ok(Read::WouldBlock);
        }
        match self.engine.get(key, tier)? {
            Found::Absent => {
                self.figures.read(0);
                Ok(Read::Ready(None))
            }
            Found::WouldBlock => {
                self.figures.blocked();
                Ok(Read::WouldBlock)
            }
            Found::Value { bytes, fragments } => {
                self.met(key, &bytes, fragments);
                Ok(Read::Ready(Some(Record { bytes, fragments })))
            }
        }
    }

    /// Counts the fragments of a record that was read, and requests a write-back if there are many.
    pub(super) fn met(&self, key: &[u8], record: &[u8], fragments: u32) {
        self.figures.read(fragments);
        self.ask_after_read(key, record, fragments);
    }

    pub(super) fn ask_after_read(&self, key: &[u8], record: &[u8], fragments: u32) {
        let many = fragments >= self.options.write_back_fragments;
        if many && (!Shared::is_header(key) || is_worth_folding(record)) {
            self.ask_write_back(key);
        }
    }

    /// Requests a merge of a record's fragments.
    pub(super) fn ask_write_back(&self, key: &[u8]) {
        let never = self.options.write_back_fragments == u32::MAX || Shared::is_own(key);
        if never || !self.changes.begins_to_wait(key) {
            return;
        }
        // If the queue is full, a later read or write requests it again.
        if self.rewrites.try_send(key.to_vec()).is_err() {
            self.changes.ends_to_wait(key);
        }
    }

    pub(super) fn resolve(
        &self,
        key: &[u8],
        record: &[u8],
        deletion: Option<Deletion>,
        now: i64,
    ) -> Result<Option<Row>, StoreError> {
        let mut row =
            decode_row(record, &self.catalogue).map_err(|what| StoreError::corrupt(key, what))?;
        if let Some(deletion) = deletion {
            row.cover(deletion);
        }
        // Readers have no use for tombstones of any age.
        row.purge(now, i64::MAX);
        Ok(row.is_live(now).then_some(row))
    }
}

/// True if a record has so many deletions or elements that a reader that must not wait leaves it to
/// another. The size of values read in place does not matter.
pub(super) fn takes_long(record: &[u8], tier: ReadTier) -> bool {
    tier == ReadTier::Memory && record.len() > QUICK_BYTES_MAX && !is_plain(record)
}

/// The clustering at which ranges may cover a place.
pub(super) fn clustering(target: Target<'_>) -> Option<&[u8]> {
    match target {
        Target::Row(clustering) => Some(clustering),
        Target::Static | Target::Header => None,
    }
}
