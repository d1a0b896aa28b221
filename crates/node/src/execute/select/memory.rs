//! Presents system tables as rows of a store, so that other code need not distinguish them.

use super::super::fragment::{WriteTime, whole_row};
use super::source::Partitions;
use crate::error::CqlError;
use crate::schema::{Schema, Table};
use crate::shared::Shared;
use crate::system;

/// The rows of a system table by partition and clustering bytes.
pub(super) fn partitions(
    table: &Table,
    schema: &Schema,
    shared: &Shared,
    node: usize,
) -> Result<Partitions, CqlError> {
    let mut found = Partitions::new();
    let time = WriteTime { timestamp: 0, expiry: None, now: 0 };
    for values in system::rows(table, schema, &shared.info, node) {
        let (partition, clustering, row) = whole_row(table, &values, time)?;
        found.entry(partition.key).or_default().insert(clustering, row);
    }
    Ok(found)
}
