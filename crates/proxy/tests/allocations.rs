//! A query allocates nothing once buffers have their size. Allocations are counted in the core
//! alone, from the client's bytes to the node's and back, over 25,000 prepared statements with
//! token routing, in every layout.
//!
//! Buffers grow to the size that the load needs, at first often, then less and less: steady state
//! is reached when a whole window passes without an allocation.
#![allow(clippy::unwrap_used, reason = "a test may say what it expects and stop there")]

#[path = "support/cluster.rs"]
mod cluster;

use std::net::SocketAddr;
use std::sync::Arc;

use allocation_counter::measure;
use shunt_bench::stub::{AggregateLimits, Ring, Stub, StubOptions};
use shunt_proxy::config::{Action, Config, Hedge, Pin, Rule, RuleActions, RuleList, RuleMatch};
use shunt_proxy::control::state::CoreMail;
use shunt_proxy::core::{Core, CoreOptions};
use shunt_proxy::metrics::{CoreMetrics, Outcome, Routing};
use shunt_proxy::prepared::PreparedStore;
use shunt_reactor::sim::{HostId, Options, SECOND, World};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_testing::{Answer, Handshake, Step, Watched};
use shunt_topology::schema::Cells;
use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::{Consistency, QueryParams, Value, ValueList, encode, query_flag};
use tokio::sync::mpsc;

const QUERIES: u64 = 25_000;
const WINDOWS_MAX: usize = 20;
/// The load is heavier at first, so that buffers get their size: more queries in flight, with
/// longer values.
const WARM_UP: u64 = 30_000;
const CLIENTS: usize = 24;
const HEAVY: Load = Load { outstanding: 32, value_bytes: 500 };
const STEADY: Load = Load { outstanding: 10, value_bytes: 80 };

/// The requests that one client keeps in flight.
#[derive(Clone, Copy)]
struct Load {
    outstanding: i16,
    value_bytes: usize,
}

/// Counts the allocations of a call, and prints their places if there are any.
fn allocations(call: &mut dyn FnMut()) -> u64 {
    let counted = measure(call);
    if counted.count_total > 0 {
        eprintln!("{counted:?}");
    }
    counted.count_total
}

/// A client with one connection and queries in flight: an INSERT, a SELECT, an INSERT, ...
struct Client {
    proxy: SocketAddr,
    conn: Option<ConnId>,
    cql: shunt_testing::Client,
    load: Load,
    in_flight: i16,
    sent: u64,
    answered: u64,
    body: Vec<u8>,
}

const TEXTS: [&str; 2] =
    ["INSERT INTO bench.kv (k, v) VALUES (?, ?)", "SELECT v FROM bench.kv WHERE k = ?"];

impl Client {
    fn new(proxy: SocketAddr, version: u8, compression: Option<Algorithm>) -> Client {
        let statements = TEXTS.map(str::to_owned).to_vec();
        let handshake = Handshake { statements, ..Handshake::new(version).compressed(compression) };
        Client {
            proxy,
            conn: None,
            cql: shunt_testing::Client::new(handshake),
            load: HEAVY,
            in_flight: 0,
            sent: 0,
            answered: 0,
            body: Vec::new(),
        }
    }

    fn execute(&mut self, io: &mut Io, conn: ConnId, stream: i16) {
        let kind = (self.sent % 2) as usize;
        self.sent += 1;
        self.in_flight += 1;
        let mut values = ValueList::positional(self.cql.version());
        values.push(Value::Bytes(&self.sent.to_be_bytes()));
        if kind == 0 {
            values.push(Value::Bytes(&[0x5A; HEAVY.value_bytes][..self.load.value_bytes]));
        }
        let params = QueryParams {
            values: values.values(),
            flags: query_flag::SKIP_METADATA,
            ..QueryParams::simple(Consistency::ONE)
        };
        self.body.clear();
        let id = &self.cql.statements()[kind].id;
        encode::execute(&mut self.body, self.cql.version(), id, Some(&[0; 16]), &params);
        self.cql.request(io.output(conn), stream, opcode::EXECUTE, &self.body);
    }

    fn answer(&mut self, io: &mut Io, conn: ConnId, answer: &Answer) {
        assert_eq!(answer.opcode(), opcode::RESULT);
        self.answered += 1;
        self.in_flight -= 1;
        if self.in_flight < self.load.outstanding {
            self.execute(io, conn, answer.stream());
        }
    }
}

impl Service for Client {
    type Mail = ();

    fn started(&mut self, io: &mut Io) {
        self.conn = Some(io.connect(self.proxy, SECOND));
    }

    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {}

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        self.cql.start(io.output(conn));
    }

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let begins = !self.cql.is_ready();
        let used = self.cql.receive(data, io.output(conn)).unwrap();
        if begins && self.cql.is_ready() {
            (0..self.load.outstanding).for_each(|stream| self.execute(io, conn, stream));
        }
        while let Some(answer) = self.cql.next_answer() {
            self.answer(io, conn, &answer);
        }
        used
    }

    fn closed(&mut self, _io: &mut Io, _conn: ConnId, reason: CloseReason) {
        panic!("{reason:?}");
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn timer(&mut self, _io: &mut Io, _key: u64) {}
    fn mail(&mut self, _io: &mut Io, (): ()) {}

    fn turn_ended(&mut self, io: &mut Io) {
        if let Some(conn) = self.conn.filter(|_| self.cql.step() != Step::Manual) {
            self.cql.finish(io.output(conn));
        }
    }
}

/// Makes a world of three nodes, one core, and busy clients of this kind.
/// A rule that gives each query another level.
fn level_of_all() -> RuleList {
    let pin = Pin { level: Consistency::THREE, weakens: true };
    let actions = RuleActions { consistency: Some(pin), ..RuleActions::default() };
    RuleList(vec![Rule::new("level", RuleMatch::default(), actions)])
}

fn allocates_nothing(version: u8, compression: Option<Algorithm>, aggregate: bool) {
    let mut world = World::new(7, Options::calm());
    let addresses: Vec<SocketAddr> =
        (1..=3).map(|node| format!("10.1.0.{node}:9042").parse().unwrap()).collect();
    let ring = Ring::even(&addresses, 4);
    for (index, address) in addresses.iter().enumerate() {
        let limits = AggregateLimits { count_max: 64, bytes_max: 65_536 };
        let aggregate = aggregate.then_some(limits);
        let options = StubOptions {
            listeners: vec![index],
            echo: true,
            aggregate,
            ..StubOptions::new(ring.clone())
        };
        let node = world.add("node", Stub::new(options));
        world.listen(node, *address);
    }
    // Some layouts with watched reads, of which none is late, and some without.
    let rule = if version == 4 { RuleList::default() } else { level_of_all() };
    let hedge = if version == 5 { Hedge::After { ms: 5 } } else { Hedge::Off };
    let metrics = Arc::new(CoreMetrics::new(0));
    let (control, _requests) = mpsc::channel(16);
    let core = Core::new(CoreOptions {
        index: 0,
        config: Arc::new(Config { hedge, rule: rule.clone(), ..Config::default() }),
        metrics: Arc::clone(&metrics),
        prepared: Arc::new(PreparedStore::new()),
        log_limits: Arc::default(),
        control,
        cores: Vec::new(),
        state_file: None,
        handover: None,
        outgoing: Default::default(),
        seed: 7,
    });
    let core = world.add("core", Watched::new(core, allocations));
    let proxy: SocketAddr = "10.2.0.1:9042".parse().unwrap();
    world.listen(core, proxy);
    let state = cluster::state(&ring, cluster::nodes(&ring), Cells::default());
    world.post(core, CoreMail::Cluster(Arc::new(state)));
    let clients: Vec<HostId<Client>> = (0..CLIENTS)
        .map(|_| world.add("client", Client::new(proxy, version, compression)))
        .collect();
    let answered =
        |world: &World| clients.iter().map(|client| world.host(*client).answered).sum::<u64>();
    let run = |world: &mut World, count: u64| {
        let target = answered(world) + count;
        while answered(world) < target {
            world.run_for(SECOND / 1000);
            assert!(world.now_ns() < 100 * SECOND, "only {} answers", answered(world));
        }
    };
    run(&mut world, WARM_UP);
    for client in &clients {
        world.with(*client, |client, _| client.load = STEADY);
    }
    run(&mut world, WARM_UP);
    world.with(core, |watched, _| watched.counting = true);
    let mut windows = Vec::new();
    while windows.last() != Some(&0) {
        assert!(windows.len() < WINDOWS_MAX, "allocations per {QUERIES} queries: {windows:?}");
        let (elsewhere, before) =
            (metrics.routed.of(Routing::Any).get(), world.host(core).allocations);
        run(&mut world, QUERIES);
        assert_eq!(
            metrics.routed.of(Routing::Any).get(),
            elsewhere,
            "each goes to a replica by its key"
        );
        windows.push(world.host(core).allocations - before);
    }
    assert!(metrics.outcomes.of(Outcome::Ok).get() >= QUERIES);
    assert_eq!(metrics.aggregated_frames.get() > 0, aggregate);
    assert_eq!(metrics.hedge_after_ns.get() > 0, hedge != Hedge::Off, "reads are watched");
    let ruled = |rule: &Rule| rule.shared.sum(Action::Consistency, false) >= QUERIES;
    assert!(rule.0.iter().all(ruled), "the rule writes the level of each query");
}

#[test]
fn v3() {
    allocates_nothing(3, None, false);
}

#[test]
fn v4() {
    allocates_nothing(4, None, false);
}

#[test]
fn v4_with_compressed_bodies() {
    allocates_nothing(4, Some(Algorithm::Lz4), false);
}

#[test]
fn v5() {
    allocates_nothing(5, None, false);
}

#[test]
fn v5_with_compressed_segments() {
    allocates_nothing(5, Some(Algorithm::Lz4), false);
}

#[test]
fn v4_in_aggregated_frames() {
    allocates_nothing(4, None, true);
}

#[test]
fn v5_in_aggregated_frames() {
    allocates_nothing(5, None, true);
}

#[test]
fn the_counter_counts() {
    let counted = measure(|| drop(std::hint::black_box(vec![1])));
    assert_eq!(counted.count_total, 1);
}
