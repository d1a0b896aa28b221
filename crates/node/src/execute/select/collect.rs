//! Turns rows into rows of the result as they are read: filters, groups, limits, pages.
//!
//! The reader reports the beginning of a partition, its rows and its end, and obeys the returned
//! flow.

use shunt_language::error::InvalidRequest;
use shunt_storage::catalogue::{RecordView, ValueView};
use shunt_storage::row::Row;
use shunt_wire::cql::message::put;

use super::evaluate::Evaluator;
use super::filter::Filters;
use super::group::Group;
use super::input::{Clustering, Input};
use super::output::put_row;
use super::paging::{Position, State};
use crate::error::CqlError;
use crate::schema::{Column, ColumnKind};
use crate::statement::select::{Grouping, SelectPlan};

/// Most rows held for sorting.
const SORTED_ROWS_MAX: usize = 100_000;
/// Most bytes of rows in one result; a page ends there, an unpaged result fails.
const RESULT_BYTES_MAX: usize = 64 << 20;
/// Rows rejected by filters after which a page ends.
const REJECTED_ROWS_MAX: u32 = if cfg!(test) { 10 } else { 100_000 };

/// Next step of the reader.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Flow {
    Continue,
    NextPartition,
    Stop,
}

/// A completed result.
pub(super) struct Finished {
    pub(super) rows: u32,
    /// Start of the next page, if there is one.
    pub(super) next: Option<State>,
    pub(super) read: Read,
}

/// Counts of rows read for a result.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Read {
    pub(super) partitions: u64,
    /// Live rows, without static ones.
    pub(super) rows: u64,
    /// Rows and partitions rejected by filters.
    pub(super) rejected: u32,
}

/// Limits on the number of rows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits {
    pub(super) rows: Option<u32>,
    pub(super) per_partition: Option<u32>,
    /// `None`: no paging.
    pub(super) page: Option<u32>,
}

/// The partition being read.
#[derive(Default)]
struct Current {
    key: Vec<u8>,
    static_row: Option<Row>,
    /// Rows, or groups, of the result from this partition.
    taken: u32,
    has_rows: bool,
}

/// Rows of the result under construction.
pub(super) struct Collector<'e> {
    plan: &'e SelectPlan,
    evaluator: &'e Evaluator<'e>,
    filters: Filters,
    now: i64,
    limits: Limits,
    out: Vec<u8>,
    before: usize,
    rows: u32,
    read: Read,
    current: Current,
    clustering: Clustering,
    decoded: usize,
    last: Position,
    more: bool,
    group: Option<Group>,
    /// Sort keys and rows.
    sorted: Vec<(Vec<u8>, Vec<u8>)>,
    /// Total size of these in bytes.
    sorted_bytes: usize,
}

/// Appends the value of a regular column of a plain record, which has no elements.
fn put_in_place(column: &Column, row: &RecordView<'_>, out: &mut Vec<u8>) -> Result<(), CqlError> {
    let cell = match column.is_multi_cell() {
        true => None,
        false => row.column(column.id).map_err(|error| CqlError::Server(error.to_string()))?,
    };
    let value = cell.and_then(|cell| match cell.value {
        ValueView::Live(bytes) => Some(bytes),
        _ => None,
    });
    put::bytes(out, value);
    Ok(())
}

impl<'e> Collector<'e> {
    /// Appends rows behind the content of `out`.
    pub(super) fn new(
        plan: &'e SelectPlan,
        evaluator: &'e Evaluator<'e>,
        filters: Filters,
        now: i64,
        limits: Limits,
        out: Vec<u8>,
    ) -> Self {
        let prefix = if let Grouping::Prefix(columns) = plan.grouping { columns } else { 0 };
        let decoded = plan.clustering_needed.max(prefix).max(plan.sorted_by.unwrap_or(0));
        let before = out.len();
        Self {
            plan,
            evaluator,
            filters,
            now,
            limits,
            out,
            before,
            rows: 0,
            read: Read::default(),
            current: Current::default(),
            clustering: Clustering::default(),
            decoded,
            last: Position::default(),
            more: false,
            group: None,
            sorted: Vec::new(),
            sorted_bytes: 0,
        }
    }

    /// True if the static row is needed.
    pub(super) fn wants_static(&self) -> bool {
        self.plan.needs_static || self.plan.shows_static_alone
    }

    /// Begins a partition; `resumed` gives the number of rows on an earlier page, if any.
    pub(super) fn partition(
        &mut self,
        key: &[u8],
        static_row: Option<Row>,
        resumed: Option<u32>,
    ) -> Flow {
        self.current.key.clear();
        self.current.key.extend_from_slice(key);
        self.current.static_row = static_row.and_then(|row| match self.without_dropped(&row) {
            Some(left) => left,
            None => Some(row),
        });
        self.current.taken = resumed.unwrap_or(0);
        self.current.has_rows = resumed.is_some();
        self.read.partitions += 1;
        let input = self.input(None, None);
        if self.filters.take_partition(&input) {
            return Flow::Continue;
        }
        // Hides its static content as well.
        self.current.has_rows = true;
        if self.reject(None) { Flow::Stop } else { Flow::NextPartition }
    }

    /// True if rows may be given as [`Collector::row_in_place`]: columns are shown unchanged, and
    /// no others are needed.
    pub(super) fn takes_rows_in_place(&self) -> bool {
        self.plan.plain.is_some() && self.filters.is_empty() && self.plan.table().dropped.is_empty()
    }

    /// Takes a live row of the partition in its record, reading only the columns that are shown.
    pub(super) fn row_in_place(
        &mut self,
        clustering: &[u8],
        row: &RecordView<'_>,
    ) -> Result<Flow, CqlError> {
        self.begin_row(clustering)?;
        self.take_shown(Some(clustering), |collector, out| {
            let input = collector.input(Some(clustering), None);
            let columns = &collector.plan.table().columns;
            for position in collector.plan.plain.iter().flatten() {
                match columns.get(*position) {
                    Some(column) if column.kind == ColumnKind::Regular => {
                        put_in_place(column, row, out)?
                    }
                    _ => put::bytes(out, input.value(*position).as_deref()),
                }
            }
            Ok(())
        })
    }

    /// Takes a row of the partition.
    pub(super) fn row(&mut self, clustering: &[u8], row: &Row) -> Result<Flow, CqlError> {
        let left = self.without_dropped(row);
        let row = match &left {
            None => row,
            Some(Some(left)) => left,
            Some(None) => return Ok(Flow::Continue),
        };
        self.begin_row(clustering)?;
        if self.decoded > 0 {
            self.clustering.restore(self.plan.table().clustering().len(), row);
        }
        self.take(Some(clustering), Some(row))
    }

    fn begin_row(&mut self, clustering: &[u8]) -> Result<(), CqlError> {
        self.current.has_rows = true;
        self.read.rows += 1;
        let columns = self.plan.table().clustering();
        if self.decoded > 0 && self.clustering.decode(columns, self.decoded, clustering).is_none() {
            let table = &self.plan.table().name;
            return Err(CqlError::Server(format!(
                "a row of {table} has a key that is not of its columns' types"
            )));
        }
        Ok(())
    }

    /// A row without values of dropped columns and, for columns added again, without those from
    /// before the drop; `None` if no other value is live.
    fn without_dropped(&self, row: &Row) -> Option<Option<Row>> {
        let table = self.plan.table();
        if table.dropped.is_empty() {
            return None;
        }
        let mut row = row.clone();
        row.cells
            .retain(|cell| cell.is_key() || table.columns.iter().any(|column| column.shows(cell)));
        Some(row.is_live(self.now).then_some(row))
    }

    /// Ends the partition, or stops reading it.
    pub(super) fn end_partition(&mut self) -> Result<Flow, CqlError> {
        let mut flow = Flow::Continue;
        let alone = !self.current.has_rows && self.current.static_row.is_some();
        if alone && self.plan.shows_static_alone {
            flow = self.take(None, None)?;
        }
        if matches!(self.plan.grouping, Grouping::Prefix(_)) && self.close_group()? {
            flow = Flow::Stop;
        }
        Ok(if flow == Flow::Stop { flow } else { Flow::Continue })
    }

    fn input<'i>(&'i self, clustering: Option<&'i [u8]>, row: Option<&'i Row>) -> Input<'i> {
        Input {
            table: self.plan.table(),
            partition: &self.current.key,
            static_row: self.current.static_row.as_ref(),
            clustering: clustering.map(|_| &self.clustering),
            row,
            now: self.now,
        }
    }

    fn take(&mut self, clustering: Option<&[u8]>, row: Option<&Row>) -> Result<Flow, CqlError> {
        if !self.filters.take_row(&self.input(clustering, row)) {
            return Ok(if self.reject(clustering) { Flow::Stop } else { Flow::Continue });
        }
        let flow = match self.plan.grouping {
            Grouping::Rows => self.take_row(clustering, row)?,
            Grouping::Everything => {
                self.add_to_group(&[], clustering, row)?;
                Flow::Continue
            }
            Grouping::Prefix(columns) => {
                let prefix =
                    clustering.map_or(&[][..], |key| &key[..self.clustering.encoded_len(columns)]);
                self.take_grouped(prefix, clustering, row)?
            }
        };
        // Aggregates count a partition once as well.
        Ok(if self.plan.distinct && flow == Flow::Continue { Flow::NextPartition } else { flow })
    }

    /// Counts a rejected row. Returns whether the page ends because of their number.
    fn reject(&mut self, clustering: Option<&[u8]>) -> bool {
        self.read.rejected += 1;
        if self.limits.page.is_none()
            || self.plan.grouping != Grouping::Rows
            || self.read.rejected < REJECTED_ROWS_MAX
        {
            return false;
        }
        self.note(clustering);
        self.more = true;
        true
    }

    /// Records this row as the start of the next page.
    fn note(&mut self, clustering: Option<&[u8]>) {
        if self.limits.page.is_none() {
            return;
        }
        self.last.partition.clone_from(&self.current.key);
        self.last.in_partition = self.current.taken;
        match clustering.filter(|_| !self.plan.distinct) {
            Some(clustering) => {
                let own = self.last.clustering.get_or_insert_default();
                own.clear();
                own.extend_from_slice(clustering);
            }
            None => self.last.clustering = None,
        }
    }

    /// True if the partition has reached its limit.
    fn partition_is_done(&self) -> bool {
        self.limits.per_partition.is_some_and(|most| self.current.taken >= most)
    }

    fn take_row(&mut self, clustering: Option<&[u8]>, row: Option<&Row>) -> Result<Flow, CqlError> {
        self.take_shown(clustering, |collector, out| {
            let input = collector.input(clustering, row);
            Ok(put_row(collector.plan, collector.evaluator, &input, &[], out)?)
        })
    }

    /// Takes a row of the result, which `show` appends.
    fn take_shown(
        &mut self,
        clustering: Option<&[u8]>,
        show: impl FnOnce(&Self, &mut Vec<u8>) -> Result<(), CqlError>,
    ) -> Result<Flow, CqlError> {
        if self.partition_is_done() {
            return Ok(Flow::NextPartition);
        }
        if self.limits.page == Some(0) {
            self.more = true;
            return Ok(Flow::Stop);
        }
        let sort_key = self.sort_key(clustering);
        let mut out = std::mem::take(&mut self.out);
        let shown = show(self, &mut out);
        self.out = out;
        shown?;
        self.current.taken = self.current.taken.saturating_add(1);
        self.note(clustering);
        Ok(if self.count(sort_key)? { Flow::Stop } else { Flow::Continue })
    }

    /// Takes a row whose group is the rows with this prefix.
    fn take_grouped(
        &mut self,
        prefix: &[u8],
        clustering: Option<&[u8]>,
        row: Option<&Row>,
    ) -> Result<Flow, CqlError> {
        if self.group.as_ref().is_none_or(|group| group.prefix != prefix) {
            if self.close_group()? {
                return Ok(Flow::Stop);
            }
            if self.partition_is_done() {
                return Ok(Flow::NextPartition);
            }
            if self.limits.page == Some(0) {
                self.more = true;
                return Ok(Flow::Stop);
            }
        }
        self.add_to_group(prefix, clustering, row)?;
        self.note(clustering);
        Ok(Flow::Continue)
    }

    fn add_to_group(
        &mut self,
        prefix: &[u8],
        clustering: Option<&[u8]>,
        row: Option<&Row>,
    ) -> Result<(), InvalidRequest> {
        let mut group = self.group.take();
        let input = self.input(clustering, row);
        let open = group.get_or_insert_with(|| {
            Group::new(&self.plan.selection, prefix, self.sort_key(clustering), &input)
        });
        let added = open.add(&self.plan.selection, self.evaluator, &input);
        self.group = group;
        added
    }

    /// Turns the open group, if any, into a row of the result. Returns whether it was the last.
    fn close_group(&mut self) -> Result<bool, CqlError> {
        let Some(group) = self.group.take() else { return Ok(false) };
        group.put(self.plan, self.evaluator, self.now, &mut self.out)?;
        self.current.taken = self.current.taken.saturating_add(1);
        self.last.in_partition = self.current.taken;
        self.count(group.sort_key)
    }

    fn sort_key(&self, clustering: Option<&[u8]>) -> Option<Vec<u8>> {
        let columns = self.plan.sorted_by?;
        Some(
            clustering
                .map_or_else(Vec::new, |key| key[..self.clustering.encoded_len(columns)].to_vec()),
        )
    }

    /// Counts a written row. Returns whether it is the last of this result.
    fn count(&mut self, sort_key: Option<Vec<u8>>) -> Result<bool, CqlError> {
        if let Some(key) = sort_key {
            if self.sorted.len() == SORTED_ROWS_MAX {
                return Err(CqlError::Invalid(format!(
                    "ORDER BY with IN on the partition key sorts at most {SORTED_ROWS_MAX} rows"
                )));
            }
            let row = self.out.split_off(self.before);
            self.sorted_bytes += key.len() + row.len();
            if self.sorted_bytes > RESULT_BYTES_MAX {
                return Err(CqlError::Invalid(format!(
                    "ORDER BY with IN on the partition key sorts at most {RESULT_BYTES_MAX} bytes of rows"
                )));
            }
            self.sorted.push((key, row));
            return Ok(false);
        }
        self.rows += 1;
        if let Some(left) = &mut self.limits.page {
            *left -= 1;
        }
        if self.out.len() - self.before > RESULT_BYTES_MAX {
            let Some(left) = &mut self.limits.page else {
                return Err(CqlError::Invalid(format!(
                    "the result is larger than {RESULT_BYTES_MAX} bytes: ask for pages"
                )));
            };
            *left = 0;
        }
        if let Some(left) = &mut self.limits.rows {
            *left -= 1;
            if *left == 0 {
                return Ok(true);
            }
        }
        // Behind a filter the next row may be far.
        let far = self.plan.grouping == Grouping::Rows && !self.filters.is_empty();
        self.more = far && self.limits.page == Some(0);
        Ok(self.more)
    }

    /// Completes the output after all reads, or returns their error. Returns the buffer in any
    /// case.
    pub(super) fn finish(
        mut self,
        read: Result<(), CqlError>,
    ) -> (Vec<u8>, Result<Finished, CqlError>) {
        let closed = read.and_then(|()| self.close());
        let state = State { position: self.last, limit: self.limits.rows };
        let next = self.more.then_some(state);
        (self.out, closed.map(|()| Finished { rows: self.rows, next, read: self.read }))
    }

    fn close(&mut self) -> Result<(), CqlError> {
        if self.plan.grouping == Grouping::Everything {
            // A count exists even without rows.
            let group = self.group.take().unwrap_or_else(|| Group::empty(&self.plan.selection));
            group.put(self.plan, self.evaluator, self.now, &mut self.out)?;
            self.rows += 1;
        }
        if self.plan.sorted_by.is_some() {
            self.put_sorted();
        }
        Ok(())
    }

    fn put_sorted(&mut self) {
        let mut sorted = std::mem::take(&mut self.sorted);
        match self.plan.reversed {
            true => sorted.sort_by(|one, other| other.0.cmp(&one.0)),
            false => sorted.sort_by(|one, other| one.0.cmp(&other.0)),
        }
        sorted.truncate(self.limits.rows.map_or(usize::MAX, |rows| rows as usize));
        self.rows = sorted.len() as u32;
        sorted.iter().for_each(|(_, row)| self.out.extend_from_slice(row));
    }
}
