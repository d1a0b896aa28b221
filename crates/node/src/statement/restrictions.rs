//! Restrictions of a WHERE clause by target: the partition key, the clustering columns in order,
//! the rest. Values are checked terms, evaluated at execution.
//!
//! The rules are Cassandra's (`StatementRestrictions`): a partition key in whole or not at all, or
//! a token range; of the clustering columns a prefix of equalities and then one slice; any other
//! restriction is a filter and needs ALLOW FILTERING.

mod collect;
mod repetition;

use std::sync::Arc;

use shunt_language::ast::{Comparison, Relation};
use shunt_language::error::InvalidRequest;
use shunt_language::terms::{Prepared, Scope};
use shunt_language::types::CqlType;

use crate::schema::{Column, Table};
use collect::Collector;

/// A future value: a term, or one part of a tuple.
#[derive(Clone, Debug)]
pub(crate) enum Operand {
    Term(Prepared),
    /// A part of a tuple.
    Part {
        tuple: Prepared,
        types: Arc<[CqlType]>,
        index: usize,
    },
}

/// Alternative values of a column.
#[derive(Clone, Debug)]
pub(crate) enum OneOf {
    Equal(Operand),
    In(Vec<Prepared>),
    /// `IN ?`: one term that is a list.
    InList(Prepared),
}

impl OneOf {
    /// True for more than an equality; `IN` with one value does not count.
    pub(crate) fn is_in(&self) -> bool {
        match self {
            OneOf::Equal(_) => false,
            OneOf::In(values) => values.len() != 1,
            OneOf::InList(_) => true,
        }
    }
}

/// End of a slice: values for a run of clustering columns.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    /// Position of the first column among the clustering columns.
    pub(crate) first: usize,
    pub(crate) values: Vec<Operand>,
    pub(crate) inclusive: bool,
}

/// Alternatives for a run of clustering columns: `(a, b) IN (..)`.
#[derive(Clone, Debug)]
pub(crate) enum TupleIn {
    Terms(Vec<Prepared>),
    /// One term that is a list of tuples.
    List(Prepared),
}

impl TupleIn {
    /// True for more than an equality.
    pub(crate) fn is_in(&self) -> bool {
        match self {
            TupleIn::Terms(values) => values.len() != 1,
            TupleIn::List(_) => true,
        }
    }
}

/// Restriction of the partition key.
#[derive(Clone, Debug)]
pub(crate) enum PartitionRestriction {
    /// One or several values for each column.
    Keys(Vec<OneOf>),
    /// The token lies between these; `None` is open.
    Token { lower: Option<(Prepared, bool)>, upper: Option<(Prepared, bool)> },
    /// No restriction.
    All,
}

/// Restriction of the clustering columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusteringRestriction {
    /// Alternatives for the first columns.
    pub(crate) equal: Vec<OneOf>,
    /// Types and alternatives for the columns from `equal.len()`.
    pub(crate) tuples: Option<(Arc<[CqlType]>, TupleIn)>,
    pub(crate) lower: Option<Bound>,
    pub(crate) upper: Option<Bound>,
}

/// A condition tested on rows after reading.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// Position in the table's columns.
    pub(crate) column: usize,
    /// `m[key]`
    pub(crate) element: Option<Prepared>,
    pub(crate) test: Test,
}

/// Test of a filter.
#[derive(Clone, Debug)]
pub(crate) enum Test {
    Compare(Comparison, Operand),
    OneOf(OneOf),
}

/// A WHERE clause.
#[derive(Clone, Debug)]
pub(crate) struct Restrictions {
    pub(crate) partition: PartitionRestriction,
    pub(crate) clustering: ClusteringRestriction,
    pub(crate) filters: Vec<Filter>,
}

impl Restrictions {
    /// Sorts the relations of a statement on `table`.
    ///
    /// # Errors
    /// Relations that contradict the table or each other, in Cassandra's words if applications see
    /// them.
    pub(crate) fn new(
        table: &Table,
        relations: &[Relation],
        scope: &mut Scope<'_>,
    ) -> Result<Restrictions, InvalidRequest> {
        let mut collector = Collector::new(table, scope);
        for relation in relations {
            collector.add(relation)?;
        }
        collector.finish()
    }

    /// True if the clause names whole partitions.
    pub(crate) fn has_keys(&self) -> bool {
        matches!(self.partition, PartitionRestriction::Keys(_))
    }
}

pub(crate) fn invalid<T>(message: impl Into<String>) -> Result<T, InvalidRequest> {
    Err(InvalidRequest::new(message))
}

/// The column of a name.
pub(crate) fn column_of<'t>(
    table: &'t Table,
    name: &str,
) -> Result<(usize, &'t Column), InvalidRequest> {
    match table.position(name) {
        Some(position) => Ok((position, &table.columns[position])),
        None => invalid(format!(
            "Undefined column name {name} in table {}.{}",
            table.keyspace, table.name
        )),
    }
}
