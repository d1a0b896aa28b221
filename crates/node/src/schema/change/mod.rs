//! Statements that change the schema: each returns a new schema, and the change for answer and
//! event.

mod index;
mod keyspace;
mod table;
mod types;

use shunt_language::ast::{Drop, DropKind, SchemaStatement};
use shunt_wire::cql::message::SchemaChange;

use super::resolve::keyspace_of;
use super::{Schema, Uuid};
use crate::error::CqlError;

/// A change and its object, for RESULT and EVENT (native protocol, section 4.2.6).
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Change {
    /// `CREATED`, `UPDATED` or `DROPPED`.
    pub(crate) kind: &'static str,
    pub(crate) keyspace: String,
    pub(crate) object: Object,
}

/// Object of a change.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Object {
    Keyspace,
    Table(String),
    Type(String),
}

impl Change {
    /// The change in the protocol's form.
    pub(crate) fn in_protocol(&self) -> SchemaChange<'_> {
        let (target, name) = match &self.object {
            Object::Keyspace => ("KEYSPACE", None),
            Object::Table(name) => ("TABLE", Some(name.as_str())),
            Object::Type(name) => ("TYPE", Some(name.as_str())),
        };
        let (change, keyspace) = (self.kind, self.keyspace.as_str());
        SchemaChange { change, target, keyspace, name, arguments: None }
    }
}

/// Inputs of a change besides the schema: new ids, the time, and the datacentres.
pub(crate) struct Moment<'a> {
    /// Id of a newly created table.
    pub(crate) table_id: Uuid,
    /// Version of the new schema.
    pub(crate) version: Uuid,
    /// Microseconds since 1970.
    pub(crate) now_us: i64,
    /// Datacentres that can have replicas.
    pub(crate) datacentres: &'a [&'a str],
}

/// Outcome of a statement: the new schema and the change; `None` if an `IF [NOT] EXISTS` left
/// everything unchanged.
pub(crate) type Outcome = Result<Option<(Schema, Change)>, CqlError>;

/// Keyspaces that no statement changes.
pub(crate) const SYSTEM_KEYSPACES: [&str; 5] =
    ["system", "system_schema", "system_traces", "system_views", "system_virtual_schema"];

impl Schema {
    /// Carries out a statement.
    pub(crate) fn change(
        &self,
        statement: &SchemaStatement,
        session: Option<&str>,
        moment: &Moment<'_>,
    ) -> Outcome {
        let outcome = match statement {
            SchemaStatement::CreateKeyspace { name, if_not_exists, properties } => {
                self.create_keyspace(name, *if_not_exists, properties, moment)
            }
            SchemaStatement::AlterKeyspace { name, if_exists, properties } => {
                self.alter_keyspace(name, *if_exists, properties, moment)
            }
            SchemaStatement::CreateTable(create) => self.create_table(create, session, moment),
            SchemaStatement::AlterTable(alter) => self.alter_table(alter, session, moment),
            SchemaStatement::CreateType { name, if_not_exists, fields } => {
                self.create_type(name, *if_not_exists, fields, session)
            }
            SchemaStatement::AlterType(alter) => self.alter_type(alter, session),
            SchemaStatement::CreateIndex(create) => self.create_index(create, session),
            SchemaStatement::Drop(drop) => self.drop_object(drop, session),
            other => {
                Err(CqlError::Invalid(format!("{} not supported by this node", feature(other))))
            }
        };
        Ok(outcome?.map(|(schema, change)| {
            (Schema { version: moment.version, number: self.number + 1, ..schema }, change)
        }))
    }

    /// Returns the changes implied by a change of this schema, itself last: with a keyspace, its
    /// whole content.
    pub(crate) fn changes_with(&self, change: Change) -> Vec<Change> {
        let of = |object| Change { kind: change.kind, keyspace: change.keyspace.clone(), object };
        let mut found = Vec::new();
        if (change.kind, &change.object) == ("DROPPED", &Object::Keyspace)
            && let Some(keyspace) = self.keyspace(&change.keyspace)
        {
            found.extend(keyspace.tables.keys().map(|name| of(Object::Table(name.clone()))));
            found.extend(keyspace.types.keys().map(|name| of(Object::Type(name.clone()))));
        }
        found.push(change);
        found
    }

    fn drop_object(&self, drop: &Drop, session: Option<&str>) -> Outcome {
        match drop.kind {
            DropKind::Keyspace => self.drop_keyspace(&drop.name.name, drop.if_exists),
            DropKind::Table => self.drop_table(&drop.name, drop.if_exists, session),
            DropKind::Type => self.drop_type(&drop.name, drop.if_exists, session),
            DropKind::Index => self.drop_index(&drop.name, drop.if_exists, session),
            _ if drop.if_exists => Ok(None),
            DropKind::View => {
                let keyspace = keyspace_of(&drop.name, session)?;
                Err(CqlError::Invalid(format!(
                    "Materialized view '{keyspace}.{}' doesn't exist",
                    drop.name.name
                )))
            }
            DropKind::Function => {
                Err(CqlError::Invalid(format!("Function '{}' doesn't exist", drop.name.name)))
            }
            DropKind::Aggregate => {
                Err(CqlError::Invalid(format!("Aggregate '{}' doesn't exist", drop.name.name)))
            }
            DropKind::Trigger => {
                Err(CqlError::Invalid(format!("Trigger '{}' doesn't exist", drop.name.name)))
            }
        }
    }
}

/// Names a feature that a node lacks.
fn feature(statement: &SchemaStatement) -> &'static str {
    match statement {
        SchemaStatement::CreateView(_) | SchemaStatement::AlterView { .. } => {
            "Materialized views are"
        }
        SchemaStatement::CreateFunction(_) => "User-defined functions are",
        SchemaStatement::CreateAggregate(_) => "User-defined aggregates are",
        SchemaStatement::CreateTrigger { .. } => "Triggers are",
        _ => "This statement is",
    }
}

/// Refuses changes to the node's own keyspaces.
pub(super) fn changeable(keyspace: &str) -> Result<(), CqlError> {
    if SYSTEM_KEYSPACES.contains(&keyspace) {
        return Err(CqlError::Unauthorized(format!("{keyspace} keyspace is not user-modifiable.")));
    }
    Ok(())
}

/// Most characters of a keyspace's name.
const KEYSPACE_NAME_MAX: usize = 48;
/// Most characters of a table's name: Cassandra forms a directory from it and an id. Names of types
/// form no directory, but occur in every description of a column.
const NAME_MAX: usize = 222;

/// True if Cassandra could use a name as a directory.
fn is_word(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn check_keyspace_name(name: &str) -> Result<(), CqlError> {
    if is_word(name) && name.len() <= KEYSPACE_NAME_MAX {
        return Ok(());
    }
    Err(CqlError::Invalid(format!(
        "Keyspace name must not be empty, more than {KEYSPACE_NAME_MAX} characters long, or contain \
         non-alphanumeric-underscore characters (got '{name}')"
    )))
}

fn check_table_name(keyspace: &str, name: &str) -> Result<(), CqlError> {
    let message = match name.len() {
        _ if !is_word(name) => {
            format!(
                "must not be empty or not contain non-alphanumeric-underscore characters (got \"{name}\")"
            )
        }
        characters if characters > NAME_MAX => {
            format!(
                "must not be more than {NAME_MAX} characters long (got {characters} characters for \"{name}\")"
            )
        }
        _ => return Ok(()),
    };
    Err(CqlError::Config(format!("{keyspace}.{name}: Table name {message}")))
}

fn check_type_name(name: &str) -> Result<(), CqlError> {
    if is_word(name) && name.len() <= NAME_MAX {
        return Ok(());
    }
    Err(CqlError::Invalid(format!(
        "Type name must not be empty, more than {NAME_MAX} characters long, or contain non-alphanumeric-underscore \
         characters (got \"{name}\")"
    )))
}
