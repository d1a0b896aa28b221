//! Filter for the packets of clients' connections on this host.

use std::fmt;

use shunt_handover::Flow;

/// Lets packets of connections in, or keeps them out.
pub trait PacketFilter: Send + fmt::Debug {
    /// Drops the client's packets for this long: the connection is about to come or to go.
    fn expect(&mut self, flow: Flow, lease_ms: u64);
    /// Lets the client's packets reach the connection for this long; repeat the call to renew.
    fn own(&mut self, flow: Flow, lease_ms: u64);
    /// Does the same as `own`, and lets this end's reply to the client's FIN out. This end may not
    /// send a FIN on its own: the connection might be another host's then.
    fn let_end(&mut self, flow: Flow, lease_ms: u64);
    /// Removes the entry: the connection is not here, and none of its packets leave.
    fn disown(&mut self, flow: Flow);
    /// True if no reset leaves this host; the client must then learn of an end from another host.
    fn keeps_resets_back(&self) -> bool;
    /// Removes entries past their lease.
    fn tidy(&mut self);
}

/// For connections that need no steering: in a simulation, or where a mover passes descriptors on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anywhere;

impl PacketFilter for Anywhere {
    fn expect(&mut self, _: Flow, _: u64) {}
    fn own(&mut self, _: Flow, _: u64) {}
    fn let_end(&mut self, _: Flow, _: u64) {}
    fn disown(&mut self, _: Flow) {}
    fn keeps_resets_back(&self) -> bool {
        false
    }
    fn tidy(&mut self) {}
}
