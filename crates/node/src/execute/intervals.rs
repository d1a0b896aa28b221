//! Restrictions of clustering columns as intervals of clustering bytes.
//!
//! An interval includes its lower end and excludes its upper one. A prefix of the columns sorts
//! before every key that begins with it, and after all of them with 0xFF appended
//! ([`ordered::after_prefix`]). Bounds of several columns, some of them descending, are several
//! intervals. SELECT reads them, DELETE puts tombstones over them.

use shunt_language::error::InvalidRequest;
use shunt_language::terms::{Bindings, Value};
use shunt_language::values::{ordered, validate};
use shunt_storage::CLUSTERING_BYTES_MAX;

use super::keys;
use crate::schema::{Column, Table};
use crate::statement::restrictions::{Bound, ClusteringRestriction};

/// Keys from `from` on, below `to`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Interval {
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
    /// The interval is the single key `from`.
    pub(super) is_row: bool,
}

/// Wanted rows of a partition: ordered, disjoint intervals.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Intervals(pub(super) Vec<Interval>);

fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    ordered::after_prefix(&mut end);
    end
}

impl Interval {
    fn of_prefix(prefix: Vec<u8>, is_row: bool) -> Interval {
        Interval { to: after(&prefix), from: prefix, is_row }
    }

    /// Truncates ends longer than any possible key. The same rows remain between the ends, since no
    /// key is a prefix of an end. False if no row is left.
    fn fit(&mut self) -> bool {
        if self.is_row {
            return self.from.len() < CLUSTERING_BYTES_MAX;
        }
        self.from.truncate(CLUSTERING_BYTES_MAX);
        self.to.truncate(CLUSTERING_BYTES_MAX);
        self.from < self.to
    }
}

impl Intervals {
    /// Builds the intervals of a statement with these values.
    pub(super) fn new(
        table: &Table,
        restriction: &ClusteringRestriction,
        bindings: &dyn Bindings,
    ) -> Result<Intervals, InvalidRequest> {
        if table.clustering_len == 0 {
            // Each partition has one row.
            return Ok(Intervals(vec![Interval::of_prefix(Vec::new(), true)]));
        }
        let mut found = Vec::new();
        for values in keys::clustering_values(table, restriction, bindings)? {
            let prefix = keys::clustering(table, &values)?;
            let columns = &table.clustering()[values.len()..];
            let mut own = vec![Interval::of_prefix(prefix.clone(), columns.is_empty())];
            for (bound, greater) in [(&restriction.lower, true), (&restriction.upper, false)] {
                if let Some(bound) = bound {
                    own = common(&own, &side(columns, &prefix, bound, greater, bindings)?);
                }
            }
            found.extend(own);
        }
        found.retain_mut(Interval::fit);
        found.sort_by(|one, other| one.from.cmp(&other.from));
        found.dedup();
        Ok(Intervals(found))
    }

    pub(super) fn contains(&self, clustering: &[u8]) -> bool {
        let after = self.0.partition_point(|interval| interval.from.as_slice() <= clustering);
        after.checked_sub(1).is_some_and(|index| clustering < self.0[index].to.as_slice())
    }

    /// True if every interval is one row.
    pub(super) fn are_rows(&self) -> bool {
        self.0.iter().all(|interval| interval.is_row)
    }

    /// Number and kind of the intervals, for a trace.
    pub(super) fn shown(&self) -> String {
        format!("{} {}", self.0.len(), if self.are_rows() { "row(s)" } else { "slice(s)" })
    }

    /// Returns the remainder behind a row, in the direction of reading.
    pub(super) fn behind(&self, clustering: &[u8], reversed: bool) -> Intervals {
        let mut left = self.0.clone();
        let next = [clustering, &[0]].concat();
        left.retain_mut(|interval| {
            match (interval.is_row, reversed) {
                (true, false) => return interval.from.as_slice() > clustering,
                (true, true) => return interval.from.as_slice() < clustering,
                (false, false) if interval.from < next => interval.from.clone_from(&next),
                (false, true) if interval.to.as_slice() > clustering => {
                    interval.to = clustering.to_vec()
                }
                (false, _) => {}
            }
            interval.from < interval.to
        });
        Intervals(left)
    }
}

/// Keys behind `prefix` whose next columns are greater (or less) than the values of a bound.
fn side(
    columns: &[Column],
    prefix: &[u8],
    bound: &Bound,
    greater: bool,
    bindings: &dyn Bindings,
) -> Result<Vec<Interval>, InvalidRequest> {
    let mut found = Vec::new();
    let mut equal = prefix.to_vec();
    for (column, operand) in columns.iter().zip(&bound.values) {
        let name = &column.name;
        let value = match keys::operand(operand, bindings)? {
            Value::Bytes(value) => value,
            Value::Null => {
                return Err(InvalidRequest::new(format!(
                    "Invalid null value in condition for column {name}"
                )));
            }
            Value::Unset => {
                return Err(InvalidRequest::new(format!("Invalid unset value for column {name}")));
            }
        };
        validate(&column.cql_type, &value)?;
        let mut next = equal.clone();
        ordered::encode(&column.cql_type, column.descending, &value, &mut next)?;
        let (from, to) = if greater == column.descending {
            (equal, next.clone())
        } else {
            (after(&next), after(&equal))
        };
        found.push(Interval { from, to, is_row: false });
        equal = next;
    }
    if bound.inclusive {
        found.push(Interval::of_prefix(equal, bound.values.len() == columns.len()));
    }
    found.sort_by(|one, other| one.from.cmp(&other.from));
    Ok(joined(found))
}

/// Merges adjacent intervals.
fn joined(intervals: Vec<Interval>) -> Vec<Interval> {
    let mut found: Vec<Interval> = Vec::new();
    for interval in intervals {
        match found.last_mut() {
            Some(last) if last.to >= interval.from => {
                last.to = interval.to.max(std::mem::take(&mut last.to));
                last.is_row = false;
            }
            _ => found.push(interval),
        }
    }
    found
}

/// Returns the intersection of two lists.
fn common(left: &[Interval], right: &[Interval]) -> Vec<Interval> {
    let (mut one, mut other) = (left.iter().peekable(), right.iter().peekable());
    let mut found = Vec::new();
    while let (Some(a), Some(b)) = (one.peek(), other.peek()) {
        let (from, to) = ((&a.from).max(&b.from), (&a.to).min(&b.to));
        if from < to {
            found.push(Interval {
                from: from.clone(),
                to: to.clone(),
                is_row: a.is_row || b.is_row,
            });
        }
        if a.to <= b.to {
            one.next()
        } else {
            other.next()
        };
    }
    found
}
