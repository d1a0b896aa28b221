//! Addresses of clients: the other end of a connection is not always the client, and not always on
//! a network.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The client of an accepted connection.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum ClientAddress {
    /// The other end of the TCP connection.
    Tcp(SocketAddr),
    /// A client whose connection ends at a balancer, by the balancer's word.
    Forwarded(SocketAddr),
}

/// A client without the port of its connection: the same for all its connections.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum ClientHost {
    /// A host on the network.
    Network(IpAddr),
}

impl ClientAddress {
    /// The client without its port.
    pub fn host(self) -> ClientHost {
        match self {
            ClientAddress::Tcp(address) | ClientAddress::Forwarded(address) => {
                ClientHost::Network(address.ip())
            }
        }
    }

    /// The IP address of the client.
    pub fn ip(self) -> IpAddr {
        let ClientHost::Network(ip) = self.host();
        ip
    }

    /// The other end of the TCP connection; `None` if the client is not there itself.
    pub fn direct(self) -> Option<SocketAddr> {
        match self {
            ClientAddress::Tcp(address) => Some(address),
            ClientAddress::Forwarded(_) => None,
        }
    }
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientAddress::Tcp(address) | ClientAddress::Forwarded(address) => address.fmt(f),
        }
    }
}

impl fmt::Display for ClientHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientHost::Network(ip) => ip.fmt(f),
        }
    }
}

impl From<SocketAddr> for ClientAddress {
    fn from(address: SocketAddr) -> Self {
        ClientAddress::Tcp(address)
    }
}
