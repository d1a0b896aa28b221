//! Handshake steps that keep failing: logins and USE that nodes refuse, forget or cannot answer. A
//! waiting client gets an answer, and one failure is not for ever.

use allocation_counter::measure;
use shunt_reactor::sim::{MILLISECOND, SECOND};
use shunt_testing::bytes;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::{
    BAD_CREDENTIALS, INVALID, IS_BOOTSTRAPPING, OVERLOADED, PROTOCOL_ERROR, SERVER_ERROR,
};

use super::handshake_node::{HandshakeNode, Reaction, select};
use super::handshake_testbed::{HandshakeTestbed, TOKEN};

#[test]
fn a_wrong_password_is_refused_in_the_nodes_words_and_closed() {
    let mut setup = HandshakeTestbed::new(3, true);
    setup.all(|node| node.login = Reaction::Refuse(BAD_CREDENTIALS));
    let client = setup.log_in(TOKEN);
    setup.testbed.closed(client);
    assert_eq!(
        setup.testbed.scene.world.host(client).last().error(),
        (BAD_CREDENTIALS, "the node says no".into())
    );
    assert_eq!(setup.count(|node| node.logins), 1, "tried once, not on every node");
}

/// A node that cannot read its own tables refuses all roles for a moment.
#[test]
fn a_role_refused_for_a_moment_is_let_in_afterwards() {
    let (mut setup, first) = HandshakeTestbed::with_client(3);
    setup.all(|node| node.login = Reaction::Refuse(BAD_CREDENTIALS));
    let second = setup.log_in(TOKEN);
    assert_eq!(setup.next_opcode(second), opcode::ERROR);
    setup.all(|node| node.login = Reaction::Accept);
    setup.testbed.run_for(3 * SECOND);
    let third = setup.log_in(TOKEN);
    assert_eq!(setup.next_opcode(third), opcode::AUTH_SUCCESS);
    setup.testbed.send(first, &select(1));
    assert_eq!(setup.next_opcode(first), opcode::RESULT);
}

/// One node's verdict on a login must not keep a pool from the others, whose links it goes on
/// using.
#[test]
fn a_node_that_refuses_a_role_for_a_moment_costs_the_pool_no_other_node() {
    let (mut setup, _) = HandshakeTestbed::with_client(3);
    let links = |setup: &HandshakeTestbed| {
        setup.nodes.iter().map(|node| setup.testbed.scene.world.host(*node).connections()).collect()
    };
    let all: Vec<usize> = links(&setup);
    assert_eq!(all, [1, 1, 1]);
    let (first, second) = (setup.nodes[0], setup.nodes[1]);
    setup.testbed.scene.world.with(first, |node, io| {
        node.login = Reaction::Refuse(BAD_CREDENTIALS);
        node.reset_connections(io, None);
    });
    setup.testbed.run_for(500 * MILLISECOND);
    setup.testbed.scene.world.with(second, |node, io| node.reset_connections(io, None));
    setup.testbed.run_for(30 * SECOND);
    let without_first: Vec<usize> = links(&setup);
    assert_eq!(without_first, [0, 1, 1], "the second node's link is opened again");
    setup.testbed.scene.world.with(first, |node, _| node.login = Reaction::Accept);
    setup.testbed.run_for(30 * SECOND);
    assert_eq!(all, links(&setup) as Vec<usize>);
}

/// One client's options that no node takes must not keep others from the nodes.
#[test]
fn a_compression_that_nodes_refuse_keeps_nobody_else_away() {
    let mut setup = HandshakeTestbed::new(2, true);
    setup.all(|node| node.compression = Reaction::Refuse(PROTOCOL_ERROR));
    for _ in 0..8 {
        let odd = setup.testbed.offender();
        setup.testbed.send(odd, &bytes::startup(4, Some("snappy")));
        setup.testbed.answered(odd, 1);
        setup.testbed.send(odd, &bytes::auth_response(4, b"\0nobody\0guess"));
        setup.testbed.run_for(4 * SECOND);
    }
    let tried = setup.count(|node| node.accepted);
    assert!(tried < 400, "{tried} connections in half a minute");
    let client = setup.log_in(TOKEN);
    setup.testbed.run_for(300 * MILLISECOND);
    let answers = setup.testbed.take_answers(client);
    assert_eq!(
        answers.first().map(|answer| answer.header.opcode),
        Some(opcode::AUTH_SUCCESS),
        "within its patience"
    );
}

#[test]
fn a_node_that_leaves_while_it_checks_a_login() {
    let (mut setup, _) = HandshakeTestbed::with_client(2);
    setup.all(|node| node.logins = 0);
    setup.all(|node| node.login = Reaction::Ignore);
    let second = setup.log_in(TOKEN);
    setup.testbed.run_for(100 * MILLISECOND);
    let asked = (0..2).find(|node| setup.node(*node).logins > 0).unwrap();
    setup.all(|node| node.login = Reaction::Accept);
    setup.testbed.scene.ring.nodes[asked].address.set_port(1);
    setup.testbed.scene.post_cluster();
    assert_eq!(setup.next_opcode(second), opcode::AUTH_SUCCESS);
}

#[test]
fn a_node_that_asks_for_no_login() {
    let mut setup = HandshakeTestbed::new(1, true);
    setup.all(|node| node.asks_for_login = false);
    for _ in 0..2 {
        let client = setup.log_in(TOKEN);
        assert_eq!(setup.next_opcode(client), opcode::AUTH_SUCCESS);
        assert_eq!(setup.ask(client, "SELECT 1"), opcode::RESULT);
        setup.testbed.run_for(3 * SECOND);
    }
}

/// Applies a fault for every login to each node in turn, so that it is asked first at some time;
/// all clients get in.
fn lets_everybody_in(sick: impl Fn(&mut HandshakeNode)) {
    for node in 0..3 {
        let mut setup = HandshakeTestbed::new(3, true);
        setup.with_node(node, |node, _| sick(node));
        let clients = [b"\0ann\0one", b"\0ann\0two"].map(|token| setup.log_in(token));
        setup.testbed.run_for(4 * SECOND);
        for client in clients {
            let answers = setup.testbed.take_answers(client);
            let opcode = answers.first().map(|answer| answer.header.opcode);
            assert_eq!(opcode, Some(opcode::AUTH_SUCCESS), "node {node}");
        }
        assert!(setup.node(node).logins < 50, "nor is it hammered");
    }
}

#[test]
fn a_node_that_hangs_keeps_nobody_from_logging_in() {
    lets_everybody_in(|node| node.login = Reaction::Ignore);
}

/// An overloaded node, or one that cannot read its own tables, says nothing about a password.
#[test]
fn a_node_that_cannot_check_logins_keeps_nobody_out() {
    for code in [OVERLOADED, SERVER_ERROR, IS_BOOTSTRAPPING] {
        lets_everybody_in(|node| node.login = Reaction::Refuse(code));
    }
    lets_everybody_in(|node| {
        node.login = Reaction::Refuse(BAD_CREDENTIALS);
        node.error_text =
            "Unable to perform authentication: Cannot achieve consistency level LOCAL_ONE";
    });
}

#[test]
fn a_login_nobody_answers() {
    let mut setup = HandshakeTestbed::new(3, true);
    setup.all(|node| node.login = Reaction::Ignore);
    let client = setup.log_in(TOKEN);
    setup.testbed.closed(client);
    // Some drivers would take any ERROR for a wrong password and never come back.
    assert!(setup.testbed.take_answers(client).is_empty());
    setup.all(|node| node.login = Reaction::Accept);
    setup.testbed.run_for(15 * SECOND);
    let client = setup.log_in(TOKEN);
    assert_eq!(setup.next_opcode(client), opcode::AUTH_SUCCESS);
}

/// A client that guesses passwords while no node can say no must not use up resources of others.
#[test]
fn a_flood_of_wrong_passwords_while_nodes_are_silent() {
    let mut setup = HandshakeTestbed::new(3, true);
    setup.all(|node| node.login = Reaction::Ignore);
    let mut guessers = Vec::new();
    for guess in 0..300 {
        guessers.push(setup.log_in(format!("\0ann\0{guess}").as_bytes()));
        setup.testbed.run_for(MILLISECOND);
    }
    let logins = setup.count(|node| node.logins);
    assert!(logins <= 64, "{logins} of one name at a time");
    // Others of that name wait, and get no ERROR that looks like a wrong password.
    let client = setup.log_in(TOKEN);
    setup.testbed.closed(client);
    assert!(setup.testbed.take_answers(client).is_empty());
    setup.all(|node| node.login = Reaction::Accept);
    // Whoever claims that name, other roles have room.
    let bob = setup.log_in(b"\0bob\0secret");
    assert_eq!(setup.next_opcode(bob), opcode::AUTH_SUCCESS);
    for guesser in guessers {
        setup.testbed.reset(guesser);
    }
    setup.testbed.run_for(15 * SECOND);
    let client = setup.log_in(TOKEN);
    assert_eq!(setup.next_opcode(client), opcode::AUTH_SUCCESS);
}

#[test]
fn use_of_a_keyspace_that_does_not_exist() {
    let mut setup = HandshakeTestbed::new(3, false);
    setup.all(|node| node.keyspace = Reaction::Refuse(INVALID));
    let client = setup.testbed.started_offender(4);
    setup.testbed.run_for(SECOND);
    let before = setup.count(|node| node.accepted);
    for _ in 0..10 {
        assert_eq!(setup.ask(client, "USE nowhere"), opcode::ERROR);
        assert_eq!(setup.ask(client, "SELECT 1"), opcode::RESULT);
    }
    assert_eq!(setup.count(|node| node.accepted) - before, 10, "one node is asked, not all");
    setup.all(|node| assert!(node.queries.iter().all(|(keyspace, _)| keyspace.is_none())));
    // The nodes are sound, and other clients still reach them.
    setup.all(|node| node.keyspace = Reaction::Accept);
    let before = setup.count(|node| node.uses);
    let other = setup.testbed.started_offender(4);
    assert_eq!(setup.ask(other, "USE somewhere"), opcode::RESULT);
    setup.testbed.run_for(10 * MILLISECOND);
    assert_eq!(setup.count(|node| node.uses) - before, 3);
}

/// A client held back because its pool has no link is not forgotten when one node refuses the
/// keyspace.
#[test]
fn a_query_held_while_one_node_refuses_the_keyspace() {
    let mut setup = HandshakeTestbed::new(2, false);
    let client = setup.testbed.started_offender(4);
    assert_eq!(setup.ask(client, "USE ks"), opcode::RESULT);
    setup.testbed.run_for(SECOND);
    let lagging = setup.nodes[0];
    setup.testbed.scene.world.with(lagging, |node, _| node.keyspace = Reaction::Refuse(INVALID));
    // The other node's answer comes later than the refusal.
    let other = setup.nodes[1];
    let core = setup.testbed.scene.cores[0];
    setup.testbed.scene.world.cut(core, other);
    setup.reset_links(Some("ks"));
    setup.testbed.run_for(10 * MILLISECOND);
    setup.testbed.send(client, &select(1));
    setup.testbed.run_for(700 * MILLISECOND);
    setup.testbed.scene.world.join(core, other);
    setup.testbed.run_for(2500 * MILLISECOND);
    assert_eq!(setup.testbed.take_answers(client).len(), 1, "answered as soon as a link is open");
}

/// A USE given up must not be mistaken for the next one.
#[test]
fn a_use_given_up_and_another_one() {
    let mut setup = HandshakeTestbed::new(1, false);
    let client = setup.testbed.started_offender(4);
    setup.all(|node| node.keyspace = Reaction::Ignore);
    assert_eq!(setup.ask(client, "USE slow"), opcode::ERROR);
    setup.testbed.send(client, &bytes::query(4, 2, "USE nowhere"));
    setup.testbed.run_for(100 * MILLISECOND);
    // From here on "slow" can be used; "nowhere" is refused.
    let node = setup.nodes[0];
    setup.testbed.scene.world.with(node, |node, _| node.refused_keyspace = Some("nowhere"));
    setup.all(|node| node.keyspace = Reaction::Accept);
    assert_eq!(setup.next_opcode(client), opcode::ERROR);
    assert_eq!(setup.ask(client, "SELECT 1"), opcode::RESULT);
    let node = setup.testbed.scene.world.host(node);
    assert_eq!(node.queries.last().unwrap().0, None, "the client is where it was");
}

#[test]
fn pools_nobody_uses_are_closed() {
    let mut setup = HandshakeTestbed::new(2, false);
    let client = setup.testbed.started_offender(4);
    for keyspace in ["a", "b", "c"] {
        assert_eq!(setup.ask(client, &format!("USE {keyspace}")), opcode::RESULT);
    }
    setup.testbed.run_for(SECOND);
    assert_eq!(setup.count(|node| node.connections() as u64), 8);
    setup.testbed.run_for(130 * SECOND);
    assert_eq!(setup.count(|node| node.connections() as u64), 2, "those of the client's own pool");
    setup.testbed.reset(client);
    setup.testbed.run_for(130 * SECOND);
    assert_eq!(setup.count(|node| node.connections() as u64), 0);
}

/// A client that goes through many keyspaces leaves pools behind, which must not keep others from
/// theirs.
#[test]
fn pools_nobody_uses_make_room() {
    let mut setup = HandshakeTestbed::new(1, false);
    let client = setup.testbed.started_offender(4);
    for number in 0..1_100 {
        assert_eq!(setup.ask(client, &format!("USE k{number}")), opcode::RESULT, "{number}");
    }
    let other = setup.testbed.started_offender(4);
    assert_eq!(setup.ask(other, "USE somewhere"), opcode::RESULT);
    let links = setup.count(|node| node.connections() as u64);
    assert!(links <= 1_024, "{links} links");
}

/// Links closed for lack of use count as closed, so that a node that is down is not hammered later.
#[test]
fn a_node_that_is_down_is_tried_ever_more_rarely() {
    let mut setup = HandshakeTestbed::new(2, false);
    let client = setup.testbed.started_offender(4);
    for keyspace in ["a", "b"] {
        assert_eq!(setup.ask(client, &format!("USE {keyspace}")), opcode::RESULT);
    }
    setup.testbed.run_for(130 * SECOND);
    let gone = setup.nodes[0];
    setup.testbed.scene.world.with(gone, |node, _| node.refuses_connections = true);
    setup.testbed.scene.world.with(gone, |node, io| node.reset_connections(io, Some("b")));
    let before = setup.testbed.scene.world.host(gone).accepted;
    setup.testbed.run_for(60 * SECOND);
    let tried = setup.testbed.scene.world.host(gone).accepted - before;
    assert!((3..30).contains(&tried), "tried {tried} times in a minute");
    setup.testbed.scene.world.with(gone, |node, _| node.refuses_connections = false);
}

/// A request sent before USE means the keyspace before it, also at the second attempt.
#[test]
fn a_retry_after_use_keeps_its_keyspace() {
    let mut setup = HandshakeTestbed::new(2, false);
    let client = setup.testbed.started_offender(4);
    assert_eq!(setup.ask(client, "USE one"), opcode::RESULT);
    setup.testbed.run_for(SECOND);
    setup.all(|node| node.holds_queries = true);
    setup.testbed.send(client, &select(7));
    setup.testbed.run_for(10 * MILLISECOND);
    assert_eq!(setup.ask(client, "USE two"), opcode::RESULT);
    setup.testbed.run_for(SECOND / 2);
    let holder = setup.nodes.iter().copied().find(|node| {
        setup
            .testbed
            .scene
            .world
            .host(*node)
            .queries
            .iter()
            .any(|(_, text)| text.starts_with("SELECT v"))
    });
    setup
        .testbed
        .scene
        .world
        .with(holder.unwrap(), |node, io| node.reset_connections(io, Some("one")));
    setup.testbed.run_for(10 * MILLISECOND);
    for node in setup.nodes.clone() {
        setup.testbed.scene.world.with(node, |node, io| node.release(io));
    }
    setup.testbed.answered(client, 1);
    let mut keyspaces = Vec::new();
    setup.all(|node| {
        let selects = node.queries.iter().filter(|(_, text)| text.starts_with("SELECT v"));
        keyspaces.extend(selects.map(|(keyspace, _)| keyspace.clone().unwrap()));
    });
    assert_eq!(keyspaces, ["one", "one"]);
}

#[test]
fn an_outage_of_hours_takes_no_memory() {
    // The records of refused queries have a bound of their own.
    let mut setup = HandshakeTestbed::with(2, false, |config| config.slow_query_ms = 0);
    let clients: Vec<_> = (0..100).map(|_| setup.testbed.started_offender(4)).collect();
    let addresses: Vec<_> =
        setup.testbed.scene.ring.nodes.iter().map(|node| node.address).collect();
    for (node, address) in setup.nodes.clone().into_iter().zip(&addresses) {
        setup.testbed.scene.world.stop_listening(node, *address);
    }
    setup.reset_links(None);
    let ask_all = |setup: &mut HandshakeTestbed| {
        for client in &clients {
            setup.testbed.send(*client, &select(1));
        }
        setup.testbed.run_for(6 * SECOND);
        for client in &clients {
            let answers = setup.testbed.take_answers(*client);
            assert_eq!(answers[0].error().0, OVERLOADED);
        }
    };
    (0..5).for_each(|_| ask_all(&mut setup));
    let counted = measure(|| (0..40).for_each(|_| ask_all(&mut setup)));
    assert!(counted.bytes_current < 100_000, "{counted:?}");
    for (node, address) in setup.nodes.clone().into_iter().zip(&addresses) {
        setup.testbed.scene.world.listen(node, *address);
    }
    setup.testbed.run_for(15 * SECOND);
    setup.testbed.send(clients[0], &select(1));
    assert_eq!(setup.next_opcode(clients[0]), opcode::RESULT);
}

/// Logins cost hashes of all their bytes, and no node has to see such a one.
#[test]
fn a_login_that_is_far_too_long_is_refused_here() {
    let mut setup = HandshakeTestbed::new(1, true);
    let token = |length: usize| [&b"\0ann\0"[..], &vec![b'x'; length - 5]].concat();
    let client = setup.log_in(&token(16 * 1024 + 1));
    setup.testbed.closed(client);
    let (code, why) = setup.testbed.scene.world.host(client).last().error();
    assert!(code == INVALID && why.contains("16385 bytes"), "{code:#x} {why}");
    assert_eq!(setup.count(|node| node.logins), 0);
    let client = setup.log_in(&token(16 * 1024));
    assert_eq!(setup.next_opcode(client), opcode::AUTH_SUCCESS);
}
