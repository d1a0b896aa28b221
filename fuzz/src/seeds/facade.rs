//! Where the corpus of statements on locks begins: each form, with literals and with values.

use super::Add;
use crate::facade::TABLES;

const FORMS: [(&str, &str); 10] = [
    ("try", "INSERT INTO shunt.{} (name, owner) VALUES ('n', 'o') IF NOT EXISTS USING TTL 20"),
    ("wait", "INSERT INTO shunt.{} (name, owner, wait_ms) VALUES (?, ?, ?) IF NOT EXISTS USING TTL ?"),
    ("share", "INSERT INTO shunt.{} (name, owner, mode) VALUES ('n', :o, 'S') IF NOT EXISTS USING TTL 20"),
    ("renew", "UPDATE \"shunt\".{} USING TTL 20 SET owner = 'o' WHERE name = 'n' IF owner = 'o' AND fence = 7"),
    ("renew_share", "UPDATE Shunt.{} USING TTL ? SET mode = ? WHERE name = ? AND owner = ? IF EXISTS"),
    ("release", "DELETE FROM {} WHERE name = ? IF owner = ? AND fence = ?"),
    ("release_share", "DELETE FROM shunt.{} WHERE name = $$n$$ AND owner = 'o' IF fence = 7"),
    ("look", "SELECT owner, fence AS f, waiters FROM shunt.{} WHERE name = ? LIMIT 1"),
    ("longest", "SELECT name, owner, waiters FROM shunt.{} LIMIT 10"),
    ("queue", "SELECT * FROM shunt.{} WHERE name = 'n' AND fast = true"),
];

/// Texts with values behind them.
pub(super) fn facade(add: Add<'_>) {
    for (name, form) in FORMS {
        for table in TABLES {
            let mut input = form.replacen("{}", table.name(), 1).into_bytes();
            input.push(0);
            for value in [&b"n"[..], b"o", &500_i32.to_be_bytes(), &20_i32.to_be_bytes()] {
                input.push(value.len() as u8);
                input.extend_from_slice(value);
            }
            add("facade", &format!("{name}_{}", table.name()), input);
        }
    }
    let child =
        |name: &str| format!("INSERT INTO shunt.locks (name, owner) VALUES ('{name}', 'o') IF NOT EXISTS USING TTL 5");
    let batch = format!("BEGIN BATCH {}; {}; APPLY BATCH", child("a"), child("b"));
    add("facade", "batch", batch.into_bytes());
    add("facade", "truncate", b"TRUNCATE TABLE shunt.locks".to_vec());
}
