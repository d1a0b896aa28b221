//! Prepares executable statements from text.

use md5::{Digest, Md5};
use shunt_language::ast::{self, Parsed};
use shunt_language::terms::Scope;
use shunt_language::types::CqlType;

use super::mutation::{BatchPlan, MutationPlan, attributes};
use super::select::SelectPlan;
use super::{Marker, Plan, ResultColumn, Statement};
use crate::error::CqlError;
use crate::schema::resolve::Types;
use crate::schema::{Column, Schema, Table, Uuid};

/// Most statements of one BATCH.
const BATCH_STATEMENTS_MAX: usize = 65_535;

impl Statement {
    /// Prepares a statement. `keyspace` is that of unqualified names.
    ///
    /// # Errors
    /// Invalid CQL, unknown names, mismatched values.
    pub(crate) fn prepare(
        text: &str,
        keyspace: Option<&str>,
        schema: &Schema,
        now_ms: i64,
    ) -> Result<Statement, CqlError> {
        let Parsed { statement, markers } = shunt_language::parse(text)?;
        let types = Types { schema, keyspace };
        let table = match &statement {
            ast::Statement::Select(select) => Some(schema.find_table(&select.table, keyspace)?),
            ast::Statement::Mutation(mutation) => {
                Some(schema.find_table(mutation.table(), keyspace)?)
            }
            ast::Statement::Batch(batch) => match batch.mutations.first() {
                Some(first) => Some(schema.find_table(first.table(), keyspace)?),
                None => None,
            },
            _ => None,
        };
        let key_types: Option<Vec<CqlType>> = table.as_ref().map(|table| {
            table.partition_key().iter().map(|column| column.cql_type.clone()).collect()
        });
        let mut scope = Scope::new(&types, key_types.as_deref(), now_ms, markers.len());
        let plan = plan(statement, schema, keyspace, &mut scope)?;
        let key_markers = key_markers(&plan, table.as_deref(), &scope);
        let tables = marker_tables(&plan, table.as_deref(), markers.len());
        let markers = marker_list(&markers, &scope, tables)?;
        let result: Vec<ResultColumn> = match &plan {
            Plan::Select(select) => select.columns().to_vec(),
            _ => Vec::new(),
        };
        Ok(Statement {
            id: id(keyspace, text),
            result_id: result_id(&result),
            text: text.to_owned(),
            keyspace: keyspace.map(str::to_owned),
            schema_number: schema.number,
            markers,
            key_markers,
            result,
            plan,
        })
    }
}

fn plan(
    statement: ast::Statement,
    schema: &Schema,
    session: Option<&str>,
    scope: &mut Scope<'_>,
) -> Result<Plan, CqlError> {
    Ok(match statement {
        ast::Statement::Select(select) => {
            Plan::Select(Box::new(SelectPlan::new(&select, schema, session, scope)?))
        }
        ast::Statement::Mutation(mutation) => {
            Plan::Mutation(Box::new(MutationPlan::new(&mutation, schema, session, scope)?))
        }
        ast::Statement::Batch(batch) => {
            Plan::Batch(Box::new(batch_plan(&batch, schema, session, scope)?))
        }
        ast::Statement::Truncate(name) => {
            schema.find_table(&name, session)?;
            Plan::Truncate(name)
        }
        ast::Statement::Use(keyspace) => Plan::Use(keyspace),
        ast::Statement::Schema(change) => Plan::Schema(Box::new(change)),
        ast::Statement::Describe(describe) => Plan::Describe(describe),
        ast::Statement::Access(name) => {
            let message = format!("{name} is not supported by this node, which knows no roles");
            return Err(CqlError::Invalid(message));
        }
    })
}

fn batch_plan(
    batch: &ast::Batch,
    schema: &Schema,
    session: Option<&str>,
    scope: &mut Scope<'_>,
) -> Result<BatchPlan, CqlError> {
    if batch.mutations.len() > BATCH_STATEMENTS_MAX {
        return Err(CqlError::Invalid(format!(
            "a batch has at most {BATCH_STATEMENTS_MAX} statements"
        )));
    }
    if batch.attributes.time_to_live.is_some() {
        return Err(CqlError::invalid("Global TTL on the BATCH statement is not supported."));
    }
    let (timestamp, _) = attributes(&batch.attributes, scope)?;
    let mut owners = vec![None; scope.markers.len()];
    let mut mutations: Vec<MutationPlan> = Vec::with_capacity(batch.mutations.len());
    for (index, mutation) in batch.mutations.iter().enumerate() {
        let before: Vec<bool> = scope.markers.iter().map(Option::is_some).collect();
        mutations.push(MutationPlan::new(mutation, schema, session, scope)?);
        for ((owner, marker), before) in owners.iter_mut().zip(&scope.markers).zip(before) {
            if marker.is_some() && !before {
                *owner = Some(index);
            }
        }
    }
    if timestamp.is_some() {
        check_timestamp(batch.kind, &mutations)?;
    }
    Ok(BatchPlan { kind: batch.kind, owners, timestamp, mutations })
}

/// Refuses a timestamp where the statements have their own, or must have none.
fn check_timestamp(kind: ast::BatchKind, mutations: &[MutationPlan]) -> Result<(), CqlError> {
    let message = if kind == ast::BatchKind::Counter {
        "Cannot provide custom timestamp for counter BATCH"
    } else if mutations.iter().any(|mutation| mutation.timestamp.is_some()) {
        "Timestamp must be set either on BATCH or individual statements"
    } else if mutations.iter().any(|mutation| mutation.table.is_counter) {
        "Cannot provide custom timestamp for a BATCH containing counters"
    } else {
        return Ok(());
    };
    Err(CqlError::invalid(message))
}

/// Keyspace and table of each marker. Markers of a batch itself are in `[batch]`, as in Cassandra.
fn marker_tables(plan: &Plan, table: Option<&Table>, count: usize) -> Vec<(String, String)> {
    let name = |table: &Table| (table.keyspace.clone(), table.name.clone());
    let Plan::Batch(batch) = plan else {
        return vec![table.map(name).unwrap_or_default(); count];
    };
    let of_batch = || ("[batch]".to_owned(), "[batch]".to_owned());
    let owner = |owner: &Option<usize>| {
        owner.map_or_else(of_batch, |index| name(&batch.mutations[index].table))
    };
    batch.owners.iter().map(owner).collect()
}

/// Names and types of the markers; a marker without a type cannot be bound.
fn marker_list(
    names: &[Option<String>],
    scope: &Scope<'_>,
    tables: Vec<(String, String)>,
) -> Result<Vec<Marker>, CqlError> {
    let mut markers = Vec::with_capacity(names.len());
    for ((name, found), table) in names.iter().zip(&scope.markers).zip(tables) {
        let Some((known, cql_type)) = found else {
            return Err(CqlError::invalid(
                "a bind marker stands where its type cannot be known; use a type hint",
            ));
        };
        let name = name.clone().unwrap_or_else(|| known.clone());
        markers.push(Marker { table, name, cql_type: cql_type.clone() });
    }
    Ok(markers)
}

/// The last marker for each column of the partition key; empty if a column has none, or a batch is
/// on several tables. Markers inside a list of `IN` and of comparisons count, as in Cassandra.
fn key_markers(plan: &Plan, table: Option<&Table>, scope: &Scope<'_>) -> Vec<u16> {
    let Some(table) = table else { return Vec::new() };
    if let Plan::Batch(batch) = plan
        && batch.mutations.iter().any(|mutation| mutation.table.id != table.id)
    {
        return Vec::new();
    }
    let is_for = |column: &Column| {
        let found = scope
            .markers
            .iter()
            .rposition(|marker| marker.as_ref().is_some_and(|(name, _)| *name == column.name));
        found.and_then(|index| u16::try_from(index).ok())
    };
    table.partition_key().iter().map(is_for).collect::<Option<_>>().unwrap_or_default()
}

/// Computed as in Cassandra, so that drivers and proxies agree.
fn id(keyspace: Option<&str>, text: &str) -> [u8; 16] {
    Md5::new().chain_update(keyspace.unwrap_or_default()).chain_update(text).finalize().into()
}

fn result_id(columns: &[ResultColumn]) -> Uuid {
    let mut hash = Md5::new();
    for column in columns {
        let ResultColumn { keyspace, table, name, cql_type } = column;
        hash.update(format!("{keyspace}\0{table}\0{name}\0{cql_type}\0"));
    }
    hash.finalize().into()
}
