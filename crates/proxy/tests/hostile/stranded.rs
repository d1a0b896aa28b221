//! Clients whose pool can never open a link again: their login, their keyspace or what they asked for in STARTUP is refused
//! by every node now. They are told so and closed, because a driver logs in again only on a new connection. What a single
//! node says, or does not say, closes nobody.

use shunt_reactor::sim::{HostId, MILLISECOND, SECOND};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::{BAD_CREDENTIALS, INVALID, OVERLOADED, PROTOCOL_ERROR, SERVER_ERROR};

use super::bytes;
use super::logins::{Gate, TOKEN};
use super::offender::Offender;
use super::porter::{Door, select};

/// It has asked something, is told this, and closed.
fn told_and_closed(gate: &mut Gate, client: HostId<Offender>, code: i32, words: &str) {
    gate.town.closed(client);
    let (found, text) = gate.town.scene.world.host(client).last().error();
    assert!(found == code && text.contains(words), "{found:#x} {text}");
}

fn is_open(gate: &Gate, client: HostId<Offender>) -> bool {
    !gate.town.scene.world.host(client).is_closed()
}

fn dismissed(gate: &Gate) -> u64 {
    gate.town.scene.metrics[0].clients_closed.of(shunt_proxy::metrics::Closing::AccessLost).get()
}

#[test]
fn a_password_that_was_changed() {
    let (mut gate, asking) = Gate::with_client(3);
    let idle = gate.knock(TOKEN);
    assert_eq!(gate.answer(idle), opcode::AUTH_SUCCESS);
    gate.all(|porter| porter.login = Door::Refused(BAD_CREDENTIALS));
    gate.town.pass(10 * SECOND);
    assert!(is_open(&gate, asking) && is_open(&gate, idle), "what is open goes on");
    gate.throw_out(None);
    gate.town.pass(MILLISECOND * 10);
    gate.town.send(asking, &select(3));
    told_and_closed(&mut gate, asking, BAD_CREDENTIALS, "the porter says no");
    gate.town.closed(idle);
    assert!(gate.town.take_answers(idle).is_empty(), "it has asked nothing");
    assert_eq!(dismissed(&gate), 2);
    // The driver logs in again, with what it has: not by what was believed of it before.
    let old = gate.knock(TOKEN);
    told_and_closed(&mut gate, old, BAD_CREDENTIALS, "the porter says no");
    gate.all(|porter| porter.login = Door::Open);
    let new = gate.knock(b"\0ann\0new");
    assert_eq!(gate.answer(new), opcode::AUTH_SUCCESS);
    assert_eq!(gate.ask(new, "SELECT 1"), opcode::RESULT);
}

/// By a restart of each node in turn. The control plane has no login, so nobody tells the cores.
#[test]
fn a_login_that_nodes_ask_for_now() {
    let mut gate = Gate::new(3, false);
    let clients: Vec<_> = (0..3).map(|_| gate.town.started_offender(4)).collect();
    for porter in gate.porters.clone() {
        gate.town.pass(15 * SECOND);
        assert_eq!(gate.ask(clients[0], "SELECT 1"), opcode::RESULT, "while one node serves");
        gate.town.scene.world.with(porter, |porter, io| {
            porter.asks = true;
            porter.throw_out(io, None);
        });
    }
    gate.town.pass(MILLISECOND * 10);
    gate.town.send(clients[0], &select(3));
    told_and_closed(&mut gate, clients[0], BAD_CREDENTIALS, "ask for a login");
    for client in &clients {
        gate.town.closed(*client);
    }
    gate.town.pass(SECOND);
    let again = gate.knock(TOKEN);
    assert_eq!(gate.answer(again), opcode::AUTH_SUCCESS);
    assert_eq!(gate.ask(again, "SELECT 1"), opcode::RESULT);
}

/// One node asks for a login and has clients that gave it; the others do not yet. Whoever has none is served by these, and
/// the first is not hammered for it.
#[test]
fn a_node_that_asks_for_a_login_before_the_others() {
    let mut gate = Gate::new(3, false);
    let old = gate.town.started_offender(4);
    gate.town.pass(SECOND);
    let first = gate.porters[0];
    gate.town.scene.world.with(first, |porter, io| {
        porter.asks = true;
        porter.throw_out(io, None);
    });
    gate.town.scene.options.credentials = vec![("ann".into(), "secret".into())];
    gate.town.scene.post_cluster();
    let new = gate.knock(TOKEN);
    assert_eq!(gate.answer(new), opcode::AUTH_SUCCESS);
    gate.town.pass(30 * SECOND);
    let before = gate.town.scene.world.host(first).connections;
    gate.town.pass(60 * SECOND);
    let tried = gate.town.scene.world.host(first).connections - before;
    assert!(tried < 20, "{tried} connections in a minute");
    assert_eq!(gate.ask(old, "SELECT 1"), opcode::RESULT);
    assert_eq!(gate.ask(new, "SELECT 1"), opcode::RESULT);
    assert_eq!(dismissed(&gate), 0);
}

#[test]
fn a_keyspace_that_was_dropped() {
    let mut gate = Gate::new(3, false);
    let [asking, idle, elsewhere] = [0; 3].map(|_| gate.town.started_offender(4));
    for client in [asking, idle] {
        assert_eq!(gate.ask(client, "USE ks"), opcode::RESULT);
    }
    gate.town.pass(SECOND);
    gate.all(|porter| porter.keyspace = Door::Refused(INVALID));
    gate.throw_out(Some("ks"));
    gate.town.pass(MILLISECOND * 10);
    let before = gate.count(|porter| porter.uses);
    gate.town.send(asking, &select(3));
    told_and_closed(&mut gate, asking, INVALID, "the porter says no");
    gate.town.closed(idle);
    let tried = gate.count(|porter| porter.uses) - before;
    assert!(tried < 20, "{tried} times");
    assert_eq!(gate.ask(elsewhere, "SELECT 1"), opcode::RESULT);
    // On a new connection it is as with any keyspace that does not exist, and comes back with it.
    let again = gate.town.started_offender(4);
    assert_eq!(gate.ask(again, "USE ks"), opcode::ERROR);
    gate.all(|porter| porter.keyspace = Door::Open);
    assert_eq!(gate.ask(again, "USE ks"), opcode::RESULT);
    assert_eq!(gate.ask(again, "SELECT 1"), opcode::RESULT);
}

/// Nodes of another release, say.
#[test]
fn a_compression_that_nodes_take_no_longer() {
    let mut gate = Gate::new(2, false);
    let client = gate.town.offender();
    gate.town.send(client, &bytes::startup(4, Some("snappy")));
    gate.town.answered(client, 1);
    gate.town.take_answers(client);
    gate.town.pass(SECOND);
    gate.all(|porter| porter.compression = Door::Refused(PROTOCOL_ERROR));
    gate.throw_out(None);
    gate.town.pass(MILLISECOND * 10);
    gate.town.send(client, &select(1));
    told_and_closed(&mut gate, client, SERVER_ERROR, "connect again");
}

/// Of what nodes do.
type Change = fn(&mut Gate);

/// What is no verdict of every node closes nobody, however long it takes; and all goes on when it is over.
#[test]
fn nobody_is_closed_for_what_is_no_verdict_of_all() {
    let cases: [(&str, Change); 4] = [
        ("one refuses", |gate| refuse(gate, 1)),
        ("one hangs", |gate| {
            refuse(gate, 2);
            gate.all(|porter| porter.login = if porter.login == Door::Open { Door::Silent } else { porter.login });
        }),
        ("one cannot be reached", |gate| {
            refuse(gate, 2);
            gate.all(|porter| porter.shut = porter.login == Door::Open);
        }),
        ("all are overloaded", |gate| gate.all(|porter| porter.login = Door::Refused(OVERLOADED))),
    ];
    for (case, change) in cases {
        let (mut gate, client) = Gate::with_client(3);
        change(&mut gate);
        gate.throw_out(None);
        gate.town.pass(60 * SECOND);
        assert!(is_open(&gate, client) && dismissed(&gate) == 0, "{case}");
        gate.all(|porter| (porter.login, porter.shut) = (Door::Open, false));
        gate.town.pass(30 * SECOND);
        assert_eq!(gate.ask(client, "SELECT 1"), opcode::RESULT, "{case}");
    }
}

/// Nodes that cannot read their roles say it with the code of a wrong password, each kind and release in its own words.
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
        let (mut gate, client) = Gate::with_client(3);
        gate.all(|porter| (porter.login, porter.words) = (Door::Refused(BAD_CREDENTIALS), words));
        gate.throw_out(None);
        gate.town.pass(60 * SECOND);
        assert!(is_open(&gate, client) && dismissed(&gate) == 0, "{words}");
        gate.all(|porter| porter.login = Door::Open);
        gate.town.pass(30 * SECOND);
        assert_eq!(gate.ask(client, "SELECT 1"), opcode::RESULT, "{words}");
    }
}

/// The first of them refuse the login from now on.
fn refuse(gate: &mut Gate, count: usize) {
    for porter in gate.porters.clone().into_iter().take(count) {
        gate.town.scene.world.with(porter, |porter, _| porter.login = Door::Refused(BAD_CREDENTIALS));
    }
}

/// A node that the control plane says is down has no voice.
#[test]
fn a_node_that_is_down_keeps_nobody_waiting() {
    let (mut gate, client) = Gate::with_client(3);
    refuse(&mut gate, 2);
    gate.all(|porter| porter.shut = porter.login == Door::Open);
    gate.throw_out(None);
    gate.town.pass(10 * SECOND);
    assert!(is_open(&gate, client));
    gate.town.scene.said_up[2] = false;
    gate.town.scene.post_cluster();
    gate.town.closed(client);
}
