//! INSERT, UPDATE, DELETE and BATCH as plans: rows, changes of columns, and conditions.

mod checks;
mod parts;

use std::sync::Arc;

use shunt_language::ast::{
    Attributes, BatchKind, Comparison, Conditions, Delete, Deletion, Insert, InsertJson, Mutation,
    NativeType, Relation, Term, Update,
};
use shunt_language::conditions::PreparedColumnCondition;
use shunt_language::terms::{Prepared, Scope, prepare};
use shunt_language::types::CqlType;

use super::restrictions::{Restrictions, column_of};
use crate::error::CqlError;
use crate::schema::{Column, Schema, Table};
use parts::{change, conditions, deletion_of};

/// Change of a column.
#[derive(Clone, Debug)]
pub(crate) enum ColumnChange {
    /// Sets the value.
    Set(Prepared),
    /// Adds to a counter, a collection, or the end of a list.
    Add(Prepared),
    /// Adds to the current number, or appends to the current text.
    AddToValue(Prepared),
    /// Subtracts or removes.
    Subtract(Prepared),
    /// Puts elements in front of a list.
    Prepend(Prepared),
    /// Sets the element of a map or list with this key or index.
    SetElement(Prepared, Prepared),
    /// Sets a field of a user-defined type.
    SetField(usize, Prepared),
    /// Deletes the value.
    Delete,
    /// Deletes the element with this key, or the element itself.
    DeleteElement(Prepared),
    /// Deletes a field.
    DeleteField(usize),
}

/// Condition for executing the statement.
#[derive(Clone, Debug)]
pub(crate) enum ConditionPlan {
    None,
    NotExists,
    Exists,
    Columns(Vec<Condition>),
}

/// A condition on one column.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    /// Position in the table's columns.
    pub(crate) column: usize,
    pub(crate) test: PreparedColumnCondition,
}

/// One statement that writes.
pub(crate) struct MutationPlan {
    pub(crate) table: Arc<Table>,
    pub(crate) restrictions: Restrictions,
    /// Positions in the table's columns, with the change of each.
    pub(crate) changes: Vec<(usize, ColumnChange)>,
    /// The statement creates the row, apart from values.
    pub(crate) inserts: bool,
    /// The statement deletes whole rows, ranges of them or partitions.
    pub(crate) deletes_rows: bool,
    /// The statement is a DELETE.
    pub(crate) is_delete: bool,
    /// The JSON with the values of all columns, and whether absent ones stay unchanged.
    pub(crate) json: Option<(Prepared, bool)>,
    pub(crate) timestamp: Option<Prepared>,
    pub(crate) time_to_live: Option<Prepared>,
    pub(crate) conditions: ConditionPlan,
}

/// A BATCH given as text.
pub(crate) struct BatchPlan {
    /// Index in `mutations` of each marker; `None` for those of the batch itself.
    pub(crate) owners: Vec<Option<usize>>,
    pub(crate) kind: BatchKind,
    pub(crate) timestamp: Option<Prepared>,
    pub(crate) mutations: Vec<MutationPlan>,
}

impl MutationPlan {
    /// Prepares a statement.
    pub(crate) fn new(
        mutation: &Mutation,
        schema: &Schema,
        session: Option<&str>,
        scope: &mut Scope<'_>,
    ) -> Result<MutationPlan, CqlError> {
        let table = schema.find_table(mutation.table(), session)?;
        if table.number.is_none() {
            let message = format!("{} keyspace is not user-modifiable.", table.keyspace);
            return Err(CqlError::Unauthorized(message));
        }
        let (timestamp, time_to_live) = attributes(mutation.attributes(), scope)?;
        let mut plan = match mutation {
            Mutation::Insert(insert) => Self::insert(insert, table, scope)?,
            Mutation::InsertJson(insert) => Self::insert_json(insert, table, scope)?,
            Mutation::Update(update) => Self::update(update, table, scope)?,
            Mutation::Delete(delete) => Self::delete(delete, table, scope)?,
        };
        (plan.timestamp, plan.time_to_live) = (timestamp, time_to_live);
        plan.check()?;
        Ok(plan)
    }

    fn bare(table: Arc<Table>, restrictions: Restrictions) -> MutationPlan {
        MutationPlan {
            table,
            restrictions,
            changes: Vec::new(),
            inserts: false,
            deletes_rows: false,
            is_delete: false,
            json: None,
            timestamp: None,
            time_to_live: None,
            conditions: ConditionPlan::None,
        }
    }

    fn insert(
        insert: &Insert,
        table: Arc<Table>,
        scope: &mut Scope<'_>,
    ) -> Result<MutationPlan, CqlError> {
        if table.is_counter {
            return Err(CqlError::invalid(
                "INSERT statements are not allowed on counter tables, use UPDATE instead",
            ));
        }
        if insert.columns.len() != insert.values.len() {
            return Err(CqlError::invalid("Unmatched column names/values"));
        }
        let (mut relations, mut changes) = (Vec::new(), Vec::new());
        for (index, (name, value)) in insert.columns.iter().zip(&insert.values).enumerate() {
            let (position, column) = column_of(&table, name)?;
            if insert.columns[..index].contains(name) {
                return Err(CqlError::invalid(format!(
                    "The column names contains duplicates: {name}"
                )));
            }
            if column.is_primary_key() {
                relations.push(equal(name, value));
            } else {
                let value = prepare(value, name, &column.cql_type, scope)?;
                changes.push((position, ColumnChange::Set(value)));
            }
        }
        let restrictions = Restrictions::new(&table, &relations, scope)?;
        let mut plan = MutationPlan::bare(table, restrictions);
        plan.changes = changes;
        plan.inserts = true;
        plan.conditions =
            if insert.if_not_exists { ConditionPlan::NotExists } else { ConditionPlan::None };
        Ok(plan)
    }

    fn insert_json(
        insert: &InsertJson,
        table: Arc<Table>,
        scope: &mut Scope<'_>,
    ) -> Result<MutationPlan, CqlError> {
        if table.is_counter {
            return Err(CqlError::invalid(
                "INSERT statements are not allowed on counter tables, use UPDATE instead",
            ));
        }
        let json = prepare(&insert.json, "[json]", &CqlType::Native(NativeType::Text), scope)?;
        let restrictions = Restrictions::new(&table, &[], scope)?;
        let mut plan = MutationPlan::bare(table, restrictions);
        plan.json = Some((json, insert.default_unset));
        plan.inserts = true;
        plan.conditions =
            if insert.if_not_exists { ConditionPlan::NotExists } else { ConditionPlan::None };
        Ok(plan)
    }

    fn update(
        update: &Update,
        table: Arc<Table>,
        scope: &mut Scope<'_>,
    ) -> Result<MutationPlan, CqlError> {
        let mut changes = Vec::new();
        for assignment in &update.assignments {
            let (position, column) = changeable(&table, &assignment.column)?;
            let conditional = !matches!(update.conditions, Conditions::None);
            changes.push((position, change(column, &assignment.operation, conditional, scope)?));
        }
        let restrictions = Restrictions::new(&table, &update.relations, scope)?;
        let conditions = conditions(&table, &update.conditions, scope)?;
        let mut plan = MutationPlan::bare(table, restrictions);
        (plan.changes, plan.conditions) = (changes, conditions);
        Ok(plan)
    }

    fn delete(
        delete: &Delete,
        table: Arc<Table>,
        scope: &mut Scope<'_>,
    ) -> Result<MutationPlan, CqlError> {
        let mut changes = Vec::new();
        for deletion in &delete.deletions {
            let name = match deletion {
                Deletion::Column(name) | Deletion::Element(name, _) | Deletion::Field(name, _) => {
                    name
                }
            };
            let (position, column) = changeable(&table, name)?;
            changes.push((position, deletion_of(column, deletion, scope)?));
        }
        let restrictions = Restrictions::new(&table, &delete.relations, scope)?;
        let conditions = conditions(&table, &delete.conditions, scope)?;
        let mut plan = MutationPlan::bare(table, restrictions);
        plan.is_delete = true;
        plan.deletes_rows = changes.is_empty();
        (plan.changes, plan.conditions) = (changes, conditions);
        Ok(plan)
    }
}

fn equal(name: &str, value: &Term) -> Relation {
    Relation::Column {
        column: name.to_owned(),
        comparison: Comparison::Equal,
        value: value.clone(),
    }
}

/// A column that SET, DELETE and IF may name.
fn changeable<'t>(table: &'t Table, name: &str) -> Result<(usize, &'t Column), CqlError> {
    let (position, column) = column_of(table, name)?;
    if column.is_primary_key() {
        return Err(CqlError::Invalid(format!("PRIMARY KEY part {name} found in SET part")));
    }
    Ok((position, column))
}

/// `USING TIMESTAMP .. AND TTL ..`
pub(crate) fn attributes(
    attributes: &Attributes,
    scope: &mut Scope<'_>,
) -> Result<(Option<Prepared>, Option<Prepared>), CqlError> {
    let bigint = CqlType::Native(NativeType::Bigint);
    let int = CqlType::Native(NativeType::Int);
    let timestamp =
        attributes.timestamp.as_ref().map(|term| prepare(term, "[timestamp]", &bigint, scope));
    let timestamp = timestamp.transpose()?;
    let time_to_live = attributes
        .time_to_live
        .as_ref()
        .map(|term| prepare(term, "[ttl]", &int, scope))
        .transpose()?;
    Ok((timestamp, time_to_live))
}
