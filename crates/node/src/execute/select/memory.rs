//! System tables as rows of a store would be, so that everything else need not know the difference.

use shunt_cql::error::InvalidRequest;
use shunt_storage::row::Row;

use super::super::fragment::{FragmentMaker, ListPositions, WriteTime};
use super::super::keys::{self, Partition};
use super::source::Partitions;
use crate::error::CqlError;
use crate::schema::{Schema, Table};
use crate::shared::Shared;
use crate::system;

/// The rows of a system table by partition and clustering bytes.
pub(super) fn partitions(table: &Table, schema: &Schema, shared: &Shared, node: usize) -> Result<Partitions, CqlError> {
    let mut found = Partitions::new();
    for values in system::rows(table, schema, &shared.info, node) {
        let (partition, clustering, row) = stored(table, &values)?;
        found.entry(partition.key).or_default().insert(clustering, row);
    }
    Ok(found)
}

fn stored(table: &Table, values: &[Option<Vec<u8>>]) -> Result<(Partition, Vec<u8>, Row), InvalidRequest> {
    let key_len = table.partition_key_len + table.clustering_len;
    let missing = || InvalidRequest::new(format!("a row of {}.{} without its key", table.keyspace, table.name));
    let key: Vec<&[u8]> =
        values.iter().take(key_len).map(Option::as_deref).collect::<Option<_>>().ok_or_else(missing)?;
    let (partition, clustering) = key.split_at_checked(table.partition_key_len).ok_or_else(missing)?;
    let mut positions = ListPositions::of_statement(0);
    let mut maker = FragmentMaker::new(WriteTime { timestamp: 0, expiry: None, now: 0 }, &mut positions, 0);
    maker.insert();
    for (column, value) in table.values().iter().zip(&values[key_len..]) {
        if let Some(value) = value {
            maker.set(column, Some(value.clone()))?;
        }
    }
    let mut row = maker.row;
    row.canonicalise();
    Ok((Partition::new(partition)?, keys::clustering(table, clustering)?, row))
}
