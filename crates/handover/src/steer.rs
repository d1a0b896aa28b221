//! Where packets of moved connections go, as far as an owner has a say in it.

use std::fmt;
use std::net::SocketAddr;

use crate::owner::Seen;
use crate::types::Flow;

/// Sends packets of a connection to an agent's host.
pub trait Steer: Send + fmt::Debug {
    /// The client's packets go to the host of this agent from now on, for so long; again: to renew.
    /// False if that is not possible.
    fn steer(&mut self, flow: Flow, agent: SocketAddr, lease_ms: u64) -> bool;
    /// They come here again.
    fn unsteer(&mut self, flow: Flow);
    /// They go nowhere from now on, for so long, and are noted; again: to renew. False if that is
    /// not possible.
    fn hold(&mut self, flow: Flow, lease_ms: u64) -> bool;
    /// What was noted of its packets since they went elsewhere.
    fn seen(&self, flow: Flow) -> Option<Seen>;
}

/// For connections that are found wherever they are: in a simulation, and by a mover that passes
/// descriptors on.
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
