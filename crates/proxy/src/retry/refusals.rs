//! Nodes that turn a request away before they begin, because they start, stop or are overloaded.
//! The request goes to another node once.
//!
//! This must never say that a request was not executed if the first node may have executed it. A
//! node that starts or stops is known not to have begun; an overloaded one is not.

use shunt_reactor::Io;
use shunt_wire::cql::message::{ErrorMessage, error_code, split_response_prefix};

use crate::core::Core;
use crate::fault::{NodeError, Party};
use crate::ids::LinkKey;
use crate::limits;
use crate::link::{Kept, Pending, lifecycle};
use crate::metrics::GivenUp;
use crate::retry::{another_node, repeat};

/// Cassandra 5's message, with code OVERLOADED, to queries that reach it after it began to shut
/// down. No separate code exists.
const SHUTTING_DOWN: &str = "Server is shutting down";

/// Lowers a node's share of queries for a while after it said that it cannot serve.
pub(crate) fn penalise(core: &mut Core, key: LinkKey, flags: u8, body: &[u8]) {
    let Ok((_, body)) = split_response_prefix(flags, body) else { return };
    let Some(error) = error_code::peek(body).map(NodeError) else { return };
    if error.party() != Party::Node {
        return;
    }
    let is_of_node = error.is_of_this_node();
    let Some(node) = core.links.get(key).map(|link| link.node) else { return };
    if let Some(node) = core.links.node_mut(node) {
        node.metrics.errors.add(u64::from(is_of_node));
        node.penalty = (node.penalty + 1).min(limits::NODE_PENALTY_MAX);
    }
}

/// Handles an ERROR to a client's request. If it says that the node did not even begin, because it
/// starts, stops or is overloaded, the request goes to another node once; `false` leaves the error
/// to the client, whose driver sees a single host and could only give up.
pub(crate) fn send_on(
    core: &mut Core,
    io: &mut Io,
    key: LinkKey,
    pending: &Pending,
    flags: u8,
    body: &[u8],
) -> bool {
    let Ok((_, body)) = split_response_prefix(flags, body) else { return false };
    let another_may_help =
        error_code::peek(body).is_some_and(|code| NodeError(code).another_may_help());
    if !another_may_help || pending.retries > 0 {
        return false;
    }
    let Ok(error) = ErrorMessage::decode(core.links.version_of(key), body) else { return false };
    let leaving = error.code == error_code::OVERLOADED && error.message == SHUTTING_DOWN;
    let Some(link) = core.links.get(key) else { return false };
    let (node, conn) = (link.node, link.conn);
    let Some(bytes) = core.retained.bytes(io, conn, pending.kept) else { return false };
    // An overloaded node does not say how far it got.
    let fate_unknown = error.code == error_code::OVERLOADED && !leaving;
    if fate_unknown && !repeat::may_repeat(&mut core.router, pending, &bytes) {
        return false;
    }
    let fate_unknown = fate_unknown || pending.fate_unknown;
    let again = Pending { kept: Kept::Nothing, fate_unknown, ..*pending };
    if leaving {
        let (now, random) = (io.now_ns(), core.context.random());
        core.links.health.failed(node, now, random);
        lifecycle::replace(core, io, key, GivenUp::NodeLeaving);
    }
    another_node::send(core, io, again, &bytes, Some(node));
    true
}
