//! Options of an agent.

use std::fmt;
use std::net::SocketAddr;

use shunt_handover::session::{Instance, Protocol, SharedKey};

use crate::packet_filter::PacketFilter;

/// Fills a buffer from the operating system's generator; in a simulation from its seed.
pub type Random = Box<dyn FnMut(&mut [u8]) + Send>;

/// Options of an agent.
pub struct AgentOptions {
    /// Protocol of the server.
    pub protocol: Protocol,
    /// The stock server.
    pub upstream: SocketAddr,
    /// The key shared with dispatchers.
    pub key: SharedKey,
    /// Identifies this run of the process.
    pub instance: Instance,
    /// Size in bytes from which answers are offered; `None` relays all.
    pub threshold_bytes: Option<u64>,
    /// Time for which an answer of unknown size is held back to see whether it is large.
    pub hold_ns: u64,
    /// Virtual addresses whose connections may be taken.
    pub vips: Vec<SocketAddr>,
    /// Filter for packets of clients' connections; `None`: the network routes them.
    pub packet_filter: Option<Box<dyn PacketFilter>>,
    /// Connections to the server at a time; further requests wait.
    pub upstream_connections_max: usize,
    /// Time limit for the head of the server's answer, and for silence within an answer.
    pub upstream_timeout_ns: u64,
    /// Source of nonces.
    pub random: Random,
}

impl fmt::Debug for AgentOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentOptions")
            .field("upstream", &self.upstream)
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}
