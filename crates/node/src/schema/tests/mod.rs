//! Tests of the schema, and helpers that make schemas for other tests.

#![allow(clippy::unwrap_used, reason = "a test that cannot get what it needs fails")]

mod changes;
mod generate;
mod indexes;
mod options;
mod persist;
mod types;

use shunt_language::ast::Statement;

use super::Schema;
use super::change::{Moment, Outcome};
use crate::error::CqlError;

pub(crate) use generate::{schema_of, statements};

/// Datacentres of the replicas of test keyspaces.
const DATACENTRES: [&str; 5] = ["a", "asia", "datacenter1", "dc", "europe"];

/// Executes one statement. The result depends only on the schema, so that a test can repeat it.
pub(crate) fn carry_out(schema: &Schema, text: &str, session: Option<&str>) -> Outcome {
    let Statement::Schema(statement) =
        shunt_language::parse(text).map_err(CqlError::from)?.statement
    else {
        panic!("{text}: does not change a schema");
    };
    let number = schema.number + 1;
    let mut id = [0; 16];
    id[8..].copy_from_slice(&number.to_be_bytes());
    (id[6], id[8]) = (0x40, 0x80);
    let now_us = 1_700_000_000_000_000 + number as i64;
    let moment = Moment { table_id: id, version: id, now_us, datacentres: &DATACENTRES };
    schema.change(&statement, session, &moment)
}

/// The schema after these statements, each of which must change something.
pub(crate) fn after(schema: &Schema, statements: &[impl AsRef<str>]) -> Schema {
    statements.iter().map(AsRef::as_ref).fold(schema.clone(), |schema, text| {
        match carry_out(&schema, text, Some("k")) {
            Ok(Some((schema, _))) => schema,
            Ok(None) => panic!("{text}: changed nothing"),
            Err(error) => panic!("{text}: {error:?}"),
        }
    })
}
