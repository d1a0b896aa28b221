//! Connections of clients that are with an agent, or on their way: [`Owner`] decides, and this
//! module acts.
//!
//! The proxy asks for a connection back as soon as its answer is out: other answers may wait for
//! it, and the client's next requests. Nothing can be sent between the parts of one answer anyway.

use std::io::ErrorKind;
use std::net::SocketAddr;

use shunt_handover::Flow;
use shunt_handover::message::{Message, Ticket};
use shunt_handover::owner::{AgentId, Gone, Outcome, Owner, OwnerSink, Seen, aged};
use shunt_handover::session::Instance;
use shunt_reactor::moving::{Frozen, NotFrozen, TcpState};
use shunt_reactor::{CloseReason, ConnId, Io};
use tracing::{debug, warn};

use super::state::{Agent, Place};
use super::{Handover, Steer, agents, offers};
use crate::client::{Client, closing};
use crate::core::{Core, Peer};
use crate::ids::ClientRef;
use crate::metrics::{Closing, StaysFor};

/// Actions that the owner requests, in order.
enum Wanted {
    Freeze(Flow),
    Restore(Flow, Frozen),
    Reset(Option<TcpState>, u64),
    Send(AgentId, Ticket, Message<'static>),
    DropControl(AgentId),
    Outcome(Flow, Ticket, Outcome),
}

struct Sink<'a> {
    steer: &'a mut dyn Steer,
    agents: &'a [Agent],
    of_process: &'a shunt_handover::Clients,
    wanted: Vec<Wanted>,
}

impl OwnerSink for Sink<'_> {
    fn steer(&mut self, flow: Flow, agent: AgentId, lease_ms: u64) -> bool {
        let agent = self.agents.get(agent.0 as usize);
        agent.is_some_and(|agent| self.steer.steer(flow, agent.address, lease_ms))
    }

    fn unsteer(&mut self, flow: Flow) {
        self.steer.unsteer(flow);
    }

    fn freeze(&mut self, flow: Flow) {
        self.wanted.push(Wanted::Freeze(flow));
    }

    fn restore(&mut self, flow: Flow, frozen: Frozen) {
        self.wanted.push(Wanted::Restore(flow, frozen));
    }

    fn seen(&self, flow: Flow) -> Option<Seen> {
        self.steer.seen(flow)
    }

    fn reset(&mut self, _: Flow, state: Option<TcpState>, frozen_at_ms: u64) {
        self.wanted.push(Wanted::Reset(state, frozen_at_ms));
    }

    fn send(&mut self, agent: AgentId, ticket: Ticket, message: Message<'static>) {
        self.wanted.push(Wanted::Send(agent, ticket, message));
    }

    fn drop_control(&mut self, agent: AgentId) {
        self.wanted.push(Wanted::DropControl(agent));
    }

    fn claim(&mut self, flow: Flow) -> bool {
        self.of_process.claim(flow)
    }

    fn unclaim(&mut self, flow: Flow) {
        self.of_process.left(flow);
    }

    fn outcome(&mut self, flow: Flow, ticket: Ticket, outcome: Outcome) {
        self.wanted.push(Wanted::Outcome(flow, ticket, outcome));
    }
}

/// Calls the owner, and performs the actions that it requests; `None` if hand-over is off.
fn with<R>(
    core: &mut Core,
    io: &mut Io,
    work: impl FnOnce(&mut Owner, u64, &mut Sink<'_>) -> R,
) -> Option<R> {
    let Handover { options, agents, owner, .. } = core.handover.as_deref_mut()?;
    let mut sink = Sink {
        steer: &mut *options.steer,
        agents,
        of_process: &options.clients,
        wanted: Vec::new(),
    };
    let done = work(owner, io.now_ns() / 1_000_000, &mut sink);
    for wanted in sink.wanted {
        carry_out(core, io, wanted);
    }
    Some(done)
}

fn carry_out(core: &mut Core, io: &mut Io, wanted: Wanted) {
    let Some(handover) = core.handover.as_deref_mut() else { return };
    match wanted {
        Wanted::Freeze(flow) => {
            let client = handover.away.get(&flow).and_then(|away| core.clients.find(away.client));
            if let Some(client) = client {
                io.freeze(client.conn);
            }
        }
        Wanted::Restore(flow, frozen) => {
            let away = handover.away.get_mut(&flow);
            if let Some((away, client)) =
                away.and_then(|away| core.clients.find(away.client).map(|client| (away, client)))
            {
                away.place = Place::Arriving;
                let was_parked = io.restore_parked(client.conn, frozen);
                debug_assert!(was_parked, "a client's connection was away and here");
                return;
            }
            // Its session is unknown: reset it as soon as it is in.
            io.restore(frozen);
            with(core, io, |owner, _, sink| owner.restored(flow, true, sink));
        }
        Wanted::Reset(Some(state), frozen_at_ms) => {
            let state = aged(&state, (io.now_ns() / 1_000_000).saturating_sub(frozen_at_ms));
            // Restore and reset it: the reset makes the client send something if it does not hear
            // of it at once.
            io.restore(Frozen::without_queues(state));
        }
        Wanted::Reset(None, _) => {}
        Wanted::Send(agent, ticket, message) => {
            let Handover { agents, offers, .. } = handover;
            let Some(agent) = agents.get_mut(agent.0 as usize) else { return };
            if let (Message::Take { .. }, Some(offer)) = (&message, offers.get(&ticket)) {
                let head =
                    Message::Request { head: &offer.head(), has_body: false, is_idempotent: false };
                agent.send(io, ticket, &head);
            }
            agent.send(io, ticket, &message);
        }
        Wanted::DropControl(agent) => {
            agents::end(core, io, agent.0 as usize, "it does not take a connection")
        }
        Wanted::Outcome(flow, ticket, outcome) => ended(core, io, flow, ticket, outcome),
    }
}

/// Offers a client's connection to an agent, for the answer that waits there; it comes back at
/// once.
pub(super) fn offer(core: &mut Core, io: &mut Io, agent: AgentId, ticket: Ticket, flow: Flow) {
    with(core, io, |owner, now_ms, sink| {
        owner.offer(now_ms, agent, ticket, flow, 0, sink);
        owner.recall(flow, sink);
    });
}

/// Handles the outcome of taking a connection out of the loop.
pub(crate) fn frozen(
    core: &mut Core,
    io: &mut Io,
    conn: ConnId,
    outcome: Result<Frozen, NotFrozen>,
) {
    let client = match core.connections.peer(conn) {
        Peer::Client(slot) => core.clients.get(slot),
        _ => None,
    };
    let flow = client.and_then(Client::flow);
    let (Some(flow), Some(handover)) = (flow, core.handover.as_deref_mut()) else {
        // The proxy gave the client up while its connection was being taken out: the client must
        // hear of that.
        if let Ok(frozen) = outcome {
            io.restore(frozen);
        }
        return;
    };
    match &outcome {
        Ok(_) => {
            io.park(conn);
            if let Some(away) = handover.away.get_mut(&flow) {
                away.place = Place::Elsewhere;
                core.context
                    .metrics
                    .handover
                    .freeze
                    .record(io.now_ns().saturating_sub(away.leaves_ns));
            }
        }
        Err(why) => {
            debug!(%why, client = %flow.peer, "an answer is relayed: its client's connection stays");
            let is_never = matches!(why, NotFrozen::Io(ErrorKind::PermissionDenied));
            if is_never && !std::mem::replace(&mut handover.is_off, true) {
                warn!(%why, "connections cannot be handed over, and all answers are relayed: that takes CAP_NET_ADMIN");
            }
        }
    }
    with(core, io, |owner, now_ms, sink| owner.frozen(now_ms, flow, outcome, sink));
}

/// Handles a connection that is back in the loop. One without a known client is reset.
pub(crate) fn restored(core: &mut Core, io: &mut Io, conn: ConnId) {
    let Peer::Client(slot) = core.connections.peer(conn) else { return io.abort(conn) };
    if let Some(flow) = core.clients.get(slot).and_then(Client::flow) {
        if let Some(away) = core.handover.as_deref().and_then(|handover| handover.away.get(&flow)) {
            core.context
                .metrics
                .handover
                .absence
                .record(io.now_ns().saturating_sub(away.leaves_ns));
        }
        with(core, io, |owner, _, sink| owner.restored(flow, true, sink));
    }
}

/// Handles the end of a client's connection: if it was on its way in, it did not arrive.
pub(crate) fn not_restored(core: &mut Core, io: &mut Io, slot: u32, reason: CloseReason) {
    let client = core.clients.get(slot).filter(|client| client.is_away);
    let Some(flow) = client.and_then(Client::flow) else { return };
    let away = core.handover.as_deref().and_then(|handover| handover.away.get(&flow));
    if away.is_some_and(|away| away.place == Place::Arriving) {
        debug!(?reason, client = %flow.peer, "a connection that came back from an agent was not let in");
        with(core, io, |owner, _, sink| owner.restored(flow, false, sink));
    }
}

/// Handles clients that left, or were given up, while their connections were away or on their way.
#[cold]
pub(crate) fn settle(core: &mut Core, io: &mut Io) {
    while let Some(flow) = core.handover.as_deref_mut().and_then(|handover| handover.left.pop()) {
        let away = core.handover.as_deref_mut().and_then(|handover| handover.away.get_mut(&flow));
        let Some(away) = away else { continue };
        away.client = ClientRef::PROXY;
        match away.place {
            Place::Leaving => with(core, io, |owner, _, sink| owner.client_gone(flow, sink)),
            // The connection is reset when it comes back.
            Place::Elsewhere => None,
            // Restore a closed connection all the same, and close it then.
            Place::Arriving => with(core, io, |owner, _, sink| owner.restored(flow, true, sink)),
        };
    }
}

/// Handles an agent's message about connections. False if the message is impossible.
pub(super) fn heard(
    core: &mut Core,
    io: &mut Io,
    agent: u32,
    ticket: Ticket,
    message: &Message<'_>,
) -> bool {
    use Message::{Closed, Held, HeldEnd, Refused, Return, Taken};
    match message {
        Held { local, .. } if !serves(&core.context.config.listen.tcp, *local) => {
            warn!(%local, "an agent has told of a connection to an address that clients of this proxy do not connect to");
            false
        }
        Taken | Refused { .. } | Return { .. } | Closed { .. } | Held { .. } | HeldEnd { .. } => {
            if *message == Taken
                && let Some(offer) =
                    core.handover.as_deref().and_then(|handover| handover.offers.get(&ticket))
            {
                let (metrics, now_ns) = (&core.context.metrics.handover, io.now_ns());
                metrics.taking.record(now_ns.saturating_sub(offer.leaves_ns));
                metrics.first_byte.record(now_ns.saturating_sub(offer.pending.received_ns));
            }
            let agent = AgentId(agent);
            with(core, io, |owner, now_ms, sink| owner.heard(now_ms, agent, ticket, message, sink))
                .is_none_or(|fits| fits.is_ok())
        }
        // The outcome of an offer that was not taken up in time comes on its link.
        _ => true,
    }
}

fn serves(listen: &[SocketAddr], local: SocketAddr) -> bool {
    let is_same = |own: &SocketAddr| {
        own.ip().is_unspecified() || own.ip().to_canonical() == local.ip().to_canonical()
    };
    listen.iter().any(|own| own.port() == local.port() && is_same(own))
}

/// Notes that a control connection is open.
pub(super) fn control_up(core: &mut Core, io: &mut Io, agent: u32, instance: Instance) {
    with(core, io, |owner, now_ms, sink| owner.control_up(now_ms, AgentId(agent), instance, sink));
}

/// Notes that a control connection is lost.
pub(super) fn control_lost(core: &mut Core, io: &mut Io, agent: u32) {
    with(core, io, |owner, now_ms, sink| owner.control_lost(now_ms, AgentId(agent), sink));
}

/// Advances the owner's clock.
pub(crate) fn tick(core: &mut Core, io: &mut Io) {
    with(core, io, |owner, now_ms, sink| owner.tick(now_ms, sink));
    if let Some(handover) = core.handover.as_deref() {
        core.context.metrics.handover.away.set(handover.owner.flows() as u64);
        let up = handover.agents.iter().filter(|agent| agent.is_up()).count();
        core.context.metrics.handover.agents.set(up as u64);
    }
}

/// Handles the end of a hand-over.
fn ended(core: &mut Core, io: &mut Io, flow: Flow, ticket: Ticket, outcome: Outcome) {
    let Some(handover) = core.handover.as_deref_mut() else { return };
    debug!(client = %flow.peer, ticket = ticket.0, ?outcome, "a hand-over has ended");
    let away = handover.away.remove(&flow);
    let offer = handover.offers.remove(&ticket);
    let client = away.map(|away| away.client);
    match client.map(|client| core.clients.find_mut(client)) {
        Some(Some(client)) => client.is_away = false,
        // The client had gone before its connection.
        Some(None) => handover.options.clients.left(flow),
        None => {}
    }
    let whole = matches!(outcome, Outcome::Back { is_complete: true, .. });
    match (outcome, &offer) {
        (Outcome::Relay(why), Some(offer)) => {
            offers::comes_on_link(core, io, offer, StaysFor::of(why))
        }
        (Outcome::Elsewhere, Some(offer)) => {
            offers::comes_on_link(core, io, offer, StaysFor::AgentLost)
        }
        (Outcome::Back { .. }, Some(offer)) if whole => offers::delivered(core, io, offer),
        (Outcome::Back { answer_sent: 0, .. }, Some(offer)) => offers::is_lost(core, io, offer),
        (Outcome::Back { .. } | Outcome::Gone(_), _) if !whole => {
            if let Some(offer) = &offer {
                let may_come =
                    !matches!(outcome, Outcome::Back { .. } | Outcome::Gone(Gone::Ended { .. }));
                offers::has_no_client(core, io, offer, may_come);
            }
            let slot = client
                .filter(|client| core.clients.find(*client).is_some())
                .map(|client| client.slot);
            let Some(slot) = slot else { return };
            if let Some(client) = core.clients.get(slot) {
                io.abort(client.conn);
            }
            match outcome {
                Outcome::Gone(Gone::Ended { .. } | Gone::Client) => {
                    closing::lost(core, io, slot, CloseReason::Reset)
                }
                _ => {
                    let why = "its connection was with an agent, and did not come back";
                    closing::abort(core, io, slot, Closing::Unreachable, why);
                }
            }
        }
        _ => {}
    }
}
