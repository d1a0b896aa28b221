//! Execution of requests: QUERY, PREPARE, EXECUTE and BATCH as bodies in, answers as bodies out.
//!
//! An answer to a write carries the place in the store's log at which the write is durable, if the
//! keyspace requires waiting; the connection's server waits, not this module.

pub(crate) mod annotations;
mod batch;
pub(crate) mod bindings;
mod changes;
mod conditional;
mod conditions;
mod describe;
mod effort;
pub(crate) mod fragment;
mod gather;
mod intervals;
mod json;
pub(crate) mod keys;
mod mutate;
mod replicas;
pub(crate) mod rows;
pub(crate) mod select;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_locks;
#[cfg(test)]
mod tests_of_loops;
mod warnings;
mod write;

use std::net::IpAddr;
use std::sync::Arc;

use shunt_language::functions::timeuuid;
use shunt_wire::cql::envelope::{flag, opcode};
use shunt_wire::cql::message::metadata::metadata_flag;
use shunt_wire::cql::message::{
    Execute, Prepare, Query, QueryParams, Values, encode, split_request_prefix,
};
use shunt_wire::cql::message::{put, result_kind};

use crate::error::CqlError;
use crate::limits;
use crate::shared::Shared;
use crate::statement::{Plan, Statement};
use crate::trace::{Origin, Trace};
use annotations::Aside;
use bindings::Bound;
use effort::Effort;
pub(crate) use effort::Ends;
pub(crate) use gather::Carried;
use gather::Gathering;
use select::{Page, Place};

/// State shared by the statements of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientState {
    /// Set by USE.
    pub(crate) keyspace: Option<Arc<str>>,
    /// Address of the client.
    pub(crate) address: Option<IpAddr>,
}

/// A request as received.
pub(crate) struct Request<'a> {
    pub(crate) version: u8,
    pub(crate) flags: u8,
    pub(crate) opcode: u8,
    pub(crate) body: &'a [u8],
}

/// Outcome of a request; its body was appended to the buffer.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) opcode: u8,
    pub(crate) flags: u8,
    /// The answer is true once the node's log is durable up to here.
    pub(crate) durable_at: Option<u64>,
    /// The answer must wait until its gathered writes have been executed
    /// ([`Executor::finish_gathered`]).
    pub(crate) gathered: bool,
    /// Must be kept when the answer is sent ([`Executor::keep_trace`]).
    pub(crate) trace: Option<Box<Trace>>,
}

impl Done {
    /// An answer that need not wait.
    pub(crate) fn now(opcode: u8) -> Done {
        Done { opcode, flags: 0, durable_at: None, gathered: false, trace: None }
    }
}

/// Next step of an event loop with a request.
#[derive(Debug)]
pub(crate) enum Outcome {
    Done(Done),
    /// The request must be executed where it may wait.
    WouldWait(WouldWait),
}

/// A request that was given up.
#[derive(Debug)]
pub(crate) struct WouldWait {
    /// The request will take long.
    pub(crate) long: bool,
    /// Lock of the partition that the request reads and changes: it admits one request at a time.
    pub(crate) lock: Option<usize>,
    /// Trace so far, for the next executor ([`Executor::resume`]).
    pub(crate) trace: Option<Box<Trace>>,
}

/// Executor of one node's requests.
pub(crate) struct Executor {
    shared: Arc<Shared>,
    node: usize,
    /// Additions to the answer of the current request.
    aside: Aside,
    effort: Effort,
    gathering: Gathering,
    /// Trace of the next request, if it was begun elsewhere.
    resumed: Option<Box<Trace>>,
}

impl Executor {
    /// An executor for the node with this number.
    pub(crate) fn new(shared: Arc<Shared>, node: usize) -> Executor {
        let gathering = Gathering::new(Arc::clone(&shared), node);
        Executor {
            shared,
            node,
            aside: Aside::default(),
            effort: Effort::of_a_loop(),
            gathering,
            resumed: None,
        }
    }

    /// Executes one request and appends the body of its answer. May wait for the disk and take
    /// long, up to its deadline.
    pub(crate) fn execute_until(
        &mut self,
        ends: Ends,
        client: &mut ClientState,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Done {
        self.effort = Effort::of_a_long_worker(ends);
        match self.attempt(client, request, out) {
            Outcome::Done(done) => done,
            // Only time limits it.
            Outcome::WouldWait(_) => refused(&CqlError::TimedOut, request.version, out),
        }
    }

    /// Like [`Executor::execute_until`], without a deadline.
    #[cfg(test)]
    pub(crate) fn execute(
        &mut self,
        client: &mut ClientState,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Done {
        self.execute_until(Ends::default(), client, request, out)
    }

    /// Like [`Executor::execute_until`], waiting for the disk but not for long; otherwise reports
    /// that without effect.
    pub(crate) fn execute_shortly(
        &mut self,
        ends: Ends,
        client: &mut ClientState,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Outcome {
        self.effort = Effort::of_a_worker(ends);
        self.attempt(client, request, out)
    }

    /// Like [`Executor::execute_until`], from memory alone and within limits; otherwise reports
    /// that without effect. Writes are gathered, until [`Executor::finish_gathered`] at the latest.
    pub(crate) fn execute_at_once(
        &mut self,
        client: &mut ClientState,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Outcome {
        self.effort = Effort::of_a_loop();
        self.attempt(client, request, out)
    }

    fn attempt(
        &mut self,
        client: &mut ClientState,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let before = out.len();
        self.aside = self.new_aside(client, request);
        self.aside.put_tracing_id(out);
        let start = out.len();
        // A custom payload is for user-defined query handlers, which a node lacks: it is accepted
        // and ignored, as by Cassandra's own handler.
        let outcome = split_request_prefix(request.flags, request.body)
            .map_err(|error| CqlError::Protocol(error.to_string()))
            .and_then(|(_, body)| self.run(client, request, body, out));
        if let Err(CqlError::WouldWait { long }) = outcome {
            out.truncate(before);
            // The next executor sees this loop's earlier writes.
            self.gathering.carry_out();
            self.aside.note(|| "Handed over to a thread that may wait for the disk");
            return Outcome::WouldWait(WouldWait {
                long,
                lock: self.effort.lock(),
                trace: self.aside.take_trace(),
            });
        }
        let mut done = outcome.unwrap_or_else(|error| {
            out.truncate(start);
            self.aside.note(|| format!("The request failed: {error:?}"));
            refused(&error, request.version, out)
        });
        let (flags, trace) = self.aside.finish(request.version, start, out);
        done.flags |= flags;
        done.trace = trace;
        Outcome::Done(done)
    }

    /// Executes the gathered writes. Returns the outcome of each request, in order of execution.
    pub(crate) fn finish_gathered(&self) -> Vec<Carried> {
        self.gathering.finish()
    }

    /// Announces that the next request was given up elsewhere; its trace continues.
    pub(crate) fn resume(&mut self, trace: Option<Box<Trace>>) {
        self.resumed = trace;
    }

    fn new_aside(&mut self, client: &ClientState, request: &Request<'_>) -> Aside {
        if let Some(trace) = self.resumed.take() {
            return Aside::resumed(trace);
        }
        if request.flags & flag::TRACING == 0 {
            return Aside::default();
        }
        let kind = match request.opcode {
            opcode::EXECUTE => "Execute CQL3 prepared query",
            opcode::PREPARE => "Preparing CQL3 query",
            opcode::BATCH => "Execute batch of CQL3 queries",
            _ => "Execute CQL3 query",
        };
        let started_us = self.shared.now_us();
        let session = timeuuid(started_us * 10, self.shared.random() as u64);
        Aside::traced(kind, Origin { session, started_us, client: client.address })
    }

    /// Keeps the trace of a request whose answer is being sent. Returns whether there was room.
    pub(crate) fn keep_trace(&self, trace: Box<Trace>) -> bool {
        self.shared.traces.keep(trace, self.node)
    }

    fn run(
        &mut self,
        client: &mut ClientState,
        request: &Request<'_>,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Done, CqlError> {
        let malformed =
            |error: shunt_wire::error::DecodeError| CqlError::Protocol(error.to_string());
        let version = request.version;
        match request.opcode {
            opcode::QUERY => {
                let query = Query::decode(version, body).map_err(malformed)?;
                self.aside
                    .parameters(|| annotations::parameters(Some(query.text), Some(&query.params)));
                let keyspace = query.params.keyspace.or(client.keyspace.as_deref());
                let statement = self.prepare(query.text, keyspace)?;
                self.run_statement(client, &statement, version, &query.params, None, out)
            }
            opcode::PREPARE => {
                let prepare = Prepare::decode(version, body).map_err(malformed)?;
                self.aside.parameters(|| annotations::parameters(Some(prepare.text), None));
                let keyspace = prepare.keyspace.or(client.keyspace.as_deref());
                crate::prepared::check(prepare.text)?;
                let statement = Arc::new(self.prepare(prepare.text, keyspace)?);
                self.shared.keep_prepared(&statement);
                put_prepared(&statement, version, out);
                Ok(Done::now(opcode::RESULT))
            }
            opcode::EXECUTE => {
                let execute = Execute::decode(version, body).map_err(malformed)?;
                let statement = self.find_prepared(execute.id)?;
                self.aside.parameters(|| {
                    annotations::parameters(Some(&statement.text), Some(&execute.params))
                });
                let known = execute.result_metadata_id;
                self.run_statement(client, &statement, version, &execute.params, known, out)
            }
            opcode::BATCH => self.run_batch(client, version, body, out),
            other => Err(CqlError::Protocol(format!("opcode {other:#x} is not executed"))),
        }
    }

    fn prepare(&self, text: &str, keyspace: Option<&str>) -> Result<Statement, CqlError> {
        self.aside.note(|| format!("Parsing {text}"));
        let statement =
            Statement::prepare(text, keyspace, &self.shared.schema(), self.shared.now_us() / 1000)?;
        self.aside.note(|| "Statement parsed and prepared");
        Ok(statement)
    }

    /// A prepared statement, prepared again if the schema has changed since.
    fn find_prepared(&self, id: &[u8]) -> Result<Arc<Statement>, CqlError> {
        let unknown = || CqlError::Unprepared(id.to_vec());
        let statement = self.shared.prepared(id).ok_or_else(unknown)?;
        if statement.schema_number == self.shared.schema().number {
            return Ok(statement);
        }
        self.aside.note(|| "The schema has changed since the statement was prepared");
        let again = self.prepare(&statement.text, statement.keyspace.as_deref());
        let again = Arc::new(again.map_err(|_| unknown())?);
        // The client's metadata is outdated: it must prepare again.
        if !again.looks_as(&statement) {
            return Err(unknown());
        }
        self.shared.keep_prepared(&again);
        Ok(again)
    }

    fn run_statement(
        &self,
        client: &mut ClientState,
        statement: &Statement,
        version: u8,
        params: &QueryParams<'_>,
        known_result: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<Done, CqlError> {
        check_values(statement, &params.values)?;
        let bound = Bound::new(statement, &params.values, &self.shared, &self.aside);
        self.aside.parameters(|| bound.shown());
        match &statement.plan {
            Plan::Select(select) => {
                self.check_read_level(&select.table.keyspace, params.consistency)?;
                let outdated = known_result
                    .is_some_and(|known| !known.is_empty() && known != statement.result_id);
                let page = Page {
                    version,
                    page_size: params.page_size.filter(|size| *size > 0),
                    paging_state: params.paging_state.map(<[u8]>::to_vec),
                    skip_metadata: params.skips_metadata() && !outdated,
                    new_metadata_id: (version >= 5 && outdated).then_some(statement.result_id),
                };
                let schema = self.shared.schema();
                let (shared, node, effort, gathering) =
                    (&self.shared, self.node, &self.effort, &self.gathering);
                let place = Place { shared, schema: &schema, node, effort, gathering };
                select::run(select, &bound, &place, &page, out)?;
                Ok(Done::now(opcode::RESULT))
            }
            Plan::Mutation(mutation) => {
                self.check_write_level(mutation, params.consistency, params.serial_consistency)?;
                self.write(&[(mutation, &bound)], params.timestamp, version, None, out)
            }
            Plan::Batch(batch) => {
                for mutation in &batch.mutations {
                    self.check_part_level(mutation, params.consistency, params.serial_consistency)?;
                }
                self.run_batch_plan(batch, &bound, version, params.timestamp, out)
            }
            Plan::Truncate(name) => {
                self.effort.may_take_long()?;
                self.truncate(client, name, out)
            }
            Plan::Use(keyspace) => {
                if self.shared.schema().keyspace(keyspace).is_none() {
                    return Err(CqlError::Invalid(format!("Keyspace '{keyspace}' does not exist")));
                }
                client.keyspace = Some(Arc::from(keyspace.as_str()));
                encode::set_keyspace(out, keyspace);
                Ok(Done::now(opcode::RESULT))
            }
            Plan::Schema(statement_change) => {
                self.effort.may_take_long()?;
                let session = statement.keyspace.as_deref();
                let change = self.shared.change(statement_change, session)?;
                self.aside.note(|| "The schema is on disk");
                match &change {
                    Some(change) => encode::schema_change(out, &change.in_protocol()),
                    None => encode::void(out),
                }
                Ok(Done::now(opcode::RESULT))
            }
            Plan::Describe(target) => {
                let session = statement.keyspace.as_deref();
                describe::run(target, session, &self.shared.schema(), &self.shared.info, out)?;
                Ok(Done::now(opcode::RESULT))
            }
        }
    }

    fn truncate(
        &self,
        client: &ClientState,
        name: &shunt_language::ast::QualifiedName,
        out: &mut Vec<u8>,
    ) -> Result<Done, CqlError> {
        let schema = self.shared.schema();
        let table = schema.find_table(name, client.keyspace.as_deref())?;
        let Some(number) = table.number else {
            return Err(CqlError::Unauthorized(format!(
                "{} keyspace is not user-modifiable.",
                table.keyspace
            )));
        };
        for store in self.shared.stores() {
            let durability = shunt_storage::store::Durability::Batch;
            store.wait_durable(store.truncate(number, durability)?)?;
            self.aside.note(|| {
                format!("Truncated {}.{} in one node's store", table.keyspace, table.name)
            });
        }
        encode::void(out);
        Ok(Done::now(opcode::RESULT))
    }

    /// Number of the node.
    pub(crate) fn node(&self) -> usize {
        self.node
    }

    /// Reason why a place in the log of the node's store will not become durable, if known.
    pub(crate) fn lost(&self, place: u64) -> Option<String> {
        let outcome = self.shared.stores()[self.node].outcome(shunt_storage::store::Ticket(place));
        outcome.and_then(Result::err).map(|error| error.to_string())
    }

    /// Durable position in the log of the node's store.
    pub(crate) fn durable(&self) -> u64 {
        self.shared.stores()[self.node].durable().0
    }
}

/// Appends the answer of a request that failed.
pub(crate) fn refused(error: &CqlError, version: u8, out: &mut Vec<u8>) -> Done {
    error.put(out, version);
    Done::now(opcode::ERROR)
}

/// Refuses too many or too few bind values.
fn check_values(statement: &Statement, values: &Values<'_>) -> Result<(), CqlError> {
    let (wanted, given) = (statement.markers.len(), values.len());
    // A value missing by its name is unset.
    if wanted != given && !values.is_named() {
        let message = format!(
            "Invalid amount of bind variables: there were {wanted} markers(?) in CQL but {given} bound variables"
        );
        return Err(CqlError::Invalid(message));
    }
    // A text may name one value any number of times, and is executed with as many copies.
    if values.is_named() {
        let names = || statement.markers.iter().map(|marker| marker.name.as_str());
        let known = values.with_names(names());
        let bytes_of =
            |name: &str| known.get(name).and_then(|value| value.bytes()).map_or(0, <[u8]>::len);
        let bytes_max = limits::GATHERED_BYTES_MAX;
        if names().map(bytes_of).fold(0, usize::saturating_add) > bytes_max {
            return Err(CqlError::Invalid(format!(
                "the values that this statement names have more than {bytes_max} bytes, each counted as often as it is named: use several requests"
            )));
        }
    }
    Ok(())
}

/// The body of RESULT for a prepared statement (v5, section 4.2.5.4).
fn put_prepared(statement: &Statement, version: u8, out: &mut Vec<u8>) {
    put::int(out, result_kind::PREPARED);
    put::short_bytes(out, &statement.id);
    if version >= 5 {
        put::short_bytes(out, &statement.result_id);
    }
    let markers = &statement.markers;
    let one_table = markers.windows(2).all(|pair| pair[0].table == pair[1].table);
    let global = markers.first().filter(|_| one_table);
    put::int(out, if global.is_some() { metadata_flag::GLOBAL_TABLE } else { 0 });
    put::int(out, statement.markers.len() as i32);
    if version >= 4 {
        // The key's position is useless if the markers are for several tables.
        let key_markers = statement.key_markers.iter().filter(|_| one_table);
        put::int(out, key_markers.clone().count() as i32);
        key_markers.for_each(|index| put::short(out, *index));
    }
    let put_table = |out: &mut Vec<u8>, (keyspace, table): &(String, String)| {
        put::string(out, keyspace);
        put::string(out, table);
    };
    global.iter().for_each(|marker| put_table(out, &marker.table));
    for marker in markers {
        if global.is_none() {
            put_table(out, &marker.table);
        }
        put::string(out, &marker.name);
        marker.cql_type.write_option(version, out);
    }
    if statement.result.is_empty() {
        put::int(out, metadata_flag::NO_METADATA);
        put::int(out, 0);
        return;
    }
    let first = &statement.result[0];
    put::int(out, metadata_flag::GLOBAL_TABLE);
    put::int(out, statement.result.len() as i32);
    put::string(out, &first.keyspace);
    put::string(out, &first.table);
    for column in &statement.result {
        put::string(out, &column.name);
        column.cql_type.write_option(version, out);
    }
}
