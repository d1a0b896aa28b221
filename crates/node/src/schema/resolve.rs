//! Lookup of types, keyspaces and tables in a schema.

use std::sync::Arc;

use shunt_language::ast::QualifiedName;
use shunt_language::types::{CqlType, TypeLookup, UserType};

use super::{Schema, Table};
use crate::error::CqlError;

/// User-defined types as a statement on a keyspace sees them.
pub(crate) struct Types<'s> {
    pub(crate) schema: &'s Schema,
    pub(crate) keyspace: Option<&'s str>,
}

impl TypeLookup for Types<'_> {
    fn keyspace(&self) -> Option<&str> {
        self.keyspace
    }

    fn user_type(&self, keyspace: &str, name: &str) -> Option<Arc<UserType>> {
        self.schema.keyspace(keyspace)?.types.get(name).cloned()
    }
}

/// Keyspace of a name: its own, or the session's.
pub(crate) fn keyspace_of<'n>(
    name: &'n QualifiedName,
    session: Option<&'n str>,
) -> Result<&'n str, CqlError> {
    let found = name.keyspace.as_deref().or(session);
    found.ok_or_else(|| {
        CqlError::invalid(
            "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename".to_owned(),
        )
    })
}

impl Schema {
    /// The table a statement names.
    pub(crate) fn find_table(
        &self,
        name: &QualifiedName,
        session: Option<&str>,
    ) -> Result<Arc<Table>, CqlError> {
        let keyspace = keyspace_of(name, session)?;
        let Some(found) = self.keyspace(keyspace) else {
            return Err(CqlError::Invalid(format!("keyspace {keyspace} does not exist")));
        };
        let table = found.tables.get(&name.name).cloned();
        table.ok_or_else(|| CqlError::Invalid(format!("table {} does not exist", name.name)))
    }
}

/// True if `name` of `keyspace` occurs in a type.
pub(crate) fn mentions(cql_type: &CqlType, keyspace: &str, name: &str) -> bool {
    match cql_type {
        CqlType::List { element, .. }
        | CqlType::Set { element, .. }
        | CqlType::Vector { element, .. } => mentions(element, keyspace, name),
        CqlType::Map { key, value, .. } => {
            mentions(key, keyspace, name) || mentions(value, keyspace, name)
        }
        CqlType::Tuple(elements) => {
            elements.iter().any(|element| mentions(element, keyspace, name))
        }
        CqlType::Udt { definition, .. } => {
            definition.keyspace == keyspace && definition.name == name
                || definition.fields.iter().any(|(_, field)| mentions(field, keyspace, name))
        }
        CqlType::Native(_) | CqlType::Custom(_) => false,
    }
}

/// The type with tuples in place of user-defined types, the form in which dropped columns are
/// stored.
pub(crate) fn without_udts(cql_type: &CqlType) -> CqlType {
    let inner = |inner: &Arc<CqlType>| Arc::new(without_udts(inner));
    match cql_type {
        CqlType::List { element, frozen } => {
            CqlType::List { element: inner(element), frozen: *frozen }
        }
        CqlType::Set { element, frozen } => {
            CqlType::Set { element: inner(element), frozen: *frozen }
        }
        CqlType::Map { key, value, frozen } => {
            CqlType::Map { key: inner(key), value: inner(value), frozen: *frozen }
        }
        CqlType::Tuple(elements) => CqlType::Tuple(elements.iter().map(without_udts).collect()),
        CqlType::Vector { element, dimension } => {
            CqlType::Vector { element: inner(element), dimension: *dimension }
        }
        CqlType::Udt { definition, .. } => CqlType::Tuple(
            definition.fields.iter().map(|(_, field)| without_udts(field).freeze()).collect(),
        ),
        CqlType::Native(_) | CqlType::Custom(_) => cql_type.clone(),
    }
}

/// The type with `changed` replacing the user-defined type of its name.
pub(crate) fn replace(cql_type: &CqlType, changed: &Arc<UserType>) -> CqlType {
    let inner = |inner: &Arc<CqlType>| Arc::new(replace(inner, changed));
    match cql_type {
        CqlType::List { element, frozen } => {
            CqlType::List { element: inner(element), frozen: *frozen }
        }
        CqlType::Set { element, frozen } => {
            CqlType::Set { element: inner(element), frozen: *frozen }
        }
        CqlType::Map { key, value, frozen } => {
            CqlType::Map { key: inner(key), value: inner(value), frozen: *frozen }
        }
        CqlType::Tuple(elements) => {
            CqlType::Tuple(elements.iter().map(|element| replace(element, changed)).collect())
        }
        CqlType::Vector { element, dimension } => {
            CqlType::Vector { element: inner(element), dimension: *dimension }
        }
        CqlType::Udt { definition, frozen } => {
            let new = if definition.keyspace == changed.keyspace && definition.name == changed.name
            {
                let own = CqlType::Udt { definition: Arc::clone(changed), frozen: *frozen };
                return if *frozen { own.freeze() } else { own };
            } else {
                let fields = definition.fields.iter();
                UserType {
                    keyspace: definition.keyspace.clone(),
                    name: definition.name.clone(),
                    fields: fields
                        .map(|(name, field)| (name.clone(), replace(field, changed)))
                        .collect(),
                }
            };
            CqlType::Udt { definition: Arc::new(new), frozen: *frozen }
        }
        CqlType::Native(_) | CqlType::Custom(_) => cql_type.clone(),
    }
}
