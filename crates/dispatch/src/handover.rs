//! Clients' connections that are with an agent, or on their way: [`Owner`] decides, and this module
//! carries it out.
//!
//! A client's exchange goes on while its connection is away; the exchange ends when the connection
//! is back with the whole answer. If it returns with nothing of the answer, another agent gets the
//! request; if with a part, another agent may have the rest (`resume.rs`). While the connection is
//! away nothing is read from or written to the client.

use std::collections::HashMap;
use std::io::ErrorKind;

use shunt_handover::message::{Message, Ticket};
use shunt_handover::owner::{AgentId, Outcome, Owner, OwnerSink, Seen, aged};
use shunt_handover::{Clients, Flow, Steer};
use shunt_reactor::moving::{Frozen, NotFrozen, TcpState};
use shunt_reactor::{ConnId, Io};
use slab::Slab;
use tracing::{debug, warn};

use crate::policy::Handover;
use crate::state::{Backend, Client, Dispatcher, Peer, Place};
use crate::{answer, failing, links, reply, resume};

/// Work that the owner wants done, in order.
enum Wanted {
    Freeze(Flow),
    Restore(Flow, Frozen),
    Probe(Flow, Frozen),
    Reset(Option<TcpState>, u64),
    Send(AgentId, Ticket, Message<'static>),
    DropControl(AgentId),
    Outcome(Flow, Ticket, Outcome),
}

struct Sink<'a> {
    steer: &'a mut dyn Steer,
    backends: &'a [Backend],
    of_flow: &'a HashMap<Flow, usize>,
    clients: &'a Slab<Client>,
    of_process: &'a Clients,
    probes: &'a Slab<Flow>,
    wanted: Vec<Wanted>,
}

impl OwnerSink for Sink<'_> {
    fn steer(&mut self, flow: Flow, agent: AgentId, lease_ms: u64) -> bool {
        let backend = self.backends.get(agent.0 as usize);
        backend.is_some_and(|backend| self.steer.steer(flow, backend.address, lease_ms))
    }

    fn unsteer(&mut self, flow: Flow) {
        self.steer.unsteer(flow);
    }

    fn hold(&mut self, flow: Flow, lease_ms: u64) -> bool {
        self.steer.hold(flow, lease_ms)
    }

    fn seen(&self, flow: Flow) -> Option<Seen> {
        self.steer.seen(flow)
    }

    fn probe(&mut self, flow: Flow, frozen: Frozen) {
        self.wanted.push(Wanted::Probe(flow, frozen));
    }

    fn is_probing(&self, flow: Flow) -> bool {
        self.probes.iter().any(|(_, probed)| *probed == flow)
    }

    fn could_go_on(&self, flow: Flow, answer_sent: Option<u64>) -> bool {
        let client = self.of_flow.get(&flow).and_then(|client| self.clients.get(*client));
        let rest = client.and_then(|client| client.exchange.as_ref()?.rest.as_ref());
        rest.is_some_and(|rest| answer_sent.is_none_or(|sent| rest.follows(sent)))
    }

    fn freeze(&mut self, flow: Flow) {
        self.wanted.push(Wanted::Freeze(flow));
    }

    fn restore(&mut self, flow: Flow, frozen: Frozen) {
        self.wanted.push(Wanted::Restore(flow, frozen));
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

/// Calls the owner, and does the work it asks for.
fn with<R>(
    dispatcher: &mut Dispatcher,
    io: &mut Io,
    work: impl FnOnce(&mut Owner, u64, &mut Sink<'_>) -> R,
) -> R {
    let Dispatcher { owner, steer, backends, of_flow, clients, probes, options, .. } = dispatcher;
    let of_process = &options.clients;
    let mut sink = Sink {
        steer: &mut **steer,
        backends,
        of_flow,
        clients,
        of_process,
        probes,
        wanted: Vec::new(),
    };
    let done = work(owner, io.now_ns() / 1_000_000, &mut sink);
    for wanted in sink.wanted {
        carry_out(dispatcher, io, wanted);
    }
    done
}

fn carry_out(dispatcher: &mut Dispatcher, io: &mut Io, wanted: Wanted) {
    match wanted {
        Wanted::Freeze(flow) => {
            let client = dispatcher.moved.get(&flow).copied();
            if let Some(state) = client.and_then(|client| dispatcher.clients.get_mut(client)) {
                state.place = Place::Leaving;
                io.freeze(state.conn);
            }
        }
        Wanted::Restore(flow, frozen) => {
            let conn = io.restore(frozen);
            let client = match dispatcher.moved.get(&flow) {
                Some(client) => *client,
                // An earlier process handed this connection over.
                None => {
                    let deadline_ns = io.now_ns() + dispatcher.options.idle_timeout_ns;
                    let client =
                        dispatcher.insert_client(Client::new(conn, flow, io.now_ns(), deadline_ns));
                    dispatcher.moved.insert(flow, client);
                    client
                }
            };
            let Some(state) = dispatcher.clients.get_mut(client) else { return };
            (state.conn, state.place, state.arrives_ns) = (conn, Place::Arriving, io.now_ns());
            if state.exchange.is_some() {
                // As before it left: the client's next request waits, and the client may end its
                // direction.
                io.pause_reading(conn);
            }
            dispatcher.set_peer(conn, Peer::Client(client));
        }
        Wanted::Probe(flow, frozen) => {
            let conn = io.restore(frozen);
            let probe = dispatcher.probes.insert(flow);
            dispatcher.set_peer(conn, Peer::Probe(probe));
        }
        Wanted::Reset(state, frozen_at_ms) => {
            // Restoring and aborting the connection sends a reset, or a packet that makes the
            // client send one, which gets a reset.
            if let Some(state) = state
                .map(|state| aged(&state, (io.now_ns() / 1_000_000).saturating_sub(frozen_at_ms)))
            {
                let conn = io.restore(Frozen::without_queues(state));
                dispatcher.set_peer(conn, Peer::ToBeReset);
            }
        }
        Wanted::Send(agent, ticket, message) => {
            if let Some(backend) = dispatcher.backends.get_mut(agent.0 as usize) {
                backend.send(io, ticket, &message);
            }
        }
        Wanted::DropControl(agent) => {
            links::end(dispatcher, io, agent.0 as usize, "the agent does not take a connection")
        }
        Wanted::Outcome(flow, ticket, outcome) => ended(dispatcher, io, flow, ticket, outcome),
    }
}

/// Hands over the client's connection for an offered answer, whose first `skipped` bytes the client
/// is not to get.
pub(crate) fn offer(dispatcher: &mut Dispatcher, io: &mut Io, client: usize, skipped: u64) {
    let Some(state) = dispatcher.clients.get_mut(client) else { return };
    state.leaves_ns = Some(io.now_ns());
    let Some(exchange) = &state.exchange else { return };
    let (flow, ticket, agent) = (state.flow, exchange.ticket, AgentId(exchange.backend as u32));
    dispatcher.moved.insert(flow, client);
    with(dispatcher, io, |owner, now_ms, sink| {
        owner.offer(now_ms, agent, ticket, flow, skipped, sink)
    });
}

/// Takes the result of freezing a connection.
pub(crate) fn frozen(
    dispatcher: &mut Dispatcher,
    io: &mut Io,
    conn: ConnId,
    outcome: Result<Frozen, NotFrozen>,
) {
    let client = match dispatcher.peer(conn) {
        Peer::Client(client) => client,
        Peer::Probe(probe) => {
            dispatcher.set_peer(conn, Peer::Nobody);
            dispatcher.probes.try_remove(probe);
            if outcome.is_err() {
                // The flow's packets are held, and no reset leaves.
                io.abort(conn);
            }
            return;
        }
        _ => return,
    };
    let Some(state) = dispatcher.clients.get_mut(client) else { return };
    let flow = state.flow;
    match &outcome {
        Ok(_) => {
            state.place = Place::Away;
            if let Some(leaves_ns) = state.leaves_ns {
                dispatcher.metrics.freeze.record(io.now_ns().saturating_sub(leaves_ns));
            }
            dispatcher.set_peer(conn, Peer::Nobody);
        }
        Err(why) => {
            debug!(%why, client = %flow.peer, "an answer is relayed: its client's connection stays");
            state.place = Place::Here;
            let is_never = matches!(why, NotFrozen::Io(ErrorKind::PermissionDenied));
            if is_never && std::mem::take(&mut dispatcher.options.handover) == Handover::Auto {
                warn!(
                    "connections cannot be handed over, and all answers are relayed: that takes CAP_NET_ADMIN"
                );
            }
        }
    }
    with(dispatcher, io, |owner, now_ms, sink| owner.frozen(now_ms, flow, outcome, sink));
}

/// A connection has been restored.
pub(crate) fn restored(dispatcher: &mut Dispatcher, io: &mut Io, conn: ConnId) {
    match dispatcher.peer(conn) {
        Peer::Client(client) => settle(dispatcher, io, client, true),
        Peer::ToBeReset => {
            dispatcher.set_peer(conn, Peer::Nobody);
            io.abort(conn);
        }
        // The kernel has probed the client.
        Peer::Probe(_) => io.freeze(conn),
        Peer::Backend(_) | Peer::Nobody => {}
    }
}

/// Notes that an arriving connection was restored, or could not be.
pub(crate) fn settle(dispatcher: &mut Dispatcher, io: &mut Io, client: usize, is_in: bool) {
    let Some(state) = dispatcher.clients.get_mut(client) else { return };
    let flow = state.flow;
    state.place = if is_in { Place::Here } else { Place::Away };
    (state.writes, state.stalled_since_ns) = (0, io.now_ns());
    state.deadline_ns = io.now_ns() + dispatcher.options.answer_timeout_ns;
    if is_in {
        dispatcher.metrics.restore.record(io.now_ns().saturating_sub(state.arrives_ns));
        if let Some(leaves_ns) = state.leaves_ns.take() {
            dispatcher.metrics.absence.record(io.now_ns().saturating_sub(leaves_ns));
        }
    }
    with(dispatcher, io, |owner, _, sink| owner.restored(flow, is_in, sink));
}

/// A client's connection ended while it was about to leave.
pub(crate) fn client_gone(dispatcher: &mut Dispatcher, io: &mut Io, flow: Flow) {
    with(dispatcher, io, |owner, _, sink| owner.client_gone(flow, sink));
}

/// Handles an agent's message about connections. False if the message violates the protocol.
pub(crate) fn heard(
    dispatcher: &mut Dispatcher,
    io: &mut Io,
    index: usize,
    ticket: Ticket,
    message: &Message<'_>,
) -> bool {
    if let Message::Held { local, .. } = message
        && !dispatcher.options.serves(*local)
    {
        warn!(%local, "an agent has told of a connection to an address that clients of this dispatcher do not connect to");
        return false;
    }
    if *message == Message::Taken
        && let Some(client) =
            dispatcher.tickets.get(&ticket).and_then(|client| dispatcher.clients.get(*client))
        && let Some(leaves_ns) = client.leaves_ns
    {
        dispatcher.metrics.taking.record(io.now_ns().saturating_sub(leaves_ns));
    }
    let agent = AgentId(index as u32);
    with(dispatcher, io, |owner, now_ms, sink| owner.heard(now_ms, agent, ticket, message, sink))
        .is_ok()
}

/// A control connection is open.
pub(crate) fn control_up(
    dispatcher: &mut Dispatcher,
    io: &mut Io,
    index: usize,
    instance: shunt_handover::session::Instance,
) {
    let agent = AgentId(index as u32);
    with(dispatcher, io, |owner, now_ms, sink| owner.control_up(now_ms, agent, instance, sink));
}

/// A control connection is lost.
pub(crate) fn control_lost(dispatcher: &mut Dispatcher, io: &mut Io, index: usize) {
    let agent = AgentId(index as u32);
    with(dispatcher, io, |owner, now_ms, sink| owner.control_lost(now_ms, agent, sink));
}

/// Periodic work of the owner.
pub(crate) fn tick(dispatcher: &mut Dispatcher, io: &mut Io) {
    with(dispatcher, io, |owner, now_ms, sink| owner.tick(now_ms, sink));
}

/// Recalls all connections; each comes back once its answer is out.
pub(crate) fn recall_all(dispatcher: &mut Dispatcher, io: &mut Io) {
    let mut flows: Vec<Flow> = dispatcher.moved.keys().copied().collect();
    // A fixed order lets a simulation be replayed.
    flows.sort_unstable();
    for flow in flows {
        with(dispatcher, io, |owner, _, sink| owner.recall(flow, sink));
    }
}

/// A hand-over has ended.
fn ended(dispatcher: &mut Dispatcher, io: &mut Io, flow: Flow, ticket: Ticket, outcome: Outcome) {
    let Some(client) = dispatcher.moved.remove(&flow) else { return };
    debug!(client = %flow.peer, ticket = ticket.0, ?outcome, "a hand-over has ended");
    dispatcher.metrics.count(&outcome);
    match outcome {
        Outcome::Relay(_) => {
            if let Some(state) = dispatcher.clients.get_mut(client) {
                state.place = Place::Here;
            }
        }
        Outcome::Elsewhere => {
            failing::failed(dispatcher, io, client, 502, "the agent that had the answer was lost");
        }
        Outcome::Back { is_complete: true, .. } => answer::is_out(dispatcher, io, client),
        // This process does not know a request that an earlier process read.
        Outcome::Back { answer_sent: 0, .. }
            if dispatcher.clients.get(client).is_some_and(|state| state.exchange.is_none()) =>
        {
            reply::cut(dispatcher, io, client);
        }
        Outcome::Back { answer_sent: 0, .. } => {
            failing::failed(dispatcher, io, client, 502, "the server has broken off its answer");
        }
        Outcome::Back { answer_sent, .. } => resume::came_back(dispatcher, io, client, answer_sent),
        Outcome::Salvaged { answer_sent } => resume::came_back(dispatcher, io, client, answer_sent),
        Outcome::Gone(_) => {
            dispatcher.take_exchange(client);
            dispatcher.remove_client(client);
        }
    }
}

#[cfg(test)]
mod claimed;

#[cfg(test)]
mod tests {
    use shunt_handover::session::{Instance, OwnerId, SharedKey};
    use shunt_reactor::moving::Window;
    use shunt_reactor::sim::{Options, SECOND, World};

    use super::*;
    use crate::options::DispatchOptions;

    pub(super) fn options() -> DispatchOptions {
        DispatchOptions {
            listen: vec![([192, 0, 2, 1], 80).into()],
            clients: Clients::default(),
            backends: vec![([192, 0, 2, 10], 7000).into()],
            agent_tls: None,
            key: SharedKey::new(&[1; 20]).expect("it is long enough"),
            owner: OwnerId(1),
            instance: Instance(1),
            handover: Handover::Auto,
            steer: None,
            body_bytes_per_timeout: 256 * 30,
            body_bytes_max: 1 << 30,
            idle_timeout_ns: 60 * SECOND,
            head_timeout_ns: 10 * SECOND,
            body_timeout_ns: 30 * SECOND,
            answer_timeout_ns: 40 * SECOND,
            random: Box::new(|bytes| bytes.fill(1)),
        }
    }

    #[test]
    fn a_probe_is_known_until_it_is_out_of_the_loop_or_was_not_let_in() {
        let state = TcpState {
            local: ([192, 0, 2, 1], 80).into(),
            peer: ([198, 51, 100, 7], 5000).into(),
            send_sequence: 1,
            receive_sequence: 1,
            mss: 1448,
            timestamp: None,
            sack: true,
            window_scales: None,
            window: Window::default(),
        };
        let flow = Flow { local: state.local, peer: state.peer };
        let mut world = World::new(1, Options::calm());
        let host = world.add("dispatcher", Dispatcher::new(options()));
        let probe = |dispatcher: &mut Dispatcher, io: &mut Io| {
            carry_out(dispatcher, io, Wanted::Probe(flow, Frozen::without_queues(state)));
            with(dispatcher, io, |_, _, sink| sink.is_probing(flow))
        };
        assert!(world.with(host, probe));
        // No host here has such a connection.
        world.run_for(SECOND);
        let is_out = |dispatcher: &mut Dispatcher, io: &mut Io| {
            assert!(dispatcher.probes.is_empty());
            assert!(probe(dispatcher, io));
            let conn = io.restore(Frozen::without_queues(state));
            let other = dispatcher.probes.insert(flow);
            dispatcher.set_peer(conn, Peer::Probe(other));
            frozen(dispatcher, io, conn, Ok(Frozen::without_queues(state)));
            dispatcher.probes.len()
        };
        assert_eq!(world.with(host, is_out), 1, "one of two");
    }
}
