//! Seeds of statements on locks: each form, with literals and with values.

use super::Add;
use crate::lock_tables::TABLES;

const FORMS: [(&str, &str); 10] = [
    ("try", "INSERT INTO shunt.{} (name, owner) VALUES ('n', 'o') IF NOT EXISTS USING TTL 20"),
    (
        "wait",
        "INSERT INTO shunt.{} (name, owner, wait_ms) VALUES (?, ?, ?) IF NOT EXISTS USING TTL ?",
    ),
    (
        "share",
        "INSERT INTO shunt.{} (name, owner, mode) VALUES ('n', :o, 'S') IF NOT EXISTS USING TTL 20",
    ),
    (
        "renew",
        "UPDATE \"shunt\".{} USING TTL 20 SET owner = 'o' WHERE name = 'n' IF owner = 'o' AND fence = 7",
    ),
    (
        "renew_share",
        "UPDATE Shunt.{} USING TTL ? SET mode = ? WHERE name = ? AND owner = ? IF EXISTS",
    ),
    ("release", "DELETE FROM {} WHERE name = ? IF owner = ? AND fence = ?"),
    ("release_share", "DELETE FROM shunt.{} WHERE name = $$n$$ AND owner = 'o' IF fence = 7"),
    ("look", "SELECT owner, fence AS f, waiters FROM shunt.{} WHERE name = ? LIMIT 1"),
    ("longest", "SELECT name, owner, waiters FROM shunt.{} LIMIT 10"),
    ("queue", "SELECT * FROM shunt.{} WHERE name = 'n' AND fast = true"),
];

/// Changes of the tables and their keyspace, and of others.
const CHANGES: [(&str, &str); 13] = [
    (
        "create_keyspace",
        "CREATE KEYSPACE IF NOT EXISTS shunt WITH replication = {'class': 'SimpleStrategy'}",
    ),
    ("alter_keyspace", "alter schema Shunt with durable_writes = false"),
    ("drop_keyspace", "DROP KEYSPACE IF EXISTS \"shunt\";"),
    ("create_table", "CREATE TABLE IF NOT EXISTS shunt.locks (name text PRIMARY KEY)"),
    ("alter_table", "-- more\nALTER TABLE shunt . \"locks\" ADD more int"),
    ("drop_table", "DROP /* it */ COLUMNFAMILY locks"),
    ("create_index", "CREATE INDEX IF NOT EXISTS i ON shunt.locks (owner)"),
    ("create_trigger", "CREATE TRIGGER t ON shunt.fast_locks USING 'a.B'"),
    ("drop_trigger", "DROP TRIGGER IF EXISTS t ON shunt.lock_queue"),
    (
        "create_view",
        "CREATE MATERIALIZED VIEW a.v AS SELECT * FROM shunt.locks WHERE name IS NOT NULL PRIMARY KEY (name)",
    ),
    ("change_unknown", "ALTER TABLE shunt.locks FORGET owner"),
    ("change_of_others", "CREATE TABLE a.locks (shunt text PRIMARY KEY)"),
    ("grant", "GRANT SELECT ON shunt.locks TO reports"),
];

/// Texts followed by values.
pub(super) fn lock_tables(add: Add<'_>) {
    for (name, form) in FORMS {
        for table in TABLES {
            let mut input = form.replacen("{}", table.name(), 1).into_bytes();
            input.push(0);
            for value in [&b"n"[..], b"o", &500_i32.to_be_bytes(), &20_i32.to_be_bytes()] {
                input.push(value.len() as u8);
                input.extend_from_slice(value);
            }
            add("lock_tables", &format!("{name}_{}", table.name()), input);
        }
    }
    let child = |name: &str| {
        format!(
            "INSERT INTO shunt.locks (name, owner) VALUES ('{name}', 'o') IF NOT EXISTS USING TTL 5"
        )
    };
    let batch = format!("BEGIN BATCH {}; {}; APPLY BATCH", child("a"), child("b"));
    add("lock_tables", "batch", batch.into_bytes());
    add("lock_tables", "truncate", b"TRUNCATE TABLE shunt.locks".to_vec());
    for (name, text) in CHANGES {
        add("lock_tables", name, text.as_bytes().to_vec());
    }
}
