//! Rows of tables with the mode `conditional`, as the core that decides their statements knows
//! them.
//!
//! A row is known here once this core has written over all that former owners may have sent and
//! nobody has heard of: from then on what is acknowledged to this core is what there is. So it
//! needs not be read again, until a value may have expired.
//!
//! This must never: keep a row beyond its shard's ownership, its table or the table's columns, or
//! the table's mode; keep it while a write to it is under way, or after one of which nobody knows;
//! say that a value is there when it may have expired.

use std::collections::HashMap;

use crate::{Claim, Partition};
use shunt_language::terms::Value;

use crate::SECOND_NS;
use crate::catalogue::table_identity::TableId;
use crate::conditional::doubt::{Doubt, Doubts};

/// Rows that are kept, and bytes of them: those that were not used for the longest go.
const ROWS_MAX: usize = 65_536;
const BYTES_MAX: usize = 32 << 20;
/// About what a row takes besides its values.
const ROW_BYTES: usize = 160;
/// Bytes of one that is kept: a longer one is read each time. It has room in a half.
const BYTES_OF_ONE_MAX: usize = BYTES_MAX / 2 - ROW_BYTES;
/// How much earlier than it says a value may be gone: nodes count in whole seconds, each by its own
/// clock, which may go faster by a hundredth.
const EARLIER_NS: u64 = 2 * SECOND_NS;
const FASTER: u64 = 100;

/// A value of a column; none for null.
pub type Cell = Option<Box<[u8]>>;

/// The regular columns of a row, in the table's order.
pub type Cells = Vec<Cell>;

/// What is known of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// None: there is no such row.
    pub cells: Option<Cells>,
    /// It would be there without any value: it was inserted. Where that is not known, it is false.
    is_inserted: bool,
    /// From then on it may be another, by the boot-time clock.
    until_ns: u64,
}

/// A row as it was read for a single statement.
#[derive(Clone, Debug)]
pub struct ReadRow {
    pub cells: Option<Cells>,
    /// For how many seconds each of them lives; none for ever.
    pub lives: Vec<Option<u32>>,
    /// The latest timestamp of any of them, microseconds.
    pub latest_us: i64,
}

impl ReadRow {
    /// Of the values that the statement's SELECT has found.
    pub fn of(columns: usize, read: &Option<Cells>) -> Option<ReadRow> {
        let mut row = ReadRow { cells: None, lives: Vec::new(), latest_us: i64::MIN };
        let Some(values) = read else { return Some(row) };
        let mut cells = Vec::with_capacity(columns);
        for place in 0..columns {
            let part = |part: usize| values.get(3 * place + part).map(Option::as_deref);
            if let Some(written) = part(2)? {
                row.latest_us = row.latest_us.max(i64::from_be_bytes(written.try_into().ok()?));
            }
            // One that lives for less than a second more has none left.
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

    /// Time has passed since it was asked for: what is written with the rest of its life must not
    /// live longer each time.
    pub fn pass(&mut self, passed_ns: u64) {
        let passed = u32::try_from(passed_ns / SECOND_NS).unwrap_or(u32::MAX);
        for seconds in self.lives.iter_mut().flatten() {
            *seconds = seconds.saturating_sub(passed).max(1);
        }
    }

    /// What is known by it. `asked_ns`: when it was asked for, by the boot-time clock.
    pub fn known(&self, asked_ns: u64) -> Row {
        let seconds = self.lives.iter().flatten().min().copied();
        Row::read(self.cells.clone(), Life { from_ns: asked_ns, seconds })
    }
}

/// How long what is written lives: from when, by the boot-time clock, and for how many seconds;
/// none for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    pub from_ns: u64,
    pub seconds: Option<u32>,
}

impl Life {
    fn until_ns(self) -> u64 {
        let Some(seconds) = self.seconds else { return u64::MAX };
        let life_ns = u64::from(seconds) * SECOND_NS;
        (self.from_ns + life_ns).saturating_sub(EARLIER_NS.max(life_ns / FASTER))
    }
}

/// What a statement does to a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Columns have these values, and it is there whether or not it has any.
    Insert(Vec<(usize, Value)>),
    /// Columns have these values.
    Update(Vec<(usize, Value)>),
    /// It goes.
    Delete,
}

impl Row {
    /// As it was read: the cells, and the shortest time that any of them lives.
    pub fn read(cells: Option<Cells>, life: Life) -> Row {
        // One without values is there because it was inserted, and nothing says for how long.
        let is_bare = cells.as_ref().is_some_and(|cells| cells.iter().all(Option::is_none));
        let until_ns = if is_bare { 0 } else { life.until_ns() };
        Row { cells, is_inserted: false, until_ns }
    }

    /// As it is after a change; none if that is not known. `columns`: how many the table has.
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
        // If it was inserted once, it is there still.
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

/// What a row is one of: if any of it is another, the row says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Of {
    /// The shard's ownership.
    pub claim: Claim,
    pub table: TableId,
    /// What is locked for the whole table, which stands for its name.
    pub name: Partition,
    /// A hash of the table's columns.
    pub columns: u64,
    /// Of a table with the mode `observe`: how often [`Rows::doubt_observed`] was called of it
    /// before; 0 of others.
    pub observed: u64,
    /// [`Rows::epoch`] when it was begun to be known.
    pub epoch: u64,
}

#[derive(Debug)]
struct Entry {
    of: Of,
    /// None: it has to be read, but nobody else has anything on its way to it.
    row: Option<Row>,
    doubt: Doubt,
}

impl Entry {
    fn bytes(&self) -> usize {
        ROW_BYTES + self.row.as_ref().map_or(0, Row::bytes)
    }
}

/// All rows that a core knows, in two halves: what is used goes to the younger one, and the older
/// is let go of when that is full.
#[derive(Debug, Default)]
pub struct Rows {
    young: HashMap<Partition, Entry>,
    old: HashMap<Partition, Entry>,
    young_bytes: usize,
    doubts: Doubts,
    /// How often all were forgotten: what was begun before says nothing after.
    epoch: u64,
}

/// What is known of a row that a statement is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing.
    Nothing,
    /// It has to be read, and nobody has anything on its way to it.
    Settled,
    Row(Row),
}

impl Rows {
    /// What is known of a row at this time, which is the younger half's from then on.
    pub fn get(&mut self, key: Partition, of: Of, now_ns: u64) -> Known {
        if !self.young.contains_key(&key)
            && let Some(entry) = self.old.remove(&key)
        {
            self.add(key, entry);
        }
        match self.young.get(&key) {
            Some(entry) if entry.of == of => match &entry.row {
                Some(row) if now_ns < row.until_ns => Known::Row(row.clone()),
                _ => Known::Settled,
            },
            _ => Known::Nothing,
        }
    }

    /// A row is this from now on; none: it has to be read.
    pub fn put(&mut self, key: Partition, of: Of, row: Option<Row>) {
        self.forget(key);
        if of.epoch == self.epoch {
            let row = row.filter(|row| row.bytes() <= BYTES_OF_ONE_MAX);
            self.add(key, Entry { of, row, doubt: Doubt::default() });
        }
    }

    /// It has to be read, and this is in doubt about it.
    pub fn put_doubt(&mut self, key: Partition, of: Of, doubt: Doubt) {
        self.forget(key);
        self.add(key, Entry { of, row: None, doubt });
    }

    /// What is in doubt about a row, whatever it is one of.
    pub fn doubt(&self, key: Partition) -> Doubt {
        self.young
            .get(&key)
            .or_else(|| self.old.get(&key))
            .map_or(Doubt::default(), |entry| entry.doubt)
    }

    /// Counts up each time that all rows are forgotten.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Nothing is known of any row, nor will be by what is under way.
    pub fn forget_all(&mut self) {
        *self = Rows { epoch: self.epoch + 1, ..Rows::default() };
    }

    /// The same of the rows of tables with these names; and what is under way says nothing of any.
    pub fn forget_named(&mut self, names: &[Partition]) {
        self.begin_anew(|of| !names.contains(&of.name), |_| {});
    }

    /// All rows have to be read, though nobody has anything on its way to them.
    pub fn read_all_anew(&mut self) {
        self.begin_anew(|_| true, |row| *row = None);
    }

    fn begin_anew(&mut self, is_kept: impl Fn(&Of) -> bool, change: impl Fn(&mut Option<Row>)) {
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

    /// Nothing is known of it any more.
    pub fn forget(&mut self, key: Partition) {
        if let Some(entry) = self.young.remove(&key) {
            self.young_bytes -= entry.bytes();
        }
        self.old.remove(&key);
    }

    /// The same of all rows of a table.
    pub fn forget_table(&mut self, table: TableId) {
        self.old.retain(|_, entry| entry.of.table != table);
        self.young.retain(|_, entry| entry.of.table != table);
        self.young_bytes = self.young.values().map(Entry::bytes).sum();
    }

    /// Nothing is known any more of rows of a table with the mode `observe`: a statement was sent
    /// of which nobody knows what it changes.
    pub fn doubt_observed(&mut self, table: Partition) {
        self.doubts.add(table);
    }

    /// What rows of such a table are one of.
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

    /// Rows that are known, and those that have to be read.
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: Of = Of {
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
        Row::read(None, FOREVER)
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
    fn nothing_is_known_of_what_may_have_expired() {
        let mut rows = Rows::default();
        let insert = Change::Insert(vec![(0, value("a"))]);
        let row = absent().changed(&insert, 1, seconds(10)).expect("known");
        rows.put(key(1), OF, Some(row.clone()));
        assert_eq!(rows.get(key(1), OF, 8 * SECOND_NS - 1), Known::Row(row.clone()));
        assert_eq!(rows.get(key(1), OF, 8 * SECOND_NS), Known::Settled);
        // By a clock that goes faster by a hundredth.
        let long = absent().changed(&insert, 1, seconds(1_000)).expect("known");
        rows.put(key(3), OF, Some(long.clone()));
        assert_eq!(rows.get(key(3), OF, 990 * SECOND_NS - 1), Known::Row(long));
        assert_eq!(rows.get(key(3), OF, 990 * SECOND_NS), Known::Settled);
        // A value without a limit beside one with it.
        let longer =
            row.changed(&Change::Update(vec![(0, value("b"))]), 1, FOREVER).expect("known");
        rows.put(key(1), OF, Some(longer));
        assert_eq!(rows.get(key(1), OF, 8 * SECOND_NS), Known::Settled);
        // One of which only the key is there may go at any time.
        rows.put(key(2), OF, Some(Row::read(Some(vec![None]), FOREVER)));
        assert_eq!(rows.get(key(2), OF, 0), Known::Settled);
    }

    #[test]
    fn a_value_that_is_made_anew_lives_no_longer_than_it_was_to() {
        let mut read = ReadRow {
            lives: vec![Some(10), None, Some(3)],
            ..ReadRow::of(0, &None).expect("a row")
        };
        read.pass(SECOND_NS - 1);
        assert_eq!(read.lives, [Some(10), None, Some(3)]);
        read.pass(4 * SECOND_NS + 1);
        assert_eq!(read.lives, [Some(6), None, Some(1)], "for as short as can be");
    }

    #[test]
    fn a_row_is_of_one_ownership_one_table_and_its_columns() {
        let mut rows = Rows::default();
        rows.put(key(1), OF, Some(absent()));
        let observed = Of { observed: rows.observed(OF.name), ..OF };
        for other in [
            Of { claim: Claim(2), ..OF },
            Of { table: [2; 16], ..OF },
            Of { columns: 8, ..OF },
            observed,
        ] {
            assert_eq!(rows.get(key(1), other, 0), Known::Nothing);
        }
        rows.put(key(3), observed, Some(absent()));
        assert_eq!(rows.get(key(3), observed, 0), Known::Row(absent()));
        rows.doubt_observed(Partition(8));
        assert_eq!(rows.get(key(3), observed, 0), Known::Row(absent()), "it was another table's");
        let doubt = Doubt { compares_from_ns: 1, keeps_from_ns: 2 };
        rows.put_doubt(key(4), observed, doubt);
        rows.doubt_observed(OF.name);
        let observed = Of { observed: rows.observed(OF.name), ..OF };
        assert_eq!(
            (rows.get(key(3), observed, 0), rows.get(key(4), observed, 0)),
            (Known::Nothing, Known::Nothing)
        );
        assert_eq!((rows.doubt(key(3)), rows.doubt(key(4))), (Doubt::default(), doubt));
        [3, 4].into_iter().for_each(|number| rows.forget(key(number)));
        assert_eq!(rows.get(key(1), OF, 0), Known::Row(absent()));
        rows.put(key(2), Of { table: [2; 16], ..OF }, None);
        rows.forget_table([1; 16]);
        assert_eq!((rows.get(key(1), OF, 0), rows.len()), (Known::Nothing, 1));
        rows.forget(key(2));
        assert_eq!((rows.len(), rows.young_bytes), (0, 0));
    }

    /// The table's mode may have been another in between.
    #[test]
    fn what_is_under_way_when_all_is_forgotten_is_not_known_after() {
        let mut rows = Rows::default();
        rows.put(key(1), OF, Some(absent()));
        rows.forget_all();
        assert_eq!((rows.get(key(1), OF, 0), rows.len(), rows.epoch()), (Known::Nothing, 0, 1));
        rows.put(key(1), OF, Some(absent()));
        assert_eq!((rows.get(key(1), OF, 0), rows.len()), (Known::Nothing, 0));
        let now = Of { epoch: 1, ..OF };
        assert_eq!(rows.get(key(1), now, 0), Known::Nothing);
        rows.put(key(1), now, Some(absent()));
        assert_eq!(rows.get(key(1), now, 0), Known::Row(absent()));
        rows.put(key(1), OF, Some(absent()));
        assert_eq!(rows.get(key(1), now, 0), Known::Nothing, "it was written to");
    }

    #[test]
    fn rows_of_other_tables_stay_and_are_read_when_the_schema_has_changed() {
        let mut rows = Rows::default();
        let other = Of { table: [2; 16], name: Partition(8), ..OF };
        rows.put(key(1), OF, Some(absent()));
        rows.put(key(2), other, Some(absent()));
        rows.forget_named(&[OF.name]);
        let now = |of: Of, epoch| Of { epoch, ..of };
        assert_eq!(rows.get(key(1), now(OF, 1), 0), Known::Nothing);
        assert_eq!(rows.get(key(2), now(other, 1), 0), Known::Row(absent()));
        rows.put(key(3), other, Some(absent()));
        assert_eq!(rows.get(key(3), now(other, 1), 0), Known::Nothing, "it was under way");
        let value = Row::read(Some(vec![Some(vec![0; 100].into())]), FOREVER);
        rows.put(key(4), now(other, 1), Some(value));
        rows.read_all_anew();
        for number in [2, 4] {
            assert_eq!(rows.get(key(number), now(other, 2), 0), Known::Settled);
        }
        assert_eq!((rows.len(), rows.young_bytes), (2, 2 * ROW_BYTES));
    }

    #[test]
    fn rows_that_are_used_stay_and_there_are_no_more_than_may_be() {
        let mut rows = Rows::default();
        rows.put(key(0), OF, Some(absent()));
        for number in 1..2 * ROWS_MAX {
            rows.put(key(number), OF, Some(absent()));
            if number % 1_000 == 0 {
                assert_eq!(rows.get(key(0), OF, 0), Known::Row(absent()), "{number}");
            }
            assert!(rows.len() <= ROWS_MAX);
        }
        assert_eq!(rows.get(key(1), OF, 0), Known::Nothing);
        // A row grows by one column at a time, to more than there may be of all.
        let huge = Row::read(Some(vec![Some(vec![0; BYTES_MAX / 4].into()); 3]), FOREVER);
        for number in 0..2 {
            rows.put(key(number), OF, Some(huge.clone()));
            assert!(rows.get(key(number), OF, 0) == Known::Settled, "it is read each time");
        }
        let large = Row::read(Some(vec![Some(vec![0; BYTES_MAX / 4].into())]), FOREVER);
        for number in 0..8 {
            rows.put(key(number), OF, Some(large.clone()));
        }
        let bytes: usize = rows.young.values().chain(rows.old.values()).map(Entry::bytes).sum();
        assert!(bytes <= BYTES_MAX, "{bytes}");
        assert_eq!(rows.young_bytes, rows.young.values().map(Entry::bytes).sum::<usize>());
    }
}
