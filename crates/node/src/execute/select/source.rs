//! Source of rows: the nodes' stores, or a system table in memory.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use shunt_storage::Target;
use shunt_storage::engine::ReadTier;
use shunt_storage::row::{PartitionKey, Row, TableId};
use shunt_storage::store::{
    PartitionRows, Position as ScanPosition, Reach, Read, RowRef, ScanRange, Slice, Store,
};
use shunt_topology::Token;

use super::super::annotations::Aside;
use super::super::effort::Effort;
use super::super::gather::Gathering;
use super::super::intervals::{Interval, Intervals};
use super::super::keys::{Partition, token_bytes};
use super::collect::{Collector, Flow};
use super::paging::Position;
use crate::error::CqlError;
use crate::limits;
use crate::shared::Shared;

/// Rows in memory, by partition and clustering bytes.
pub(super) type Partitions = BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Row>>;

/// The rows of a table.
pub(super) enum Source<'e> {
    Stores {
        shared: &'e Shared,
        table: TableId,
        aside: &'e Aside,
        effort: &'e Effort,
        gathering: &'e Gathering,
    },
    Memory(Partitions),
}

/// Parameters for reading partitions.
pub(super) struct Wanted {
    pub(super) intervals: Intervals,
    pub(super) reversed: bool,
    /// Seconds since 1970.
    pub(super) now: i64,
}

/// Bounds of an interval for a store.
fn slice(interval: &Interval, reversed: bool, reach: Reach) -> Slice {
    let Interval { from, to, .. } = interval;
    Slice {
        from: if from.is_empty() { Bound::Unbounded } else { Bound::Included(from.clone()) },
        to: if to[..] == [0xFF] { Bound::Unbounded } else { Bound::Excluded(to.clone()) },
        reversed,
        limit: usize::MAX,
        reach,
    }
}

/// Calls for each item in one direction or the other, until told to stop.
fn in_direction<T>(
    items: &[T],
    reversed: bool,
    mut visit: impl FnMut(&T) -> Result<Flow, CqlError>,
) -> Result<Flow, CqlError> {
    for index in 0..items.len() {
        let flow = visit(&items[if reversed { items.len() - 1 - index } else { index }])?;
        if flow != Flow::Continue {
            return Ok(flow);
        }
    }
    Ok(Flow::Continue)
}

impl Source<'_> {
    /// Reads the wanted rows of one partition; `resumed` if an earlier page has had rows of it.
    pub(super) fn read_partition(
        &self,
        partition: &[u8],
        token: Token,
        wanted: &Wanted,
        resumed: Option<u32>,
        collector: &mut Collector<'_>,
    ) -> Result<Flow, CqlError> {
        if wanted.intervals.0.is_empty() {
            return Ok(Flow::Continue);
        }
        let flow = match self {
            Source::Stores { shared, table, aside, effort, gathering } => {
                gathering.before_read(token);
                let owner = shared.info.owner(token);
                let address = shared.info.nodes[owner].address;
                aside.note(|| {
                    format!("Reading {} of a partition from {address}", wanted.intervals.shown())
                });
                let store = &shared.stores()[owner];
                let reader =
                    Reader { store, table: *table, partition: PartitionKey(partition), effort };
                if wanted.intervals.are_rows() {
                    reader.rows(wanted, resumed, collector)?
                } else {
                    reader.slices(wanted, resumed, collector)?
                }
            }
            Source::Memory(partitions) => {
                let Some(rows) = partitions.get(partition) else { return Ok(Flow::Continue) };
                match collector.partition(partition, None, resumed) {
                    Flow::Continue => memory_rows(rows, wanted, collector)?,
                    other => other,
                }
            }
        };
        if flow == Flow::Stop { Ok(flow) } else { collector.end_partition() }
    }

    /// Reads the partitions with these tokens, inclusive, in order, from behind a position.
    pub(super) fn read_range(
        &self,
        (first, last): (i64, i64),
        wanted: &Wanted,
        after: Option<&Position>,
        collector: &mut Collector<'_>,
    ) -> Result<(), CqlError> {
        if wanted.intervals.0.is_empty() {
            return Ok(());
        }
        match self {
            Source::Stores { shared, table, aside, effort, gathering } => {
                gathering.carry_out();
                let pieces = pieces(shared, first, last);
                aside.note(|| {
                    format!("Reading {} range(s) of tokens from {first} to {last}", pieces.len())
                });
                for (from, to, owner) in pieces {
                    let store = &shared.stores()[owner];
                    let here = after.filter(|after| token_of(&after.partition) >= from);
                    if here.is_some_and(|after| token_of(&after.partition) > to) {
                        continue;
                    }
                    if scan((store, *table, effort), (from, to), wanted, here, collector)?
                        == Flow::Stop
                    {
                        return Ok(());
                    }
                }
            }
            Source::Memory(partitions) => {
                for key in partitions.keys() {
                    let token = token_of(key);
                    let (mut rows_wanted, mut resumed) = (None, None);
                    match after {
                        Some(after) if *key < after.partition => continue,
                        Some(after) if *key == after.partition => {
                            let Some(clustering) = &after.clustering else { continue };
                            let intervals = wanted.intervals.behind(clustering, false);
                            rows_wanted = Some(Wanted { intervals, ..*wanted });
                            resumed = Some(after.in_partition);
                        }
                        _ => {}
                    }
                    if !(first..=last).contains(&token) {
                        continue;
                    }
                    let wanted = rows_wanted.as_ref().unwrap_or(wanted);
                    if self.read_partition(key, Token(token), wanted, resumed, collector)?
                        == Flow::Stop
                    {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads partitions one after another, from behind a position.
    pub(super) fn read_keys(
        &self,
        keys: &[Partition],
        wanted: &Wanted,
        after: Option<&Position>,
        collector: &mut Collector<'_>,
    ) -> Result<(), CqlError> {
        let mut keys = keys;
        if let Some(after) = after {
            let found = keys.iter().position(|partition| partition.key == after.partition);
            let found = found.ok_or_else(super::paging::foreign)?;
            if let Some(clustering) = &after.clustering {
                let intervals = wanted.intervals.behind(clustering, wanted.reversed);
                let left = Wanted { intervals, ..*wanted };
                let Partition { token, key } = &keys[found];
                if self.read_partition(key, *token, &left, Some(after.in_partition), collector)?
                    == Flow::Stop
                {
                    return Ok(());
                }
            }
            keys = &keys[found + 1..];
        }
        for Partition { token, key } in keys {
            if self.read_partition(key, *token, wanted, None, collector)? == Flow::Stop {
                break;
            }
        }
        Ok(())
    }
}

/// A partition of a store.
struct Reader<'e> {
    store: &'e Store,
    table: TableId,
    partition: PartitionKey<'e>,
    effort: &'e Effort,
}

impl Reader<'_> {
    fn row(&self, target: Target<'_>, wanted: &Wanted) -> Result<Option<Row>, CqlError> {
        let Self { store, table, partition, effort } = *self;
        let row = match effort.reach().tier {
            ReadTier::Disk => store.read_row(table, partition, target, wanted.now)?,
            ReadTier::Memory => {
                match store.read_row_nonblocking(table, partition, target, wanted.now)? {
                    Read::Ready(row) => row,
                    Read::WouldBlock => return Err(CqlError::WouldWait { long: false }),
                }
            }
        };
        effort.has_read(row.as_ref())?;
        Ok(row)
    }

    /// Looks up rows named by all their columns, all as of one moment.
    fn rows(
        &self,
        wanted: &Wanted,
        resumed: Option<u32>,
        collector: &mut Collector<'_>,
    ) -> Result<Flow, CqlError> {
        let with_static = collector.wants_static();
        match (&wanted.intervals.0[..], with_static) {
            ([interval], false) => match collector.partition(self.partition.0, None, resumed) {
                Flow::Continue if collector.takes_rows_in_place() => {
                    self.row_in_place(&interval.from, wanted, collector)
                }
                Flow::Continue => match self.row(Target::Row(&interval.from), wanted)? {
                    Some(row) => collector.row(&interval.from, &row),
                    None => Ok(Flow::Continue),
                },
                other => Ok(other),
            },
            (intervals, _) if intervals.len() <= limits::ROWS_TOGETHER => {
                self.rows_together(wanted, with_static, resumed, collector)
            }
            _ => self.slices(wanted, resumed, collector),
        }
    }

    /// Reads a few rows, and the static one if wanted.
    fn rows_together(
        &self,
        wanted: &Wanted,
        with_static: bool,
        resumed: Option<u32>,
        collector: &mut Collector<'_>,
    ) -> Result<Flow, CqlError> {
        let Self { store, table, partition, effort } = *self;
        let named = wanted.intervals.0.iter().map(|interval| Target::Row(&interval.from));
        let targets: Vec<Target<'_>> =
            with_static.then_some(Target::Static).into_iter().chain(named).collect();
        let found =
            store.read_rows((table, partition), &targets, wanted.now, effort.reach().tier)?;
        let mut rows = found.ready().ok_or(CqlError::WouldWait { long: false })?;
        rows.iter().try_for_each(|row| effort.has_read(row.as_ref()))?;
        let static_row = if with_static { rows.remove(0) } else { None };
        match collector.partition(partition.0, static_row, resumed) {
            Flow::Continue => {}
            other => return Ok(other),
        }
        let found: Vec<_> = wanted.intervals.0.iter().zip(&rows).collect();
        in_direction(&found, wanted.reversed, |(interval, row)| match row {
            Some(row) => collector.row(&interval.from, row),
            None => Ok(Flow::Continue),
        })
    }

    /// Copies a row with unchanged columns straight from its record into the result, if it is
    /// plain.
    fn row_in_place(
        &self,
        clustering: &[u8],
        wanted: &Wanted,
        collector: &mut Collector<'_>,
    ) -> Result<Flow, CqlError> {
        let Self { store, table, partition, effort } = *self;
        let place = (table, partition, Target::Row(clustering));
        let flow = store.with_row(place, wanted.now, effort.reach().tier, |row| match row {
            None => effort.has_read(None).map(|()| Flow::Continue),
            Some(RowRef::InPlace(view)) => {
                effort.has_read_bytes(view.value_bytes())?;
                collector.row_in_place(clustering, view)
            }
            Some(RowRef::Decoded(row)) => {
                effort.has_read(Some(row))?;
                collector.row(clustering, row)
            }
        })?;
        match flow {
            Read::Ready(flow) => flow,
            Read::WouldBlock => Err(CqlError::WouldWait { long: false }),
        }
    }

    /// Reads rows of intervals, all as of one moment.
    fn slices(
        &self,
        wanted: &Wanted,
        resumed: Option<u32>,
        collector: &mut Collector<'_>,
    ) -> Result<Flow, CqlError> {
        let mut open: Option<PartitionRows<'_>> = None;
        in_direction(&wanted.intervals.0, wanted.reversed, |interval| {
            let slice = slice(interval, wanted.reversed, self.effort.reach());
            let rows = match &mut open {
                Some(rows) => {
                    rows.move_to(&slice)?;
                    rows
                }
                None => {
                    let rows = self.store.read_partition(
                        self.table,
                        self.partition,
                        &slice,
                        wanted.now,
                    )?;
                    let static_row =
                        rows.static_row().filter(|_| collector.wants_static()).cloned();
                    match collector.partition(self.partition.0, static_row, resumed) {
                        Flow::Continue => open.insert(rows),
                        other => return Ok(other),
                    }
                }
            };
            while let Some((clustering, row)) = rows.next()? {
                self.effort.has_read(Some(&row))?;
                let flow = collector.row(&clustering, &row)?;
                if flow != Flow::Continue {
                    return Ok(flow);
                }
            }
            Ok(Flow::Continue)
        })
    }
}

fn memory_rows(
    rows: &BTreeMap<Vec<u8>, Row>,
    wanted: &Wanted,
    collector: &mut Collector<'_>,
) -> Result<Flow, CqlError> {
    in_direction(&wanted.intervals.0, wanted.reversed, |interval| {
        let mut range = rows.range(interval.from.clone()..interval.to.clone());
        while let Some((clustering, row)) =
            if wanted.reversed { range.next_back() } else { range.next() }
        {
            let flow = collector.row(clustering, row)?;
            if flow != Flow::Continue {
                return Ok(flow);
            }
        }
        Ok(Flow::Continue)
    })
}

/// The token at the front of a partition's key.
fn token_of(partition: &[u8]) -> i64 {
    partition.first_chunk().map_or(i64::MIN, |bytes| (u64::from_be_bytes(*bytes) ^ 1 << 63) as i64)
}

/// Parts of a token range in order, each with its owner. Neighbouring parts of one owner are
/// merged.
fn pieces(shared: &Shared, first: i64, last: i64) -> Vec<(i64, i64, usize)> {
    let mut ends: Vec<i64> =
        shared.info.nodes.iter().flat_map(|node| &node.tokens).copied().collect();
    ends.sort_unstable();
    ends.push(i64::MAX);
    ends.dedup();
    let mut found: Vec<(i64, i64, usize)> = Vec::new();
    let mut start = first;
    for end in ends.into_iter().filter(|end| *end >= first) {
        let owner = shared.info.owner(Token(start));
        let end = end.min(last);
        match found.last_mut().filter(|piece| piece.2 == owner) {
            Some(piece) => piece.1 = end,
            None => found.push((start, end, owner)),
        }
        match end.checked_add(1) {
            Some(next) if end < last => start = next,
            _ => break,
        }
    }
    found
}

/// Reads a part of a store.
fn scan(
    (store, table, effort): (&Store, TableId, &Effort),
    (from, to): (i64, i64),
    wanted: &Wanted,
    after: Option<&Position>,
    collector: &mut Collector<'_>,
) -> Result<Flow, CqlError> {
    let bytes = |token| token_bytes(Token(token));
    let position = |after: &Position| ScanPosition {
        partition: after.partition.clone(),
        clustering: after.clustering.clone(),
    };
    let range = ScanRange {
        from: Some(bytes(from)),
        to: Some(bytes(to)),
        after: after.map(position),
        reach: effort.reach(),
    };
    let mut scan = store.scan(table, &range, wanted.now)?;
    if after.is_some_and(|after| after.clustering.is_none()) {
        scan.skip_partition();
    }
    let mut open: Option<Arc<[u8]>> = None;
    while let Some(item) = scan.next()? {
        effort.has_read(Some(&item.row))?;
        let mut flow = Flow::Continue;
        if open.as_ref().is_none_or(|open| **open != *item.partition) {
            if open.is_some() && collector.end_partition()? == Flow::Stop {
                return Ok(Flow::Stop);
            }
            let resumed = after
                .filter(|after| *after.partition == *item.partition)
                .map(|after| after.in_partition);
            let is_static = item.clustering.is_none();
            let static_row =
                Some(&item.row).filter(|_| is_static && collector.wants_static()).cloned();
            flow = collector.partition(&item.partition, static_row, resumed);
            open = Some(Arc::clone(&item.partition));
        }
        if let (Flow::Continue, Some(clustering)) = (flow, &item.clustering)
            && wanted.intervals.contains(clustering)
        {
            flow = collector.row(clustering, &item.row)?;
        }
        match flow {
            Flow::Continue => {}
            Flow::NextPartition => scan.skip_partition(),
            Flow::Stop => return Ok(Flow::Stop),
        }
    }
    if open.is_some() { collector.end_partition() } else { Ok(Flow::Continue) }
}
