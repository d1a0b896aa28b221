//! What owners and agents have in common.

use std::net::SocketAddr;

/// The addresses of a client's connection, which name it: on whichever host it is, there is no
/// other of the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// The address that moves.
    pub local: SocketAddr,
    /// The client's.
    pub peer: SocketAddr,
}

/// A message that does not fit what was said before. The session with its sender is to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unexpected(pub &'static str);

impl std::fmt::Display for Unexpected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Unexpected {}
