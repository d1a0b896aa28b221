//! Hand-over of large answers: from an agent on the node's host straight to the client, on the
//! client's own connection (docs/internals/handover.md).
//!
//! A link through an agent brings, instead of a large RESULT, word that the answer waits there
//! (`opcode::OFFERED`). If the client's connection may leave, it goes to the agent
//! ([`connections`]), which sends the answer and gives the connection back at once; else the proxy
//! tells the agent to put the answer back into the link's stream, and it takes the route of all
//! answers. While a connection is away its id stays valid and output gathers (`Io::park`), so that
//! code that writes to a client need not know.
//!
//! | file | contents |
//! |---|---|
//! | `offers.rs` | answers that wait at agents, and the fate of their requests |
//! | `connections.rs` | clients' connections that are away, or on their way |
//! | `agents.rs` | control connections to agents, one for each core and node |
//! | `policy.rs`, `links.rs` | the decision whether a link goes through an agent; its beginning there |
//! | `state.rs` | the state of each |

pub(crate) mod agents;
pub(crate) mod links;
pub(crate) mod connections;
pub(crate) mod offers;
mod state;
pub(crate) mod policy;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use shunt_handover::Flow;
use shunt_handover::message::Ticket;
use shunt_handover::owner::{Owner, OwnerLimits};
use shunt_handover::session::{
    Instance, NONCE_BYTES, OwnerHandshake, OwnerId, Protocol, SharedKey,
};
pub use shunt_handover::{Anywhere, Clients, Steer};

use state::{Agent, Away, Offer};

use crate::limits;

/// Fills a buffer from the operating system's generator; in a simulation from its seed.
pub type Random = Box<dyn FnMut(&mut [u8]) + Send>;

/// Options of hand-over for a core.
pub struct HandoverOptions {
    /// The key that the agents share.
    pub key: SharedKey,
    /// Identity of this core to the agents, the same after a restart.
    pub owner: OwnerId,
    /// This run of the process.
    pub instance: Instance,
    /// Clients of all cores of this process, which share one steering table.
    pub clients: Clients,
    /// Steering of packets.
    pub steer: Box<dyn Steer>,
    /// Source of nonces.
    pub random: Random,
}

/// Hand-over state of a core.
pub(crate) struct Handover {
    options: HandoverOptions,
    /// True if the host does not support it: all answers are relayed.
    is_off: bool,
    pub(crate) agents: Vec<Agent>,
    /// Index of each agent, by its host.
    pub(super) of_host: HashMap<IpAddr, u32>,
    /// Indexes of agents whose nodes have left the ring.
    free: Vec<u32>,
    owner: Owner,
    offers: HashMap<Ticket, Offer>,
    away: HashMap<Flow, Away>,
    /// Flows whose clients are gone; the core handles them before this turn ends.
    left: Vec<Flow>,
}

impl Handover {
    pub(crate) fn new(options: HandoverOptions) -> Self {
        let owner = Owner::new(OwnerLimits::default(), options.instance);
        Self {
            options,
            is_off: false,
            agents: Vec::new(),
            of_host: HashMap::new(),
            free: Vec::new(),
            owner,
            offers: HashMap::new(),
            away: HashMap::new(),
            left: Vec::new(),
        }
    }

    /// Adds the agent at an address, if there is room.
    fn add_agent(&mut self, address: SocketAddr) {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.agents.len() >= limits::AGENTS_MAX => return,
            None => {
                self.agents.push(Agent::new(address));
                self.agents.len() as u32 - 1
            }
        };
        self.agents[index as usize] = Agent::new(address);
        self.of_host.insert(address.ip(), index);
    }

    /// Makes the handshake of a new connection to an agent.
    pub(super) fn handshake(&mut self) -> Box<OwnerHandshake> {
        let mut nonce = [0; NONCE_BYTES];
        let options = &mut self.options;
        (options.random)(&mut nonce);
        let key = options.key.clone();
        Box::new(OwnerHandshake::new(key, Protocol::Cql, options.owner, options.instance, nonce))
    }

    /// Notes that a client connected.
    pub(crate) fn client_came(&self, flow: Flow) {
        self.options.clients.came(flow);
    }

    /// Notes that a client is gone. Its connection, if that is away, stays known until it is back.
    pub(crate) fn client_left(&mut self, flow: Flow, is_away: bool) {
        match is_away {
            true => self.left.push(flow),
            false => self.options.clients.left(flow),
        }
    }

    /// True if a client left while its connection was away.
    pub(crate) fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// True if no connection of a client is away or on its way, and no answer waits for one.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.owner.flows() == 0 && self.offers.is_empty() && self.away.is_empty()
    }
}
