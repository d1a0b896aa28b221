//! Where a multiget is split into what each server is asked, and where the answers are put
//! together. What comes of it is the same.

use std::net::SocketAddr;

/// Where requests are split.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// By the client, which asks each server over TCP, and puts the answers together. There are no
    /// shims.
    Tcp,
    /// By the client, which puts the answers together: each part goes to its server.
    Cli,
    /// By the shim of one of the servers, which asks the others and answers for all.
    Coordinator,
    /// By the switch at this address, which knows the servers by the same numbers; the client puts
    /// the answers together.
    Netmc {
        /// Where whole requests go.
        switch: SocketAddr,
    },
}

impl Mode {
    /// Its name, as in options and on the `/status` page.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Tcp => "tcp",
            Mode::Cli => "cli",
            Mode::Coordinator => "coordinator",
            Mode::Netmc { .. } => "netmc",
        }
    }
}
