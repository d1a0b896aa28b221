//! What `shunt fleet` does: makes a fleet's tables and first row, and shows its rows.

use std::time::{Duration, Instant};

use shunt_fleet::schema::{self, Replication};
use shunt_fleet::{Consistencies, NewFleet, Outcome, Statement};
use shunt_wire::cql::message::Consistency;

use super::{answer, carry};
use crate::control::client::{Client, Failed, Table};

/// How long nodes may take to agree on the schema after a change of it.
const AGREEMENT_MAX: Duration = Duration::from_secs(30);
const AGREEMENT_PAUSE: Duration = Duration::from_millis(100);

/// Makes the tables, as far as they are not there, and the fleet's row. `false`: the row was there and is left as it is.
///
/// # Errors
/// A node refused a statement, or the nodes did not agree on the schema in time.
pub fn found(client: &mut Client, name: &str, row: NewFleet, replication: &Replication) -> Result<bool, Failed> {
    let keyspaces =
        [schema::META_KEYSPACE, schema::FACADE_KEYSPACE].map(|keyspace| schema::create_keyspace(keyspace, replication));
    let tables = schema::META_TABLES.into_iter().chain(schema::FACADE_TABLES).map(str::to_owned);
    for text in keyspaces.into_iter().chain(tables) {
        client.query(&text, &[], Consistency::QUORUM, None)?;
        agree(client)?;
    }
    let level = row.level;
    let statement = Statement::Found(row);
    Ok(matches!(ask(client, name, &statement, &statement.consistencies(level))?, Outcome::Applied))
}

/// The outcome of a statement on the fleet's tables.
///
/// # Errors
/// A node refused it, or did not answer.
pub fn ask(client: &mut Client, name: &str, statement: &Statement, levels: &Consistencies) -> Result<Outcome, Failed> {
    let values: Vec<Option<Vec<u8>>> = statement
        .values(name)
        .into_iter()
        .map(|value| {
            let mut bytes = Vec::new();
            carry::encode(value, &mut bytes);
            Some(bytes)
        })
        .collect();
    let (consistency, serial) = (carry::consistency(levels.consistency), levels.serial.map(carry::consistency));
    let table = client.query(statement.text(), &values, consistency, serial)?;
    Ok(answer::of_table(statement, &table))
}

/// Waits until all nodes have the same schema.
fn agree(client: &mut Client) -> Result<(), Failed> {
    let began = Instant::now();
    loop {
        let local = client.query("SELECT schema_version FROM system.local", &[], Consistency::ONE, None)?;
        let peers = client.query("SELECT schema_version FROM system.peers", &[], Consistency::ONE, None)?;
        let version = |table: &Table, row| table.get(row, "schema_version").map(<[u8]>::to_vec);
        let mine = version(&local, 0);
        if (0..peers.rows.len()).all(|row| version(&peers, row).is_none_or(|other| Some(other) == mine)) {
            return Ok(());
        }
        if began.elapsed() > AGREEMENT_MAX {
            let message = "the nodes do not agree on the schema; is one of them down?".to_owned();
            return Err(Failed { code: None, message });
        }
        client.pause(AGREEMENT_PAUSE);
    }
}
