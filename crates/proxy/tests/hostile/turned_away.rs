//! Clients beyond `clients_max`: they are told why, take no other client's place, and wait for
//! nothing. Clients that have not logged in make room for those of other hosts.

use std::net::SocketAddr;

use shunt_proxy::metrics::Closing;
use shunt_reactor::sim::{HostId, SECOND};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_testing::{bytes, simulated};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::OVERLOADED;

use super::testbed::Testbed;

type Offender = HostId<simulated::Client>;

/// A client that is ready.
fn inside(testbed: &mut Testbed) -> Offender {
    let client = testbed.offender();
    testbed.send(client, &bytes::startup(4, None));
    testbed.answered(client, 1);
    assert_eq!(testbed.take_answers(client)[0].header.opcode, opcode::READY);
    client
}

/// A proxy with its full number of clients.
fn full() -> (Testbed, [Offender; 2]) {
    let mut testbed = Testbed::bare(|options| options.config.clients_max = 2);
    let clients = [inside(&mut testbed), inside(&mut testbed)];
    (testbed, clients)
}

#[test]
fn a_rejected_client_is_answered_in_its_version() {
    let (mut testbed, clients) = full();
    for version in [3, 4, 5] {
        for request in [bytes::startup(version, None), bytes::options(version, 3)] {
            let late = testbed.offender();
            testbed.send(late, &request);
            testbed.closed(late);
            let answers = testbed.take_answers(late);
            let [answer] = &answers[..] else { panic!("{} answers", answers.len()) };
            let (code, text) = answer.error();
            assert!(code == OVERLOADED && text.contains("clients_max"), "{code:#x} {text}");
            assert_eq!(
                (answer.header.version, answer.header.stream),
                (version, i16::from(request[3]))
            );
        }
    }
    assert!(clients.iter().all(|client| !testbed.scene.world.host(*client).is_closed()));
    assert_eq!(testbed.scene.metrics[0].clients_closed.of(Closing::TooMany).get(), 6);
}

#[test]
fn silent_rejected_clients_keep_nobody_out_and_are_closed_soon() {
    let (mut testbed, [first, _second]) = full();
    let silent: Vec<Offender> = (0..200).map(|_| testbed.offender()).collect();
    // No request is whole with so few bytes.
    silent.iter().for_each(|one| testbed.send(*one, &bytes::startup(4, None)[..4]));
    testbed.run_for(SECOND / 10);
    let closed = |testbed: &Testbed| {
        silent.iter().filter(|one| testbed.scene.world.host(**one).is_closed()).count()
    };
    assert!(
        (100..200).contains(&closed(&testbed)),
        "{}: most of them are not waited for",
        closed(&testbed)
    );
    testbed.reset(first);
    testbed.run_for(SECOND / 10);
    // The next client gets its place, whichever of the others is still there.
    inside(&mut testbed);
    testbed.run_for(5 * SECOND);
    assert_eq!(closed(&testbed), 200);
    let metrics = &testbed.scene.metrics[0];
    assert_eq!(
        (metrics.clients_closed.of(Closing::TooMany).get(), metrics.clients.get()),
        (200, 2)
    );
}

/// The connection of a client that was told stays open until its peer closes it, and so holds a
/// file.
#[test]
fn no_more_than_so_many_are_told_in_a_second() {
    let (mut testbed, _clients) = full();
    let ask = |testbed: &mut Testbed| {
        let late = testbed.offender();
        testbed.send(late, &bytes::options(4, 1));
        testbed.closed(late);
        testbed.take_answers(late).len()
    };
    let told: usize = (0..200).map(|_| ask(&mut testbed)).sum();
    assert_eq!(told, 64);
    testbed.run_for(SECOND);
    assert_eq!(ask(&mut testbed), 1);
}

/// A host that opens connections and sends nothing.
struct SilentHost {
    server: SocketAddr,
    closed: usize,
}

impl Service for SilentHost {
    /// Number of further connections.
    type Mail = usize;

    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {}
    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn received(&mut self, _io: &mut Io, _conn: ConnId, data: &[u8]) -> usize {
        data.len()
    }

    fn closed(&mut self, _io: &mut Io, _conn: ConnId, _reason: CloseReason) {
        self.closed += 1;
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn timer(&mut self, _io: &mut Io, _key: u64) {}

    fn mail(&mut self, io: &mut Io, count: usize) {
        for _ in 0..count {
            io.connect(self.server, SECOND);
        }
    }

    fn turn_ended(&mut self, _io: &mut Io) {}
}

#[test]
fn silent_connections_of_one_host_make_room_for_clients_of_others() {
    let mut testbed = Testbed::bare(|options| options.config.clients_max = 64);
    let first = inside(&mut testbed);
    let server = testbed.scene.proxy;
    let silent = testbed.scene.world.add("silent", SilentHost { server, closed: 0 });
    let closed = |testbed: &Testbed| testbed.scene.world.host(silent).closed;
    testbed.scene.world.post(silent, 63);
    testbed.run_for(SECOND / 10);
    assert_eq!(closed(&testbed), 0);
    // The places of all but a sixteenth, which that host keeps.
    for taken in 1..=59 {
        inside(&mut testbed);
        assert_eq!(closed(&testbed), taken, "one makes room for each");
    }
    let late = testbed.offender();
    testbed.send(late, &bytes::options(4, 1));
    testbed.closed(late);
    assert_eq!(testbed.take_answers(late)[0].error().0, OVERLOADED);
    assert!(!testbed.scene.world.host(first).is_closed(), "it has logged in");
    // More connections of the same host take no place of the clients that are inside.
    testbed.scene.world.post(silent, 200);
    testbed.run_for(2 * SECOND);
    assert_eq!(closed(&testbed), 259);
    let metrics = &testbed.scene.metrics[0];
    assert_eq!(
        (metrics.clients.get(), metrics.clients_closed.of(Closing::TooMany).get()),
        (64, 260)
    );
}
