//! Redo records.

use shunt_transactions::record::{Record, Value, Write};

use super::Add;

pub(super) fn redo(add: Add<'_>) {
    let of =
        |text, values| Write { keyspace: "bank", table: "accounts", id: [7; 16], text, values };
    let update = |values| of("UPDATE bank.accounts SET balance = ? WHERE id = ?", values);
    let delete = of("DELETE FROM bank.accounts WHERE id = 1", Vec::new());
    let values = vec![Value::Bytes(&[0, 0, 0, 7]), Value::Bytes(b"ann")];
    let others = vec![Value::Null, Value::Unset];
    for (name, key, writes) in [
        ("one", &b""[..], vec![update(values.clone())]),
        ("two", b"once", vec![update(values), update(others)]),
        ("text", b"", vec![delete]),
    ] {
        let mut out = Vec::new();
        let record = Record { shard: 5, timestamp_us: 1_700_000_000_000_000, key, writes };
        if record.encode(&mut out).is_ok() {
            add("redo", name, out);
        }
    }
}
