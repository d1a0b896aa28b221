//! A client's request for a transaction is read, checked for rights, and sent to the owner of its
//! keyspace's shard.

pub(super) mod client;
pub(crate) mod guard;
pub(super) mod owner;
mod single;

use std::sync::Arc;

use shunt_locks::Ticket;
use shunt_reactor::Io;
use shunt_transactions::guard::request::Safeguards;
use shunt_transactions::guard::text as text_guard;
use shunt_transactions::request::{QueryOptions, Request, Summary};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{Prepare, Query, Values, split_request_prefix};
use shunt_wire::cql::statement::{Kind, classify};

use super::{answer, modes, pause, permission, planning};
use crate::core::Core;
use crate::digests::attribution;
use crate::fault::Fault;
use crate::fleet::forwarding;
use crate::fleet::requests::answer_form::{AnswerForm, AnswerKind};
use crate::fleet::requests::clients;
use crate::metrics::{Observation, Outcome};
use crate::plan::Plan;
use crate::transactions::observation::{self, NodeBound};
use crate::transactions::planning::texts::Waiter;
use crate::{limits, reply};

/// Takes a request that is, or prepares, a transaction, and answers it. `false` if the request goes
/// to nodes as on any table, and nothing was done.
pub(crate) fn take_request(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    header: &Header,
    plan: &Plan,
    body: &[u8],
) -> bool {
    let served = attribution::identify_served(core, io, slot, (header, body), io.now_ns());
    if let Some(fault) = pause::refusal(core, header, body) {
        attribution::count_served_refusal(core, io, slot, served, fault.kind.code());
        core.context.metrics.queries.of(plan.kind).add(1);
        core.context.metrics.outcomes.of(Outcome::Intercepted).add(1);
        reply::error(core, io, slot, header.stream, &fault);
        return true;
    }
    let pool = core.clients.get(slot).and_then(|client| client.pool);
    let left = pool.and_then(|pool| observation::node_bound(core, pool, header, body));
    core.fleet.requests.current = served;
    let read = match left {
        Some(NodeBound::Batch) => None,
        Some(NodeBound::Single) => start(core, io, slot, header, body).ok().map(Ok),
        None => Some(start(core, io, slot, header, body)),
    };
    let unanswered = core.fleet.requests.current.take();
    let Some(read) = read else {
        observation::count(core, Observation::NotCompared);
        return false;
    };
    core.context.metrics.queries.of(plan.kind).add(1);
    if let Err(fault) = read {
        attribution::count_served_refusal(core, io, slot, unanswered, fault.kind.code());
        core.context.metrics.outcomes.of(Outcome::Intercepted).add(1);
        reply::error(core, io, slot, header.stream, &fault);
    }
    true
}

/// Reads a request, and starts it.
fn start(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    header: &Header,
    body: &[u8],
) -> Result<(), Fault> {
    let (payload, body) = split_request_prefix(header.flags, body)?;
    let forwarded = forwarding::transaction_in(header, payload.as_ref());
    let (role, _) = clients::asker_of(core, slot)
        .ok_or_else(|| Fault::protocol("a request of a connection without a session"))?;
    if let Some(asked) = forwarded {
        // The role is that of the connection's login, whatever the request says.
        let asked = Request { version: header.version, role: &role, ..Request::decode(asked)? };
        let single = |_: &QueryOptions| Summary::parse_single(asked.text, Some(asked.keyspace));
        let known = Summary::parse(asked.text, Some(asked.keyspace));
        let known =
            known.or_else(|refusal| asked.options.as_ref().and_then(single).ok_or(refusal))?;
        return submit(core, io, (slot, header), &Arc::new(known), &asked, true);
    }
    let session = clients::session_keyspace(core, slot);
    let version = header.version;
    let safeguards = Safeguards::from_payload(payload.as_ref())?;
    if core.context.config.fleet.is_none() {
        return Err(Fault::invalid(
            "Shunt: transactions, guards and keys require a proxy with --fleet",
        ));
    }
    match header.opcode {
        opcode::PREPARE => prepare(core, io, (slot, header), session.as_deref(), body),
        opcode::QUERY if safeguards.is_empty() && is_change(version, body)? => {
            let query = Query::decode(version, body)?;
            let Some(pool) = core.clients.get(slot).and_then(|client| client.pool) else {
                return Ok(());
            };
            let Some(ticket) = add_pending(core, io, (slot, header)) else { return Ok(()) };
            modes::change(
                core,
                io,
                ticket,
                pool,
                query.text,
                query.params.keyspace.or(session.as_deref()),
            );
            Ok(())
        }
        _ => single::read_statement(
            core,
            session.as_deref(),
            header,
            body,
            |core, known, values, options| {
                let Some(guards) = &known.guards else {
                    let options = observation::is_of(core, known).then_some(options);
                    options.map_or(Ok(()), |options| observation::check(known, options))?;
                    let asked = Request {
                        options,
                        ..request_of(known, version, (&role, safeguards), values)
                    };
                    return submit(core, io, (slot, header), known, &asked, false);
                };
                let safeguards = text_guard::safeguards(guards, values, safeguards)?;
                let rest = text_guard::without(guards, values, version);
                let asked = request_of(known, version, (&role, safeguards), rest.values());
                submit(core, io, (slot, header), known, &asked, false)
            },
        ),
    }
}

/// Prepares a transaction.
fn prepare(
    core: &mut Core,
    io: &mut Io,
    (slot, header): (u32, &Header),
    session: Option<&str>,
    body: &[u8],
) -> Result<(), Fault> {
    let prepare = Prepare::decode(header.version, body)?;
    let keyspace = prepare.keyspace.or(session);
    if prepare.text.len() > limits::PREPARED_TEXT_BYTES_MAX {
        let why = format!(
            "Shunt: a prepared transaction may have {} bytes at most; send it as text",
            limits::PREPARED_TEXT_BYTES_MAX
        );
        return Err(Fault::invalid(why));
    }
    // Errors in the text are reported before any node is asked.
    let known = Summary::parse(prepare.text, keyspace)?;
    let Some(ticket) = add_pending(core, io, (slot, header)) else { return Ok(()) };
    let who = client::share_of(core, ticket, keyspace.unwrap_or_default());
    let waiter = Waiter::Prepare(ticket, prepare.text.into());
    let text = (&*known.text, &*known.keyspace);
    if let Some(plan) = planning::request(core, io, text, &who, waiter) {
        answer::prepared(core, ticket, prepare.text, &plan);
    }
    Ok(())
}

/// True of a text that changes a table's mode.
fn is_change(version: u8, body: &[u8]) -> Result<bool, Fault> {
    Ok(classify(Query::decode(version, body)?.text).kind == Kind::Ddl)
}

/// Adds the request to those that wait for an answer.
fn add_pending(core: &mut Core, io: &Io, (slot, header): (u32, &Header)) -> Option<Ticket> {
    let form = AnswerForm { kind: AnswerKind::Message, ..AnswerForm::default() };
    clients::note(core, io, (slot, header.stream), false, form).map(|(ticket, _)| ticket)
}

/// The request to the owner of the shard.
fn request_of<'a>(
    known: &'a Summary,
    version: u8,
    (role, safeguards): (&'a str, Safeguards<'a>),
    values: Values<'a>,
) -> Request<'a> {
    Request {
        text: &known.text,
        keyspace: &known.keyspace,
        version,
        types: version,
        role,
        safeguards,
        values,
        options: None,
    }
}

/// Checks the client's rights, and sends the request on.
fn submit(
    core: &mut Core,
    io: &mut Io,
    (slot, header): (u32, &Header),
    known: &Arc<Summary>,
    asked: &Request<'_>,
    was_forwarded: bool,
) -> Result<(), Fault> {
    if !asked.safeguards.key.is_empty() && !known.tables.iter().any(|(_, writes)| *writes) {
        return Err(Fault::invalid(
            "Shunt: shunt-idempotency is for writes; this only reads, and can simply be repeated",
        ));
    }
    let mut message = Vec::new();
    asked.encode(&mut message);
    if message.len() > MESSAGE_BYTES_MAX {
        let bytes = message.len();
        return Err(Fault::invalid(format!(
            "Shunt: this transaction has {bytes} bytes with its values; {MESSAGE_BYTES_MAX} are allowed"
        )));
    }
    let mut form = AnswerForm { kind: AnswerKind::Message, ..AnswerForm::default() };
    if !was_forwarded {
        // Kept for a retry if the shard has just changed hands. The retry is enabled once the
        // client's rights are checked.
        form.texts = [known.domain.as_bytes(), &message].concat();
    }
    let guard = asked.safeguards.guard.map(|guard| guard.is_fast);
    let Some((ticket, _)) = clients::note(core, io, (slot, header.stream), was_forwarded, form)
    else {
        return Ok(());
    };
    permission::ask(core, io, slot, (ticket, was_forwarded), (known, guard), message);
    Ok(())
}

/// Bytes of a transaction with its values. A longer one could not be forwarded, or fit into a
/// record.
const MESSAGE_BYTES_MAX: usize = 3 << 20;
