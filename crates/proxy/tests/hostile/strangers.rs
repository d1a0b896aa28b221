//! Another node at the address of a node: of another cluster, or of this one. It gets no query, its
//! verdict on a login counts for nothing, and the right node is used again later.

use shunt_proxy::control::state::ControlRequest;
use shunt_reactor::sim::{MILLISECOND, SECOND};
use shunt_testing::{bytes, simulated};
use shunt_topology::NodeId;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::{OVERLOADED, UNAUTHORIZED};

use super::handshake_node::{Reaction, select};
use super::handshake_testbed::{HandshakeTestbed, TOKEN};

/// Gives the address of a node to another with this host id and cluster; resets the links to the
/// old one.
fn replace(setup: &mut HandshakeTestbed, node: usize, identity: (u128, &str)) {
    setup.with_node(node, |node, io| {
        node.identity = (identity.0, identity.1.to_owned());
        node.queries.clear();
        (node.logins, node.accepted) = (0, 0);
        node.reset_connections(io, None);
    });
}

fn refused(setup: &HandshakeTestbed, node: u16) -> u64 {
    setup.testbed.scene.metrics[0].nodes.node(NodeId(node)).strangers.get()
}

/// Sends enough queries for every node to have its turn.
fn ask_all(setup: &mut HandshakeTestbed, client: shunt_reactor::sim::HostId<simulated::Client>) {
    for _ in 0..20 {
        assert_eq!(setup.ask(client, "SELECT 1"), opcode::RESULT);
    }
}

#[test]
fn another_cluster_or_another_node_at_a_nodes_address_gets_no_query() {
    let (mut setup, client) = HandshakeTestbed::with_client(3);
    let (own, cluster) =
        (setup.testbed.scene.ring.nodes[0].host_id, setup.testbed.scene.ring.cluster_name.clone());
    let second = setup.testbed.scene.ring.nodes[1].host_id;
    for identity in
        [(99, "Another"), (own, "Another"), (99, cluster.as_str()), (second, cluster.as_str())]
    {
        replace(&mut setup, 0, identity);
        setup.testbed.run_for(30 * SECOND);
        ask_all(&mut setup, client);
        let stranger = setup.node(0);
        assert!(stranger.queries.is_empty(), "{identity:?} was asked {:?}", stranger.queries);
        assert_eq!(stranger.connections(), 0, "no link stays open");
        assert!(
            (1..20).contains(&stranger.logins),
            "{} logins were shown to a stranger",
            stranger.logins
        );
        assert!(refused(&setup, 0) > 0, "and it is counted");
        // The right node is back.
        replace(&mut setup, 0, (own, &cluster));
        setup.testbed.run_for(30 * SECOND);
        ask_all(&mut setup, client);
        assert!(!setup.node(0).queries.is_empty());
    }
    assert!(
        setup
            .testbed
            .scene
            .asked_of_control()
            .contains(&ControlRequest::NodeUnreachable(NodeId(0)))
    );
}

/// A node that replaced another at its address is accepted as soon as the control plane has read of
/// it, whatever was known of the address before.
#[test]
fn a_node_that_was_replaced_is_let_in_when_it_is_known() {
    let (mut setup, client) = HandshakeTestbed::with_client(2);
    let cluster = setup.testbed.scene.ring.cluster_name.clone();
    replace(&mut setup, 0, (77, &cluster));
    setup.testbed.run_for(60 * SECOND);
    assert_eq!(setup.node(0).connections(), 0);
    setup.testbed.scene.ring.nodes[0].host_id = 77;
    setup.testbed.scene.post_cluster();
    setup.testbed.run_for(SECOND / 10);
    assert_eq!(setup.node(0).connections(), 1);
    ask_all(&mut setup, client);
    assert!(!setup.node(0).queries.is_empty());
}

/// The control plane reports another node at the address of a link that is still open to the old
/// one.
#[test]
fn links_to_a_node_that_was_replaced_are_not_its_successors() {
    let (mut setup, _) = HandshakeTestbed::with_client(2);
    setup.testbed.scene.ring.nodes[0].host_id = 77;
    setup.testbed.scene.post_cluster();
    setup.testbed.run_for(5 * SECOND);
    assert_eq!(setup.node(0).connections(), 0, "it says that it is the old one");
}

/// A stranger that takes any password must not let clients in.
#[test]
fn a_stranger_cannot_say_that_a_login_is_right() {
    let mut setup = HandshakeTestbed::new(1, true);
    replace(&mut setup, 0, (99, "Another"));
    let client = setup.log_in(TOKEN);
    setup.testbed.closed(client);
    assert!(setup.testbed.take_answers(client).is_empty(), "neither yes nor no");
    let mut mixed = HandshakeTestbed::new(2, true);
    replace(&mut mixed, 0, (99, "Another"));
    for token in [b"\0ann\0one", b"\0ann\0two"] {
        let client = mixed.log_in(token);
        assert_eq!(mixed.next_opcode(client), opcode::AUTH_SUCCESS, "the other node knows");
    }
    assert!(mixed.node(0).queries.is_empty());
}

/// Links without a login check the node's identity all the same, before they take queries.
#[test]
fn strangers_where_nobody_logs_in() {
    let mut setup = HandshakeTestbed::new(2, false);
    replace(&mut setup, 0, (99, "Another"));
    let client = setup.testbed.started_offender(4);
    ask_all(&mut setup, client);
    assert!(setup.node(0).queries.is_empty());
    replace(&mut setup, 1, (98, "Another"));
    setup.testbed.run_for(10 * SECOND);
    setup.testbed.send(client, &select(1));
    setup.testbed.run_for(10 * SECOND);
    assert_eq!(setup.testbed.take_answers(client)[0].error().0, OVERLOADED);
    assert!(setup.testbed.scene.world.host(setup.nodes[1]).queries.is_empty());
}

/// A node that does not identify itself gets nothing either.
#[test]
fn a_node_that_does_not_introduce_itself() {
    for reaction in [Reaction::Refuse(UNAUTHORIZED), Reaction::Refuse(OVERLOADED), Reaction::Ignore]
    {
        let (mut setup, client) = HandshakeTestbed::with_client(2);
        setup.with_node(0, |node, io| {
            node.identification = reaction;
            node.queries.clear();
            node.reset_connections(io, None);
        });
        setup.testbed.run_for(10 * SECOND);
        ask_all(&mut setup, client);
        let node = setup.node(0);
        assert!(
            node.queries.is_empty() && node.identity_queries < 60,
            "{reaction:?} {}",
            node.identity_queries
        );
        setup.with_node(0, |node, _| node.identification = Reaction::Accept);
        setup.testbed.run_for(30 * SECOND);
        ask_all(&mut setup, client);
        assert!(!setup.node(0).queries.is_empty(), "{reaction:?}");
    }
}

/// A node that refuses to identify itself to one role serves the others as before.
#[test]
fn a_role_that_may_not_ask_who_is_there_costs_the_others_no_node() {
    let (mut setup, _) = HandshakeTestbed::with_client(2);
    setup.all(|node| node.hides_identity_from = Some(b"\0eve\0secret"));
    for _ in 0..10 {
        let eve = setup.log_in(b"\0eve\0secret");
        setup.testbed.run_for(100 * MILLISECOND);
        assert!(setup.testbed.take_answers(eve).is_empty(), "neither yes nor no");
        let before = setup.count(|node| node.accepted);
        let ann = setup.log_in(TOKEN);
        assert_eq!(setup.next_opcode(ann), opcode::AUTH_SUCCESS);
        // Her pool of that keyspace needs its own links, at once.
        setup.testbed.send(ann, &bytes::query(4, 1, &format!("USE ks{before}")));
        setup.testbed.run_for(10 * MILLISECOND);
        let answers = setup.testbed.take_answers(ann);
        assert_eq!(answers.first().map(|answer| answer.header.opcode), Some(opcode::RESULT));
    }
    assert_eq!((refused(&setup, 0), refused(&setup, 1)), (0, 0), "no strangers");
}

/// The check costs one query per link, not one per query.
#[test]
fn a_link_is_asked_once_who_it_leads_to() {
    let (mut setup, client) = HandshakeTestbed::with_client(3);
    assert_eq!(setup.count(|node| node.identity_queries), 3);
    ask_all(&mut setup, client);
    setup.testbed.send(client, &bytes::query(4, 1, "USE ks"));
    assert_eq!(setup.next_opcode(client), opcode::RESULT);
    setup.testbed.run_for(SECOND);
    ask_all(&mut setup, client);
    assert_eq!(setup.count(|node| node.identity_queries), 6);
}
