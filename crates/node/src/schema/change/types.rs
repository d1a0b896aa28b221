//! CREATE, ALTER and DROP TYPE.

use std::collections::HashSet;
use std::sync::Arc;

use shunt_language::ast::{AlterType, QualifiedName, TypeAlteration, TypeName};
use shunt_language::types::{CqlType, UserType};

use super::{Change, Object, Outcome, check_type_name};
use crate::error::CqlError;
use crate::schema::resolve::{Types, keyspace_of, mentions, replace};
use crate::schema::{Keyspace, Schema, Table};

/// Most fields of one type, as of the columns of a table.
const FIELDS_MAX: usize = 4096;

impl Schema {
    pub(super) fn create_type(
        &self,
        name: &QualifiedName,
        if_not_exists: bool,
        fields: &[(String, TypeName)],
        session: Option<&str>,
    ) -> Outcome {
        let keyspace_name = keyspace_of(name, session)?;
        let mut keyspace = self.keyspace_to_change(keyspace_name)?;
        check_type_name(&name.name)?;
        if keyspace.types.contains_key(&name.name) {
            let error =
                CqlError::Invalid(format!("A user type with name '{}' already exists", name.name));
            return if if_not_exists { Ok(None) } else { Err(error) };
        }
        if fields.len() > FIELDS_MAX {
            return Err(too_many_fields());
        }
        let mut known = HashSet::with_capacity(fields.len());
        let mut resolved: Vec<(String, CqlType)> = Vec::with_capacity(fields.len());
        for (field, type_name) in fields {
            if !known.insert(field) {
                let message = format!("Duplicate field name '{field}' in type '{}'", name.name);
                return Err(CqlError::Invalid(message));
            }
            resolved.push((field.clone(), self.field_type(keyspace_name, type_name)?));
        }
        let definition = UserType {
            keyspace: keyspace_name.to_owned(),
            name: name.name.clone(),
            fields: resolved,
        };
        keyspace.types.insert(name.name.clone(), Arc::new(definition));
        Ok(Some((self.with_keyspace(keyspace), changed("CREATED", keyspace_name, &name.name))))
    }

    /// Type of a field, which must not be a counter nor an unfrozen user-defined type.
    fn field_type(&self, keyspace: &str, type_name: &TypeName) -> Result<CqlType, CqlError> {
        let field = CqlType::resolve(type_name, &Types { schema: self, keyspace: Some(keyspace) })?;
        if field.is_counter() {
            return Err(CqlError::invalid("A user type cannot contain counters"));
        }
        if matches!(field, CqlType::Udt { frozen: false, .. }) {
            return Err(CqlError::invalid("A user type cannot contain non-frozen UDTs"));
        }
        Ok(field)
    }

    pub(super) fn alter_type(&self, alter: &AlterType, session: Option<&str>) -> Outcome {
        let keyspace_name = keyspace_of(&alter.name, session)?;
        let keyspace = self.keyspace_to_change(keyspace_name)?;
        let name = &alter.name.name;
        let Some(old) = keyspace.types.get(name) else {
            let error = CqlError::Invalid(format!("Type {keyspace_name}.{name} doesn't exist"));
            return if alter.if_exists { Ok(None) } else { Err(error) };
        };
        let mut definition = UserType::clone(old);
        match &alter.alteration {
            TypeAlteration::Add { if_not_exists, field, type_name } => {
                if definition.field(field).is_some() {
                    let message = format!(
                        "Cannot add field {field} to type {keyspace_name}.{name}: a field with name {field} already exists"
                    );
                    return if *if_not_exists { Ok(None) } else { Err(CqlError::Invalid(message)) };
                }
                if let Some(table) = in_primary_key(&keyspace, name) {
                    return Err(CqlError::Invalid(format!(
                        "Cannot add new field to type {keyspace_name}.{name} as it is used in the primary key of table \
                         {table}"
                    )));
                }
                if definition.fields.len() >= FIELDS_MAX {
                    return Err(too_many_fields());
                }
                let field_type = self.field_type(keyspace_name, type_name)?;
                if mentions(&field_type, keyspace_name, name) {
                    return Err(CqlError::invalid(
                        "Cannot add a field whose type contains the type itself",
                    ));
                }
                definition.fields.push((field.clone(), field_type));
            }
            TypeAlteration::Rename { if_exists, fields } => {
                rename(&mut definition, *if_exists, fields)?
            }
            TypeAlteration::AlterField(..) => {
                return Err(CqlError::invalid("Altering field types is no longer supported"));
            }
        }
        let definition = Arc::new(definition);
        Ok(Some((
            self.with_keyspace(with_type(&keyspace, &definition)),
            changed("UPDATED", keyspace_name, name),
        )))
    }

    pub(super) fn drop_type(
        &self,
        name: &QualifiedName,
        if_exists: bool,
        session: Option<&str>,
    ) -> Outcome {
        let keyspace_name = keyspace_of(name, session)?;
        let mut keyspace = self.keyspace_to_change(keyspace_name)?;
        let name = &name.name;
        if !keyspace.types.contains_key(name) {
            let error = CqlError::Invalid(format!("Type '{keyspace_name}.{name}' doesn't exist"));
            return if if_exists { Ok(None) } else { Err(error) };
        }
        let in_types = keyspace.types.values().filter(|other| other.name != *name);
        let in_types = in_types.filter(|other| {
            other.fields.iter().any(|(_, field)| mentions(field, keyspace_name, name))
        });
        if let Some(other) = in_types.map(|other| &other.name).next() {
            let message = format!(
                "Cannot drop user type '{keyspace_name}.{name}' as it is still used by user types: {other}"
            );
            return Err(CqlError::Invalid(message));
        }
        let uses = |table: &&Arc<Table>| {
            table.columns.iter().any(|column| mentions(&column.cql_type, keyspace_name, name))
        };
        if let Some(table) = keyspace.tables.values().find(uses) {
            let message = format!(
                "Cannot drop user type '{keyspace_name}.{name}' as it is still used by tables: {}",
                table.name
            );
            return Err(CqlError::Invalid(message));
        }
        keyspace.types.remove(name);
        Ok(Some((self.with_keyspace(keyspace), changed("DROPPED", keyspace_name, name))))
    }
}

/// A table with the type in its primary key. Keys are stored in the order of their values, field by
/// field, and another field would change them.
fn in_primary_key<'k>(keyspace: &'k Keyspace, name: &str) -> Option<&'k str> {
    let mut tables = keyspace.tables.values().filter(|table| {
        let mut key = table.columns.iter().filter(|column| column.is_primary_key());
        key.any(|column| mentions(&column.cql_type, &keyspace.name, name))
    });
    tables.next().map(|table| table.name.as_str())
}

fn too_many_fields() -> CqlError {
    CqlError::Invalid(format!("a type has at most {FIELDS_MAX} fields"))
}

fn rename(
    definition: &mut UserType,
    if_exists: bool,
    fields: &[(String, String)],
) -> Result<(), CqlError> {
    if fields.len() > FIELDS_MAX {
        return Err(too_many_fields());
    }
    for (old, new) in fields {
        let Some(position) = definition.field(old) else {
            if if_exists {
                continue;
            }
            let message = format!(
                "Unkown field {old} in user type {}.{}",
                definition.keyspace, definition.name
            );
            return Err(CqlError::Invalid(message));
        };
        if definition.field(new).is_some() {
            let message = format!("Duplicate field name {new} in type {}", definition.name);
            return Err(CqlError::Invalid(message));
        }
        definition.fields[position].0.clone_from(new);
    }
    Ok(())
}

/// The keyspace with a changed type, also in the types and tables that use it.
fn with_type(keyspace: &Keyspace, changed: &Arc<UserType>) -> Keyspace {
    let mut new = keyspace.clone();
    new.types.insert(changed.name.clone(), Arc::clone(changed));
    for definition in new.types.values_mut().filter(|definition| definition.name != changed.name) {
        let fields = definition.fields.iter();
        let fields = fields.map(|(name, field)| (name.clone(), replace(field, changed))).collect();
        let UserType { keyspace, name, .. } = definition.as_ref();
        *definition = Arc::new(UserType { keyspace: keyspace.clone(), name: name.clone(), fields });
    }
    for table in new.tables.values_mut() {
        let mut copy = Table::clone(table);
        for column in &mut copy.columns {
            column.cql_type = replace(&column.cql_type, changed);
        }
        *table = Arc::new(copy);
    }
    new
}

fn changed(kind: &'static str, keyspace: &str, name: &str) -> Change {
    Change { kind, keyspace: keyspace.to_owned(), object: Object::Type(name.to_owned()) }
}
