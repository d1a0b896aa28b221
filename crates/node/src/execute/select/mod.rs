//! Execution of SELECT: reads the restricted rows and appends a RESULT with rows.
//!
//! ```text
//! keys, clustering -> source -> collect (filter, group, limits, pages) -> output -> result
//! ```
//!
//! Named partitions come in the order of their keys' types, as in Cassandra; all others in token
//! order, whichever node they are on.

mod collect;
mod evaluate;
mod filter;
mod group;
mod input;
mod memory;
mod metadata;
mod output;
mod paging;
mod result;
mod source;
#[cfg(test)]
pub(super) mod tests;

use shunt_language::error::InvalidRequest;
use shunt_language::terms::{Prepared, Value};

use super::bindings::Bound;
use super::effort::Effort;
use super::gather::Gathering;
use super::intervals::Intervals;
use super::{keys, warnings};
use crate::error::CqlError;
use crate::schema::{Schema, Uuid};
use crate::shared::Shared;
use crate::statement::restrictions::PartitionRestriction;
use crate::statement::select::{Grouping, SelectPlan};
use collect::{Collector, Finished, Limits, Read};
use evaluate::Evaluator;
use filter::Filters;
pub(super) use input::{Clustering, Input};
use paging::State;
use source::{Source, Wanted};

/// Paging options of a client.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// Protocol version.
    pub(crate) version: u8,
    /// Most rows; `None` means all.
    pub(crate) page_size: Option<i32>,
    /// End of the previous page.
    pub(crate) paging_state: Option<Vec<u8>>,
    /// The client knows the columns.
    pub(crate) skip_metadata: bool,
    /// Set if the client's metadata is outdated.
    pub(crate) new_metadata_id: Option<Uuid>,
}

/// Context of an execution.
pub(crate) struct Place<'e> {
    pub(crate) shared: &'e Shared,
    pub(crate) schema: &'e Schema,
    pub(crate) node: usize,
    pub(crate) effort: &'e Effort,
    pub(crate) gathering: &'e Gathering,
}

/// Executes a statement and appends the body of its RESULT. Appends nothing on an error.
pub(crate) fn run(
    plan: &SelectPlan,
    bound: &Bound<'_>,
    place: &Place<'_>,
    page: &Page,
    out: &mut Vec<u8>,
) -> Result<(), CqlError> {
    let Place { shared, schema, node, effort, gathering } = *place;
    let start = out.len();
    let table = plan.table();
    warnings::check_select(plan, bound.aside);
    let page_size =
        page.page_size.and_then(|rows| u32::try_from(rows).ok()).filter(|rows| *rows > 0);
    let state = page
        .paging_state
        .as_deref()
        .map(|state| State::decode(state, table, plan.reversed))
        .transpose()?;
    let limits = limits(plan, bound, page_size, state.as_ref())?;
    let evaluator = Evaluator::new(&plan.selection, bound)?;
    let filters = Filters::new(table, plan.restrictions(), bound)?;
    let intervals = Intervals::new(table, &plan.restrictions().clustering, bound)?;
    let in_pages = page_size.is_some() && plan.is_sorted;
    if in_pages && (plan.grouping != Grouping::Rows || !names_nothing(plan, &intervals, bound)?) {
        return Err(CqlError::invalid(
            "Cannot page queries with both ORDER BY and a IN restriction on the partition key; you must either remove \
             the ORDER BY or the IN and sort client side, or disable paging for this query",
        ));
    }
    let wanted = Wanted { intervals, reversed: plan.reversed, now: bound.now_s() };
    let source = match table.number {
        Some(number) => {
            Source::Stores { shared, table: number, aside: bound.aside, effort, gathering }
        }
        None => {
            bound
                .aside
                .note(|| format!("Making the rows of {}.{} in memory", table.keyspace, table.name));
            Source::Memory(memory::partitions(table, schema, shared, node)?)
        }
    };
    if table.number.is_some()
        && !matches!(plan.restrictions().partition, PartitionRestriction::Keys(_))
    {
        let rows = limits.rows.unwrap_or(u32::MAX).min(limits.page.unwrap_or(u32::MAX));
        effort.may_read(rows as usize)?;
    }
    let head = result::put_head(out, plan.columns(), page);
    let mut collector =
        Collector::new(plan, &evaluator, filters, wanted.now, limits, std::mem::take(out));
    let read = read(plan, bound, &source, &wanted, state.as_ref(), &mut collector);
    let (buffer, outcome) = collector.finish(read);
    *out = buffer;
    match outcome {
        Ok(finished) => {
            bound.aside.note(|| {
                let Finished { rows, read, .. } = &finished;
                let Read { partitions, rows: live, rejected } = read;
                format!(
                    "Read {live} live row(s) of {partitions} partition(s), {rejected} of them filtered out, {rows} row(s) \
                     in the answer"
                )
            });
            let next = finished.next.map(|next| next.encode(table, plan.reversed));
            head.finish(out, finished.rows, next.as_deref());
            Ok(())
        }
        Err(error) => {
            out.truncate(start);
            Err(error)
        }
    }
}

/// True if the clustering columns are restricted to no value. Selected static columns are returned
/// even so.
fn names_no_row(plan: &SelectPlan, intervals: &Intervals) -> bool {
    intervals.0.is_empty() && !(plan.needs_static && plan.names_rows())
}

/// True if the result is certainly empty: an `IN` without values, or an empty slice.
fn names_nothing(
    plan: &SelectPlan,
    intervals: &Intervals,
    bound: &Bound<'_>,
) -> Result<bool, CqlError> {
    if names_no_row(plan, intervals) {
        return Ok(true);
    }
    let PartitionRestriction::Keys(keys) = &plan.restrictions().partition else { return Ok(false) };
    Ok(keys::partitions(plan.table(), keys, bound)?.is_empty())
}

fn read(
    plan: &SelectPlan,
    bound: &Bound<'_>,
    source: &Source<'_>,
    wanted: &Wanted,
    state: Option<&State>,
    collector: &mut Collector<'_>,
) -> Result<(), CqlError> {
    let after = state.map(|state| &state.position);
    match &plan.restrictions().partition {
        PartitionRestriction::Keys(keys) => {
            if names_no_row(plan, &wanted.intervals) {
                return Ok(());
            }
            let partitions = keys::partitions(plan.table(), keys, bound)?;
            source.read_keys(&partitions, wanted, after, collector)
        }
        PartitionRestriction::Token { lower, upper } => {
            match tokens(lower.as_ref(), upper.as_ref(), bound)? {
                Some(range) => source.read_range(range, wanted, after, collector),
                None => Ok(()),
            }
        }
        PartitionRestriction::All => {
            source.read_range((i64::MIN, i64::MAX), wanted, after, collector)
        }
    }
}

/// Tokens of a range, inclusive. The lowest token means no bound, as in Cassandra.
fn tokens(
    lower: Option<&(Prepared, bool)>,
    upper: Option<&(Prepared, bool)>,
    bound: &Bound<'_>,
) -> Result<Option<(i64, i64)>, InvalidRequest> {
    let token = |side: Option<&(Prepared, bool)>| {
        let Some((term, inclusive)) = side else { return Ok(None) };
        match term.evaluate(bound)? {
            Value::Bytes(bytes) => match bytes.try_into().map(i64::from_be_bytes) {
                Ok(i64::MIN) => Ok(None),
                Ok(token) => Ok(Some((token, *inclusive))),
                Err(_) => Err(InvalidRequest::new("Invalid token")),
            },
            Value::Null => Err(InvalidRequest::new("Invalid null token value")),
            Value::Unset => {
                Err(InvalidRequest::new("Invalid unset value for column partition key token"))
            }
        }
    };
    let first = match token(lower)? {
        None => Some(i64::MIN),
        Some((token, true)) => Some(token),
        Some((token, false)) => token.checked_add(1),
    };
    let last = match token(upper)? {
        None => i64::MAX,
        Some((token, inclusive)) => token - i64::from(!inclusive),
    };
    Ok(first.filter(|first| *first <= last).map(|first| (first, last)))
}

fn limits(
    plan: &SelectPlan,
    bound: &Bound<'_>,
    page_size: Option<u32>,
    state: Option<&State>,
) -> Result<Limits, CqlError> {
    let limit = |term: &Option<Prepared>| -> Result<Option<u32>, InvalidRequest> {
        let Some(term) = term else { return Ok(None) };
        let bytes = match term.evaluate(bound)? {
            Value::Bytes(bytes) => bytes,
            Value::Null => return Err(InvalidRequest::new("Invalid null value of limit")),
            Value::Unset => return Ok(None),
        };
        let rows = bytes
            .try_into()
            .map(i32::from_be_bytes)
            .map_err(|_| InvalidRequest::new("Invalid limit value"))?;
        match u32::try_from(rows) {
            Ok(rows) if rows > 0 => Ok(Some(rows)),
            _ => Err(InvalidRequest::new("LIMIT must be strictly positive")),
        }
    };
    let (rows, per_partition) = (limit(&plan.limit)?, limit(&plan.per_partition_limit)?);
    if plan.grouping == Grouping::Everything {
        // One row, in one page; the limit counts rows of the result.
        return if state.is_some() { Err(paging::foreign()) } else { Ok(Limits::default()) };
    }
    let rows =
        rows.map(|rows| state.and_then(|state| state.limit).map_or(rows, |left| left.min(rows)));
    Ok(Limits { rows, per_partition, page: page_size })
}
