//! What an agent has: sessions, exchanges, connections to the server.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use shunt_handover::Flow;
use shunt_handover::agent::{Agent as Moves, AgentLimits, Close, SessionId};
use shunt_handover::limits::CREDIT_BYTES;
use shunt_handover::message::{Decoder, Encoder, Message, Ticket};
use shunt_handover::session::{AgentHandshake, Instance, OwnerId, Protocol};
use shunt_reactor::moving::{Frozen, TcpState};
use shunt_reactor::{ConnId, Peers};
use shunt_wire::http1::{BodyReader, Framing, HeadReader};
use slab::Slab;

use crate::kept::Answers;
use crate::limits;
use crate::link::Link;
use crate::metrics::Metrics;
use crate::options::AgentOptions;
use crate::own::{Anywhere, Own};
use crate::pace::Pace;
use crate::uploads::Uploads;

/// The agent as a service of an event loop.
#[derive(Debug)]
pub struct Agent {
    pub(crate) options: AgentOptions,
    peers: Peers<Peer>,
    pub(crate) sessions: Slab<Session>,
    pub(crate) exchanges: Slab<Exchange>,
    pub(crate) upstreams: Slab<Upstream>,
    /// Proxies' links to a CQL server.
    pub(crate) links: Slab<Link>,
    /// Large answers that left them.
    pub(crate) kept: Answers,
    /// Connections to the server with nothing to do; the last was used last.
    pub(crate) idle: Vec<usize>,
    /// Exchanges for which there is no connection to the server yet, in order: those whose request
    /// is here as a whole.
    pub(crate) waiting: VecDeque<usize>,
    /// Those whose request is not.
    pub(crate) uploads: Uploads,
    /// Bytes of what waits: as they were counted last, and what has come since; and how many there
    /// may be.
    pub(crate) waiting_bytes: usize,
    pub(crate) waiting_bytes_max: usize,
    /// Nothing new is taken, and the loop ends when what there is has ended.
    pub(crate) is_draining: bool,
    /// What is known of offers and connections.
    pub(crate) moves: Moves,
    pub(crate) own: Box<dyn Own>,
    /// Clients' connections, by a key, and the keys by their addresses.
    pub(crate) taken: Slab<Taken>,
    pub(crate) of_flow: HashMap<Flow, usize>,
    /// Sessions by a name that is never used again.
    pub(crate) session_keys: HashMap<SessionId, usize>,
    pub(crate) next_session: u64,
    /// Of connections that have left and that their owners have not said to have: when the last
    /// byte of the answer was out.
    pub(crate) returning: HashMap<Flow, u64>,
    /// What is to be done with these connections.
    pub(crate) wanted: VecDeque<Wanted>,
    /// Clients that are to hear from others that their connections are nobody's.
    pub(crate) asked: VecDeque<Asked>,
    /// When entries past their leases were removed last.
    pub(crate) tidied_ns: u64,
    /// It was said in the log that connections do not come in.
    pub(crate) is_told: bool,
    /// Sessions that are to end: their owners have others.
    pub(crate) ending: Vec<SessionId>,
    pub(crate) metrics: Arc<Metrics>,
}

/// A client that is asked something, and how often it was (`ask.rs`).
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) state: TcpState,
    /// When the connection came, with this state.
    pub(crate) since_ns: u64,
    pub(crate) due_ns: u64,
    pub(crate) asks: u8,
}

/// A client's connection that is here, on its way in, or on its way out.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) conn: ConnId,
    pub(crate) flow: Flow,
    /// As it came.
    pub(crate) state: TcpState,
    /// The answer that goes out on it, until it is out.
    pub(crate) exchange: Option<usize>,
    /// Bytes of the answer that were put in.
    pub(crate) sent: u64,
    /// Of these, those that count as kept until it leaves.
    pub(crate) kept_bytes: usize,
    pub(crate) is_out: bool,
    /// Its answer broke off, after so many bytes.
    pub(crate) is_broken_off: bool,
    /// It is put in, and not there yet.
    pub(crate) is_arriving: bool,
    /// The client has no more to say.
    pub(crate) has_ended: bool,
    /// Writes to it when they were looked at last.
    pub(crate) writes: u64,
    /// When it came.
    pub(crate) since_ns: u64,
    /// There is one once the answer is out.
    pub(crate) tail: Option<Tail>,
    /// When the answer was offered that it came for.
    pub(crate) offered_ns: Option<u64>,
    /// When that was asked for, until its first byte is put in; of CQL's that is not known here.
    pub(crate) asked_ns: Option<u64>,
    /// When the kernel had taken all that was put in.
    pub(crate) out_ns: Option<u64>,
    /// When it was first to be taken out.
    pub(crate) leaves_ns: Option<u64>,
}

/// The end of an answer that the kernel has, and the client has not acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail {
    /// How much it was when it was looked at last.
    pub(crate) bytes: usize,
    /// When it is looked at again.
    pub(crate) look_ns: u64,
}

/// What is to be done with connections and answers.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// Put this in, for the answer that was offered.
    Restore(Flow, Box<Frozen>, Option<(SessionId, Ticket)>),
    Freeze(Flow),
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
    /// The CQL server's end of one.
    Server(usize),
    /// A client's connection.
    Taken(usize),
    /// The same, which is to go without a word.
    ToBeDropped,
    /// A connection that is put in and taken out again, so that its client says something.
    Asking(Flow),
}

/// A control connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    /// Whose it is, once that is shown and it is a control connection.
    pub(crate) owner: Option<OwnerId>,
    pub(crate) conn: ConnId,
    pub(crate) phase: Phase,
    /// When something came last.
    pub(crate) heard_ns: u64,
    /// Its exchanges.
    pub(crate) exchanges: HashMap<Ticket, usize>,
    /// Too much is written and not taken: no answers are read for it.
    pub(crate) is_full: bool,
    /// Not if it came when the agent was ending: it is there for connections that go back.
    pub(crate) takes_requests: bool,
}

/// How far a control connection is.
#[derive(Debug)]
pub(crate) enum Phase {
    /// The owner has to show that it has the key, by then.
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
    /// None has this key any more, if its owner was lost.
    pub(crate) session: usize,
    pub(crate) session_id: SessionId,
    /// Its owner has given a connection for the answer.
    pub(crate) is_taken: bool,
    /// On which it goes out.
    pub(crate) direct: Option<usize>,
    pub(crate) ticket: Ticket,
    pub(crate) upstream: Option<usize>,
    /// Of the request: what the server has not been sent, or might have to be sent again.
    pub(crate) request: Vec<u8>,
    pub(crate) request_is_complete: bool,
    /// It may be sent again on another connection, and `request` is all of it.
    pub(crate) is_repeatable: bool,
    /// The request is HEAD.
    pub(crate) to_head: bool,
    /// Bytes of the request's body that its sender may still send.
    pub(crate) request_credit: u64,
    /// Those it has sent since it was given credit last.
    pub(crate) request_taken: u32,
    /// Interim answers so far.
    pub(crate) interim: u32,
    /// Bytes of the answer that may be sent.
    pub(crate) credit: u64,
    pub(crate) pace: Pace,
    pub(crate) answer: Answer,
    /// When it came, and when its answer was offered.
    pub(crate) asked_ns: u64,
    pub(crate) offered_ns: Option<u64>,
    /// By then something has to happen.
    pub(crate) deadline_ns: u64,
}

/// How far an answer is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stage {
    /// There is no head yet.
    Awaited,
    /// There is a head, and how large the body will be is not known.
    Held,
    /// It was offered.
    Offered,
    /// It is being sent.
    Relayed,
    /// It goes out on the client's own connection.
    Direct,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) stage: Stage,
    pub(crate) head: Vec<u8>,
    pub(crate) framing: Framing,
    pub(crate) etag: Vec<u8>,
    /// Bytes of the body that were read and not sent.
    pub(crate) kept: Vec<u8>,
    /// There are no more than these.
    pub(crate) is_complete: bool,
}

/// A connection to the server.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) conn: ConnId,
    pub(crate) exchange: Option<usize>,
    pub(crate) reader: HeadReader,
    /// Of the answer that is being read, once there is a head.
    pub(crate) body: Option<BodyReader>,
    /// It goes on after this answer.
    pub(crate) keep_alive: bool,
    /// Answers so far.
    pub(crate) answers: u64,
    pub(crate) idle_since_ns: u64,
    /// Writes to it when they were looked at last.
    pub(crate) writes: u64,
}

impl Agent {
    /// An agent with nothing to do.
    pub fn new(mut options: AgentOptions) -> Self {
        let mut limits = AgentLimits::default();
        if options.protocol == Protocol::Cql {
            // Whoever's bytes go on moving is tried again soon, and so more often.
            (limits.idle_ms, limits.freezes) = (crate::limits::CQL_IDLE_MS, u8::MAX);
        }
        let moves = Moves::new(limits, options.vips.iter().copied());
        let own = options.own.take().unwrap_or_else(|| Box::new(Anywhere));
        Self {
            options,
            peers: Peers::default(),
            sessions: Slab::new(),
            exchanges: Slab::new(),
            upstreams: Slab::new(),
            links: Slab::new(),
            kept: Answers::default(),
            idle: Vec::new(),
            waiting: VecDeque::new(),
            uploads: Uploads::default(),
            waiting_bytes: 0,
            waiting_bytes_max: crate::limits::WAITING_BYTES_MAX,
            is_draining: false,
            moves,
            own,
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
        }
    }

    /// Clients' connections that are here, or on their way.
    pub fn taken(&self) -> usize {
        self.moves.flows()
    }

    /// Control connections of owners.
    pub fn control_connections(&self) -> Vec<ConnId> {
        let of_owners = self.sessions.iter().filter(|(_, session)| session.owner.is_some());
        of_owners.map(|(_, session)| session.conn).collect()
    }

    /// What it has done so far, as it counts on.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// Bytes of large CQL answers that are here.
    pub fn kept_bytes(&self) -> usize {
        self.kept.bytes()
    }

    /// Requests that wait for a connection to the server may have so many bytes together.
    pub fn set_waiting_bytes_max(&mut self, bytes: usize) {
        self.waiting_bytes_max = bytes;
    }

    /// Requests that are being carried out.
    pub fn exchanges(&self) -> usize {
        self.exchanges.len()
    }

    /// Connections to the server.
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
    /// The server has until then to go on. What is held or offered has a time of its own, which
    /// neither it nor the client makes longer.
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
