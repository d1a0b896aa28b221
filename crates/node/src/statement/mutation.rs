//! INSERT, UPDATE, DELETE and BATCH as plans: which rows, what happens to which columns, under which conditions.

use std::sync::Arc;

use shunt_cql::ast::{
    Attributes, BatchKind, ColumnCondition, Comparison, Conditions, Delete, Deletion, Insert, InsertJson, Mutation,
    NativeType, Operation, Relation, Term, Update,
};
use shunt_cql::functions::is_number;
use shunt_cql::terms::{Prepared, Scope, prepare};
use shunt_cql::types::CqlType;

use super::restrictions::{OneOf, PartitionRestriction, Restrictions, column_of};
use crate::error::CqlError;
use crate::schema::{Column, ColumnKind, Schema, Table};

/// What happens to a column.
#[derive(Clone, Debug)]
pub(crate) enum ColumnChange {
    /// Its value becomes this.
    Set(Prepared),
    /// This is added: to a counter, a collection, the end of a list.
    Add(Prepared),
    /// This is added to the number, or put behind the text, that is there.
    AddToValue(Prepared),
    /// This is taken away.
    Subtract(Prepared),
    /// This is put in front of a list.
    Prepend(Prepared),
    /// The element of a map or list under this key or index becomes that.
    SetElement(Prepared, Prepared),
    /// A field of a user-defined type becomes this.
    SetField(usize, Prepared),
    /// It goes.
    Delete,
    /// The element under this key, or the element itself, goes.
    DeleteElement(Prepared),
    /// A field goes.
    DeleteField(usize),
}

/// What must hold for the statement to be carried out.
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
    pub(crate) part: ConditionPart,
    pub(crate) test: ConditionTest,
}

/// Which part of a column a condition is on.
#[derive(Clone, Debug)]
pub(crate) enum ConditionPart {
    Whole,
    Element(Prepared),
    Field(usize),
}

/// What a condition compares with.
#[derive(Clone, Debug)]
pub(crate) enum ConditionTest {
    Compare(Comparison, Prepared),
    In(Vec<Prepared>),
    /// `IN ?`
    InList(Prepared),
}

/// One statement that writes.
pub(crate) struct MutationPlan {
    pub(crate) table: Arc<Table>,
    pub(crate) restrictions: Restrictions,
    /// Positions in the table's columns, with what happens to each.
    pub(crate) changes: Vec<(usize, ColumnChange)>,
    /// It says that the row exists, apart from values.
    pub(crate) inserts: bool,
    /// It deletes whole rows, ranges of them or partitions.
    pub(crate) deletes_rows: bool,
    /// It is a DELETE.
    pub(crate) is_delete: bool,
    /// The JSON whose values become those of all columns, and whether absent ones stay as they are.
    pub(crate) json: Option<(Prepared, bool)>,
    pub(crate) timestamp: Option<Prepared>,
    pub(crate) time_to_live: Option<Prepared>,
    pub(crate) conditions: ConditionPlan,
}

/// A BATCH given as text.
pub(crate) struct BatchPlan {
    /// Which of `mutations` each marker is in; none for those of the batch itself.
    pub(crate) owners: Vec<Option<usize>>,
    pub(crate) kind: BatchKind,
    pub(crate) timestamp: Option<Prepared>,
    pub(crate) mutations: Vec<MutationPlan>,
}

impl MutationPlan {
    /// Looks at a statement.
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

    fn insert(insert: &Insert, table: Arc<Table>, scope: &mut Scope<'_>) -> Result<MutationPlan, CqlError> {
        if table.is_counter {
            return Err(CqlError::invalid("INSERT statements are not allowed on counter tables, use UPDATE instead"));
        }
        if insert.columns.len() != insert.values.len() {
            return Err(CqlError::invalid("Unmatched column names/values"));
        }
        let (mut relations, mut changes) = (Vec::new(), Vec::new());
        for (index, (name, value)) in insert.columns.iter().zip(&insert.values).enumerate() {
            let (position, column) = column_of(&table, name)?;
            if insert.columns[..index].contains(name) {
                return Err(CqlError::invalid(format!("The column names contains duplicates: {name}")));
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
        plan.conditions = if insert.if_not_exists { ConditionPlan::NotExists } else { ConditionPlan::None };
        Ok(plan)
    }

    fn insert_json(insert: &InsertJson, table: Arc<Table>, scope: &mut Scope<'_>) -> Result<MutationPlan, CqlError> {
        if table.is_counter {
            return Err(CqlError::invalid("INSERT statements are not allowed on counter tables, use UPDATE instead"));
        }
        let json = prepare(&insert.json, "[json]", &CqlType::Native(NativeType::Text), scope)?;
        let restrictions = Restrictions::new(&table, &[], scope)?;
        let mut plan = MutationPlan::bare(table, restrictions);
        plan.json = Some((json, insert.default_unset));
        plan.inserts = true;
        plan.conditions = if insert.if_not_exists { ConditionPlan::NotExists } else { ConditionPlan::None };
        Ok(plan)
    }

    fn update(update: &Update, table: Arc<Table>, scope: &mut Scope<'_>) -> Result<MutationPlan, CqlError> {
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

    fn delete(delete: &Delete, table: Arc<Table>, scope: &mut Scope<'_>) -> Result<MutationPlan, CqlError> {
        let mut changes = Vec::new();
        for deletion in &delete.deletions {
            let name = match deletion {
                Deletion::Column(name) | Deletion::Element(name, _) | Deletion::Field(name, _) => name,
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

    fn changes_kind(&self, kind: ColumnKind) -> bool {
        self.changes.iter().any(|(position, _)| self.table.columns[*position].kind == kind)
    }

    fn tests_kind(&self, kind: ColumnKind) -> bool {
        let ConditionPlan::Columns(all) = &self.conditions else { return false };
        all.iter().any(|condition| self.table.columns[condition.column].kind == kind)
    }

    /// Whether it changes and tests static columns and no others.
    fn is_static_only(&self) -> bool {
        self.json.is_none()
            && !self.deletes_rows
            && !self.changes_kind(ColumnKind::Regular)
            && !self.tests_kind(ColumnKind::Regular)
            && (self.changes_kind(ColumnKind::Static) || self.tests_kind(ColumnKind::Static))
    }

    /// Whether it is about the static row and no other.
    pub(crate) fn is_of_static_row(&self) -> bool {
        self.is_static_only() && !self.restricts_clustering()
    }

    fn restricts_clustering(&self) -> bool {
        let clustering = &self.restrictions.clustering;
        self.json.is_some() || self.clustering_given() > 0 || clustering.lower.is_some() || clustering.upper.is_some()
    }

    /// Whether it is about rows, not the static one.
    pub(crate) fn writes_rows(&self) -> bool {
        self.table.clustering_len == 0 || self.restricts_clustering()
    }

    /// Whether it changes static columns; INSERT JSON says something of all columns.
    pub(crate) fn writes_static_row(&self) -> bool {
        self.changes_kind(ColumnKind::Static) || self.json.is_some()
    }

    /// Positions of the columns that have to be read to be changed.
    pub(crate) fn read_columns(&self) -> impl Iterator<Item = usize> {
        let reads = |(position, change): &(usize, ColumnChange)| {
            let is_list = matches!(self.table.columns[*position].cql_type, CqlType::List { .. });
            let by_index_or_value = matches!(
                change,
                ColumnChange::SetElement(..) | ColumnChange::DeleteElement(_) | ColumnChange::Subtract(_)
            );
            let reads = is_list && by_index_or_value || matches!(change, ColumnChange::AddToValue(_));
            reads.then_some(*position)
        };
        self.changes.iter().filter_map(reads)
    }

    /// Whether what it does to static columns is more when it is done again.
    pub(crate) fn repeats_statics(&self) -> bool {
        let mut columns = self.changes.iter().map(|(position, _)| &self.table.columns[*position]);
        columns.any(|column| {
            let adds = column.cql_type.is_counter() || matches!(column.cql_type, CqlType::List { frozen: false, .. });
            column.kind == ColumnKind::Static && adds
        })
    }

    /// Whether the partition key has an `IN`.
    pub(crate) fn has_partition_in(&self) -> bool {
        let PartitionRestriction::Keys(keys) = &self.restrictions.partition else { return false };
        keys.iter().any(OneOf::is_in)
    }

    /// Whether clustering columns have an `IN`.
    pub(crate) fn has_clustering_in(&self) -> bool {
        let clustering = &self.restrictions.clustering;
        clustering.tuples.as_ref().is_some_and(|(_, tuples)| tuples.is_in())
            || clustering.equal.iter().any(OneOf::is_in)
    }

    /// How many clustering columns are given by equality, `IN` and tuples.
    pub(crate) fn clustering_given(&self) -> usize {
        let clustering = &self.restrictions.clustering;
        clustering.equal.len() + clustering.tuples.as_ref().map_or(0, |(types, _)| types.len())
    }

    pub(crate) fn is_conditional(&self) -> bool {
        !matches!(self.conditions, ConditionPlan::None)
    }

    /// What Cassandra refuses of statements that are each well-formed.
    fn check(&self) -> Result<(), CqlError> {
        if self.json.is_some() {
            return Ok(());
        }
        let table = &self.table;
        if !self.restrictions.filters.is_empty() {
            let filter = &self.restrictions.filters[0];
            let column = &table.columns[filter.column];
            return Err(CqlError::invalid(match column.kind {
                ColumnKind::PartitionKey | ColumnKind::Clustering => self.missing(),
                _ => format!("Non PRIMARY KEY columns found in where clause: {} ", column.name),
            }));
        }
        if !matches!(self.restrictions.partition, PartitionRestriction::Keys(_)) {
            return Err(CqlError::Invalid(self.missing()));
        }
        if self.is_static_only() && self.restricts_clustering() && !self.inserts {
            let kind = if self.is_delete { "DELETE" } else { "UPDATE" };
            return Err(CqlError::Invalid(format!(
                "Invalid restrictions on clustering columns since the {kind} statement modifies only static columns"
            )));
        }
        let clustering = &self.restrictions.clustering;
        let sliced = clustering.lower.is_some() || clustering.upper.is_some();
        let whole = self.clustering_given() == table.clustering_len;
        if !self.is_delete {
            if sliced {
                let message = "Slice restrictions are not supported on the clustering columns in UPDATE statements";
                return Err(CqlError::invalid(message));
            }
            if !whole && !self.is_static_only() {
                return Err(CqlError::Invalid(self.missing()));
            }
        } else if !whole {
            self.check_range()?;
        }
        if table.is_counter && (self.timestamp.is_some() || self.time_to_live.is_some()) {
            return Err(CqlError::invalid("Cannot provide custom timestamp or TTL for counter updates"));
        }
        if table.is_counter && self.is_conditional() {
            return Err(CqlError::invalid("Conditional updates are not supported on counter tables"));
        }
        if self.is_conditional() && self.timestamp.is_some() {
            return Err(CqlError::invalid("Cannot provide custom timestamp for conditional updates"));
        }
        Ok(())
    }

    /// A DELETE that does not name whole rows.
    fn check_range(&self) -> Result<(), CqlError> {
        if self.is_conditional() {
            let all = "DELETE statements must restrict all PRIMARY KEY columns with equality relations in order to";
            if self.changes_kind(ColumnKind::Regular) || self.deletes_rows {
                return Err(CqlError::Invalid(format!("{all} delete non static columns")));
            }
            if !self.is_static_only() {
                return Err(CqlError::Invalid(format!("{all} use IF condition on non static columns")));
            }
        }
        if self.changes_kind(ColumnKind::Regular) {
            return Err(CqlError::invalid("Range deletions are not supported for specific columns"));
        }
        Ok(())
    }

    /// Names the parts of the primary key that are not given.
    fn missing(&self) -> String {
        let given = self.clustering_given();
        if let PartitionRestriction::Keys(_) = self.restrictions.partition {
            let names = self.table.clustering().iter().skip(given).map(|column| column.name.as_str());
            return format!("Some clustering keys are missing: {}", names.collect::<Vec<_>>().join(", "));
        }
        let restricted = |position: usize| self.restrictions.filters.iter().any(|filter| filter.column == position);
        let key = self.table.partition_key().iter().enumerate();
        let names = key.filter(|(position, _)| !restricted(*position)).map(|(_, column)| column.name.as_str());
        format!("Some partition key parts are missing: {}", names.collect::<Vec<_>>().join(", "))
    }
}

fn equal(name: &str, value: &Term) -> Relation {
    Relation::Column { column: name.to_owned(), comparison: Comparison::Equal, value: value.clone() }
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
    let timestamp = attributes.timestamp.as_ref().map(|term| prepare(term, "[timestamp]", &bigint, scope));
    let timestamp = timestamp.transpose()?;
    let time_to_live = attributes.time_to_live.as_ref().map(|term| prepare(term, "[ttl]", &int, scope)).transpose()?;
    Ok((timestamp, time_to_live))
}

/// `conditional`: the row is read anyway, so that numbers can be added to others than counters, and texts to texts.
fn change(
    column: &Column,
    operation: &Operation,
    conditional: bool,
    scope: &mut Scope<'_>,
) -> Result<ColumnChange, CqlError> {
    let name = &column.name;
    let cql_type = &column.cql_type;
    let refuse =
        |what: &str| Err(CqlError::Invalid(format!("Invalid operation ({what}) for column {name} of type {cql_type}")));
    if cql_type.is_counter() && !matches!(operation, Operation::Add(_) | Operation::Subtract(_)) {
        return Err(CqlError::Invalid(format!(
            "Cannot set the value of counter column {name} (counters can only be incremented/decremented, not set)"
        )));
    }
    match operation {
        Operation::Set(value) => Ok(ColumnChange::Set(prepare(value, name, cql_type, scope)?)),
        Operation::Add(value) if cql_type.is_counter() || column.is_multi_cell() && cql_type.is_collection() => {
            Ok(ColumnChange::Add(prepare(value, name, cql_type, scope)?))
        }
        Operation::Add(value) if conditional && can_be_added(cql_type) => {
            Ok(ColumnChange::AddToValue(prepare(value, name, cql_type, scope)?))
        }
        Operation::Subtract(value) if cql_type.is_counter() => {
            Ok(ColumnChange::Subtract(prepare(value, name, cql_type, scope)?))
        }
        Operation::Subtract(value) if column.is_multi_cell() && cql_type.is_collection() => {
            // The keys that leave a map come as a set.
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
            CqlType::Map { key: key_type, value: value_type, frozen: false } => Ok(ColumnChange::SetElement(
                prepare(key, &format!("key({name})"), key_type, scope)?,
                prepare(value, &format!("value({name})"), value_type, scope)?,
            )),
            _ => refuse("setting an element"),
        },
        Operation::SetField(field, value) => match cql_type {
            CqlType::Udt { definition, frozen: false } => {
                let Some(index) = definition.field(field) else {
                    return Err(CqlError::Invalid(format!("UDT column {name} does not have a field named {field}")));
                };
                let value = prepare(value, &format!("{name}.{field}"), &definition.fields[index].1, scope)?;
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

fn deletion_of(column: &Column, deletion: &Deletion, scope: &mut Scope<'_>) -> Result<ColumnChange, CqlError> {
    let name = &column.name;
    match (deletion, &column.cql_type) {
        (Deletion::Column(_), _) => Ok(ColumnChange::Delete),
        (Deletion::Element(_, key), CqlType::List { frozen: false, .. }) => {
            let index = prepare(key, &format!("idx({name})"), &CqlType::Native(NativeType::Int), scope)?;
            Ok(ColumnChange::DeleteElement(index))
        }
        (Deletion::Element(_, key), CqlType::Set { element, frozen: false }) => {
            Ok(ColumnChange::DeleteElement(prepare(key, &format!("value({name})"), element, scope)?))
        }
        (Deletion::Element(_, key), CqlType::Map { key: key_type, frozen: false, .. }) => {
            Ok(ColumnChange::DeleteElement(prepare(key, &format!("key({name})"), key_type, scope)?))
        }
        (Deletion::Field(_, field), CqlType::Udt { definition, frozen: false }) => match definition.field(field) {
            Some(index) => Ok(ColumnChange::DeleteField(index)),
            None => Err(CqlError::Invalid(format!("UDT column {name} does not have a field named {field}"))),
        },
        _ => {
            Err(CqlError::Invalid(format!("Invalid deletion operation for column {name} of type {}", column.cql_type)))
        }
    }
}

fn conditions(table: &Table, conditions: &Conditions, scope: &mut Scope<'_>) -> Result<ConditionPlan, CqlError> {
    match conditions {
        Conditions::None => Ok(ConditionPlan::None),
        Conditions::Exists => Ok(ConditionPlan::Exists),
        Conditions::All(all) => {
            let all = all.iter().map(|condition| condition_of(table, condition, scope));
            Ok(ConditionPlan::Columns(all.collect::<Result<_, _>>()?))
        }
    }
}

fn condition_of(table: &Table, given: &ColumnCondition, scope: &mut Scope<'_>) -> Result<Condition, CqlError> {
    let (column, found) = column_of(table, &given.column)?;
    let name = &found.name;
    if found.is_primary_key() {
        return Err(CqlError::Invalid(format!("PRIMARY KEY column '{name}' cannot have IF conditions")));
    }
    let wrong = || {
        CqlError::Invalid(format!("Invalid element access in a condition on column {name} of type {}", found.cql_type))
    };
    let of_element = format!("value({name})");
    let (part, name, receiver) = match (&given.element, &given.field, &found.cql_type) {
        (None, None, cql_type) => whole(given.comparison, name, cql_type),
        (Some(key), _, CqlType::List { element, .. }) => {
            let index = prepare(key, &format!("idx({name})"), &CqlType::Native(NativeType::Int), scope)?;
            (ConditionPart::Element(index), of_element, CqlType::clone(element))
        }
        (Some(key), _, CqlType::Map { key: key_type, value, .. }) => {
            let key = prepare(key, &format!("key({name})"), key_type, scope)?;
            (ConditionPart::Element(key), of_element, CqlType::clone(value))
        }
        (None, Some(field), CqlType::Udt { definition, .. }) => {
            let index = definition.field(field).ok_or_else(wrong)?;
            (ConditionPart::Field(index), format!("{name}.{field}"), definition.fields[index].1.clone())
        }
        _ => return Err(wrong()),
    };
    check_comparison(found, &receiver, given.comparison)?;
    let test = match given.comparison {
        Some(comparison) => {
            let value = given.values.first().ok_or_else(wrong)?;
            ConditionTest::Compare(comparison, prepare(value, &name, &receiver, scope)?)
        }
        None if given.in_marker => {
            let value = given.values.first().ok_or_else(wrong)?;
            ConditionTest::InList(prepare(value, &format!("in({name})"), &CqlType::list(receiver), scope)?)
        }
        None => {
            let values = given.values.iter().map(|value| prepare(value, &name, &receiver, scope));
            ConditionTest::In(values.collect::<Result<_, _>>()?)
        }
    };
    Ok(Condition { column, part, test })
}

/// Comparisons that a condition cannot have.
fn check_comparison(column: &Column, compared: &CqlType, comparison: Option<Comparison>) -> Result<(), CqlError> {
    let (name, cql_type) = (&column.name, &column.cql_type);
    match comparison {
        Some(Comparison::ContainsKey) if !matches!(cql_type, CqlType::Map { .. }) => {
            Err(CqlError::Invalid(format!("Cannot use CONTAINS KEY on non-map column {name}")))
        }
        Some(Comparison::Contains) if !cql_type.is_collection() => {
            Err(CqlError::Invalid(format!("Cannot use CONTAINS on non-collection column {name}")))
        }
        Some(Comparison::Less | Comparison::LessOrEqual | Comparison::Greater | Comparison::GreaterOrEqual)
            if compared.references_duration() =>
        {
            Err(CqlError::invalid("Slice conditions are not supported on durations"))
        }
        _ => Ok(()),
    }
}

/// What a whole column is compared with.
fn whole(comparison: Option<Comparison>, name: &str, cql_type: &CqlType) -> (ConditionPart, String, CqlType) {
    let (name, receiver) = match (comparison, cql_type) {
        (Some(Comparison::Contains), CqlType::List { element, .. } | CqlType::Set { element, .. }) => {
            (format!("value({name})"), CqlType::clone(element))
        }
        (Some(Comparison::Contains), CqlType::Map { value, .. }) => (format!("value({name})"), CqlType::clone(value)),
        (Some(Comparison::ContainsKey), CqlType::Map { key, .. }) => (format!("key({name})"), CqlType::clone(key)),
        (_, other) => (name.to_owned(), other.clone()),
    };
    (ConditionPart::Whole, name, receiver)
}
