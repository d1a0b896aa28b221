//! Redo records.

use shunt_transactions::record::{Record, Value, Write};

use super::Add;

pub(super) fn redo(add: Add<'_>) {
    let update = |keyspace, values| Write { keyspace, text: "UPDATE accounts SET balance = ? WHERE id = ?", values };
    let delete = Write { keyspace: "", text: "DELETE FROM bank.accounts WHERE id = 1", values: Vec::new() };
    let values = vec![Value::Bytes(&[0, 0, 0, 7]), Value::Bytes(b"ann")];
    let others = vec![Value::Null, Value::Unset];
    for (name, key, writes) in [
        ("one", &b""[..], vec![update("bank", values.clone())]),
        ("two", b"once", vec![update("bank", values), update("bank", others)]),
        ("text", b"", vec![delete]),
    ] {
        let mut out = Vec::new();
        let record = Record { shard: 5, timestamp_us: 1_700_000_000_000_000, key, writes };
        if record.encode(&mut out).is_ok() {
            add("redo", name, out);
        }
    }
}
