//! Rows of durable locks in the formats that there were. A test that fails here says that what this
//! version reads has changed: another member of the fleet may write it in the old way.
//! CONTRIBUTING.md, "Changing a format", says what is to be done.

use shunt_locks::Row;
use shunt_wire::cql::message::ResultMessage;

use super::decode;
use crate::fleet::statements;

/// The RESULT of a read of a partition, in hexadecimal: a lock that is held alone, one that is
/// free, and one that is shared.
const FORMAT_1: &str = include_str!("../../../tests/fixtures/lock-rows-1.hex");

fn body(fixture: &str) -> Vec<u8> {
    let digits: Vec<u8> = fixture.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| {
        u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16).expect("digits")
    };
    digits.chunks(2).map(byte).collect()
}

/// What is read; otherwise the name in the row that cannot be.
fn check(body: &[u8], expected: Result<&[Row<'_>], &[u8]>) {
    let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(statements::VERSION, body) else {
        panic!("rows")
    };
    assert_eq!(decode(&rows).as_deref().map_err(|name| *name), expected);
}

const HELD: Row<'_> = Row {
    name: b"report",
    slot: b"",
    owner: b"host-7",
    role: b"reports",
    token: 1_795_495_675_940_276,
    ttl_ms: 30_000,
    timestamp_us: 1_795_495_675_940_276,
};

#[test]
fn rows_of_format_1_are_read() {
    let free = Row {
        name: b"free",
        owner: b"",
        role: b"",
        token: 1_795_495_675_940_340,
        ttl_ms: 0,
        timestamp_us: 1_795_495_675_940_404,
        ..HELD
    };
    let shared = Row {
        name: b"shared",
        slot: b"r1",
        owner: b"r1",
        role: b"",
        token: 64,
        ttl_ms: 86_400_000,
        timestamp_us: 65,
    };
    check(&body(FORMAT_1), Ok(&[HELD, free, shared]));
}

/// To leave one row out could be to grant a lock twice: none of the partition is used, and the row
/// is named.
#[test]
fn a_row_that_cannot_be_read_is_named_and_none_is_used() {
    let whole = body(FORMAT_1);
    let fence = 1_795_495_675_940_340_i64.to_be_bytes();
    let place =
        whole.windows(8).position(|part| part == fence).expect("the fence of the second row");
    let mut changed = whole.clone();
    changed[place] = 0xff;
    check(&changed, Err(b"free"));
    // The same fence as text of another length.
    changed = [&whole[..place - 4], &7_i32.to_be_bytes(), &whole[place + 1..]].concat();
    check(&changed, Err(b"free"));
}
