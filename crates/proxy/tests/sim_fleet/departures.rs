//! Clients that leave while they wait for locks. A lock that is granted to a client that has left
//! must not stay held: its owner never heard of it, so nobody would release it.
//!
//! A client leaves by bytes that are no CQL: the proxy closes the connection behind its last
//! answer, so that the test knows whether the client was told of its grant. The cores are stopped
//! now and then, so that a grant and a departure cross each other in one turn.

use shunt_reactor::sim::{HostId, MILLISECOND, Random, SECOND, for_seeds};
use shunt_testing::simulated::Client;
use shunt_testing::{Answer, bytes};
use shunt_wire::cql::envelope::opcode;

use super::scene::{Scene, Settings};
use super::settings;

/// Bytes that are no CQL.
const NO_CQL: [u8; 9] = [0x7f; 9];
/// Stream ids of an INSERT and of the DELETE of its lock.
const TAKE: i16 = 1;
const RELEASE: i16 = 2;

/// A lock: its table and its name.
type Lock = (&'static str, String);

/// A client with one request for a lock.
struct Leaver {
    host: HostId<Client>,
    lock: Lock,
    owner: String,
    has_released: bool,
    has_left: bool,
}

impl Leaver {
    fn release(&self) -> Vec<u8> {
        let (table, name) = &self.lock;
        let owner = &self.owner;
        bytes::query(
            4,
            RELEASE,
            &format!("DELETE FROM shunt.{table} WHERE name = '{name}' IF owner = '{owner}'"),
        )
    }

    /// Its answer to the request for the lock, if it has one.
    fn told<'a>(&self, scene: &'a Scene) -> Option<&'a Answer> {
        scene.world.host(self.host).on(TAKE)
    }
}

/// True if the answer says that the lock is or may be held.
fn may_be_held(answer: &Answer) -> bool {
    match answer.opcode() {
        opcode::ERROR => true,
        _ => answer.rows()[0][0].as_deref() == Some(&[1]),
    }
}

fn send(scene: &mut Scene, host: HostId<Client>, bytes: &[u8]) {
    scene.world.with(host, |client, io| client.send(io, bytes));
}

fn connect(scene: &mut Scene, proxy: usize) -> HostId<Client> {
    let client = Client::new(scene.proxies[proxy].address);
    let host = scene.world.add("leaver", client);
    send(scene, host, &bytes::startup(4, None));
    host
}

/// Asks on stream 3, and returns the answer.
fn ask(scene: &mut Scene, host: HostId<Client>, text: &str) -> Answer {
    send(scene, host, &bytes::query(4, 3, text));
    let is_answered = |scene: &mut Scene| scene.world.host(host).on(3).is_some();
    assert!(scene.run_until(20 * SECOND, is_answered), "no answer: {text}");
    let answers = scene.world.with(host, |client, _| std::mem::take(&mut client.answers));
    answers.into_iter().find(|answer| answer.stream() == 3).unwrap()
}

fn locks() -> Vec<Lock> {
    let tables = ["fast_locks", "locks"];
    tables.iter().flat_map(|table| (0..4).map(|one| (*table, format!("n{one}")))).collect()
}

/// Waits until each lock can be taken, and releases it.
fn warm_up(scene: &mut Scene, client: HostId<Client>) {
    for (table, name) in locks() {
        let take = format!(
            "INSERT INTO shunt.{table} (name, owner) VALUES ('{name}', 'first') IF NOT EXISTS USING TTL 3"
        );
        let release = format!("DELETE FROM shunt.{table} WHERE name = '{name}' IF owner = 'first'");
        let is_taken = (0..100).any(|_| {
            scene.run_for(500 * MILLISECOND);
            ask(scene, client, &take).opcode() != opcode::ERROR
        });
        assert!(is_taken, "{name} of {table} is not served");
        assert!(may_be_held(&ask(scene, client, &release)));
    }
}

/// A client that asks for a lock, and leaves in the same bytes one time in five.
fn come(scene: &mut Scene, random: &mut Random, number: usize) -> Leaver {
    let locks = locks();
    let lock = locks[random.index(locks.len())].clone();
    let (table, name) = &lock;
    let owner = format!("o{number}");
    let proxy = random.index(scene.proxies.len());
    let host = connect(scene, proxy);
    let wait_ms = if random.chance(0.2) { 0 } else { 1_500 };
    let mut request = bytes::query(
        4,
        TAKE,
        &format!(
            "INSERT INTO shunt.{table} (name, owner, wait_ms) VALUES ('{name}', '{owner}', {wait_ms}) IF NOT EXISTS USING TTL 3"
        ),
    );
    let has_left = random.chance(0.2);
    if has_left {
        request.extend_from_slice(&NO_CQL);
    }
    let is_ready = |scene: &mut Scene| !scene.world.host(host).answers.is_empty();
    assert!(scene.run_until(SECOND, is_ready));
    send(scene, host, &request);
    Leaver { host, lock, owner, has_released: false, has_left }
}

/// Lets a client act: it releases a lock that it was granted, or leaves.
fn act(scene: &mut Scene, random: &mut Random, leaver: &mut Leaver) {
    if leaver.has_left {
        return;
    }
    let is_held = leaver.told(scene).is_some_and(may_be_held);
    let mut out = Vec::new();
    if is_held && !leaver.has_released && random.chance(0.5) {
        leaver.has_released = true;
        out = leaver.release();
    }
    if random.chance(0.2) {
        leaver.has_left = true;
        out.extend_from_slice(&NO_CQL);
    }
    send(scene, leaver.host, &out);
}

/// Lets clients come and leave for a while. Returns the number of clients that left without an
/// answer.
fn run(seed: u64, proxies: usize, cores: usize) -> usize {
    let clocks = vec![Default::default(); proxies];
    let mut scene = Scene::new(Settings { proxies, cores, clients: 0, clocks, ..settings(seed) });
    let mut random = Random::new(seed);
    scene.run_for(2 * SECOND);
    let operator = connect(&mut scene, 0);
    warm_up(&mut scene, operator);
    let (mut leavers, mut known): (Vec<Leaver>, usize) = (Vec::new(), 0);
    for number in 0..150 {
        leavers.push(come(&mut scene, &mut random, number));
        let hosts: Vec<_> = scene.proxies.iter().flat_map(|proxy| proxy.cores.clone()).collect();
        let stopped = hosts[random.index(hosts.len())];
        scene.world.freeze(stopped);
        for leaver in &mut leavers[known..] {
            act(&mut scene, &mut random, leaver);
        }
        scene.run_for(random.below(3 * MILLISECOND));
        scene.world.thaw(stopped);
        scene.run_for(random.below(10 * MILLISECOND));
        known = leavers.len().saturating_sub(30);
    }
    for leaver in &mut leavers {
        if !std::mem::replace(&mut leaver.has_left, true) {
            send(&mut scene, leaver.host, &NO_CQL);
        }
    }
    scene.run_for(500 * MILLISECOND);
    for leaver in &leavers {
        assert!(scene.world.host(leaver.host).is_closed(), "{} is connected", leaver.owner);
        // The client knows of its lock, so that its hold is none of the proxy's business.
        if leaver.told(&scene).is_some_and(may_be_held) && !leaver.has_released {
            send(&mut scene, operator, &leaver.release());
        }
    }
    scene.run_for(500 * MILLISECOND);
    for (table, name) in locks() {
        let is_fast = table == "fast_locks";
        let text = format!(
            "SELECT owner, state FROM shunt.lock_queue WHERE name = '{name}' AND fast = {is_fast}"
        );
        let held = ask(&mut scene, operator, &text);
        let owners = held.first_column();
        let owners: Vec<_> = owners.iter().map(|owner| String::from_utf8_lossy(owner)).collect();
        assert!(owners.is_empty(), "seed {seed}: {name} of {table} is held by {owners:?}");
    }
    leavers.iter().filter(|leaver| leaver.told(&scene).is_none()).count()
}

#[test]
fn no_lock_stays_held_by_a_client_that_left_before_it_was_told() {
    for_seeds(6, |seed| {
        let (proxies, cores) = (1 + seed as usize / 2 % 2, 1 + (seed as usize + 1) % 2);
        let untold = run(seed, proxies, cores);
        assert!(untold > 20, "{untold}");
    });
}
