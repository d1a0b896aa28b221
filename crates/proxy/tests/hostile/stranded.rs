//! Clients whose pool can never open a link again: every node now refuses their login, their
//! keyspace or their STARTUP options. They are told so and closed, because a driver logs in again
//! only on a new connection. A single node's answer, or silence, closes nobody.

use shunt_reactor::sim::{HostId, MILLISECOND, SECOND};
use shunt_testing::{bytes, simulated};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::{
    BAD_CREDENTIALS, INVALID, OVERLOADED, PROTOCOL_ERROR, SERVER_ERROR,
};

use super::handshake_node::{Reaction, select};
use super::handshake_testbed::{HandshakeTestbed, TOKEN};

/// Waits until the client, which has sent a request, is closed, and checks its last error.
fn told_and_closed(
    setup: &mut HandshakeTestbed,
    client: HostId<simulated::Client>,
    code: i32,
    words: &str,
) {
    setup.testbed.closed(client);
    let (found, text) = setup.testbed.scene.world.host(client).last().error();
    assert!(found == code && text.contains(words), "{found:#x} {text}");
}

fn is_open(setup: &HandshakeTestbed, client: HostId<simulated::Client>) -> bool {
    !setup.testbed.scene.world.host(client).is_closed()
}

fn dismissed(setup: &HandshakeTestbed) -> u64 {
    setup.testbed.scene.metrics[0]
        .clients_closed
        .of(shunt_proxy::metrics::Closing::AccessLost)
        .get()
}

#[test]
fn a_password_that_was_changed() {
    let (mut setup, asking) = HandshakeTestbed::with_client(3);
    let idle = setup.log_in(TOKEN);
    assert_eq!(setup.next_opcode(idle), opcode::AUTH_SUCCESS);
    setup.all(|node| node.login = Reaction::Refuse(BAD_CREDENTIALS));
    setup.testbed.run_for(10 * SECOND);
    assert!(is_open(&setup, asking) && is_open(&setup, idle), "what is open goes on");
    setup.reset_links(None);
    setup.testbed.run_for(MILLISECOND * 10);
    setup.testbed.send(asking, &select(3));
    told_and_closed(&mut setup, asking, BAD_CREDENTIALS, "the node says no");
    setup.testbed.closed(idle);
    assert!(setup.testbed.take_answers(idle).is_empty(), "it has asked nothing");
    assert_eq!(dismissed(&setup), 2);
    // The driver logs in again with the same token: no cached login lets it in.
    let old = setup.log_in(TOKEN);
    told_and_closed(&mut setup, old, BAD_CREDENTIALS, "the node says no");
    setup.all(|node| node.login = Reaction::Accept);
    let new = setup.log_in(b"\0ann\0new");
    assert_eq!(setup.next_opcode(new), opcode::AUTH_SUCCESS);
    assert_eq!(setup.ask(new, "SELECT 1"), opcode::RESULT);
}

/// Each node restarts in turn and then asks for a login. The control plane has none, so nobody
/// tells the cores.
#[test]
fn a_login_that_nodes_ask_for_now() {
    let mut setup = HandshakeTestbed::new(3, false);
    let clients: Vec<_> = (0..3).map(|_| setup.testbed.started_offender(4)).collect();
    for node in setup.nodes.clone() {
        setup.testbed.run_for(15 * SECOND);
        assert_eq!(setup.ask(clients[0], "SELECT 1"), opcode::RESULT, "while one node serves");
        setup.testbed.scene.world.with(node, |node, io| {
            node.asks_for_login = true;
            node.reset_connections(io, None);
        });
    }
    setup.testbed.run_for(MILLISECOND * 10);
    setup.testbed.send(clients[0], &select(3));
    told_and_closed(&mut setup, clients[0], BAD_CREDENTIALS, "ask for a login");
    for client in &clients {
        setup.testbed.closed(*client);
    }
    setup.testbed.run_for(SECOND);
    let again = setup.log_in(TOKEN);
    assert_eq!(setup.next_opcode(again), opcode::AUTH_SUCCESS);
    assert_eq!(setup.ask(again, "SELECT 1"), opcode::RESULT);
}

/// One node asks for a login and has clients that gave it; the others do not yet. These serve
/// clients without a login, and the first is not hammered.
#[test]
fn a_node_that_asks_for_a_login_before_the_others() {
    let mut setup = HandshakeTestbed::new(3, false);
    let old = setup.testbed.started_offender(4);
    setup.testbed.run_for(SECOND);
    let first = setup.nodes[0];
    setup.testbed.scene.world.with(first, |node, io| {
        node.asks_for_login = true;
        node.reset_connections(io, None);
    });
    setup.testbed.scene.options.credentials = vec![("ann".into(), "secret".into())];
    setup.testbed.scene.post_cluster();
    let new = setup.log_in(TOKEN);
    assert_eq!(setup.next_opcode(new), opcode::AUTH_SUCCESS);
    setup.testbed.run_for(30 * SECOND);
    let before = setup.testbed.scene.world.host(first).accepted;
    setup.testbed.run_for(60 * SECOND);
    let tried = setup.testbed.scene.world.host(first).accepted - before;
    assert!(tried < 20, "{tried} connections in a minute");
    assert_eq!(setup.ask(old, "SELECT 1"), opcode::RESULT);
    assert_eq!(setup.ask(new, "SELECT 1"), opcode::RESULT);
    assert_eq!(dismissed(&setup), 0);
}

#[test]
fn a_keyspace_that_was_dropped() {
    let mut setup = HandshakeTestbed::new(3, false);
    let [asking, idle, elsewhere] = [0; 3].map(|_| setup.testbed.started_offender(4));
    for client in [asking, idle] {
        assert_eq!(setup.ask(client, "USE ks"), opcode::RESULT);
    }
    setup.testbed.run_for(SECOND);
    setup.all(|node| node.keyspace = Reaction::Refuse(INVALID));
    setup.reset_links(Some("ks"));
    setup.testbed.run_for(MILLISECOND * 10);
    let before = setup.count(|node| node.uses);
    setup.testbed.send(asking, &select(3));
    told_and_closed(&mut setup, asking, INVALID, "the node says no");
    setup.testbed.closed(idle);
    let tried = setup.count(|node| node.uses) - before;
    assert!(tried < 20, "{tried} times");
    assert_eq!(setup.ask(elsewhere, "SELECT 1"), opcode::RESULT);
    // A new connection sees a keyspace that does not exist, and works again once it does.
    let again = setup.testbed.started_offender(4);
    assert_eq!(setup.ask(again, "USE ks"), opcode::ERROR);
    setup.all(|node| node.keyspace = Reaction::Accept);
    assert_eq!(setup.ask(again, "USE ks"), opcode::RESULT);
    assert_eq!(setup.ask(again, "SELECT 1"), opcode::RESULT);
}

/// The nodes may be of another release now, for example.
#[test]
fn a_compression_that_nodes_take_no_longer() {
    let mut setup = HandshakeTestbed::new(2, false);
    let client = setup.testbed.offender();
    setup.testbed.send(client, &bytes::startup(4, Some("snappy")));
    setup.testbed.answered(client, 1);
    setup.testbed.take_answers(client);
    setup.testbed.run_for(SECOND);
    setup.all(|node| node.compression = Reaction::Refuse(PROTOCOL_ERROR));
    setup.reset_links(None);
    setup.testbed.run_for(MILLISECOND * 10);
    setup.testbed.send(client, &select(1));
    told_and_closed(&mut setup, client, SERVER_ERROR, "connect again");
}

/// A change of the nodes' behaviour.
type Change = fn(&mut HandshakeTestbed);

/// A client is closed only if every node refuses, however long it takes; and all goes on
/// afterwards.
#[test]
fn nobody_is_closed_for_what_is_no_verdict_of_all() {
    let cases: [(&str, Change); 4] = [
        ("one refuses", |setup| refuse(setup, 1)),
        ("one hangs", |setup| {
            refuse(setup, 2);
            setup.all(|node| {
                node.login =
                    if node.login == Reaction::Accept { Reaction::Ignore } else { node.login }
            });
        }),
        ("one cannot be reached", |setup| {
            refuse(setup, 2);
            setup.all(|node| node.refuses_connections = node.login == Reaction::Accept);
        }),
        ("all are overloaded", |setup| setup.all(|node| node.login = Reaction::Refuse(OVERLOADED))),
    ];
    for (case, change) in cases {
        let (mut setup, client) = HandshakeTestbed::with_client(3);
        change(&mut setup);
        setup.reset_links(None);
        setup.testbed.run_for(60 * SECOND);
        assert!(is_open(&setup, client) && dismissed(&setup) == 0, "{case}");
        setup.all(|node| (node.login, node.refuses_connections) = (Reaction::Accept, false));
        setup.testbed.run_for(30 * SECOND);
        assert_eq!(setup.ask(client, "SELECT 1"), opcode::RESULT, "{case}");
    }
}

/// Nodes that cannot read their roles answer with the code of a wrong password, each kind and
/// release with its own message.
#[test]
fn nobody_is_closed_because_nodes_cannot_read_their_roles() {
    for words in [
        "Unable to perform authentication: Cannot achieve consistency level LOCAL_ONE",
        "Error during authentication of user ann : Cannot achieve consistency level LOCAL_ONE",
        "org.apache.cassandra.exceptions.UnavailableException: Cannot achieve consistency level QUORUM",
        "Cannot achieve consistency level for cl ONE. Requires 1, alive 0",
        "Operation timed out for system_auth.roles - received only 0 responses from 1 CL=ONE.",
        "Could not verify password",
    ] {
        let (mut setup, client) = HandshakeTestbed::with_client(3);
        setup
            .all(|node| (node.login, node.error_text) = (Reaction::Refuse(BAD_CREDENTIALS), words));
        setup.reset_links(None);
        setup.testbed.run_for(60 * SECOND);
        assert!(is_open(&setup, client) && dismissed(&setup) == 0, "{words}");
        setup.all(|node| node.login = Reaction::Accept);
        setup.testbed.run_for(30 * SECOND);
        assert_eq!(setup.ask(client, "SELECT 1"), opcode::RESULT, "{words}");
    }
}

/// Makes the first `count` nodes refuse the login from now on.
fn refuse(setup: &mut HandshakeTestbed, count: usize) {
    for node in setup.nodes.clone().into_iter().take(count) {
        setup
            .testbed
            .scene
            .world
            .with(node, |node, _| node.login = Reaction::Refuse(BAD_CREDENTIALS));
    }
}

/// The proxy does not wait for a node that the control plane reports as down.
#[test]
fn a_node_that_is_down_keeps_nobody_waiting() {
    let (mut setup, client) = HandshakeTestbed::with_client(3);
    refuse(&mut setup, 2);
    setup.all(|node| node.refuses_connections = node.login == Reaction::Accept);
    setup.reset_links(None);
    setup.testbed.run_for(10 * SECOND);
    assert!(is_open(&setup, client));
    setup.testbed.scene.said_up[2] = false;
    setup.testbed.scene.post_cluster();
    setup.testbed.closed(client);
}
