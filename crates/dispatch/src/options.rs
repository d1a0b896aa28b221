//! What a dispatcher is made from.

use std::fmt;
use std::net::SocketAddr;

use shunt_handover::session::{Instance, OwnerId, SharedKey};
use shunt_handover::{Clients, Steer};

use crate::policy::Handover;

/// Fills a buffer from the operating system's generator; in a simulation from its seed.
pub type Random = Box<dyn FnMut(&mut [u8]) + Send>;

/// Options of a dispatcher.
pub struct DispatchOptions {
    /// Where clients connect: connections to other addresses are not its own.
    pub listen: Vec<SocketAddr>,
    /// Those of all event loops of this process, which steer by one table.
    pub clients: Clients,
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
    /// How long nothing may come within a body, and how long a client may take nothing of an
    /// answer.
    pub body_timeout_ns: u64,
    /// Bytes of a body that have to come within that time; fewer are no progress.
    pub body_bytes_per_timeout: u64,
    /// How long an agent may take for an answer to begin.
    pub answer_timeout_ns: u64,
    /// Where nonces and the first ticket come from.
    pub random: Random,
}

impl DispatchOptions {
    /// True of an address that clients of this dispatcher connect to.
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
