//! The whole proxy in a simulated world, by the thousand: whatever happens to nodes and network,
//! every request of a connected client is answered once and rightly, no acknowledged write is lost,
//! keys that all overwrite are registers, and once faults end the proxy serves again.
//!
//! `SHUNT_SIM_SEEDS=1000` runs that many; a failure prints the command that replays its seed.

mod support;

use shunt_proxy::config::Hedge;
use shunt_proxy::control::state::CoreMail;
use shunt_reactor::sim::{Random, SECOND, World, for_seeds};
use shunt_wire::cql::compression::Algorithm;

use support::chaos::{Chaos, network};
use support::client::{ClientMail, ClientOptions};
use support::scene::{Scene, SceneOptions};

/// Keys that some of the clients share and overwrite. The check searches an order of the history,
/// which must not be long.
const REGISTERS: u32 = 12;

/// Nodes, cores and clients of a seed.
fn drawn_scene(seed: u64) -> Scene {
    let mut random = Random::new(seed ^ 0x0073_6365_6e65);
    let mut options = SceneOptions::new(seed, network(seed));
    options.nodes = 1 + random.index(4);
    options.cores = 1 + random.index(2);
    let aggregate = random.below(3);
    options.aggregate =
        (0..options.nodes).map(|node| aggregate == 1 || aggregate == 2 && node % 2 == 0).collect();
    options.aggregate_port = random.chance(0.4).then_some(9142);
    if random.chance(0.3) {
        options.credentials =
            vec![("ann".into(), "secret".into()), ("bob".into(), "secret".into())];
    }
    options.config.in_flight_max = if random.chance(0.3) { 4 } else { 1024 };
    options.config.client_backlog_bytes = if random.chance(0.5) { 2 << 10 } else { 1 << 20 };
    options.protocol_max = if random.chance(0.2) { 4 } else { 5 };
    // Draws of its own: those of the other dimensions stay as they were.
    (options.config.hedge, options.config.hedge_share_max) = drawn_hedge(seed);
    let (protocol_max, with_login) = (options.protocol_max, !options.credentials.is_empty());
    let mut scene = Scene::new(options);
    for _ in 0..1 + random.index(6) {
        let draw = random.fork();
        scene.add_client(|client| draw_client(client, draw, protocol_max, with_login));
    }
    if random.chance(0.2) {
        scene.add_hostiles();
    }
    scene
}

/// Hedged reads of a seed: none, or so many that most races occur.
fn drawn_hedge(seed: u64) -> (Hedge, u32) {
    let mut random = Random::new(seed ^ 0x0068_6564_6765);
    let hedge = match random.below(4) {
        0 => Hedge::Off,
        1 => Hedge::P99,
        2 => Hedge::After { ms: 1 },
        _ => Hedge::After { ms: 1 + random.below(300) },
    };
    (hedge, if random.chance(0.7) { 100 } else { 2 })
}

fn draw_client(client: &mut ClientOptions, mut random: Random, protocol_max: u8, with_login: bool) {
    client.version = 3 + random.index(usize::from(protocol_max) - 2) as u8;
    client.compression = match random.below(4) {
        0 => Some(Algorithm::Lz4),
        1 if client.version < 5 => Some(Algorithm::Snappy),
        _ => None,
    };
    client.login =
        with_login.then(|| if random.chance(0.5) { ("ann", "secret") } else { ("bob", "secret") });
    client.uses_keyspace = random.chance(0.3);
    client.registers = random.chance(0.3);
    client.dawdles = if random.chance(0.3) { 0.1 } else { 0.0 };
    client.outstanding = 1 + random.index(30);
    client.value_bytes = [10, 300, 300, 3000][random.index(4)];
    client.timestamps = random.chance(0.6);
    if random.chance(0.3) {
        client.registers_shared = REGISTERS;
    }
}

/// Chaos, then peace. Afterwards the world is at rest and its cores have stopped.
fn run(seed: u64) -> Scene {
    let mut scene = drawn_scene(seed);
    let mut chaos = Chaos::drawn(seed);
    let half_open = scene.world.options().half_open > 0.0;
    scene.mail_clients(ClientMail::More(150));
    chaos.run(&mut scene, 6 * SECOND);
    chaos.end(&mut scene);

    // The client's own patience notices a half-open connection; everything else is noticed much
    // sooner.
    scene.wait_idle(60 * SECOND);
    scene.wait_ready(60 * SECOND);
    scene.check_memory();
    if !half_open {
        assert_eq!(scene.sum(|client| client.tally.out_of_patience), 0, "requests were forgotten");
        // A request is held back for 5 s, then in flight for 2 s; the rest is the network's.
        for client in &scene.clients {
            let slowest_ns = scene.world.host(*client).tally.slowest_ns;
            assert!(slowest_ns < 10 * SECOND, "an answer took {} ms", slowest_ns / 1_000_000);
        }
    }

    // Once the last broken link has been noticed, nothing is refused any more.
    scene.world.run_for(15 * SECOND);
    if half_open {
        // A connection that was idle meanwhile is found dead by its next request.
        scene.work(20, 60 * SECOND);
        scene.wait_ready(60 * SECOND);
    }
    let (right, refused) =
        (scene.sum(|client| client.tally.right), scene.sum(|client| client.tally.refused));
    scene.work(20, 30 * SECOND);
    if scene.sum(|client| client.tally.refused) != refused {
        scene.show_clients();
        panic!("refused in peace");
    }
    if scene.sum(|client| client.tally.right) != right + 20 * scene.clients.len() as u64 {
        scene.show_clients();
        panic!("not answered in peace");
    }
    scene.check_memory();
    scene.check_registers(REGISTERS);

    scene.dismiss_hostiles();
    // Keepalive notices half-open connections of clients that gave up, after a minute.
    scene.world.run_for(if half_open { 90 * SECOND } else { 5 * SECOND });
    scene.check_at_rest();
    drain(&mut scene);
    scene
}

/// SIGTERM while queries run: those in flight are answered, then the cores stop.
fn drain(scene: &mut Scene) {
    scene.mail_clients(ClientMail::More(20));
    scene.world.run_for(SECOND / 200);
    for core in scene.cores.clone() {
        scene.world.post(core, CoreMail::Drain);
    }
    let cores = scene.cores.clone();
    let gone = |world: &mut World| cores.iter().all(|core| !world.is_running(*core));
    assert!(scene.world.run_until(10 * SECOND, gone), "the cores did not stop");
    scene.check_memory();
}

#[test]
fn whole_proxy_runs() {
    // A separate step of `make test` runs many more.
    for_seeds(20, |seed| drop(run(seed)));
}

#[test]
fn a_seed_replays_the_same_run() {
    for_seeds(5, |seed| {
        let (first, second) = (run(seed), run(seed));
        assert_eq!(first.world.digest(), second.world.digest());
        assert_eq!(first.world.events(), second.world.events());
    });
}
