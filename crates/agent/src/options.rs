//! What an agent is made from.

use std::fmt;
use std::net::SocketAddr;

use shunt_handover::session::{Instance, Protocol, SharedKey};

use crate::own::Own;

/// Fills a buffer from the operating system's generator; in a simulation from its seed.
pub type Random = Box<dyn FnMut(&mut [u8]) + Send>;

/// Options of an agent.
pub struct AgentOptions {
    /// What it speaks.
    pub protocol: Protocol,
    /// The stock server.
    pub upstream: SocketAddr,
    /// The key that dispatchers have as well.
    pub key: SharedKey,
    /// This run of the process.
    pub instance: Instance,
    /// Answers of at least so many bytes are offered; `None`: all are relayed.
    pub threshold_bytes: Option<u64>,
    /// How long an answer whose size is not known is held back, so that it may turn out to be
    /// large.
    pub hold_ns: u64,
    /// Virtual addresses whose connections may be taken.
    pub vips: Vec<SocketAddr>,
    /// What keeps packets of connections in and out; none: they find their way.
    pub own: Option<Box<dyn Own>>,
    /// Connections to the server at a time; requests beyond it wait.
    pub upstream_connections_max: usize,
    /// How long the server may take for the head of an answer, or be silent within one.
    pub upstream_timeout_ns: u64,
    /// Where nonces come from.
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
