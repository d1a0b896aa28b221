//! Reads modes and rules before the first client is served, so that no write bypasses transactions
//! or a rule.
//!
//! This read is the last slow step before the cores: each core compares the time of the
//! question with its own clock, and serves no table by an answer that is too old
//! ([`InitialModes::doubt`]).

use std::time::Duration;

use shunt_reactor::boot_clock_ns;
use shunt_transactions::catalogue::modes::{self as routed, InitialModes, TableModes};
use shunt_transactions::catalogue::rules;
use shunt_wire::cql::message::{Consistency, error_code};
use tracing::warn;

use super::connection::Connection;
use super::error::ControlError;
use super::tables::{self, Row};
use crate::fault::is_right_missing;

/// Reads modes and rules at `quorum`, which meets the writes of a fleet of an unknown level. If
/// only one replica answers, or none, or if the node denies a table or the right to read it, the
/// modes are in doubt, and no table is served by them.
///
/// # Errors
/// The connection is of no more use. An ERROR of the node is none of these.
pub(super) async fn read(
    connection: &mut Connection,
    quorum: Consistency,
    limit: Duration,
) -> Result<InitialModes, ControlError> {
    let (asked_ns, mut modes) = (boot_clock_ns(), TableModes::default());
    let of_modes =
        read_own(connection, routed::QUESTION, "shunt_meta.transactional", quorum, limit).await?;
    let of_rules = read_own(connection, rules::QUESTION, "shunt.guards", quorum, limit).await?;
    if of_modes.is_in_doubt || of_rules.is_in_doubt {
        modes.set_in_doubt();
    }
    for row in &of_modes.rows {
        if let (Some(keyspace), Some(table), Some(mode)) =
            (row.text("keyspace_name"), row.text("table_name"), row.text("mode"))
        {
            modes.add(keyspace, table, mode);
        }
    }
    for row in &of_rules.rows {
        let Some(table_name) = row.text("table_name") else { continue };
        let is_fast = row.bytes("fast") == Some(&[1]);
        modes.rules.add(&rules::Row {
            table_name,
            lock: row.text("lock"),
            is_fast,
            mode: row.text("mode"),
        });
    }
    Ok(InitialModes { modes, asked_ns })
}

/// Rows of one of the fleet's own tables.
struct OwnRows {
    rows: Vec<Row>,
    /// True if no quorum answered: these are one replica's rows, or none.
    is_in_doubt: bool,
}

/// Reads one of the fleet's own tables. If no quorum answers, the proxy begins with one replica's
/// answer, and without any if no replica answers: the cores read again at the fleet's level, which
/// is not known here.
async fn read_own(
    connection: &mut Connection,
    question: &str,
    table: &str,
    quorum: Consistency,
    limit: Duration,
) -> Result<OwnRows, ControlError> {
    // A fleet of an older version, or none yet, has no such table; a role may lack the right to
    // read it. The cores ask the other nodes.
    let may_have_rows = |error: &ControlError| match error {
        ControlError::Node { code, message } => {
            *code != error_code::INVALID && !is_right_missing(*code, message)
        }
        // The answer may still come, and would be taken for that to the next question.
        _ => false,
    };
    let (mut read, mut is_in_doubt) =
        (tables::read_at(connection, question, quorum, limit).await, false);
    if read.as_ref().is_err_and(may_have_rows) {
        (read, is_in_doubt) =
            (tables::read_at(connection, question, Consistency::ONE, limit).await, true);
    }
    match read {
        Ok(rows) => Ok(OwnRows { rows, is_in_doubt }),
        Err(error) if !matches!(error, ControlError::Node { .. }) => Err(error),
        Err(error) if may_have_rows(&error) => {
            warn!(%error, "no replica of {table} answers");
            Ok(OwnRows { rows: Vec::new(), is_in_doubt })
        }
        Err(error) => {
            if let ControlError::Node { code: error_code::UNAUTHORIZED, message: why } = &error {
                warn!(why, "a node says that this proxy's role may not read {table}");
            }
            // The node may have missed the schema, or a GRANT.
            Ok(OwnRows { rows: Vec::new(), is_in_doubt: true })
        }
    }
}
