//! Owners that have the key and send messages that no real owner sends.

use std::collections::HashMap;
use std::net::SocketAddr;

use shunt_handover::agent::SessionId;
use shunt_handover::message::{Decoder, Encoder, Error};
use shunt_handover::session::{Instance, OwnerHandshake, OwnerId, SharedKey};
use shunt_handover::turns::TURN_BYTES;
use shunt_reactor::sim::{HostId, Options, SECOND, World};
use shunt_reactor::{Accepted, CloseReason, ConnId, Service};

use super::*;
use crate::answer;
use crate::limits;
use crate::offers::tests::connection;
use crate::options::AgentOptions;

const TICKET: Ticket = Ticket(7);
const BODY_BYTES: usize = 1 << 20;

fn address(port: u16) -> SocketAddr {
    ([192, 0, 2, 10], port).into()
}

fn vip() -> SocketAddr {
    ([192, 0, 2, 1], 80).into()
}

/// Records input and sends only what the test tells it to: all owners, and the server.
#[derive(Default)]
struct Station {
    came: HashMap<ConnId, Vec<u8>>,
}

impl Service for Station {
    type Mail = ();

    fn accepted(&mut self, _: &mut Io, conn: ConnId, _: &Accepted) {
        self.came.insert(conn, Vec::new());
    }

    fn connected(&mut self, _: &mut Io, _: ConnId) {}

    fn received(&mut self, _: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        self.came.entry(conn).or_default().extend_from_slice(data);
        data.len()
    }

    fn closed(&mut self, _: &mut Io, conn: ConnId, _: CloseReason) {
        self.came.remove(&conn);
    }

    fn drained(&mut self, _: &mut Io, _: ConnId) {}
    fn timer(&mut self, _: &mut Io, _: u64) {}
    fn mail(&mut self, _: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _: &mut Io) {}
}

fn key() -> SharedKey {
    SharedKey::new(&[7; 32]).expect("it is long enough")
}

/// One control connection, seen from its owner.
struct Control {
    conn: ConnId,
    handshake: OwnerHandshake,
    /// Bytes of the agent's output that were read.
    read: usize,
    codec: Option<(Encoder, Decoder)>,
}

struct Scene {
    world: World,
    agent: HostId<Agent>,
    owners: HostId<Station>,
    server: HostId<Station>,
}

impl Scene {
    fn new() -> Self {
        Self::with_hold(64 << 10, 0)
    }

    /// A scene whose agent holds answers of unknown size up to so many bytes, and for this long.
    fn with_hold(threshold_bytes: u64, hold_ns: u64) -> Self {
        let mut world = World::new(1, Options::calm());
        let (server, owners) =
            (world.add("server", Station::default()), world.add("owners", Station::default()));
        world.listen(server, address(80));
        let agent = Agent::new(AgentOptions {
            protocol: Protocol::Http,
            upstream: address(80),
            key: key(),
            instance: Instance(1),
            threshold_bytes: Some(threshold_bytes),
            hold_ns,
            vips: vec![vip()],
            packet_filter: None,
            upstream_connections_max: 4,
            upstream_timeout_ns: 20 * SECOND,
            random: Box::new(|bytes| bytes.fill(1)),
        });
        let agent = world.add("agent", agent);
        world.listen(agent, address(7000));
        Self { world, agent, owners, server }
    }

    /// Connects, and leaves the agent's greeting unread.
    fn connect(&mut self, owner: u64, nonce: u8) -> Control {
        let conn = self.world.with(self.owners, |_, io| io.connect(address(7000), SECOND));
        let owners = self.owners;
        let has_spoken = |world: &mut World| world.host(owners).came.contains_key(&conn);
        assert!(self.world.run_until(SECOND, has_spoken), "the agent says nothing");
        let handshake =
            OwnerHandshake::new(key(), Protocol::Http, OwnerId(owner), Instance(2), [nonce; 32]);
        Control { conn, handshake, read: 0, codec: None }
    }

    fn came(&self, control: &Control) -> Vec<u8> {
        self.world
            .host(self.owners)
            .came
            .get(&control.conn)
            .map_or_else(Vec::new, |all| all[control.read..].to_vec())
    }

    /// The owner's part of the handshake.
    fn shake(&self, control: &mut Control) -> Vec<u8> {
        let mut out = Vec::new();
        let read = control.handshake.read(&self.came(control), &mut out);
        control.read += read.expect("agents say that").expect("all of it is there").0;
        out
    }

    fn say(&mut self, control: &Control, bytes: &[u8]) {
        self.world.with(self.owners, |_, io| io.output(control.conn).extend_from_slice(bytes));
        self.world.run_for(SECOND / 10);
    }

    /// An owner whose session is open.
    fn owner(&mut self, owner: u64, nonce: u8) -> Control {
        let mut control = self.connect(owner, nonce);
        let hello = self.shake(&mut control);
        self.say(&control, &hello);
        self.is_open(&mut control);
        control
    }

    /// Reads the agent's `WELCOME`.
    fn is_open(&self, control: &mut Control) {
        let read = control.handshake.read(&self.came(control), &mut Vec::new());
        let (used, session) = read.expect("agents say that").expect("all of it is there");
        let session = session.expect("a session");
        control.read += used;
        control.codec = Some((session.encoder, session.decoder));
    }

    /// Kinds of the messages the agent has sent since, except bodies.
    fn heard(&self, control: &mut Control) -> Vec<String> {
        let came = self.came(control);
        let (_, decoder) = control.codec.as_mut().expect("a session");
        let (mut used, mut heard) = (0, Vec::new());
        while let Ok(Some((read, what))) = decoder.next(&came[used..]) {
            used += read;
            if let Read::Message(_, message) = what {
                heard.push(
                    format!("{message:?}").split([' ', '{']).next().unwrap_or_default().to_owned(),
                );
            }
        }
        control.read += used;
        heard
    }

    fn is_closed(&self, control: &Control) -> bool {
        !self.world.host(self.owners).came.contains_key(&control.conn)
    }

    /// The agent's connection for a session, numbered in order of arrival.
    fn conn_of(&self, session: u64) -> ConnId {
        let agent = self.world.host(self.agent);
        agent.sessions[agent.session_keys[&SessionId(session)]].conn
    }

    /// Asks the server, which answers with these fields and this body.
    fn has_answer(&mut self, control: &mut Control, fields: &str, body: &[u8]) {
        let head: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let request =
            message(control, &Message::Request { head, has_body: false, is_idempotent: true });
        self.say(control, &request);
        let conn = *self.world.host(self.server).came.keys().next().expect("the server was asked");
        self.world.with(self.server, |_, io| {
            let out = io.output(conn);
            out.extend(format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n").bytes());
            out.extend_from_slice(body);
        });
        self.world.run_for(SECOND / 10);
    }

    /// Has the server answer a request so that the agent offers the answer.
    fn has_offer(&mut self, control: &mut Control) {
        let fields = format!("Content-Length: {BODY_BYTES}");
        self.has_answer(control, &fields, &vec![b'a'; BODY_BYTES]);
        assert_eq!(self.heard(control), ["HeldEnd", "Offer"]);
    }
}

fn message(control: &mut Control, message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (encoder, _) = control.codec.as_mut().expect("a session");
    let written: Result<(), Error> = encoder.message(TICKET, message, &mut bytes);
    written.expect("it can be said");
    bytes
}

fn take() -> Message<'static> {
    Message::Take { connection: connection(vip()), answer_sent: 0 }
}

#[test]
fn a_message_about_a_taken_offer_ends_that_session_alone() {
    for after in [Message::Fetch, Message::Cancel] {
        let mut scene = Scene::new();
        let (mut other, mut control) = (scene.owner(2, 5), scene.owner(1, 3));
        scene.has_offer(&mut control);
        // The same owner connects again, and all bytes arrive in one turn.
        let mut next = scene.connect(1, 4);
        let hello = scene.shake(&mut next);
        let both = [message(&mut control, &take()), message(&mut control, &after)].concat();
        let (conn, next_conn) = (scene.conn_of(2), scene.conn_of(3));
        scene.world.with(scene.agent, |agent, io| {
            assert_eq!(agent.received(io, conn, &both), both.len());
            assert_eq!(agent.received(io, next_conn, &hello), hello.len());
        });
        scene.world.run_for(SECOND);
        scene.is_open(&mut next);
        assert!(scene.is_closed(&control), "{after:?}");
        assert!(!scene.heard(&mut next).contains(&"Response".to_owned()), "{after:?}");
        // Other owners are served as before.
        assert_eq!(scene.heard(&mut other), ["HeldEnd"]);
        let ping = message(&mut other, &Message::Ping);
        scene.say(&other, &ping);
        assert_eq!(scene.heard(&mut other), ["Pong"], "{after:?}");
        assert_eq!(
            scene.world.host(scene.agent).exchanges(),
            0,
            "{after:?}: nobody waits for the answer"
        );
    }
}

#[test]
fn silent_connections_of_one_host_keep_nobody_out() {
    let mut scene = Scene::new();
    let silent = scene.world.add("silent", Station::default());
    for _ in 0..limits::SESSIONS_MAX + 10 {
        scene.world.with(silent, |_, io| io.connect(address(7000), SECOND));
    }
    scene.world.run_for(SECOND / 10);
    scene.owner(1, 3);
}

/// An answer may have more credit than is left of its turn, and its owner gives no more until it
/// has used that.
#[test]
fn an_answer_whose_turn_is_used_up_waits_for_the_next_one() {
    const PART: u64 = 50_000;
    let mut scene = Scene::with_hold(2 * BODY_BYTES as u64, SECOND);
    let mut control = scene.owner(1, 3);
    let size = format!("{BODY_BYTES:x}\r\n");
    let body = [size.as_bytes(), &vec![b'a'; BODY_BYTES], b"\r\n0\r\n\r\n"].concat();
    scene.has_answer(&mut control, "Transfer-Encoding: chunked", &body);
    scene.world.with(scene.agent, |agent, io| {
        let key = agent.session_keys[&SessionId(1)];
        let exchange = agent.sessions[key].exchanges[&TICKET];
        let credit = |agent: &Agent| agent.exchanges[exchange].credit;
        let add_credit = |agent: &mut Agent, io: &mut Io, bytes: u64| {
            agent.exchanges[exchange].credit += bytes;
            answer::pump(agent, io, exchange);
        };
        assert_eq!(credit(agent), 0, "it has begun");
        agent.sessions[key].turns.fill();
        add_credit(agent, io, TURN_BYTES + PART);
        for other in [8, 9] {
            assert_eq!(
                agent.sessions[key].turns.room(None, Ticket(other)),
                0,
                "others wait behind it"
            );
        }
        agent.sessions[key].turns.drained();
        assert_eq!(agent.sessions[key].turns.next(u64::MAX), Some(TICKET));
        answer::pump(agent, io, exchange);
        assert_eq!(credit(agent), PART, "its turn is used up");
        answer::serve(agent, io, key);
        assert_eq!(credit(agent), 0, "its next turn");
        assert!(!agent.exchanges[exchange].answer.kept.is_empty());
    });
}
