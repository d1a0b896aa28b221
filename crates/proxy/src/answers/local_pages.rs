//! Pages of tables with node-local rows: `system.size_estimates`, `system_views.clients` and the
//! like.
//!
//! A paging state says how far a read has come, not on which node; another node would silently
//! continue among other rows. So the proxy puts the node in front of the paging state that the
//! client gets, and removes it when the client asks for the next page, on whatever connection and
//! through whatever proxy of the ring.
//!
//! This must never answer with the rows of another node than the one that began. If that node
//! cannot be asked, the client gets an error that says so; a paging state without a node gets one
//! too. The proxy inspects no answers or requests except those for these tables.

use std::ops::Range;

use shunt_reactor::Io;
use shunt_topology::NodeId;
use shunt_wire::cql::envelope::{Header, flag, opcode};
use shunt_wire::cql::message::{Execute, Query, ResultMessage, put};
use shunt_wire::cql::message::{split_request_prefix, split_response_prefix};

use crate::core::Core;
use crate::fault::Fault;
use crate::ids::{LinkKey, PoolId};
use crate::link::Pending;
use crate::metrics::Outcome;
use crate::reply::{self, Answer};
use crate::router::Router;

/// First bytes of a paging state that the proxy made; the node's host id and its own paging state
/// follow.
const MARK: [u8; 4] = *b"SHN\x01";
/// Bytes in front of the node's own paging state.
const MARK_BYTES: usize = MARK.len() + size_of::<u128>();

/// Reads from a request for node-local rows the node it must go to and the body to send; `None`:
/// any node, with the body as it is.
///
/// # Errors
/// The request continues an earlier read whose node is unknown or unreachable.
pub(crate) fn directed(
    router: &Router,
    pool: PoolId,
    header: &Header,
    body: &[u8],
) -> Result<Option<(NodeId, Vec<u8>)>, Fault> {
    let Some(place) = paging_state(header, body) else { return Ok(None) };
    let (before, state, after) = (&body[..place.start], &body[place.clone()], &body[place.end..]);
    let Some((host_id, own)) = unmarked(state) else {
        return Err(Fault::invalid(
            "Shunt: each node has its own rows in this table, and the paging state does not say whose page is wanted; \
             begin the read again",
        ));
    };
    let Some(node) = page_node(router, pool, host_id) else {
        return Err(Fault::invalid(
            "Shunt: each node has its own rows in this table, and the node that began this read cannot be reached; \
             begin the read again",
        ));
    };
    let mut request = Vec::with_capacity(body.len());
    // The length precedes the paging state.
    request.extend_from_slice(&before[..before.len() - size_of::<i32>()]);
    put::bytes(&mut request, Some(own));
    request.extend_from_slice(after);
    Ok(Some((node, request)))
}

/// The node with this host id, if a link of the pool to it is open or opening, or the pool has no
/// link to any node yet.
fn page_node(router: &Router, pool: PoolId, host_id: u128) -> Option<NodeId> {
    let routing = &router.cluster.as_ref()?.routing;
    let node = routing.nodes().iter().find(|node| node.host_id == host_id)?.id;
    let pool = router.pools.get(pool)?;
    (pool.ready == 0 || pool.links_to(node).next().is_some()).then_some(node)
}

/// Passes a page on; adds its node to the paging state if there are more pages.
pub(crate) fn deliver_page(
    core: &mut Core,
    io: &mut Io,
    key: LinkKey,
    pending: &Pending,
    answer: &Answer<'_>,
    body: &[u8],
) {
    let node = core.links.get(key).map(|link| link.node);
    let node = node.and_then(|node| core.router.cluster.as_ref()?.routing.node(node));
    match node.and_then(|node| marked(core.links.version_of(key), answer.flags, body, node.host_id))
    {
        Some(marked) => {
            let answer =
                Answer { flags: answer.flags & !flag::COMPRESSION, body: &marked, ..*answer };
            reply::pass_on(core, io, pending, &answer, Outcome::Ok);
        }
        None => reply::pass_on(core, io, pending, answer, Outcome::Ok),
    }
}

/// The range of the paging state in a request's body, if it has one.
fn paging_state(header: &Header, body: &[u8]) -> Option<Range<usize>> {
    let (_, message) = split_request_prefix(header.flags, body).ok()?;
    let params = match header.opcode {
        opcode::QUERY => Query::decode(header.version, message).ok()?.params,
        opcode::EXECUTE => Execute::decode(header.version, message).ok()?.params,
        _ => return None,
    };
    let state = params.paging_state.filter(|state| !state.is_empty())?;
    let start = (state.as_ptr() as usize).checked_sub(body.as_ptr() as usize)?;
    (body.get(start..start + state.len()) == Some(state) && start >= size_of::<i32>())
        .then_some(start..start + state.len())
}

/// The host id of the node and the node's own paging state.
fn unmarked(state: &[u8]) -> Option<(u128, &[u8])> {
    let (mark, own) = state.split_at_checked(MARK_BYTES)?;
    let host_id = mark.strip_prefix(&MARK)?.try_into().ok()?;
    Some((u128::from_be_bytes(host_id), own))
}

/// The answer's body with a mark before its paging state; `None` if it has none.
fn marked(version: u8, flags: u8, body: &[u8], host_id: u128) -> Option<Vec<u8>> {
    let (prefix, rest) = split_response_prefix(flags, body).ok()?;
    let ResultMessage::Rows(rows) = ResultMessage::decode(version, rest).ok()? else { return None };
    let state = rows.metadata.paging_state?;
    // Skip the metadata's flags and the number of columns.
    let start = prefix.length + rows.metadata.offset + 2 * size_of::<i32>();
    let end = start + size_of::<i32>() + state.len();
    let mut out = Vec::with_capacity(body.len() + MARK_BYTES);
    out.extend_from_slice(body.get(..start)?);
    put::bytes(&mut out, Some(&[&MARK[..], &host_id.to_be_bytes(), state].concat()));
    out.extend_from_slice(body.get(end..)?);
    Some(out)
}
