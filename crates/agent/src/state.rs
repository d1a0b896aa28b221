//! State of an agent: sessions, exchanges, connections to the server.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use shunt_handover::Flow;
use shunt_handover::agent::{Agent as Moves, AgentLimits, Close, SessionId};
use shunt_handover::limits::CREDIT_BYTES;
use shunt_handover::message::{Decoder, Encoder, Message, Ticket};
use shunt_handover::session::{AgentHandshake, Instance, OwnerId, Protocol};
use shunt_handover::turns::{ClientKey, Turns};
use shunt_reactor::moving::{Frozen, TcpState};
use shunt_reactor::{ClientHost, ConnId, HostShares, Peers};
use shunt_wire::http1::{BodyReader, Framing, HeadReader};
use slab::Slab;

use crate::held::Held;
use crate::limits;
use crate::line::Line;
use crate::link::Link;
use crate::log_limits::LogLimits;
use crate::metrics::Metrics;
use crate::offers::Answers;
use crate::options::AgentOptions;
use crate::pace::Pace;
use crate::packet_filter::{Anywhere, PacketFilter};
use crate::uploads::Uploads;

/// The agent as a service of an event loop.
#[derive(Debug)]
pub struct Agent {
    pub(crate) options: AgentOptions,
    peers: Peers<Peer>,
    pub(crate) sessions: Slab<Session>,
    /// Sessions within their handshakes.
    pub(crate) handshakes: HostShares,
    pub(crate) exchanges: Slab<Exchange>,
    /// Places of exchanges, by the hosts of their clients.
    pub(crate) places: HostShares<ClientKey>,
    pub(crate) upstreams: Slab<Upstream>,
    /// Connections to the server that exchanges have.
    pub(crate) held: Held,
    /// Proxies' links to a CQL server.
    pub(crate) links: Slab<Link>,
    /// Large answers taken out of links.
    pub(crate) kept: Answers,
    /// Idle connections to the server, the most recently used last.
    pub(crate) idle: Vec<usize>,
    /// Exchanges with complete requests that wait for a connection to the server.
    pub(crate) waiting: Line,
    /// Exchanges with incomplete requests.
    pub(crate) uploads: Uploads,
    /// Clients that are kept to their shares of the connections, and until when.
    pub(crate) limited: HashMap<ClientKey, u64>,
    /// Bytes of waiting requests (the last count, plus what came since), and their limit.
    pub(crate) waiting_bytes: usize,
    pub(crate) waiting_bytes_max: usize,
    /// The agent takes no new work, and the loop ends with the last of the old.
    pub(crate) is_draining: bool,
    /// Offers and clients' connections, as the hand-over protocol sees them.
    pub(crate) moves: Moves,
    pub(crate) packet_filter: Box<dyn PacketFilter>,
    /// Clients' connections by key, and the keys by their addresses.
    pub(crate) taken: Slab<Taken>,
    pub(crate) of_flow: HashMap<Flow, usize>,
    /// Sessions by an id that is never reused.
    pub(crate) session_keys: HashMap<SessionId, usize>,
    pub(crate) next_session: u64,
    /// Connections given back and not yet confirmed: when the last byte of the answer was out.
    pub(crate) returning: HashMap<Flow, u64>,
    /// Work queued for these connections.
    pub(crate) wanted: VecDeque<Wanted>,
    /// Clients to be probed so that they learn of their connections' end.
    pub(crate) asked: VecDeque<Asked>,
    /// Time at which entries past their leases were last removed.
    pub(crate) tidied_ns: u64,
    /// The log already says that connections cannot be restored.
    pub(crate) is_told: bool,
    /// Sessions to end because their owners have newer ones.
    pub(crate) ending: Vec<SessionId>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) log_limits: LogLimits,
}

/// A client to be probed, and how often it was (`ask.rs`).
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) state: TcpState,
    /// Time at which the connection came, with this state.
    pub(crate) since_ns: u64,
    pub(crate) due_ns: u64,
    pub(crate) asks: u8,
}

/// A client's connection that is here, on its way in, or on its way out.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) conn: ConnId,
    pub(crate) flow: Flow,
    /// State of the connection on arrival.
    pub(crate) state: TcpState,
    /// Exchange whose answer goes out on the connection, until it is out.
    pub(crate) exchange: Option<usize>,
    /// Bytes of the answer put into the connection.
    pub(crate) sent: u64,
    /// Bytes of these that count as kept until the connection leaves.
    pub(crate) kept_bytes: usize,
    pub(crate) is_out: bool,
    /// The answer broke off after `sent` bytes.
    pub(crate) is_broken_off: bool,
    /// The kernel has not yet restored the connection.
    pub(crate) is_arriving: bool,
    /// The client has ended its direction.
    pub(crate) has_ended: bool,
    /// This side's direction is ended as well.
    pub(crate) is_ending: bool,
    /// Writes to the connection at the last check.
    pub(crate) writes: u64,
    /// Time of arrival.
    pub(crate) since_ns: u64,
    /// Unacknowledged end of the answer, or of the connection; present once the answer is out.
    pub(crate) tail: Option<Tail>,
    /// Time at which the answer was offered.
    pub(crate) offered_ns: Option<u64>,
    /// Time of the request, until the answer's first byte is put in; unknown for CQL.
    pub(crate) asked_ns: Option<u64>,
    /// Time at which the kernel had taken the whole answer.
    pub(crate) out_ns: Option<u64>,
    /// Time of the first attempt to freeze the connection.
    pub(crate) leaves_ns: Option<u64>,
}

/// The end of an answer that the kernel has and the client has not acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail {
    /// Unacknowledged bytes at the last check.
    pub(crate) bytes: usize,
    /// Time of the next check.
    pub(crate) look_ns: u64,
}

/// Work queued for connections and answers.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// Restore this connection, for the answer that was offered.
    Restore(Flow, Box<Frozen>, Option<(SessionId, Ticket)>),
    Freeze(Flow),
    /// End this side's direction.
    End(Flow),
    /// Send the answer, from this byte on.
    Start(Flow, (SessionId, Ticket), u64),
    Relay(SessionId, Ticket),
    DropAnswer(SessionId, Ticket),
    Close(Flow, Close),
    Settled(Flow),
    Send(SessionId, Ticket, Message<'static>),
    DropSession(SessionId),
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Peer {
    #[default]
    Nobody,
    Session(usize),
    Upstream(usize),
    /// The proxy's end of a link.
    Link(usize),
    /// The CQL server's end of a link.
    Server(usize),
    /// A client's connection.
    Taken(usize),
    /// A client's connection that is to go without a packet.
    ToBeDropped,
    /// A connection restored only to make its client send a packet.
    Asking(Flow),
}

/// A control connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    /// The owner, once it has proved that it has the key and uses this as a control connection.
    pub(crate) owner: Option<OwnerId>,
    pub(crate) conn: ConnId,
    pub(crate) host: ClientHost,
    pub(crate) phase: Phase,
    /// Time of the last input.
    pub(crate) heard_ns: u64,
    /// Exchanges by ticket.
    pub(crate) exchanges: HashMap<Ticket, usize>,
    /// Turns of its exchanges while too much output is pending.
    pub(crate) turns: Turns,
    /// False if the session began while the agent was draining: it then only takes connections
    /// back.
    pub(crate) takes_requests: bool,
}

/// Phase of a control connection.
#[derive(Debug)]
pub(crate) enum Phase {
    /// The owner must prove by `until_ns` that it has the key.
    Shaking {
        handshake: Box<AgentHandshake>,
        until_ns: u64,
    },
    Open(Box<Open>),
}

/// Both ends of the codec.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) owner: OwnerId,
    pub(crate) instance: Instance,
    pub(crate) encoder: Encoder,
    pub(crate) decoder: Decoder,
}

/// A request and its answer.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Key of the session; `usize::MAX` once the owner is lost.
    pub(crate) session: usize,
    pub(crate) session_id: SessionId,
    /// The owner has given a connection for the answer.
    pub(crate) is_taken: bool,
    /// Key of the client's connection on which the answer goes out.
    pub(crate) direct: Option<usize>,
    pub(crate) ticket: Ticket,
    /// The client of the request, if the head names it.
    pub(crate) client: ClientKey,
    pub(crate) upstream: Option<usize>,
    /// Bytes of the request still unsent, or kept to be sent again.
    pub(crate) request: Vec<u8>,
    pub(crate) request_is_complete: bool,
    /// The request may be repeated on another connection; `request` is then all of it.
    pub(crate) is_repeatable: bool,
    /// The request is HEAD.
    pub(crate) to_head: bool,
    /// Bytes of the request's body that its sender may still send.
    pub(crate) request_credit: u64,
    /// Bytes of the body received since the last credit.
    pub(crate) request_taken: u32,
    /// Interim answers so far.
    pub(crate) interim: u32,
    /// Bytes of the answer that may be sent.
    pub(crate) credit: u64,
    pub(crate) pace: Pace,
    pub(crate) answer: Answer,
    /// Time of the request, and of the offer of its answer.
    pub(crate) asked_ns: u64,
    pub(crate) offered_ns: Option<u64>,
    /// Time at which the exchange fails unless it makes progress.
    pub(crate) deadline_ns: u64,
}

/// Stage of an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stage {
    /// The head is incomplete.
    Awaited,
    /// The head is complete, and the size of the body is unknown.
    Held,
    /// The answer is offered.
    Offered,
    /// The answer is being relayed.
    Relayed,
    /// The answer goes out on the client's own connection.
    Direct,
}

/// An answer and its progress.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) stage: Stage,
    pub(crate) head: Vec<u8>,
    pub(crate) framing: Framing,
    pub(crate) etag: Vec<u8>,
    /// Bytes of the body that were read and not sent.
    pub(crate) kept: Vec<u8>,
    /// The whole body was read.
    pub(crate) is_complete: bool,
}

/// A connection to the server.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) conn: ConnId,
    pub(crate) exchange: Option<usize>,
    pub(crate) reader: HeadReader,
    /// Reader of the body, once the head is complete.
    pub(crate) body: Option<BodyReader>,
    /// The connection can be reused after this answer.
    pub(crate) keep_alive: bool,
    /// Answers so far.
    pub(crate) answers: u64,
    pub(crate) idle_since_ns: u64,
    /// Writes to the connection at the last check.
    pub(crate) writes: u64,
}

impl Agent {
    /// Creates an idle agent.
    pub fn new(mut options: AgentOptions) -> Self {
        let mut limits = AgentLimits::default();
        if options.protocol == Protocol::Cql {
            // A connection whose bytes are still moving is retried soon, and so more often.
            (limits.idle_ms, limits.freezes) = (crate::limits::CQL_IDLE_MS, u8::MAX);
        }
        let moves = Moves::new(limits, options.vips.iter().copied());
        let packet_filter = options.packet_filter.take().unwrap_or_else(|| Box::new(Anywhere));
        Self {
            options,
            peers: Peers::default(),
            sessions: Slab::new(),
            handshakes: HostShares::default(),
            exchanges: Slab::new(),
            places: HostShares::default(),
            upstreams: Slab::new(),
            held: Held::default(),
            links: Slab::new(),
            kept: Answers::default(),
            idle: Vec::new(),
            waiting: Line::default(),
            uploads: Uploads::default(),
            limited: HashMap::new(),
            waiting_bytes: 0,
            waiting_bytes_max: crate::limits::WAITING_BYTES_MAX,
            is_draining: false,
            moves,
            packet_filter,
            taken: Slab::new(),
            of_flow: HashMap::new(),
            session_keys: HashMap::new(),
            next_session: 0,
            returning: HashMap::new(),
            wanted: VecDeque::new(),
            ending: Vec::new(),
            asked: VecDeque::new(),
            tidied_ns: 0,
            is_told: false,
            metrics: Arc::default(),
            log_limits: LogLimits::default(),
        }
    }

    /// Number of clients' connections that are here or on their way.
    pub fn taken(&self) -> usize {
        self.moves.flows()
    }

    /// Control connections of owners.
    pub fn control_connections(&self) -> Vec<ConnId> {
        let of_owners = self.sessions.iter().filter(|(_, session)| session.owner.is_some());
        of_owners.map(|(_, session)| session.conn).collect()
    }

    /// The agent's metrics.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// Bytes of large CQL answers held here.
    pub fn kept_bytes(&self) -> usize {
        self.kept.bytes()
    }

    /// Sets the limit on the bytes of all requests that wait for a connection to the server.
    pub fn set_waiting_bytes_max(&mut self, bytes: usize) {
        self.waiting_bytes_max = bytes;
    }

    /// Number of requests under way.
    pub fn exchanges(&self) -> usize {
        self.exchanges.len()
    }

    /// Number of connections to the server.
    pub fn upstream_connections(&self) -> usize {
        self.upstreams.len()
    }

    pub(crate) fn peer(&self, conn: ConnId) -> Peer {
        self.peers.of(conn)
    }

    pub(crate) fn set_peer(&mut self, conn: ConnId, peer: Peer) {
        self.peers.set(conn, peer);
    }
}

impl Exchange {
    /// Gives the server until `deadline_ns` to go on. A held or offered answer has its own
    /// deadline, which neither the server nor the client can extend.
    pub(crate) fn wait_until(&mut self, deadline_ns: u64) {
        if !matches!(self.answer.stage, Stage::Held | Stage::Offered) {
            self.deadline_ns = deadline_ns;
        }
    }

    pub(crate) fn new(
        (session, session_id): (usize, SessionId),
        ticket: Ticket,
        (asked_ns, deadline_ns): (u64, u64),
    ) -> Self {
        Self {
            session,
            session_id,
            is_taken: false,
            direct: None,
            ticket,
            client: None,
            upstream: None,
            request: Vec::new(),
            request_is_complete: false,
            is_repeatable: false,
            to_head: false,
            request_credit: u64::from(CREDIT_BYTES),
            request_taken: 0,
            interim: 0,
            credit: u64::from(CREDIT_BYTES),
            pace: Pace::default(),
            answer: Answer {
                stage: Stage::Awaited,
                head: Vec::new(),
                framing: Framing::None,
                etag: Vec::new(),
                kept: Vec::new(),
                is_complete: false,
            },
            asked_ns,
            offered_ns: None,
            deadline_ns,
        }
    }
}

impl Upstream {
    pub(crate) fn new(conn: ConnId) -> Self {
        let reader = HeadReader::new(limits::ANSWER_HEAD);
        Self {
            conn,
            exchange: None,
            reader,
            body: None,
            keep_alive: false,
            answers: 0,
            idle_since_ns: 0,
            writes: 0,
        }
    }
}
