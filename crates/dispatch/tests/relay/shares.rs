//! Clients that have many connections, all of them slow, and others beside them.

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
/// Bytes of an upload in a second that an agent does not take for slow at once.
const FAST_ENOUGH: usize = 24_000;

/// Bytes of an answer in a second that its client takes, which an agent does not take for slow.
const READ_FAST_ENOUGH: usize = 80_000;

/// Bytes that a client reads of each answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    All,
    /// The first bytes alone.
    Beginning,
    /// This many in a second.
    Slowly(usize),
}

/// Sends these requests on so many connections, in turns, then so many bytes on each in a second.
pub(crate) struct Slow {
    requests: Vec<Vec<u8>>,
    pub(crate) count: usize,
    rate: usize,
    reads: Reads,
    conns: Vec<ConnId>,
    /// Bytes that each connection may still read in this second.
    left: Vec<usize>,
    pub(crate) bytes: usize,
}

impl Service for Slow {
    type Mail = ();

    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {}

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        io.output(conn).extend_from_slice(&self.requests[self.conns.len() % self.requests.len()]);
        self.conns.push(conn);
        self.left.push(0);
    }

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let mut used = data.len();
        match self.reads {
            Reads::All => {}
            Reads::Beginning => io.pause_reading(conn),
            Reads::Slowly(_) => {
                let place = self.conns.iter().position(|one| *one == conn);
                let mut nothing = 0;
                let left = place.map_or(&mut nothing, |place| &mut self.left[place]);
                used = used.min(*left);
                *left -= used;
                if *left == 0 {
                    io.pause_reading(conn);
                }
            }
        }
        self.bytes += used;
        used
    }

    fn closed(&mut self, _io: &mut Io, conn: ConnId, _reason: CloseReason) {
        if let Some(place) = self.conns.iter().position(|one| *one == conn) {
            self.conns.remove(place);
            self.left.remove(place);
        }
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn timer(&mut self, io: &mut Io, _key: u64) {
        let bytes = vec![b'x'; self.rate];
        self.conns.iter().for_each(|conn| io.output(*conn).extend_from_slice(&bytes));
        if let Reads::Slowly(bytes) = self.reads {
            self.left.fill(bytes);
            self.conns.iter().for_each(|conn| io.resume_reading(*conn));
        }
        io.set_timer(io.now_ns() + SECOND, 0);
    }

    fn mail(&mut self, io: &mut Io, (): ()) {
        (0..self.count).for_each(|_| _ = io.connect(address(1, 80), 5 * SECOND));
        io.set_timer(io.now_ns() + SECOND, 0);
    }

    fn turn_ended(&mut self, _io: &mut Io) {}
}

/// More of an upload than an agent takes in while it waits.
fn upload_to(path: &str) -> Vec<u8> {
    let length = 16 * CREDIT_BYTES;
    let head = format!("PUT {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    [head.as_bytes(), &vec![b'x'; CREDIT_BYTES as usize]].concat()
}

fn upload() -> Vec<u8> {
    upload_to("/echo")
}

/// An answer that no buffers on its way take as a whole.
const LONG: usize = 32 << 20;

pub(crate) fn download(bytes: usize) -> Vec<u8> {
    format!("GET /length/{bytes} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
}

/// A client that has many slow connections.
pub(crate) fn add_slow(scene: &mut Scene, requests: Vec<Vec<u8>>, rate: usize) -> HostId<Slow> {
    let reads = if requests.len() == 1 { Reads::All } else { Reads::Beginning };
    let (count, conns, left) = (CONNECTIONS, Vec::new(), Vec::new());
    scene.world.add("slow", Slow { requests, count, rate, reads, conns, left, bytes: 0 })
}

/// A scene with one client that has a plan, and one that has many slow connections.
fn scene(seed: u64, requests: Vec<Vec<u8>>, plan: Vec<Request>) -> (Scene, HostId<Slow>) {
    scene_of(seed, CONNECTIONS_MAX, requests, plan)
}

/// A scene whose agent has so many connections to its server.
fn scene_of(
    seed: u64,
    connections_max: usize,
    requests: Vec<Vec<u8>>,
    plan: Vec<Request>,
) -> (Scene, HostId<Slow>) {
    let mut scene = Scene::with_connections(seed, Options::calm(), vec![plan], connections_max);
    let slow = add_slow(&mut scene, requests, 1);
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

/// Slow exchanges keep nobody waiting but their own client.
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
    let (mut scene, slow) = scene(13, vec![upload(), download(LONG)], plan.clone());
    let other = scene.clients[0];
    scene.world.post(slow, ());
    scene.world.run_for(4 * SECOND);
    scene.world.post(other, ());
    scene.world.run_for(12 * SECOND);
    let outcomes = &scene.world.host(other).outcomes;
    assert!(is_answered(outcomes, plan.len()), "{outcomes:?}");
}

/// Neither has more than its share, and both together have what uploads may have.
fn two_clients_keep_no_connection_from_an_upload(seed: u64, rate: usize) {
    let plan = vec![Request::Upload(4 * CREDIT_BYTES as usize); 2];
    let (mut scene, first) = scene(seed, vec![upload()], plan.clone());
    scene.world.with(first, |slow, _| slow.rate = rate);
    let second = add_slow(&mut scene, vec![upload()], rate);
    let other = scene.clients[0];
    scene.world.post(first, ());
    scene.world.post(second, ());
    scene.world.run_for(8 * SECOND);
    scene.world.post(other, ());
    scene.world.run_for(18 * SECOND);
    let outcomes = &scene.world.host(other).outcomes;
    assert!(is_answered(outcomes, plan.len()), "{outcomes:?}");
}

#[test]
fn slow_uploads_of_two_clients_keep_no_connection_from_anothers_upload() {
    two_clients_keep_no_connection_from_an_upload(14, 1);
}

#[test]
fn uploads_of_two_clients_keep_no_connection_for_long_where_anothers_waits() {
    two_clients_keep_no_connection_from_an_upload(18, FAST_ENOUGH);
}

/// Each client has its share, and those of its uploads that wait get no more.
#[test]
fn uploads_of_two_clients_that_have_their_shares_are_not_broken_off() {
    let (mut scene, first) = scene(19, vec![upload()], Vec::new());
    let second = add_slow(&mut scene, vec![upload()], FAST_ENOUGH);
    scene.world.post(first, ());
    scene.world.post(second, ());
    let left = |scene: &Scene| [first, second].map(|slow| scene.world.host(slow).conns.len());
    scene.world.run_for(9 * SECOND);
    let before = left(&scene);
    scene.world.run_for(9 * SECOND);
    assert_eq!(left(&scene), before);
}

/// Each moves as much as one that is not slow.
#[test]
fn uploads_of_one_client_keep_no_connection_for_long_where_anothers_upload_waits() {
    let plan = vec![Request::Upload(4 * CREDIT_BYTES as usize); 2];
    let (mut scene, slow) = scene(15, vec![upload()], plan.clone());
    scene.world.with(slow, |slow, _| slow.rate = FAST_ENOUGH);
    let other = scene.clients[0];
    scene.world.post(slow, ());
    scene.world.run_for(4 * SECOND);
    scene.world.post(other, ());
    scene.world.run_for(15 * SECOND);
    let outcomes = &scene.world.host(other).outcomes;
    assert!(is_answered(outcomes, plan.len()), "{outcomes:?}");
    assert!(!scene.world.host(slow).conns.is_empty(), "its share is left to it");
}

/// The server answers before it has the request.
#[test]
fn slow_uploads_whose_answers_have_begun_keep_no_connection_from_anothers_upload() {
    let plan = vec![Request::Upload(4 * CREDIT_BYTES as usize); 2];
    let (mut scene, slow) = scene(16, vec![upload_to("/begun")], plan.clone());
    let other = scene.clients[0];
    scene.world.post(slow, ());
    scene.world.run_for(4 * SECOND);
    assert!(scene.world.host(slow).bytes > 0, "answers have begun");
    scene.world.post(other, ());
    scene.world.run_for(15 * SECOND);
    let outcomes = &scene.world.host(other).outcomes;
    assert!(is_answered(outcomes, plan.len()), "{outcomes:?}");
}

#[test]
fn a_client_whose_exchanges_are_not_slow_may_have_what_a_slow_one_must_leave() {
    let plan = vec![Request::Upload(4 * CREDIT_BYTES as usize)];
    let (mut scene, slow) = scene(17, vec![upload()], plan.clone());
    let busy = add_slow(&mut scene, vec![b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()], 1);
    let other = scene.clients[0];
    scene.world.post(slow, ());
    scene.world.run_for(4 * SECOND);
    scene.world.post(other, ());
    scene.world.run_for(8 * SECOND);
    let outcomes = &scene.world.host(other).outcomes;
    assert!(is_answered(outcomes, plan.len()), "slow ones are broken off: {outcomes:?}");
    scene.world.post(busy, ());
    scene.world.run_for(SECOND / 2);
    let reads = scene.world.host(scene.origins[0]).reads;
    assert!(reads > CONNECTIONS_MAX as u64 / 2, "{reads} requests have connections");
}

/// An upload that waits needs one connection, so the other address loses one upload.
#[test]
fn one_upload_that_waits_ends_one_upload_of_an_address_that_has_many() {
    let plan = vec![Request::Upload(4 * CREDIT_BYTES as usize)];
    let (mut scene, office) = scene(20, vec![upload()], plan.clone());
    scene.world.with(office, |office, _| office.rate = FAST_ENOUGH);
    let other = scene.clients[0];
    scene.world.post(office, ());
    scene.world.run_for(8 * SECOND);
    scene.world.post(other, ());
    scene.world.run_for(12 * SECOND);
    let outcomes = &scene.world.host(other).outcomes;
    assert!(is_answered(outcomes, plan.len()), "{outcomes:?}");
    assert_eq!(scene.world.host(office).conns.len(), CONNECTIONS - 1);
}

/// The oldest upload is the only one of its address.
#[test]
fn the_address_that_has_most_uploads_gives_way_first() {
    let plan = vec![Request::Upload(4 * CREDIT_BYTES as usize)];
    let (mut scene, honest) = scene(21, vec![upload()], plan.clone());
    scene.world.with(honest, |honest, _| (honest.rate, honest.count) = (FAST_ENOUGH, 1));
    let greedy = add_slow(&mut scene, vec![upload()], FAST_ENOUGH);
    let other = scene.clients[0];
    scene.world.post(honest, ());
    scene.world.run_for(SECOND);
    scene.world.post(greedy, ());
    scene.world.run_for(7 * SECOND);
    scene.world.post(other, ());
    scene.world.run_for(12 * SECOND);
    let outcomes = &scene.world.host(other).outcomes;
    assert!(is_answered(outcomes, plan.len()), "{outcomes:?}");
    let left = [honest, greedy].map(|slow| scene.world.host(slow).conns.len());
    assert_eq!(left, [1, CONNECTIONS - 1]);
}

/// Neither address has more connections than its share, and each kind has half of them. `count`:
/// connections of each client, which may be more than the agent can serve.
fn two_clients_keep_no_connection_from_requests(seed: u64, count: usize) {
    let plan = vec![Request::Length(1_000); 20];
    let (mut scene, first) = scene(seed, vec![upload(), download(LONG)], plan.clone());
    let second = add_slow(&mut scene, vec![upload(), download(LONG)], 1);
    for slow in [first, second] {
        scene.world.with(slow, |slow, _| slow.count = count);
        scene.world.post(slow, ());
    }
    let other = scene.clients[0];
    scene.world.run_for(10 * SECOND);
    scene.world.post(other, ());
    scene.world.run_for(18 * SECOND);
    let outcomes = &scene.world.host(other).outcomes;
    assert!(is_answered(outcomes, plan.len()), "{outcomes:?}");
}

#[test]
fn slow_uploads_and_answers_of_two_clients_keep_no_connection_from_anothers_requests() {
    two_clients_keep_no_connection_from_requests(22, CONNECTIONS_MAX / 2);
}

/// Their other requests wait for the connections that they have to leave.
#[test]
fn two_clients_that_ask_again_and_again_get_no_more_than_half_together() {
    two_clients_keep_no_connection_from_requests(23, CONNECTIONS);
}

/// Each moves as much as one that is not slow.
#[test]
fn answers_of_one_client_keep_no_connection_for_long_where_anothers_request_waits() {
    let plan = vec![Request::Length(1_000); 20];
    let (mut scene, slow) = scene(24, vec![download(LONG)], plan.clone());
    scene.world.with(slow, |slow, _| slow.reads = Reads::Slowly(READ_FAST_ENOUGH));
    let other = scene.clients[0];
    scene.world.post(slow, ());
    scene.world.run_for(8 * SECOND);
    scene.world.post(other, ());
    scene.world.run_for(12 * SECOND);
    let outcomes = &scene.world.host(other).outcomes;
    assert!(is_answered(outcomes, plan.len()), "{outcomes:?}");
    assert!(scene.world.host(slow).conns.len() > CONNECTIONS - 3, "few are broken off");
}

/// The first is kept to its share, and has it: what the second would lose, it would not get.
#[test]
fn a_client_that_may_get_nothing_costs_no_other_its_uploads() {
    const UPLOADS_MAX: usize = 5;
    let (mut scene, first) = scene_of(25, 2 * UPLOADS_MAX, vec![upload()], Vec::new());
    let second = add_slow(&mut scene, vec![upload()], 1);
    scene.world.post(first, ());
    scene.world.run_for(SECOND);
    scene.world.post(second, ());
    scene.world.run_for(16 * SECOND);
    let left = [first, second].map(|slow| scene.world.host(slow).conns.len());
    assert_eq!(left, [CONNECTIONS - UPLOADS_MAX + 2, CONNECTIONS]);
}
