//! Rows of every past format are still read, and an unknown format is recognised as one, whatever
//! else is in its row. `fixtures` has the tables and rows as the first version of each format wrote
//! them.
//!
//! A failing test here means that the rows have changed: other members of the same fleet may run a
//! version that reads them in the old way. CONTRIBUTING.md, "Changing a format", says what to do.

#![allow(clippy::unwrap_used, reason = "a test may stop where something is not as expected")]

use shunt_fleet::schema::{FORMAT, FORMAT_MIN, META_TABLES};
use shunt_fleet::{
    Column, FleetRow, Incarnation, Level, MemberRow, Outcome, Shards, State, Statement, View,
};

const ROWS: [&str; 1] = [include_str!("fixtures/rows-1.txt")];
const TABLES: [&str; 1] = [include_str!("fixtures/tables-1.cql")];

const A: Incarnation = Incarnation([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
const B: Incarnation = Incarnation([0xaa; 16]);

type Row = Vec<(String, Vec<u8>)>;

/// The rows of a fixture, each with its table.
fn read(fixture: &str) -> Vec<(String, Row)> {
    let mut rows: Vec<(String, Row)> = Vec::new();
    for line in fixture.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix("  ").map(|column| column.split_once(' ').unwrap()) {
            None => rows.push((line.to_owned(), Row::new())),
            Some((name, digits)) => {
                let digits = digits.trim_matches('-').as_bytes();
                let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
                let bytes = pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
                rows.last_mut().unwrap().1.push((name.to_owned(), bytes));
            }
        }
    }
    rows
}

fn answer(statement: &Statement, rows: &[Row]) -> Outcome {
    let columns = |row: &Row| -> Vec<Column<'static>> {
        let leaked = row
            .iter()
            .map(|(name, value)| Column { name: leak(name), value: Some(leak_bytes(value)) });
        leaked.collect()
    };
    let columns: Vec<Vec<Column<'_>>> = rows.iter().map(columns).collect();
    let columns: Vec<&[Column<'_>]> = columns.iter().map(Vec::as_slice).collect();
    statement.read_answer(&columns)
}

fn leak(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

fn leak_bytes(bytes: &[u8]) -> &'static [u8] {
    Box::leak(bytes.to_vec().into_boxed_slice())
}

fn of_table(table: &str) -> Vec<Row> {
    read(ROWS[0]).into_iter().filter(|(of, _)| of == table).map(|(_, row)| row).collect()
}

const READ_FLEET: Statement = Statement::ReadFleet { serial: true };
const READ_MEMBERS: Statement = Statement::ReadMembers { serial: false };

#[test]
fn rows_of_format_1_are_read() {
    let [first, second] = &of_table("fleet")[..] else { panic!("two rows") };
    let mut view = View::default();
    [(0, A), (7, B), (63, A)].into_iter().for_each(|(shard, owner)| view.give(shard, Some(owner)));
    let expected = FleetRow {
        format: 1,
        level: Level::LocalSerial,
        datacentre: "dc1".to_owned(),
        max_ttl_ms: 30_000,
        lease_ms: 6_000,
        epoch: 41,
        view,
        ts_floor_us: 1_795_495_675_940_276,
        handed_over: Shards::from_bits(-2),
    };
    assert_eq!(
        answer(&READ_FLEET, std::slice::from_ref(first)),
        Outcome::Fleet(Some(Box::new(expected.clone())))
    );
    let new = FleetRow {
        level: Level::Serial,
        datacentre: String::new(),
        max_ttl_ms: 1_000,
        lease_ms: 1_000,
        epoch: 0,
        view: View::default(),
        ts_floor_us: 0,
        handed_over: Shards::ALL,
        ..expected
    };
    assert_eq!(
        answer(&READ_FLEET, std::slice::from_ref(second)),
        Outcome::Fleet(Some(Box::new(new)))
    );
    let live = MemberRow {
        incarnation: A,
        address: "10.0.0.5:9042".to_owned(),
        state: State::Live,
        beat: 12,
        ts_limit_us: 1_795_495_687_940_276,
        format: 1,
        leaving: false,
    };
    // A member of a later version, which the fleet may have as long as its row names the older
    // format.
    let sealed = MemberRow {
        incarnation: B,
        address: "[fd00::1]:9042".to_owned(),
        state: State::Sealed,
        beat: 0,
        ts_limit_us: 1,
        format: 2,
        leaving: true,
    };
    let expected = Outcome::Members { rows: vec![live, sealed], unreadable: Vec::new() };
    assert_eq!(answer(&READ_MEMBERS, &of_table("member")), expected);
}

/// Unknown contents of the other columns must not make a row of an unknown format look damaged.
#[test]
fn a_format_that_is_not_known_is_told_from_a_row_that_is_damaged() {
    let newest: Row = of_table("fleet").remove(0);
    let change = |row: &Row, column: &str, bytes: &[u8]| -> Row {
        let changed = row.iter().map(|(name, value)| {
            (name.clone(), if name == column { bytes.to_vec() } else { value.clone() })
        });
        changed.collect()
    };
    for format in [FORMAT_MIN - 1, FORMAT + 1, i32::MAX].into_iter().filter(|format| *format > 0) {
        let row = change(&newest, "format", &format.to_be_bytes());
        for row in [
            row.clone(),
            change(&row, "serial", b"RAFT"),
            change(&row, "owners", b"?"),
            row[..1].to_vec(),
        ] {
            assert_eq!(answer(&READ_FLEET, &[row]), Outcome::UnknownFormat(format));
        }
    }
    for row in [
        change(&newest, "format", &[0; 4]),
        change(&newest, "format", &[1]),
        change(&newest, "serial", b"RAFT"),
    ] {
        assert!(matches!(answer(&READ_FLEET, &[row]), Outcome::Unreadable(_)));
    }
}

/// A new column or type is another format: versions that know only this one could not interpret it.
#[test]
fn the_tables_of_a_format_are_what_they_were() {
    let newest = usize::try_from(FORMAT).unwrap();
    assert_eq!((ROWS.len(), TABLES.len()), (newest, newest), "each format has its fixtures");
    let texts: Vec<&str> =
        TABLES[newest - 1].split(";\n").filter(|text| !text.is_empty()).collect();
    assert_eq!(texts, META_TABLES, "the tables have changed: raise FORMAT");
}
