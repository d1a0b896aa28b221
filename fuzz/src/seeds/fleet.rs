//! Seeds of the fleet's rows: a fleet without members, with the member itself, and with another
//! that owns everything.

use super::Add;
use crate::fleet::{COLUMNS, ME, NEXT_ROW, NULL};

fn column(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    let number = COLUMNS.iter().position(|column| *column == name).unwrap_or_default();
    out.push(number as u8);
    out.extend_from_slice(&(value.len() as u16).to_be_bytes());
    out.extend_from_slice(value);
}

/// A row valid for both tables, with this many shards of one owner.
fn row(out: &mut Vec<u8>, shards: i32, owner: [u8; 16], state: u8, beat: i64) {
    let mut owners = shards.to_be_bytes().to_vec();
    for shard in 0..shards {
        owners.extend_from_slice(&4_i32.to_be_bytes());
        owners.extend_from_slice(&shard.to_be_bytes());
        owners.extend_from_slice(&16_i32.to_be_bytes());
        owners.extend_from_slice(&owner);
    }
    let (format, lease, ttl) =
        (1_i32.to_be_bytes(), 6_000_i32.to_be_bytes(), 30_000_i32.to_be_bytes());
    let number = 7_i64.to_be_bytes();
    for (name, value) in [
        ("format", &format[..]),
        ("serial", b"SERIAL"),
        ("dc", b""),
        ("max_ttl_ms", &ttl),
        ("lease_ms", &lease),
        ("view_epoch", &number),
        ("owners", &owners),
        ("ts_floor", &number),
        ("handed_over", &number),
        ("inc", &owner),
        ("addr", b"127.0.0.2:9042"),
        ("state", &[state]),
        ("beat", &beat.to_be_bytes()),
        ("ts_limit", &number),
        ("leaving", &[0]),
        ("[applied]", &[1]),
    ] {
        column(out, name, value);
    }
}

pub(super) fn fleet(add: Add<'_>) {
    for (name, shards, owner, state) in [
        ("empty", 0, [2; 16], 1),
        ("mine", 64, ME.0, 1),
        ("others", 64, [2; 16], 1),
        ("dead", 64, [2; 16], 2),
    ] {
        let mut out = Vec::new();
        row(&mut out, shards, owner, state, 0);
        add("fleet", name, out);
    }
    let mut two = Vec::new();
    row(&mut two, 64, ME.0, 1, 0);
    two.push(NEXT_ROW);
    row(&mut two, 64, [2; 16], 3, 5);
    two.extend_from_slice(&[NEXT_ROW, NULL, 0, 0]);
    add("fleet", "two", two);
}
