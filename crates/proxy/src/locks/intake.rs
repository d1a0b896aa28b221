//! Statements of clients on the tables of locks become requests.

use std::sync::Arc;

use shunt_language::InvalidRequest;
use shunt_language::lock_tables::{self, Asked, Request, Statement, Table};
use shunt_reactor::Io;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{
    Batch, BatchKind, BatchStatement, Execute, Prepare, Query, Values, split_request_prefix,
};

use crate::answers::learn;
use crate::core::Core;
use crate::digests::attribution;
use crate::fault::Fault;
use crate::fleet::forwarding;
use crate::fleet::forwarding::withdrawal;
use crate::fleet::requests::answer_form::AnswerKind;
use crate::fleet::requests::clients;
use crate::ids::ClientRef;
use crate::locks::recognition::{ParseBudget, TEXT_BYTES_MAX, too_long};
use crate::locks::request::Operation;
use crate::locks::validation::{form, question};

use crate::locks::{batch, dispatch, overview, permission};
use crate::metrics::Outcome;
use crate::plan::Plan;
use crate::reply;

/// The origin of a request.
#[derive(Clone, Copy)]
struct Sender {
    /// The client's place, and its stream id.
    client: (u32, i16),
    /// True if another proxy has forwarded the request.
    was_forwarded: bool,
    /// True if the request releases a lock that was granted after its client had left.
    gives_back: bool,
    /// True if the mode in a renewal is the one that the client named. Former proxies forwarded
    /// every renewal with 'X'.
    means_mode: bool,
    came_ns: u64,
}

/// Takes a request that is or may be about locks, and answers it in any case.
pub(crate) fn take(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    header: &Header,
    plan: &Plan,
    body: &[u8],
) {
    core.context.metrics.queries.of(plan.kind).add(1);
    // The clock is read anew: during a pause of this process, a permission that it had found before
    // may have been revoked.
    let came_ns = io.read_clock_ns();
    answer(core, io, slot, (header, body), came_ns);
}

/// Continues a request that waited for a verdict on its right. Its prepared statement may be
/// forgotten by now.
pub(super) fn resume(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    message: (&Header, &[u8]),
    came_ns: u64,
) {
    if !learn::ask_to_prepare_again(core, io, slot, message.0, message.1) {
        answer(core, io, slot, message, came_ns);
    }
}

fn answer(core: &mut Core, io: &mut Io, slot: u32, message: (&Header, &[u8]), came_ns: u64) {
    let served = attribution::identify_served(core, io, slot, message, came_ns);
    core.fleet.requests.current = served;
    let done = match take_apart(core, io, slot, message, came_ns) {
        Ok(Some(unknown)) => permission::wait(core, io, slot, message, (unknown, came_ns)),
        Ok(None) => Ok(()),
        Err(fault) => Err(fault),
    };
    let unanswered = core.fleet.requests.current.take();
    if let Err(fault) = done {
        attribution::count_served_refusal(core, io, slot, unanswered, fault.kind.code());
        core.context.metrics.outcomes.of(Outcome::Intercepted).add(1);
        reply::error(core, io, slot, message.0.stream, &fault);
    }
}

/// Carries out a request. Returns a table if the client's right to it is not known; then nothing
/// was done.
fn take_apart(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    (header, body): (&Header, &[u8]),
    came_ns: u64,
) -> Result<Option<Table>, Fault> {
    if !core.router.serves_locks {
        return Err(of_no_fleet());
    }
    let (payload, body) = split_request_prefix(header.flags, body)?;
    let kind = payload
        .and_then(|payload| payload.iter().find(|(key, _)| *key == forwarding::PAYLOAD))
        .map(|(_, kind)| kind);
    let gives_back = kind.flatten() == Some(&[forwarding::GIVES_BACK]);
    let means_mode = kind.is_none() || kind.flatten() == Some(&[forwarding::NAMES_MODE]);
    let from = Sender {
        client: (slot, header.stream),
        was_forwarded: kind.is_some(),
        gives_back,
        means_mode,
        came_ns,
    };
    let session = clients::session_keyspace(core, slot);
    match header.opcode {
        opcode::EXECUTE => {
            let execute = Execute::decode(header.version, body)?;
            let known = core.router.prepared.statement(execute.id);
            let Some(statement) = known.and_then(|known| known.locks.clone()) else {
                return Err(Fault::invalid(
                    "Shunt: the proxy no longer has this statement; prepare it again",
                ));
            };
            one(core, io, from, &statement, &execute.params.values, execute.params.skips_metadata())
        }
        opcode::BATCH => {
            take_batch(core, io, from, session.as_deref(), &Batch::decode(header.version, body)?)
        }
        opcode::PREPARE => {
            let prepare = Prepare::decode(header.version, body)?;
            // Only statements that are refused come here.
            let read = parse(prepare.text, prepare.keyspace.or(session.as_deref()));
            Err(read.map_or_else(Into::into, |_| not_read(prepare.text)))
        }
        _ => {
            let query = Query::decode(header.version, body)?;
            let read = parse(query.text, query.params.keyspace.or(session.as_deref()))?;
            let statement = read.ok_or_else(|| not_read(query.text))?;
            one(core, io, from, &Arc::new(statement), &query.params.values, false)
        }
    }
}

/// The error of a proxy without a fleet. A node's answer would be wrong, as another proxy keeps the
/// locks.
fn of_no_fleet() -> Fault {
    Fault::invalid(
        "Shunt: this proxy is in no fleet, and the keyspace shunt_meta shows that a fleet serves the locks of this ring: ask one of \
         its proxies, or start this one with --fleet",
    )
}

/// Parses a text that is on the tables, alone or in a batch.
fn parse(text: &str, keyspace: Option<&str>) -> Result<Option<Statement>, InvalidRequest> {
    if text.len() > TEXT_BYTES_MAX {
        Err(too_long(text))
    } else {
        lock_tables::parse(text, keyspace)
    }
}

/// Explains why a text on the tables is no statement on locks.
fn not_read(text: &str) -> Fault {
    let error = shunt_language::parse(text).err();
    error.map_or_else(|| Fault::invalid("Shunt: this is no statement on locks"), Into::into)
}

/// Takes one text, which may be a batch.
fn one(
    core: &mut Core,
    io: &mut Io,
    from: Sender,
    statement: &Arc<Statement>,
    values: &Values<'_>,
    skip_metadata: bool,
) -> Result<Option<Table>, Fault> {
    if statement.len() > 1 {
        let requests = statement.bind(values).collect::<Result<Vec<_>, _>>()?;
        return all(core, io, from, &requests);
    }
    let mut requests = statement.bind(values);
    let Some(request) = requests.next() else { return Ok(None) };
    let request = request?;
    let table = std::iter::once(request.table);
    if let Some(unknown) = permission::unknown(core, io, from.client.0, table, from.came_ns)? {
        return Ok(Some(unknown));
    }
    let kind = match request.asked {
        Asked::Look | Asked::Queue { .. } => {
            AnswerKind::Selected { statement: Arc::clone(statement), skip_metadata }
        }
        Asked::Longest => {
            let kind = AnswerKind::Selected { statement: Arc::clone(statement), skip_metadata };
            overview::begin(core, io, from.client, &request, kind)?;
            return Ok(None);
        }
        Asked::Acquire { .. } | Asked::Renew { .. } | Asked::Release { .. } => {
            AnswerKind::Conditional(request.table)
        }
    };
    let mut question = question(core, &request, from.was_forwarded)?;
    if let (true, Operation::Release { fence: Some(fence) }) = (from.gives_back, question.operation)
    {
        question.operation = Operation::GiveBack { fence };
    }
    if let (false, Operation::Renew { mode, .. }) = (from.means_mode, &mut question.operation) {
        *mode = None;
    }
    let form = form(core, kind, request.name, request.owner, request.limit);
    dispatch::ask(core, io, from.client, from.was_forwarded, &question, form);
    Ok(None)
}

/// Takes several requests, if the client has the right to all of them.
fn all(
    core: &mut Core,
    io: &mut Io,
    from: Sender,
    requests: &[Request<'_>],
) -> Result<Option<Table>, Fault> {
    let tables = requests.iter().map(|request| request.table);
    if let Some(unknown) = permission::unknown(core, io, from.client.0, tables, from.came_ns)? {
        return Ok(Some(unknown));
    }
    batch::begin(core, io, from.client, from.was_forwarded, requests).map(|()| None)
}

/// Takes a BATCH of the protocol, whose statements are prepared or texts.
fn take_batch(
    core: &mut Core,
    io: &mut Io,
    from: Sender,
    session: Option<&str>,
    batch: &Batch<'_>,
) -> Result<Option<Table>, Fault> {
    let keyspace = batch.params.keyspace.or(session);
    if batch.kind == BatchKind::Counter
        || batch.params.timestamp.is_some_and(|timestamp| timestamp == i64::MIN)
    {
        return Err(Fault::invalid(
            "Shunt: a batch on the tables of shunt cannot be a counter batch",
        ));
    }
    let mut statements: Vec<(Arc<Statement>, Values<'_>)> = Vec::new();
    let mut budget = ParseBudget::of_locks();
    for child in batch.children().take(lock_tables::BATCH_MAX + 1) {
        let statement = match child.statement {
            BatchStatement::Prepared(id) => {
                core.router.prepared.statement(id).and_then(|known| known.locks.clone())
            }
            BatchStatement::Text(text) if text.len() > TEXT_BYTES_MAX => {
                return Err(too_long(text).into());
            }
            BatchStatement::Text(text) if !budget.covers(text) => {
                return Err(Fault::invalid(format!(
                    "Shunt: the texts of a batch on the tables of shunt may have {TEXT_BYTES_MAX} bytes together"
                )));
            }
            BatchStatement::Text(text) => {
                let whole = shunt_language::parse(text).map_err(Fault::from)?;
                lock_tables::of_parsed(whole, keyspace)?.map(Arc::new)
            }
        };
        let Some(statement) = statement.filter(|statement| statement.len() == 1) else {
            return Err(Fault::invalid(
                "Shunt: a batch on the tables of shunt cannot have statements on other tables",
            ));
        };
        statements.push((statement, child.values));
    }
    lock_tables::may_be_together(statements.iter().map(|(statement, _)| &**statement))?;
    let bound = statements.iter().flat_map(|(statement, values)| statement.bind(values));
    let requests = bound.collect::<Result<Vec<_>, _>>()?;
    all(core, io, from, &requests)
}

/// Withdraws a request at the wish of the proxy that forwarded it.
pub(crate) fn withdraw_request(core: &mut Core, io: &mut Io, slot: u32, flags: u8, body: &[u8]) {
    let Some(stream) = withdrawal::stream_of(flags, body) else { return };
    let Some(client) = core.clients.get(slot).map(|client| ClientRef { slot, id: client.id })
    else {
        return;
    };
    permission::withdraw(core, io, client, stream);
    dispatch::withdraw_waiting(core, io, client, stream);
}
