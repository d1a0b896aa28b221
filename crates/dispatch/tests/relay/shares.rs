//! One client that has many connections, all of them slow, and others beside it.

use shunt_handover::limits::CREDIT_BYTES;
use shunt_reactor::sim::{HostId, Options, SECOND};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};

use crate::client::Outcome;
use crate::requests::Request;
use crate::scene::{Scene, address};

/// More than enough for the agent's connections.
const CONNECTIONS: usize = 20;
/// Connections of the agent to its server.
const CONNECTIONS_MAX: usize = 8;

/// Sends these requests on many connections, in turns, then a byte on each now and then. It reads
/// as much as comes, or of long answers the first bytes alone.
struct Slow {
    requests: Vec<Vec<u8>>,
    reads: bool,
    conns: Vec<ConnId>,
    bytes: usize,
}

impl Service for Slow {
    type Mail = ();

    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {}

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        io.output(conn).extend_from_slice(&self.requests[self.conns.len() % self.requests.len()]);
        self.conns.push(conn);
    }

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        if !self.reads {
            io.pause_reading(conn);
        }
        self.bytes += data.len();
        data.len()
    }

    fn closed(&mut self, _io: &mut Io, conn: ConnId, _reason: CloseReason) {
        self.conns.retain(|one| *one != conn);
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn timer(&mut self, io: &mut Io, _key: u64) {
        self.conns.iter().for_each(|conn| io.output(*conn).push(b'x'));
        io.set_timer(io.now_ns() + SECOND, 0);
    }

    fn mail(&mut self, io: &mut Io, (): ()) {
        (0..CONNECTIONS).for_each(|_| _ = io.connect(address(1, 80), 5 * SECOND));
        io.set_timer(io.now_ns() + SECOND, 0);
    }

    fn turn_ended(&mut self, _io: &mut Io) {}
}

/// More of an upload than an agent takes in while it waits.
fn upload() -> Vec<u8> {
    let length = 4 * CREDIT_BYTES;
    let head = format!("PUT /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    [head.as_bytes(), &vec![b'x'; CREDIT_BYTES as usize]].concat()
}

/// An answer that no buffers on its way take as a whole.
fn download() -> Vec<u8> {
    b"GET /length/33554432 HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()
}

/// A scene with one client that has a plan, and one that has many slow connections.
fn scene(seed: u64, requests: Vec<Vec<u8>>, plan: Vec<Request>) -> (Scene, HostId<Slow>) {
    let mut scene = Scene::with_connections(seed, Options::calm(), vec![plan], CONNECTIONS_MAX);
    let reads = requests.len() == 1;
    let slow = Slow { requests, reads, conns: Vec::new(), bytes: 0 };
    let slow = scene.world.add("slow", slow);
    let clients = std::mem::take(&mut scene.clients);
    scene.wait_for_backends();
    scene.clients = clients;
    (scene, slow)
}

fn is_answered(outcomes: &[Outcome], count: usize) -> bool {
    outcomes.len() == count
        && outcomes.iter().all(|outcome| matches!(outcome, Outcome::Whole { status: 200, .. }))
}

#[test]
fn slow_uploads_of_one_client_keep_no_connection_from_anothers_upload() {
    let plan = vec![Request::Upload(4 * CREDIT_BYTES as usize); 2];
    let (mut scene, slow) = scene(11, vec![upload()], plan.clone());
    let other = scene.clients[0];
    scene.world.post(slow, ());
    scene.world.run_for(4 * SECOND);
    scene.world.post(other, ());
    scene.world.run_for(15 * SECOND);
    let outcomes = &scene.world.host(other).outcomes;
    assert!(is_answered(outcomes, plan.len()), "{outcomes:?}");
    assert!(!scene.world.host(slow).conns.is_empty(), "its share is left to it");
}

/// There is nobody whom they keep waiting but their own client.
#[test]
fn slow_uploads_of_one_client_alone_are_not_broken_off() {
    let (mut scene, slow) = scene(12, vec![upload()], Vec::new());
    scene.world.post(slow, ());
    scene.world.run_for(15 * SECOND);
    assert_eq!(scene.world.host(slow).conns.len(), CONNECTIONS);
    assert_eq!(scene.world.host(slow).bytes, 0, "no answer has come");
}

/// Uploads have half of the connections at most, slow answers too: together they have all.
#[test]
fn slow_uploads_and_answers_of_one_client_keep_no_connection_from_another() {
    let plan = vec![Request::Length(1_000); 20];
    let (mut scene, slow) = scene(13, vec![upload(), download()], plan.clone());
    let other = scene.clients[0];
    scene.world.post(slow, ());
    scene.world.run_for(4 * SECOND);
    scene.world.post(other, ());
    scene.world.run_for(12 * SECOND);
    let outcomes = &scene.world.host(other).outcomes;
    assert!(is_answered(outcomes, plan.len()), "{outcomes:?}");
}
