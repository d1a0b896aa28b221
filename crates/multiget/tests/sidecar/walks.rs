//! Nodes of a cluster that send a command from one to another, again and again.

use std::collections::VecDeque;

use shunt_multiget::mode::Mode;
use shunt_multiget::{Login, Sidecar, SidecarOptions};
use shunt_reactor::sim::{HostId, MILLISECOND, SECOND, World};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_wire::resp::{Command, put_error, read_command};

use crate::script::Script;
use crate::{listen_address, server_address, whole};

const TIMEOUT_NS: u64 = SECOND;
/// Time that a node takes to answer: two answers take longer than a command may.
const ANSWER_NS: u64 = 600 * MILLISECOND;

/// A node that sends all commands to the other one.
struct Wrong {
    other: u8,
    /// Commands that it has not answered, and whether they ask for slots.
    waiting: VecDeque<(ConnId, bool)>,
    commands: usize,
}

impl Service for Wrong {
    type Mail = ();

    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {}
    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let (mut command, mut at) = (Command::default(), 0);
        while read_command(&data[at..], 1 << 20, &mut command).expect("the sidecar speaks RESP") {
            let wants_slots = command.argument(&data[at..], 0) == Some(b"CLUSTER");
            self.commands += usize::from(!wants_slots);
            self.waiting.push_back((conn, wants_slots));
            io.set_timer(io.now_ns() + ANSWER_NS, 0);
            at += command.len();
        }
        at
    }

    fn timer(&mut self, io: &mut Io, _key: u64) {
        let Some((conn, wants_slots)) = self.waiting.pop_front() else { return };
        let elsewhere = format!("MOVED 1 {}", server_address(self.other));
        put_error(io.output(conn), if wants_slots { "ERR it does not know" } else { &elsewhere });
    }

    fn closed(&mut self, _io: &mut Io, _conn: ConnId, _reason: CloseReason) {}
    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn mail(&mut self, _io: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _io: &mut Io) {}
}

/// Sends a command; returns the commands that the nodes have had, and the answer.
fn walk(words: &[&[u8]]) -> (usize, String) {
    let mut world = World::new(1, whole(1));
    let nodes = [0, 1].map(|index: u8| {
        let wrong = Wrong { other: 1 - index, waiting: VecDeque::new(), commands: 0 };
        let node = world.add("node", wrong);
        world.listen(node, server_address(index));
        node
    });
    let sidecar = world.add(
        "sidecar",
        Sidecar::new(SidecarOptions {
            servers: vec![(server_address(0), ([192, 0, 2, 10], 9700).into())],
            mode: Mode::Tcp,
            cluster: Some(9700),
            login: Login::default(),
            server_tls: None,
            timeout_ns: TIMEOUT_NS,
            resend_ns: 20 * MILLISECOND,
            seed: 1,
        }),
    );
    world.listen(sidecar, listen_address());
    let app = world.add("app", Script::new(listen_address()));
    world.with(app, |app, io| app.send(io, words));
    let is_answered = |world: &mut World| !world.host(app).received.is_empty();
    assert!(world.run_until(60 * SECOND, is_answered), "no answer");
    let commands = |node: &HostId<Wrong>| world.host(*node).commands;
    let commands = nodes.iter().map(commands).sum();
    (commands, String::from_utf8_lossy(&world.host(app).received).into_owned())
}

#[test]
fn a_command_that_nodes_send_to_one_another_ends_at_its_deadline() {
    let (commands, answer) = walk(&[b"INCR", b"key"]);
    assert_eq!(commands, 2, "{answer}");
    assert!(answer.starts_with("-MOVED 1 "), "{answer}");
}
