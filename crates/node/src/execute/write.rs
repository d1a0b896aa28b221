//! Path of writes into the stores: all writes of a statement or batch to one store at once, under
//! the partition's lock if a read preceded.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard};

use shunt_language::ast::{BatchKind, NativeType};
use shunt_language::types::CqlType;
use shunt_storage::StoreError;
use shunt_storage::engine::EngineError;
use shunt_storage::row::{Deletion, Fragment, PartitionKey};
use shunt_storage::store::{Durability, MutationRef, Slice, Store, Ticket};
use shunt_topology::Token;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::metadata::metadata_flag;
use shunt_wire::cql::message::{encode, put, result_kind};

use super::changes::reads_lists;
use super::conditional::{Request, ShownValue};
use super::keys::Partition;
use super::mutate::{Item, Mutator, Place, Write};
use super::{Done, Executor, warnings};
use crate::error::CqlError;
use crate::schema::Table;
use crate::shared;

impl Executor {
    /// Executes statements that write, all or none of them, and appends the answer. `timestamp` is
    /// the request's own.
    pub(super) fn write(
        &self,
        items: &[Item<'_>],
        timestamp: Option<i64>,
        version: u8,
        kind: Option<BatchKind>,
        out: &mut Vec<u8>,
    ) -> Result<Done, CqlError> {
        let conditional = items.iter().any(|(plan, _)| plan.is_conditional());
        // All statements of a batch share one time.
        let first = items.first().map_or(0, |(_, bound)| bound.now_us);
        let mut mutators = Vec::with_capacity(items.len());
        for (index, (plan, bound)) in items.iter().enumerate() {
            mutators.push(Mutator::new(
                plan,
                bound,
                (&self.shared, &self.effort),
                timestamp.unwrap_or(first),
                index,
            )?);
        }
        if conditional {
            // The statement reads under a lock that others hold while they read.
            self.may_lock(&mutators)?;
            return self.write_if(&mut mutators, kind.is_some(), version, out);
        }
        if items.iter().any(|(plan, _)| plan.finds_counters()) {
            self.effort.may_take_long()?;
        }
        if items.iter().any(|(plan, _)| reads_lists(plan)) {
            self.may_lock(&mutators)?;
        }
        let locks = self.lock_for_lists(&mutators)?;
        if timestamp.is_none() && !locks.is_empty() {
            // Under the lock: earlier holders have finished writing.
            let now_us = self.shared.now_us();
            mutators.iter_mut().for_each(|mutator| mutator.begin_at(now_us));
        }
        let mut writes = Vec::new();
        for mutator in &mut mutators {
            writes.append(&mut mutator.writes()?);
        }
        if let Some(kind) = kind {
            warnings::check_batch(kind, items, &writes, &self.aside)?;
        }
        if self.may_gather(&writes) {
            self.gathering.add(writes, self.durability(items));
            encode::void(out);
            return Ok(Done { gathered: true, ..Done::now(opcode::RESULT) });
        }
        let durable_at = self.apply(items, &writes)?;
        encode::void(out);
        Ok(Done { durable_at, ..Done::now(opcode::RESULT) })
    }

    /// Must be called before partitions are locked. A request that would wait for one lock names
    /// it, so that requests for one partition are dispatched one after another; one that needs
    /// several, or reads much under a lock, takes long.
    fn may_lock(&self, mutators: &[Mutator<'_>]) -> Result<(), CqlError> {
        let mut locks = Vec::new();
        for mutator in mutators {
            locks.extend(
                mutator.partitions()?.iter().map(|partition| self.shared.lock_of(partition.token)),
            );
        }
        locks.sort_unstable();
        locks.dedup();
        if locks.len() > 1 || mutators.iter().any(|mutator| mutator.plan.deletes_ranges()) {
            return self.effort.may_take_long();
        }
        self.effort.will_lock(locks.first().copied());
        self.effort.may_wait()
    }

    /// Locks the partitions whose lists are read first, each lock once and in a global order.
    fn lock_for_lists(
        &self,
        mutators: &[Mutator<'_>],
    ) -> Result<Vec<MutexGuard<'_, ()>>, CqlError> {
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

    /// True if writes can wait for others of this turn. Traced writes and those to other nodes go
    /// alone.
    fn may_gather(&self, writes: &[Write]) -> bool {
        let all_own = || writes.iter().all(|write| self.owner(write) == self.node);
        self.effort.is_of_a_loop() && !self.aside.is_traced() && !writes.is_empty() && all_own()
    }

    /// Node whose store a write goes to.
    fn owner(&self, write: &Write) -> usize {
        self.shared.info.owner(write.partition.token)
    }

    /// The strictest durability of the keyspaces.
    fn durability(&self, items: &[Item<'_>]) -> Durability {
        let schema = self.shared.schema();
        let durable = items.iter().filter_map(|(plan, _)| schema.keyspace(&plan.table.keyspace));
        let durability = durable.map(|keyspace| shared::durability(keyspace));
        let durability = durability.fold(None, |all, one| match (all, one) {
            (Some(Durability::Batch), _) | (_, Durability::Batch) => Some(Durability::Batch),
            (_, periodic) => Some(periodic),
        });
        durability.unwrap_or(Durability::Batch)
    }

    /// Writes to the stores. A batch over several nodes is atomic in each of them. Once one has its
    /// part, no error may claim that nothing was done.
    fn apply(&self, items: &[Item<'_>], writes: &[Write]) -> Result<Option<u64>, CqlError> {
        self.aside
            .note(|| format!("Made {} mutation(s) of {} statement(s)", writes.len(), items.len()));
        let durability = self.durability(items);
        let foreign = writes.iter().any(|write| self.owner(write) != self.node);
        let several = writes.windows(2).any(|two| self.owner(&two[0]) != self.owner(&two[1]));
        // With several nodes one may refuse after another has written, and a loop cannot retry
        // that.
        if foreign && (durability == Durability::Batch || several) {
            self.effort.may_wait()?;
        }
        let mutations_of = |index: usize| -> Vec<MutationRef<'_>> {
            writes.iter().filter(|write| self.owner(write) == index).map(Write::mutation).collect()
        };
        if several {
            for (index, store) in self.shared.stores().iter().enumerate() {
                let own = mutations_of(index);
                if !own.is_empty() {
                    store.check_request(own)?;
                }
            }
        }
        let (mut durable_at, mut written) = (None, false);
        for (index, store) in self.shared.stores().iter().enumerate() {
            let own = mutations_of(index);
            if own.is_empty() {
                continue;
            }
            let ticket =
                self.apply_to(store, &own, durability, several).map_err(|error| match error {
                    CqlError::Overloaded(why) | CqlError::Server(why) | CqlError::Invalid(why)
                        if written =>
                    {
                        CqlError::WrittenInPart(format!(
                            "other nodes have written their part of it, but: {why}"
                        ))
                    }
                    error => error,
                })?;
            written = true;
            let address = self.shared.info.nodes[index].address;
            self.aside.note(|| {
                format!("Appended {} mutation(s) to the log and memtable of {address}", own.len())
            });
            if durability == Durability::Batch {
                if index == self.node {
                    durable_at = Some(ticket.0);
                    self.aside.note(|| "Waiting until the log is on disk");
                } else {
                    // A statement sent to a node that does not own its partition: rare behind a
                    // proxy.
                    store.wait_durable(ticket)?;
                    self.aside.note(|| format!("The log of {address} is on disk"));
                }
            }
        }
        Ok(durable_at)
    }

    /// A loop never waits for compaction or the disk; of the workers, only those for long requests
    /// wait for compaction. If another store has written its part already, waiting is the only
    /// choice.
    fn apply_to(
        &self,
        store: &Store,
        own: &[MutationRef<'_>],
        durability: Durability,
        several: bool,
    ) -> Result<Ticket, CqlError> {
        if self.effort.may_stall() || several {
            return Ok(store.apply(own.iter().copied(), durability)?);
        }
        // Earlier writes go first.
        self.gathering.carry_out();
        match store.append([own.iter().copied()]) {
            Ok(mut appended) => match appended.refused.pop() {
                Some((_, why)) => Err(why.into()),
                None => {
                    store.request_sync(durability);
                    Ok(appended.ticket)
                }
            },
            Err(StoreError::Engine(EngineError::Busy)) => Err(CqlError::WouldWait { long: true }),
            Err(error) => Err(error.into()),
        }
    }

    /// A refusal reveals writes of others. It waits until these are on disk: data that one client
    /// has seen must not be lost for the next if the process dies in between.
    fn settle_read(&self, table: &Table, token: Token) -> Result<Option<u64>, CqlError> {
        let schema = self.shared.schema();
        let keyspace =
            schema.keyspace(&table.keyspace).map(|keyspace| shared::durability(keyspace));
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

    /// Executes the writes of conditional statements whose conditions hold. The caller holds the
    /// partition's lock.
    ///
    /// All writes have one timestamp, like the ballot in Cassandra, whatever single statements say.
    /// It is later than every timestamp on the written rows: an invisible write must not be
    /// acknowledged, and an older one must not reappear. The clock alone does not suffice: it may
    /// have stepped back across a restart, and clients choose timestamps.
    fn conditional_writes(
        &self,
        mutators: &mut [Mutator<'_>],
        now_us: i64,
    ) -> Result<Vec<Write>, CqlError> {
        let mut writes = writes_at(mutators, now_us)?;
        let mut newest = None;
        for write in &writes {
            newest = newest.max(self.newest(write)?);
        }
        // A column with the name of a dropped one omits older values.
        let columns = mutators.iter().flat_map(|mutator| &mutator.plan.table.columns);
        newest = newest.max(columns.filter_map(|column| column.dropped_us).max());
        let Some(newest) = newest.filter(|newest| *newest >= now_us) else { return Ok(writes) };
        let Some(later) = newest.checked_add(1) else {
            return Err(CqlError::Invalid(format!(
                "what the statement writes to has the timestamp {newest}, after which nothing can be written on a condition"
            )));
        };
        self.aside.note(|| {
            format!("The time of the write is {later}: what it writes to is later than the clock")
        });
        writes = writes_at(mutators, later)?;
        Ok(writes)
    }

    /// Newest timestamp that a write must exceed.
    fn newest(&self, write: &Write) -> Result<Option<i64>, CqlError> {
        let store = self.shared.store(write.partition.token);
        let (table, partition) = (write.table, PartitionKey(&write.partition.key));
        let Fragment::Header(header) = &write.fragment else {
            return Ok(store.newest_of_row(table, partition, write.place.target())?);
        };
        let goes_on = |bytes| self.effort.has_read_bytes(bytes);
        if header.deletion.is_some() {
            return store.newest_of_slice((table, partition), &Slice::default(), true, goes_on);
        }
        let mut newest = None;
        for range in &header.ranges {
            let (from, to) = range.bounds();
            let slice = Slice { from, to, ..Slice::default() };
            let own = store.newest_of_slice((table, partition), &slice, false, goes_on)?;
            newest = newest.max(own);
        }
        Ok(newest)
    }

    /// Executes a conditional statement, or a conditional batch on one partition.
    fn write_if(
        &self,
        mutators: &mut [Mutator<'_>],
        batch: bool,
        version: u8,
        out: &mut Vec<u8>,
    ) -> Result<Done, CqlError> {
        let request = Request::new(mutators, batch)?;
        if request.reads_many_rows() {
            self.effort.may_take_long()?;
        }
        let _locks = self.shared.lock_partitions(&[request.partition.token]);
        let table = Arc::clone(&mutators[0].plan.table);
        self.aside.note(|| format!("Locked a partition of {}.{}", table.keyspace, table.name));
        let now_us = self.shared.now_us();
        mutators.iter_mut().for_each(|mutator| mutator.begin_at(now_us));
        let current = request.read(mutators, &self.shared, &self.effort)?;
        let holds = request.holds(&current)?;
        self.aside.note(|| {
            format!(
                "Read what the conditions ask for: they {}",
                if holds { "hold" } else { "do not hold" }
            )
        });
        if !holds {
            let (columns, rows) = request.refusal(&current)?;
            put_refused(&table, &columns, &rows, version, out);
            let durable_at = self.settle_read(&table, request.partition.token)?;
            return Ok(Done { durable_at, ..Done::now(opcode::RESULT) });
        }
        let writes = self.conditional_writes(mutators, now_us)?;
        let items: Vec<Item<'_>> =
            mutators.iter().map(|mutator| (mutator.plan, mutator.bound)).collect();
        let durable_at = self.apply(&items, &writes)?;
        put_columns(&table, &[], version, out);
        put::int(out, 1);
        put::bytes(out, Some(&[1]));
        Ok(Done { durable_at, ..Done::now(opcode::RESULT) })
    }
}

/// Returns the writes of conditional statements with a timestamp.
fn writes_at(mutators: &mut [Mutator<'_>], timestamp: i64) -> Result<Vec<Write>, CqlError> {
    let (mut writes, mut whole) = (Vec::new(), Vec::new());
    let mut positions = HashMap::new();
    for mutator in mutators.iter_mut() {
        mutator.set_timestamp(timestamp);
        for write in mutator.writes()? {
            merge(&mut writes, &mut positions, write, &mut whole);
        }
    }
    // A row that is its whole partition is deleted as one, before the writes of the same batch to
    // it.
    for (write, deletion) in whole {
        if let Fragment::Row(row) = &mut writes[write].fragment {
            row.deletion = row.deletion.max(Some(deletion));
        }
    }
    writes.iter_mut().for_each(|write| write.deletions_first());
    Ok(writes)
}

/// Merges a write with earlier ones to the same key.
///
/// `positions`: index of the first write to each key. Deletions of rows without clustering columns
/// are collected separately, with the index of their write.
fn merge(
    writes: &mut Vec<Write>,
    positions: &mut HashMap<(Partition, Place), usize>,
    mut write: Write,
    whole: &mut Vec<(usize, Deletion)>,
) {
    let is_whole = matches!(&write.place, Place::Row(clustering) if clustering.is_empty());
    let deletion = match &mut write.fragment {
        Fragment::Row(row) if is_whole => row.deletion.take(),
        _ => None,
    };
    let position =
        *positions.entry((write.partition.clone(), write.place.clone())).or_insert(writes.len());
    match (writes.get_mut(position).map(|same| &mut same.fragment), write.fragment) {
        (Some(Fragment::Row(row)), Fragment::Row(newer)) => row.merge(newer),
        (Some(Fragment::Header(header)), Fragment::Header(newer)) => header.merge(newer),
        (_, fragment) => writes.push(Write { fragment, ..write }),
    }
    whole.extend(deletion.map(|deletion| (position, deletion)));
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

/// Appends `[applied]` false and the current values.
fn put_refused(
    table: &Table,
    columns: &[usize],
    rows: &[Vec<ShownValue>],
    version: u8,
    out: &mut Vec<u8>,
) {
    put_columns(table, columns, version, out);
    put::int(out, rows.len().max(1) as i32);
    if rows.is_empty() {
        put::bytes(out, Some(&[0]));
    }
    for row in rows {
        put::bytes(out, Some(&[0]));
        row.iter().for_each(|value| put::bytes(out, value.as_deref()));
    }
}
