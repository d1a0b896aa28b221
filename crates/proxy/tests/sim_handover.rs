//! Large answers that go from agents to clients on the clients' own connections, in a simulated
//! world: whatever happens to proxies' links, agents and nodes, every request of a connected client
//! is answered once and rightly, byte for byte.

mod support;

use std::net::SocketAddr;
use std::sync::Arc;

use shunt_agent::{Agent, AgentMail};
use shunt_bench::stub::{Action, Hook};
use shunt_handover::message::Ticket;
use shunt_handover::session::{OwnerId, SharedKey};
use shunt_proxy::control::state::CoreMail;
use shunt_proxy::metrics::{HandedOver, Histogram};
use shunt_proxy::selection::Selection;
use shunt_reactor::sim::{
    HostId, MICROSECOND, MILLISECOND, Options, Random, SECOND, World, for_seeds,
};
use shunt_testing::{bytes, simulated};
use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::WRITE_TIMEOUT;
use tokio::sync::mpsc;

use support::chaos::{Chaos, network};
use support::client::ClientMail;
use support::liar::Liar;
use support::scene::{Scene, SceneOptions};

/// Counts of offered answers: sent over clients' own connections, relayed at once, or relayed after
/// the client's connection was to leave.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    sent: u64,
    stays: u64,
    came_back: u64,
    broken: u64,
    bytes: u64,
    /// Sum over all reasons.
    relayed: u64,
}

fn counted(scene: &Scene) -> Counted {
    let mut all = Counted::default();
    for metrics in &scene.metrics {
        let metrics = &metrics.handover;
        all.sent += metrics.answers.of(HandedOver::Sent).get();
        all.stays += metrics.answers.of(HandedOver::Stays).get();
        all.came_back += metrics.answers.of(HandedOver::CameBack).get();
        all.broken += metrics.answers.of(HandedOver::Broken).get();
        all.bytes += metrics.bytes.get();
        all.relayed += metrics.relayed.total();
    }
    // Each relayed answer has a reason.
    assert_eq!(all.relayed, all.stays + all.came_back, "{all:?}");
    all
}

fn scene(seed: u64, network: Options, threshold: u32) -> Scene {
    let mut options = SceneOptions::new(seed, network);
    options.hands_over = true;
    options.config.handover_threshold = threshold;
    Scene::new(options)
}

#[test]
fn large_answers_pass_the_proxy_by_and_the_connection_goes_on() {
    // The agent limits its kernel's buffers: the bytes buffered for a client that nobody reads can
    // always come back.
    let mut scene = scene(7, Options { window_bytes: 65_536..65_537, ..Options::calm() }, 64 << 10);
    let compressed =
        [(4, Some(Algorithm::Lz4)), (4, Some(Algorithm::Snappy)), (5, Some(Algorithm::Lz4))];
    for (version, compression) in [(3, None), (4, None), (5, None)].into_iter().chain(compressed) {
        scene.add_client(|client| {
            (client.version, client.compression, client.value_bytes) =
                (version, compression, 300_000);
            (client.outstanding, client.keyed_only) = (16, true);
        });
    }
    scene.world.run_for(SECOND);
    scene.wait_ready(10 * SECOND);
    scene.work(120, 120 * SECOND);
    assert_eq!(scene.sum(|client| client.tally.right), 720);
    assert_eq!(
        (scene.sum(|client| client.tally.refused), scene.sum(|client| client.tally.losses)),
        (0, 0)
    );
    let counted = counted(&scene);
    assert!(
        counted.sent > 100 && counted.bytes > counted.sent * (64 << 10) && counted.broken == 0,
        "{counted:?}"
    );
    scene.check_memory();
    scene.check_at_rest();
}

#[test]
fn times_are_those_between_their_moments() {
    // One packet's way between hosts, and the delay of a loop's turn; both constant.
    let (way, turn) = (3 * MILLISECOND, 7 * MICROSECOND);
    let even = Options {
        latency_ns: way..way + 1,
        turn_delay_ns: turn..turn + 1,
        timer_delay_ns: 0..1,
        window_bytes: 65_536..65_537,
        ..Options::calm()
    };
    let mut scene = scene(7, even, 64 << 10);
    scene.add_client(|client| {
        (client.version, client.value_bytes, client.outstanding, client.keyed_only) =
            (4, 300_000, 1, true)
    });
    scene.world.run_for(SECOND);
    scene.wait_ready(10 * SECOND);
    scene.work(100, 120 * SECOND);
    let sent = counted(&scene).sent;
    assert!(sent > 10 && counted(&scene).came_back == 0, "{:?}", counted(&scene));
    let metrics = &scene.metrics[0].handover;
    let times = |histogram: &Histogram| (histogram.snapshot().count(), histogram.snapshot().sum());
    assert_eq!(times(&metrics.freeze), (sent, sent * turn));
    // The connection goes to the agent, is put in, and the proxy hears of it.
    let taking = turn + way + turn + turn + way + turn;
    assert_eq!(times(&metrics.taking), (sent, sent * taking));
    // Before that the query goes to the node and its answer back, both through the agent; the
    // answer is larger than a window.
    let (count, first_byte) = times(&metrics.first_byte);
    assert!(count == sent && first_byte >= sent * (2 * (way + turn) + taking), "{first_byte}");
    let (count, absence) = times(&metrics.absence);
    assert!(count == sent && absence >= sent * (taking + way + turn), "{absence}");
    scene.check_at_rest();
}

#[test]
fn every_answer_is_right_however_the_bytes_are_cut() {
    let mut sent = 0;
    for_seeds(10, |seed| {
        let mut scene = scene(seed, Options::calm(), 200);
        scene.add_client(|client| (client.outstanding, client.value_bytes) = (20, 3000));
        scene.add_client(|client| {
            (client.version, client.compression, client.value_bytes) =
                (3, Some(Algorithm::Lz4), 20_000);
        });
        scene.add_client(|client| (client.version, client.value_bytes) = (5, 3000));
        scene.wait_ready(10 * SECOND);
        scene.world.run_for(SECOND);
        scene.world.set_options(Options { window_bytes: 512..8192, ..Options::crumbs() });
        scene.work(100, 300 * SECOND);
        sent += counted(&scene).sent;
        assert_eq!(counted(&scene).broken, 0);
        scene.world.calm();
        scene.check_memory();
        scene.check_at_rest();
    });
    assert!(sent > 250, "{sent} were handed over");
}

#[test]
fn an_agent_that_ends_loses_no_client_whose_connection_is_on_its_way() {
    for is_taken in [false, true] {
        let mut scene =
            scene(7, Options { window_bytes: 65_536..65_537, ..Options::calm() }, 64 << 10);
        let client = scene.add_client(|client| {
            (client.value_bytes, client.outstanding, client.keyed_only) = (300_000, 1, true);
        });
        scene.wait_ready(10 * SECOND);
        scene.world.run_for(SECOND);
        scene.mail_clients(ClientMail::More(100));
        let agents = scene.agents.clone();
        let is_so =
            |agent: &Agent| agent.metrics().offered.get() == 1 && (agent.taken() == 1) == is_taken;
        let any = |world: &World| agents.iter().copied().find(|agent| is_so(world.host(*agent)));
        assert!(scene.world.run_until(10 * SECOND, |world| any(world).is_some()));
        let agent = any(&scene.world).expect("it was so just now");
        scene.world.post(agent, AgentMail::Drain);
        scene.wait_idle(60 * SECOND);
        let tally = scene.world.host(client).tally;
        assert_eq!((tally.right, tally.refused, tally.losses), (100, 0, 0), "taken: {is_taken}");
        let counted = counted(&scene);
        assert!(counted.broken == 0 && counted.sent > 10, "{counted:?}");
        assert!(scene.world.run_until(20 * SECOND, |world| !world.is_running(agent)));
    }
}

#[test]
fn a_proxy_that_ends_gets_connections_back_although_the_control_connection_was_lost_meanwhile() {
    let mut scene = scene(7, Options { window_bytes: 65_536..65_537, ..Options::calm() }, 64 << 10);
    let client = scene.add_client(|client| {
        (client.value_bytes, client.outstanding, client.keyed_only) = (300_000, 9, true);
    });
    scene.wait_ready(10 * SECOND);
    scene.world.run_for(SECOND);
    scene.work(200, 60 * SECOND);
    // While no node answers, all get on their way.
    let (core, agents, nodes) = (scene.cores[0], scene.agents.clone(), scene.nodes.clone());
    nodes.iter().for_each(|node| scene.world.freeze(*node));
    scene.mail_clients(ClientMail::More(9));
    scene.world.run_for(SECOND);
    assert_eq!(scene.metrics[0].in_flight.get(), 9);
    nodes.iter().for_each(|node| scene.world.thaw(*node));
    let any = |world: &World| agents.iter().copied().find(|agent| world.host(*agent).taken() == 1);
    assert!(scene.world.run_until(SECOND, |world| any(world).is_some()));
    let (agent, owed) =
        (any(&scene.world).expect("it was so just now"), scene.metrics[0].in_flight.get());
    assert!(owed > 4, "{owed}");
    let before = scene.world.host(client).tally;
    scene.world.post(core, CoreMail::Drain);
    for conn in scene.world.host(agent).control_connections() {
        scene.world.reset(agent, conn);
    }
    let has_ended = scene.world.run_until(30 * SECOND, |world| !world.is_running(core));
    scene.world.run_for(SECOND);
    let (tally, counted) = (scene.world.host(client).tally, counted(&scene));
    assert_eq!((tally.right - before.right, tally.refused), (owed, 0), "{tally:?} {counted:?}");
    assert!(has_ended && counted.broken == 0, "{counted:?}");
}

/// Sends bytes to the proxy.
fn send(scene: &mut Scene, host: HostId<simulated::Client>, bytes: &[u8]) {
    scene.world.with(host, |client, io| client.send(io, bytes));
}

/// A client whose connection is away hears of its requests in flight once it is back.
#[test]
fn an_operator_closes_a_client_that_is_away_with_errors() {
    // The agent needs many packets for the answer.
    let narrow = Options { window_bytes: 4_096..4_097, ..Options::calm() };
    let mut scene = scene(7, narrow, 64 << 10);
    let client = scene.world.add("client", simulated::Client::new(scene.proxy));
    send(&mut scene, client, &bytes::startup(4, None));
    let answered = |scene: &mut Scene, count| {
        let has = |world: &mut World| world.host(client).answers.len() >= count;
        assert!(scene.world.run_until(20 * SECOND, has));
        scene.world.with(client, |client, _| std::mem::take(&mut client.answers))
    };
    answered(&mut scene, 1);
    scene.world.run_for(SECOND);
    send(&mut scene, client, &bytes::insert(4, 1, "a", 300_000));
    answered(&mut scene, 1);
    for node in 0..scene.nodes.len() {
        let is_write = |body: &[u8]| body.windows(6).any(|text| text == b"INSERT");
        let hook: Hook = Box::new(move |request| match is_write(request.body) {
            true => Action::Silence,
            false => Action::Answer,
        });
        scene.hook(node, Some(hook));
    }
    send(&mut scene, client, &bytes::insert(4, 2, "a", 9));
    send(&mut scene, client, &bytes::query(4, 3, "SELECT v FROM bench.kv WHERE k = 0x61"));
    let agents = scene.agents.clone();
    let is_away = |world: &mut World| agents.iter().any(|agent| world.host(*agent).taken() == 1);
    assert!(scene.world.run_until(SECOND, is_away));
    let (sender, mut outcome) = mpsc::channel(1);
    scene.world.post(scene.cores[0], CoreMail::Kick(Arc::new(Selection::default()), sender));
    assert!(scene.world.run_until(20 * SECOND, |world| world.host(client).is_closed()));
    assert_eq!(outcome.try_recv().expect("an outcome").closed, 1);
    let answers = answered(&mut scene, 2);
    let codes: Vec<_> = answers.iter().map(|one| (one.stream(), one.opcode())).collect();
    assert_eq!(codes, [(3, opcode::RESULT), (2, opcode::ERROR)]);
    assert_eq!(answers[1].error().0, WRITE_TIMEOUT);
    assert_eq!(counted(&scene).sent, 1, "the client was not away");
}

/// The place of a gone node's agent is free, and the node is served through its agent again if it
/// comes back.
#[test]
fn agents_of_nodes_that_leave_the_ring_are_forgotten() {
    let mut scene = scene(7, Options { window_bytes: 65_536..65_537, ..Options::calm() }, 64 << 10);
    scene.add_client(|client| {
        (client.value_bytes, client.outstanding, client.keyed_only) = (300_000, 4, true);
    });
    scene.wait_ready(10 * SECOND);
    let connected = |scene: &Scene| scene.metrics[0].handover.agents.get();
    for _ in 0..3 {
        scene.world.run_for(SECOND);
        let sent = counted(&scene).sent;
        scene.work(60, 60 * SECOND);
        assert!(connected(&scene) == 3 && counted(&scene).sent > sent, "{:?}", counted(&scene));
        scene.known[2] = false;
        scene.post_cluster();
        scene.world.run_for(5 * SECOND);
        scene.work(60, 60 * SECOND);
        assert_eq!(connected(&scene), 2);
        let agent = scene.world.host(scene.agents[2]);
        assert!(agent.control_connections().is_empty());
        scene.known[2] = true;
        scene.post_cluster();
        scene.world.run_for(5 * SECOND);
    }
    assert_eq!((scene.sum(|client| client.tally.losses), counted(&scene).broken), (0, 0));
    scene.check_memory();
    scene.check_at_rest();
}

/// Kills, pauses and restarts agents, and cuts proxies off from them.
fn torment(scene: &mut Scene, seed: u64, chaos: &mut Chaos) {
    let mut random = Random::new(seed ^ 0x0061_6765_6e74);
    for _ in 0..10 {
        chaos.run(scene, 200 * MILLISECOND);
        let victim = random.index(scene.agents.len());
        let (agent, core) = (scene.agents[victim], scene.cores[0]);
        match random.below(6) {
            0 => scene.restart_agent(victim),
            1 => scene.world.freeze(agent),
            2 | 3 => scene.world.thaw(agent),
            4 => scene.world.cut(core, agent),
            _ => scene.world.join(core, agent),
        }
    }
}

#[test]
fn faults_make_no_answer_wrong_and_the_proxy_serves_again() {
    let mut all = Counted::default();
    for_seeds(12, |seed| {
        let mut scene = scene(seed, network(seed), 200);
        for (version, value_bytes) in [(4, 3000), (3, 300), (5, 20_000)] {
            scene.add_client(|client| {
                (client.version, client.value_bytes, client.outstanding) =
                    (version, value_bytes, 12);
            });
        }
        scene.mail_clients(ClientMail::More(200));
        let mut chaos = Chaos::drawn(seed);
        torment(&mut scene, seed, &mut chaos);
        chaos.end(&mut scene);
        for agent in 0..scene.agents.len() {
            scene.restart_agent(agent);
        }
        scene.wait_idle(120 * SECOND);
        scene.wait_ready(60 * SECOND);
        scene.check_memory();
        scene.world.run_for(30 * SECOND);
        scene.work(20, 60 * SECOND);
        scene.world.run_for(30 * SECOND);
        let right = scene.sum(|client| client.tally.right);
        scene.work(20, 60 * SECOND);
        assert_eq!(
            scene.sum(|client| client.tally.right),
            right + 60,
            "not all was answered in peace"
        );
        scene.check_memory();
        scene.check_at_rest();
        let counted = counted(&scene);
        all.sent += counted.sent;
        all.came_back += counted.came_back;
        all.broken += counted.broken;
        all.stays += counted.stays;
    });
    assert!(all.sent > 400 && all.came_back > 20 && all.broken > 2 && all.stays > 20, "{all:?}");
}

#[test]
fn no_agent_is_believed_to_have_the_connection_of_a_client_of_any_core() {
    const CLIENTS: usize = 6;
    let mut options = SceneOptions::new(11, Options::calm());
    (options.hands_over, options.cores) = (true, 2);
    let mut scene = Scene::new(options);
    for _ in 0..CLIENTS {
        scene.add_client(|_| ());
    }
    scene.wait_ready(10 * SECOND);
    assert!(scene.metrics.iter().all(|core| core.clients.get() > 0), "each core has some");
    assert_eq!(scene.known_clients.len(), CLIENTS);
    // An agent with the key takes the place of another.
    scene.world.kill(scene.agents[0]);
    let liar = scene.world.add("liar", Liar::new(SharedKey::new(&[7; 32]).unwrap()));
    scene.world.listen(
        liar,
        SocketAddr::new([10, 1, 0, 1].into(), scene.options.config.handover_agent_port),
    );
    let owners = [0, 1].map(OwnerId);
    let has_come = |world: &mut World| {
        world.with(liar, |liar, _| owners.into_iter().all(|owner| liar.has_control(owner)))
    };
    assert!(scene.world.run_until(30 * SECOND, has_come), "not both cores have connected");
    // Clients are among those; the others belong to nobody.
    let proxy = scene.proxy;
    let peers: Vec<SocketAddr> = (1..=40).map(|host| ([10, 0, 0, host], 32_768).into()).collect();
    for owner in owners {
        for (peer, ticket) in peers.iter().zip((owner.0 + 1) << 32..) {
            scene.world.with(liar, |liar, io| liar.hold(io, owner, Ticket(ticket), (proxy, *peer)));
        }
        scene.world.run_for(SECOND);
    }
    let count = |owner, name: &str| {
        let heard = scene.world.host(liar).heard.iter();
        heard.filter(|(by, ticket, said)| *by == owner && ticket.0 > 0 && said == name).count()
    };
    let first = (count(owners[0], "Release"), count(owners[0], "HeldAck"));
    assert_eq!(first, (CLIENTS, peers.len() - CLIENTS), "clients of both cores are refused");
    let second = (count(owners[1], "Release"), count(owners[1], "HeldAck"));
    assert_eq!(second, (peers.len(), 0), "so are those that the first core has taken over");
}
