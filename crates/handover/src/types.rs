//! Types that owners and agents share.

use std::net::SocketAddr;

/// Addresses of a client's connection, which identify it: no host has two connections of the same
/// addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// The address that moves.
    pub local: SocketAddr,
    /// The client's address.
    pub peer: SocketAddr,
}

/// A message that does not fit earlier ones. The session with its sender must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unexpected(pub &'static str);

impl std::fmt::Display for Unexpected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Unexpected {}
