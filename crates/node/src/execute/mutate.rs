//! Execution of statements that write: plans and bind values become mutations of the stores.

use std::cell::OnceCell;
use std::sync::Arc;

use shunt_language::terms::{Bindings, Prepared, Value};
use shunt_storage::Target;
use shunt_storage::row::{
    Deletion, Expiry, Fragment, Header, PartitionKey, RangeTombstone, Row, TableId,
};
use shunt_storage::store::{MutationRef, Slice};
use std::ops::Bound as RangeBound;

use super::bindings::Bound;
use super::changes::{CellReader, apply};
use super::effort::{Effort, bytes_in_memory};
use super::fragment::{FragmentMaker, ListPositions, WriteTime};
use super::intervals::{Interval, Intervals};
use super::json::JsonRow;
use super::keys::{self, NamedRow, Partition};
use crate::error::CqlError;
use crate::schema::options::TTL_MAX;
use crate::schema::{ColumnKind, Table};
use crate::shared::Shared;
use crate::statement::mutation::MutationPlan;
use crate::statement::restrictions::PartitionRestriction;

/// A statement of a batch, or the only one.
pub(super) type Item<'a> = (&'a MutationPlan, &'a Bound<'a>);

/// Place of a mutation in a partition, with owned bytes.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Place {
    Header,
    Static,
    Row(Vec<u8>),
}

impl Place {
    pub(super) fn target(&self) -> Target<'_> {
        match self {
            Place::Header => Target::Header,
            Place::Static => Target::Static,
            Place::Row(clustering) => Target::Row(clustering),
        }
    }
}

/// A complete mutation.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) table: TableId,
    pub(crate) partition: Partition,
    pub(crate) place: Place,
    pub(crate) fragment: Fragment,
    /// Timestamp of the statement, microseconds since 1970.
    pub(crate) timestamp: i64,
}

impl Write {
    /// Moves deletions a microsecond before the values of the same write, which then survive.
    /// Needed by conditional batches, where the deletion of a row and writes to it have one
    /// timestamp.
    pub(super) fn deletions_first(&mut self) {
        let before = self.timestamp - 1;
        let earlier = |deletion: Deletion| Deletion { timestamp: before, ..deletion };
        match &mut self.fragment {
            Fragment::Row(row) => {
                row.deletion = row.deletion.map(earlier);
                row.complex.iter_mut().for_each(|(_, deletion)| *deletion = earlier(*deletion));
            }
            Fragment::Header(header) => {
                header.deletion = header.deletion.map(earlier);
                header.ranges.iter_mut().for_each(|range| range.deletion = earlier(range.deletion));
            }
        }
    }

    /// The mutation in the store's form.
    pub(crate) fn mutation(&self) -> MutationRef<'_> {
        MutationRef {
            table: self.table,
            partition: PartitionKey(&self.partition.key),
            target: self.place.target(),
            fragment: &self.fragment,
        }
    }
}

/// One execution of a plan: its values and write times.
pub(crate) struct Mutator<'a> {
    pub(crate) plan: &'a MutationPlan,
    pub(crate) bound: &'a Bound<'a>,
    pub(crate) shared: &'a Shared,
    effort: &'a Effort,
    pub(crate) time: WriteTime,
    /// The statement has its own timestamp.
    timestamp_given: bool,
    /// Time for the positions of list elements, in microseconds since 1970.
    positions_us: i64,
    /// Error in the time to live.
    refused: Option<CqlError>,
    positions: ListPositions,
    /// The row given by INSERT JSON.
    json: Option<Arc<JsonRow>>,
    /// Evaluated once: `uuid()` or `now()` in a key differs at each evaluation.
    partitions: OnceCell<Vec<Partition>>,
    /// Evaluated once, like `partitions`.
    rows: OnceCell<Vec<NamedRow>>,
}

impl<'a> Mutator<'a> {
    /// `index` is the statement's place in its batch. `timestamp` is that of the request, the batch
    /// or the node; the statement's own takes precedence.
    pub(crate) fn new(
        plan: &'a MutationPlan,
        bound: &'a Bound<'a>,
        (shared, effort): (&'a Shared, &'a Effort),
        timestamp: i64,
        index: usize,
    ) -> Result<Self, CqlError> {
        let now = bound.now_s();
        let given = bigint(plan.timestamp.as_ref(), bound, "timestamp")?;
        let (timestamp, timestamp_given) = (given.unwrap_or(timestamp), given.is_some());
        if timestamp == i64::MIN {
            return Err(CqlError::Invalid(format!("Timestamp is out of range: {timestamp}")));
        }
        // A failed condition takes precedence over an invalid time to live.
        let (seconds, refused) = match time_to_live(plan, bound) {
            Ok(seconds) => (seconds, None),
            Err(error) => (0, Some(error)),
        };
        let expiry = (seconds > 0).then(|| Expiry { ttl: seconds, at: now + i64::from(seconds) });
        let time = WriteTime { timestamp, expiry, now };
        let json = plan
            .json
            .as_ref()
            .map(|(json, _)| JsonRow::new(&plan.table, json, bound).map(Arc::new))
            .transpose()?;
        let (positions, positions_us) = (ListPositions::of_statement(index), bound.now_us);
        let (partitions, rows) = (OnceCell::new(), OnceCell::new());
        Ok(Self {
            plan,
            bound,
            shared,
            effort,
            time,
            timestamp_given,
            positions_us,
            refused,
            positions,
            json,
            partitions,
            rows,
        })
    }

    /// Sets the execution time to `now_us` instead of the arrival: a write that waited for a lock
    /// must not be older than those of earlier holders.
    pub(super) fn begin_at(&mut self, now_us: i64) {
        self.positions_us = now_us;
        self.time.now = now_us / 1_000_000;
        let expires =
            |expiry: Expiry| Expiry { at: self.time.now + i64::from(expiry.ttl), ..expiry };
        self.time.expiry = self.time.expiry.map(expires);
        if !self.timestamp_given {
            self.time.timestamp = now_us;
        }
    }

    /// Gives all writes this timestamp, whatever the statement says.
    pub(super) fn set_timestamp(&mut self, timestamp: i64) {
        self.time.timestamp = timestamp;
    }

    fn table(&self) -> &'a Arc<Table> {
        &self.plan.table
    }

    fn number(&self) -> Result<TableId, CqlError> {
        self.table().number.ok_or_else(|| CqlError::invalid("a system table is not written to"))
    }

    /// The partitions the statement writes to.
    pub(crate) fn partitions(&self) -> Result<&[Partition], CqlError> {
        if let Some(known) = self.partitions.get() {
            return Ok(known);
        }
        let found = match (&self.json, &self.plan.restrictions.partition) {
            (Some(json), _) => vec![json.partition.clone()],
            (None, PartitionRestriction::Keys(keys)) => {
                keys::partitions(self.table(), keys, self.bound)?
            }
            _ => return Err(CqlError::invalid("a statement that writes names its partitions")),
        };
        Ok(self.partitions.get_or_init(|| found))
    }

    /// Rows that the statement names by all clustering columns.
    fn rows(&self) -> Result<&[NamedRow], CqlError> {
        if let Some(known) = self.rows.get() {
            return Ok(known);
        }
        let found = keys::rows(self.table(), &self.plan.restrictions.clustering, self.bound)?;
        Ok(self.rows.get_or_init(|| found))
    }

    /// Clustering bytes of the row of a statement without slices and `IN`; `None` for the static
    /// row.
    pub(crate) fn row(&self) -> Result<Option<Vec<u8>>, CqlError> {
        if let Some(json) = &self.json {
            return Ok(Some(json.clustering.clone()));
        }
        if self.plan.is_of_static_row() {
            return Ok(None);
        }
        let (clustering, _) =
            self.rows()?.first().ok_or_else(|| CqlError::invalid("no row is named"))?;
        Ok(Some(clustering.clone()))
    }

    /// Returns all writes of the statement.
    pub(crate) fn writes(&mut self) -> Result<Vec<Write>, CqlError> {
        if let Some(refused) = self.refused.take() {
            // The error does not matter if no row is named, as with an empty IN.
            return if self.names_no_row()? { Ok(Vec::new()) } else { Err(refused) };
        }
        if let Some(json) = self.json.clone() {
            return self.json_writes(&json);
        }
        let mut writes = Vec::new();
        self.partitions()?;
        let partitions = self.partitions.take().unwrap_or_default();
        for partition in &partitions {
            if self.plan.deletes_rows {
                self.delete_rows(partition, &mut writes)?;
            } else {
                self.write_rows(partition, &mut writes)?;
            }
        }
        let _ = self.partitions.set(partitions);
        Ok(writes)
    }

    /// True if the clustering columns are restricted to no value.
    fn names_no_row(&self) -> Result<bool, CqlError> {
        let restriction = &self.plan.restrictions.clustering;
        let in_columns = self.plan.clustering_given() > 0;
        Ok(in_columns && keys::clustering_values(self.table(), restriction, self.bound)?.is_empty())
    }

    /// Writes of rows that are inserted, updated, or lose columns.
    fn write_rows(
        &mut self,
        partition: &Partition,
        writes: &mut Vec<Write>,
    ) -> Result<(), CqlError> {
        // An INSERT without clustering columns affects only the static row.
        let plan = self.plan;
        let static_only = plan.clustering_given() < self.table().clustering_len;
        if !static_only {
            self.rows()?;
        }
        let rows = self.rows.take().unwrap_or_default();
        // The statement is executed row by row, and each time adds to static counters and lists.
        let times = if static_only { 1 } else { rows.len() };
        let are_many = plan.has_partition_in() || rows.len() > 1;
        for _ in 0..if plan.repeats_statics() { times } else { times.min(1) } {
            let statics = self.changed_row(partition, ColumnKind::Static)?;
            if !statics.is_empty() {
                if are_many {
                    self.will_gather(partition, &[], Some(&statics))?;
                }
                writes.push(self.write(partition, Place::Static, Fragment::Row(statics))?);
            }
        }
        for (clustering, values) in &rows {
            let mut row = self.row_at(partition, clustering)?;
            if !row.is_empty() {
                if are_many {
                    self.will_gather(partition, clustering, Some(&row))?;
                }
                row.cells.extend(keys::as_written(self.table(), values, self.time.timestamp));
                writes.push(self.write(
                    partition,
                    Place::Row(clustering.clone()),
                    Fragment::Row(row),
                )?);
            }
        }
        if !static_only {
            let _ = self.rows.set(rows);
        }
        Ok(())
    }

    /// The fragment of one regular row.
    fn row_at(&mut self, partition: &Partition, clustering: &[u8]) -> Result<Row, CqlError> {
        let place = Place::Row(clustering.to_vec());
        self.fragment(partition, &place, ColumnKind::Regular, self.plan.inserts)
    }

    fn changed_row(&mut self, partition: &Partition, kind: ColumnKind) -> Result<Row, CqlError> {
        self.fragment(partition, &Place::Static, kind, false)
    }

    fn fragment(
        &mut self,
        partition: &Partition,
        place: &Place,
        kind: ColumnKind,
        inserts: bool,
    ) -> Result<Row, CqlError> {
        let (plan, bound, shared, time) = (self.plan, self.bound, self.shared, self.time);
        let mut maker = FragmentMaker::new(time, &mut self.positions, self.positions_us);
        if inserts {
            maker.insert();
        }
        for (position, change) in &plan.changes {
            let column = &plan.table.columns[*position];
            if column.kind == kind {
                let reader =
                    CellReader { shared, table: &plan.table, partition, place, now: time.now };
                apply(&mut maker, column, change, bound, &reader)?;
            }
        }
        let mut row = maker.row;
        row.canonicalise();
        Ok(row)
    }

    /// Counts one of several writes of a statement. Each has copies of its keys and values.
    fn will_gather(
        &self,
        partition: &Partition,
        clustering: &[u8],
        row: Option<&Row>,
    ) -> Result<(), CqlError> {
        let keys = partition.key.len() + clustering.len();
        self.effort.will_gather(size_of::<Write>() + keys + row.map_or(0, bytes_in_memory))
    }

    fn write(
        &self,
        partition: &Partition,
        place: Place,
        fragment: Fragment,
    ) -> Result<Write, CqlError> {
        let timestamp = self.time.timestamp;
        Ok(Write {
            table: self.number()?,
            partition: partition.clone(),
            place,
            fragment,
            timestamp,
        })
    }

    /// Deletions of whole rows, ranges of rows, or partitions.
    fn delete_rows(
        &mut self,
        partition: &Partition,
        writes: &mut Vec<Write>,
    ) -> Result<(), CqlError> {
        let deletion = Deletion { timestamp: self.time.timestamp, local: self.time.now };
        let restriction = &self.plan.restrictions.clustering;
        let table = self.table();
        let given = self.plan.clustering_given();
        let sliced = restriction.lower.is_some() || restriction.upper.is_some();
        let whole = given == 0 && !sliced && table.clustering_len > 0;
        if self.plan.finds_counters() {
            self.delete_counters(partition, deletion, whole, writes)?;
        }
        if whole {
            let header = Header { deletion: Some(deletion), ranges: Vec::new() };
            writes.push(self.write(partition, Place::Header, Fragment::Header(header))?);
            return Ok(());
        }
        if given == table.clustering_len {
            let rows = self.rows()?;
            let are_many = self.plan.has_partition_in() || rows.len() > 1;
            for (clustering, values) in rows {
                if are_many {
                    self.will_gather(partition, clustering, None)?;
                }
                let cells =
                    keys::as_written(table, values, deletion.timestamp).into_iter().collect();
                let row = Row { deletion: Some(deletion), cells, ..Row::default() };
                writes.push(self.write(
                    partition,
                    Place::Row(clustering.clone()),
                    Fragment::Row(row),
                )?);
            }
            return Ok(());
        }
        let intervals = Intervals::new(table, restriction, self.bound)?.0;
        if self.plan.has_partition_in() || intervals.len() > 1 {
            self.will_gather(partition, &[], None)?;
            let bytes_of = |interval: &Interval| interval.from.len() + interval.to.len();
            let bytes: usize = intervals.iter().map(bytes_of).sum();
            self.effort.will_gather(bytes + size_of::<RangeTombstone>() * intervals.len())?;
        }
        let range = |interval: Interval| {
            RangeTombstone::new(
                RangeBound::Included(interval.from),
                RangeBound::Excluded(interval.to),
                deletion,
            )
        };
        let mut header =
            Header { deletion: None, ranges: intervals.into_iter().map(range).collect() };
        header.canonicalise();
        if !header.is_empty() {
            writes.push(self.write(partition, Place::Header, Fragment::Header(header))?);
        }
        Ok(())
    }

    /// Counters have no write times, so only a deletion of the row resets them: each existing row
    /// gets one.
    fn delete_counters(
        &self,
        partition: &Partition,
        deletion: Deletion,
        whole: bool,
        writes: &mut Vec<Write>,
    ) -> Result<(), CqlError> {
        let store = self.shared.store(partition.token);
        let all = Slice { reach: self.effort.reach(), ..Slice::default() };
        let intervals =
            Intervals::new(self.table(), &self.plan.restrictions.clustering, self.bound)?;
        let mut rows = store.read_partition(
            self.number()?,
            PartitionKey(&partition.key),
            &all,
            self.time.now,
        )?;
        let deleted = || Fragment::Row(Row { deletion: Some(deletion), ..Row::default() });
        if whole && rows.static_row().is_some() {
            writes.push(self.write(partition, Place::Static, deleted())?);
        }
        while let Some((clustering, row)) = rows.next()? {
            self.effort.has_read(Some(&row))?;
            if whole || intervals.contains(&clustering) {
                self.will_gather(partition, &clustering, None)?;
                writes.push(self.write(partition, Place::Row(clustering.to_vec()), deleted())?);
            }
        }
        Ok(())
    }

    /// The writes of INSERT JSON.
    fn json_writes(&mut self, json: &JsonRow) -> Result<Vec<Write>, CqlError> {
        let default_unset =
            self.plan.json.as_ref().is_some_and(|(_, default_unset)| *default_unset);
        let table = Arc::clone(self.table());
        let mut writes = Vec::new();
        let places = [
            (ColumnKind::Static, Place::Static),
            (ColumnKind::Regular, Place::Row(json.clustering.clone())),
        ];
        for (kind, place) in places {
            let mut maker = FragmentMaker::new(self.time, &mut self.positions, self.positions_us);
            if kind == ColumnKind::Regular {
                maker.insert();
            }
            for column in table.values().iter().filter(|column| column.kind == kind) {
                match json.value(&column.name) {
                    Some(value) => maker.set(column, value.map(<[u8]>::to_vec))?,
                    None if !default_unset => maker.set(column, None)?,
                    None => {}
                }
            }
            let mut row = maker.row;
            row.canonicalise();
            if !row.is_empty() {
                if kind == ColumnKind::Regular {
                    row.cells.extend(keys::as_written(
                        &table,
                        &json.clustering_values,
                        self.time.timestamp,
                    ));
                }
                writes.push(self.write(&json.partition, place, Fragment::Row(row))?);
            }
        }
        Ok(writes)
    }
}

/// The value of a bigint attribute.
pub(crate) fn bigint(
    term: Option<&Prepared>,
    bindings: &dyn Bindings,
    what: &str,
) -> Result<Option<i64>, CqlError> {
    let Some(term) = term else { return Ok(None) };
    match term.evaluate(bindings)? {
        Value::Unset => Ok(None),
        Value::Null => Err(CqlError::Invalid(format!("Invalid null value of {what}"))),
        Value::Bytes(bytes) => {
            let number = <[u8; 8]>::try_from(bytes).map(i64::from_be_bytes);
            Ok(Some(number.map_err(|_| CqlError::Invalid(format!("Invalid {what} value")))?))
        }
    }
}

/// Time to live of the written values in seconds; 0 for none.
fn time_to_live(plan: &MutationPlan, bound: &Bound<'_>) -> Result<u32, CqlError> {
    let default = plan.table.options.default_time_to_live;
    let Some(term) = &plan.time_to_live else { return Ok(default) };
    let seconds = match term.evaluate(bound)? {
        Value::Unset => return Ok(default),
        Value::Null => return Ok(0),
        Value::Bytes(bytes) => {
            let number = <[u8; 4]>::try_from(bytes).map(i32::from_be_bytes);
            number.map_err(|_| CqlError::invalid("Invalid TTL value"))?
        }
    };
    if seconds < 0 {
        return Err(CqlError::Invalid(format!(
            "A TTL must be greater or equal to 0, but was {seconds}"
        )));
    }
    if i64::from(seconds) > TTL_MAX {
        return Err(CqlError::Invalid(format!(
            "ttl is too large. requested ({seconds}) maximum ({TTL_MAX})"
        )));
    }
    Ok(seconds as u32)
}
