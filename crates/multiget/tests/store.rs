//! A shim whose server does not keep to the protocol.

use std::net::SocketAddr;

use shunt_multiget::shim::ShimOptions;
use shunt_multiget::{Login, Store, StoreOptions};
use shunt_reactor::sim::{MILLISECOND, Options, SECOND, World};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};

/// A server that answers before any query.
#[derive(Default)]
struct Hasty {
    accepted: usize,
    open: usize,
}

impl Service for Hasty {
    type Mail = ();

    fn accepted(&mut self, io: &mut Io, conn: ConnId, _origin: &Accepted) {
        (self.accepted, self.open) = (self.accepted + 1, self.open + 1);
        io.output(conn).extend_from_slice(b"+OK\r\n");
    }

    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn received(&mut self, _io: &mut Io, _conn: ConnId, data: &[u8]) -> usize {
        data.len()
    }

    fn closed(&mut self, _io: &mut Io, _conn: ConnId, _reason: CloseReason) {
        self.open -= 1;
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn timer(&mut self, _io: &mut Io, _key: u64) {}
    fn mail(&mut self, _io: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _io: &mut Io) {}
}

#[test]
fn an_answer_that_nobody_asked_for_costs_the_connection() {
    let mut world = World::new(1, Options::calm());
    let address: SocketAddr = ([192, 0, 2, 10], 6379).into();
    let server = world.add("server", Hasty::default());
    world.listen(server, address);
    let shim = ShimOptions { allow: Vec::new(), rate: 1, others_rate: 0 };
    let store = world.add(
        "shim",
        Store::new(StoreOptions {
            shim,
            server: address,
            is_in_cluster: false,
            login: Login::default(),
            coordinator: None,
            timeout_ns: 500 * MILLISECOND,
        }),
    );
    world.run_for(10 * SECOND);
    let Hasty { accepted, open } = world.host(server);
    assert!(*accepted > 2 && *open <= 1, "{accepted} connections, {open} of them open");
    assert!(world.is_running(store));
}
