//! Cassandra's refusals: filters without ALLOW FILTERING, and DISTINCT of more than partitions.

use shunt_language::ast::{Comparison, Relation};
use shunt_language::error::InvalidRequest;

use super::is;
use super::selection::Selection;
use crate::schema::{ColumnKind, Table};
use crate::statement::restrictions::{Filter, PartitionRestriction, Restrictions, Test, invalid};

pub(super) const FILTERING: &str = "Cannot execute this query as it might involve data filtering and thus may have unpredictable performance. If you \
     want to execute this query despite the performance unpredictability, use ALLOW FILTERING";

/// True if a clustering column is restricted other than by filters.
fn restricts_clustering(restrictions: &Restrictions) -> bool {
    let clustering = &restrictions.clustering;
    !clustering.equal.is_empty()
        || clustering.tuples.is_some()
        || clustering.lower.is_some()
        || clustering.upper.is_some()
}

/// True if only partitions and their static columns are restricted.
pub(super) fn has_only_partition_conditions(table: &Table, restrictions: &Restrictions) -> bool {
    let of_rows = |filter: &Filter| {
        is(table, filter.column, ColumnKind::Regular)
            || is(table, filter.column, ColumnKind::Clustering)
    };
    !restricts_clustering(restrictions) && !restrictions.filters.iter().any(of_rows)
}

/// Static columns are the same for all rows: naming some of the rows is a mistake.
pub(super) fn statics(
    table: &Table,
    selection: &Selection,
    restrictions: &Restrictions,
) -> Result<(), InvalidRequest> {
    let used = |kind| {
        (0..table.columns.len())
            .any(|position| selection.uses[position] && is(table, position, kind))
    };
    let only_static = used(ColumnKind::Static)
        && !used(ColumnKind::Regular)
        && !used(ColumnKind::Clustering)
        && !selection.is_all;
    let filtered =
        restrictions.filters.iter().any(|filter| is(table, filter.column, ColumnKind::Clustering));
    if only_static && (filtered || restricts_clustering(restrictions)) {
        return invalid("Cannot restrict clustering columns when selecting only static columns");
    }
    Ok(())
}

/// Refuses invalid restrictions, and filters unless `allowed` by ALLOW FILTERING or an index.
pub(super) fn restrictions(
    table: &Table,
    restrictions: &Restrictions,
    allowed: bool,
) -> Result<(), InvalidRequest> {
    let start = restrictions.clustering.equal.len();
    let clustering = &restrictions.clustering;
    if clustering.lower.iter().chain(&clustering.upper).any(|bound| bound.first != start) {
        return invalid("Bounds of several clustering columns must begin with the same column");
    }
    restrictions.filters.iter().try_for_each(|filter| whole_collection(table, filter))?;
    if allowed {
        return Ok(());
    }
    if let Some(filter) =
        restrictions.filters.iter().find(|filter| is(table, filter.column, ColumnKind::Clustering))
    {
        return clustering_filter(table, restrictions, filter);
    }
    let scans = !restrictions.has_keys();
    if !restrictions.filters.is_empty() || scans && restricts_clustering(restrictions) {
        return invalid(FILTERING);
    }
    Ok(())
}

/// A slice of several clustering columns at once must be the only restriction of them and of those
/// behind.
pub(super) fn slices(table: &Table, relations: &[Relation]) -> Result<(), InvalidRequest> {
    let place = |name: &String| table.clustering().iter().position(|column| column.name == *name);
    let sliced = relations.iter().filter_map(|relation| match relation {
        Relation::Tuple { columns, comparison, .. } if *comparison != Comparison::Equal => {
            place(columns.first()?)
        }
        _ => None,
    });
    let Some(first) = sliced.min() else { return Ok(()) };
    for relation in relations {
        let (Relation::Column { column, .. }
        | Relation::In { column, .. }
        | Relation::InMarker { column, .. }) = relation
        else {
            continue;
        };
        if place(column).is_some_and(|place| place >= first) {
            return invalid(format!(
                "Column \"{column}\" cannot be restricted by both a tuple notation inequality and a single column \
                 inequality: {column}"
            ));
        }
    }
    Ok(())
}

/// A value stored element by element cannot be compared as a whole.
fn whole_collection(table: &Table, filter: &Filter) -> Result<(), InvalidRequest> {
    let column = &table.columns[filter.column];
    let symbol = match &filter.test {
        _ if filter.element.is_some() || !column.is_multi_cell() => return Ok(()),
        Test::Compare(Comparison::Contains | Comparison::ContainsKey, _) => return Ok(()),
        Test::Compare(Comparison::Less, _) => "<",
        Test::Compare(Comparison::LessOrEqual, _) => "<=",
        Test::Compare(Comparison::Greater, _) => ">",
        Test::Compare(Comparison::GreaterOrEqual, _) => ">=",
        Test::Compare(..) => "=",
        Test::OneOf(_) => "IN",
    };
    let (name, cql_type) = (&column.name, &column.cql_type);
    if cql_type.is_collection() {
        return invalid(format!(
            "Collection column '{name}' ({cql_type}) cannot be restricted by a '{symbol}' relation"
        ));
    }
    invalid(format!(
        "Non-frozen UDT column '{name}' ({cql_type}) cannot be restricted by any relation"
    ))
}

/// A restricted clustering column behind an unrestricted one or a slice.
fn clustering_filter(
    table: &Table,
    restrictions: &Restrictions,
    filter: &Filter,
) -> Result<(), InvalidRequest> {
    if matches!(filter.test, Test::Compare(Comparison::Contains | Comparison::ContainsKey, _)) {
        return invalid(
            "Clustering columns can only be restricted with CONTAINS with a secondary index or filtering",
        );
    }
    let clustering = &restrictions.clustering;
    let column = &table.columns[filter.column];
    let first = clustering.equal.len();
    let preceding = table.clustering().get(first).map_or("", |column| &column.name);
    if clustering.lower.is_some() || clustering.upper.is_some() {
        return invalid(format!(
            "Clustering column \"{}\" cannot be restricted (preceding column \"{preceding}\" is restricted by a non-EQ \
             relation)",
            column.name
        ));
    }
    let open = first + clustering.tuples.as_ref().map_or(0, |(types, _)| types.len());
    let missing = table.clustering().get(open).map_or("", |column| &column.name);
    invalid(format!(
        "PRIMARY KEY column \"{}\" cannot be restricted as preceding column \"{missing}\" is not restricted",
        column.name
    ))
}

/// SELECT DISTINCT selects partitions.
pub(super) fn distinct(
    table: &Table,
    selection: &Selection,
    restrictions: &Restrictions,
    limits_partitions: bool,
) -> Result<(), InvalidRequest> {
    if limits_partitions {
        return invalid("PER PARTITION LIMIT is not allowed with SELECT DISTINCT queries");
    }
    if !has_only_partition_conditions(table, restrictions) {
        return invalid(
            "SELECT DISTINCT with WHERE clause only supports restriction by partition key and/or static columns.",
        );
    }
    let used = table
        .columns
        .iter()
        .zip(&selection.uses)
        .filter(|(_, used)| **used)
        .map(|(column, _)| column);
    for column in used {
        if !matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Static) {
            return invalid(format!(
                "SELECT DISTINCT queries must only request partition key columns and/or static columns (not {})",
                column.name
            ));
        }
    }
    if matches!(restrictions.partition, PartitionRestriction::Keys(_)) {
        return Ok(());
    }
    match table.partition_key().iter().zip(&selection.uses).find(|(_, used)| !**used) {
        Some((column, _)) => invalid(format!(
            "SELECT DISTINCT queries must request all the partition key columns (missing {})",
            column.name
        )),
        None => Ok(()),
    }
}
