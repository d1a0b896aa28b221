//! Rows of the fleet's tables: the input is columns, each with a byte that names it, its length in
//! two bytes, and its value. They answer each statement, and every statement of a member.

use shunt_fleet::schema::{FORMAT, FORMAT_MIN};
use shunt_fleet::{
    ADDRESS_BYTES_MAX, Column, Config, Incarnation, Member, MemberRow, Outcome, Output, Statement,
    TIMESTAMP_MAX_US,
};

use crate::bounded;

/// The columns of all tables, and one that no table has.
pub const COLUMNS: [&str; 17] = [
    "format",
    "serial",
    "dc",
    "max_ttl_ms",
    "lease_ms",
    "view_epoch",
    "owners",
    "ts_floor",
    "handed_over",
    "inc",
    "addr",
    "state",
    "beat",
    "ts_limit",
    "leaving",
    "[applied]",
    "other",
];
/// Instead of a column: starts the next row.
pub const NEXT_ROW: u8 = u8::MAX;
/// Added to a column's number: marks a null.
pub const NULL: u8 = 1 << 6;
/// The fuzzed member.
pub const ME: Incarnation = Incarnation([1; 16]);

const ROUNDS: u64 = 40;
const ROUND_NS: u64 = 100_000_000;

/// Tries one input.
pub fn run(data: &[u8]) {
    let rows = read(data);
    let rows: Vec<&[Column<'_>]> = rows.iter().map(Vec::as_slice).collect();
    let statements = [
        Statement::ReadFleet { serial: true },
        Statement::ReadMembers { serial: false },
        Statement::ReadMember(ME),
        Statement::Seal(ME),
    ];
    for statement in statements {
        let outcome = bounded(128, data.len(), || statement.read_answer(&rows));
        assert_eq!(outcome, statement.read_answer(&rows));
        check(&outcome);
    }
    live(&rows);
}

fn read(mut data: &[u8]) -> Vec<Vec<Column<'_>>> {
    let mut rows = vec![Vec::new()];
    while let Some((&number, rest)) = data.split_first() {
        data = rest;
        if number == NEXT_ROW {
            rows.push(Vec::new());
            continue;
        }
        let Some((length, rest)) = data.split_first_chunk::<2>() else { break };
        let (value, rest) = rest.split_at(usize::from(u16::from_be_bytes(*length)).min(rest.len()));
        data = rest;
        let name = COLUMNS[usize::from(number & (NULL - 1)) % COLUMNS.len()];
        let value = (number & NULL == 0).then_some(value);
        if let Some(row) = rows.last_mut() {
            row.push(Column { name, value });
        }
    }
    rows
}

/// Decoded values are within the limits that their users rely on.
fn check(outcome: &Outcome) {
    let time = 0..=TIMESTAMP_MAX_US;
    match outcome {
        Outcome::Fleet(Some(row)) => {
            assert!(row.format >= 1 && row.max_ttl_ms >= 1 && row.lease_ms >= 1);
            assert!(time.contains(&row.epoch) && time.contains(&row.ts_floor_us));
        }
        Outcome::Members { rows, .. } => rows.iter().for_each(check_member),
        Outcome::Member(Some(row)) => check_member(row),
        Outcome::UnknownFormat(format) => {
            assert!(*format >= 1 && !(FORMAT_MIN..=FORMAT).contains(format))
        }
        Outcome::Unreadable(bad) => assert!(!bad.to_string().is_empty()),
        _ => {}
    }
}

fn check_member(row: &MemberRow) {
    let time = 0..=TIMESTAMP_MAX_US;
    assert!(time.contains(&row.beat) && time.contains(&row.ts_limit_us));
    assert!(row.format >= 1 && row.address.len() <= ADDRESS_BYTES_MAX);
}

/// Whatever its answers, a member continues, sends few requests at once, and holds no lease for
/// longer than requested.
fn live(rows: &[&[Column<'_>]]) {
    let config = Config { replication_factor: 3, ..Config::new("c", "127.0.0.1:9042") };
    let lease_ns = u64::from(config.lease_ms.unsigned_abs()) * 1_000_000;
    let Ok(mut member) = Member::new(config, ME) else { panic!("these settings are good") };
    let (mut now_ns, mut outputs) = (ROUND_NS, Vec::new());
    member.start(now_ns, 0, &mut outputs);
    for round in 0..ROUNDS {
        let mut sent = Vec::new();
        for output in outputs.drain(..) {
            match output {
                Output::Send { id, statement, .. } => sent.push((id, statement)),
                Output::Lease(post) => assert!(post.valid_until_ns <= now_ns + lease_ns),
                _ => {}
            }
        }
        assert!(sent.len() <= 6, "{} statements at once", sent.len());
        for (id, statement) in sent {
            let outcome =
                if round % 8 == 7 { Outcome::Timeout } else { statement.read_answer(rows) };
            member.outcome(id, outcome, now_ns, 0, &mut outputs);
        }
        now_ns += ROUND_NS;
        member.tick(now_ns, 0, &mut outputs);
    }
    member.drain(now_ns, 0, &mut outputs);
}
