//! Rows of tables with the mode `conditional`, as the core that decides their statements knows
//! them.
//!
//! A core knows a row once it has written over everything that former owners may have sent without
//! learning the outcome. From then on the row is what nodes have acknowledged to this core. It need
//! not be read again until a value may have expired.
//!
//! This must never: keep a row beyond its shard's ownership, its table, the table's columns or the
//! table's mode; keep it while a write to it is under way, or after a write of unknown outcome;
//! report a value that may have expired.

use std::collections::HashMap;

use shunt_language::terms::Value;

use crate::catalogue::table_identity::TableId;
use crate::conditional::doubt::{Doubt, Doubts};
use crate::{Claim, Partition, SECOND_NS};

/// Rows that are kept. The least recently used go first.
const ROWS_MAX: usize = 65_536;
/// Bytes of the rows that are kept.
const BYTES_MAX: usize = 32 << 20;
/// Approximate size of a row without its values.
const ROW_BYTES: usize = 160;
/// Bytes of one row that is kept; a longer row is read each time. It fits into one half.
const BYTES_OF_ONE_MAX: usize = BYTES_MAX / 2 - ROW_BYTES;
/// The way in which much earlier than its TTL says a value may be gone: nodes count whole seconds.
const EARLIER_NS: u64 = 2 * SECOND_NS;
/// A node's clock may be fast by one part in this many.
const FASTER: u64 = 100;

/// A value of a column; none for null.
pub type Cell = Option<Box<[u8]>>;

/// The regular columns of a row, in the table's order.
pub type Cells = Vec<Cell>;

/// A row that a core knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The values; none if there is no such row.
    pub cells: Option<Cells>,
    /// The row exists even without values, because it was inserted. False where that is unknown.
    is_inserted: bool,
    /// Time at which a value may expire, by the boot-time clock.
    until_ns: u64,
}

/// A row as it was read for a single statement.
#[derive(Clone, Debug)]
pub struct ReadRow {
    /// The values; none if there is no such row.
    pub cells: Option<Cells>,
    /// Remaining TTL of each value, seconds; none for ever.
    pub lives: Vec<Option<u32>>,
    /// Latest timestamp of the values, microseconds.
    pub latest_us: i64,
}

impl ReadRow {
    /// Reads the values that the statement's SELECT has returned.
    pub fn from_values(columns: usize, read: &Option<Cells>) -> Option<ReadRow> {
        let mut row = ReadRow { cells: None, lives: Vec::new(), latest_us: i64::MIN };
        let Some(values) = read else { return Some(row) };
        let mut cells = Vec::with_capacity(columns);
        for place in 0..columns {
            let part = |part: usize| values.get(3 * place + part).map(Option::as_deref);
            if let Some(written) = part(2)? {
                row.latest_us = row.latest_us.max(i64::from_be_bytes(written.try_into().ok()?));
            }
            // A value in its last second has a TTL of 0.
            let seconds = part(1)?
                .map(|seconds| seconds.try_into().map(i32::from_be_bytes))
                .transpose()
                .ok()?;
            row.lives.push(seconds.map(|seconds| seconds.max(1).cast_unsigned()));
            cells.push(part(0)?.map(Box::from));
        }
        row.cells = Some(cells);
        Some(row)
    }

    /// The shortest remaining TTL of the values that the statement's SELECT has returned, seconds;
    /// none for ever. It is rounded up.
    pub fn shortest_life(read: &Option<Cells>) -> Option<u32> {
        let ttls = read.iter().flatten().skip(1).step_by(3).flatten();
        let seconds = ttls.filter_map(|ttl| Some(i32::from_be_bytes(ttl[..].try_into().ok()?)));
        seconds.map(|seconds| seconds.max(1).cast_unsigned()).min()
    }

    /// Shortens the TTLs by the time since the row was asked for, so that rewriting the row never
    /// extends them.
    pub fn pass(&mut self, passed_ns: u64) {
        let passed = u32::try_from(passed_ns / SECOND_NS).unwrap_or(u32::MAX);
        for seconds in self.lives.iter_mut().flatten() {
            *seconds = seconds.saturating_sub(passed).max(1);
        }
    }

    /// The row as the core knows it. `asked_ns` is when it was asked for, by the boot-time clock.
    pub fn to_row(&self, asked_ns: u64) -> Row {
        let seconds = self.lives.iter().flatten().min().copied();
        Row::from_read(self.cells.clone(), Life { from_ns: asked_ns, seconds })
    }
}

/// Time for which a value lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// Start, by the boot-time clock.
    pub from_ns: u64,
    /// TTL in seconds; none for ever.
    pub seconds: Option<u32>,
}

impl Life {
    /// Time at which a value may expire, by the boot-time clock.
    fn until_ns(self) -> u64 {
        let Some(seconds) = self.seconds else { return u64::MAX };
        let life_ns = u64::from(seconds) * SECOND_NS;
        (self.from_ns + life_ns).saturating_sub(EARLIER_NS.max(life_ns / FASTER))
    }
}

/// The effect of a statement on a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Columns get these values, and the row exists even without values.
    Insert(Vec<(usize, Value)>),
    /// Columns get these values.
    Update(Vec<(usize, Value)>),
    /// The row is deleted.
    Delete,
}

impl Change {
    /// True if the row after the change does not depend on earlier writes, even if one of them
    /// arrives later than this one. `columns` is the table's number of regular columns.
    pub fn replaces_row(&self, columns: usize) -> bool {
        let (Change::Insert(values) | Change::Update(values)) = self else { return true };
        // An UPDATE to nulls leaves a row that was inserted, and makes none.
        let exists = matches!(self, Change::Insert(_))
            || values.iter().any(|(_, value)| matches!(value, Value::Bytes(_)));
        let mut is_kept = vec![true; columns];
        for (place, value) in values {
            if let Some(is_kept) = is_kept.get_mut(*place) {
                *is_kept &= *value == Value::Unset;
            }
        }
        exists && !is_kept.contains(&true)
    }
}

impl Row {
    /// A row from the cells that were read, and the shortest life of any of them.
    pub fn from_read(cells: Option<Cells>, life: Life) -> Row {
        // A row without values exists because it was inserted, and nothing tells for how long.
        let is_bare = cells.as_ref().is_some_and(|cells| cells.iter().all(Option::is_none));
        let until_ns = if is_bare { 0 } else { life.until_ns() };
        Row { cells, is_inserted: false, until_ns }
    }

    /// The row after a change; none if that is unknown. `columns` is the table's number of regular
    /// columns.
    pub fn changed(self, change: &Change, columns: usize, life: Life) -> Option<Row> {
        let (values, inserts) = match change {
            Change::Delete => {
                return Some(Row { cells: None, is_inserted: false, until_ns: u64::MAX });
            }
            Change::Insert(values) => (values, true),
            Change::Update(values) => (values, false),
        };
        let was_there = self.cells.is_some();
        let mut cells = self.cells.unwrap_or_else(|| vec![None; columns]);
        for (place, value) in values {
            match value {
                Value::Bytes(bytes) => *cells.get_mut(*place)? = Some(bytes.as_slice().into()),
                Value::Null => *cells.get_mut(*place)? = None,
                Value::Unset => {}
            }
        }
        let is_inserted = inserts || was_there && self.is_inserted;
        let until_ns = self.until_ns.min(life.until_ns());
        if is_inserted || cells.iter().any(Option::is_some) {
            return Some(Row { cells: Some(cells), is_inserted, until_ns });
        }
        // A row that was inserted once still exists.
        (!was_there).then_some(Row { cells: None, is_inserted: false, until_ns })
    }

    /// From when on it may be another, by the boot-time clock.
    pub fn until_ns(&self) -> u64 {
        self.until_ns
    }

    fn bytes(&self) -> usize {
        let cells = self.cells.iter().flatten();
        cells.map(|cell| size_of::<Cell>() + cell.as_ref().map_or(0, |value| value.len())).sum()
    }
}

/// Validity of a row: if any field differs, the row says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowVersion {
    /// The shard's ownership.
    pub claim: Claim,
    /// The table's id.
    pub table: TableId,
    /// Stands for the table's name: the lock of the whole table.
    pub name: Partition,
    /// Hash of the table's columns.
    pub columns: u64,
    /// On a table with the mode `observe`, the number of calls of [`Rows::doubt_observed`] before;
    /// 0 otherwise.
    pub observed: u64,
    /// [`Rows::epoch`] when the statement began.
    pub epoch: u64,
}

/// A row that is kept.
#[derive(Debug)]
struct Entry {
    of: RowVersion,
    /// Is none if the row has to be read, though no other write to it is outstanding.
    row: Option<Row>,
    doubt: Doubt,
}

impl Entry {
    fn bytes(&self) -> usize {
        ROW_BYTES + self.row.as_ref().map_or(0, Row::bytes)
    }
}

/// Rows that a core knows, in two halves: a row moves to the younger half when it is used, and the
/// older half is dropped when the younger is full.
#[derive(Debug, Default)]
pub struct Rows {
    young: HashMap<Partition, Entry>,
    old: HashMap<Partition, Entry>,
    young_bytes: usize,
    doubts: Doubts,
    /// Number of times that all rows were dropped. Statements from before add no rows after.
    epoch: u64,
}

/// A core's knowledge of a statement's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// Other writes to the row may be outstanding.
    Nothing,
    /// The row has to be read, but no other write to it is outstanding.
    Settled,
    /// The row.
    Row(Row),
}

impl Rows {
    /// Returns a row, and moves it to the younger half.
    pub fn get(&mut self, key: Partition, of: RowVersion, now_ns: u64) -> Knowledge {
        if !self.young.contains_key(&key)
            && let Some(entry) = self.old.remove(&key)
        {
            self.add(key, entry);
        }
        match self.young.get(&key) {
            Some(entry) if entry.of == of => match &entry.row {
                Some(row) if now_ns < row.until_ns => Knowledge::Row(row.clone()),
                _ => Knowledge::Settled,
            },
            _ => Knowledge::Nothing,
        }
    }

    /// Records a row; none if it has to be read.
    pub fn put(&mut self, key: Partition, of: RowVersion, row: Option<Row>) {
        self.forget(key);
        if of.epoch == self.epoch {
            let row = row.filter(|row| row.bytes() <= BYTES_OF_ONE_MAX);
            self.add(key, Entry { of, row, doubt: Doubt::default() });
        }
    }

    /// Records a doubt about a row, which has to be read.
    pub fn put_doubt(&mut self, key: Partition, of: RowVersion, doubt: Doubt) {
        self.forget(key);
        self.add(key, Entry { of, row: None, doubt });
    }

    /// The doubt about a row, regardless of validity.
    pub fn doubt(&self, key: Partition) -> Doubt {
        self.young
            .get(&key)
            .or_else(|| self.old.get(&key))
            .map_or(Doubt::default(), |entry| entry.doubt)
    }

    /// Number of times that all rows were dropped.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Drops all rows. Statements under way add none.
    pub fn forget_all(&mut self) {
        *self = Rows { epoch: self.epoch + 1, ..Rows::default() };
    }

    /// Drops the rows of tables with these names. Statements under way add none.
    pub fn forget_named(&mut self, names: &[Partition]) {
        self.begin_anew(|of| !names.contains(&of.name), |_| {});
    }

    /// Marks all rows as to be read. No other writes to them are outstanding.
    pub fn read_all_anew(&mut self) {
        self.begin_anew(|_| true, |row| *row = None);
    }

    fn begin_anew(
        &mut self,
        is_kept: impl Fn(&RowVersion) -> bool,
        change: impl Fn(&mut Option<Row>),
    ) {
        self.epoch += 1;
        let epoch = self.epoch;
        for half in [&mut self.young, &mut self.old] {
            half.retain(|_, entry| is_kept(&entry.of));
            for entry in half.values_mut() {
                entry.of.epoch = epoch;
                change(&mut entry.row);
            }
        }
        self.young_bytes = self.young.values().map(Entry::bytes).sum();
    }

    /// Drops a row.
    pub fn forget(&mut self, key: Partition) {
        if let Some(entry) = self.young.remove(&key) {
            self.young_bytes -= entry.bytes();
        }
        self.old.remove(&key);
    }

    /// Drops all rows of a table.
    pub fn forget_table(&mut self, table: TableId) {
        self.old.retain(|_, entry| entry.of.table != table);
        self.young.retain(|_, entry| entry.of.table != table);
        self.young_bytes = self.young.values().map(Entry::bytes).sum();
    }

    /// Invalidates the rows of a table with the mode `observe`, after a statement with unknown
    /// effect.
    pub fn doubt_observed(&mut self, table: Partition) {
        self.doubts.add(table);
    }

    /// The value of [`RowVersion::observed`] for a table.
    pub fn observed(&self, table: Partition) -> u64 {
        1 + self.doubts.count(table)
    }

    fn add(&mut self, key: Partition, entry: Entry) {
        if self.young.len() >= ROWS_MAX / 2 || self.young_bytes + entry.bytes() > BYTES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += entry.bytes();
        self.young.insert(key, entry);
    }

    /// Number of rows, including those that have to be read.
    pub fn count(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: RowVersion = RowVersion {
        claim: Claim(1),
        table: [1; 16],
        name: Partition(9),
        columns: 7,
        epoch: 0,
        observed: 0,
    };
    const FOREVER: Life = Life { from_ns: 0, seconds: None };

    fn key(number: usize) -> Partition {
        Partition(number as u128)
    }

    fn value(text: &str) -> Value {
        Value::Bytes(text.as_bytes().to_vec())
    }

    fn cell(text: &str) -> Cell {
        Some(text.as_bytes().into())
    }

    fn absent() -> Row {
        Row::from_read(None, FOREVER)
    }

    fn seconds(seconds: u32) -> Life {
        Life { from_ns: 0, seconds: Some(seconds) }
    }

    #[test]
    fn a_row_changes_as_it_does_on_nodes() {
        let insert = Change::Insert(vec![(0, value("a")), (1, Value::Null)]);
        let row = absent().changed(&insert, 2, FOREVER).expect("known");
        assert_eq!(row.cells, Some(vec![cell("a"), None]));
        let row = row
            .changed(&Change::Update(vec![(0, Value::Null), (1, Value::Unset)]), 2, FOREVER)
            .expect("known");
        assert_eq!(row.cells, Some(vec![None, None]), "it was inserted");
        let updated =
            absent().changed(&Change::Update(vec![(1, value("b"))]), 2, FOREVER).expect("known");
        assert_eq!(updated.cells, Some(vec![None, cell("b")]));
        let nothing = Change::Update(vec![(1, Value::Null)]);
        assert_eq!(
            updated.changed(&nothing, 2, FOREVER),
            None,
            "nobody says if it was inserted before"
        );
        assert_eq!(absent().changed(&nothing, 2, FOREVER), Some(absent()));
        assert_eq!(row.changed(&Change::Delete, 2, seconds(10)), Some(absent()));
        assert_eq!(
            absent().changed(&Change::Update(vec![(2, value("c"))]), 2, FOREVER),
            None,
            "there is no such column"
        );
    }

    #[test]
    fn a_change_replaces_a_row_if_it_leaves_no_column_as_it_was() {
        let (one, null, unset) = ((0, value("a")), (1, Value::Null), (1, Value::Unset));
        assert!(Change::Delete.replaces_row(2));
        for change in [Change::Insert, Change::Update] {
            assert!(change(vec![null.clone(), one.clone()]).replaces_row(2));
            for part in [vec![], vec![one.clone()], vec![one.clone(), unset.clone()]] {
                assert!(!change(part.clone()).replaces_row(2), "{part:?}");
            }
        }
        let nulls = vec![(0, Value::Null), null];
        assert!(Change::Insert(nulls.clone()).replaces_row(2), "the row exists");
        assert!(!Change::Update(nulls).replaces_row(2), "the row exists if it was inserted");
    }

    #[test]
    fn nothing_is_known_of_what_may_have_expired() {
        let mut rows = Rows::default();
        let insert = Change::Insert(vec![(0, value("a"))]);
        let row = absent().changed(&insert, 1, seconds(10)).expect("known");
        rows.put(key(1), VERSION, Some(row.clone()));
        assert_eq!(rows.get(key(1), VERSION, 8 * SECOND_NS - 1), Knowledge::Row(row.clone()));
        assert_eq!(rows.get(key(1), VERSION, 8 * SECOND_NS), Knowledge::Settled);
        // By a clock that goes faster by a hundredth.
        let long = absent().changed(&insert, 1, seconds(1_000)).expect("known");
        rows.put(key(3), VERSION, Some(long.clone()));
        assert_eq!(rows.get(key(3), VERSION, 990 * SECOND_NS - 1), Knowledge::Row(long));
        assert_eq!(rows.get(key(3), VERSION, 990 * SECOND_NS), Knowledge::Settled);
        // A value without a limit beside one with it.
        let longer =
            row.changed(&Change::Update(vec![(0, value("b"))]), 1, FOREVER).expect("known");
        rows.put(key(1), VERSION, Some(longer));
        assert_eq!(rows.get(key(1), VERSION, 8 * SECOND_NS), Knowledge::Settled);
        // One of which only the key is there may go at any time.
        rows.put(key(2), VERSION, Some(Row::from_read(Some(vec![None]), FOREVER)));
        assert_eq!(rows.get(key(2), VERSION, 0), Knowledge::Settled);
    }

    #[test]
    fn a_value_that_is_made_anew_lives_no_longer_than_it_was_to() {
        let mut read = ReadRow {
            lives: vec![Some(10), None, Some(3)],
            ..ReadRow::from_values(0, &None).expect("a row")
        };
        read.pass(SECOND_NS - 1);
        assert_eq!(read.lives, [Some(10), None, Some(3)]);
        read.pass(4 * SECOND_NS + 1);
        assert_eq!(read.lives, [Some(6), None, Some(1)], "for as short as can be");
    }

    #[test]
    fn a_row_is_of_one_ownership_one_table_and_its_columns() {
        let mut rows = Rows::default();
        rows.put(key(1), VERSION, Some(absent()));
        let observed = RowVersion { observed: rows.observed(VERSION.name), ..VERSION };
        for other in [
            RowVersion { claim: Claim(2), ..VERSION },
            RowVersion { table: [2; 16], ..VERSION },
            RowVersion { columns: 8, ..VERSION },
            observed,
        ] {
            assert_eq!(rows.get(key(1), other, 0), Knowledge::Nothing);
        }
        rows.put(key(3), observed, Some(absent()));
        assert_eq!(rows.get(key(3), observed, 0), Knowledge::Row(absent()));
        rows.doubt_observed(Partition(8));
        assert_eq!(
            rows.get(key(3), observed, 0),
            Knowledge::Row(absent()),
            "it was another table's"
        );
        let doubt = Doubt { compares_from_ns: 1, keeps_from_ns: 2 };
        rows.put_doubt(key(4), observed, doubt);
        rows.doubt_observed(VERSION.name);
        let observed = RowVersion { observed: rows.observed(VERSION.name), ..VERSION };
        assert_eq!(
            (rows.get(key(3), observed, 0), rows.get(key(4), observed, 0)),
            (Knowledge::Nothing, Knowledge::Nothing)
        );
        assert_eq!((rows.doubt(key(3)), rows.doubt(key(4))), (Doubt::default(), doubt));
        [3, 4].into_iter().for_each(|number| rows.forget(key(number)));
        assert_eq!(rows.get(key(1), VERSION, 0), Knowledge::Row(absent()));
        rows.put(key(2), RowVersion { table: [2; 16], ..VERSION }, None);
        rows.forget_table([1; 16]);
        assert_eq!((rows.get(key(1), VERSION, 0), rows.count()), (Knowledge::Nothing, 1));
        rows.forget(key(2));
        assert_eq!((rows.count(), rows.young_bytes), (0, 0));
    }

    /// The table's mode may have been another in between.
    #[test]
    fn pending_reads_do_not_fill_a_cleared_cache() {
        let mut rows = Rows::default();
        rows.put(key(1), VERSION, Some(absent()));
        rows.forget_all();
        assert_eq!(
            (rows.get(key(1), VERSION, 0), rows.count(), rows.epoch()),
            (Knowledge::Nothing, 0, 1)
        );
        rows.put(key(1), VERSION, Some(absent()));
        assert_eq!((rows.get(key(1), VERSION, 0), rows.count()), (Knowledge::Nothing, 0));
        let now = RowVersion { epoch: 1, ..VERSION };
        assert_eq!(rows.get(key(1), now, 0), Knowledge::Nothing);
        rows.put(key(1), now, Some(absent()));
        assert_eq!(rows.get(key(1), now, 0), Knowledge::Row(absent()));
        rows.put(key(1), VERSION, Some(absent()));
        assert_eq!(rows.get(key(1), now, 0), Knowledge::Nothing, "it was written to");
    }

    #[test]
    fn rows_of_other_tables_stay_and_are_read_when_the_schema_has_changed() {
        let mut rows = Rows::default();
        let other = RowVersion { table: [2; 16], name: Partition(8), ..VERSION };
        rows.put(key(1), VERSION, Some(absent()));
        rows.put(key(2), other, Some(absent()));
        rows.forget_named(&[VERSION.name]);
        let now = |of: RowVersion, epoch| RowVersion { epoch, ..of };
        assert_eq!(rows.get(key(1), now(VERSION, 1), 0), Knowledge::Nothing);
        assert_eq!(rows.get(key(2), now(other, 1), 0), Knowledge::Row(absent()));
        rows.put(key(3), other, Some(absent()));
        assert_eq!(rows.get(key(3), now(other, 1), 0), Knowledge::Nothing, "it was under way");
        let value = Row::from_read(Some(vec![Some(vec![0; 100].into())]), FOREVER);
        rows.put(key(4), now(other, 1), Some(value));
        rows.read_all_anew();
        for number in [2, 4] {
            assert_eq!(rows.get(key(number), now(other, 2), 0), Knowledge::Settled);
        }
        assert_eq!((rows.count(), rows.young_bytes), (2, 2 * ROW_BYTES));
    }

    #[test]
    fn rows_that_are_used_stay_and_there_are_no_more_than_may_be() {
        let mut rows = Rows::default();
        rows.put(key(0), VERSION, Some(absent()));
        for number in 1..2 * ROWS_MAX {
            rows.put(key(number), VERSION, Some(absent()));
            if number % 1_000 == 0 {
                assert_eq!(rows.get(key(0), VERSION, 0), Knowledge::Row(absent()), "{number}");
            }
            assert!(rows.count() <= ROWS_MAX);
        }
        assert_eq!(rows.get(key(1), VERSION, 0), Knowledge::Nothing);
        // A row grows by one column at a time, to more than there may be of all.
        let huge = Row::from_read(Some(vec![Some(vec![0; BYTES_MAX / 4].into()); 3]), FOREVER);
        for number in 0..2 {
            rows.put(key(number), VERSION, Some(huge.clone()));
            assert!(
                rows.get(key(number), VERSION, 0) == Knowledge::Settled,
                "it is read each time"
            );
        }
        let large = Row::from_read(Some(vec![Some(vec![0; BYTES_MAX / 4].into())]), FOREVER);
        for number in 0..8 {
            rows.put(key(number), VERSION, Some(large.clone()));
        }
        let bytes: usize = rows.young.values().chain(rows.old.values()).map(Entry::bytes).sum();
        assert!(bytes <= BYTES_MAX, "{bytes}");
        assert_eq!(rows.young_bytes, rows.young.values().map(Entry::bytes).sum::<usize>());
    }
}
