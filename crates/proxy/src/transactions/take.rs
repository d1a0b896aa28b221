//! A client's transaction: read, allowed or not, and sent to the core that owns its keyspace's
//! shard.

use std::sync::Arc;

use shunt_locks::Ticket;
use shunt_reactor::Io;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{Prepare, Query, Values, split_request_prefix};
use shunt_wire::cql::statement::{Kind, classify};

use super::observe::{self, Left};
use super::plans::Waiter;
use super::timer::set_due;
use super::{allowed, alone, asker, levels, look, modes, planning, run, still};
use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::fleet::peers::forward::forward_transaction;
use crate::fleet::peers::{self, Login};
use crate::limits::{self, SECOND_NS};
use crate::locks::form::{Form, FormKind};
use crate::locks::requests::At;
use crate::locks::{ask, core_of};
use crate::metrics::{Observation, Outcome};
use crate::plan::Plan;
use crate::reply;
use shunt_transactions::guard::request::Besides;
use shunt_transactions::guard::text as in_text;
use shunt_transactions::request::{AsSent, Asked, Known};

/// Takes a request that is a transaction, or prepares one, and answers it. `false`: it is for a
/// node, as on any table, and nothing was done.
pub(crate) fn take(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    header: &Header,
    plan: &Plan,
    body: &[u8],
) -> bool {
    if let Some(fault) = still::refusal(core) {
        core.context.metrics.queries.of(plan.kind).add(1);
        core.context.metrics.outcomes.of(Outcome::Intercepted).add(1);
        reply::error(core, io, slot, header.stream, &fault);
        return true;
    }
    let pool = core.clients.get(slot).and_then(|client| client.pool);
    let left = pool.and_then(|pool| observe::left(core, pool, header, body));
    let read = match left {
        Some(Left::Batch) => None,
        Some(Left::Single) => read(core, io, slot, header, body).ok().map(Ok),
        None => Some(read(core, io, slot, header, body)),
    };
    let Some(read) = read else {
        observe::count(core, Observation::NotCompared);
        return false;
    };
    core.context.metrics.queries.of(plan.kind).add(1);
    if let Err(fault) = read {
        core.context.metrics.outcomes.of(Outcome::Intercepted).add(1);
        reply::error(core, io, slot, header.stream, &fault);
    }
    true
}

fn read(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    header: &Header,
    body: &[u8],
) -> Result<(), Fault> {
    let (payload, body) = split_request_prefix(header.flags, body)?;
    let forwarded =
        payload.and_then(|payload| payload.iter().find(|(key, _)| *key == peers::TRANSACTION)?.1);
    let (role, _) = ask::asker_of(core, slot)
        .ok_or_else(|| Fault::protocol("a request of a connection without a session"))?;
    if let Some(asked) = forwarded.filter(|_| header.opcode == opcode::QUERY) {
        // Its role is that of the login that it came with, whatever it says.
        let asked = Asked { version: header.version, role: &role, ..Asked::read(asked)? };
        let single = |_: &AsSent| Known::read_single(asked.text, Some(asked.keyspace));
        let known = Known::read(asked.text, Some(asked.keyspace));
        let known =
            known.or_else(|refusal| asked.as_sent.as_ref().and_then(single).ok_or(refusal))?;
        return begin(core, io, (slot, header), &Arc::new(known), &asked, true);
    }
    let session = session_of(core, slot);
    let version = header.version;
    let besides = Besides::of(payload.as_ref())?;
    if core.context.config.fleet.is_none() {
        return Err(Fault::invalid(
            "Shunt: this proxy is of no fleet, and carries out no transactions: guards and keys are for a proxy with --fleet",
        ));
    }
    match header.opcode {
        opcode::PREPARE => {
            let prepare = Prepare::decode(version, body)?;
            let keyspace = prepare.keyspace.or(session.as_deref());
            if prepare.text.len() > limits::PREPARED_TEXT_BYTES_MAX {
                let why = format!(
                    "Shunt: a transaction that is prepared has {} bytes at most; send it as text",
                    limits::PREPARED_TEXT_BYTES_MAX
                );
                return Err(Fault::invalid(why));
            }
            // What is wrong with it is said before a node is asked anything.
            let known = Known::read(prepare.text, keyspace)?;
            let Some(ticket) = note(core, io, (slot, header)) else { return Ok(()) };
            let who = asker::share_of(core, ticket, keyspace.unwrap_or_default());
            let waiter = Waiter::Prepare(ticket, prepare.text.into());
            planning::want(core, io, (&known.text, &known.keyspace), &who, waiter);
            Ok(())
        }
        opcode::QUERY if besides.is_empty() && is_change(version, body)? => {
            let query = Query::decode(version, body)?;
            let Some(pool) = core.clients.get(slot).and_then(|client| client.pool) else {
                return Ok(());
            };
            let Some(ticket) = note(core, io, (slot, header)) else { return Ok(()) };
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
        _ => alone::read(core, session.as_deref(), header, body, |core, known, values, as_sent| {
            let Some(guards) = &known.guards else {
                let as_sent = observe::is_of(core, known).then_some(as_sent);
                as_sent.map_or(Ok(()), |as_sent| observe::check(known, as_sent))?;
                let asked = Asked { as_sent, ..asked_of(known, version, (&role, besides), values) };
                return begin(core, io, (slot, header), known, &asked, false);
            };
            let besides = in_text::besides(guards, values, besides)?;
            let rest = in_text::without(guards, values, version);
            let asked = asked_of(known, version, (&role, besides), rest.values());
            begin(core, io, (slot, header), known, &asked, false)
        }),
    }
}

/// True of a text that changes a table's mode.
fn is_change(version: u8, body: &[u8]) -> Result<bool, Fault> {
    Ok(classify(Query::decode(version, body)?.text).kind == Kind::Ddl)
}

fn session_of(core: &Core, slot: u32) -> Option<Arc<str>> {
    core.router.pools.get(core.clients.get(slot)?.pool?)?.key.keyspace.clone()
}

fn note(core: &mut Core, io: &Io, (slot, header): (u32, &Header)) -> Option<Ticket> {
    let form = Form { kind: FormKind::Message, ..Form::default() };
    ask::note(core, io, (slot, header.stream), false, form).map(|(ticket, _)| ticket)
}

fn asked_of<'a>(
    known: &'a Known,
    version: u8,
    (role, besides): (&'a str, Besides<'a>),
    values: Values<'a>,
) -> Asked<'a> {
    Asked {
        text: &known.text,
        keyspace: &known.keyspace,
        version,
        types: version,
        role,
        besides,
        values,
        as_sent: None,
    }
}

fn begin(
    core: &mut Core,
    io: &mut Io,
    (slot, header): (u32, &Header),
    known: &Arc<Known>,
    asked: &Asked<'_>,
    was_forwarded: bool,
) -> Result<(), Fault> {
    if !asked.besides.key.is_empty() && !known.tables.iter().any(|(_, writes)| *writes) {
        return Err(Fault::invalid(
            "Shunt: shunt-idempotency is for what writes: this only reads, and may simply be asked again",
        ));
    }
    let mut message = Vec::new();
    asked.put(&mut message);
    if message.len() > MESSAGE_BYTES_MAX {
        let bytes = message.len();
        return Err(Fault::invalid(format!(
            "Shunt: a transaction has {bytes} bytes with its values: {MESSAGE_BYTES_MAX} are the most"
        )));
    }
    let mut form = Form { kind: FormKind::Message, ..Form::default() };
    if !was_forwarded {
        // To ask again, where the shard has just changed hands; that it may be is said when its
        // client is allowed to.
        form.texts = [known.domain.as_bytes(), &message].concat();
    }
    let guard = asked.besides.guard.map(|guard| guard.is_fast);
    let Some((ticket, _)) = ask::note(core, io, (slot, header.stream), was_forwarded, form) else {
        return Ok(());
    };
    allowed::ask(core, io, slot, (ticket, was_forwarded), (known, guard), message);
    Ok(())
}

/// Bytes of a transaction with its values: what is longer could not be forwarded, or put into a
/// record.
const MESSAGE_BYTES_MAX: usize = 3 << 20;
/// Bytes of what waits to be asked again.
const AGAIN_BYTES_MAX: usize = 8 << 20;

/// How long one is asked again that nobody could serve, because its shard had just changed hands.
const AGAIN_FOR_NS: u64 = SECOND_NS;
/// And how often.
const AGAIN_AFTER_NS: u64 = 20_000_000;
/// So many at once: what is more is for the client to ask again.
const AGAIN_MAX: usize = 1_024;

/// Asks again later what was certainly not executed; `false`: it is for the client to do so. This
/// must never ask for what its client was not found to be allowed: then the request has not been
/// sent before, and nothing says which keyspace it is in.
pub(super) fn again(core: &mut Core, io: &mut Io, ticket: Ticket) -> bool {
    let now_ns = io.now_ns();
    let Some(pending) = core.fleet.locks.requests_mut().get_mut(ticket) else { return false };
    let bytes = pending.form.texts.len();
    let may_be =
        pending.form.name_bytes > 0 && now_ns.saturating_sub(pending.received_ns) < AGAIN_FOR_NS;
    let queue = &core.fleet.transactions.again;
    if queue.iter().any(|(_, queued, _)| *queued == ticket) {
        return true;
    }
    if !may_be
        || queue.len() >= AGAIN_MAX
        || core.fleet.transactions.again_bytes + bytes > AGAIN_BYTES_MAX
    {
        return false;
    }
    core.fleet.transactions.again_bytes += bytes;
    pending.at = At::Here(None);
    core.fleet.transactions.again.push_back((now_ns + AGAIN_AFTER_NS, ticket, bytes));
    set_due(core, io);
    true
}

/// Asks again, where it is time.
pub(super) fn ask_again(core: &mut Core, io: &mut Io) {
    let now_ns = io.now_ns();
    while let Some((due_ns, ticket, bytes)) = core.fleet.transactions.again.front().copied()
        && due_ns <= now_ns
    {
        core.fleet.transactions.again.pop_front();
        core.fleet.transactions.again_bytes -= bytes;
        // Its client may be gone.
        let Some(pending) = core.fleet.locks.requests_mut().get_mut(ticket) else { continue };
        let texts = pending.form.texts.clone();
        let (domain, message) = texts.split_at(pending.form.name_bytes);
        let (login, domain) =
            (asker::login_of(core, ticket), String::from_utf8_lossy(domain).into_owned());
        send(core, io, (ticket, false), &login, &domain, message);
    }
}

/// It may be carried out: by the core that owns the shard of its keyspace.
pub(super) fn send(
    core: &mut Core,
    io: &mut Io,
    (ticket, was_forwarded): (Ticket, bool),
    login: &Login,
    domain: &str,
    message: &[u8],
) {
    let shard = levels::shard_of_domain(domain);
    let keeper = core_of(shard, core.context.config.cores);
    if !was_forwarded && let Some(pending) = core.fleet.locks.requests_mut().get_mut(ticket) {
        pending.form.name_bytes = domain.len();
    }
    if let Some(owner) = core.fleet.peers.owner(shard) {
        let via = if was_forwarded {
            None
        } else {
            forward_transaction(core, io, owner, login, ticket, message)
        };
        match via {
            Some(via) => ask::is_at(core, ticket, At::Elsewhere(via)),
            None => {
                let why = format!(
                    "Shunt: transactions of keyspace {domain} are decided by the proxy at {owner}: ask it, or the next host; nothing was written"
                );
                core.fleet.transactions.fail(ticket, &Fault::new(FaultKind::Unserved, why).into());
            }
        }
        return;
    }
    let who = asker::share_of(core, ticket, domain);
    match Asked::read(message).map(|asked| asked.besides.guard) {
        Ok(Some(guard)) => look::ask(core, io, ticket, (keeper, who), guard, message),
        _ => send_to(core, io, ticket, keeper, &who, message),
    }
}

/// Sends it to this core of this proxy, which has its shard. `who`: whose share it counts to.
pub(super) fn send_to(
    core: &mut Core,
    io: &mut Io,
    ticket: Ticket,
    keeper: usize,
    who: &str,
    message: &[u8],
) {
    if keeper == core.context.index {
        run::take(core, io, ticket, who, message);
    } else if core.fleet.lanes.ask_transaction(keeper, ticket, who, message) {
        ask::is_at(core, ticket, At::Core(keeper));
    } else {
        let fault = Fault::overloaded("Shunt: as many transactions wait as may; ask again");
        core.fleet.transactions.fail(ticket, &fault.into());
    }
}
