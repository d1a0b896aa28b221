//! A role that takes all the pools it can get leaves other roles theirs.

use shunt_reactor::sim::{MILLISECOND, SECOND};
use shunt_testing::bytes;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::OVERLOADED;

use super::handshake_node::Reaction;
use super::handshake_testbed::{HandshakeTestbed, TOKEN};
use super::support::scene::OTHER_AUTHENTICATOR;

/// Cassandra ignores the first part of a PLAIN message, and so it makes no pool of its own.
#[test]
fn logins_that_differ_in_what_nodes_ignore_share_a_pool() {
    let mut setup = HandshakeTestbed::new(1, true);
    for first in ["", "0", "1", "bob"] {
        let client = setup.log_in(format!("{first}\0ann\0secret").as_bytes());
        assert_eq!(setup.next_opcode(client), opcode::AUTH_SUCCESS, "{first}");
    }
    assert_eq!(setup.count(|node| node.logins), 1, "the first was believed for all");
}

/// With an authenticator that may read it, that part does make a pool.
#[test]
fn one_role_with_many_logins_leaves_another_its_pools() {
    let mut setup = HandshakeTestbed::new(1, true);
    setup.testbed.scene.options.authenticator = OTHER_AUTHENTICATOR;
    setup.testbed.scene.post_cluster();
    let mut refused = 0;
    for number in 0..1_100 {
        let client = setup.log_in(format!("{number}\0ann\0secret").as_bytes());
        refused += usize::from(setup.next_opcode(client) == opcode::ERROR);
    }
    assert_eq!(refused, 1_100 - 1_024 / 2);
    let bob = setup.log_in(b"\0bob\0secret");
    assert_eq!(setup.next_opcode(bob), opcode::AUTH_SUCCESS);
    assert_eq!(setup.ask(bob, "USE k1"), opcode::RESULT);
}

#[test]
fn one_role_that_uses_many_keyspaces_leaves_another_its_pools() {
    let mut setup = HandshakeTestbed::new(1, true);
    let mut refused = 0;
    for number in 0..1_100 {
        let client = setup.log_in(b"\0ann\0secret");
        assert_eq!(setup.next_opcode(client), opcode::AUTH_SUCCESS, "{number}");
        setup.testbed.send(client, &bytes::query(4, 1, &format!("USE k{number}")));
        setup.testbed.answered(client, 1);
        let answers = setup.testbed.take_answers(client);
        if answers[0].header.opcode == opcode::ERROR {
            assert_eq!(answers[0].error().0, OVERLOADED);
            refused += 1;
        }
    }
    assert!(refused >= 1_100 - 1_024 / 2, "{refused}");
    let bob = setup.log_in(b"\0bob\0secret");
    assert_eq!(setup.next_opcode(bob), opcode::AUTH_SUCCESS);
    assert_eq!(setup.ask(bob, "USE k1"), opcode::RESULT);
}

/// Nodes check 128 unknown logins of a core at a time. The others go on when one of them is over,
/// not at the next tick.
#[test]
fn logins_beyond_those_at_a_time_wait_in_line() {
    let mut setup = HandshakeTestbed::new(1, true);
    let clients: Vec<_> = (0..300).map(|_| setup.testbed.offender()).collect();
    for client in &clients {
        setup.testbed.send(*client, &bytes::startup(4, None));
        setup.testbed.answered(*client, 1);
        setup.testbed.take_answers(*client);
    }
    for (number, client) in clients.iter().enumerate() {
        let token = format!("\0role{number}\0secret");
        setup.testbed.send(*client, &bytes::auth_response(4, token.as_bytes()));
    }
    setup.testbed.run_for(100 * MILLISECOND);
    for client in clients {
        let answers = setup.testbed.take_answers(client);
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].header.opcode, opcode::AUTH_SUCCESS);
    }
}

/// The login of a role that is logged in already opens no link that serves, so nothing but its turn
/// may bring it to a node before the next tick.
#[test]
fn a_login_in_line_goes_on_when_another_ends() {
    let (mut setup, _) = HandshakeTestbed::with_client(2);
    let clients: Vec<_> = (0..128)
        .map(|number| {
            let client = setup.log_in(TOKEN);
            assert_eq!(setup.next_opcode(client), opcode::AUTH_SUCCESS, "{number}");
            client
        })
        .collect();
    // Nodes are not asked again at once.
    setup.testbed.run_for(3 * SECOND);
    setup.all(|node| node.keyspace = Reaction::Ignore);
    for (number, client) in clients.iter().enumerate() {
        setup.testbed.send(*client, &bytes::query(4, 1, &format!("USE k{number}")));
    }
    setup.testbed.run_for(20 * MILLISECOND);
    assert_eq!(setup.count(|node| node.uses), 128, "as many as one role may have");
    let before = setup.count(|node| node.logins);
    let late = setup.log_in(TOKEN);
    setup.testbed.run_for(20 * MILLISECOND);
    assert_eq!(setup.count(|node| node.logins), before, "it waits in line");
    for node in setup.nodes.clone() {
        setup.testbed.scene.world.with(node, |node, io| node.refuse_use(io, "k0"));
    }
    setup.testbed.run_for(20 * MILLISECOND);
    let answers = setup.testbed.take_answers(late);
    assert_eq!(answers.first().map(|answer| answer.header.opcode), Some(opcode::AUTH_SUCCESS));
}
