//! What a dispatcher is made from.

use std::fmt;
use std::net::SocketAddr;

use shunt_handover::session::{Instance, OwnerId, SharedKey};

use crate::policy::Handover;
use crate::steer::Steer;

/// Fills a buffer from the operating system's generator; in a simulation from its seed.
pub type Random = Box<dyn FnMut(&mut [u8]) + Send>;

/// Options of a dispatcher.
pub struct DispatchOptions {
    /// Agents, the primary first.
    pub backends: Vec<SocketAddr>,
    /// The key that the agents have as well.
    pub key: SharedKey,
    /// Who this is to the agents: the same after a restart, and nobody else's.
    pub owner: OwnerId,
    /// This run of the process.
    pub instance: Instance,
    /// Whether answers go over the client's own connection.
    pub handover: Handover,
    /// Where packets of moved connections are sent on from; none: they find their way.
    pub steer: Option<Box<dyn Steer>>,
    /// Largest body of a request; larger ones are refused with 413.
    pub body_bytes_max: u64,
    /// How long a connection may have no request.
    pub idle_timeout_ns: u64,
    /// How long the head of a request may take.
    pub head_timeout_ns: u64,
    /// How long nothing may come within a body, and how long a client may take nothing of an answer.
    pub body_timeout_ns: u64,
    /// How long an agent may take for an answer to begin.
    pub answer_timeout_ns: u64,
    /// Where nonces and the first ticket come from.
    pub random: Random,
}

impl fmt::Debug for DispatchOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DispatchOptions")
            .field("backends", &self.backends)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}
