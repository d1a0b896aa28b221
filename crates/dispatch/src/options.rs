//! Options of a dispatcher.

use std::fmt;
use std::net::SocketAddr;

use shunt_handover::session::{Instance, OwnerId, SharedKey};
use shunt_handover::{Clients, Steer};
use shunt_reactor::{Session, SessionInfo};

use crate::policy::Handover;

/// Fills a buffer from the operating system's generator; in a simulation from its seed.
pub type Random = Box<dyn FnMut(&mut [u8]) + Send>;

/// TLS of the connections to agents.
pub trait AgentTls: Send {
    /// The session of a connection to the agent with this index.
    fn session(&self, agent: usize) -> Box<dyn Session>;

    /// A handshake with an agent has ended: with this session, or with a failure.
    fn handshake_ended(&self, session: Option<&SessionInfo>);
}

/// Options of a dispatcher.
pub struct DispatchOptions {
    /// Addresses that clients connect to; connections to others are not this dispatcher's.
    pub listen: Vec<SocketAddr>,
    /// Clients of all event loops of this process, which share one steering table.
    pub clients: Clients,
    /// Agents, the primary first.
    pub backends: Vec<SocketAddr>,
    /// Encryption of the connections to agents; `None`: clear text.
    pub agent_tls: Option<Box<dyn AgentTls>>,
    /// The key shared with the agents.
    pub key: SharedKey,
    /// Identity towards the agents: unique, and the same after a restart.
    pub owner: OwnerId,
    /// Identifies this run of the process.
    pub instance: Instance,
    /// Whether answers go over the client's own connection.
    pub handover: Handover,
    /// Redirects packets of moved connections; `None`: the network routes them.
    pub steer: Option<Box<dyn Steer>>,
    /// Largest body of a request; larger ones are refused with 413.
    pub body_bytes_max: u64,
    /// Longest time without a request on a connection.
    pub idle_timeout_ns: u64,
    /// Time limit for the head of a request.
    pub head_timeout_ns: u64,
    /// Longest silence within a body, and longest time for which a client takes nothing of an
    /// answer.
    pub body_timeout_ns: u64,
    /// Bytes of a body required within that time; fewer are no progress.
    pub body_bytes_per_timeout: u64,
    /// Time limit for an agent to begin an answer.
    pub answer_timeout_ns: u64,
    /// Source of nonces and of the first ticket.
    pub random: Random,
}

impl DispatchOptions {
    /// True if clients of this dispatcher connect to this address.
    pub(crate) fn serves(&self, local: SocketAddr) -> bool {
        let is = |listen: &SocketAddr| {
            let same = listen.ip().to_canonical() == local.ip().to_canonical();
            listen.port() == local.port() && (same || listen.ip().is_unspecified())
        };
        self.listen.iter().any(is)
    }
}

impl fmt::Debug for DispatchOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DispatchOptions")
            .field("backends", &self.backends)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_to_other_addresses_than_clients_connect_to_are_not_its_own() {
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let options = |listen: &[&str]| DispatchOptions {
            listen: listen.iter().map(|text| address(text)).collect(),
            clients: Clients::default(),
            backends: Vec::new(),
            agent_tls: None,
            key: shunt_handover::session::SharedKey::new(&[1; 20]).expect("a key"),
            owner: OwnerId(1),
            instance: Instance(1),
            handover: Handover::Auto,
            steer: None,
            body_bytes_max: 1,
            idle_timeout_ns: 1,
            head_timeout_ns: 1,
            body_timeout_ns: 1,
            body_bytes_per_timeout: 1,
            answer_timeout_ns: 1,
            random: Box::new(|_| ()),
        };
        let one = options(&["192.0.2.1:80"]);
        assert!(
            one.serves(address("192.0.2.1:80")) && one.serves(address("[::ffff:192.0.2.1]:80"))
        );
        assert!(!one.serves(address("192.0.2.1:22")) && !one.serves(address("192.0.2.2:80")));
        let any = options(&["0.0.0.0:80", "[::1]:81"]);
        assert!(
            any.serves(address("192.0.2.2:80"))
                && any.serves(address("[::1]:81"))
                && !any.serves(address("192.0.2.2:81"))
        );
    }
}
