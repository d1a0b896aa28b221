//! Oversized batches, and aggregates over a whole table: warned of, or refused, as in Apache
//! Cassandra 5.0 with its default settings and in its words.

use std::collections::{BTreeSet, HashMap, HashSet};

use shunt_language::ast::BatchKind;
use shunt_storage::row::{Cell, CellValue, Fragment, Row};

use super::annotations::Aside;
use super::mutate::{Item, Place, Write};
use crate::error::CqlError;
use crate::statement::restrictions::{OneOf, PartitionRestriction};
use crate::statement::select::{Grouping, SelectPlan};

/// `batch_size_warn_threshold`
const BATCH_WARN_BYTES: usize = 5 << 10;
/// `batch_size_fail_threshold`
const BATCH_FAIL_BYTES: usize = 50 << 10;
/// `unlogged_batch_across_partitions_warn_threshold`
const UNLOGGED_PARTITIONS_WARN: usize = 10;

/// Warns of an aggregation that reads more than one partition.
pub(super) fn check_select(plan: &SelectPlan, aside: &Aside) {
    if plan.grouping == Grouping::Rows {
        return;
    }
    let key_columns = plan.table().partition_key_len;
    match &plan.restrictions().partition {
        PartitionRestriction::All
            if !plan.restrictions().filters.iter().any(|filter| filter.column < key_columns) =>
        {
            aside.warn("Aggregation query used without partition key");
        }
        PartitionRestriction::Keys(keys)
            if keys.iter().any(|one_of| !matches!(one_of, OneOf::Equal(_))) =>
        {
            aside.warn("Aggregation query used on multiple partition keys (IN restriction)");
        }
        _ => {}
    }
}

/// Warns of a batch that is large or spans many partitions, and refuses one that is too large. A
/// batch on one partition may have any size.
pub(super) fn check_batch<'w>(
    kind: BatchKind,
    items: &[Item<'_>],
    writes: &'w [Write],
    aside: &Aside,
) -> Result<(), CqlError> {
    let size: usize = writes.iter().map(data_size).sum();
    let spread = kind != BatchKind::Logged && writes.len() > UNLOGGED_PARTITIONS_WARN;
    if size <= BATCH_WARN_BYTES && !spread {
        return Ok(());
    }
    let keyspaces: HashMap<_, _> =
        items.iter().map(|(plan, _)| (plan.table.number, plan.table.keyspace.as_str())).collect();
    let partition = |write: &'w Write| (keyspaces.get(&Some(write.table)), &write.partition.key);
    let partitions: HashSet<_> = writes.iter().map(partition).collect();
    if partitions.len() <= 1 {
        return Ok(());
    }
    if size > BATCH_WARN_BYTES {
        let over = |threshold| {
            let tables = tables(items);
            format!(
                "Batch for {tables} is of size {size}, exceeding specified threshold of {threshold} by {}.",
                size - threshold
            )
        };
        if size > BATCH_FAIL_BYTES {
            aside.note(|| over(BATCH_FAIL_BYTES) + " (see batch_size_fail_threshold)");
            return Err(CqlError::invalid("Batch too large"));
        }
        aside.warn(over(BATCH_WARN_BYTES));
    }
    let keys = partitions.iter().map(|(_, key)| *key).collect::<HashSet<_>>().len();
    if spread && keys > UNLOGGED_PARTITIONS_WARN {
        let plural = if table_names(items).len() == 1 { "" } else { "s" };
        aside.warn(format!(
            "Unlogged batch covering {keys} partitions detected against table{plural} {}. You should use a logged batch \
             for atomicity, or asynchronous writes for performance.",
            tables(items)
        ));
    }
    Ok(())
}

fn table_names(items: &[Item<'_>]) -> BTreeSet<String> {
    items.iter().map(|(plan, _)| format!("{}.{}", plan.table.keyspace, plan.table.name)).collect()
}

/// The tables in the format of a Java set.
fn tables(items: &[Item<'_>]) -> String {
    format!("[{}]", table_names(items).into_iter().collect::<Vec<_>>().join(", "))
}

/// Bytes of a mutation as Cassandra counts them (`IMutation.dataSize`): its content without the
/// names of tables and columns, with 8 bytes for each time and 4 for a time to live.
fn data_size(write: &Write) -> usize {
    match &write.fragment {
        Fragment::Header(header) => {
            12 * (usize::from(header.deletion.is_some()) + header.ranges.len())
        }
        Fragment::Row(row) => {
            let clustering =
                if let Place::Row(clustering) = &write.place { clustering.len() } else { 0 };
            clustering + row_size(row)
        }
    }
}

fn row_size(row: &Row) -> usize {
    let cell = |cell: &Cell| {
        let value = match &cell.value {
            CellValue::Live(value) => value.len(),
            CellValue::Counter(_) | CellValue::CounterDelta(_) => 8,
            CellValue::Tombstone { .. } => 0,
        };
        16 + value + cell.path.as_ref().map_or(0, Vec::len)
    };
    let liveness = if row.liveness.is_some() { 8 } else { 0 };
    liveness
        + 12 * (usize::from(row.deletion.is_some()) + row.complex.len())
        + row.cells.iter().map(cell).sum::<usize>()
}
