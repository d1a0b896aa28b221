//! Requests, executed: QUERY, PREPARE, EXECUTE and BATCH as bodies in, answers as bodies out.
//!
//! An answer that tells of a write carries the place in the store's log at which the write is durable, if the keyspace
//! wants that waited for; whoever serves the connection waits, not this module.

mod batch;
mod bindings;
mod changes;
mod conditional;
mod conditions;
mod describe;
mod fragment;
mod intervals;
mod json;
mod keys;
mod mutate;
pub(crate) mod rows;
pub(crate) mod select;
mod write;

use std::sync::Arc;

use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::metadata::metadata_flag;
use shunt_wire::cql::message::{
    Execute, Prepare, Query, QueryParams, SchemaChange, Values, encode, split_request_prefix,
};
use shunt_wire::cql::message::{put, result_kind};

use crate::error::CqlError;
use crate::schema::change::{Change, Object};
use crate::shared::Shared;
use crate::statement::{Plan, Statement};
use bindings::Bound;
use select::Page;

/// What statements of one connection share.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientState {
    /// Set by USE.
    pub(crate) keyspace: Option<Arc<str>>,
}

/// A request as it came.
pub(crate) struct Request<'a> {
    pub(crate) version: u8,
    pub(crate) flags: u8,
    pub(crate) opcode: u8,
    pub(crate) body: &'a [u8],
}

/// What became of a request; its body was appended to the buffer.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) opcode: u8,
    pub(crate) flags: u8,
    /// The answer is true when the node's own log is durable up to here.
    pub(crate) durable_at: Option<u64>,
}

impl Done {
    /// An answer that waits for nothing.
    pub(crate) fn now(opcode: u8) -> Done {
        Done { opcode, flags: 0, durable_at: None }
    }
}

/// Executes the requests of one node.
pub struct Executor {
    shared: Arc<Shared>,
    node: usize,
}

impl Executor {
    /// An executor for the node with this number.
    pub fn new(shared: Arc<Shared>, node: usize) -> Executor {
        Executor { shared, node }
    }

    /// Executes one request and appends the body of its answer.
    pub(crate) fn execute(&mut self, client: &mut ClientState, request: &Request<'_>, out: &mut Vec<u8>) -> Done {
        let start = out.len();
        let outcome = split_request_prefix(request.flags, request.body)
            .map_err(|error| CqlError::Protocol(error.to_string()))
            .and_then(|(_, body)| self.run(client, request, body, out));
        outcome.unwrap_or_else(|error| {
            out.truncate(start);
            error.put(out, request.version);
            Done::now(opcode::ERROR)
        })
    }

    fn run(
        &mut self,
        client: &mut ClientState,
        request: &Request<'_>,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Done, CqlError> {
        let malformed = |error: shunt_wire::error::DecodeError| CqlError::Protocol(error.to_string());
        let version = request.version;
        match request.opcode {
            opcode::QUERY => {
                let query = Query::decode(version, body).map_err(malformed)?;
                let keyspace = query.params.keyspace.or(client.keyspace.as_deref());
                let statement = self.prepare(query.text, keyspace)?;
                self.run_statement(client, &statement, version, &query.params, None, out)
            }
            opcode::PREPARE => {
                let prepare = Prepare::decode(version, body).map_err(malformed)?;
                let keyspace = prepare.keyspace.or(client.keyspace.as_deref());
                let statement = Arc::new(self.prepare(prepare.text, keyspace)?);
                self.shared.keep_prepared(&statement);
                put_prepared(&statement, version, out);
                Ok(Done::now(opcode::RESULT))
            }
            opcode::EXECUTE => {
                let execute = Execute::decode(version, body).map_err(malformed)?;
                let statement = self.find_prepared(execute.id)?;
                let known = execute.result_metadata_id;
                self.run_statement(client, &statement, version, &execute.params, known, out)
            }
            opcode::BATCH => self.run_batch(client, version, body, out),
            other => Err(CqlError::Protocol(format!("opcode {other:#x} is not executed"))),
        }
    }

    fn prepare(&self, text: &str, keyspace: Option<&str>) -> Result<Statement, CqlError> {
        Statement::prepare(text, keyspace, &self.shared.schema(), self.shared.now_us() / 1000)
    }

    /// A prepared statement, looked at again if the schema has changed since.
    fn find_prepared(&self, id: &[u8]) -> Result<Arc<Statement>, CqlError> {
        let unknown = || CqlError::Unprepared(id.to_vec());
        let statement = self.shared.prepared(id).ok_or_else(unknown)?;
        if statement.schema_number == self.shared.schema().number {
            return Ok(statement);
        }
        let again = self.prepare(&statement.text, statement.keyspace.as_deref());
        let again = Arc::new(again.map_err(|_| unknown())?);
        // What a client knows of the statement is no longer so: it has to ask again.
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
        let bound = Bound::new(statement, &params.values, &self.shared);
        match &statement.plan {
            Plan::Select(select) => {
                let outdated = known_result.is_some_and(|known| !known.is_empty() && known != statement.result_id);
                let page = Page {
                    version,
                    page_size: params.page_size.filter(|size| *size > 0),
                    paging_state: params.paging_state.map(<[u8]>::to_vec),
                    skip_metadata: params.skips_metadata() && !outdated,
                    new_metadata_id: (version >= 5 && outdated).then_some(statement.result_id),
                };
                let schema = self.shared.schema();
                select::run(select, &bound, &self.shared, &schema, self.node, &page, out)?;
                Ok(Done::now(opcode::RESULT))
            }
            Plan::Mutation(mutation) => {
                let timestamp = params.timestamp.unwrap_or(bound.now_us);
                self.write(&[(mutation, &bound)], timestamp, version, None, out)
            }
            Plan::Batch(batch) => self.run_batch_plan(batch, &bound, version, params.timestamp, out),
            Plan::Truncate(name) => self.truncate(client, name, out),
            Plan::Use(keyspace) => {
                if self.shared.schema().keyspace(keyspace).is_none() {
                    return Err(CqlError::Invalid(format!("Keyspace '{keyspace}' does not exist")));
                }
                client.keyspace = Some(Arc::from(keyspace.as_str()));
                encode::set_keyspace(out, keyspace);
                Ok(Done::now(opcode::RESULT))
            }
            Plan::Schema(statement_change) => {
                let session = statement.keyspace.as_deref();
                let change = self.shared.change(statement_change, session)?;
                match &change {
                    Some(change) => encode::schema_change(out, &wire_change(change)),
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
        name: &shunt_cql::ast::QualifiedName,
        out: &mut Vec<u8>,
    ) -> Result<Done, CqlError> {
        let schema = self.shared.schema();
        let table = schema.find_table(name, client.keyspace.as_deref())?;
        let Some(number) = table.number else {
            return Err(CqlError::Unauthorized(format!("{} keyspace is not user-modifiable.", table.keyspace)));
        };
        for store in self.shared.stores() {
            let durability = shunt_storage::store::Durability::Batch;
            store.wait_durable(store.truncate(number, durability)?)?;
        }
        encode::void(out);
        Ok(Done::now(opcode::RESULT))
    }

    /// Up to where the log of the node's own store is durable.
    pub(crate) fn durable(&self) -> u64 {
        self.shared.stores()[self.node].durable().0
    }
}

/// Refuses too many or too few bind values.
fn check_values(statement: &Statement, values: &Values<'_>) -> Result<(), CqlError> {
    let (wanted, given) = (statement.markers.len(), values.len());
    // A value that is not there by its name is not set.
    if wanted != given && !values.is_named() {
        let message = format!(
            "Invalid amount of bind variables: there were {wanted} markers(?) in CQL but {given} bound variables"
        );
        return Err(CqlError::Invalid(message));
    }
    Ok(())
}

/// A change as the protocol has it.
pub(crate) fn wire_change(change: &Change) -> SchemaChange<'_> {
    let (target, name) = match &change.object {
        Object::Keyspace => ("KEYSPACE", None),
        Object::Table(name) => ("TABLE", Some(name.as_str())),
        Object::Type(name) => ("TYPE", Some(name.as_str())),
    };
    SchemaChange { change: change.kind, target, keyspace: &change.keyspace, name, arguments: None }
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
        // Where the key is helps nobody if the markers are for several tables.
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
