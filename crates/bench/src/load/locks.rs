//! The kinds of locks that a load can take, and their CQL statements.

use clap::ValueEnum;

use crate::load::{args::LoadArgs, template::Statement};

/// Bytes of a lock's name: decimal digits.
pub(super) const NAME_BYTES: usize = 10;
/// Bytes of an owner: decimal digits.
pub(super) const OWNER_BYTES: usize = 10;
/// Number of names with this many digits.
const NAMES_MAX: u64 = 10u64.pow(NAME_BYTES as u32);
/// Least difference between the TTL and the wait.
const AFTER_WAIT_MS: u64 = 1000;

/// The implementation of locks.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum LockKind {
    /// `shunt.fast_locks`.
    Fast,
    /// `shunt.locks`.
    Durable,
    /// A separate table, with Cassandra's lightweight transactions.
    Lwt,
    /// Redis.
    Redis,
    /// etcd 3.
    Etcd,
}

/// Servers that do not speak CQL.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Foreign {
    Redis,
    Etcd,
}

/// Options of a load of locks.
#[derive(Clone, Copy, Debug)]
pub struct LockOptions {
    /// The implementation.
    pub kind: LockKind,
    /// Time to live of the locks.
    pub ttl_seconds: u32,
    /// Longest wait for a lock; `None` does not wait.
    pub wait_ms: Option<u32>,
}

impl LockOptions {
    /// Reads the options of the command line; `None` without `--locks`.
    pub(super) fn from_args(args: &LoadArgs) -> Result<Option<Self>, String> {
        let Some(kind) = args.locks else { return Ok(None) };
        let at_once = u64::from(args.connections) * u64::from(args.outstanding);
        let in_proxy = matches!(kind, LockKind::Fast | LockKind::Durable);
        let foreign = matches!(kind, LockKind::Redis | LockKind::Etcd);
        if args.keys > NAMES_MAX {
            return Err(format!("--keys {}: there are {NAMES_MAX} names of locks", args.keys));
        }
        match args.lock_wait_ms {
            Some(_) if !in_proxy => {
                return Err("--lock-wait-ms is for --locks fast and durable".into());
            }
            Some(wait) if u64::from(wait) + AFTER_WAIT_MS >= u64::from(args.lock_ttl) * 1000 => {
                return Err(format!(
                    "--lock-ttl must be more than {AFTER_WAIT_MS} ms longer than --lock-wait-ms {wait}"
                ));
            }
            None if args.keys < at_once => {
                return Err(format!(
                    "{at_once} stream ids need as many --keys, so that none waits for another's lock"
                ));
            }
            _ => {}
        }
        if foreign && args.outstanding != 1 {
            return Err("--locks redis and etcd take --outstanding 1".into());
        }
        if args.create && kind != LockKind::Lwt {
            return Err("--create is for the table of --locks lwt".into());
        }
        Ok(Some(Self { kind, ttl_seconds: args.lock_ttl, wait_ms: args.lock_wait_ms }))
    }

    /// Returns the server's protocol if it is not CQL.
    #[inline]
    pub(super) fn foreign(&self) -> Option<Foreign> {
        match self.kind {
            LockKind::Redis => Some(Foreign::Redis),
            LockKind::Etcd => Some(Foreign::Etcd),
            LockKind::Fast | LockKind::Durable | LockKind::Lwt => None,
        }
    }

    /// Returns the text of a statement.
    pub(super) fn text(&self, statement: Statement, own_table: &str) -> String {
        let table = match self.kind {
            LockKind::Fast => "shunt.fast_locks",
            LockKind::Durable => "shunt.locks",
            _ => own_table,
        };
        if statement == Statement::RELEASE {
            return format!("DELETE FROM {table} WHERE name = ? IF owner = ?");
        }
        let (column, value) =
            self.wait_ms.map_or_else(Default::default, |wait| (", wait_ms", format!(", {wait}")));
        let ttl = self.ttl_seconds;
        format!(
            "INSERT INTO {table} (name, owner{column}) VALUES (?, ?{value}) IF NOT EXISTS USING TTL {ttl}"
        )
    }
}

/// Returns the statement that creates the table of `--locks lwt`.
pub(super) fn creation(table: &str) -> String {
    format!("CREATE TABLE IF NOT EXISTS {table} (name text PRIMARY KEY, owner text)")
}

/// Returns the owner number of a connection's stream id.
#[inline]
pub(super) fn owner_of(connection: usize, outstanding: u32, stream: u16) -> u64 {
    connection as u64 * u64::from(outstanding) + u64::from(stream)
}

#[cfg(test)]
mod tests {
    use super::{LockKind, LockOptions};
    use crate::load::template::Statement;

    #[test]
    fn statements_of_each_kind() {
        let mut locks = LockOptions { kind: LockKind::Fast, ttl_seconds: 30, wait_ms: None };
        let take =
            "INSERT INTO shunt.fast_locks (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL 30";
        assert_eq!(locks.text(Statement::ACQUIRE, "bench.locks"), take);
        locks.wait_ms = Some(1500);
        let wait = "INSERT INTO shunt.fast_locks (name, owner, wait_ms) VALUES (?, ?, 1500) IF NOT EXISTS USING TTL 30";
        assert_eq!(locks.text(Statement::ACQUIRE, "bench.locks"), wait);
        locks.kind = LockKind::Durable;
        assert_eq!(
            locks.text(Statement::RELEASE, "bench.locks"),
            "DELETE FROM shunt.locks WHERE name = ? IF owner = ?"
        );
        locks = LockOptions { kind: LockKind::Lwt, ttl_seconds: 9, wait_ms: None };
        let take = "INSERT INTO bench.locks (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL 9";
        assert_eq!(locks.text(Statement::ACQUIRE, "bench.locks"), take);
    }
}
