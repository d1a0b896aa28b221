//! Writes, on their way into the stores: all of a statement or batch to one store at once, under the partition's lock
//! where something was read before.

use std::sync::MutexGuard;

use shunt_cql::ast::{BatchKind, NativeType};
use shunt_cql::types::CqlType;
use shunt_storage::store::{Durability, Mutation};
use shunt_topology::Token;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::metadata::metadata_flag;
use shunt_wire::cql::message::{encode, put, result_kind};

use super::bindings::Bound;
use super::changes::reads_lists;
use super::conditions::Current;
use super::mutate::{Mutator, Write};
use super::{Done, Executor, warnings};
use crate::error::CqlError;
use crate::schema::Table;
use crate::shared;
use crate::statement::mutation::{ConditionPlan, MutationPlan};

/// A statement of a batch, or the only one.
pub(super) type Item<'a> = (&'a MutationPlan, &'a Bound<'a>);

impl Executor {
    /// Carries out statements that write, all or none of them, and appends the answer.
    pub(super) fn write(
        &self,
        items: &[Item<'_>],
        timestamp: i64,
        version: u8,
        kind: Option<BatchKind>,
        out: &mut Vec<u8>,
    ) -> Result<Done, CqlError> {
        let mut mutators = Vec::with_capacity(items.len());
        for (plan, bound) in items {
            mutators.push(Mutator::new(plan, bound, &self.shared, timestamp)?);
        }
        if items.iter().any(|(plan, _)| plan.is_conditional()) {
            return self.write_if(&mut mutators, kind.is_some(), version, out);
        }
        let _locks = self.lock_for_lists(&mutators)?;
        let mut writes = Vec::new();
        for mutator in &mut mutators {
            writes.append(&mut mutator.writes()?);
        }
        if let Some(kind) = kind {
            warnings::check_batch(kind, items, &writes, &self.aside)?;
        }
        let durable_at = self.apply(items, &writes)?;
        encode::void(out);
        Ok(Done { durable_at, ..Done::now(opcode::RESULT) })
    }

    /// Locks the partitions whose lists are read first, each lock once and in one order for everybody.
    fn lock_for_lists(&self, mutators: &[Mutator<'_>]) -> Result<Vec<MutexGuard<'_, ()>>, CqlError> {
        let mut tokens: Vec<Token> = Vec::new();
        for mutator in mutators.iter().filter(|mutator| reads_lists(mutator.plan)) {
            tokens.extend(mutator.partitions()?.iter().map(|partition| partition.token));
        }
        let locks = self.shared.lock_partitions(&tokens);
        if !tokens.is_empty() {
            self.aside.note(|| "Locked the partitions whose lists are read");
        }
        Ok(locks)
    }

    /// Writes to the stores. A batch over several nodes is atomic in each of them.
    fn apply(&self, items: &[Item<'_>], writes: &[Write]) -> Result<Option<u64>, CqlError> {
        self.aside.note(|| format!("Made {} mutation(s) of {} statement(s)", writes.len(), items.len()));
        let schema = self.shared.schema();
        let durable = items.iter().filter_map(|(plan, _)| schema.keyspace(&plan.table.keyspace));
        let durability = durable.map(|keyspace| shared::durability(keyspace));
        let durability = durability.fold(None, |all, one| match (all, one) {
            (Some(Durability::Batch), _) | (_, Durability::Batch) => Some(Durability::Batch),
            (_, periodic) => Some(periodic),
        });
        let durability = durability.unwrap_or(Durability::Batch);
        let mut durable_at = None;
        for (index, store) in self.shared.stores().iter().enumerate() {
            let own = writes.iter().filter(|write| self.shared.info.owner(write.partition.token) == index);
            let own: Vec<Mutation<'_>> = own.map(Write::mutation).collect();
            if own.is_empty() {
                continue;
            }
            let ticket = store.apply(&own, durability)?;
            let address = self.shared.info.nodes[index].address;
            self.aside.note(|| format!("Appended {} mutation(s) to the log and memtable of {address}", own.len()));
            if durability == Durability::Batch {
                if index == self.node {
                    durable_at = Some(ticket.0);
                    self.aside.note(|| "Waiting until the log is on disk");
                } else {
                    // A statement that came to a node that does not own its partition: rare behind a proxy.
                    store.wait_durable(ticket)?;
                    self.aside.note(|| format!("The log of {address} is on disk"));
                }
            }
        }
        Ok(durable_at)
    }

    /// A refusal tells what others have written. It waits until that is on disk: what one client was told of must not be
    /// gone for the next, if the process dies in between.
    fn settle_read(&self, table: &Table, token: Token) -> Result<Option<u64>, CqlError> {
        let schema = self.shared.schema();
        let keyspace = schema.keyspace(&table.keyspace).map(|keyspace| shared::durability(keyspace));
        if keyspace.is_some_and(|durability| durability != Durability::Batch) {
            return Ok(None);
        }
        let index = self.shared.info.owner(token);
        let store = &self.shared.stores()[index];
        store.health()?;
        let ticket = store.settle();
        if index != self.node {
            store.wait_durable(ticket)?;
            return Ok(None);
        }
        Ok((ticket > store.durable()).then_some(ticket.0))
    }

    /// A statement, or a batch on one partition, with conditions.
    fn write_if(
        &self,
        mutators: &mut [Mutator<'_>],
        batch: bool,
        version: u8,
        out: &mut Vec<u8>,
    ) -> Result<Done, CqlError> {
        let table = std::sync::Arc::clone(&mutators[0].plan.table);
        let mut partitions = Vec::new();
        for mutator in mutators.iter_mut() {
            if mutator.plan.table.id != table.id {
                return Err(CqlError::invalid("Batch with conditions cannot span multiple tables"));
            }
            partitions.append(&mut mutator.all_partitions()?);
        }
        partitions.dedup();
        let [partition] = &partitions[..] else {
            return Err(CqlError::invalid("Batch with conditions cannot span multiple partitions"));
        };
        let _locks = self.shared.lock_partitions(&[partition.token]);
        self.aside.note(|| format!("Locked a partition of {}.{}", table.keyspace, table.name));
        let (mut applied, mut currents) = (true, Vec::new());
        for mutator in mutators.iter().filter(|mutator| mutator.plan.is_conditional()) {
            let current = Current::read(mutator, &self.shared)?;
            applied &= current.satisfies(mutator.plan, mutator.bound)?;
            currents.push((mutator.plan, current));
        }
        let verdict = if applied { "hold" } else { "do not hold" };
        self.aside.note(|| format!("Read {} row(s) for conditions, which {verdict}", currents.len()));
        let durable_at;
        if applied {
            let mut writes = Vec::new();
            for mutator in mutators.iter_mut() {
                writes.append(&mut mutator.writes()?);
            }
            let items: Vec<Item<'_>> = mutators.iter().map(|mutator| (mutator.plan, mutator.bound)).collect();
            durable_at = self.apply(&items, &writes)?;
            put_applied(&table, version, out);
        } else {
            durable_at = self.settle_read(&table, partition.token)?;
            put_refused(&table, &currents, batch, version, out);
        }
        Ok(Done { durable_at, ..Done::now(opcode::RESULT) })
    }
}

fn put_spec(name: &str, cql_type: &CqlType, version: u8, out: &mut Vec<u8>) {
    put::string(out, name);
    cql_type.write_option(version, out);
}

fn put_columns(table: &Table, columns: &[usize], version: u8, out: &mut Vec<u8>) {
    put::int(out, result_kind::ROWS);
    put::int(out, metadata_flag::GLOBAL_TABLE);
    put::int(out, 1 + columns.len() as i32);
    put::string(out, &table.keyspace);
    put::string(out, &table.name);
    put_spec("[applied]", &CqlType::Native(NativeType::Boolean), version, out);
    for position in columns {
        let column = &table.columns[*position];
        put_spec(&column.name, &column.cql_type, version, out);
    }
}

fn put_applied(table: &Table, version: u8, out: &mut Vec<u8>) {
    put_columns(table, &[], version, out);
    put::int(out, 1);
    put::bytes(out, Some(&[1]));
}

/// `[applied]` false, and what is there: the whole row for IF NOT EXISTS, the columns of the conditions else; in a
/// batch with the primary key, so that rows can be told apart.
fn put_refused(table: &Table, currents: &[(&MutationPlan, Current)], batch: bool, version: u8, out: &mut Vec<u8>) {
    let mut columns: Vec<usize> = Vec::new();
    for (plan, current) in currents {
        match &plan.conditions {
            ConditionPlan::NotExists if current.exists(plan) => columns.extend(0..table.columns.len()),
            ConditionPlan::Columns(all) if current.row.is_some() || current.statics.is_some() => {
                columns.extend(all.iter().map(|condition| condition.column));
            }
            _ => {}
        }
    }
    if batch && !columns.is_empty() {
        columns.extend(0..table.partition_key_len + table.clustering_len);
    }
    columns.sort_unstable();
    columns.dedup();
    put_columns(table, &columns, version, out);
    let rows: Vec<&Current> = match columns.is_empty() {
        true => currents.iter().take(1).map(|(_, current)| current).collect(),
        false => {
            let there = currents.iter().filter(|(_, current)| current.row.is_some() || current.statics.is_some());
            there.map(|(_, current)| current).collect()
        }
    };
    put::int(out, rows.len() as i32);
    for current in rows {
        put::bytes(out, Some(&[0]));
        for position in &columns {
            put::bytes(out, current.value(table, *position).as_deref());
        }
    }
}
