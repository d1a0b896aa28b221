//! Reading single records, and a few of a partition as they were at one moment.

use super::partition::PartitionRows;
use super::{Shared, Store, StoreError};
use crate::catalogue::{
    DecodeError, RecordView, covering, decode_header, decode_row, is_plain, is_worth_folding,
};
use crate::engine::{EngineError, Found, QUICK_BYTES_MAX, ReadTier};
use crate::key::{self, Target};
use crate::row::{Bytes, ColumnId, Deletion, Header, PartitionKey, Row, TableId};
use std::ops::Bound;
use std::time::Instant;

/// The result of a read that may not wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read<T> {
    /// All of it was in memory.
    Ready(T),
    /// It has to be asked again where it may wait for the disk.
    WouldBlock,
}

impl<T> Read<T> {
    /// The answer, if there is one.
    pub fn ready(self) -> Option<T> {
        match self {
            Read::Ready(answer) => Some(answer),
            Read::WouldBlock => None,
        }
    }
}

/// A row as it is stored: merged, but without the partition's deletions, and with what has expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// See [`crate::catalogue::RecordView`]. Its schema may be reclaimed when schemas are.
    pub bytes: Bytes,
    /// From how many fragments it was merged.
    pub fragments: u32,
}

/// A row that a reader sees.
#[derive(Debug, Clone, Copy)]
pub enum RowRef<'a> {
    /// Where it lies, in its record: values of one time, which neither expire nor are deleted.
    InPlace(&'a RecordView<'a>),
    /// Taken out of its record, with what is deleted or has expired left out.
    Decoded(&'a Row),
}

/// Which rows of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// The lower bound of the clustering, whatever the direction.
    pub from: Bound<Bytes>,
    /// The upper bound.
    pub to: Bound<Bytes>,
    /// From the upper bound down.
    pub reversed: bool,
    /// So many live rows at most.
    pub limit: usize,
    /// How far it may look.
    pub reach: Reach,
}

/// How far a read of many records may look: where, and at how many. Beyond that it is
/// [`EngineError::WouldBlock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Where.
    pub tier: ReadTier,
    /// Records, live or not.
    pub records: usize,
    /// Not beyond this time, about.
    pub until: Option<Instant>,
}

/// Records between two looks at the clock.
const RECORDS_PER_LOOK: usize = 256;

impl Default for Reach {
    fn default() -> Self {
        Reach { tier: ReadTier::Disk, records: usize::MAX, until: None }
    }
}

impl Reach {
    /// Looks at one more record.
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
    /// A row (static or not) as a reader at `now` (s) sees it; `None` if there is no live one.
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

    /// As [`Store::read_row`], from memory alone: the first tier of the row cache, and what the
    /// engine has there.
    pub fn read_row_nonblocking(
        &self,
        table: TableId,
        partition: PartitionKey<'_>,
        target: Target<'_>,
        now: i64,
    ) -> Result<Read<Option<Row>>, StoreError> {
        self.shared.read_row(table, partition, target, now, ReadTier::Memory)
    }

    /// A row (static or not) as a reader at `now` (s) sees it, for `use_it` to look at; `None` if
    /// there is no live one. Plain rows are not taken out of their record for it, wherever that was
    /// found.
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
                // Who has kept its key as it was written shows that instead.
                if !view.has_column(ColumnId::KEY_AS_WRITTEN) {
                    return Ok(use_it(view.has_content().then_some(RowRef::InPlace(&view))));
                }
            }
            let row = shared.resolve(key, record, deletion, now)?;
            Ok(use_it(row.as_ref().map(RowRef::Decoded)))
        })
    }

    /// A row as the engine has it, past the row cache: for tools and tests.
    pub fn read_record(
        &self,
        table: TableId,
        partition: PartitionKey<'_>,
        target: Target<'_>,
        tier: ReadTier,
    ) -> Result<Read<Option<Record>>, StoreError> {
        self.shared.read_record(&key::record(table, partition, target)?, tier)
    }

    /// The deletions of a partition and its ranges. Free where the table never had any.
    pub fn read_header(
        &self,
        table: TableId,
        partition: PartitionKey<'_>,
        tier: ReadTier,
    ) -> Result<Read<Header>, StoreError> {
        self.shared.read_header(table, partition, tier)
    }

    /// Returns what a reader at `now` (s) sees of a stored record that `deletion` lies over.
    pub fn resolve(
        &self,
        record: &[u8],
        deletion: Option<Deletion>,
        now: i64,
    ) -> Result<Option<Row>, StoreError> {
        self.shared.resolve(&[], record, deletion, now)
    }

    /// Rows of a partition (static or not) as a reader at `now` (s) sees them, all as they were at
    /// one moment; `None` for each that is not live. They are held together: not for more than a
    /// few.
    pub fn read_rows(
        &self,
        place: (TableId, PartitionKey<'_>),
        targets: &[Target<'_>],
        now: i64,
        tier: ReadTier,
    ) -> Result<Read<Vec<Option<Row>>>, StoreError> {
        self.shared.read_rows(place, targets, now, tier)
    }

    /// The rows of a partition. What the iterator sees is the partition as it is now.
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

    /// A row's record with the deletion that lies over it, as they were at one moment.
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

    /// Rows as they were at one moment.
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

    /// Returns the deletion that the partition's header has for a place, without taking the other
    /// deletions out of it.
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

    /// Counts the fragments of a record that was read, and asks for it to be written back if they
    /// are many.
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

    /// Asks for the fragments of a record to be put together.
    pub(super) fn ask_write_back(&self, key: &[u8]) {
        let never = self.options.write_back_fragments == u32::MAX || Shared::is_own(key);
        if never || !self.changes.begins_to_wait(key) {
            return;
        }
        // If too many wait already, it will be read or written again.
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
        // Readers have no use for tombstones, however young.
        row.purge(now, i64::MAX);
        Ok(row.is_live(now).then_some(row))
    }
}

/// True if a record has so many deletions or elements that a reader who may not wait leaves it to
/// another. Of values that lie in their place the size does not matter.
pub(super) fn takes_long(record: &[u8], tier: ReadTier) -> bool {
    tier == ReadTier::Memory && record.len() > QUICK_BYTES_MAX && !is_plain(record)
}

/// Where ranges may lie over a place.
pub(super) fn clustering(target: Target<'_>) -> Option<&[u8]> {
    match target {
        Target::Row(clustering) => Some(clustering),
        Target::Static | Target::Header => None,
    }
}
