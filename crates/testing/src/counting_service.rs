//! A service with counted allocations. The test provides the counter, so that only counting tests
//! have another allocator.

use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};

/// Runs the function once and returns how many allocations it made.
pub type Measure = fn(&mut dyn FnMut()) -> u64;

/// A service that counts allocations in callbacks for bytes while `counting`: these come with every
/// request. The others come with connections and timers, however many requests there are.
pub struct Watched<S> {
    /// The service.
    pub service: S,
    /// True while allocations are counted.
    pub counting: bool,
    /// Allocations while `counting`.
    pub allocations: u64,
    measure: Measure,
}

impl<S> Watched<S> {
    /// A service that is not counted yet.
    pub fn new(service: S, measure: Measure) -> Watched<S> {
        Watched { service, counting: false, allocations: 0, measure }
    }

    fn watch<R>(&mut self, call: impl FnOnce(&mut S) -> R) -> R {
        if !self.counting {
            return call(&mut self.service);
        }
        let (mut call, mut result) = (Some(call), None);
        self.allocations +=
            (self.measure)(&mut || result = call.take().map(|call| call(&mut self.service)));
        result.expect("it was called")
    }
}

impl<S: Service> Service for Watched<S> {
    type Mail = S::Mail;

    fn started(&mut self, io: &mut Io) {
        self.service.started(io);
    }

    fn accepted(&mut self, io: &mut Io, conn: ConnId, origin: &Accepted) {
        self.service.accepted(io, conn, origin);
    }

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        self.service.connected(io, conn);
    }

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        self.watch(|service| service.received(io, conn, data))
    }

    fn closed(&mut self, io: &mut Io, conn: ConnId, reason: CloseReason) {
        self.service.closed(io, conn, reason);
    }

    fn drained(&mut self, io: &mut Io, conn: ConnId) {
        self.watch(|service| service.drained(io, conn));
    }

    fn timer(&mut self, io: &mut Io, key: u64) {
        self.service.timer(io, key);
    }

    fn mail(&mut self, io: &mut Io, mail: S::Mail) {
        self.service.mail(io, mail);
    }

    fn turn_ended(&mut self, io: &mut Io) {
        self.watch(|service| service.turn_ended(io));
    }
}
