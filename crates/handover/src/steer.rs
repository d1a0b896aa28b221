//! Control of where packets of moved connections go.

use std::fmt;
use std::net::SocketAddr;

use crate::owner::Seen;
use crate::types::Flow;

/// Sends packets of a connection to an agent's host.
pub trait Steer: Send + fmt::Debug {
    /// Redirects the client's packets to this agent's host for this time; repeat the call to renew.
    /// False if that is not possible.
    fn steer(&mut self, flow: Flow, agent: SocketAddr, lease_ms: u64) -> bool;
    /// Ends the redirection: packets come here again.
    fn unsteer(&mut self, flow: Flow);
    /// Drops the client's packets for this time, and records them; repeat the call to renew. False
    /// if that is not possible.
    fn hold(&mut self, flow: Flow, lease_ms: u64) -> bool;
    /// Record of the client's packets since they were redirected.
    fn seen(&self, flow: Flow) -> Option<Seen>;
}

/// For connections that need no steering: in a simulation, or where a mover passes descriptors on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anywhere;

impl Steer for Anywhere {
    fn steer(&mut self, _: Flow, _: SocketAddr, _: u64) -> bool {
        true
    }

    fn unsteer(&mut self, _: Flow) {}

    fn hold(&mut self, _: Flow, _: u64) -> bool {
        false
    }

    fn seen(&self, _: Flow) -> Option<Seen> {
        None
    }
}
