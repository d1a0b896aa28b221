//! State of the world: a client, three hosts, the network between them, and the processes.

use std::collections::{BTreeMap, VecDeque};

use crate::Flow;
use crate::agent::{Agent, AgentLimits, SessionId};
use crate::message::{Message, Ticket};
use crate::owner::{Owner, OwnerLimits, Seen};
use crate::session::Instance;
use crate::weakened::Step;
use shunt_reactor::moving::{Frozen, TcpState, Window};

/// The owner's host; the agents' are 1 and 2.
pub(super) const OWNER: usize = 0;
/// Target of a held connection's packets.
pub(super) const NOWHERE: usize = 3;
/// Packets of one kind that are under way at a time.
pub(super) const PACKETS_MAX: usize = 2;

pub(super) fn flow() -> Flow {
    Flow { local: "192.0.2.1:80".parse().unwrap(), peer: "198.51.100.7:40000".parse().unwrap() }
}

/// Bounds on a history, and the steps left out.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Bounds {
    pub(super) requests: u8,
    /// Bytes of each answer.
    pub(super) answer: u8,
    /// The client may send a request before it has the previous answer.
    pub(super) pipelined: bool,
    /// Control connections that break.
    pub(super) breaks: u8,
    /// Processes that are killed.
    pub(super) kills: u8,
    /// Restores and freezes that fail.
    pub(super) failures: u8,
    /// Deadlines that pass before all other events have happened.
    pub(super) ticks: u8,
    /// Packets that are lost for good.
    pub(super) losses: u8,
    /// All agents give the same answer except for the first byte, like servers that have the same
    /// file: another agent may continue it.
    pub(super) alike: bool,
    /// The client sends another request just when its connection is restored at the owner's, or
    /// after.
    pub(super) asks_late: bool,
    pub(super) left_out: Option<Step>,
    /// The mover does not check again whether the bytes have moved.
    pub(super) looks_once: bool,
    /// After each `TAKE` the owner sends `FETCH` or `CANCEL` for the same offer, which no correct
    /// owner does.
    pub(super) says_more: bool,
    /// At most one packet of a kind is under way, and none without news is sent. For searches
    /// through all states.
    pub(super) is_sparse: bool,
}

/// A packet from the client: a byte of a request perhaps, and its progress in the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Up {
    pub(super) position: Option<u8>,
    pub(super) acknowledged: u8,
    /// The packet was sent back once.
    pub(super) bounced: bool,
}

/// A packet to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Down {
    pub(super) byte: Option<(u8, u8)>,
    pub(super) acknowledged: u8,
    /// The packet ends the connection.
    pub(super) is_end: bool,
}

/// One end of the client's connection, on a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Socket {
    /// Position of the first unacknowledged byte.
    pub(super) unacknowledged: u8,
    pub(super) bytes: Vec<u8>,
    /// Number of `bytes` that were sent.
    pub(super) sent: u8,
    /// Position of the next byte of requests.
    pub(super) next: u8,
    pub(super) unread: Vec<u8>,
    /// Copy that the mover has read.
    pub(super) dump: Option<Frozen>,
    pub(super) is_freezing: bool,
    /// The copy was compared with the connection, and is the same.
    pub(super) is_same: bool,
    /// The owner has given the agent's process up, and the connection goes on elsewhere.
    pub(super) is_stale: bool,
}

impl Socket {
    pub(super) fn freeze(&self) -> Frozen {
        let sent = usize::from(self.sent);
        Frozen {
            state: TcpState {
                local: flow().local,
                peer: flow().peer,
                send_sequence: self.unacknowledged.into(),
                receive_sequence: u32::from(self.next) - self.unread.len() as u32,
                mss: 1448,
                timestamp: None,
                sack: true,
                window_scales: None,
                window: Window::default(),
            },
            unacknowledged: self.bytes[..sent].to_vec(),
            unsent: self.bytes[sent..].to_vec(),
            unread: self.unread.clone(),
        }
    }

    pub(super) fn restore(frozen: &Frozen) -> Self {
        Self {
            unacknowledged: frozen.state.send_sequence as u8,
            bytes: [&frozen.unacknowledged[..], &frozen.unsent].concat(),
            sent: frozen.unacknowledged.len() as u8,
            next: frozen.state.receive_sequence as u8 + frozen.unread.len() as u8,
            unread: frozen.unread.clone(),
            dump: None,
            is_freezing: false,
            is_same: false,
            is_stale: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Guard {
    Expected,
    Owned,
}

#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Host {
    pub(super) socket: Option<Socket>,
    /// Socket left by a killed process: the kernel sends its bytes, and then a FIN.
    pub(super) left: Option<Socket>,
    pub(super) restoring: Option<Frozen>,
    /// Frozen, and the process has not learned of it yet.
    pub(super) taken_out: Option<Frozen>,
    /// Guard of an agent's host, and its end.
    pub(super) guard: Option<(Guard, u64)>,
    /// Packets redirected here that have not arrived.
    pub(super) lane: Vec<Up>,
    /// Packets past the entry that have not reached a connection.
    pub(super) stack: Vec<Up>,
}

/// Content of a control connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Wire {
    Welcome(Instance),
    Request(Ticket, u8),
    Offer(Ticket),
    /// A whole answer.
    Relay(Ticket, Vec<u8>),
    Control(Ticket, Message<'static>),
}

/// A control connection between the owner and one agent.
#[derive(Clone, Debug, Hash)]
pub(super) struct Link {
    pub(super) session: SessionId,
    pub(super) is_broken: bool,
    /// The end is open, as far as its process knows.
    pub(super) at_owner: bool,
    pub(super) at_agent: bool,
    pub(super) to_agent: VecDeque<Wire>,
    pub(super) to_owner: VecDeque<Wire>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Exchange {
    /// No agent has been asked that can still answer; this one was asked last.
    Open {
        last: Option<usize>,
    },
    Asked {
        agent: usize,
        ticket: Ticket,
    },
    Moving {
        agent: usize,
    },
    Relaying {
        agent: usize,
        ticket: Ticket,
    },
}

/// The owner's process besides its state machine.
#[derive(Clone, Debug, Hash)]
pub(super) struct OwnerService {
    pub(super) instance: Instance,
    pub(super) next_ticket: u64,
    /// The request, and its progress.
    pub(super) exchange: Option<(u8, Exchange)>,
    /// Bytes of its answer that the client has.
    pub(super) skip: u8,
    pub(super) is_up: [bool; 3],
}

/// An agent's process besides its state machine.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct AgentService {
    pub(super) answers: BTreeMap<(SessionId, Ticket), Vec<u8>>,
    /// Bytes of the answer put into the connection.
    pub(super) put_in: u8,
    /// Exchanges that are relayed and whose bytes are no longer kept.
    pub(super) relayed: Vec<(SessionId, Ticket)>,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Client {
    pub(super) received: Vec<u8>,
    pub(super) sent: u8,
    pub(super) acknowledged: u8,
    pub(super) is_closed: bool,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct World {
    pub(super) bounds: Bounds,
    pub(super) now_ms: u64,
    pub(super) client: Client,
    pub(super) up: Vec<Up>,
    pub(super) down: Vec<Down>,
    /// The agent that packets go to, and the end of the entry.
    pub(super) steering: Option<(usize, u64)>,
    /// Record of the redirected packets.
    pub(super) seen: Option<Seen>,
    pub(super) hosts: [Host; 3],
    pub(super) links: [Vec<Link>; 3],
    pub(super) sessions: u64,
    pub(super) runs: u64,
    pub(super) owner: Option<(Owner, OwnerService)>,
    pub(super) agents: [Option<(Agent, AgentService, Instance)>; 3],
    /// Faults left to happen.
    pub(super) breaks: u8,
    pub(super) kills: u8,
    pub(super) failures: u8,
    pub(super) ticks: u8,
    pub(super) losses: u8,
    /// A process was killed, a deadline passed, or a host refused something.
    pub(super) is_disturbed: bool,
    /// A process decided to end the connection, or it died with its process.
    pub(super) is_ended: bool,
    pub(super) violation: Option<String>,
    pub(super) handed_over: u32,
    pub(super) came_back: u32,
    pub(super) salvaged: u32,
}

impl World {
    pub(super) fn new(bounds: Bounds) -> Self {
        let socket = Socket {
            unacknowledged: 0,
            bytes: Vec::new(),
            sent: 0,
            next: 0,
            unread: Vec::new(),
            dump: None,
            is_freezing: false,
            is_same: false,
            is_stale: false,
        };
        let mut world = Self {
            bounds,
            now_ms: 1,
            client: Client { received: Vec::new(), sent: 0, acknowledged: 0, is_closed: false },
            up: Vec::new(),
            down: Vec::new(),
            steering: None,
            seen: None,
            hosts: [
                Host { socket: Some(socket), ..Host::default() },
                Host::default(),
                Host::default(),
            ],
            links: [Vec::new(), Vec::new(), Vec::new()],
            sessions: 0,
            runs: 0,
            owner: None,
            agents: [None, None, None],
            breaks: bounds.breaks,
            kills: bounds.kills,
            failures: bounds.failures,
            ticks: bounds.ticks,
            losses: bounds.losses,
            is_disturbed: false,
            is_ended: false,
            violation: None,
            handed_over: 0,
            came_back: 0,
            salvaged: 0,
        };
        world.start(OWNER);
        world.start(1);
        world.start(2);
        world
    }

    pub(super) fn start(&mut self, host: usize) {
        self.runs += 1;
        let instance = Instance(self.runs);
        if host == OWNER {
            let mut machine =
                Owner::new(OwnerLimits { flows: 2, moves: 1, ..OwnerLimits::default() }, instance);
            machine.leave_out(self.bounds.left_out);
            if self.steered_to().is_some() {
                machine.found_pinned(self.now_ms, flow());
            }
            let service = OwnerService {
                instance,
                next_ticket: self.runs << 8,
                exchange: None,
                skip: 0,
                is_up: [false; 3],
            };
            self.owner = Some((machine, service));
        } else {
            let mut machine = Agent::new(
                AgentLimits { flows: 2, offers: 2, ..AgentLimits::default() },
                [flow().local],
            );
            machine.leave_out(self.bounds.left_out);
            self.agents[host] = Some((machine, AgentService::default(), instance));
        }
    }

    /// Drops the client's packets for this time.
    pub(super) fn hold(&mut self, lease_ms: u64) {
        self.steering = Some((NOWHERE, self.now_ms + lease_ms));
    }

    /// The agent that the client's packets go to, or [`NOWHERE`].
    pub(super) fn steered_to(&self) -> Option<usize> {
        self.steering.filter(|(_, until)| *until > self.now_ms).map(|(agent, _)| agent)
    }

    pub(super) fn guard(&self, host: usize) -> Option<Guard> {
        self.hosts[host].guard.filter(|(_, until)| *until > self.now_ms).map(|(guard, _)| guard)
    }

    pub(super) fn violate(&mut self, what: &str) {
        self.violation.get_or_insert_with(|| what.to_owned());
    }

    /// The agent's answer to `request`: it differs between agents, or with `alike` only in its
    /// first byte.
    pub(super) fn answer(&self, request: u8, agent: usize) -> Vec<u8> {
        let of = |index: u8| if self.bounds.alike && index > 0 { 0 } else { agent as u8 };
        (0..self.bounds.answer).map(|index| request << 6 | index << 2 | of(index)).collect()
    }

    /// Marks the connection as ended with its process, if no host has it.
    pub(super) fn ended_with_process(&mut self) {
        if self.hosts.iter().all(|host| host.socket.is_none()) {
            self.is_ended = true;
        }
    }

    pub(super) fn whole(&self) -> usize {
        usize::from(self.bounds.requests) * usize::from(self.bounds.answer)
    }
}
