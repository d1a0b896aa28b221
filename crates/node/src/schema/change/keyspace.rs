//! CREATE, ALTER and DROP KEYSPACE.

use std::collections::BTreeMap;
use std::sync::Arc;

use shunt_language::ast::{Properties, PropertyValue};

use super::{Change, Moment, Object, Outcome, changeable, check_keyspace_name};
use crate::error::CqlError;
use crate::schema::{Durability, Keyspace, Schema};

impl Schema {
    pub(super) fn create_keyspace(
        &self,
        name: &str,
        if_not_exists: bool,
        properties: &Properties,
        moment: &Moment<'_>,
    ) -> Outcome {
        check_keyspace_name(name)?;
        changeable(name)?;
        if self.keyspaces.contains_key(name) {
            let error = CqlError::AlreadyExists { keyspace: name.to_owned(), table: String::new() };
            return if if_not_exists { Ok(None) } else { Err(error) };
        }
        let mut keyspace = Keyspace {
            name: name.to_owned(),
            durable_writes: true,
            replication: BTreeMap::new(),
            durability: Durability::Batch,
            tables: BTreeMap::new(),
            types: BTreeMap::new(),
        };
        set_properties(&mut keyspace, properties, moment)?;
        if keyspace.replication.is_empty() {
            return Err(CqlError::Config(
                "Missing mandatory replication strategy class".to_owned(),
            ));
        }
        Ok(Some((self.with_keyspace(keyspace), changed("CREATED", name))))
    }

    pub(super) fn alter_keyspace(
        &self,
        name: &str,
        if_exists: bool,
        properties: &Properties,
        moment: &Moment<'_>,
    ) -> Outcome {
        changeable(name)?;
        let Some(old) = self.keyspaces.get(name) else {
            let error = CqlError::Invalid(format!("Keyspace '{name}' doesn't exist"));
            return if if_exists { Ok(None) } else { Err(error) };
        };
        let mut keyspace = Keyspace::clone(old);
        set_properties(&mut keyspace, properties, moment)?;
        Ok(Some((self.with_keyspace(keyspace), changed("UPDATED", name))))
    }

    pub(super) fn drop_keyspace(&self, name: &str, if_exists: bool) -> Outcome {
        changeable(name)?;
        if !self.keyspaces.contains_key(name) {
            let error = CqlError::Invalid(format!("Keyspace '{name}' doesn't exist"));
            return if if_exists { Ok(None) } else { Err(error) };
        }
        let mut schema = self.clone();
        schema.keyspaces.remove(name);
        Ok(Some((schema, changed("DROPPED", name))))
    }

    /// The schema with this keyspace replacing the one of its name.
    pub(super) fn with_keyspace(&self, keyspace: Keyspace) -> Schema {
        let mut schema = self.clone();
        schema.keyspaces.insert(keyspace.name.clone(), Arc::new(keyspace));
        schema
    }

    /// A copy of a keyspace, to be changed.
    pub(super) fn keyspace_to_change(&self, name: &str) -> Result<Keyspace, CqlError> {
        changeable(name)?;
        let found = self.keyspaces.get(name).map(|keyspace| Keyspace::clone(keyspace));
        found.ok_or_else(|| CqlError::Invalid(format!("Keyspace '{name}' doesn't exist")))
    }
}

fn changed(kind: &'static str, keyspace: &str) -> Change {
    Change { kind, keyspace: keyspace.to_owned(), object: Object::Keyspace }
}

fn set_properties(
    keyspace: &mut Keyspace,
    properties: &Properties,
    moment: &Moment<'_>,
) -> Result<(), CqlError> {
    // `durability` overrides `durable_writes`, wherever it stands.
    let in_order = properties.iter().filter(|(name, _)| name != "durability");
    for (name, value) in in_order.chain(properties.iter().filter(|(name, _)| name == "durability"))
    {
        match (name.as_str(), value) {
            ("replication", PropertyValue::Map(map)) => {
                keyspace.replication = replication(&keyspace.name, map, moment.datacentres)?;
            }
            ("durable_writes", PropertyValue::Constant(_, text)) => {
                match text.to_ascii_lowercase().as_str() {
                    "true" => keyspace.set_durable_writes(true),
                    "false" => keyspace.set_durable_writes(false),
                    other => {
                        let message = format!("Invalid boolean value {other} for 'durable_writes'");
                        return Err(CqlError::Syntax(message));
                    }
                }
            }
            ("durability", PropertyValue::Constant(_, text)) => {
                match text.to_ascii_lowercase().as_str() {
                    "batch" => keyspace.durability = Durability::Batch,
                    "periodic" => keyspace.durability = Durability::Periodic,
                    other => {
                        return Err(CqlError::Config(format!(
                            "durability is 'batch' or 'periodic', not '{other}'"
                        )));
                    }
                }
            }
            ("replication" | "durable_writes" | "durability", _) => {
                return Err(CqlError::Syntax(format!("Invalid value for property '{name}'")));
            }
            _ => return Err(CqlError::Syntax(format!("Unknown property '{name}'"))),
        }
    }
    Ok(())
}

/// Returns the replication settings in Cassandra's form, with the full class name.
fn replication(
    keyspace: &str,
    given: &[(String, String)],
    datacentres: &[&str],
) -> Result<BTreeMap<String, String>, CqlError> {
    const PACKAGE: &str = "org.apache.cassandra.locator.";
    let mut map: BTreeMap<String, String> = given.iter().cloned().collect();
    let Some(class) = map.get_mut("class") else {
        return Err(CqlError::Config("Missing mandatory replication strategy class".to_owned()));
    };
    let short = class.strip_prefix(PACKAGE).unwrap_or(class).to_owned();
    let knows = |option: &str| match short.as_str() {
        "SimpleStrategy" => option == "replication_factor",
        _ => option == "replication_factor" || datacentres.contains(&option),
    };
    match short.as_str() {
        "SimpleStrategy" | "NetworkTopologyStrategy" => {}
        "LocalStrategy" => {
            let message =
                "Unable to use given strategy class: LocalStrategy is reserved for internal use.";
            return Err(CqlError::invalid(message));
        }
        other => {
            let package = if other.contains('.') { "" } else { PACKAGE };
            return Err(CqlError::Config(format!(
                "Unable to find replication strategy class '{package}{other}'"
            )));
        }
    }
    *class = format!("{PACKAGE}{short}");
    for (name, value) in map.iter().filter(|(name, _)| *name != "class") {
        // A keyspace that accepts no writes must not be created.
        if !knows(name) {
            return Err(CqlError::Config(format!(
                "Unrecognized strategy option {{{name}}} passed to {short} for keyspace {keyspace}"
            )));
        }
        let copies = value.split('/').all(|part| part.parse::<u32>().is_ok());
        if !copies {
            return Err(CqlError::Config(format!(
                "Replication factor must be numeric; found {value} for {name}"
            )));
        }
    }
    if short == "SimpleStrategy" && !map.contains_key("replication_factor") {
        let message = "SimpleStrategy requires a replication_factor strategy option.";
        return Err(CqlError::Config(message.to_owned()));
    }
    Ok(map)
}
