//! Seeds of durable locks' rows: each step reaches another part.

use super::Add;

/// Requests the lock: owner, role, duration, mode, and wait.
const ASK: [u8; 6] = [0, 0, 0, 100, 0, 50];
/// Reads an exclusive row of the second owner as the only one.
const HELD: [u8; 9] = [4, 1, 0, 0, 2, 0, 9, 100, 9];
const ACKNOWLEDGED: [u8; 2] = [7, 0];

pub(super) fn locks(add: Add<'_>) {
    let empty = [4, 0];
    let free = [4, 1, 0, 0, 0, 0, 9, 0, 9];
    let shared = [4, 2, 0, 1, 1, 0, 9, 100, 9, 0, 2, 2, 0, 9, 100, 9];
    let in_parts = [5, 1, 0, 0, 1, 0, 3, 100, 3, 4, 1, 0, 1, 0, 0, 9, 100, 9];
    let last_timestamp = [4, 1, 0, 0, 2, 0, 9, 100, 254];
    let later = [8, 3];
    let renew = [1, 0, 0, 200];
    let renew_of_second = [1, 1, 0, 200];
    let release = [2, 0, 0, 0, 0];
    for (name, steps) in [
        ("granted", &[&ASK[..], &empty, &ACKNOWLEDGED, &renew, &ACKNOWLEDGED, &release][..]),
        ("held", &[&ASK, &HELD, &later, &later, &ACKNOWLEDGED]),
        ("free", &[&ASK, &free, &[7, 1], &later, &ACKNOWLEDGED]),
        ("shared", &[&ASK, &shared, &renew, &ACKNOWLEDGED, &later]),
        ("last_timestamp", &[&ASK, &last_timestamp, &renew_of_second, &ACKNOWLEDGED]),
        ("in_parts", &[&ASK, &in_parts, &[9, 1], &ACKNOWLEDGED]),
        ("failed", &[&ASK, &[6], &ASK, &HELD, &[9, 0], &ASK]),
    ] {
        add("locks", name, steps.concat());
    }
}
