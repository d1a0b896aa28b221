//! Assignments, deletions and conditions of single columns.

use shunt_language::ast::{ColumnCondition, Conditions, Deletion, NativeType, Operation};
use shunt_language::functions::is_number;
use shunt_language::terms::{Scope, prepare};
use shunt_language::types::CqlType;

use super::{ColumnChange, Condition, ConditionPlan};
use crate::error::CqlError;
use crate::schema::{Column, Table};
use crate::statement::restrictions::column_of;

/// `conditional`: the row is read anyway, so that numbers other than counters can be added to, and
/// texts appended to.
pub(super) fn change(
    column: &Column,
    operation: &Operation,
    conditional: bool,
    scope: &mut Scope<'_>,
) -> Result<ColumnChange, CqlError> {
    let name = &column.name;
    let cql_type = &column.cql_type;
    let refuse = |what: &str| {
        Err(CqlError::Invalid(format!(
            "Invalid operation ({what}) for column {name} of type {cql_type}"
        )))
    };
    if cql_type.is_counter() && !matches!(operation, Operation::Add(_) | Operation::Subtract(_)) {
        return Err(CqlError::Invalid(format!(
            "Cannot set the value of counter column {name} (counters can only be incremented/decremented, not set)"
        )));
    }
    match operation {
        Operation::Set(value) => Ok(ColumnChange::Set(prepare(value, name, cql_type, scope)?)),
        Operation::Add(value)
            if cql_type.is_counter() || column.is_multi_cell() && cql_type.is_collection() =>
        {
            Ok(ColumnChange::Add(prepare(value, name, cql_type, scope)?))
        }
        Operation::Add(value) if conditional && can_be_added(cql_type) => {
            Ok(ColumnChange::AddToValue(prepare(value, name, cql_type, scope)?))
        }
        Operation::Subtract(value) if cql_type.is_counter() => {
            Ok(ColumnChange::Subtract(prepare(value, name, cql_type, scope)?))
        }
        Operation::Subtract(value) if column.is_multi_cell() && cql_type.is_collection() => {
            // The removed keys of a map come as a set.
            let receiver = match cql_type {
                CqlType::Map { key, .. } => CqlType::set(CqlType::clone(key)),
                other => other.clone(),
            };
            Ok(ColumnChange::Subtract(prepare(value, name, &receiver, scope)?))
        }
        Operation::Prepend(value) if matches!(cql_type, CqlType::List { frozen: false, .. }) => {
            Ok(ColumnChange::Prepend(prepare(value, name, cql_type, scope)?))
        }
        Operation::SetElement(key, value) => match cql_type {
            CqlType::List { element, frozen: false } => Ok(ColumnChange::SetElement(
                prepare(key, &format!("idx({name})"), &CqlType::Native(NativeType::Int), scope)?,
                prepare(value, &format!("value({name})"), element, scope)?,
            )),
            CqlType::Map { key: key_type, value: value_type, frozen: false } => {
                Ok(ColumnChange::SetElement(
                    prepare(key, &format!("key({name})"), key_type, scope)?,
                    prepare(value, &format!("value({name})"), value_type, scope)?,
                ))
            }
            _ => refuse("setting an element"),
        },
        Operation::SetField(field, value) => match cql_type {
            CqlType::Udt { definition, frozen: false } => {
                let Some(index) = definition.field(field) else {
                    return Err(CqlError::Invalid(format!(
                        "UDT column {name} does not have a field named {field}"
                    )));
                };
                let value =
                    prepare(value, &format!("{name}.{field}"), &definition.fields[index].1, scope)?;
                Ok(ColumnChange::SetField(index, value))
            }
            _ => refuse("setting a field"),
        },
        _ => refuse("adding or taking away"),
    }
}

/// Numbers and texts.
fn can_be_added(cql_type: &CqlType) -> bool {
    let CqlType::Native(native) = cql_type else { return false };
    matches!(native, NativeType::Text | NativeType::Ascii) || is_number(*native)
}

pub(super) fn deletion_of(
    column: &Column,
    deletion: &Deletion,
    scope: &mut Scope<'_>,
) -> Result<ColumnChange, CqlError> {
    let name = &column.name;
    match (deletion, &column.cql_type) {
        (Deletion::Column(_), _) => Ok(ColumnChange::Delete),
        (Deletion::Element(_, key), CqlType::List { frozen: false, .. }) => {
            let index =
                prepare(key, &format!("idx({name})"), &CqlType::Native(NativeType::Int), scope)?;
            Ok(ColumnChange::DeleteElement(index))
        }
        (Deletion::Element(_, key), CqlType::Set { element, frozen: false }) => Ok(
            ColumnChange::DeleteElement(prepare(key, &format!("value({name})"), element, scope)?),
        ),
        (Deletion::Element(_, key), CqlType::Map { key: key_type, frozen: false, .. }) => {
            Ok(ColumnChange::DeleteElement(prepare(key, &format!("key({name})"), key_type, scope)?))
        }
        (Deletion::Field(_, field), CqlType::Udt { definition, frozen: false }) => {
            match definition.field(field) {
                Some(index) => Ok(ColumnChange::DeleteField(index)),
                None => Err(CqlError::Invalid(format!(
                    "UDT column {name} does not have a field named {field}"
                ))),
            }
        }
        _ => Err(CqlError::Invalid(format!(
            "Invalid deletion operation for column {name} of type {}",
            column.cql_type
        ))),
    }
}

pub(super) fn conditions(
    table: &Table,
    conditions: &Conditions,
    scope: &mut Scope<'_>,
) -> Result<ConditionPlan, CqlError> {
    match conditions {
        Conditions::None => Ok(ConditionPlan::None),
        Conditions::Exists => Ok(ConditionPlan::Exists),
        Conditions::All(all) => {
            let all = all.iter().map(|condition| condition_of(table, condition, scope));
            Ok(ConditionPlan::Columns(all.collect::<Result<_, _>>()?))
        }
    }
}

fn condition_of(
    table: &Table,
    given: &ColumnCondition,
    scope: &mut Scope<'_>,
) -> Result<Condition, CqlError> {
    let (column, found) = column_of(table, &given.column)?;
    if found.is_primary_key() {
        return Err(CqlError::Invalid(format!(
            "PRIMARY KEY column '{}' cannot have IF conditions",
            found.name
        )));
    }
    Ok(Condition { column, test: given.prepare(&found.cql_type, scope)? })
}
