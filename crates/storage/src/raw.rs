//! Readers of the crate's internal formats, each beside its writer, for fuzz targets and tests of
//! old formats. Not part of the interface.

use crate::catalogue::{self, CatalogueError};
use crate::engine::{self, LOGS, LogMark, ManifestMark, Noted};
use crate::key::{self, KeyError, Target};
use crate::row::{ColumnId, PartitionKey, TableId};
use crate::row_cache::page::{self, PAGE_BYTES, Record};
use std::path::Path;

/// The key of a record.
///
/// # Errors
/// A part does not fit into a key.
pub fn key(
    table: TableId,
    partition: PartitionKey<'_>,
    target: Target<'_>,
) -> Result<Vec<u8>, KeyError> {
    key::record(table, partition, target)
}

/// The table, partition and place of a key; `None` if its format is unknown.
pub fn split_key(key: &[u8]) -> Option<(TableId, Vec<u8>, Target<'_>)> {
    key::split(key)
}

/// A schema of the catalogue: its id, table and columns, and whether records say which of these
/// they have.
pub type CatalogueSchema = (u32, TableId, Vec<ColumnId>, bool);

/// Decodes the file `catalogue`: its schemas, the first unassigned id, and the end of the last
/// complete entry.
///
/// # Errors
/// The fault and its offset.
pub fn decode_catalogue(bytes: &[u8]) -> Result<(Vec<CatalogueSchema>, u32, u64), CatalogueError> {
    let (contents, end) = catalogue::read_file(Path::new("catalogue"), bytes)?;
    let schemas = contents.schemas.iter();
    let schemas = schemas
        .map(|schema| (schema.id, schema.table, schema.columns.to_vec(), schema.base))
        .collect();
    Ok((schemas, contents.next_id, end))
}

/// The entry of the file `catalogue` for this payload.
pub fn catalogue_entry(payload: &[u8]) -> Vec<u8> {
    catalogue::file_entry(payload)
}

/// Length of the part of a key that names its partition.
pub fn prefix_bytes(key: &[u8]) -> usize {
    key::prefix_bytes(key)
}

/// The contents of the file `synced`: number of the last write; number, length and checksum of the
/// manifest; logs.
pub type Synced = (u64, (u64, u64, u32), [LogMark; LOGS]);

/// Encodes the file `synced`.
pub fn encode_synced((sequence, (number, bytes, checksum), logs): Synced) -> Vec<u8> {
    Noted { sequence, manifest: ManifestMark { number, bytes, checksum }, logs }.encode().to_vec()
}

/// Decodes the file `synced`; `None` if it is damaged.
pub fn decode_synced(bytes: &[u8]) -> Option<Synced> {
    let Noted { sequence, manifest, logs } = Noted::decode(bytes)?;
    Some((sequence, (manifest.number, manifest.bytes, manifest.checksum), logs))
}

/// The complete records of a RocksDB log or manifest, up to the first damage.
pub fn log_records(bytes: &[u8]) -> Vec<Vec<u8>> {
    engine::records(bytes).collect()
}

/// The log number that an edit of RocksDB's manifest sets: `None` if the edit cannot be
/// interpreted.
#[allow(
    clippy::option_option,
    reason = "an edit that is not understood is not one without a log number"
)]
pub fn log_number(edit: &[u8]) -> Option<Option<u64>> {
    engine::log_number(edit)
}

/// A record of the row cache on SSD: its key, the cached row (`None` if the row does not exist) and
/// its epoch.
pub type CacheRecord<'a> = (&'a [u8], Option<&'a [u8]>, u32);

/// A page of these records; `None` if they do not fit.
pub fn cache_page(records: &[CacheRecord<'_>], sequence: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; PAGE_BYTES];
    page::write_header(&mut bytes, sequence, 1);
    let mut at = page::PAGE_HEADER_BYTES;
    for (slot, (key, payload, epoch)) in records.iter().enumerate() {
        let record = Record { key, payload: *payload, epoch: *epoch };
        let end = at + record.encoded_bytes();
        record.encode(sequence, u8::try_from(slot).ok()?, bytes.get_mut(at..end)?);
        at = end;
    }
    Some(bytes)
}

/// All records of a page with their slots.
pub fn cache_records(page: &[u8], sequence: u64) -> Vec<(u8, CacheRecord<'_>)> {
    page::records(page, sequence)
        .map(|(slot, Record { key, payload, epoch })| (slot, (key, payload, epoch)))
        .collect()
}

/// The record in a slot of a page.
///
/// # Errors
/// Description of the fault.
pub fn cache_record(page: &[u8], sequence: u64, slot: u8) -> Result<CacheRecord<'_>, String> {
    let record = page::record_at(page, sequence, slot).map_err(|fault| format!("{fault:?}"))?;
    Ok((record.key, record.payload, record.epoch))
}
