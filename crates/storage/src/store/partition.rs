//! A partition as of one moment: read through one cursor, past the row cache.

use super::error::StoreError;
use super::read::{Reach, Read, Slice, clustering, takes_long};
use super::shared::Shared;
use crate::catalogue::{covering, decode_header};
use crate::engine::{Cursor, EngineError, ReadTier, Span};
use crate::key::{self, Target};
use crate::row::{Bytes, Deletion, Header, PartitionKey, Row, TableId};
use std::ops::Bound;

impl Slice {
    /// Range of keys of the slice's rows, end excluded.
    pub(super) fn bounds(&self, prefix: &[u8]) -> Result<(Bytes, Bytes), StoreError> {
        Ok((lower(prefix, &self.from)?, upper(prefix, &self.to)?))
    }
}

impl Shared {
    /// The partition's current state, past the row cache.
    pub(super) fn view(
        &self,
        table: TableId,
        partition: PartitionKey<'_>,
        tier: ReadTier,
    ) -> Result<Read<View<'_>>, StoreError> {
        let from = key::partition_prefix(table, partition)?;
        let to = key::partition_end(&from);
        let mut cursor =
            self.engine.cursor(&Span { from, to, one_partition: true, cache: true, tier });
        let key = key::record(table, partition, Target::Header)?;
        cursor.seek(&key);
        let header = match cursor.entry() {
            Ok(Some((found, record))) if found == key => {
                if takes_long(record, tier) {
                    return Ok(Read::WouldBlock);
                }
                Some(record.to_vec())
            }
            Ok(_) => None,
            Err(EngineError::WouldBlock) => return Ok(Read::WouldBlock),
            Err(error) => return Err(error.into()),
        };
        Ok(Read::Ready(View { cursor, key, header, tier }))
    }
}

/// A partition as of one moment.
pub(super) struct View<'a> {
    cursor: Box<dyn Cursor + 'a>,
    /// The key of the header, and its record.
    key: Bytes,
    header: Option<Bytes>,
    tier: ReadTier,
}

impl View<'_> {
    /// Returns the deletion in the partition's header for a place.
    pub(super) fn deletion(&self, target: Target<'_>) -> Result<Option<Deletion>, StoreError> {
        let Some(header) = &self.header else { return Ok(None) };
        covering(header, clustering(target)).map_err(|what| StoreError::corrupt(&self.key, what))
    }

    /// Reads one of the partition's records.
    pub(super) fn record(&mut self, key: &[u8]) -> Result<Read<Option<&[u8]>>, StoreError> {
        self.cursor.seek(key);
        match self.cursor.entry() {
            Ok(found) => {
                let record = found.filter(|(found, _)| *found == key).map(|(_, record)| record);
                let takes_long = record.is_some_and(|record| takes_long(record, self.tier));
                Ok(if takes_long { Read::WouldBlock } else { Read::Ready(record) })
            }
            Err(EngineError::WouldBlock) => Ok(Read::WouldBlock),
            Err(error) => Err(error.into()),
        }
    }
}

/// Iterator over the live rows of a partition.
pub struct PartitionRows<'a> {
    shared: &'a Shared,
    cursor: Box<dyn Cursor + 'a>,
    prefix: Bytes,
    header: Header,
    static_row: Option<Row>,
    /// Range of keys, end excluded.
    bounds: (Bytes, Bytes),
    reversed: bool,
    left: usize,
    reach: Reach,
    now: i64,
}

impl<'a> PartitionRows<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        prefix: Bytes,
        slice: &Slice,
        now: i64,
    ) -> Result<Self, StoreError> {
        let end = key::partition_end(&prefix);
        let span = Span {
            from: prefix.clone(),
            to: end.clone(),
            one_partition: true,
            cache: true,
            tier: slice.reach.tier,
        };
        let mut cursor = shared.engine.cursor(&span);
        cursor.seek(&prefix);
        let (header, static_row) =
            read_head(shared, &mut *cursor, (&prefix, slice.reach.tier), now)?;
        let bounds = slice.bounds(&prefix)?;
        match slice.reversed {
            true => cursor.seek_before(&bounds.1),
            // The cursor is at the first row already, where most slices begin.
            false if slice.from == Bound::Unbounded => {}
            false => cursor.seek(&bounds.0),
        }
        let (reversed, left, reach) = (slice.reversed, slice.limit, slice.reach);
        Ok(PartitionRows {
            shared,
            cursor,
            prefix,
            header,
            static_row,
            bounds,
            reversed,
            left,
            reach,
            now,
        })
    }

    /// Continues with another slice, as of the same moment.
    pub fn move_to(&mut self, slice: &Slice) -> Result<(), StoreError> {
        self.bounds = slice.bounds(&self.prefix)?;
        (self.reversed, self.left, self.reach) = (slice.reversed, slice.limit, slice.reach);
        match slice.reversed {
            true => self.cursor.seek_before(&self.bounds.1),
            false => self.cursor.seek(&self.bounds.0),
        }
        Ok(())
    }

    /// The static row, if live.
    pub fn static_row(&self) -> Option<&Row> {
        self.static_row.as_ref()
    }

    /// The next live row with its clustering bytes; `None` at the end or the limit.
    #[allow(
        clippy::should_implement_trait,
        reason = "a failing read is not the end of an iterator"
    )]
    pub fn next(&mut self) -> Result<Option<(Bytes, Row)>, StoreError> {
        while self.left > 0 {
            let Some((key, record)) = self.cursor.entry()? else { return Ok(None) };
            if key < &self.bounds.0[..] || key >= &self.bounds.1[..] {
                return Ok(None);
            }
            self.reach.look_at(record)?;
            self.shared.met(key, record, self.cursor.fragments());
            let clustering = key[self.prefix.len() + 1..].to_vec();
            let row =
                self.shared.resolve(key, record, self.header.covering(&clustering), self.now)?;
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

/// Reads a partition's header and static row, if the cursor is at them, and leaves it at the first
/// row.
pub(super) fn read_head(
    shared: &Shared,
    cursor: &mut dyn Cursor,
    (prefix, tier): (&[u8], ReadTier),
    now: i64,
) -> Result<(Header, Option<Row>), StoreError> {
    let (mut header, mut static_row) = (Header::default(), None);
    while let Some((key, record)) = cursor.entry()? {
        if takes_long(record, tier) {
            return Err(EngineError::WouldBlock.into());
        }
        match key::split(key).map(|(_, _, target)| target) {
            Some(Target::Header) if key.starts_with(prefix) => {
                header = decode_header(record).map_err(|what| StoreError::corrupt(key, what))?;
                shared.ask_after_read(key, record, cursor.fragments());
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
    // The next possible key is this one followed by a zero.
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
