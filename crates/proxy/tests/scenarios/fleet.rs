//! Drivers see the fleet: the other members are the rows of `system.peers`, and registered clients
//! hear of each change once.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use shunt_bench::stub::Action;
use shunt_proxy::control::state::CoreMail;
use shunt_proxy::fleet::roster::{Fleet, Member};
use shunt_proxy::limits;
use shunt_reactor::sim::{HostId, MILLISECOND, Options, Random, SECOND, for_seeds};
use shunt_testing::{Answer, bytes, simulated};
use shunt_wire::cql::envelope::{EVENT_STREAM, Header, opcode};
use shunt_wire::cql::message::{
    Consistency, Event, QueryParams, Value, ValueList, encode, query_flag,
};

use super::support::client::ClientMail;
use super::support::scene::{Scene, SceneOptions};

const HOSTS: &[&str] = &["TOPOLOGY_CHANGE", "STATUS_CHANGE"];

fn scene(seed: u64, change: impl FnOnce(&mut SceneOptions)) -> Scene {
    let mut options = SceneOptions::new(seed, Options::calm());
    options.cores = 2;
    change(&mut options);
    Scene::new(options)
}

/// Other proxies by number, with the number of their starts.
type Others<'a> = &'a [(u8, u8)];
/// Events about other proxies.
type Events<'a> = &'a [(&'a str, u8)];

/// Address of another proxy than that of the scene.
fn address(number: u8) -> SocketAddr {
    ([10, 2, 1, number], 9042).into()
}

/// Sends the cores a fleet of the scene's proxy and these others.
fn post(scene: &mut Scene, others: Others<'_>) {
    let own = Member { address: scene.proxy, incarnation: [1; 16] };
    let member = |(number, start): &(u8, u8)| Member {
        address: address(*number),
        incarnation: [*start; 16],
    };
    let members = [own].into_iter().chain(others.iter().map(member)).collect();
    let fleet = Arc::new(Fleet::new(members, 0).unwrap());
    for core in scene.cores.clone() {
        scene.world.post(core, CoreMail::Fleet(Arc::clone(&fleet)));
    }
}

/// A client for which the test decides every message.
#[derive(Clone, Copy)]
struct Listener {
    host: HostId<simulated::Client>,
    version: u8,
}

impl Listener {
    /// Connects a client and registers for these kinds of events.
    fn new(scene: &mut Scene, version: u8, kinds: &[&str]) -> Listener {
        let host = scene.world.add("listener", simulated::Client::new(scene.proxy));
        scene.world.with(host, |client, io| client.send(io, &bytes::startup(version, None)));
        let listener = Listener { host, version };
        listener.answer(scene, 0);
        if !kinds.is_empty() {
            listener.register(scene, kinds);
        }
        listener
    }

    fn register(self, scene: &mut Scene, kinds: &[&str]) {
        let body = bytes::body(|out| encode::register(out, kinds.iter().copied()));
        assert_eq!(self.ask(scene, opcode::REGISTER, &body).opcode(), opcode::READY);
    }

    fn send(self, scene: &mut Scene, op: u8, body: &[u8]) {
        let header = Header::request(self.version, 7, op);
        scene.world.with(self.host, |client, io| client.push(io, header, body));
    }

    fn ask(self, scene: &mut Scene, op: u8, body: &[u8]) -> Answer {
        self.send(scene, op, body);
        self.answer(scene, 7)
    }

    /// Waits for the answer on this stream, and takes it.
    fn answer(self, scene: &mut Scene, stream: i16) -> Answer {
        let host = self.host;
        assert!(scene.world.run_until(20 * SECOND, |world| world.host(host).on(stream).is_some()));
        scene.world.with(host, |client, _| {
            let place = client.answers.iter().position(|answer| answer.stream() == stream).unwrap();
            client.answers.remove(place)
        })
    }

    fn query(self, scene: &mut Scene, text: &str) -> Answer {
        let body =
            bytes::body(|out| encode::query_simple(out, self.version, text, Consistency::ONE));
        self.ask(scene, opcode::QUERY, &body)
    }

    /// Takes the events that it has received.
    fn heard(self, scene: &mut Scene) -> Vec<(String, SocketAddr)> {
        let answers = scene.world.with(self.host, |client, _| std::mem::take(&mut client.answers));
        let event = |answer: Answer| {
            assert_eq!(
                (answer.opcode(), answer.stream()),
                (opcode::EVENT, EVENT_STREAM),
                "{answer:?}"
            );
            match Event::decode(&answer.body) {
                Ok(
                    Event::TopologyChange { change, address }
                    | Event::StatusChange { change, address },
                ) => (change.to_owned(), address),
                other => panic!("{other:?}"),
            }
        };
        answers.into_iter().map(event).collect()
    }
}

/// Events in the form of [`Listener::heard`].
fn events(of: Events<'_>) -> Vec<(String, SocketAddr)> {
    of.iter().map(|(change, number)| ((*change).to_owned(), address(*number))).collect()
}

#[test]
fn registered_clients_hear_of_each_change_once_and_of_what_they_asked_for() {
    let mut scene = scene(1, |_| {});
    let kinds: [&[&str]; 5] =
        [HOSTS, &["TOPOLOGY_CHANGE"], &["STATUS_CHANGE"], &["SCHEMA_CHANGE"], &[]];
    let listeners: Vec<(Listener, &[&str])> = (3..=5)
        .flat_map(|version| kinds.map(|kinds| (version, kinds)))
        .map(|(version, kinds)| (Listener::new(&mut scene, version, kinds), kinds))
        .collect();
    let steps: [(Others, Events); 6] = [
        (&[], &[]),
        (&[(2, 1), (3, 1)], &[("NEW_NODE", 2), ("UP", 2), ("NEW_NODE", 3), ("UP", 3)]),
        (&[(2, 1), (3, 1)], &[]),
        (&[(3, 1)], &[("DOWN", 2), ("REMOVED_NODE", 2)]),
        (&[(3, 2)], &[("DOWN", 3), ("UP", 3)]),
        (&[(4, 1)], &[("NEW_NODE", 4), ("UP", 4), ("DOWN", 3), ("REMOVED_NODE", 3)]),
    ];
    for (members, told) in steps {
        post(&mut scene, members);
        scene.world.run_for(SECOND);
        for (listener, kinds) in &listeners {
            let of_kind = |change: &str| {
                let topology = matches!(change, "NEW_NODE" | "REMOVED_NODE");
                kinds.contains(if topology { &"TOPOLOGY_CHANGE" } else { &"STATUS_CHANGE" })
            };
            let expected: Vec<_> =
                told.iter().filter(|(change, _)| of_kind(change)).copied().collect();
            assert_eq!(listener.heard(&mut scene), events(&expected), "{kinds:?} {members:?}");
        }
    }
}

#[test]
fn a_later_listener_hears_later_changes_only() {
    let mut scene = scene(1, |_| {});
    post(&mut scene, &[(2, 1)]);
    scene.world.run_for(SECOND);
    let listener = Listener::new(&mut scene, 4, &["STATUS_CHANGE"]);
    post(&mut scene, &[(2, 1), (3, 1)]);
    scene.world.run_for(SECOND);
    assert_eq!(listener.heard(&mut scene), events(&[("UP", 3)]));
    // It hears the newly requested kinds from now on.
    listener.register(&mut scene, &["TOPOLOGY_CHANGE"]);
    post(&mut scene, &[(3, 1)]);
    scene.world.run_for(SECOND);
    assert_eq!(listener.heard(&mut scene), events(&[("DOWN", 2), ("REMOVED_NODE", 2)]));
    // Registering once more for the same kinds is no news.
    listener.register(&mut scene, HOSTS);
    scene.world.run_for(SECOND);
    assert_eq!(listener.heard(&mut scene), []);
}

/// The addresses in the first column.
fn peers(answer: &Answer) -> BTreeSet<SocketAddr> {
    let ip = |value: Vec<u8>| <[u8; 4]>::try_from(value).unwrap();
    answer.first_column().into_iter().map(|value| (ip(value), 9042).into()).collect()
}

/// A client that knows the hosts from its events.
struct Watcher {
    listener: Listener,
    /// The known hosts; `None` before the first read.
    known: Option<BTreeSet<SocketAddr>>,
}

impl Watcher {
    fn new(scene: &mut Scene, version: u8) -> Watcher {
        let listener = Listener::new(scene, version, &["TOPOLOGY_CHANGE"]);
        let text = "SELECT peer FROM system.peers";
        let body = bytes::body(|out| encode::query_simple(out, version, text, Consistency::ONE));
        listener.send(scene, opcode::QUERY, &body);
        Watcher { listener, known: None }
    }

    /// Handles the received messages, in order.
    fn catch_up(&mut self, scene: &mut Scene) {
        let answers =
            scene.world.with(self.listener.host, |client, _| std::mem::take(&mut client.answers));
        for answer in answers {
            match answer.opcode() {
                opcode::READY => continue,
                opcode::RESULT => {
                    self.known = Some(peers(&answer));
                    continue;
                }
                other => assert_eq!(other, opcode::EVENT),
            }
            let Ok(Event::TopologyChange { change, address }) = Event::decode(&answer.body) else {
                panic!()
            };
            let Some(known) = &mut self.known else { continue };
            let news =
                if change == "NEW_NODE" { known.insert(address) } else { known.remove(&address) };
            assert!(news, "told once more: {change} {address}");
        }
    }
}

/// A client that has read the hosts and then follows its events knows them, whatever comes in
/// between: no event announces a known host, or the end of an unknown one.
#[test]
fn changes_that_come_faster_than_they_are_told_add_up() {
    for_seeds(10, |seed| {
        let mut random = Random::new(seed);
        let mut scene = scene(seed, |_| {});
        let mut watchers: Vec<Watcher> = Vec::new();
        let mut members: Vec<(u8, u8)> = Vec::new();
        post(&mut scene, &members);
        for round in 0..8 {
            scene.world.run_for(SECOND);
            for _ in 0..100 {
                watchers.push(Watcher::new(&mut scene, 3 + random.below(3) as u8));
            }
            scene.world.run_for(SECOND);
            for _ in 0..1 + random.below(5) {
                members =
                    (2..9).filter(|_| random.below(2) == 0).map(|number| (number, round)).collect();
                post(&mut scene, &members);
                scene.world.run_for(random.below(400_000));
                if random.below(2) == 0 {
                    watchers.push(Watcher::new(&mut scene, 4));
                }
                // Registering once more must not lose pending events.
                for _ in 0..20 {
                    let again = random.index(watchers.len());
                    let body = bytes::body(|out| encode::register(out, ["TOPOLOGY_CHANGE"]));
                    watchers[again].listener.send(&mut scene, opcode::REGISTER, &body);
                }
            }
            // Some leave in the middle of it, and others soon get their slots.
            for _ in 0..random.below(40) {
                let place = random.index(watchers.len());
                let gone = watchers.swap_remove(place).listener;
                scene.world.with(gone.host, |client, io| client.reset(io));
            }
        }
        scene.world.run_for(SECOND);
        let expected: BTreeSet<SocketAddr> =
            members.iter().map(|(number, _)| address(*number)).collect();
        for mut watcher in watchers {
            watcher.catch_up(&mut scene);
            assert_eq!(watcher.known.as_ref(), Some(&expected));
        }
    });
}

#[test]
fn a_change_is_told_to_thousands_a_few_at_a_time_and_queries_go_on() {
    const LISTENERS: usize = 3_000;
    let mut scene = scene(1, |options| options.cores = 1);
    scene.add_client(|client| (client.outstanding, client.think_ns) = (4, 100_000));
    scene.work(10, 10 * SECOND);
    let listeners: Vec<Listener> =
        (0..LISTENERS).map(|_| Listener::new(&mut scene, 4, HOSTS)).collect();
    scene.mail_clients(ClientMail::More(100_000));
    scene.world.run_for(10 * MILLISECOND);
    let right = |scene: &Scene| scene.sum(|client| client.tally.right);
    let (before, mut sent) = (right(&scene), scene.metrics[0].client_bytes_out.get());
    post(&mut scene, &[(2, 1)]);
    // Two events with their headers, and the other client's answers of one turn.
    let most = (limits::ANNOUNCE_CLIENTS * 100 + 50_000) as u64;
    let told = |scene: &Scene| {
        let heard = |listener: &&Listener| scene.world.host(listener.host).answers.len() == 2;
        listeners.iter().filter(heard).count()
    };
    let mut steps = 0;
    while told(&scene) < LISTENERS {
        for _ in 0..20 {
            let limit_ns = scene.world.now_ns() + SECOND;
            scene.world.step(limit_ns);
            let now = scene.metrics[0].client_bytes_out.get();
            assert!(now - sent < most, "{} bytes in one turn", now - sent);
            sent = now;
        }
        steps += 1;
        assert!(steps < 100_000, "told {}", told(&scene));
    }
    assert!(right(&scene) > before, "no query was answered meanwhile");
    scene.mail_clients(ClientMail::Stop);
    scene.wait_idle(20 * SECOND);
    for listener in listeners {
        assert_eq!(listener.heard(&mut scene), events(&[("NEW_NODE", 2), ("UP", 2)]));
    }
}

#[test]
fn a_client_that_reads_nothing_is_told_when_it_does() {
    let mut scene = scene(1, |_| {});
    let listener = Listener::new(&mut scene, 5, HOSTS);
    scene.world.with(listener.host, |client, io| client.stop_reading(io));
    for start in 0..20 {
        post(&mut scene, &[(2, start)]);
        scene.world.run_for(SECOND);
    }
    scene.world.with(listener.host, |client, io| client.resume_reading(io));
    scene.world.run_for(SECOND);
    let mut expected = vec![("NEW_NODE", 2), ("UP", 2)];
    (1..20).for_each(|_| expected.extend([("DOWN", 2), ("UP", 2)]));
    assert_eq!(listener.heard(&mut scene), events(&expected));
}

/// However a request travels, the proxy must find it again when its answer comes, to know which
/// rows it asked for.
#[test]
fn peers_are_the_other_members_however_they_are_asked_for() {
    for (version, aggregate) in
        [(3, false), (4, false), (5, false), (3, true), (4, true), (5, true)]
    {
        let mut scene = scene(1, |options| options.aggregate = vec![aggregate; 3]);
        let listener = Listener::new(&mut scene, version, &[]);
        let one = "SELECT peer FROM system.peers WHERE peer = '10.2.1.3'";
        assert_eq!(
            peers(&listener.query(&mut scene, "SELECT peer FROM system.peers")),
            BTreeSet::new()
        );
        post(&mut scene, &[(2, 1), (3, 1), (3, 2)]);
        scene.world.run_for(SECOND);
        for _ in 0..5 {
            for table in ["peers", "peers_v2"] {
                let answer = listener
                    .query(&mut scene, &format!("SELECT peer, host_id FROM system.{table}"));
                assert_eq!(peers(&answer), [address(2), address(3)].into());
            }
            assert_eq!(peers(&listener.query(&mut scene, one)), [address(3)].into());
            let (_, why) = listener
                .query(&mut scene, "SELECT peer FROM system.peers WHERE peer > '::1'")
                .error();
            assert!(why.contains("proxies of a fleet"), "{why}");
        }
        let text = "SELECT peer FROM system.peers_v2 WHERE peer = ? AND peer_port = ?";
        let prepare = bytes::body(|out| encode::prepare(out, version, text, None));
        let statement = listener.ask(&mut scene, opcode::PREPARE, &prepare).prepared();
        for (number, port, expected) in
            [(2, 9042i32, Some(2)), (3, 9042, Some(3)), (2, 7000, None), (1, 9042, None)]
        {
            let (ip, port) = ([10, 2, 1, number], port.to_be_bytes());
            let mut values = ValueList::positional(version);
            values.push(Value::Bytes(&ip)).push(Value::Bytes(&port));
            let flags = query_flag::SKIP_METADATA;
            let params = QueryParams {
                flags,
                values: values.values(),
                ..QueryParams::simple(Consistency::ONE)
            };
            let execute = bytes::body(|out| {
                encode::execute(
                    out,
                    version,
                    &statement.id,
                    statement.metadata_id.as_deref(),
                    &params,
                );
            });
            let found = peers(&listener.ask(&mut scene, opcode::EXECUTE, &execute));
            assert_eq!(found, expected.map(address).into_iter().collect(), "version {version}");
        }
    }
}

/// The proxy finds the request again after a second attempt.
#[test]
fn peers_are_told_after_a_node_was_lost_or_had_forgotten_the_statement() {
    let mut scene = scene(1, |options| options.cores = 1);
    post(&mut scene, &[(2, 1), (3, 1)]);
    let listener = Listener::new(&mut scene, 4, &[]);
    let text = "SELECT peer FROM system.peers WHERE peer = ?";
    let prepare = bytes::body(|out| encode::prepare(out, 4, text, None));
    let statement = listener.ask(&mut scene, opcode::PREPARE, &prepare).prepared();
    let mut values = ValueList::positional(4);
    values.push(Value::Bytes(&[10, 2, 1, 3]));
    let params = QueryParams { values: values.values(), ..QueryParams::simple(Consistency::ONE) };
    let execute = bytes::body(|out| encode::execute(out, 4, &statement.id, None, &params));
    let is_execute =
        |request: &shunt_bench::stub::hook::Request<'_>| request.opcode == opcode::EXECUTE;
    for action in [Action::Unprepared, Action::Close] {
        for node in 0..3 {
            scene.hook(node, Some(shunt_bench::stub::hook::once(action.clone(), is_execute)));
        }
        for _ in 0..6 {
            let answer = listener.ask(&mut scene, opcode::EXECUTE, &execute);
            // A read is repeated once; with more nodes that hang up it gets an error.
            if answer.opcode() == opcode::RESULT {
                assert_eq!(peers(&answer), [address(3)].into());
            }
        }
        scene.world.run_for(15 * SECOND);
        assert_eq!(
            peers(&listener.ask(&mut scene, opcode::EXECUTE, &execute)),
            [address(3)].into()
        );
    }
}

#[test]
fn a_member_shows_itself_at_the_address_that_the_others_tell() {
    let mut scene = scene(1, |_| {});
    let listener = Listener::new(&mut scene, 4, &[]);
    let text = "SELECT host_id, rpc_address, rpc_port, broadcast_port, tokens, schema_version FROM system.local";
    let alone = listener.query(&mut scene, text).rows();
    post(&mut scene, &[(2, 1)]);
    scene.world.run_for(SECOND);
    let member = listener.query(&mut scene, text).rows();
    assert_eq!(alone[0][..3], member[0][..3], "the host it was before");
    let port = Some(9042i32.to_be_bytes().to_vec());
    assert_eq!((alone[0][3] == port, member[0][3] == port), (true, true), "never the node's");
    assert!(
        alone[0][4] != member[0][4] && member[0][4].as_ref().is_some_and(|tokens| tokens.len() > 9)
    );
    // The proxy is behind a balancer, for example: the client has connected to another address than
    // the fleet shows.
    let own = Member { address: address(77), incarnation: [1; 16] };
    let fleet = Arc::new(Fleet::new(vec![own], 0).unwrap());
    for core in scene.cores.clone() {
        scene.world.post(core, CoreMail::Fleet(Arc::clone(&fleet)));
    }
    scene.world.run_for(SECOND);
    assert_eq!(listener.query(&mut scene, text).rows()[0][1], Some(vec![10, 2, 1, 77]));
}
