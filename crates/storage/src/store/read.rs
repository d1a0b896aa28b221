//! Reading one record, or the rows of one partition.

use super::{Shared, Store, StoreError};
use crate::catalogue::{RecordView, decode_header, decode_row, is_plain};
use crate::engine::{Cursor, EngineError, Found, ReadTier, Span};
use crate::key::{self, Target};
use crate::row::{Bytes, ColumnId, Deletion, Header, PartitionKey, Row, TableId};
use std::ops::Bound;
use std::sync::atomic::Ordering;

/// What a read that may not wait has to say.
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

/// How far a read of many records may look: where, and at how many. Beyond that it is [`EngineError::WouldBlock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Where.
    pub tier: ReadTier,
    /// Records, live or not.
    pub records: usize,
}

impl Default for Reach {
    fn default() -> Self {
        Reach { tier: ReadTier::Disk, records: usize::MAX }
    }
}

impl Reach {
    /// Looks at one more record.
    pub(super) fn step(&mut self) -> Result<(), EngineError> {
        self.records = self.records.checked_sub(1).ok_or(EngineError::WouldBlock)?;
        Ok(())
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

impl Slice {
    /// The keys within which its rows are, the second excluded.
    pub(super) fn bounds(&self, prefix: &[u8]) -> Result<(Bytes, Bytes), StoreError> {
        Ok((lower(prefix, &self.from)?, upper(prefix, &self.to)?))
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

    /// As [`Store::read_row`], from memory alone: the first tier of the row cache, and what the engine has there.
    pub fn read_row_nonblocking(
        &self,
        table: TableId,
        partition: PartitionKey<'_>,
        target: Target<'_>,
        now: i64,
    ) -> Result<Read<Option<Row>>, StoreError> {
        self.shared.read_row(table, partition, target, now, ReadTier::Memory)
    }

    /// A row (static or not) as a reader at `now` (s) sees it, for `use_it` to look at; `None` if there is no live one. Plain
    /// rows are not taken out of their record for it, wherever that was found.
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

    /// What a reader at `now` (s) sees of a stored record that `deletion` lies over.
    pub fn resolve(&self, record: &[u8], deletion: Option<Deletion>, now: i64) -> Result<Option<Row>, StoreError> {
        self.shared.resolve(&[], record, deletion, now)
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
        loop {
            let forgotten = self.forgotten.load(Ordering::Acquire);
            let stored = match self.fetch(&key, tier)? {
                Read::WouldBlock => return Ok(Read::WouldBlock),
                Read::Ready(stored) => stored,
            };
            let Some(record) = stored.record() else { return use_it(&key, None, None).map(Read::Ready) };
            // After the row: a deletion that comes in between is seen, one that comes before is not missed.
            let header = match self.read_header(table, partition, tier)? {
                Read::WouldBlock => return Ok(Read::WouldBlock),
                Read::Ready(header) => header,
            };
            // A sweep may have moved the deletion into the row after that was read, and out of the header before.
            if self.forgotten.load(Ordering::Acquire) == forgotten {
                return use_it(&key, Some(record), covering(&header, target)).map(Read::Ready);
            }
        }
    }

    pub(super) fn read_header(
        &self,
        table: TableId,
        partition: PartitionKey<'_>,
        tier: ReadTier,
    ) -> Result<Read<Header>, StoreError> {
        if !self.has_headers(table) {
            return Ok(Read::Ready(Header::default()));
        }
        let key = key::record(table, partition, Target::Header)?;
        let stored = match self.fetch(&key, tier)? {
            Read::WouldBlock => return Ok(Read::WouldBlock),
            Read::Ready(stored) => stored,
        };
        match stored.record() {
            None => Ok(Read::Ready(Header::default())),
            Some(record) => decode_header(record).map(Read::Ready).map_err(|what| StoreError::corrupt(&key, what)),
        }
    }

    pub(super) fn read_record(&self, key: &[u8], tier: ReadTier) -> Result<Read<Option<Record>>, StoreError> {
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
                self.met(key, fragments);
                Ok(Read::Ready(Some(Record { bytes, fragments })))
            }
        }
    }

    /// Counts the fragments of a row that was read, and asks for it to be written back if they are many.
    fn met(&self, key: &[u8], fragments: u32) {
        self.figures.read(fragments);
        if fragments >= self.options.write_back_fragments {
            // If too many wait already, this row will be read again.
            let _ = self.rewrites.try_send(key.to_vec());
        }
    }

    pub(super) fn resolve(
        &self,
        key: &[u8],
        record: &[u8],
        deletion: Option<Deletion>,
        now: i64,
    ) -> Result<Option<Row>, StoreError> {
        let mut row = decode_row(record, &self.catalogue).map_err(|what| StoreError::corrupt(key, what))?;
        if let Some(deletion) = deletion {
            row.cover(deletion);
        }
        // Readers have no use for tombstones, however young.
        row.purge(now, i64::MAX);
        Ok(row.is_live(now).then_some(row))
    }
}

fn covering(header: &Header, target: Target<'_>) -> Option<Deletion> {
    match target {
        Target::Row(clustering) => header.covering(clustering),
        Target::Static | Target::Header => header.deletion,
    }
}

/// The live rows of a partition, one after another.
pub struct PartitionRows<'a> {
    shared: &'a Shared,
    cursor: Box<dyn Cursor + 'a>,
    prefix: Bytes,
    header: Header,
    static_row: Option<Row>,
    /// Within these keys, the second excluded.
    bounds: (Bytes, Bytes),
    reversed: bool,
    left: usize,
    reach: Reach,
    now: i64,
}

impl<'a> PartitionRows<'a> {
    fn new(shared: &'a Shared, prefix: Bytes, slice: &Slice, now: i64) -> Result<Self, StoreError> {
        let end = key::partition_end(&prefix);
        let span =
            Span { from: prefix.clone(), to: end.clone(), one_partition: true, cache: true, tier: slice.reach.tier };
        let mut cursor = shared.engine.cursor(&span);
        cursor.seek(&prefix);
        let (header, static_row) = read_head(shared, &mut *cursor, &prefix, now)?;
        let bounds = slice.bounds(&prefix)?;
        match slice.reversed {
            true => cursor.seek_before(&bounds.1),
            // The cursor is at the first row already, which is where most slices begin.
            false if slice.from == Bound::Unbounded => {}
            false => cursor.seek(&bounds.0),
        }
        let (reversed, left, reach) = (slice.reversed, slice.limit, slice.reach);
        Ok(PartitionRows { shared, cursor, prefix, header, static_row, bounds, reversed, left, reach, now })
    }

    /// The static row, if it is live.
    pub fn static_row(&self) -> Option<&Row> {
        self.static_row.as_ref()
    }

    /// The next live row with its clustering bytes; `None` at the end or at the limit.
    #[allow(clippy::should_implement_trait, reason = "a failing read is not the end of an iterator")]
    pub fn next(&mut self) -> Result<Option<(Bytes, Row)>, StoreError> {
        while self.left > 0 {
            let Some((key, record)) = self.cursor.entry()? else { return Ok(None) };
            if key < &self.bounds.0[..] || key >= &self.bounds.1[..] {
                return Ok(None);
            }
            self.reach.step()?;
            self.shared.met(key, self.cursor.fragments());
            let clustering = key[self.prefix.len() + 1..].to_vec();
            let row = self.shared.resolve(key, record, self.header.covering(&clustering), self.now)?;
            if self.reversed {
                self.cursor.previous();
            } else {
                self.cursor.next();
            }
            if let Some(row) = row {
                self.left -= 1;
                return Ok(Some((clustering, row)));
            }
        }
        Ok(None)
    }
}

/// Reads a partition's header and static row, if the cursor is at them, and leaves it at the first row.
pub(super) fn read_head(
    shared: &Shared,
    cursor: &mut dyn Cursor,
    prefix: &[u8],
    now: i64,
) -> Result<(Header, Option<Row>), StoreError> {
    let (mut header, mut static_row) = (Header::default(), None);
    while let Some((key, record)) = cursor.entry()? {
        match key::split(key).map(|(_, _, target)| target) {
            Some(Target::Header) if key.starts_with(prefix) => {
                header = decode_header(record).map_err(|what| StoreError::corrupt(key, what))?;
            }
            Some(Target::Static) if key.starts_with(prefix) => {
                static_row = shared.resolve(key, record, header.deletion, now)?;
            }
            _ => break,
        }
        cursor.next();
    }
    Ok((header, static_row))
}

fn bound_key(prefix: &[u8], clustering: &[u8], after: bool) -> Result<Bytes, StoreError> {
    let mut key = prefix.to_vec();
    key::push_target(&mut key, Target::Row(clustering))?;
    // The next possible key is this one with a zero behind it.
    key.extend(after.then_some(0));
    Ok(key)
}

fn lower(prefix: &[u8], bound: &Bound<Bytes>) -> Result<Bytes, StoreError> {
    match bound {
        Bound::Included(clustering) => bound_key(prefix, clustering, false),
        Bound::Excluded(clustering) => bound_key(prefix, clustering, true),
        Bound::Unbounded => bound_key(prefix, &[], false),
    }
}

fn upper(prefix: &[u8], bound: &Bound<Bytes>) -> Result<Bytes, StoreError> {
    match bound {
        Bound::Included(clustering) => bound_key(prefix, clustering, true),
        Bound::Excluded(clustering) => bound_key(prefix, clustering, false),
        Bound::Unbounded => Ok(key::partition_end(prefix)),
    }
}
