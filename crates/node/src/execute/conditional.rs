//! Conditional statements and batches of them (`CQL3CasRequest` of Cassandra): conditions on rows
//! of one partition, the reads to check them, and the columns that a refusal shows.
//!
//! The partition is locked during read and write, so that no other condition or write intervenes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use shunt_language::work::Work;
use shunt_storage::Target;
use shunt_storage::engine::ReadTier;
use shunt_storage::row::{PartitionKey, Row};
use shunt_storage::store::Slice;

use super::conditions::BoundCondition;
use super::effort::{Effort, bytes_of_row};
use super::keys::Partition;
use super::mutate::Mutator;
use super::select::{Clustering, Input};
use crate::error::CqlError;
use crate::limits;
use crate::schema::{ColumnKind, Table};
use crate::shared::Shared;
use crate::statement::mutation::{ConditionPlan, MutationPlan};

/// Conditions on one row.
enum RowTest<'a> {
    NotExists,
    Exists,
    Columns(Vec<BoundCondition<'a>>),
}

/// Conditions of a statement or batch.
pub(super) struct Request<'a> {
    table: &'a Arc<Table>,
    pub(super) partition: Partition,
    static_row: Option<RowTest<'a>>,
    rows: BTreeMap<Vec<u8>, RowTest<'a>>,
    /// Positions of the columns that a refusal shows, in order; `None` shows all.
    shown: Option<Vec<usize>>,
    /// By position: whether a column is read. Other columns are ignored, even for the existence of
    /// a row.
    reads: Vec<bool>,
}

/// Rows read by a request.
pub(super) struct Current {
    static_row: Option<Row>,
    rows: BTreeMap<Vec<u8>, Row>,
    now: i64,
}

/// A value that a refusal shows; `None` is null.
pub(super) type ShownValue = Option<Vec<u8>>;

/// `updates` or `deletions`
fn kind(plan: &MutationPlan) -> &'static str {
    if plan.is_delete { "deletions" } else { "updates" }
}

impl<'a> Request<'a> {
    pub(super) fn new(mutators: &[Mutator<'a>], batch: bool) -> Result<Request<'a>, CqlError> {
        let first = mutators
            .first()
            .ok_or_else(|| CqlError::invalid("a conditional statement without statements"))?;
        let table = &first.plan.table;
        if mutators.iter().any(|mutator| mutator.plan.table.id != table.id) {
            return Err(CqlError::invalid("Batch with conditions cannot span multiple tables"));
        }
        let mut request = Request {
            table,
            partition: partition(first, batch)?,
            static_row: None,
            rows: BTreeMap::new(),
            shown: Some(Vec::new()),
            reads: reads(mutators),
        };
        for mutator in mutators {
            if partition(mutator, batch)? != request.partition {
                return Err(CqlError::invalid(
                    "Batch with conditions cannot span multiple partitions",
                ));
            }
            if mutator.plan.has_clustering_in() {
                let kind = kind(mutator.plan);
                return Err(CqlError::Invalid(format!(
                    "IN on the clustering key columns is not supported with conditional {kind}"
                )));
            }
            if mutator.plan.is_conditional() {
                request.add(mutator)?;
            }
        }
        if batch && let Some(shown) = &mut request.shown {
            shown.splice(0..0, 0..table.partition_key_len + table.clustering_len);
        }
        Ok(request)
    }

    /// Adds the conditions of one statement.
    fn add(&mut self, mutator: &Mutator<'a>) -> Result<(), CqlError> {
        let (plan, row) = (mutator.plan, mutator.row()?);
        let ConditionPlan::Columns(all) = &plan.conditions else {
            self.shown = None;
            let test = if matches!(plan.conditions, ConditionPlan::Exists) {
                RowTest::Exists
            } else {
                RowTest::NotExists
            };
            return self.put(row, test);
        };
        let of_static = |position: usize| self.table.columns[position].kind == ColumnKind::Static;
        let bound = |wanted: bool| {
            let own = all.iter().filter(|condition| of_static(condition.column) == wanted);
            own.map(|condition| BoundCondition::new(self.table, condition, mutator.bound))
                .collect::<Result<Vec<_>, _>>()
        };
        let (of_row, of_statics) = (bound(false)?, bound(true)?);
        // Conditions on regular columns come first.
        for wanted in [false, true] {
            let columns = all
                .iter()
                .map(|condition| condition.column)
                .filter(|column| of_static(*column) == wanted);
            let shown = self.shown.iter_mut();
            shown.for_each(|shown| {
                columns.clone().for_each(|column| {
                    if !shown.contains(&column) {
                        shown.push(column)
                    }
                })
            });
        }
        if !of_row.is_empty() {
            self.put(row, RowTest::Columns(of_row))?;
        }
        if !of_statics.is_empty() {
            self.put(None, RowTest::Columns(of_statics))?;
        }
        Ok(())
    }

    /// Adds a test of a row (the static one without clustering bytes) to its earlier tests.
    fn put(&mut self, row: Option<Vec<u8>>, test: RowTest<'a>) -> Result<(), CqlError> {
        let known = match &row {
            Some(row) => self.rows.get_mut(row),
            None => self.static_row.as_mut(),
        };
        match (known, test) {
            (Some(RowTest::NotExists), RowTest::NotExists)
            | (Some(RowTest::Exists), RowTest::Exists) => Ok(()),
            (Some(RowTest::Columns(known)), RowTest::Columns(more)) => {
                known.extend(more);
                Ok(())
            }
            (Some(RowTest::Columns(_)), _) | (Some(_), RowTest::Columns(_)) => Err(
                CqlError::invalid("Cannot mix IF conditions and IF NOT EXISTS for the same row"),
            ),
            (Some(_), _) => Err(CqlError::invalid(
                "Cannot mix IF EXISTS and IF NOT EXISTS conditions for the same row",
            )),
            (None, test) => {
                match row {
                    Some(row) => drop(self.rows.insert(row, test)),
                    None => self.static_row = Some(test),
                }
                Ok(())
            }
        }
    }

    /// True if its rows are read one by one, which takes long.
    pub(super) fn reads_many_rows(&self) -> bool {
        self.rows.len() > limits::ROWS_TOGETHER
    }

    /// Reads the rows of the conditions. The caller holds the partition's lock.
    pub(super) fn read(
        &self,
        mutators: &[Mutator<'_>],
        shared: &Shared,
        effort: &Effort,
    ) -> Result<Current, CqlError> {
        let now = mutators.first().map_or(0, |mutator| mutator.time.now);
        let number = self
            .table
            .number
            .ok_or_else(|| CqlError::invalid("a system table is not written to"))?;
        let (store, key) = (shared.store(self.partition.token), PartitionKey(&self.partition.key));
        let mut rows = BTreeMap::new();
        let mut static_row = None;
        if self.rows.is_empty() {
            // With a condition on static columns alone the first row shows whether the partition
            // exists.
            let all = Slice { reach: effort.reach(), ..Slice::default() };
            let mut found = store.read_partition(number, key, &all, now)?;
            static_row = found.static_row().cloned();
            while let Some((clustering, row)) = found.next()? {
                effort.has_read(Some(&row))?;
                if let Some(row) = self.visible_row(row, now) {
                    rows.insert(clustering.to_vec(), row);
                    break;
                }
            }
        } else if self.reads_many_rows() {
            let mut bytes = 0;
            let mut read = |target: Target<'_>| -> Result<Option<Row>, CqlError> {
                let row = store.read_row(number, key, target, now)?;
                effort.has_read(row.as_ref())?;
                let row = row.and_then(|row| self.visible_row(row, now));
                bytes += row.as_ref().map_or(0, bytes_of_row);
                if bytes > limits::CONDITIONS_BYTES_MAX {
                    return Err(too_large());
                }
                Ok(row)
            };
            for clustering in self.rows.keys() {
                let row = read(Target::Row(clustering))?;
                rows.extend(row.map(|row| (clustering.clone(), row)));
            }
            if self.table.has_static {
                static_row = read(Target::Static)?;
            }
        } else {
            let statics = self.table.has_static.then_some(Target::Static);
            let named = self.rows.keys().map(|clustering| Target::Row(clustering));
            let targets: Vec<Target<'_>> = named.chain(statics).collect();
            let found = store
                .read_rows((number, key), &targets, now, ReadTier::Disk)?
                .ready()
                .unwrap_or_default();
            for (target, row) in targets.iter().zip(found) {
                match target {
                    Target::Row(clustering) => {
                        let row = row.and_then(|row| self.visible_row(row, now));
                        rows.extend(row.map(|row| (clustering.to_vec(), row)));
                    }
                    _ => static_row = row,
                }
            }
        }
        let static_row = static_row.and_then(|row| self.visible_row(row, now));
        Ok(Current { static_row, rows, now })
    }

    /// A row reduced to the columns that are read; `None` if no part of it is live.
    fn visible_row(&self, mut row: Row, now: i64) -> Option<Row> {
        let columns = || self.table.columns.iter().zip(&self.reads);
        row.cells.retain(|cell| {
            cell.is_key() || columns().any(|(column, read)| *read && column.shows(cell))
        });
        row.is_live(now).then_some(row)
    }

    /// True if all conditions hold.
    pub(super) fn holds(&self, current: &Current) -> Result<bool, CqlError> {
        let work = Work::default();
        if let Some(test) = &self.static_row
            && !test.holds(current.static_row.as_ref(), current.now, &work)?
        {
            return Ok(false);
        }
        for (clustering, test) in &self.rows {
            if !test.holds(current.rows.get(clustering), current.now, &work)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the content of a refusal: positions of columns, and their values in each row; empty
    /// if no row exists.
    pub(super) fn refusal(
        &self,
        current: &Current,
    ) -> Result<(Vec<usize>, Vec<Vec<ShownValue>>), CqlError> {
        let columns = self.shown.clone().unwrap_or_else(|| (0..self.table.columns.len()).collect());
        let mut rows = Vec::new();
        let mut decoded = Clustering::default();
        for (clustering, row) in &current.rows {
            let whole =
                decoded.decode(self.table.clustering(), self.table.clustering_len, clustering);
            whole.ok_or_else(|| {
                CqlError::Server("a clustering key that is stored is broken".to_owned())
            })?;
            decoded.restore(self.table.clustering_len, row);
            rows.push(self.shown_values(current, &columns, Some((&decoded, row))));
        }
        if rows.is_empty() && current.static_row.is_some() {
            rows.push(self.shown_values(current, &columns, None));
        }
        Ok(if rows.is_empty() { (Vec::new(), rows) } else { (columns, rows) })
    }

    fn shown_values(
        &self,
        current: &Current,
        columns: &[usize],
        row: Option<(&Clustering, &Row)>,
    ) -> Vec<ShownValue> {
        let input = Input {
            table: self.table,
            partition: &self.partition.key,
            static_row: current.static_row.as_ref(),
            clustering: row.map(|(clustering, _)| clustering),
            row: row.map(|(_, row)| row),
            now: current.now,
        };
        columns.iter().map(|column| input.value(*column).map(Cow::into_owned)).collect()
    }
}

impl RowTest<'_> {
    fn holds(&self, row: Option<&Row>, now: i64, work: &Work) -> Result<bool, CqlError> {
        match self {
            RowTest::NotExists => Ok(row.is_none()),
            RowTest::Exists => Ok(row.is_some()),
            RowTest::Columns(conditions) => {
                for condition in conditions {
                    if !condition.holds(row, now, work)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }
}

fn too_large() -> CqlError {
    let bytes_max = limits::CONDITIONS_BYTES_MAX;
    CqlError::Invalid(format!(
        "the rows that the conditions of this batch read have more than {bytes_max} bytes: use several batches"
    ))
}

/// The one partition of a statement.
fn partition(mutator: &Mutator<'_>, batch: bool) -> Result<Partition, CqlError> {
    match mutator.partitions()?.last() {
        Some(partition) if !mutator.plan.has_partition_in() => Ok(partition.clone()),
        _ if batch => Err(CqlError::invalid(
            "Batch with conditions cannot span multiple partitions (you cannot use IN on the partition key)",
        )),
        _ => {
            let kind = kind(mutator.plan);
            Err(CqlError::Invalid(format!(
                "IN on the partition key is not supported with conditional {kind}"
            )))
        }
    }
}

/// Static columns are read if any is written, regular ones if rows are; otherwise those that
/// conditions or changes need.
fn reads(mutators: &[Mutator<'_>]) -> Vec<bool> {
    let table = &mutators[0].plan.table;
    let conditional =
        || mutators.iter().map(|mutator| mutator.plan).filter(|plan| plan.is_conditional());
    let rows = mutators.iter().any(|mutator| mutator.plan.writes_rows());
    let statics = conditional().any(MutationPlan::writes_static_row);
    let mut reads: Vec<bool> = table
        .columns
        .iter()
        .map(|column| {
            column.kind == ColumnKind::Regular && rows
                || column.kind == ColumnKind::Static && statics
        })
        .collect();
    for plan in conditional() {
        if let ConditionPlan::Columns(all) = &plan.conditions {
            all.iter().for_each(|condition| reads[condition.column] = true);
        }
        plan.read_columns().for_each(|position| reads[position] = true);
    }
    reads
}
