//! Plans of statements: names are looked up, terms are checked, and unsupported clauses refused.

use shunt_language::ast::{Describe, Mutation, QualifiedName, Statement};
use shunt_language::terms::Scope;
use shunt_language::{CqlType, Parsed};

use crate::bindings::now_ms;
use crate::changes::{Change, plan_delete, plan_update};
use crate::fault::Fault;
use crate::limits::MARKERS_MAX;
use crate::select::{Select, at_most, plan_select};
use crate::tables::{self, KEYSPACES, Table};

/// A bind marker.
#[derive(Clone, Debug)]
pub(crate) struct Marker {
    /// Name in the statement, or the column that it is for.
    pub(crate) name: String,
    pub(crate) cql_type: CqlType,
}

/// A statement with its markers.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) action: Action,
    pub(crate) markers: Vec<Marker>,
}

/// The action of a statement.
#[derive(Debug)]
pub(crate) enum Action {
    /// `SELECT`
    Select(Select),
    /// `UPDATE` or `DELETE`
    Change(Change),
    /// `USE`
    Use(String),
    /// `DESCRIBE`
    Describe(Describe),
}

/// Reads a statement of a client that uses the keyspace `session`.
///
/// # Errors
/// The text is no CQL, or not offered here.
pub(crate) fn read(text: &str, session: Option<&str>) -> Result<Plan, Fault> {
    let Parsed { statement, markers } = shunt_language::parse(text)?;
    at_most(markers.len(), MARKERS_MAX, "bind markers")?;
    let mut scope = Scope::new(&(), None, now_ms(), markers.len());
    let action = match statement {
        Statement::Select(select) => Action::Select(plan_select(&select, session, &mut scope)?),
        Statement::Mutation(Mutation::Update(update)) => {
            Action::Change(plan_update(&update, session, &mut scope)?)
        }
        Statement::Mutation(Mutation::Delete(delete)) => {
            Action::Change(plan_delete(&delete, session, &mut scope)?)
        }
        Statement::Use(keyspace) => Action::Use(known_keyspace(keyspace)?),
        Statement::Describe(describe) => Action::Describe(describe),
        Statement::Truncate(_) => {
            return Err(refused(
                "TRUNCATE is",
                "DELETE FROM client_groups WHERE .. closes clients",
            ));
        }
        Statement::Mutation(_) | Statement::Batch(_) => {
            return Err(refused("INSERT and BATCH are", "UPDATE settings changes an option"));
        }
        Statement::Schema(_) => {
            return Err(refused("changes of the schema are", "the tables are fixed"));
        }
        Statement::Access(_) => {
            return Err(refused(
                "roles and permissions are",
                "admin_token_file of the proxy has the passwords",
            ));
        }
    };
    let markers = markers.into_iter().zip(scope.markers).map(|(name, receiver)| {
        let (column, cql_type) =
            receiver.ok_or_else(|| Fault::invalid("a marker stands where none is allowed"))?;
        Ok(Marker { name: name.unwrap_or(column), cql_type })
    });
    Ok(Plan { action, markers: markers.collect::<Result<_, Fault>>()? })
}

fn refused(what: &str, instead: &str) -> Fault {
    Fault::invalid(format!("{what} not offered at the admin address: {instead}"))
}

fn known_keyspace(name: String) -> Result<String, Fault> {
    if KEYSPACES.contains(&name.as_str()) {
        return Ok(name);
    }
    Err(Fault::invalid(format!("Keyspace '{name}' does not exist")))
}

/// The table of a name.
pub(crate) fn table(name: &QualifiedName, session: Option<&str>) -> Result<&'static Table, Fault> {
    let keyspace = name.keyspace.as_deref().or(session).ok_or_else(|| {
        let name = &name.name;
        Fault::invalid(format!(
            "No keyspace has been specified. USE a keyspace, or explicitly specify \
             keyspace.tablename, as in {}.{name}",
            tables::KEYSPACE
        ))
    })?;
    tables::find(keyspace, &name.name)
}
