//! State of a dispatcher: clients with their exchanges, and links to the agents.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use shunt_admin::HostConnection;
use shunt_handover::message::{Decoder, Encoder, Message, Ticket};
use shunt_handover::outage::Reasons;
use shunt_handover::owner::{Owner, OwnerLimits};
use shunt_handover::session::OwnerHandshake;
use shunt_handover::turns::{ClientKey, Turns};
use shunt_handover::{Anywhere, Flow, Steer};
use shunt_reactor::{ClientHost, ConnId, HostShares, Io, Peers};
use shunt_wire::http1::{BodyReader, HeadReader, Version};
use slab::Slab;

use crate::limits;
use crate::metrics::Metrics;
use crate::options::DispatchOptions;
use crate::rest::Rest;
use crate::weight::Weight;

/// The dispatcher as a service of an event loop.
#[derive(Debug)]
pub struct Dispatcher {
    pub(crate) options: DispatchOptions,
    peers: Peers<Peer>,
    pub(crate) clients: Slab<Client>,
    /// Agents in the order of the options; the first is the primary.
    pub(crate) backends: Vec<Backend>,
    /// Client whose exchange a ticket names.
    pub(crate) tickets: HashMap<Ticket, usize>,
    next_ticket: u64,
    /// Start of the next search for the least loaded backend, so that equals take turns.
    pub(crate) next_backend: usize,
    /// The dispatcher takes no new work, and the loop ends with the last of the old.
    pub(crate) is_draining: bool,
    pub(crate) metrics: Arc<Metrics>,
    /// Hand-over state of connections that are with agents, or on their way.
    pub(crate) owner: Owner,
    pub(crate) steer: Box<dyn Steer>,
    /// Clients of these connections.
    pub(crate) moved: HashMap<Flow, usize>,
    /// Flows that are in the loop as [`Peer::Probe`].
    pub(crate) probes: Slab<Flow>,
    /// Keys of all clients by flow.
    pub(crate) of_flow: HashMap<Flow, usize>,
    pub(crate) weight: Weight,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Peer {
    #[default]
    Nobody,
    Client(usize),
    Backend(usize),
    /// A connection that no process has, restored to be reset.
    ToBeReset,
    /// A connection whose agent is lost, restored and frozen so that its client reveals its state.
    Probe(usize),
}

/// Place of a client's connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    Here,
    /// The loop freezes the connection at the end of this turn.
    Leaving,
    /// With an agent, or nowhere.
    Away,
    /// The loop is restoring the connection.
    Arriving,
}

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Client {
    /// Valid while the connection is here.
    pub(crate) conn: ConnId,
    pub(crate) flow: Flow,
    pub(crate) place: Place,
    pub(crate) address: IpAddr,
    /// The connection among those of its host, once it is in the table of clients.
    pub(crate) host: Option<HostConnection>,
    pub(crate) reader: HeadReader,
    /// The head of a request has begun.
    pub(crate) is_in_head: bool,
    /// Time by which the client must send, or the answer begin.
    pub(crate) deadline_ns: u64,
    pub(crate) exchange: Option<Exchange>,
    /// The connection closes once its output has been taken.
    pub(crate) is_closing: bool,
    /// Writes to the connection at the last check, and since when pending output has not moved.
    pub(crate) writes: u64,
    pub(crate) stalled_since_ns: u64,
    /// Time of the decision to hand the connection over, until it is back; `None` if another
    /// process made it.
    pub(crate) leaves_ns: Option<u64>,
    /// Time at which the loop began to restore it.
    pub(crate) arrives_ns: u64,
}

/// A request that is being carried out.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) ticket: Ticket,
    pub(crate) backend: usize,
    /// Time at which the backend got the request; `None` once it has begun to answer.
    pub(crate) sent_ns: Option<u64>,
    /// Head as the backend gets it; kept while the request, or one for the rest of its answer, may
    /// go to another.
    pub(crate) head: Vec<u8>,
    pub(crate) is_read: bool,
    pub(crate) is_idempotent: bool,
    pub(crate) to_head: bool,
    pub(crate) version: Version,
    /// The client wants the connection to stay open.
    pub(crate) keep_alive: bool,
    /// Reader of the request's body, until it is complete.
    pub(crate) body: Option<BodyReader>,
    /// Bytes of the body so far.
    pub(crate) body_bytes: u64,
    /// Bytes of the body since its deadline was last set.
    pub(crate) progress_bytes: u64,
    /// Bytes of the body that the agent still accepts.
    pub(crate) request_credit: u64,
    /// The request was sent to a second backend.
    pub(crate) is_repeated: bool,
    pub(crate) answer: Option<Answer>,
    /// Interim answers of the backend.
    pub(crate) interim: u32,
    /// Part of the answer that another backend can be asked for if it breaks off.
    pub(crate) rest: Option<Box<Rest>>,
}

/// An answer whose head has gone to the client.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Bytes still to come, if the head says how many.
    pub(crate) left: Option<u64>,
    /// Bytes received for which the agent has no new credit yet.
    pub(crate) uncredited: u32,
    /// The client's connection stays open after the answer.
    pub(crate) goes_on: bool,
}

/// An agent.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    pub(crate) link: Link,
    /// Requests that the agent carries out for this loop.
    pub(crate) in_flight: HostShares<ClientKey>,
    /// Delay after the next loss or failed connect.
    pub(crate) back_off_ns: u64,
    /// Time of the agent's last message, and of the last ping to it.
    pub(crate) heard_ns: u64,
    pub(crate) pinged_ns: u64,
    /// Turns of requests with bodies while too much output is pending.
    pub(crate) turns: Turns,
    /// Reasons for which the agent cannot be reached.
    pub(crate) reasons: Reasons,
}

/// State of a control connection.
#[derive(Debug)]
pub(crate) enum Link {
    /// No connection; the next try is due at `until_ns`.
    Down {
        until_ns: u64,
    },
    /// Connecting, or proving the key to each other, until `until_ns`.
    Opening {
        conn: ConnId,
        handshake: Box<OwnerHandshake>,
        until_ns: u64,
        /// True if the agent has sent something.
        is_answered: bool,
    },
    Open(Box<Open>),
}

/// A control connection on which both sides have proved that they have the key.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) conn: ConnId,
    pub(crate) encoder: Encoder,
    pub(crate) decoder: Decoder,
    /// Time of the end of the handshake.
    pub(crate) since_ns: u64,
}

impl Dispatcher {
    /// Creates a dispatcher that has not connected to its agents.
    pub fn new(mut options: DispatchOptions) -> Self {
        let mut first = [0; 8];
        (options.random)(&mut first);
        let backends: Vec<Backend> =
            options.backends.iter().map(|address| Backend::new(*address)).collect();
        let metrics = Arc::new(Metrics::new(backends.len()));
        let owner = Owner::new(OwnerLimits::default(), options.instance);
        let steer = options.steer.take().unwrap_or_else(|| Box::new(Anywhere));
        Self {
            options,
            peers: Peers::default(),
            clients: Slab::new(),
            backends,
            tickets: HashMap::new(),
            // Starting below 2^63 leaves room to count.
            next_ticket: u64::from_be_bytes(first) >> 1,
            next_backend: 0,
            is_draining: false,
            metrics,
            owner,
            steer,
            moved: HashMap::new(),
            probes: Slab::new(),
            of_flow: HashMap::new(),
            weight: Weight::default(),
        }
    }

    /// Number of clients' connections that are with agents, or on their way.
    pub fn moved(&self) -> usize {
        self.owner.flows()
    }

    /// The dispatcher's metrics.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// Number of backends that can be sent requests.
    pub fn backends_up(&self) -> usize {
        self.backends.iter().filter(|backend| backend.is_up()).count()
    }

    /// Number of requests under way.
    pub fn exchanges(&self) -> usize {
        self.tickets.len()
    }

    pub(crate) fn peer(&self, conn: ConnId) -> Peer {
        self.peers.of(conn)
    }

    pub(crate) fn set_peer(&mut self, conn: ConnId, peer: Peer) {
        self.peers.set(conn, peer);
    }

    pub(crate) fn insert_client(&mut self, mut client: Client) -> usize {
        let flow = client.flow;
        client.host = Some(self.metrics.hosts.connect(client.address));
        let key = self.clients.insert(client);
        self.of_flow.insert(flow, key);
        self.options.clients.came(flow);
        key
    }

    pub(crate) fn remove_client(&mut self, key: usize) -> Option<Client> {
        let state = self.clients.try_remove(key)?;
        self.options.clients.left(state.flow);
        // A newer connection of these addresses may have replaced the entry.
        if self.of_flow.get(&state.flow) == Some(&key) {
            self.of_flow.remove(&state.flow);
        }
        self.set_peer(state.conn, Peer::Nobody);
        Some(state)
    }

    pub(crate) fn ticket(&mut self) -> Ticket {
        self.next_ticket = self.next_ticket.wrapping_add(1);
        Ticket(self.next_ticket)
    }

    /// Reads the bodies that wait for room on the connection to an agent, in order, as far as it
    /// has room.
    pub(crate) fn serve(&mut self, io: &mut Io, index: usize) {
        let backend = &mut self.backends[index];
        loop {
            let free = limits::LINK_BACKLOG_BYTES_MAX.saturating_sub(backend.backlog(io));
            let Some(ticket) = backend.turns.next(free as u64) else { return };
            let client = self.tickets.get(&ticket).and_then(|key| self.clients.get(*key));
            if let Some(client) = client.filter(|client| client.place == Place::Here) {
                io.resume_reading(client.conn);
            }
        }
    }

    /// Removes a client's exchange, which has ended or failed.
    pub(crate) fn take_exchange(&mut self, client: usize) -> Option<Exchange> {
        let state = self.clients.get_mut(client)?;
        let (exchange, client) = (state.exchange.take()?, state.key());
        self.tickets.remove(&exchange.ticket);
        let backend = &mut self.backends[exchange.backend];
        backend.turns.forget(exchange.ticket);
        backend.in_flight.remove(client);
        Some(exchange)
    }
}

impl Client {
    /// The host to which the client's requests count.
    pub(crate) fn key(&self) -> ClientKey {
        Some(ClientHost::counted(self.address))
    }

    pub(crate) fn new(conn: ConnId, flow: Flow, now_ns: u64, deadline_ns: u64) -> Self {
        let (address, place) = (flow.peer.ip().to_canonical(), Place::Here);
        let reader = HeadReader::new(limits::REQUEST_HEAD);
        let (is_in_head, is_closing, exchange, writes, stalled_since_ns) =
            (false, false, None, 0, now_ns);
        Self {
            conn,
            flow,
            place,
            address,
            host: None,
            reader,
            is_in_head,
            deadline_ns,
            exchange,
            is_closing,
            writes,
            stalled_since_ns,
            leaves_ns: None,
            arrives_ns: now_ns,
        }
    }
}

impl Backend {
    fn new(address: SocketAddr) -> Self {
        Self {
            address,
            link: Link::Down { until_ns: 0 },
            in_flight: HostShares::default(),
            back_off_ns: limits::BACK_OFF_NS_MIN,
            heard_ns: 0,
            pinged_ns: 0,
            turns: Turns::default(),
            reasons: Reasons::default(),
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.link, Link::Open(_))
    }

    /// Bytes written to the agent that the kernel has not taken.
    pub(crate) fn backlog(&self, io: &Io) -> usize {
        if let Link::Open(open) = &self.link { io.backlog(open.conn) } else { 0 }
    }

    pub(crate) fn send(&mut self, io: &mut Io, ticket: Ticket, message: &Message<'_>) {
        let Link::Open(open) = &mut self.link else { return };
        if let Err(error) = open.encoder.message(ticket, message, io.output(open.conn)) {
            tracing::error!(%error, "a message could not be written");
            debug_assert!(false, "limits of heads fit messages: {error}");
        }
    }

    /// Sends bytes of a request's body.
    pub(crate) fn send_body(&mut self, io: &mut Io, ticket: Ticket, bytes: &[u8]) {
        let Link::Open(open) = &mut self.link else { return };
        open.encoder.body(ticket, bytes, io.output(open.conn));
        self.turns.sent(ticket, bytes.len() as u64);
        if io.backlog(open.conn) > limits::LINK_BACKLOG_BYTES_MAX && self.turns.fill() {
            io.notify_drained(open.conn, limits::LINK_BACKLOG_BYTES_LOW);
        }
    }
}
