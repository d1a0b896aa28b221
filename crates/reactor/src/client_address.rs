//! Addresses of clients: the other end of a connection is not always the client, and not always on
//! a network.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The client of an accepted connection.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum ClientAddress {
    /// The other end of the TCP connection.
    Tcp(SocketAddr),
    /// A client whose connection ends at a balancer, by the balancer's word.
    Forwarded(SocketAddr),
    /// A process of this host, at the other end of a Unix socket.
    Unix {
        /// Number of its user.
        user: u32,
        /// Number of the process; 0 if it has none here, because it is in another container.
        process: i32,
    },
}

/// A client without the port of its connection: the same for all its connections.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum ClientHost {
    /// A host on the network.
    Network(IpAddr),
    /// A user of this host, by number.
    User(u32),
}

impl ClientAddress {
    /// The client without its port.
    pub fn host(self) -> ClientHost {
        match self {
            ClientAddress::Tcp(address) | ClientAddress::Forwarded(address) => {
                ClientHost::Network(address.ip())
            }
            ClientAddress::Unix { user, .. } => ClientHost::User(user),
        }
    }

    /// The host to which shares count ([`ClientHost::counted`]). On a Unix socket, each user of
    /// this host is one.
    pub fn counted_host(self) -> ClientHost {
        match self.host() {
            ClientHost::Network(address) => ClientHost::counted(address),
            user => user,
        }
    }

    /// The IP address of the client; a process of this host has a loopback address.
    pub fn ip(self) -> IpAddr {
        match self.host() {
            ClientHost::Network(ip) => ip,
            ClientHost::User(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }

    /// The other end of the TCP connection; `None` if the client is not there itself.
    pub fn direct(self) -> Option<SocketAddr> {
        match self {
            ClientAddress::Tcp(address) => Some(address),
            ClientAddress::Forwarded(_) | ClientAddress::Unix { .. } => None,
        }
    }
}

impl ClientHost {
    /// The host to which shares count for an address: a host of IPv6 has 64 bits of addresses, so
    /// its network counts.
    pub fn counted(address: IpAddr) -> ClientHost {
        ClientHost::Network(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address => address,
        })
    }
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientAddress::Tcp(address) | ClientAddress::Forwarded(address) => address.fmt(f),
            ClientAddress::Unix { user, process } => write!(f, "unix:uid={user},pid={process}"),
        }
    }
}

impl fmt::Display for ClientHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientHost::Network(ip) => ip.fmt(f),
            ClientHost::User(user) => write!(f, "unix:uid={user}"),
        }
    }
}

impl From<SocketAddr> for ClientAddress {
    fn from(address: SocketAddr) -> Self {
        ClientAddress::Tcp(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_counts_as_one_host() {
        let of = |text: &str| ClientHost::counted(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_eq!(of("2001:db8::1:2:3:4").to_string(), "2001:db8::");
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
