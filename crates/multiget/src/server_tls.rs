//! TLS of the connections to servers, as the process brings it.

use std::fmt;
use std::net::SocketAddr;

use shunt_reactor::{Session, SessionInfo};

/// TLS of the connections to servers.
pub trait ServerTls: fmt::Debug + Send + Sync {
    /// A session with the server at this address, at the start of its handshake.
    fn session(&self, server: SocketAddr) -> Box<dyn Session>;

    /// A handshake with a server has ended: with this session, or with a failure.
    fn handshake_ended(&self, session: Option<&SessionInfo>);
}
