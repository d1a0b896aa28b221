//! Which packets reach this host's connections, as far as the agent has a say in it.

use std::fmt;

use shunt_handover::Flow;

/// Lets packets of connections in, or keeps them out.
pub trait Own: Send + fmt::Debug {
    /// The connection is about to come or to go: no packet of the client's reaches this host, for
    /// so long.
    fn expect(&mut self, flow: Flow, lease_ms: u64);
    /// The client's packets reach the connection that is here, for so long; again: to renew.
    fn own(&mut self, flow: Flow, lease_ms: u64);
    /// The client has ended the connection: what its end here says to that gets out, for so long.
    /// It may not end it of its own accord: it might be another's by then.
    fn let_end(&mut self, flow: Flow, lease_ms: u64);
    /// The connection is not here, and nothing of it leaves.
    fn disown(&mut self, flow: Flow);
    /// True if no reset of this host's leaves it: who is to hear of an end hears it from others.
    fn keeps_resets_back(&self) -> bool;
    /// Removes what is past its lease.
    fn tidy(&mut self);
}

/// For connections that are found wherever they are: in a simulation, and by a mover that passes
/// descriptors on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anywhere;

impl Own for Anywhere {
    fn expect(&mut self, _: Flow, _: u64) {}
    fn own(&mut self, _: Flow, _: u64) {}
    fn let_end(&mut self, _: Flow, _: u64) {}
    fn disown(&mut self, _: Flow) {}
    fn keeps_resets_back(&self) -> bool {
        false
    }
    fn tidy(&mut self) {}
}
