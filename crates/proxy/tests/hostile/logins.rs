//! Doors that stay shut: logins and USE that nodes refuse, forget or cannot answer. Whoever waits gets an answer, and
//! what failed once does not fail for ever.

use allocation_counter::measure;
use shunt_reactor::sim::{HostId, MILLISECOND, SECOND};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::{
    BAD_CREDENTIALS, INVALID, IS_BOOTSTRAPPING, OVERLOADED, PROTOCOL_ERROR, SERVER_ERROR,
};

use super::bytes;
use super::offender::Offender;
use super::porter::{Door, Porter, select};
use super::town::Town;

pub const TOKEN: &[u8] = b"\0ann\0secret";

/// A proxy in front of porters, who ask for a login or not.
pub struct Gate {
    pub town: Town,
    pub porters: Vec<HostId<Porter>>,
}

impl Gate {
    pub fn new(nodes: usize, asks: bool) -> Gate {
        let mut town = Town::bare(|options| {
            options.nodes = nodes;
            options.protocol_max = 4;
            if asks {
                options.credentials = vec![("ann".into(), "secret".into())];
            }
        });
        let porters = (0..nodes)
            .map(|index| {
                let address = town.scene.ring.nodes[index].address;
                town.scene.world.kill(town.scene.nodes[index]);
                town.scene.world.stop_listening(town.scene.nodes[index], address);
                let identity = (town.scene.ring.nodes[index].host_id, town.scene.ring.cluster_name.clone());
                let porter = town.scene.world.add("porter", Porter::new(asks, identity));
                town.scene.world.listen(porter, address);
                porter
            })
            .collect();
        Gate { town, porters }
    }

    /// A client is in, and the pool's links are open.
    pub fn with_client(nodes: usize) -> (Gate, HostId<Offender>) {
        let mut gate = Gate::new(nodes, true);
        let client = gate.knock(TOKEN);
        assert_eq!(gate.answer(client), opcode::AUTH_SUCCESS);
        gate.town.pass(3 * SECOND);
        (gate, client)
    }

    pub fn all(&mut self, mut change: impl FnMut(&mut Porter)) {
        for porter in self.porters.clone() {
            self.town.scene.world.with(porter, |porter, _| change(porter));
        }
    }

    pub fn count(&self, of: impl Fn(&Porter) -> u64) -> u64 {
        self.porters.iter().map(|porter| of(self.town.scene.world.host(*porter))).sum()
    }

    pub fn throw_out(&mut self, keyspace: Option<&str>) {
        for porter in self.porters.clone() {
            self.town.scene.world.with(porter, |porter, io| porter.throw_out(io, keyspace));
        }
    }

    /// Somebody who has sent this token; the answer is on its way.
    pub fn knock(&mut self, token: &[u8]) -> HostId<Offender> {
        let client = self.town.offender();
        self.town.send(client, &bytes::startup(4, None));
        self.town.answered(client, 1);
        assert_eq!(self.town.take_answers(client)[0].header.opcode, opcode::AUTHENTICATE);
        self.town.send(client, &bytes::auth_response(4, token));
        client
    }

    /// The opcode of the next answer.
    pub fn answer(&mut self, client: HostId<Offender>) -> u8 {
        self.town.answered(client, 1);
        self.town.take_answers(client)[0].header.opcode
    }

    pub fn ask(&mut self, client: HostId<Offender>, text: &str) -> u8 {
        self.town.send(client, &bytes::query(4, 1, text));
        self.answer(client)
    }
}

#[test]
fn a_wrong_password_is_refused_in_the_nodes_words_and_closed() {
    let mut gate = Gate::new(3, true);
    gate.all(|porter| porter.login = Door::Refused(BAD_CREDENTIALS));
    let client = gate.knock(TOKEN);
    gate.town.closed(client);
    assert_eq!(gate.town.scene.world.host(client).last().error(), (BAD_CREDENTIALS, "the porter says no".into()));
    assert_eq!(gate.count(|porter| porter.logins), 1, "tried once, not on every node");
}

/// A node whose own tables cannot be read refuses everybody for a moment.
#[test]
fn a_role_refused_for_a_moment_is_let_in_afterwards() {
    let (mut gate, first) = Gate::with_client(3);
    gate.all(|porter| porter.login = Door::Refused(BAD_CREDENTIALS));
    let second = gate.knock(TOKEN);
    assert_eq!(gate.answer(second), opcode::ERROR);
    gate.all(|porter| porter.login = Door::Open);
    gate.town.pass(3 * SECOND);
    let third = gate.knock(TOKEN);
    assert_eq!(gate.answer(third), opcode::AUTH_SUCCESS);
    gate.town.send(first, &select(1));
    assert_eq!(gate.answer(first), opcode::RESULT);
}

/// What one node says of a login must not keep a pool from the others, whose links it goes on using.
#[test]
fn a_node_that_refuses_a_role_for_a_moment_costs_the_pool_no_other_node() {
    let (mut gate, _) = Gate::with_client(3);
    let guests = |gate: &Gate| gate.porters.iter().map(|porter| gate.town.scene.world.host(*porter).guests()).collect();
    let all: Vec<usize> = guests(&gate);
    assert_eq!(all, [1, 1, 1]);
    let (first, second) = (gate.porters[0], gate.porters[1]);
    gate.town.scene.world.with(first, |porter, io| {
        porter.login = Door::Refused(BAD_CREDENTIALS);
        porter.throw_out(io, None);
    });
    gate.town.pass(500 * MILLISECOND);
    gate.town.scene.world.with(second, |porter, io| porter.throw_out(io, None));
    gate.town.pass(30 * SECOND);
    let without_first: Vec<usize> = guests(&gate);
    assert_eq!(without_first, [0, 1, 1], "the second node's link is opened again");
    gate.town.scene.world.with(first, |porter, _| porter.login = Door::Open);
    gate.town.pass(30 * SECOND);
    assert_eq!(all, guests(&gate) as Vec<usize>);
}

/// What one client asks for and no node takes must not keep others from the nodes.
#[test]
fn a_compression_that_nodes_refuse_keeps_nobody_else_away() {
    let mut gate = Gate::new(2, true);
    gate.all(|porter| porter.compression = Door::Refused(PROTOCOL_ERROR));
    for _ in 0..8 {
        let odd = gate.town.offender();
        gate.town.send(odd, &bytes::startup(4, Some("snappy")));
        gate.town.answered(odd, 1);
        gate.town.send(odd, &bytes::auth_response(4, b"\0nobody\0guess"));
        gate.town.pass(4 * SECOND);
    }
    let tried = gate.count(|porter| porter.connections);
    assert!(tried < 400, "{tried} connections in half a minute");
    let client = gate.knock(TOKEN);
    gate.town.pass(300 * MILLISECOND);
    let answers = gate.town.take_answers(client);
    assert_eq!(answers.first().map(|answer| answer.header.opcode), Some(opcode::AUTH_SUCCESS), "within its patience");
}

#[test]
fn a_node_that_leaves_while_it_checks_a_login() {
    let (mut gate, _) = Gate::with_client(2);
    gate.all(|porter| porter.logins = 0);
    gate.all(|porter| porter.login = Door::Silent);
    let second = gate.knock(TOKEN);
    gate.town.pass(100 * MILLISECOND);
    let asked = (0..2).find(|node| gate.town.scene.world.host(gate.porters[*node]).logins > 0).unwrap();
    gate.all(|porter| porter.login = Door::Open);
    gate.town.scene.ring.nodes[asked].address.set_port(1);
    gate.town.scene.post_cluster();
    assert_eq!(gate.answer(second), opcode::AUTH_SUCCESS);
}

#[test]
fn a_node_that_asks_for_no_login() {
    let mut gate = Gate::new(1, true);
    gate.all(|porter| porter.asks = false);
    for _ in 0..2 {
        let client = gate.knock(TOKEN);
        assert_eq!(gate.answer(client), opcode::AUTH_SUCCESS);
        assert_eq!(gate.ask(client, "SELECT 1"), opcode::RESULT);
        gate.town.pass(3 * SECOND);
    }
}

/// A node does this to every login, each one in turn, so that it is asked first at some time; everybody is let in.
fn lets_everybody_in(sick: impl Fn(&mut Porter)) {
    for node in 0..3 {
        let mut gate = Gate::new(3, true);
        let porter = gate.porters[node];
        gate.town.scene.world.with(porter, |porter, _| sick(porter));
        let clients = [b"\0ann\0one", b"\0ann\0two"].map(|token| gate.knock(token));
        gate.town.pass(4 * SECOND);
        for client in clients {
            let answers = gate.town.take_answers(client);
            let opcode = answers.first().map(|answer| answer.header.opcode);
            assert_eq!(opcode, Some(opcode::AUTH_SUCCESS), "node {node}");
        }
        assert!(gate.town.scene.world.host(porter).logins < 50, "nor is it hammered");
    }
}

#[test]
fn a_node_that_hangs_keeps_nobody_from_logging_in() {
    lets_everybody_in(|porter| porter.login = Door::Silent);
}

/// That a node is overloaded, or cannot read its own tables, says nothing of a password.
#[test]
fn a_node_that_cannot_check_logins_keeps_nobody_out() {
    for code in [OVERLOADED, SERVER_ERROR, IS_BOOTSTRAPPING] {
        lets_everybody_in(|porter| porter.login = Door::Refused(code));
    }
    lets_everybody_in(|porter| {
        porter.login = Door::Refused(BAD_CREDENTIALS);
        porter.words = "Unable to perform authentication: Cannot achieve consistency level LOCAL_ONE";
    });
}

#[test]
fn a_login_nobody_answers() {
    let mut gate = Gate::new(3, true);
    gate.all(|porter| porter.login = Door::Silent);
    let client = gate.knock(TOKEN);
    gate.town.closed(client);
    // Some drivers would take any ERROR for a wrong password and never come back.
    assert!(gate.town.take_answers(client).is_empty());
    gate.all(|porter| porter.login = Door::Open);
    gate.town.pass(15 * SECOND);
    let client = gate.knock(TOKEN);
    assert_eq!(gate.answer(client), opcode::AUTH_SUCCESS);
}

/// Whoever guesses passwords while no node can say no must not use up what others need.
#[test]
fn a_flood_of_wrong_passwords_while_nodes_are_silent() {
    let mut gate = Gate::new(3, true);
    gate.all(|porter| porter.login = Door::Silent);
    for guess in 0..1100 {
        let client = gate.knock(format!("\0ann\0{guess}").as_bytes());
        gate.town.pass(MILLISECOND);
        gate.town.scene.world.with(client, |client, io| client.vanish(io));
    }
    gate.all(|porter| porter.login = Door::Open);
    gate.town.pass(15 * SECOND);
    let client = gate.knock(TOKEN);
    assert_eq!(gate.answer(client), opcode::AUTH_SUCCESS);
}

#[test]
fn use_of_a_keyspace_that_does_not_exist() {
    let mut gate = Gate::new(3, false);
    gate.all(|porter| porter.keyspace = Door::Refused(INVALID));
    let client = gate.town.started_offender(4);
    for _ in 0..10 {
        assert_eq!(gate.ask(client, "USE nowhere"), opcode::ERROR);
        assert_eq!(gate.ask(client, "SELECT 1"), opcode::RESULT);
    }
    gate.all(|porter| assert!(porter.queries.iter().all(|(keyspace, _)| keyspace.is_none())));
    // Nothing is wrong with the nodes, and nobody else is kept from them.
    gate.all(|porter| porter.keyspace = Door::Open);
    let before = gate.count(|porter| porter.uses);
    let other = gate.town.started_offender(4);
    assert_eq!(gate.ask(other, "USE somewhere"), opcode::RESULT);
    gate.town.pass(10 * MILLISECOND);
    assert_eq!(gate.count(|porter| porter.uses) - before, 3);
}

/// A client held back because its pool has no link is not forgotten when one node refuses the keyspace.
#[test]
fn a_query_held_while_one_node_refuses_the_keyspace() {
    let mut gate = Gate::new(2, false);
    let client = gate.town.started_offender(4);
    assert_eq!(gate.ask(client, "USE ks"), opcode::RESULT);
    gate.town.pass(SECOND);
    let lagging = gate.porters[0];
    gate.town.scene.world.with(lagging, |porter, _| porter.keyspace = Door::Refused(INVALID));
    // The other node's answer comes later than the refusal.
    let other = gate.porters[1];
    let core = gate.town.scene.cores[0];
    gate.town.scene.world.cut(core, other);
    gate.throw_out(Some("ks"));
    gate.town.pass(10 * MILLISECOND);
    gate.town.send(client, &select(1));
    gate.town.pass(700 * MILLISECOND);
    gate.town.scene.world.join(core, other);
    gate.town.pass(2500 * MILLISECOND);
    assert_eq!(gate.town.take_answers(client).len(), 1, "answered as soon as a link is open");
}

/// A USE given up must not be mistaken for the next one.
#[test]
fn a_use_given_up_and_another_one() {
    let mut gate = Gate::new(1, false);
    let client = gate.town.started_offender(4);
    gate.all(|porter| porter.keyspace = Door::Silent);
    assert_eq!(gate.ask(client, "USE slow"), opcode::ERROR);
    gate.town.send(client, &bytes::query(4, 2, "USE nowhere"));
    gate.town.pass(100 * MILLISECOND);
    // From here on "slow" can be used; "nowhere" is refused.
    let porter = gate.porters[0];
    gate.town.scene.world.with(porter, |porter, _| porter.refused_keyspace = Some("nowhere"));
    gate.all(|porter| porter.keyspace = Door::Open);
    assert_eq!(gate.answer(client), opcode::ERROR);
    assert_eq!(gate.ask(client, "SELECT 1"), opcode::RESULT);
    let porter = gate.town.scene.world.host(porter);
    assert_eq!(porter.queries.last().unwrap().0, None, "the client is where it was");
}

#[test]
fn pools_nobody_uses_are_closed() {
    let mut gate = Gate::new(2, false);
    let client = gate.town.started_offender(4);
    for keyspace in ["a", "b", "c"] {
        assert_eq!(gate.ask(client, &format!("USE {keyspace}")), opcode::RESULT);
    }
    gate.town.pass(SECOND);
    assert_eq!(gate.count(|porter| porter.guests() as u64), 8);
    gate.town.pass(130 * SECOND);
    assert_eq!(gate.count(|porter| porter.guests() as u64), 2, "those of the client's own pool");
    gate.town.scene.world.with(client, |client, io| client.vanish(io));
    gate.town.pass(130 * SECOND);
    assert_eq!(gate.count(|porter| porter.guests() as u64), 0);
}

/// Whoever goes through many keyspaces leaves pools behind, which must not keep others from theirs.
#[test]
fn pools_nobody_uses_make_room() {
    let mut gate = Gate::new(1, false);
    let client = gate.town.started_offender(4);
    for number in 0..1_100 {
        assert_eq!(gate.ask(client, &format!("USE k{number}")), opcode::RESULT, "{number}");
    }
    let other = gate.town.started_offender(4);
    assert_eq!(gate.ask(other, "USE somewhere"), opcode::RESULT);
    let guests = gate.count(|porter| porter.guests() as u64);
    assert!(guests <= 1_024, "{guests} links");
}

/// Links closed because nobody needed them count as closed, so that a node that is down is not hammered later.
#[test]
fn a_node_that_is_down_is_tried_ever_more_rarely() {
    let mut gate = Gate::new(2, false);
    let client = gate.town.started_offender(4);
    for keyspace in ["a", "b"] {
        assert_eq!(gate.ask(client, &format!("USE {keyspace}")), opcode::RESULT);
    }
    gate.town.pass(130 * SECOND);
    let gone = gate.porters[0];
    gate.town.scene.world.with(gone, |porter, _| porter.shut = true);
    gate.town.scene.world.with(gone, |porter, io| porter.throw_out(io, Some("b")));
    let before = gate.town.scene.world.host(gone).connections;
    gate.town.pass(60 * SECOND);
    let tried = gate.town.scene.world.host(gone).connections - before;
    assert!((3..30).contains(&tried), "tried {tried} times in a minute");
    gate.town.scene.world.with(gone, |porter, _| porter.shut = false);
}

/// A request sent before USE means the keyspace before it, also the second time it is sent.
#[test]
fn a_retry_after_use_keeps_its_keyspace() {
    let mut gate = Gate::new(2, false);
    let client = gate.town.started_offender(4);
    assert_eq!(gate.ask(client, "USE one"), opcode::RESULT);
    gate.town.pass(SECOND);
    gate.all(|porter| porter.holds = true);
    gate.town.send(client, &select(7));
    gate.town.pass(10 * MILLISECOND);
    assert_eq!(gate.ask(client, "USE two"), opcode::RESULT);
    gate.town.pass(SECOND / 2);
    let holder = gate.porters.iter().copied().find(|porter| {
        gate.town.scene.world.host(*porter).queries.iter().any(|(_, text)| text.starts_with("SELECT v"))
    });
    gate.town.scene.world.with(holder.unwrap(), |porter, io| porter.throw_out(io, Some("one")));
    gate.town.pass(10 * MILLISECOND);
    for porter in gate.porters.clone() {
        gate.town.scene.world.with(porter, |porter, io| porter.let_go(io));
    }
    gate.town.answered(client, 1);
    let mut keyspaces = Vec::new();
    gate.all(|porter| {
        let selects = porter.queries.iter().filter(|(_, text)| text.starts_with("SELECT v"));
        keyspaces.extend(selects.map(|(keyspace, _)| keyspace.clone().unwrap()));
    });
    assert_eq!(keyspaces, ["one", "one"]);
}

#[test]
fn an_outage_of_hours_takes_no_memory() {
    let mut gate = Gate::new(2, false);
    let clients: Vec<_> = (0..100).map(|_| gate.town.started_offender(4)).collect();
    let addresses: Vec<_> = gate.town.scene.ring.nodes.iter().map(|node| node.address).collect();
    for (porter, address) in gate.porters.clone().into_iter().zip(&addresses) {
        gate.town.scene.world.stop_listening(porter, *address);
    }
    gate.throw_out(None);
    let ask_all = |gate: &mut Gate| {
        for client in &clients {
            gate.town.send(*client, &select(1));
        }
        gate.town.pass(6 * SECOND);
        for client in &clients {
            let answers = gate.town.take_answers(*client);
            assert_eq!(answers[0].error().0, OVERLOADED);
        }
    };
    (0..5).for_each(|_| ask_all(&mut gate));
    let counted = measure(|| (0..40).for_each(|_| ask_all(&mut gate)));
    assert!(counted.bytes_current < 100_000, "{counted:?}");
    for (porter, address) in gate.porters.clone().into_iter().zip(&addresses) {
        gate.town.scene.world.listen(porter, *address);
    }
    gate.town.pass(15 * SECOND);
    gate.town.send(clients[0], &select(1));
    assert_eq!(gate.answer(clients[0]), opcode::RESULT);
}
