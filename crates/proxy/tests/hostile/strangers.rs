//! Somebody else at the address of a node: of another cluster, or another node of this one. They get no query, their word
//! on a login counts for nothing, and whoever belongs there is used again.

use shunt_proxy::control::state::ControlRequest;
use shunt_reactor::sim::{MILLISECOND, SECOND};
use shunt_topology::NodeId;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::{OVERLOADED, UNAUTHORIZED};

use super::bytes;
use super::logins::{Gate, TOKEN};
use super::porter::{Door, select};

/// Its address was given to somebody with this host id and cluster; whom the others had on links is gone.
fn replace(gate: &mut Gate, node: usize, identity: (u128, &str)) {
    gate.town.scene.world.with(gate.porters[node], |porter, io| {
        porter.identity = (identity.0, identity.1.to_owned());
        porter.queries.clear();
        (porter.logins, porter.connections) = (0, 0);
        porter.throw_out(io, None);
    });
}

fn refused(gate: &Gate, node: u16) -> u64 {
    gate.town.scene.metrics[0].nodes.node(NodeId(node)).strangers.get()
}

/// Asks so often that every node has its turn.
fn ask_all(gate: &mut Gate, client: shunt_reactor::sim::HostId<super::offender::Offender>) {
    for _ in 0..20 {
        assert_eq!(gate.ask(client, "SELECT 1"), opcode::RESULT);
    }
}

#[test]
fn another_cluster_or_another_node_at_a_nodes_address_gets_no_query() {
    let (mut gate, client) = Gate::with_client(3);
    let (own, cluster) = (gate.town.scene.ring.nodes[0].host_id, gate.town.scene.ring.cluster_name.clone());
    let second = gate.town.scene.ring.nodes[1].host_id;
    for identity in [(99, "Another"), (own, "Another"), (99, cluster.as_str()), (second, cluster.as_str())] {
        replace(&mut gate, 0, identity);
        gate.town.pass(30 * SECOND);
        ask_all(&mut gate, client);
        let stranger = gate.town.scene.world.host(gate.porters[0]);
        assert!(stranger.queries.is_empty(), "{identity:?} was asked {:?}", stranger.queries);
        assert_eq!(stranger.guests(), 0, "no link stays open");
        assert!((1..20).contains(&stranger.logins), "{} logins were shown to a stranger", stranger.logins);
        assert!(refused(&gate, 0) > 0, "and it is counted");
        // Whoever belongs there is back.
        replace(&mut gate, 0, (own, &cluster));
        gate.town.pass(30 * SECOND);
        ask_all(&mut gate, client);
        assert!(!gate.town.scene.world.host(gate.porters[0]).queries.is_empty());
    }
    assert!(gate.town.scene.asked_of_control().contains(&ControlRequest::NodeUnreachable(NodeId(0))));
}

/// A node that was replaced at its address is let in as soon as the control plane has read of it, whatever was thought of
/// the address before.
#[test]
fn a_node_that_was_replaced_is_let_in_when_it_is_known() {
    let (mut gate, client) = Gate::with_client(2);
    let cluster = gate.town.scene.ring.cluster_name.clone();
    replace(&mut gate, 0, (77, &cluster));
    gate.town.pass(60 * SECOND);
    assert_eq!(gate.town.scene.world.host(gate.porters[0]).guests(), 0);
    gate.town.scene.ring.nodes[0].host_id = 77;
    gate.town.scene.post_cluster();
    gate.town.pass(SECOND / 10);
    assert_eq!(gate.town.scene.world.host(gate.porters[0]).guests(), 1);
    ask_all(&mut gate, client);
    assert!(!gate.town.scene.world.host(gate.porters[0]).queries.is_empty());
}

/// The other way round: the address is still that of a link that is open, and its node is not the one of it any more.
#[test]
fn links_to_a_node_that_was_replaced_are_not_its_successors() {
    let (mut gate, _) = Gate::with_client(2);
    gate.town.scene.ring.nodes[0].host_id = 77;
    gate.town.scene.post_cluster();
    gate.town.pass(5 * SECOND);
    assert_eq!(gate.town.scene.world.host(gate.porters[0]).guests(), 0, "it says that it is the old one");
}

/// A stranger that takes any password must not let anybody in.
#[test]
fn a_stranger_cannot_say_that_a_login_is_right() {
    let mut gate = Gate::new(1, true);
    replace(&mut gate, 0, (99, "Another"));
    let client = gate.knock(TOKEN);
    gate.town.closed(client);
    assert!(gate.town.take_answers(client).is_empty(), "neither yes nor no");
    let mut mixed = Gate::new(2, true);
    replace(&mut mixed, 0, (99, "Another"));
    for token in [b"\0ann\0one", b"\0ann\0two"] {
        let client = mixed.knock(token);
        assert_eq!(mixed.answer(client), opcode::AUTH_SUCCESS, "the other node knows");
    }
    assert!(mixed.town.scene.world.host(mixed.porters[0]).queries.is_empty());
}

/// Who has no login is not asked for one; queries wait for nodes all the same.
#[test]
fn strangers_where_nobody_logs_in() {
    let mut gate = Gate::new(2, false);
    replace(&mut gate, 0, (99, "Another"));
    let client = gate.town.started_offender(4);
    ask_all(&mut gate, client);
    assert!(gate.town.scene.world.host(gate.porters[0]).queries.is_empty());
    replace(&mut gate, 1, (98, "Another"));
    gate.town.pass(10 * SECOND);
    gate.town.send(client, &select(1));
    gate.town.pass(10 * SECOND);
    assert_eq!(gate.town.take_answers(client)[0].error().0, OVERLOADED);
    assert!(gate.town.scene.world.host(gate.porters[1]).queries.is_empty());
}

/// A node that does not say who it is gets nothing either.
#[test]
fn a_node_that_does_not_introduce_itself() {
    for door in [Door::Refused(UNAUTHORIZED), Door::Refused(OVERLOADED), Door::Silent] {
        let (mut gate, client) = Gate::with_client(2);
        gate.town.scene.world.with(gate.porters[0], |porter, io| {
            porter.introduces = door;
            porter.queries.clear();
            porter.throw_out(io, None);
        });
        gate.town.pass(10 * SECOND);
        ask_all(&mut gate, client);
        let porter = gate.town.scene.world.host(gate.porters[0]);
        assert!(porter.queries.is_empty() && porter.introductions < 60, "{door:?} {}", porter.introductions);
        gate.town.scene.world.with(gate.porters[0], |porter, _| porter.introduces = Door::Open);
        gate.town.pass(30 * SECOND);
        ask_all(&mut gate, client);
        assert!(!gate.town.scene.world.host(gate.porters[0]).queries.is_empty(), "{door:?}");
    }
}

/// What a node refuses to tell one role is between the two: the others are as welcome there as before.
#[test]
fn a_role_that_may_not_ask_who_is_there_costs_the_others_no_node() {
    let (mut gate, _) = Gate::with_client(2);
    gate.all(|porter| porter.refused_introduction = Some(b"\0eve\0secret"));
    for _ in 0..10 {
        let eve = gate.knock(b"\0eve\0secret");
        gate.town.pass(100 * MILLISECOND);
        assert!(gate.town.take_answers(eve).is_empty(), "neither yes nor no");
        let before = gate.count(|porter| porter.connections);
        let ann = gate.knock(TOKEN);
        assert_eq!(gate.answer(ann), opcode::AUTH_SUCCESS);
        // Her pool of that keyspace needs links of its own, at once.
        gate.town.send(ann, &bytes::query(4, 1, &format!("USE ks{before}")));
        gate.town.pass(10 * MILLISECOND);
        let answers = gate.town.take_answers(ann);
        assert_eq!(answers.first().map(|answer| answer.header.opcode), Some(opcode::RESULT));
    }
    assert_eq!((refused(&gate, 0), refused(&gate, 1)), (0, 0), "no strangers");
}

/// It costs one question per link, not one per query.
#[test]
fn a_link_is_asked_once_who_it_leads_to() {
    let (mut gate, client) = Gate::with_client(3);
    assert_eq!(gate.count(|porter| porter.introductions), 3);
    ask_all(&mut gate, client);
    gate.town.send(client, &bytes::query(4, 1, "USE ks"));
    assert_eq!(gate.answer(client), opcode::RESULT);
    gate.town.pass(SECOND);
    ask_all(&mut gate, client);
    assert_eq!(gate.count(|porter| porter.introductions), 6);
}
