//! The work of `shunt fleet`: makes a fleet's tables and first row, and shows its rows.

use std::time::{Duration, Instant};

use shunt_fleet::schema::{self, Replication};
use shunt_fleet::{Consistencies, NewFleet, Outcome, Statement};
use shunt_wire::cql::message::{Consistency, error_code};

use super::{answer, effects};
use crate::control::client::{Client, Failed, Table};

/// Time for nodes to agree on a schema after a change.
const AGREEMENT_MAX: Duration = Duration::from_secs(30);
const AGREEMENT_PAUSE: Duration = Duration::from_millis(100);
/// Time for which a statement with an unknown outcome is repeated, and the pause before each
/// attempt.
pub const DOUBT_MAX: Duration = Duration::from_secs(30);
const DOUBT_PAUSE: Duration = Duration::from_millis(200);

/// Result of [`found`]: the tables that it created, and those that existed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Founded {
    /// True if the fleet's row was created; an existing one is not changed.
    pub is_new: bool,
    /// Tables that were created, with their keyspaces.
    pub made: Vec<String>,
    /// Tables that existed.
    pub were_there: Vec<String>,
}

/// Creates the missing tables, and the fleet's row.
///
/// # Errors
/// A node refused a statement, or the nodes did not agree on the schema in time.
pub fn found(
    client: &mut Client,
    name: &str,
    row: NewFleet,
    replication: &Replication,
) -> Result<Founded, Failed> {
    let mut founded = Founded::default();
    let keyspaces = [schema::META_KEYSPACE, schema::LOCKS_KEYSPACE]
        .map(|keyspace| schema::create_keyspace(keyspace, replication));
    for table in schema::tables() {
        match look(client, table)? {
            There::Not(table) => founded.made.push(table),
            There::AsMade(table) => founded.were_there.push(table),
            There::Anothers(why) => {
                let message = format!("{why}: {}. Nothing was created", remedy(table));
                return Err(Failed { code: Some(error_code::INVALID), message });
            }
        }
    }
    for text in keyspaces.into_iter().chain(schema::tables().map(str::to_owned)) {
        client.query(&text, &[], Consistency::QUORUM, None)?;
        agree(client)?;
    }
    let level = row.level;
    let statement = Statement::Found(row.clone());
    let levels = statement.consistencies(level);
    let (outcome, was_open) = ask_until_known(client, name, &statement, &levels, DOUBT_MAX)?;
    let read = Statement::ReadFleet { serial: true };
    founded.is_new =
        is_made(&row, &outcome, was_open, || ask(client, name, &read, &read.consistencies(level)))?;
    Ok(founded)
}

/// True if the fleet's row was created just now. An attempt whose outcome nodes left open may have
/// created it; then the row is as wanted, and no proxy has changed it.
fn is_made(
    row: &NewFleet,
    outcome: &Outcome,
    was_open: bool,
    there: impl FnOnce() -> Result<Outcome, Failed>,
) -> Result<bool, Failed> {
    if !was_open || *outcome == Outcome::Applied {
        return Ok(*outcome == Outcome::Applied);
    }
    let Outcome::Fleet(Some(there)) = there()? else { return Ok(false) };
    let is_as_wanted = (there.format, there.level, &there.datacentre)
        == (row.format, row.level, &row.datacentre)
        && (there.max_ttl_ms, there.lease_ms) == (row.max_ttl_ms, row.lease_ms);
    Ok(is_as_wanted && there.epoch == 0)
}

/// State of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum There {
    /// There is no table of this name.
    Not(String),
    /// The table exists and has the columns.
    AsMade(String),
    /// The name belongs to a table that differs in this way.
    Anothers(String),
}

/// Advice about a table that has the name of one of [`schema::tables`] and differs from it.
pub fn remedy(statement: &str) -> &'static str {
    match schema::is_in_one_partition(statement) {
        // Dropping the table too early loses all modes or rules.
        true => {
            "an earlier version made it, and its rows count: set every mode to off and delete every rule with the proxies of that version, \
             stop them, drop the table at a node, run `shunt fleet init`, grant the permissions on it again, start the new proxies, and \
             set modes and rules again (docs/upgrading.md)"
        }
        false => "rename it, or drop it if it is not needed",
    }
}

/// Looks for a table of [`schema::tables`].
///
/// # Errors
/// The node refused the question, or did not answer.
pub fn look(client: &mut Client, statement: &str) -> Result<There, Failed> {
    let Some((keyspace, table, columns)) = schema::table_of(statement) else {
        return Ok(There::Not(String::new()));
    };
    let text = format!(
        "SELECT column_name, kind FROM system_schema.columns WHERE keyspace_name = '{keyspace}' AND table_name = '{table}'"
    );
    let found = client.query(&text, &[], Consistency::ONE, None)?;
    let key = schema::partition_key_of(statement);
    let has = |name: &str| {
        (0..found.rows.len()).any(|row| {
            let is_in_key = found.get(row, "kind") == Some(b"partition_key");
            found.get(row, "column_name") == Some(name.as_bytes())
                && is_in_key == key.contains(&name)
        })
    };
    if found.rows.is_empty() {
        return Ok(There::Not(format!("{keyspace}.{table}")));
    }
    Ok(match columns.into_iter().find(|name| !has(name)) {
        None => There::AsMade(format!("{keyspace}.{table}")),
        Some(name) => There::Anothers(format!(
            "the table {keyspace}.{table} has another layout than this version's: it lacks the {} `{name}`",
            if key.contains(&name) { "partition key column" } else { "column" }
        )),
    })
}

/// The replication of a fleet's keyspaces: as `wanted`, or as it is if the fleet exists.
///
/// # Errors
/// There is no fleet, but keyspaces of these names have another replication. Or the node refused
/// the question, or did not answer.
pub fn replication(
    client: &mut Client,
    wanted: &Replication,
    is_there: bool,
) -> Result<Replication, Failed> {
    for keyspace in [schema::META_KEYSPACE, schema::LOCKS_KEYSPACE] {
        let text = format!(
            "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = '{keyspace}'"
        );
        let table = client.query(&text, &[], Consistency::ONE, None)?;
        let Some(map) = table.get(0, "replication") else { continue };
        let found = schema::replication_of(map);
        if is_there && let Some(found) = found {
            return Ok(found);
        }
        if !is_there && found.as_ref() != Some(wanted) {
            let shown = found
                .map_or("replicas that are not understood".to_owned(), |found| found.to_string());
            let message = format!(
                "the keyspace {keyspace} is there already, with {shown}, and {wanted} is asked for: give the options that it was made with, \
                 ALTER it at a node, or drop it if it is left of an attempt. Nothing was made"
            );
            return Err(Failed { code: Some(error_code::INVALID), message });
        }
    }
    Ok(wanted.clone())
}

/// Runs a statement on the fleet's tables.
///
/// # Errors
/// A node refused the statement, or did not answer.
pub fn ask(
    client: &mut Client,
    name: &str,
    statement: &Statement,
    levels: &Consistencies,
) -> Result<Outcome, Failed> {
    let values: Vec<Option<Vec<u8>>> = statement
        .values(name)
        .into_iter()
        .map(|value| {
            let mut bytes = Vec::new();
            effects::encode(value, &mut bytes);
            Some(bytes)
        })
        .collect();
    let (consistency, serial) =
        (effects::consistency(levels.consistency), levels.serial.map(effects::consistency));
    let table = client.query(statement.text(), &values, consistency, serial)?;
    Ok(answer::of_table(statement, &table))
}

/// Runs a conditional statement that may be carried out twice without harm. If nodes leave its
/// outcome open, it is repeated for a limited time, and the second value is true: an earlier
/// attempt may have been applied, even if the last one was not.
///
/// # Errors
/// A node refused the statement, its outcome is still open, or the connection was lost.
pub fn ask_until_known(
    client: &mut Client,
    name: &str,
    statement: &Statement,
    levels: &Consistencies,
    within: Duration,
) -> Result<(Outcome, bool), Failed> {
    let pause = |client: &mut Client| client.pause(DOUBT_PAUSE);
    until_known(client, within, |client| ask(client, name, statement, levels), pause)
}

fn until_known<C>(
    client: &mut C,
    within: Duration,
    attempt: impl Fn(&mut C) -> Result<Outcome, Failed>,
    pause: impl Fn(&mut C),
) -> Result<(Outcome, bool), Failed> {
    let (until, mut was_open) = (Instant::now() + within, false);
    loop {
        match attempt(client) {
            Ok(outcome) => return Ok((outcome, was_open)),
            Err(failed) if is_open(&failed) && Instant::now() < until => was_open = true,
            Err(failed) => return Err(failed),
        }
        pause(client);
    }
}

/// True if a node's error leaves open whether a statement was carried out.
pub fn is_open(failed: &Failed) -> bool {
    matches!(failed.code, Some(error_code::WRITE_TIMEOUT | error_code::CAS_WRITE_UNKNOWN))
}

/// Waits until all nodes have the same schema.
fn agree(client: &mut Client) -> Result<(), Failed> {
    let began = Instant::now();
    loop {
        let local =
            client.query("SELECT schema_version FROM system.local", &[], Consistency::ONE, None)?;
        let peers =
            client.query("SELECT schema_version FROM system.peers", &[], Consistency::ONE, None)?;
        let version = |table: &Table, row| table.get(row, "schema_version").map(<[u8]>::to_vec);
        let mine = version(&local, 0);
        if (0..peers.rows.len())
            .all(|row| version(&peers, row).is_none_or(|other| Some(other) == mine))
        {
            return Ok(());
        }
        if began.elapsed() > AGREEMENT_MAX {
            let message = "the nodes do not agree on the schema; is one of them down?".to_owned();
            return Err(Failed { code: None, message });
        }
        client.pause(AGREEMENT_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use shunt_fleet::{FleetRow, Level, Shards, View};

    use super::*;

    /// The first attempt was applied, and its answer lost.
    #[test]
    fn a_fleet_that_was_made_by_an_attempt_that_was_left_open_is_new() {
        let row = NewFleet {
            format: 1,
            level: Level::Serial,
            datacentre: String::new(),
            max_ttl_ms: 30_000,
            lease_ms: 6_000,
        };
        let there = FleetRow {
            format: 1,
            level: Level::Serial,
            datacentre: String::new(),
            max_ttl_ms: 30_000,
            lease_ms: 6_000,
            epoch: 0,
            view: View::default(),
            ts_floor_us: 0,
            handed_over: Shards::default(),
        };
        let made = |outcome, was_open, there: &FleetRow| {
            is_made(&row, &outcome, was_open, || Ok(Outcome::Fleet(Some(Box::new(there.clone())))))
        };
        assert_eq!(made(Outcome::Applied, true, &there), Ok(true));
        assert_eq!(made(Outcome::NotApplied, false, &there), Ok(false));
        assert_eq!(made(Outcome::NotApplied, true, &there), Ok(true));
        assert_eq!(
            made(Outcome::NotApplied, true, &FleetRow { epoch: 3, ..there.clone() }),
            Ok(false),
            "it is in use"
        );
        assert_eq!(
            made(Outcome::NotApplied, true, &FleetRow { lease_ms: 9_000, ..there }),
            Ok(false),
            "another's"
        );
    }

    #[test]
    fn only_unknown_outcomes_are_asked_again_until_they_are_known() {
        let failed = |code| Err(Failed { code, message: "as the test wants it".to_owned() });
        let timeout = failed(Some(error_code::WRITE_TIMEOUT));
        let run = |answers: &[Result<Outcome, Failed>], within| {
            let mut left = answers.to_vec();
            left.reverse();
            let known = until_known(
                &mut left,
                within,
                |left| left.pop().expect("asked once too often"),
                |_| {},
            );
            (known, left.len())
        };
        let long = Duration::from_secs(3600);
        let known = run(
            &[
                timeout.clone(),
                failed(Some(error_code::CAS_WRITE_UNKNOWN)),
                Ok(Outcome::NotApplied),
            ],
            long,
        );
        assert_eq!(known, (Ok((Outcome::NotApplied, true)), 0));
        assert_eq!(run(&[Ok(Outcome::NotApplied)], long), (Ok((Outcome::NotApplied, false)), 0));
        for code in [None, Some(error_code::UNAVAILABLE), Some(error_code::INVALID)] {
            assert_eq!(
                run(&[failed(code), Ok(Outcome::Applied)], long),
                (failed(code).map(|outcome| (outcome, false)), 1)
            );
        }
        assert_eq!(
            run(&[timeout.clone(), Ok(Outcome::Applied)], Duration::ZERO).1,
            1,
            "the time is over"
        );
    }
}
