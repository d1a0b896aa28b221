//! One address with many wrong passwords, at nodes that do not answer them. Logins of other
//! addresses go on, and no client gets an ERROR for want of room.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use shunt_reactor::sim::{HostId, MILLISECOND, SECOND};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_testing::bytes;
use shunt_wire::cql::envelope::{Header, opcode};

use super::handshake_node::Reaction;
use super::handshake_testbed::{HandshakeTestbed, TOKEN};
use super::support::journal::Journal;

/// The password that the nodes do not answer.
const TARPIT: &str = "wrong";

/// Clients of one host, each with a role and a password of its own.
struct Guesser {
    server: SocketAddr,
    password: &'static str,
    /// Number of each client, by its connection, until it has sent its login.
    new: BTreeMap<(u32, u32), usize>,
    opened: usize,
    accepted: usize,
    errors: usize,
    closed: usize,
}

impl Service for Guesser {
    /// Number of further clients.
    type Mail = usize;

    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {}

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        io.output(conn).extend(bytes::startup(4, None));
    }

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let Some(header) = Header::decode(data) else { return 0 };
        match header.opcode {
            opcode::AUTHENTICATE => {
                let number = self.new.remove(&(conn.index, conn.generation)).unwrap_or_default();
                let token = format!("\0role{number}\0{}", self.password);
                io.output(conn).extend(bytes::auth_response(4, token.as_bytes()));
            }
            opcode::AUTH_SUCCESS => self.accepted += 1,
            _ => self.errors += 1,
        }
        data.len()
    }

    fn closed(&mut self, _io: &mut Io, _conn: ConnId, _reason: CloseReason) {
        self.closed += 1;
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn timer(&mut self, _io: &mut Io, _key: u64) {}

    fn mail(&mut self, io: &mut Io, count: usize) {
        for _ in 0..count {
            let conn = io.connect(self.server, 10 * SECOND);
            self.new.insert((conn.index, conn.generation), self.opened);
            self.opened += 1;
        }
    }

    fn turn_ended(&mut self, _io: &mut Io) {}
}

/// A host whose clients have begun to log in.
fn guesser(
    setup: &mut HandshakeTestbed,
    password: &'static str,
    clients: usize,
) -> HostId<Guesser> {
    let guesser = Guesser {
        server: setup.testbed.scene.proxy,
        password,
        new: BTreeMap::new(),
        opened: 0,
        accepted: 0,
        errors: 0,
        closed: 0,
    };
    let host = setup.testbed.scene.world.add("guesser", guesser);
    setup.testbed.scene.world.post(host, clients);
    host
}

/// The numbers of clients of a host that were let in, got an ERROR and were closed.
fn outcome(setup: &HandshakeTestbed, host: HostId<Guesser>) -> (usize, usize, usize) {
    let host = setup.testbed.scene.world.host(host);
    (host.accepted, host.errors, host.closed)
}

#[test]
fn guesses_of_one_address_keep_no_login_of_another_out() {
    const GUESSES: usize = 400;
    for nodes in [1, 3] {
        let mut setup = HandshakeTestbed::new(nodes, true);
        setup.all(|node| node.ignored_password = Some(TARPIT));
        let host = guesser(&mut setup, TARPIT, GUESSES);
        setup.testbed.run_for(300 * MILLISECOND);
        assert_eq!(outcome(&setup, host), (0, 0, 0));
        for role in ["ann", "bob", "eve"] {
            let client = setup.log_in(format!("\0{role}\0secret").as_bytes());
            setup.testbed.run_for(100 * MILLISECOND);
            let answers = setup.testbed.take_answers(client);
            let opcodes: Vec<u8> = answers.iter().map(|answer| answer.header.opcode).collect();
            assert_eq!(opcodes, [opcode::AUTH_SUCCESS], "{role} at {nodes} nodes");
        }
        setup.testbed.run_for(10 * SECOND);
        assert_eq!(outcome(&setup, host), (0, 0, GUESSES), "closed in time, without an ERROR");
    }
}

#[test]
fn logins_of_one_address_beyond_its_share_go_on_in_their_turn() {
    // As many as the simulated proxy accepts at a time, and more than the share.
    const LOGINS: usize = 40;
    let mut setup = HandshakeTestbed::new(3, true);
    let hosts = [0; 3].map(|_| guesser(&mut setup, "secret", LOGINS));
    setup.testbed.run_for(SECOND);
    let outcomes = hosts.map(|host| outcome(&setup, host));
    assert_eq!(outcomes, [(LOGINS, 0, 0); 3]);
}

#[test]
fn a_client_that_leaves_while_its_login_waits_is_forgotten() {
    let mut setup = HandshakeTestbed::new(1, true);
    setup.all(|node| node.ignored_password = Some(TARPIT));
    let host = guesser(&mut setup, TARPIT, 100);
    setup.testbed.run_for(SECOND);
    setup.testbed.scene.world.kill(host);
    setup.testbed.run_for(20 * SECOND);
    let metrics = setup.testbed.scene.metrics[0].clone();
    assert_eq!((metrics.clients.get(), metrics.clients_paused.get()), (0, 0));
    let client = setup.log_in(TOKEN);
    assert_eq!(setup.next_opcode(client), opcode::AUTH_SUCCESS);
}

/// Drivers take any ERROR in answer to a login for a wrong password.
#[test]
fn a_login_that_outlasts_the_handshake_gets_no_error() {
    let mut setup = HandshakeTestbed::with(1, true, |config| config.handshake_timeout_ms = 500);
    setup.all(|node| node.login = Reaction::Ignore);
    let client = setup.log_in(TOKEN);
    setup.testbed.closed(client);
    assert!(setup.testbed.take_answers(client).is_empty());
}

/// A node that is slow with one login, which anybody can send, is not slow with all of them; and
/// guesses fill no log.
#[test]
fn a_login_that_a_node_does_not_answer_costs_other_roles_no_node() {
    let mut setup = HandshakeTestbed::new(1, true);
    setup.all(|node| node.ignored_password = Some(TARPIT));
    let journal = Journal::open();
    for guess in 0..20 {
        setup.log_in(format!("\0bad{guess}\0{TARPIT}").as_bytes());
        setup.testbed.run_for(SECOND);
    }
    guesser(&mut setup, TARPIT, 30);
    setup.testbed.run_for(SECOND + 500 * MILLISECOND);
    let client = setup.log_in(TOKEN);
    setup.testbed.run_for(100 * MILLISECOND);
    assert_eq!(setup.testbed.take_answers(client).len(), 1, "its node has no pause");
    setup.testbed.run_for(2 * SECOND);
    let told = journal.with(&["giving up a link to a node"]);
    let left_out = Journal::sum(&told, "suppressed");
    assert!(told.len() <= 23 && told.len() as u64 + left_out >= 40, "{left_out} {told:#?}");
}
