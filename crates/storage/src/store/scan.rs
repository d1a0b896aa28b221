//! Scans the partitions of a table in token order; can stop and resume between any two rows.

use super::error::StoreError;
use super::partition::read_head;
use super::read::Reach;
use super::shared::{Shared, Store};
use crate::engine::{Cursor, Span};
use crate::key::{self, Target};
use crate::row::{Bytes, Header, PartitionKey, Row, TableId};
use std::sync::Arc;

/// Place where a scan resumes: after this row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// Partition of the last row.
    pub partition: Bytes,
    /// Clustering of the last row; `None` for the static row.
    pub clustering: Option<Bytes>,
}

/// Part of a table to scan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScanRange {
    /// First token, in key form (big endian, sign bit flipped).
    pub from: Option<[u8; 8]>,
    /// Last token, included.
    pub to: Option<[u8; 8]>,
    /// Place where an earlier scan stopped.
    pub after: Option<Position>,
    /// Limits of the scan.
    pub reach: Reach,
}

/// A live row with its partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanItem {
    /// The same `Arc` for all rows of a partition.
    pub partition: Arc<[u8]>,
    /// `None` for the static row, which comes before the partition's rows, and again after a
    /// resumption.
    pub clustering: Option<Bytes>,
    /// The row as seen by a reader.
    pub row: Row,
}

impl ScanItem {
    /// Place to resume after this item.
    pub fn position(&self) -> Position {
        Position { partition: self.partition.to_vec(), clustering: self.clustering.clone() }
    }
}

/// A scan in progress, over the table as of its beginning.
pub struct Scan<'a> {
    shared: &'a Shared,
    cursor: Box<dyn Cursor + 'a>,
    reach: Reach,
    now: i64,
    prefix: Bytes,
    partition: Arc<[u8]>,
    header: Header,
    static_row: Option<Row>,
}

impl Store {
    /// The live rows of a part of a table as of `now` (s). Does not fill the block cache.
    pub fn scan(
        &self,
        table: TableId,
        range: &ScanRange,
        now: i64,
    ) -> Result<Scan<'_>, StoreError> {
        let start = key::token_start(table, range.from);
        let end = match range.to.map(u64::from_be_bytes).and_then(|last| last.checked_add(1)) {
            Some(next) => key::token_start(table, Some(next.to_be_bytes())),
            None => key::table_end(table),
        };
        let span = Span {
            from: start.clone().min(end.clone()),
            to: end,
            one_partition: false,
            cache: false,
            tier: range.reach.tier,
        };
        let cursor = self.shared.engine.cursor(&span);
        let mut scan = Scan {
            shared: &self.shared,
            cursor,
            reach: range.reach,
            now,
            prefix: Bytes::new(),
            partition: Arc::from([]),
            header: Header::default(),
            static_row: None,
        };
        match &range.after {
            None => scan.cursor.seek(&start),
            Some(position) => scan.resume(table, position)?,
        }
        Ok(scan)
    }
}

impl Scan<'_> {
    fn resume(&mut self, table: TableId, position: &Position) -> Result<(), StoreError> {
        let prefix = key::partition_prefix(table, PartitionKey(&position.partition))?;
        self.cursor.seek(&prefix);
        self.enter(prefix.clone())?;
        if let Some(clustering) = &position.clustering {
            let mut after = prefix;
            key::push_target(&mut after, Target::Row(clustering))?;
            after.push(0);
            self.cursor.seek(&after);
        } else {
            self.static_row = None;
        }
        Ok(())
    }

    /// Enters the cursor's partition.
    fn enter(&mut self, prefix: Bytes) -> Result<(), StoreError> {
        (self.header, self.static_row) =
            read_head(self.shared, &mut *self.cursor, (&prefix, self.reach.tier), self.now)?;
        self.partition = key::partition_of(&prefix).unwrap_or_default().into();
        self.prefix = prefix;
        Ok(())
    }

    /// The next live row; `None` at the end.
    #[allow(
        clippy::should_implement_trait,
        reason = "a failing read is not the end of an iterator"
    )]
    pub fn next(&mut self) -> Result<Option<ScanItem>, StoreError> {
        loop {
            if let Some(row) = self.static_row.take() {
                return Ok(Some(ScanItem {
                    partition: Arc::clone(&self.partition),
                    clustering: None,
                    row,
                }));
            }
            let Some((key, record)) = self.cursor.entry()? else { return Ok(None) };
            self.reach.look_at(record)?;
            let prefix = &key[..key::prefix_bytes(key)];
            if prefix != self.prefix {
                let prefix = prefix.to_vec();
                self.enter(prefix)?;
                continue;
            }
            let Some((_, _, Target::Row(clustering))) = key::split(key) else {
                return Err(StoreError::corrupt(key, malformed_key()));
            };
            let (clustering, deletion) = (clustering.to_vec(), self.header.covering(clustering));
            let row = self.shared.resolve(key, record, deletion, self.now)?;
            self.cursor.next();
            if let Some(row) = row {
                let partition = Arc::clone(&self.partition);
                return Ok(Some(ScanItem { partition, clustering: Some(clustering), row }));
            }
        }
    }

    /// Continues with the next partition, for `PER PARTITION LIMIT`.
    pub fn skip_partition(&mut self) {
        self.static_row = None;
        if !self.prefix.is_empty() {
            self.cursor.seek(&key::partition_end(&self.prefix));
        }
    }
}

pub(super) fn malformed_key() -> crate::catalogue::DecodeError {
    crate::catalogue::DecodeError::Malformed { what: "key of a record", at: 0 }
}
