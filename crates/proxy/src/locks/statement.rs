//! A client's statement on the tables of locks: found among what it sends, read, and taken apart into requests.

use std::sync::Arc;

use shunt_language::facade::{self, Asked, Statement};
use shunt_language::{InvalidRequest, SyntaxError};
use shunt_reactor::Io;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{
    Batch, BatchKind, BatchStatement, Execute, Prepare, Query, Values, split_request_prefix,
};
use shunt_wire::cql::statement::{Identifier, Kind, Statement as Classified};

use crate::core::Core;
use crate::fault::Fault;
use crate::hop;
use crate::locks::form::FormKind;
use crate::locks::question::{form, question};
use crate::locks::{ask, several};
use crate::metrics::Outcome;
use crate::plan::Plan;
use crate::reply;

/// True if a statement may be on one of the tables. Its text is then read as a whole, which shows if it is.
#[inline]
pub(crate) fn may_be_facade(parsed: &Classified<'_>, session: Option<&str>, text: &str) -> bool {
    match parsed.kind {
        Kind::Select | Kind::Insert | Kind::Update | Kind::Delete | Kind::Truncate => {
            let session = session.map(Identifier::exact);
            let keyspace = parsed.keyspace.or_else(|| parsed.selected_table().and_then(|(keyspace, _)| keyspace));
            keyspace.or(session).is_some_and(|keyspace| keyspace.matches(facade::KEYSPACE))
        }
        // Each of its statements may be.
        Kind::Batch => {
            session == Some(facade::KEYSPACE)
                || text.as_bytes().windows(facade::KEYSPACE.len()).any(|part| part.eq_ignore_ascii_case(b"shunt"))
        }
        Kind::Ddl | Kind::Use | Kind::Other => false,
    }
}

/// The plan of a statement, if it is one on the tables of locks.
pub(crate) fn read(
    parsed: &Classified<'_>,
    session: Option<&str>,
    text: &str,
) -> Option<Result<Statement, InvalidRequest>> {
    if !may_be_facade(parsed, session, text) {
        return None;
    }
    facade::parse(text, session).transpose()
}

/// True if a text is on one of the tables, allowed or not.
#[cold]
pub(crate) fn is_on_locks(session: Option<&str>, text: &str) -> bool {
    !matches!(facade::parse(text, session), Ok(None))
}

/// What is wrong with a statement on locks.
impl From<InvalidRequest> for Fault {
    fn from(error: InvalidRequest) -> Self {
        Fault::invalid(format!("Shunt: {}", error.message))
    }
}

impl From<SyntaxError> for Fault {
    fn from(error: SyntaxError) -> Self {
        Fault::new(crate::fault::FaultKind::Syntax, error.message)
    }
}

/// Where a request comes from.
#[derive(Clone, Copy)]
struct Sender {
    /// The client's place, and its stream id.
    client: (u32, i16),
    /// Another proxy has forwarded it.
    was_forwarded: bool,
}

/// A request that is, or may be, about locks. It is answered here in any case.
pub(crate) fn take(core: &mut Core, io: &mut Io, slot: u32, header: &Header, plan: &Plan, body: &[u8]) {
    core.context.metrics.queries.of(plan.kind).add(1);
    if let Err(fault) = take_apart(core, io, slot, header, plan, body) {
        core.context.metrics.outcomes.of(Outcome::Intercepted).add(1);
        reply::error(core, io, slot, header.stream, &fault);
    }
}

fn take_apart(core: &mut Core, io: &mut Io, slot: u32, header: &Header, plan: &Plan, body: &[u8]) -> Result<(), Fault> {
    let (payload, body) = split_request_prefix(header.flags, body)?;
    let was_forwarded = payload.is_some_and(|payload| payload.iter().any(|(key, _)| key == hop::PAYLOAD));
    let from = Sender { client: (slot, header.stream), was_forwarded };
    let session = session_of(core, slot);
    match header.opcode {
        opcode::EXECUTE => {
            let execute = Execute::decode(header.version, body)?;
            let known = core.router.prepared.shared(plan.statement);
            let Some(statement) = known.and_then(|known| known.locks.clone()) else {
                return Err(Fault::invalid("Shunt: this statement is not known any more; prepare it again"));
            };
            one(core, io, from, &statement, &execute.params.values, execute.params.skips_metadata())
        }
        opcode::BATCH => take_batch(core, io, from, session.as_deref(), &Batch::decode(header.version, body)?),
        opcode::PREPARE => {
            let prepare = Prepare::decode(header.version, body)?;
            // Only what is refused comes here.
            let read = facade::parse(prepare.text, prepare.keyspace.or(session.as_deref()));
            Err(read.err().map_or_else(|| Fault::invalid("Shunt: this statement cannot be prepared"), Into::into))
        }
        _ => {
            let query = Query::decode(header.version, body)?;
            let read = facade::parse(query.text, query.params.keyspace.or(session.as_deref()))?;
            let statement = read.ok_or_else(|| Fault::invalid("Shunt: this is no statement on locks"))?;
            one(core, io, from, &Arc::new(statement), &query.params.values, false)
        }
    }
}

fn session_of(core: &Core, slot: u32) -> Option<Arc<str>> {
    let pool = core.clients.get(slot)?.pool?;
    core.router.pools.get(pool)?.key.keyspace.clone()
}

/// One statement, which may be a batch as text.
fn one(
    core: &mut Core,
    io: &mut Io,
    from: Sender,
    statement: &Arc<Statement>,
    values: &Values<'_>,
    skip_metadata: bool,
) -> Result<(), Fault> {
    if statement.len() > 1 {
        let requests = statement.bind(values).collect::<Result<Vec<_>, _>>()?;
        return several::begin(core, io, from.client, from.was_forwarded, &requests);
    }
    let mut requests = statement.bind(values);
    let Some(request) = requests.next() else { return Ok(()) };
    let request = request?;
    let kind = match request.asked {
        Asked::Look | Asked::Queue { .. } => FormKind::Selected { statement: Arc::clone(statement), skip_metadata },
        Asked::Acquire { .. } | Asked::Renew { .. } | Asked::Release { .. } => FormKind::Conditional(request.table),
    };
    let question = question(core, &request)?;
    let form = form(core, kind, request.name, request.owner, request.limit);
    ask::ask(core, io, from.client, from.was_forwarded, &question, form);
    Ok(())
}

/// A BATCH of the protocol: its statements are prepared, or texts.
fn take_batch(
    core: &mut Core,
    io: &mut Io,
    from: Sender,
    session: Option<&str>,
    batch: &Batch<'_>,
) -> Result<(), Fault> {
    let keyspace = batch.params.keyspace.or(session);
    if batch.kind == BatchKind::Counter || batch.params.timestamp.is_some_and(|timestamp| timestamp == i64::MIN) {
        return Err(Fault::invalid("Shunt: a batch on the tables of shunt is no counter batch"));
    }
    let mut statements: Vec<(Arc<Statement>, Values<'_>)> = Vec::new();
    for child in batch.children().take(facade::BATCH_MAX + 1) {
        let statement = match child.statement {
            BatchStatement::Prepared(id) => core.router.prepared.statement(id).and_then(|known| known.locks.clone()),
            BatchStatement::Text(text) => facade::parse(text, keyspace)?.map(Arc::new),
        };
        let Some(statement) = statement.filter(|statement| statement.len() == 1) else {
            return Err(Fault::invalid("Shunt: a batch on the tables of shunt has no statements on other tables"));
        };
        statements.push((statement, child.values));
    }
    facade::may_be_together(statements.iter().map(|(statement, _)| &**statement))?;
    let bound = statements.iter().flat_map(|(statement, values)| statement.bind(values));
    let requests = bound.collect::<Result<Vec<_>, _>>()?;
    several::begin(core, io, from.client, from.was_forwarded, &requests)
}
