//! Preparation of SELECT: selection, restrictions, groups and order, checked as in Cassandra
//! (`SelectStatement.RawStatement.prepare`).

pub(crate) mod selection;
mod checks;
mod clauses;
mod index_use;

use std::sync::Arc;

use shunt_language::ast::{self, NativeType, SelectClause, Term};
use shunt_language::error::InvalidRequest;
use shunt_language::terms::{Prepared, Scope, prepare};

use super::ResultColumn;
use super::restrictions::Restrictions;
use crate::error::CqlError;
use crate::schema::{ColumnKind, Schema, Table};
use index_use::IndexUse;
use selection::{Expression, Preparer, Selection};

/// Mapping of rows to rows of the result.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Grouping {
    /// One for one.
    Rows,
    /// One group of all rows.
    Everything,
    /// Groups of a partition's rows with equal values in this many first clustering columns.
    Prefix(usize),
}

/// An executable SELECT.
pub(crate) struct SelectPlan {
    pub(crate) table: Arc<Table>,
    columns: Vec<ResultColumn>,
    restrictions: Restrictions,
    pub(crate) selection: Selection,
    /// Positions of the columns, if only columns are selected: rows then go out as they are read.
    pub(crate) plain: Option<Vec<usize>>,
    pub(crate) json: bool,
    pub(crate) distinct: bool,
    pub(crate) grouping: Grouping,
    /// Rows of a partition come in reverse table order.
    pub(crate) reversed: bool,
    /// The result is sorted by this many first clustering columns, across partitions.
    pub(crate) sorted_by: Option<usize>,
    /// The result would be sorted if it had several rows, so it cannot be paged.
    pub(crate) is_sorted: bool,
    pub(crate) limit: Option<Prepared>,
    pub(crate) per_partition_limit: Option<Prepared>,
    /// A static column is selected or tested.
    pub(crate) needs_static: bool,
    /// A partition with static content and no rows is a row of the result.
    pub(crate) shows_static_alone: bool,
    /// Number of first clustering columns to decode.
    pub(crate) clustering_needed: usize,
}

impl SelectPlan {
    /// Prepares a statement; `scope` resolves its names.
    pub(crate) fn new(
        select: &ast::Select,
        schema: &Schema,
        session: Option<&str>,
        scope: &mut Scope<'_>,
    ) -> Result<SelectPlan, CqlError> {
        let table = schema.find_table(&select.table, session)?;
        Ok(SelectPlan::on_table(select, table, scope)?)
    }

    fn on_table(
        select: &ast::Select,
        table: Arc<Table>,
        scope: &mut Scope<'_>,
    ) -> Result<SelectPlan, InvalidRequest> {
        let mut preparer = Preparer::new(&table, scope);
        match &select.clause {
            SelectClause::All => preparer.all(),
            SelectClause::Items(items) => {
                items
                    .iter()
                    .try_for_each(|item| preparer.item(&item.selector, item.alias.as_deref()))?;
            }
        }
        let selection = preparer.finish();
        checks::slices(&table, &select.relations)?;
        let restrictions = Restrictions::new(&table, &select.relations, scope)?;
        let per_partition_limit =
            limit(select.per_partition_limit.as_ref(), "[per_partition_limit]", scope)?;
        let limit = limit(select.limit.as_ref(), "[limit]", scope)?;
        checks::statics(&table, &selection, &restrictions)?;
        let index_use = IndexUse::new(&table, &restrictions)?;
        checks::restrictions(
            &table,
            &restrictions,
            select.allow_filtering || index_use.is_queriable,
        )?;
        if select.distinct {
            checks::distinct(&table, &selection, &restrictions, per_partition_limit.is_some())?;
        }
        let grouping = clauses::grouping(select, &table, &selection, &restrictions)?;
        if grouping == Grouping::Everything && per_partition_limit.is_some() {
            return Err(InvalidRequest::new(
                "PER PARTITION LIMIT is not allowed with aggregate queries.",
            ));
        }
        let order = clauses::order(select, &table, &restrictions, index_use.is_used)?;
        if !select.allow_filtering && index_use.is_used && index_use.needs_filtering {
            return Err(InvalidRequest::new(checks::FILTERING));
        }
        let tests_static =
            restrictions.filters.iter().any(|filter| is(&table, filter.column, ColumnKind::Static));
        let selects_static = (0..table.columns.len())
            .any(|position| selection.uses[position] && is(&table, position, ColumnKind::Static));
        let plan = SelectPlan {
            columns: result_columns(select.json, &table, &selection),
            plain: plain(&selection).filter(|_| !select.json && grouping == Grouping::Rows),
            json: select.json,
            distinct: select.distinct,
            grouping,
            reversed: order.reversed,
            is_sorted: order.sorted_by.is_some(),
            // One row needs no order.
            sorted_by: order.sorted_by.filter(|_| grouping != Grouping::Everything),
            limit,
            per_partition_limit,
            needs_static: tests_static || selects_static,
            shows_static_alone: table.has_static
                && checks::has_only_partition_conditions(&table, &restrictions),
            clustering_needed: clustering_needed(&table, &selection, &restrictions),
            table,
            restrictions,
            selection,
        };
        Ok(plan)
    }

    /// True if rows are named one by one, by all of their clustering columns.
    pub(crate) fn names_rows(&self) -> bool {
        let clustering = &self.restrictions.clustering;
        let given =
            clustering.equal.len() + clustering.tuples.as_ref().map_or(0, |(types, _)| types.len());
        given == self.table.clustering_len
            && clustering.lower.is_none()
            && clustering.upper.is_none()
    }

    /// Columns of the result.
    pub(crate) fn columns(&self) -> &[ResultColumn] {
        &self.columns
    }

    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    pub(crate) fn restrictions(&self) -> &Restrictions {
        &self.restrictions
    }
}

fn is(table: &Table, position: usize, kind: ColumnKind) -> bool {
    table.columns[position].kind == kind
}

fn limit(
    term: Option<&Term>,
    name: &str,
    scope: &mut Scope<'_>,
) -> Result<Option<Prepared>, InvalidRequest> {
    term.map(|term| prepare(term, name, &NativeType::Int.into(), scope)).transpose()
}

fn result_columns(json: bool, table: &Table, selection: &Selection) -> Vec<ResultColumn> {
    let column = |name: &str, cql_type| ResultColumn {
        keyspace: table.keyspace.clone(),
        table: table.name.clone(),
        name: name.to_owned(),
        cql_type,
    };
    if json {
        return vec![column("[json]", NativeType::Text.into())];
    }
    selection.items.iter().map(|item| column(&item.name, item.cql_type.clone())).collect()
}

/// Positions of the selected columns, if only columns are selected.
fn plain(selection: &Selection) -> Option<Vec<usize>> {
    let position = |item: &selection::Item| match item.expression {
        Expression::Column(position) => Some(position),
        _ => None,
    };
    selection.items.iter().map(position).collect()
}

fn clustering_needed(table: &Table, selection: &Selection, restrictions: &Restrictions) -> usize {
    let tested = |position| restrictions.filters.iter().any(|filter| filter.column == position);
    let needed = |index: &usize| {
        let position = table.partition_key_len + index;
        selection.uses[position] || tested(position)
    };
    (0..table.clustering_len).rev().find(needed).map_or(0, |last| last + 1)
}
