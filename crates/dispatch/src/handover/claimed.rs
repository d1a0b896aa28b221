//! Tests with an agent that claims connections which other loops of the same process have.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use shunt_handover::message::{Ending, Read};
use shunt_handover::session::{
    AgentHandshake, Established, Instance, OwnerId, Protocol, SharedKey,
};
use shunt_reactor::sim::{HostId, MILLISECOND, Options, SECOND, World};
use shunt_reactor::{Accepted, CloseReason, Service};

use super::tests::options;
use super::*;
use crate::options::DispatchOptions;

fn address(last: u8, port: u16) -> SocketAddr {
    ([192, 0, 2, last], port).into()
}

fn key() -> SharedKey {
    SharedKey::new(&[1; 20]).expect("it is long enough")
}

/// An agent with the key that does nothing except send what the test tells it to.
struct Liar {
    handshake: AgentHandshake,
    open: HashMap<ConnId, Option<Box<Established>>>,
    heard: Vec<(OwnerId, Ticket, String)>,
}

impl Liar {
    fn new() -> Self {
        let handshake = AgentHandshake::new(key(), Protocol::Http, Instance(5), [9; 32]);
        Self { handshake, open: HashMap::new(), heard: Vec::new() }
    }

    fn say(&mut self, io: &mut Io, owner: OwnerId, ticket: Ticket, message: &Message<'_>) {
        let mut open =
            self.open.iter_mut().filter_map(|(conn, open)| Some((*conn, open.as_mut()?)));
        let (conn, open) =
            open.find(|(_, open)| open.owner == owner).expect("its owner has connected");
        open.encoder.message(ticket, message, io.output(conn)).expect("it can be said");
    }

    fn answers(&self, owner: OwnerId, ticket: Ticket) -> Vec<&str> {
        let to = |(by, of, _): &&(OwnerId, Ticket, String)| (*by, *of) == (owner, ticket);
        self.heard.iter().filter(to).map(|(_, _, message)| message.as_str()).collect()
    }
}

impl Service for Liar {
    type Mail = ();

    fn accepted(&mut self, io: &mut Io, conn: ConnId, _: &Accepted) {
        self.handshake.hello(io.output(conn));
        self.open.insert(conn, None);
    }

    fn connected(&mut self, _: &mut Io, _: ConnId) {}

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let mut used = 0;
        let state = self.open.get_mut(&conn).expect("it was accepted");
        if state.is_none() {
            let Some((read, session)) =
                self.handshake.read(data, io.output(conn)).expect("it can be")
            else {
                return 0;
            };
            (used, *state) = (read, Some(Box::new(session)));
        }
        let session = state.as_mut().expect("it is open");
        while let Some((read, what)) = session.decoder.next(&data[used..]).expect("it can be") {
            used += read;
            if let Read::Message(ticket, message) = what {
                self.heard.push((session.owner, ticket, format!("{message:?}")));
            }
        }
        used
    }

    fn closed(&mut self, _: &mut Io, conn: ConnId, _: CloseReason) {
        self.open.remove(&conn);
    }

    fn drained(&mut self, _: &mut Io, _: ConnId) {}
    fn timer(&mut self, _: &mut Io, _: u64) {}
    fn mail(&mut self, _: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _: &mut Io) {}
}

/// A client that waits.
struct Asker;

impl Service for Asker {
    type Mail = ();

    fn accepted(&mut self, _: &mut Io, _: ConnId, _: &Accepted) {}
    fn connected(&mut self, _: &mut Io, _: ConnId) {}
    fn received(&mut self, _: &mut Io, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
    fn closed(&mut self, _: &mut Io, _: ConnId, _: CloseReason) {}
    fn drained(&mut self, _: &mut Io, _: ConnId) {}
    fn timer(&mut self, _: &mut Io, _: u64) {}
    fn mail(&mut self, _: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _: &mut Io) {}
}

/// The host's steering table, shared by its loops.
#[derive(Clone, Debug, Default)]
struct Table(Arc<Mutex<HashMap<Flow, SocketAddr>>>);

impl Steer for Table {
    fn steer(&mut self, flow: Flow, agent: SocketAddr, _: u64) -> bool {
        self.0.lock().expect("it can be").insert(flow, agent);
        true
    }

    fn unsteer(&mut self, flow: Flow) {
        self.0.lock().expect("it can be").remove(&flow);
    }

    fn hold(&mut self, _: Flow, _: u64) -> bool {
        false
    }

    fn seen(&self, _: Flow) -> Option<Seen> {
        None
    }
}

/// Two loops of one process, the second with a client, and an agent connected to both.
struct Loops {
    world: World,
    agent: HostId<Liar>,
    loops: [HostId<Dispatcher>; 2],
    client: HostId<Asker>,
    clients: Clients,
    table: Table,
}

impl Loops {
    fn new() -> Self {
        let mut world = World::new(3, Options::calm());
        let (clients, table) = (Clients::default(), Table::default());
        let agent = world.add("agent", Liar::new());
        world.listen(agent, address(10, 7000));
        let loops = [1, 2].map(|owner| {
            let steer: Option<Box<dyn Steer>> = Some(Box::new(table.clone()));
            let dispatcher = DispatchOptions {
                clients: clients.clone(),
                owner: OwnerId(owner),
                steer,
                ..options()
            };
            world.add("dispatcher", Dispatcher::new(dispatcher))
        });
        // The kernel gives a new connection to any loop; here to the second.
        world.listen(loops[1], address(1, 80));
        let client = world.add("client", Asker);
        let mut scene = Self { world, agent, loops, client, clients, table };
        let up = |world: &mut World| loops.iter().all(|each| world.host(*each).backends_up() == 1);
        assert!(scene.world.run_until(10 * SECOND, up));
        scene
    }

    /// Flow of a client that has sent a request and waits.
    fn flow_of_client(&mut self) -> Flow {
        let dispatcher = self.loops[1];
        self.world.with(self.client, |_, io| {
            let conn = io.connect(address(1, 80), SECOND);
            io.output(conn).extend_from_slice(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        });
        assert!(self.world.run_until(SECOND, |world| world.host(dispatcher).exchanges() == 1));
        let (_, client) =
            self.world.host(dispatcher).clients.iter().next().expect("it has connected");
        client.flow
    }

    /// Sends a message to an owner; returns the owner's replies.
    fn say(&mut self, owner: u64, ticket: u64, message: &Message<'_>) -> Vec<String> {
        self.world
            .with(self.agent, |agent, io| agent.say(io, OwnerId(owner), Ticket(ticket), message));
        self.world.run_for(100 * MILLISECOND);
        let answers = self.world.host(self.agent).answers(OwnerId(owner), Ticket(ticket));
        answers.into_iter().map(str::to_owned).collect()
    }

    /// Claims that the agent has this connection from an earlier process.
    fn hold(&mut self, owner: u64, ticket: u64, flow: Flow) -> Vec<String> {
        self.say(
            owner,
            ticket,
            &Message::Held { local: flow.local, peer: flow.peer, from: Instance(77) },
        )
    }
}

#[test]
fn no_agent_is_believed_to_have_a_connection_that_another_loop_has() {
    let mut scene = Loops::new();
    let flow = scene.flow_of_client();
    // The loop and the notation of the addresses make no difference.
    let mapped = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    };
    let of_six = Flow { local: mapped(flow.local), peer: mapped(flow.peer) };
    for (ticket, owner, flow) in [(1 << 40, 1, flow), (1 << 41, 2, flow), (1 << 42, 1, of_six)] {
        let answers = scene.hold(owner, ticket, flow);
        assert_eq!(answers, ["Release"], "loop {owner}, {flow:?}");
        assert_eq!(
            scene.table.0.lock().expect("it can be").len(),
            0,
            "its packets go to the agent's host"
        );
    }
    assert_eq!(
        scene.world.host(scene.loops[1]).exchanges(),
        1,
        "the client waits for its answer as before"
    );
}

#[test]
fn a_connection_that_nobody_has_is_one_loops_and_free_when_it_is_over() {
    let mut scene = Loops::new();
    let flow = Flow { local: address(1, 80), peer: ([198, 51, 100, 7], 5000).into() };
    assert_eq!(scene.hold(1, 1 << 40, flow), ["HeldAck"]);
    assert_eq!(scene.table.0.lock().expect("it can be").get(&flow), Some(&address(10, 7000)));
    assert_eq!(scene.hold(2, 1 << 41, flow), ["Release"], "the first loop has it");
    let closed = Message::Closed { reason: Ending::Client, answer_sent: 1, is_complete: true };
    assert_eq!(scene.say(1, 1 << 40, &closed), ["HeldAck", "Settled"]);
    assert!(scene.clients.is_empty() && scene.table.0.lock().expect("it can be").is_empty());
}

#[test]
fn nothing_is_kept_of_clients_that_are_gone() {
    let mut scene = Loops::new();
    scene.flow_of_client();
    assert_eq!(scene.clients.len(), 1);
    scene.world.kill(scene.client);
    scene.world.run_for(90 * SECOND);
    assert!(scene.clients.is_empty());
}
