//! Places at which a multiget is split into one request per server, and its answers are merged. The
//! result is the same.

use std::net::SocketAddr;

/// Place of the split.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// The client splits, asks each server over TCP, and merges. No shims are needed.
    Tcp,
    /// The client splits and merges: each part goes to its server.
    Cli,
    /// The shim of one of the servers splits, asks the others and merges.
    Coordinator,
    /// The switch at this address splits; it has the same numbers of servers. The client merges.
    Netmc {
        /// Receiver of whole requests.
        switch: SocketAddr,
    },
}

impl Mode {
    /// Name in options and on the `/status` page.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Tcp => "tcp",
            Mode::Cli => "cli",
            Mode::Coordinator => "coordinator",
            Mode::Netmc { .. } => "netmc",
        }
    }
}
