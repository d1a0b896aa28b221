//! BATCH, as a message and as text.

use shunt_language::ast::BatchKind;
use shunt_wire::cql::message::{Batch, BatchKind as WireKind, BatchStatement, Values};
use std::sync::Arc;

use super::bindings::Bound;
use super::mutate::Item;
use super::mutate::bigint;
use super::{ClientState, Done, Executor, annotations, check_values};
use crate::error::CqlError;
use crate::statement::mutation::{BatchPlan, MutationPlan};
use crate::statement::{Plan, Statement};

impl Executor {
    /// A BATCH message (v5, section 4.1.7).
    pub(super) fn run_batch(
        &self,
        client: &ClientState,
        version: u8,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Done, CqlError> {
        let batch =
            Batch::decode(version, body).map_err(|error| CqlError::Protocol(error.to_string()))?;
        self.aside.parameters(|| annotations::parameters(None, Some(&batch.params)));
        let keyspace = batch.params.keyspace.or(client.keyspace.as_deref());
        let mut parts: Vec<(Arc<Statement>, Values<'_>)> = Vec::with_capacity(batch.len());
        for child in batch.children() {
            let statement = match child.statement {
                BatchStatement::Prepared(id) => self.find_prepared(id)?,
                BatchStatement::Text(text) => Arc::new(self.prepare(text, keyspace)?),
            };
            check_values(&statement, &child.values)?;
            parts.push((statement, child.values));
        }
        let bounds: Vec<Bound<'_>> = parts
            .iter()
            .map(|(statement, values)| Bound::new(statement, values, &self.shared, &self.aside))
            .collect();
        let mut items: Vec<Item<'_>> = Vec::with_capacity(parts.len());
        for ((statement, _), bound) in parts.iter().zip(&bounds) {
            match &statement.plan {
                Plan::Mutation(plan) => {
                    self.check_part_level(
                        plan,
                        batch.params.consistency,
                        batch.params.serial_consistency,
                    )?;
                    items.push((plan, bound));
                }
                _ => {
                    let message = "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed.";
                    return Err(CqlError::invalid(message));
                }
            }
        }
        let kind = match batch.kind {
            WireKind::Logged => BatchKind::Logged,
            WireKind::Unlogged => BatchKind::Unlogged,
            WireKind::Counter => BatchKind::Counter,
        };
        self.write_batch(kind, &items, batch.params.timestamp, version, out)
    }

    /// `BEGIN BATCH .. APPLY BATCH`
    pub(super) fn run_batch_plan(
        &self,
        batch: &BatchPlan,
        bound: &Bound<'_>,
        version: u8,
        timestamp: Option<i64>,
        out: &mut Vec<u8>,
    ) -> Result<Done, CqlError> {
        let own = bigint(batch.timestamp.as_ref(), bound, "timestamp")?;
        if own.is_some() && batch.mutations.iter().any(MutationPlan::is_conditional) {
            return Err(CqlError::invalid("Cannot provide custom timestamp for conditional BATCH"));
        }
        let items: Vec<Item<'_>> = batch.mutations.iter().map(|plan| (plan, bound)).collect();
        self.write_batch(batch.kind, &items, own.or(timestamp), version, out)
    }

    fn write_batch(
        &self,
        kind: BatchKind,
        items: &[Item<'_>],
        timestamp: Option<i64>,
        version: u8,
        out: &mut Vec<u8>,
    ) -> Result<Done, CqlError> {
        let counters = items.iter().filter(|(plan, _)| plan.table.is_counter).count();
        let message = match (kind, counters) {
            (BatchKind::Counter, count) if count < items.len() => {
                Some("Cannot include non-counter statement in a counter batch")
            }
            (BatchKind::Logged, 1..) => {
                Some("Cannot include a counter statement in a logged batch")
            }
            (BatchKind::Unlogged, count) if (1..items.len()).contains(&count) => {
                Some("Counter and non-counter mutations cannot exist in the same batch")
            }
            _ => None,
        };
        if let Some(message) = message {
            return Err(CqlError::invalid(message));
        }
        if items.is_empty() {
            shunt_wire::cql::message::encode::void(out);
            return Ok(Done::now(shunt_wire::cql::envelope::opcode::RESULT));
        }
        self.write(items, timestamp, version, Some(kind), out)
    }
}
