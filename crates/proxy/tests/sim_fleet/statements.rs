//! Requests of the simulation's clients, and their texts.

use super::witness::Lock;

/// A request.
#[derive(Clone, Debug)]
pub enum Asked {
    Acquire {
        shared: bool,
        ttl_ms: u64,
    },
    Renew {
        shared: bool,
        ttl_ms: u64,
        fence: i64,
    },
    Release {
        fence: i64,
    },
    Look,
    /// The locks, all exclusive.
    Batch {
        ttl_ms: u64,
        locks: Vec<Lock>,
    },
}

/// The statement of an owner. Statements valid on both kinds of tables use those of shared locks if
/// `of_both`.
pub fn text(lock: Lock, asked: &Asked, wait_ms: u64, owner: &str, of_both: bool) -> String {
    let name = name(lock);
    let fast = if lock.fast { "fast_" } else { "" };
    match asked {
        Asked::Acquire { shared, ttl_ms } => {
            let ttl = ttl_ms / 1_000;
            let (wait, waited) = if wait_ms > 0 {
                (", wait_ms", format!(", {wait_ms}"))
            } else {
                ("", String::new())
            };
            match (shared, of_both) {
                (false, false) => format!(
                    "INSERT INTO shunt.{fast}locks (name, owner{wait}) VALUES ('{name}', '{owner}'{waited}) IF NOT EXISTS USING TTL {ttl}"
                ),
                _ => {
                    let mode = if *shared { "S" } else { "X" };
                    format!(
                        "INSERT INTO shunt.{fast}rwlocks (name, owner, mode{wait}) VALUES ('{name}', '{owner}', '{mode}'{waited}) IF NOT EXISTS USING TTL {ttl}"
                    )
                }
            }
        }
        Asked::Renew { shared, ttl_ms, fence } => format!(
            "UPDATE shunt.{fast}rwlocks USING TTL {} SET mode = '{}' WHERE name = '{name}' AND owner = '{owner}' IF fence = {fence}",
            ttl_ms / 1_000,
            if *shared { 'S' } else { 'X' }
        ),
        Asked::Release { fence } if of_both => {
            format!(
                "DELETE FROM shunt.{fast}rwlocks WHERE name = '{name}' AND owner = '{owner}' IF fence = {fence}"
            )
        }
        Asked::Release { fence } => {
            format!(
                "DELETE FROM shunt.{fast}locks WHERE name = '{name}' IF owner = '{owner}' AND fence = {fence}"
            )
        }
        Asked::Look => format!(
            "SELECT owner, fence, ttl_ms, waiters FROM shunt.{fast}locks WHERE name = '{name}'"
        ),
        Asked::Batch { ttl_ms, locks } => {
            let insert = |lock: &Lock| {
                let name = self::name(*lock);
                format!(
                    "INSERT INTO shunt.{fast}locks (name, owner) VALUES ('{name}', '{owner}') IF NOT EXISTS USING TTL {};",
                    ttl_ms / 1_000
                )
            };
            format!("BEGIN BATCH {} APPLY BATCH", locks.iter().map(insert).collect::<String>())
        }
    }
}

fn name(lock: Lock) -> String {
    format!("{}{}", if lock.fast { "f" } else { "d" }, lock.number)
}

/// The lock with this name.
pub fn lock_of(name: &[u8]) -> Lock {
    let number = std::str::from_utf8(&name[1..]).expect("text").parse().expect("a number");
    Lock { fast: name[0] == b'f', number }
}
