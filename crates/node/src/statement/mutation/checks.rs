//! Static checks of statements that write, and Cassandra's refusals.

use shunt_language::types::CqlType;

use super::{ColumnChange, ConditionPlan, MutationPlan};
use crate::error::CqlError;
use crate::schema::ColumnKind;
use crate::statement::restrictions::{OneOf, PartitionRestriction};

impl MutationPlan {
    fn changes_kind(&self, kind: ColumnKind) -> bool {
        self.changes.iter().any(|(position, _)| self.table.columns[*position].kind == kind)
    }

    fn tests_kind(&self, kind: ColumnKind) -> bool {
        let ConditionPlan::Columns(all) = &self.conditions else { return false };
        all.iter().any(|condition| self.table.columns[condition.column].kind == kind)
    }

    /// True if the statement changes and tests only static columns.
    fn is_static_only(&self) -> bool {
        self.json.is_none()
            && !self.deletes_rows
            && !self.changes_kind(ColumnKind::Regular)
            && !self.tests_kind(ColumnKind::Regular)
            && (self.changes_kind(ColumnKind::Static) || self.tests_kind(ColumnKind::Static))
    }

    /// True if the statement affects only the static row.
    pub(crate) fn is_of_static_row(&self) -> bool {
        self.is_static_only() && !self.restricts_clustering()
    }

    fn restricts_clustering(&self) -> bool {
        let clustering = &self.restrictions.clustering;
        self.json.is_some()
            || self.clustering_given() > 0
            || clustering.lower.is_some()
            || clustering.upper.is_some()
    }

    /// True if the statement affects rows other than the static one.
    pub(crate) fn writes_rows(&self) -> bool {
        self.table.clustering_len == 0 || self.restricts_clustering()
    }

    /// True if the statement changes static columns; INSERT JSON affects all columns.
    pub(crate) fn writes_static_row(&self) -> bool {
        self.changes_kind(ColumnKind::Static) || self.json.is_some()
    }

    /// Positions of the columns that must be read to be changed.
    pub(crate) fn read_columns(&self) -> impl Iterator<Item = usize> {
        let reads = |(position, change): &(usize, ColumnChange)| {
            let is_list = matches!(self.table.columns[*position].cql_type, CqlType::List { .. });
            let by_index_or_value = matches!(
                change,
                ColumnChange::SetElement(..)
                    | ColumnChange::DeleteElement(_)
                    | ColumnChange::Subtract(_)
            );
            let reads =
                is_list && by_index_or_value || matches!(change, ColumnChange::AddToValue(_));
            reads.then_some(*position)
        };
        self.changes.iter().filter_map(reads)
    }

    /// True if the statement deletes counters by range or partition: existing rows are found first.
    pub(crate) fn finds_counters(&self) -> bool {
        self.table.is_counter
            && self.deletes_rows
            && self.clustering_given() < self.table.clustering_len
    }

    /// True if the statement deletes partitions of several rows, or ranges of rows.
    pub(crate) fn deletes_ranges(&self) -> bool {
        self.deletes_rows && self.clustering_given() < self.table.clustering_len
    }

    /// True if repeating the changes of static columns has a further effect.
    pub(crate) fn repeats_statics(&self) -> bool {
        let mut columns = self.changes.iter().map(|(position, _)| &self.table.columns[*position]);
        columns.any(|column| {
            let adds = column.cql_type.is_counter()
                || matches!(column.cql_type, CqlType::List { frozen: false, .. });
            column.kind == ColumnKind::Static && adds
        })
    }

    /// True if the partition key has an `IN`.
    pub(crate) fn has_partition_in(&self) -> bool {
        let PartitionRestriction::Keys(keys) = &self.restrictions.partition else { return false };
        keys.iter().any(OneOf::is_in)
    }

    /// True if clustering columns have an `IN`.
    pub(crate) fn has_clustering_in(&self) -> bool {
        let clustering = &self.restrictions.clustering;
        clustering.tuples.as_ref().is_some_and(|(_, tuples)| tuples.is_in())
            || clustering.equal.iter().any(OneOf::is_in)
    }

    /// Number of clustering columns given by equality, `IN` and tuples.
    pub(crate) fn clustering_given(&self) -> usize {
        let clustering = &self.restrictions.clustering;
        clustering.equal.len() + clustering.tuples.as_ref().map_or(0, |(types, _)| types.len())
    }

    pub(crate) fn is_conditional(&self) -> bool {
        !matches!(self.conditions, ConditionPlan::None)
    }

    /// Refuses well-formed statements that Cassandra refuses.
    pub(super) fn check(&self) -> Result<(), CqlError> {
        if self.json.is_some() {
            return Ok(());
        }
        let table = &self.table;
        if !self.restrictions.filters.is_empty() {
            let filter = &self.restrictions.filters[0];
            let column = &table.columns[filter.column];
            return Err(CqlError::invalid(match column.kind {
                ColumnKind::PartitionKey | ColumnKind::Clustering => self.missing(),
                _ => format!("Non PRIMARY KEY columns found in where clause: {} ", column.name),
            }));
        }
        if !matches!(self.restrictions.partition, PartitionRestriction::Keys(_)) {
            return Err(CqlError::Invalid(self.missing()));
        }
        if self.is_static_only() && self.restricts_clustering() && !self.inserts {
            let kind = if self.is_delete { "DELETE" } else { "UPDATE" };
            return Err(CqlError::Invalid(format!(
                "Invalid restrictions on clustering columns since the {kind} statement modifies only static columns"
            )));
        }
        let clustering = &self.restrictions.clustering;
        let sliced = clustering.lower.is_some() || clustering.upper.is_some();
        let whole = self.clustering_given() == table.clustering_len;
        if !self.is_delete {
            if sliced {
                let message = "Slice restrictions are not supported on the clustering columns in UPDATE statements";
                return Err(CqlError::invalid(message));
            }
            if !whole && !self.is_static_only() {
                return Err(CqlError::Invalid(self.missing()));
            }
        } else if !whole {
            self.check_range()?;
        }
        if table.is_counter && (self.timestamp.is_some() || self.time_to_live.is_some()) {
            return Err(CqlError::invalid(
                "Cannot provide custom timestamp or TTL for counter updates",
            ));
        }
        if table.is_counter && self.is_conditional() {
            return Err(CqlError::invalid(
                "Conditional updates are not supported on counter tables",
            ));
        }
        if self.is_conditional() && self.timestamp.is_some() {
            return Err(CqlError::invalid(
                "Cannot provide custom timestamp for conditional updates",
            ));
        }
        Ok(())
    }

    /// Checks a DELETE that does not name whole rows.
    fn check_range(&self) -> Result<(), CqlError> {
        if self.is_conditional() {
            let all = "DELETE statements must restrict all PRIMARY KEY columns with equality relations in order to";
            if self.changes_kind(ColumnKind::Regular) || self.deletes_rows {
                return Err(CqlError::Invalid(format!("{all} delete non static columns")));
            }
            if !self.is_static_only() {
                return Err(CqlError::Invalid(format!(
                    "{all} use IF condition on non static columns"
                )));
            }
        }
        if self.changes_kind(ColumnKind::Regular) {
            return Err(CqlError::invalid(
                "Range deletions are not supported for specific columns",
            ));
        }
        Ok(())
    }

    /// Names the missing parts of the primary key.
    fn missing(&self) -> String {
        let given = self.clustering_given();
        if let PartitionRestriction::Keys(_) = self.restrictions.partition {
            let names =
                self.table.clustering().iter().skip(given).map(|column| column.name.as_str());
            return format!(
                "Some clustering keys are missing: {}",
                names.collect::<Vec<_>>().join(", ")
            );
        }
        let restricted = |position: usize| {
            self.restrictions.filters.iter().any(|filter| filter.column == position)
        };
        let key = self.table.partition_key().iter().enumerate();
        let names = key
            .filter(|(position, _)| !restricted(*position))
            .map(|(_, column)| column.name.as_str());
        format!("Some partition key parts are missing: {}", names.collect::<Vec<_>>().join(", "))
    }
}
