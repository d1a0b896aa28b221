//! The answer to PREPARE: the proxy remembers the statement for all cores, and prepares it on the
//! other nodes ahead of need.

use shunt_reactor::Io;
use shunt_wire::cql::envelope::{Header, flag, opcode};
use shunt_wire::cql::message::{Batch, BatchStatement, ExecuteRouting, Prepare, ResultMessage};
use shunt_wire::cql::message::{result_kind, split_request_prefix, split_response_prefix};
use shunt_wire::cql::statement;

use crate::aggregate;
use crate::client::account::Account;
use crate::config::Multiget;
use crate::core::Core;
use crate::ids::LinkKey;
use crate::link::{Pending, Purpose, lifecycle};
use crate::locks::recognition as locks;
use crate::metrics::Outcome;
use crate::multiget::form;
use crate::plan::{After, Plan};
use crate::prepared::{ForeignId, ID_BYTES, PreparedStatement, Shape};
use crate::reply::{self, Answer};
use crate::retry::{failure, unprepared};

/// Handles a node's answer to a client's PREPARE: remembers the statement, answers the client, and
/// prepares the statement on the other nodes too, if it is new or its text is not kept. Hundreds of
/// sessions prepare the same statements; a node that has forgotten one is repaired when it says so.
pub(crate) fn learn_prepared(
    core: &mut Core,
    io: &mut Io,
    key: LinkKey,
    pending: &Pending,
    answer: &Answer<'_>,
    body: &[u8],
) {
    let Ok(new) = remember_statement(core, io, key, pending, answer, body) else {
        lifecycle::fault(core, io, key, "it gave a statement the id of another one");
        let why = "the node gave the statement the id of another one";
        failure::fail(core, io, pending, Outcome::LinkLost, why);
        return;
    };
    reply::pass_on(core, io, pending, answer, Outcome::Ok);
    if let Some(request) = new {
        spread(core, io, key, &request, pending);
    }
}

/// Answers a request with an unknown statement. UNPREPARED makes drivers prepare it and ask again.
#[cold]
pub(crate) fn ask_to_prepare(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    header: &Header,
    plan: &Plan,
    body: &[u8],
) {
    core.context.metrics.queries.of(plan.kind).add(1);
    let Some(id) = unknown_id(core, header, body) else { return };
    answer_unprepared(core, io, slot, header, id);
}

/// Answers UNPREPARED to a request that was counted on arrival, if the proxy has since forgotten
/// one of its statements. False if all are known.
#[cold]
pub(crate) fn ask_to_prepare_again(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    header: &Header,
    body: &[u8],
) -> bool {
    let Some(id) = unknown_id(core, header, body) else { return false };
    if core.router.prepared.statement(id).is_some() {
        return false;
    }
    answer_unprepared(core, io, slot, header, id);
    true
}

fn answer_unprepared(core: &mut Core, io: &mut Io, slot: u32, header: &Header, id: &[u8]) {
    core.context.metrics.outcomes.of(Outcome::Intercepted).add(1);
    let why =
        "Shunt: this statement was not prepared here, or the proxy has forgotten it; prepare it";
    let answer = unprepared::words(header.version, id, why);
    reply::message(core, io, slot, opcode::ERROR, header.stream, &answer);
}

/// The first unknown id in a request. If another core has learnt it meanwhile, the first id of all:
/// preparing that statement again does no harm.
fn unknown_id<'a>(core: &mut Core, header: &Header, body: &'a [u8]) -> Option<&'a [u8]> {
    let (_, body) = split_request_prefix(header.flags, body).ok()?;
    if header.opcode != opcode::EXECUTE && header.opcode != opcode::BATCH {
        return None;
    }
    if header.opcode == opcode::EXECUTE {
        return Some(ExecuteRouting::decode(header.version, body).ok()?.id);
    }
    let batch = Batch::decode(header.version, body).ok()?;
    let ids = batch.children().filter_map(|child| match child.statement {
        BatchStatement::Prepared(id) => Some(id),
        BatchStatement::Text(_) => None,
    });
    let mut ids = ids.filter(|id| id.len() == ID_BYTES).peekable();
    let first = ids.peek().copied();
    ids.find(|id| core.router.prepared.statement(id).is_none()).or(first)
}

/// Remembers a statement. Returns its request if the other nodes must prepare it too.
///
/// # Errors
/// The node gave it the id of another statement.
fn remember_statement(
    core: &mut Core,
    io: &Io,
    key: LinkKey,
    pending: &Pending,
    answer: &Answer<'_>,
    body: &[u8],
) -> Result<Option<Vec<u8>>, ForeignId> {
    let Some((account, learned, sent)) = read_statement(core, io, key, pending, answer, body)
    else {
        return Ok(None);
    };
    let is_new = core.router.prepared.learn_from_node(account, learned)?;
    Ok(is_new.then_some(sent))
}

/// The statement that a client has asked a node to prepare, with the client's account and request.
fn read_statement(
    core: &Core,
    io: &Io,
    key: LinkKey,
    pending: &Pending,
    answer: &Answer<'_>,
    body: &[u8],
) -> Option<(Account, PreparedStatement, Vec<u8>)> {
    let link = core.links.get(key)?;
    let pool = core.router.pools.get(link.pool)?;
    let version = pool.key.version;
    let (session, account) = (pool.key.keyspace.clone(), pool.account);
    let (_, rest) = split_response_prefix(answer.flags, body).ok()?;
    let sent = core.retained.bytes(io, link.conn, pending.kept)?;
    let (_, request) = split_request_prefix(pending.flags, &sent).ok()?;
    let asked = Prepare::decode(version, request).ok()?;
    let parsed = statement::classify(asked.text);
    let keyspace = asked.keyspace.or(session.as_deref());
    let routing = core.router.cluster.as_ref().map(|cluster| &*cluster.routing);
    let learned = match ResultMessage::decode(version, rest) {
        Ok(ResultMessage::Prepared(prepared)) => {
            let explicit = asked.keyspace.is_some();
            let learned = PreparedStatement::learn(
                asked.text, &parsed, keyspace, explicit, &prepared, routing,
            )
            .with_shape(Shape::of(version, &prepared));
            // A statement with another route already keeps that one. A text that is too long to be
            // kept is too long to be parsed here.
            let splits = core.context.config.multiget == Multiget::Split
                && learned.after == After::Deliver
                && learned.text.is_some();
            match splits.then(|| form::read(asked.text, &prepared)).flatten() {
                Some(form) => learned.of_partitions(form),
                None => learned,
            }
        }
        // The metadata is of a later kind than the proxy knows. The statement can run all the same,
        // but only if the proxy remembers it.
        _ => PreparedStatement::opaque(
            result_kind::prepared_id(rest)?,
            asked.text,
            &parsed,
            keyspace,
        ),
    };
    // Read this even if no fleet is known yet: one may begin while this statement is known.
    let learned = match locks::read(&parsed, keyspace, asked.text) {
        Some(read) => learned.on_locks(read.ok(), core.router.takes_locks()),
        None => learned,
    };
    Some((account, learned, sent))
}

/// Prepares a statement on the pool's other nodes, ahead of need; no client waits for the answers.
fn spread(core: &mut Core, io: &mut Io, from: LinkKey, body: &[u8], prepare: &Pending) {
    let Some(link) = core.links.get(from) else { return };
    let Some(pool) = core.router.pools.get(link.pool) else { return };
    let others: Vec<LinkKey> = pool.links().filter(|key| *key != from).collect();
    for key in others {
        let fits = core.links.get(key).is_some_and(|link| link.is_ready() && !link.full);
        if fits {
            let mut pending = Pending::own(io.now_ns(), Purpose::Spread, opcode::PREPARE);
            // Without tracing, which only the client's own request asked for.
            pending.flags = prepare.flags & !flag::TRACING;
            aggregate::send(&mut core.links, &mut core.retained, io, key, pending, body);
        }
    }
}
