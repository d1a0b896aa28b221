//! UNPREPARED: a node does not know a statement that clients prepared through this proxy. The proxy
//! prepares the statement on that node, in its original keyspace, and sends the request again.
//!
//! This must never:
//! - Hide from a client what only preparing again can tell it. If the node's answer to PREPARE
//!   shows that the client's knowledge of the statement is outdated (types of its bind markers;
//!   columns of its result, in version 5 by the id in its EXECUTE), the client gets UNPREPARED.
//! - Assume that the same text has the same id everywhere. A node that makes another one is not
//!   asked twice.
//! - Multiply the work of a node that keeps nothing: each statement of a request is prepared on a
//!   node once, one of them twice, on two nodes at most.
//! - Exceed its memory bounds: 64 MiB for all requests that wait here, 8 MiB for those of one
//!   client unless a larger one waits alone, and no more on a full link. Beyond these the client
//!   gets the node's UNPREPARED.
//! - Report the outcome of a request as unknown if it is known. No node that answered has executed
//!   the request while it is here, so that its client gets UNPREPARED if a repair cannot go on,
//!   whatever the reason, and the driver prepares and asks again.
//! - Report a request as not executed if it had been sent before to a node that was lost with it: a
//!   driver that prepares and asks again might execute it a second time.
//!
//! Cold code: a request comes here at most a few times in its life, and then its bytes are copied.

use std::sync::Arc;

use shunt_reactor::Io;
use shunt_topology::NodeId;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::{
    Batch, BatchStatement, ErrorDetails, ErrorMessage, Execute, ResultMessage,
};
use shunt_wire::cql::message::{
    encode, error_code, result_kind, split_request_prefix, split_response_prefix,
};

use crate::aggregate;
use crate::core::Core;
use crate::ids::{LinkKey, LinkRef, Ticket};
use crate::limits;
use crate::link::{Kept, Pending, PoolKey, Purpose, Role, open, pools};
use crate::metrics::Outcome;
use crate::plan::After;
use crate::prepared::{PreparedStatement, Shape};
use crate::reply::{self, Answer};
use crate::retry::failure::may_have_changed;
use crate::retry::{Repair, another_node, failure, mode_change};
use crate::slow_queries::capture;
use crate::traces::spans;

/// The verdict of a node's answer to a repair's PREPARE.
enum Again {
    /// The node knows the statement as the client does.
    Same,
    /// The node knows it under another id.
    AnotherId,
    /// The node's statement differs from the client's.
    Changed,
}

/// Handles an ERROR to a client's request. If it is UNPREPARED and the statement is known, prepares
/// it on that node and sends the request again; `false` leaves the error to the client.
pub(crate) fn repair(
    core: &mut Core,
    io: &mut Io,
    key: LinkKey,
    pending: &Pending,
    flags: u8,
    body: &[u8],
) -> bool {
    let Ok((_, body)) = split_response_prefix(flags, body) else { return false };
    if error_code::peek(body) != Some(error_code::UNPREPARED) {
        return false;
    }
    let version = core.links.version_of(key);
    let Ok(error) = ErrorMessage::decode(version, body) else { return false };
    let Some(id) = error.unprepared_id() else { return false };
    let Some(statement) = core.router.prepared.statement(id).filter(|known| known.text.is_some())
    else {
        return false;
    };
    let Some(link) = core.links.get(key) else { return false };
    let (node, conn) = (link.node, link.conn);
    let body_bytes = core.retained.length(pending.kept);
    if !core.retries.repairs.has_room(pending.client, Repair::bytes_of(body_bytes, &statement)) {
        return false;
    }
    let Some(bytes) = core.retained.bytes(io, conn, pending.kept) else { return false };
    let mut pending = Pending { kept: Kept::Nothing, ..*pending };
    if !may_be_prepared(version, &pending, &bytes) {
        return give_to_another(core, io, node, pending, &bytes);
    }
    core.context.metrics.count_outcome(pending.client, Outcome::Reprepared);
    pending.reprepares += 1;
    let deadline_ns = pending.received_ns + core.context.timeout_ns(&pending.plan);
    let in_first_keyspace =
        !statement.names_keyspace || keyspace_of(core, key) == statement.keyspace.as_deref();
    let repair = Repair {
        pending,
        body: bytes,
        link: LinkRef { key, conn },
        node,
        statement,
        in_first_keyspace,
        deadline_ns,
    };
    let ticket = core.retries.next_ticket();
    core.retries.repairs.insert(ticket, repair);
    go_on(core, io, ticket);
    true
}

/// The keyspace of a link's clients.
fn keyspace_of(core: &Core, link: LinkKey) -> Option<&str> {
    let link = core.links.get(link)?;
    core.router.pools.get(link.pool)?.key.keyspace.as_deref()
}

/// Sends a request to another node, because this one does not keep prepared statements, or not
/// under the id that clients know. `false` if there is no other, or this is not the first.
fn give_to_another(
    core: &mut Core,
    io: &mut Io,
    node: NodeId,
    pending: Pending,
    body: &[u8],
) -> bool {
    let Some(pool) = core.router.pools.get(pending.pool) else { return false };
    let is_another =
        |key: LinkKey| core.links.get(key).is_some_and(|link| link.node != node && link.is_ready());
    if pending.retries > 0 || !pool.links().any(is_another) {
        return false;
    }
    another_node::send(core, io, Pending { reprepares: 0, ..pending }, body, Some(node));
    true
}

/// Sends the PREPARE of a repair, on a link with the keyspace to prepare the statement in.
pub(crate) fn go_on(core: &mut Core, io: &mut Io, ticket: Ticket) {
    let Some(target) = link_to_prepare_on(core, io, ticket) else { return };
    // A link that is full by its number of requests takes a repair.
    if core.links.get(target).is_some_and(|link| link.has_too_many_bytes(io)) {
        return give_up(core, io, ticket);
    }
    let Some(repair) = core.retries.repairs.get(ticket) else { return };
    let statement = Arc::clone(&repair.statement);
    let mut body = Vec::new();
    let version = core.links.version_of(target);
    let explicit =
        statement.keyspace.as_deref().filter(|_| statement.explicit_keyspace && version >= 5);
    encode::prepare(&mut body, version, statement.text.as_deref().unwrap_or_default(), explicit);
    let pending = Pending::own(io.now_ns(), Purpose::Reprepare { repair: ticket }, opcode::PREPARE);
    if !aggregate::send(&mut core.links, &mut core.retained, io, target, pending, &body) {
        give_up(core, io, ticket);
    }
}

/// The link to prepare on: the request's own if its pool has the right keyspace, or the statement's
/// text names its own; else one of a sister pool to the same node. `None`: failed, or waiting for
/// that link to open.
fn link_to_prepare_on(core: &mut Core, io: &mut Io, ticket: Ticket) -> Option<LinkKey> {
    let repair = core.retries.repairs.get(ticket)?;
    let (link, node, statement) = (repair.link, repair.node, &repair.statement);
    let Some(found) = core.links.find(link) else {
        give_up(core, io, ticket);
        return None;
    };
    let pool = core.router.pools.get(found.pool)?;
    let explicit = statement.explicit_keyspace && pool.key.version >= 5;
    let in_keyspace = pool.key.keyspace.as_deref() == statement.keyspace.as_deref();
    if explicit || in_keyspace || !repair.in_first_keyspace {
        return Some(link.key);
    }
    let verified_ns = pool.verified_ns();
    let sister =
        PoolKey { keyspace: statement.keyspace.as_deref().map(Arc::from), ..pool.key.clone() };
    let sister = pools::for_key(core, io, &sister, verified_ns).ok();
    let Some(pool) = sister.and_then(|sister| core.router.pools.get(sister)) else {
        give_up(core, io, ticket);
        return None;
    };
    // A node that has just refused the keyspace, because it was dropped for example, is not asked
    // for each request.
    if let Some(sister) = sister
        && pool.links_to(node).next().is_none()
        && pool.may_ask(node, io.now_ns())
        && open::has_room(core, sister)
    {
        open::open(core, io, sister, node, Role::Serves);
    }
    let Some(target) = core.router.pools.get(sister?)?.links_to(node).next() else {
        give_up(core, io, ticket);
        return None;
    };
    let target_link = core.links.get_mut(target)?;
    if target_link.is_ready() {
        return Some(target);
    }
    target_link.on_ready.push(ticket);
    None
}

/// Handles the node's answer to the PREPARE of a repair.
pub(crate) fn answered(
    core: &mut Core,
    io: &mut Io,
    link: LinkKey,
    ticket: Ticket,
    answer: &Answer<'_>,
) {
    let Some(mut repair) = core.retries.repairs.remove(ticket) else { return };
    if answer.opcode == opcode::ERROR {
        repair_refused(core, io, link, &repair, answer);
        return;
    }
    match compare(core, link, &repair, answer) {
        Again::Same => {}
        Again::Changed => {
            let why = "Shunt: this statement's columns have changed since it was prepared; prepare it again";
            refuse_as_unprepared(core, io, &repair, Outcome::Error, why);
            return;
        }
        Again::AnotherId if !repair.in_first_keyspace => {
            repair.in_first_keyspace = true;
            core.retries.repairs.insert(ticket, repair);
            go_on(core, io, ticket);
            return;
        }
        // Cassandra 4 and 5 keep a statement under two ids, with and without the session's
        // keyspace, and report one of them: the node may know the other. If it does not, preparing
        // once more would not help.
        Again::AnotherId => repair.pending.reprepares = u8::MAX,
    }
    let (link, pending) = (repair.link, repair.pending);
    if core.context.is_too_late(io, &pending.plan, pending.received_ns) {
        return refuse_as_unprepared(
            core,
            io,
            &repair,
            Outcome::TimedOut,
            "the node did not answer in time",
        );
    }
    if mode_change::is_taken(core, io, &pending, &repair.body) {
        return refuse_as_unprepared(core, io, &repair, Outcome::Intercepted, mode_change::WHY);
    }
    if !core.links.find(link).is_some_and(|link| link.is_ready() && !link.has_too_many_bytes(io))
        || !aggregate::send(
            &mut core.links,
            &mut core.retained,
            io,
            link.key,
            pending,
            &repair.body,
        )
    {
        another_node::send(core, io, pending, &repair.body, None);
    }
}

/// Ends a repair whose statement can no longer be prepared (its table is gone, for example) with
/// the node's error.
fn repair_refused(
    core: &mut Core,
    io: &mut Io,
    link: LinkKey,
    repair: &Repair,
    answer: &Answer<'_>,
) {
    let max = answer.plain_bytes_max(After::Learn, core.context.config.frame_bytes_max);
    let mut plain = Vec::new();
    let body =
        core.links.plain_body(link, answer.flags, answer.body, max, &mut plain).unwrap_or_default();
    if !failure::refused_after_all(core, io, &repair.pending, answer.flags, body) {
        reply::pass_on(core, io, &repair.pending, answer, Outcome::Error);
    }
}

/// Compares the node's prepared statement with the client's request and knowledge.
fn compare(core: &mut Core, link: LinkKey, repair: &Repair, answer: &Answer<'_>) -> Again {
    let max = answer.plain_bytes_max(After::Learn, core.context.config.frame_bytes_max);
    let mut plain = Vec::new();
    let Some(body) = core.links.plain_body(link, answer.flags, answer.body, max, &mut plain) else {
        return Again::Same;
    };
    let Ok((_, rest)) = split_response_prefix(answer.flags, body) else { return Again::Same };
    let version = core.links.version_of(link);
    let Ok(ResultMessage::Prepared(prepared)) = ResultMessage::decode(version, rest) else {
        // The metadata is of an unknown, later kind.
        let is_same = result_kind::prepared_id(rest).is_none_or(|id| *id == *repair.statement.id);
        return if is_same { Again::Same } else { Again::AnotherId };
    };
    if *prepared.id != *repair.statement.id {
        return Again::AnotherId;
    }
    let statement = core
        .router
        .prepared
        .statement(prepared.id)
        .unwrap_or_else(|| Arc::clone(&repair.statement));
    let shape = Shape::of(version, &prepared).after(statement.shape);
    if shape != statement.shape {
        let pool = core.router.pools.get(repair.pending.pool);
        let account = pool.map(|pool| pool.account).unwrap_or_default();
        core.router.prepared.learn(account, PreparedStatement::clone(&statement).with_shape(shape));
    }
    let knows_result = match (repair.pending.opcode, prepared.result_metadata_id) {
        (opcode::EXECUTE, Some(now)) => {
            metadata_id(version, &repair.pending, &repair.body).is_none_or(|id| id == now)
        }
        _ => true,
    };
    if shape.has_changed() || !knows_result { Again::Changed } else { Again::Same }
}

/// Gives up a repair that cannot go on: the request goes to another node once, else its client is
/// asked to prepare.
pub(crate) fn give_up(core: &mut Core, io: &mut Io, ticket: Ticket) {
    let Some(repair) = core.retries.repairs.remove(ticket) else { return };
    if repair.pending.retries == 0 {
        another_node::send(core, io, repair.pending, &repair.body, Some(repair.node));
    } else {
        let why = "Shunt: this statement could not be prepared on the node it was sent to; prepare it again";
        refuse_as_unprepared(core, io, &repair, Outcome::LinkLost, why);
    }
}

/// Gives up a repair that has used up its request's time.
pub(crate) fn is_late(core: &mut Core, io: &mut Io, ticket: Ticket) {
    let Some(repair) = core.retries.repairs.remove(ticket) else { return };
    let why = "Shunt: the node did not prepare this statement in time; prepare it again";
    refuse_as_unprepared(core, io, &repair, Outcome::TimedOut, why);
}

fn refuse_as_unprepared(
    core: &mut Core,
    io: &mut Io,
    repair: &Repair,
    outcome: Outcome,
    why: &str,
) {
    capture::ended(core, io, &repair.pending, Some(&repair.body), outcome);
    if may_have_changed(&repair.pending) {
        failure::fail(core, io, &repair.pending, outcome, why);
        return;
    }
    let Some(version) = core.clients.version_of(repair.pending.client) else {
        core.context.metrics.in_flight.sub(1);
        core.clients.tenants.end(repair.pending.plan.tenant, 0);
        spans::abandon(core, repair.pending.trace);
        return;
    };
    let body = words(version, &repair.statement.id, why);
    let answer = Answer::plain(opcode::ERROR, repair.pending.stream, &body);
    reply::pass_on(core, io, &repair.pending, &answer, outcome);
}

/// The body of UNPREPARED with a message of the proxy's own.
pub(crate) fn words(version: u8, id: &[u8], message: &str) -> Vec<u8> {
    let mut body = Vec::new();
    ErrorMessage {
        code: error_code::UNPREPARED,
        message,
        details: ErrorDetails::Unprepared { id },
    }
    .put(&mut body, version);
    body
}

/// True if one more statement of a request may be prepared on its node: as many as it names, and
/// one of them again, in case the node has evicted it meanwhile.
fn may_be_prepared(version: u8, pending: &Pending, body: &[u8]) -> bool {
    if pending.reprepares < 2 {
        return true;
    }
    if pending.opcode != opcode::BATCH || pending.reprepares >= limits::REPREPARES_PER_REQUEST_MAX {
        return false;
    }
    let Ok((_, body)) = split_request_prefix(pending.flags, body) else { return false };
    let Ok(batch) = Batch::decode(version, body) else { return false };
    let mut ids: Vec<&[u8]> = batch
        .children()
        .filter_map(|child| match child.statement {
            BatchStatement::Prepared(id) => Some(id),
            BatchStatement::Text(_) => None,
        })
        .collect();
    ids.sort_unstable();
    ids.dedup();
    usize::from(pending.reprepares) <= ids.len()
}

/// The id of the result metadata that an EXECUTE carries.
fn metadata_id<'b>(version: u8, pending: &Pending, body: &'b [u8]) -> Option<&'b [u8]> {
    let (_, body) = split_request_prefix(pending.flags, body).ok()?;
    Execute::decode(version, body).ok()?.result_metadata_id
}
