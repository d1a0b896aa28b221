//! The newest timestamp in records: a writer that has read a row must use a later one, so that no
//! reader sees its write as earlier.
//!
//! The result must never be less than any timestamp that could cover or outlive such a write: it
//! counts expired values and tombstones of any age like live data.

use super::error::StoreError;
use super::read::{Read, Slice};
use super::shared::{Shared, Store};
use crate::catalogue::decode_row;
use crate::engine::{ReadTier, Span};
use crate::key::{self, Target};
use crate::row::{PartitionKey, Row, TableId};

/// The newest timestamp in a row or a fragment. The written form of a key has no relevant
/// timestamp.
fn newest_of(row: &Row) -> Option<i64> {
    let cells = row.cells.iter().filter(|cell| !cell.is_key()).map(|cell| cell.timestamp);
    let complex = row.complex.iter().map(|(_, deletion)| deletion.timestamp);
    let liveness = row.liveness.map(|liveness| liveness.timestamp);
    cells
        .chain(complex)
        .chain(liveness)
        .chain(row.deletion.map(|deletion| deletion.timestamp))
        .max()
}

impl Store {
    /// The newest timestamp of a row, static or not, and of its partition's deletion there, in µs;
    /// `None` if there was never any.
    pub fn newest_of_row(
        &self,
        table: TableId,
        partition: PartitionKey<'_>,
        target: Target<'_>,
    ) -> Result<Option<i64>, StoreError> {
        let shared = &*self.shared;
        let key = key::record(table, partition, target)?;
        // Deletions move from headers into rows, so the row is read last.
        let deletion =
            shared.read_covering((table, partition, target), ReadTier::Disk)?.ready().flatten();
        let own = match shared.fetch(&key, ReadTier::Disk)? {
            Read::Ready(stored) => {
                stored.record().map(|record| shared.newest_of_record(&key, record)).transpose()?
            }
            Read::WouldBlock => None,
        };
        Ok(own.flatten().max(deletion.map(|deletion| deletion.timestamp)))
    }

    /// The newest timestamp of all rows of a slice, and of the static row on request; excludes the
    /// partition's header. `goes_on` hears of the bytes of each record, and may end the search.
    ///
    /// # Errors
    /// The errors of the store, and those of `goes_on`.
    pub fn newest_of_slice<E: From<StoreError>>(
        &self,
        (table, partition): (TableId, PartitionKey<'_>),
        slice: &Slice,
        with_static: bool,
        mut goes_on: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<Option<i64>, E> {
        let shared = &*self.shared;
        let prefix = key::partition_prefix(table, partition).map_err(StoreError::from)?;
        let (from, to) = slice.bounds(&prefix)?;
        let mut newest = None;
        if with_static {
            newest = self.newest_of_row(table, partition, Target::Static)?;
        }
        let span = Span { from, to, one_partition: true, cache: false, tier: ReadTier::Disk };
        let mut cursor = shared.engine.cursor(&span);
        cursor.seek(&span.from);
        while let Some((key, record)) = cursor.entry().map_err(StoreError::from)? {
            goes_on(record.len())?;
            newest = newest.max(shared.newest_of_record(key, record)?);
            cursor.next();
        }
        Ok(newest)
    }
}

impl Shared {
    fn newest_of_record(&self, key: &[u8], record: &[u8]) -> Result<Option<i64>, StoreError> {
        let row =
            decode_row(record, &self.catalogue).map_err(|what| StoreError::corrupt(key, what))?;
        Ok(newest_of(&row))
    }
}
