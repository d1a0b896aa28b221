//! Answers that wait at agents, and the fate of their requests.
//!
//! The stream id of such a request stays taken on its link until the request is settled, because
//! the agent may put the answer back into the link's stream: when the proxy tells it to, when the
//! proxy cannot reach it, or when the proxy is silent for too long.

use shunt_handover::message::{Message, Ticket};
use shunt_handover::owner::AgentId;
use shunt_reactor::Io;
use shunt_wire::cql::envelope::{HEADER_BYTES, Header, opcode};

use super::connections;
use super::state::{Away, Offer, Place};
use crate::client::{Client, Phase, Stall};
use crate::core::Core;
use crate::digests::attribution;
use crate::ids::LinkRef;
use crate::limits;
use crate::link::links::LinkAndNode;
use crate::link::{Kept, Pending, Purpose, closing, lifecycle};
use crate::metrics::{HandedOver, Outcome, StaysFor};
use crate::plan::After;
use crate::query_end::End;
use crate::reply::Answer;
use crate::retry::failure;
use crate::slow_queries::capture;
use crate::traces::spans;

/// Handles an agent's offer of a large answer: the client's connection goes there, or the answer
/// comes here.
#[cold]
pub(crate) fn offered(core: &mut Core, io: &mut Io, at: LinkRef, answer: &Answer<'_>) {
    let Core { handover, links, clients, retained, context, .. } = &mut *core;
    let Some(link) = links.find_mut(at) else { return };
    let ticket = answer.body.first_chunk::<8>().map(|bytes| Ticket(u64::from_be_bytes(*bytes)));
    let length = answer.body.get(8..).and_then(|rest| rest.try_into().ok()).map(u32::from_be_bytes);
    let (Some(via), Some(ticket), Some(length), Some(handover), Some(pending)) =
        (link.via, ticket, length, handover, link.streams.get_mut(answer.stream as u16))
    else {
        let why = format!("it offers an answer on stream {}, which has no request", answer.stream);
        return lifecycle::fault(core, io, at.key, &why);
    };
    let Some(agent) = handover.agents.get_mut(via as usize) else { return };
    context.metrics.handover.offers.add(1);
    let is_deliverable = pending.purpose == Purpose::Client
        && matches!(pending.plan.after, After::Deliver | After::Inspect);
    let client = clients.find_mut(pending.client);
    let flow = client.as_ref().and_then(|client| client.flow());
    let is_known = flow.is_some_and(|flow| handover.away.contains_key(&flow))
        || handover.offers.contains_key(&ticket);
    let backlog = client.as_ref().map_or(0, |client| io.backlog(client.conn));
    let against = [
        (handover.is_off, StaysFor::Off),
        (!is_deliverable, StaysFor::LookedInto),
        (length > context.config.frame_bytes_max, StaysFor::TooLarge),
        (client.as_deref().is_some_and(|client| client.tls.is_some()), StaysFor::Encrypted),
        (client.is_some() && flow.is_none(), StaysFor::Indirect),
        (backlog > limits::HANDOVER_BACKLOG_BYTES_MAX, StaysFor::Backlog),
        (is_known || !client.as_deref().is_some_and(may_leave), StaysFor::Busy),
    ];
    let why = against.into_iter().find(|(speaks_against, _)| *speaks_against).map(|(_, why)| why);
    let (Some(client), Some(flow), None) = (client, flow, why) else {
        if matches!(pending.purpose, Purpose::Orphan | Purpose::Overtaken) {
            // An empty answer frees its stream id.
            agent.send(io, ticket, &Message::Cancel);
        } else {
            context.metrics.handover.answers.of(HandedOver::Stays).add(1);
            context.metrics.handover.relayed.of(why.unwrap_or(StaysFor::Busy)).add(1);
            agent.send(io, ticket, &Message::Fetch);
        }
        return;
    };
    let kept = std::mem::replace(&mut pending.kept, Kept::Nothing);
    pending.purpose = Purpose::Offered;
    let (Answer { stream, flags, .. }, pending) = (*answer, *pending);
    let header = Header {
        version: client.version,
        response: true,
        flags,
        stream: pending.stream,
        opcode: opcode::RESULT,
        length,
    };
    client.is_away = true;
    link.free_bytes(pending.client, retained.length(kept));
    retained.release_on(link, io, kept);
    let segments_lz4 = client.segmented.then_some(client.lz4);
    let (header, leaves_ns) = (header.to_bytes(), io.now_ns());
    handover.away.insert(flow, Away { client: pending.client, place: Place::Leaving, leaves_ns });
    handover.offers.insert(ticket, Offer { at, stream, pending, leaves_ns, header, segments_lz4 });
    connections::offer(core, io, AgentId(via), ticket, flow);
}

/// True if a client's connection may leave: only whole answers are in progress on it.
fn may_leave(client: &Client) -> bool {
    let is_held = client.stalls.has(Stall::REPLIES) || client.stalls.has(Stall::SWITCH);
    client.phase == Phase::Ready && !client.is_away && !client.stays && !is_held
}

/// Notes that the answer to a request that waited for a connection to leave came on its link after
/// all. True if there was such a request.
pub(crate) fn came_on_link(core: &mut Core, at: LinkRef, stream: i16) {
    if let Some(handover) = core.handover.as_deref_mut() {
        handover.offers.retain(|_, offer| offer.at != at || offer.stream != stream);
    }
}

/// Settles an answer that the client has received whole.
pub(super) fn delivered(core: &mut Core, io: &mut Io, offer: &Offer) {
    capture::handed_over(core, io, offer.at, &offer.pending);
    let length = Header::decode(&offer.header).map_or(0, |header| header.length as usize);
    attribution::count_hand_over(core, io, &offer.pending, length);
    spans::note_link(core, offer.at, &offer.pending);
    spans::record_hand_over(core, io, &offer.pending);
    free(core, io, offer, false);
    let metrics = &core.context.metrics;
    metrics.handover.answers.of(HandedOver::Sent).add(1);
    metrics.handover.bytes.add((HEADER_BYTES + length) as u64);
    metrics.outcomes.of(Outcome::Ok).add(1);
    metrics.in_flight.sub(1);
    core.clients.tenants.end(offer.pending.plan.tenant, length as u64);
    let time_ns = io.now_ns().saturating_sub(offer.pending.received_ns);
    metrics.latency_ns.record(time_ns);
    if let Some(client) = core.clients.find_mut(offer.pending.client) {
        client.in_flight = client.in_flight.saturating_sub(1);
        let times = (offer.pending.received_ns, offer.pending.sent_ns);
        client.traffic.end(&End::new(times, io.now_ns(), 0, length));
    }
}

/// Settles an offer whose connection is back without the answer, which comes on the link.
pub(super) fn comes_on_link(core: &mut Core, io: &mut Io, offer: &Offer, why: StaysFor) {
    core.context.metrics.handover.answers.of(HandedOver::CameBack).add(1);
    core.context.metrics.handover.relayed.of(why).add(1);
    let pending =
        core.links.find_mut(offer.at).and_then(|link| link.streams.get_mut(offer.stream as u16));
    match pending {
        Some(pending) if pending.purpose == Purpose::Offered => pending.purpose = Purpose::Client,
        _ => fail(core, io, offer, "the connection to the node was lost"),
    }
}

/// Settles an offer whose connection is back, and whose answer the agent has lost.
pub(super) fn is_lost(core: &mut Core, io: &mut Io, offer: &Offer) {
    free(core, io, offer, false);
    fail(core, io, offer, "the agent on the node's host has lost the answer");
}

/// Fails a request: the node executed its statement, and the answer is lost.
fn fail(core: &mut Core, io: &mut Io, offer: &Offer, why: &str) {
    let pending = Pending { fate_unknown: true, ..offer.pending };
    failure::fail(core, io, &pending, Outcome::LinkLost, why);
}

/// Settles an offer whose client is gone. `may_come`: the answer may still come on the link.
pub(super) fn has_no_client(core: &mut Core, io: &mut Io, offer: &Offer, may_come: bool) {
    free(core, io, offer, may_come);
    core.context.metrics.handover.answers.of(HandedOver::Broken).add(1);
    core.context.metrics.outcomes.of(Outcome::LinkLost).add(1);
    core.context.metrics.in_flight.sub(1);
    core.clients.tenants.end(offer.pending.plan.tenant, 0);
    spans::abandon(core, offer.pending.trace);
}

/// Frees the stream id, or keeps it until an answer arrives under it.
fn free(core: &mut Core, io: &mut Io, offer: &Offer, may_come: bool) {
    let Some(LinkAndNode { link, node, .. }) = core.links.find_with_node(offer.at) else { return };
    let Some(pending) = link
        .streams
        .get_mut(offer.stream as u16)
        .filter(|pending| pending.purpose == Purpose::Offered)
    else {
        return;
    };
    if may_come {
        pending.purpose = Purpose::Orphan;
        link.orphans += 1;
        return;
    }
    link.end_request(offer.stream, |kept| core.retained.length(kept));
    if let Some(node) = node {
        node.in_flight = node.in_flight.saturating_sub(1);
        node.metrics.latency_ns.record(io.now_ns().saturating_sub(offer.pending.sent_ns));
    }
    if link.retiring && link.is_unused() {
        closing::close(core, io, offer.at.key);
    }
}
