//! GROUP BY and ORDER BY.

use shunt_language::ast::{self, OrderingBy, Selector};
use shunt_language::error::InvalidRequest;

use super::Grouping;
use super::selection::{Selection, name_of};
use crate::schema::{Column, ColumnKind, Table};
use crate::statement::restrictions::{
    OneOf, PartitionRestriction, Restrictions, Test, column_of, invalid,
};

/// Order requested by ORDER BY.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Order {
    pub(super) reversed: bool,
    pub(super) sorted_by: Option<usize>,
}

/// True if a column of the primary key has one value in all rows of the result.
fn is_fixed(table: &Table, restrictions: &Restrictions, column: &Column) -> bool {
    let position = match column.kind {
        ColumnKind::PartitionKey => column.position,
        _ => table.partition_key_len + column.position,
    };
    let by_filter = || {
        let of_column = |test: &Test| matches!(test, Test::OneOf(one_of) if !one_of.is_in());
        restrictions
            .filters
            .iter()
            .any(|filter| filter.column == position && of_column(&filter.test))
    };
    let by_key = match (column.kind, &restrictions.partition) {
        (ColumnKind::PartitionKey, PartitionRestriction::Keys(keys)) => {
            keys.get(column.position).is_some_and(|one_of| !one_of.is_in())
        }
        (ColumnKind::Clustering, _) => {
            restrictions.clustering.equal.get(column.position).is_some_and(|one_of| !one_of.is_in())
        }
        _ => false,
    };
    by_key || by_filter()
}

pub(super) fn grouping(
    select: &ast::Select,
    table: &Table,
    selection: &Selection,
    restrictions: &Restrictions,
) -> Result<Grouping, InvalidRequest> {
    if select.group_by.is_empty() {
        return Ok(if selection.aggregates.is_empty() {
            Grouping::Rows
        } else {
            Grouping::Everything
        });
    }
    let out_of_order = "Group by currently only support groups of columns following their declared order in the PRIMARY KEY";
    let key = table.partition_key_len;
    let mut next = 0;
    for selector in &select.group_by {
        let Selector::Column(name) = selector else {
            let shown = name_of(selector);
            return invalid(format!(
                "Group by is currently only supported on the columns of the PRIMARY KEY, got {shown}"
            ));
        };
        let (position, column) = column_of(table, name)?;
        if !column.is_primary_key() {
            return invalid(format!(
                "Group by is currently only supported on the columns of the PRIMARY KEY, got {name}"
            ));
        }
        if position < next {
            return invalid(out_of_order);
        }
        if table.columns[next..position]
            .iter()
            .any(|skipped| !is_fixed(table, restrictions, skipped))
        {
            return invalid(out_of_order);
        }
        next = position + 1;
    }
    if next < key {
        return invalid("Group by is not supported on only a part of the partition key");
    }
    if next > key && select.distinct {
        return invalid(
            "Grouping on clustering columns is not allowed for SELECT DISTINCT queries",
        );
    }
    Ok(Grouping::Prefix(next - key))
}

pub(super) fn order(
    select: &ast::Select,
    table: &Table,
    restrictions: &Restrictions,
    uses_index: bool,
) -> Result<Order, InvalidRequest> {
    if select.order_by.is_empty() {
        return Ok(Order::default());
    }
    for ordering in &select.order_by {
        if let OrderingBy::NearestNeighbours(name, _) = &ordering.by {
            column_of(table, name)?;
            return invalid("ANN ordering by vector requires the column to be indexed");
        }
    }
    if uses_index {
        return invalid("ORDER BY with 2ndary indexes is not supported, except for ANN queries.");
    }
    let PartitionRestriction::Keys(keys) = &restrictions.partition else {
        return invalid(
            "ORDER BY is only supported when the partition key is restricted by an EQ or an IN.",
        );
    };
    let mut next = 0;
    let mut reversed = None;
    for ordering in &select.order_by {
        let OrderingBy::Column(name) = &ordering.by else { continue };
        let (_, column) = column_of(table, name)?;
        if column.kind != ColumnKind::Clustering {
            return invalid(format!(
                "Order by is currently only supported on the clustered columns of the PRIMARY KEY, got {name}"
            ));
        }
        let skipped = table.clustering().get(next..column.position);
        if skipped.is_none_or(|skipped| {
            skipped.iter().any(|skipped| !is_fixed(table, restrictions, skipped))
        }) {
            return invalid(
                "Order by currently only supports the ordering of columns following their declared order in the \
                 PRIMARY KEY",
            );
        }
        next = column.position + 1;
        let opposite = ordering.descending != column.descending;
        if *reversed.get_or_insert(opposite) != opposite {
            return invalid("Unsupported order by relation");
        }
    }
    let several = keys.iter().any(OneOf::is_in);
    Ok(Order { reversed: reversed.unwrap_or(false), sorted_by: several.then_some(next) })
}
