//! Puts a world together: nodes with one memory, cores behind one address, clients; and checks it
//! afterwards.

use std::net::SocketAddr;
use std::sync::Arc;

use shunt_agent::{Agent, AgentOptions};
use shunt_bench::stub::{AggregateLimits, Memory, Ring, Stub, StubMail, StubOptions};
use shunt_handover::limits::UNREAD_BYTES_MAX;
use shunt_handover::session::{Instance, OwnerId, Protocol, SharedKey};
use shunt_proxy::config::{Config, Window};
use shunt_proxy::control::state::{ClusterState, ControlRequest, CoreMail};
use shunt_proxy::core::{Core, CoreOptions};
use shunt_proxy::handover::{Anywhere, Clients, HandoverOptions};
use shunt_proxy::log_limits::LogLimits;
use shunt_proxy::metrics::{CoreMetrics, HedgeEvent};
use shunt_proxy::prepared::PreparedStore;
use shunt_proxy::tls::Outgoing;
use shunt_reactor::LoopOptions;
use shunt_reactor::sim::{HostId, MILLISECOND, Options, Random, SECOND, World};
use shunt_topology::schema::{Cells, Column, ColumnKind};
use shunt_topology::{NodeId, Table};
use shunt_transactions::catalogue::modes::{InitialModes, TableModes};
use shunt_wire::cql::message::{Event, SchemaChange, encode};
use shunt_wire::cql::types::CqlType;
use tokio::sync::mpsc;

use super::client::{Client, ClientMail, ClientOptions};
use super::cluster;
use super::hostile::{Hostile, MISBEHAVIOURS};

/// The parts of a scene and their settings.
pub struct SceneOptions {
    pub seed: u64,
    pub network: Options,
    pub nodes: usize,
    pub cores: usize,
    /// For each node, true if it offers aggregated frames.
    pub aggregate: Vec<bool>,
    pub aggregate_limits: AggregateLimits,
    /// The port on which nodes take aggregated frames; `None`: the ordinary one.
    pub aggregate_port: Option<u16>,
    pub credentials: Vec<(String, String)>,
    /// Class of the authenticator that asks for them, as [`Scene::post_cluster`] reports it.
    pub authenticator: &'static str,
    pub protocol_max: u8,
    /// True if the cores know the ring from the start.
    pub knows_ring: bool,
    /// The way in which the cores hear which tables have modes.
    pub beginning: Beginning,
    /// True if an agent is beside each node, and large answers go over clients' own connections.
    pub hands_over: bool,
    pub outgoing: Outgoing,
    pub config: Config,
}

/// The way in which the cores of a scene hear which tables have modes: they are told that none has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// A quorum has just said so.
    Known,
    /// No quorum has answered.
    InDoubt,
    /// The cores take this in as late as this, in nanoseconds.
    Late(u64),
    /// The control plane's first state of the ring was lost: a later one has no modes.
    Untold,
}

/// An authenticator for which the first part of a PLAIN message may say something.
pub const OTHER_AUTHENTICATOR: &str = "com.example.OtherAuthenticator";

impl SceneOptions {
    /// The default: three nodes, one core, no logins, and deadlines short enough for short runs.
    pub fn new(seed: u64, network: Options) -> SceneOptions {
        SceneOptions {
            seed,
            network,
            nodes: 3,
            cores: 1,
            aggregate: vec![false; 3],
            aggregate_limits: AggregateLimits { count_max: 64, bytes_max: 65_536 },
            aggregate_port: None,
            credentials: Vec::new(),
            authenticator: "org.apache.cassandra.auth.PasswordAuthenticator",
            protocol_max: 5,
            knows_ring: true,
            beginning: Beginning::Known,
            hands_over: false,
            outgoing: Outgoing::default(),
            config: Config {
                query_timeout_ms: 2_000,
                connect_timeout_ms: 1_000,
                heartbeat_interval_ms: 5_000,
                handshake_timeout_ms: 10_000,
                frame_bytes_max: 1 << 20,
                ..Config::default()
            },
        }
    }
}

pub struct Scene {
    pub world: World,
    pub nodes: Vec<HostId<Stub>>,
    /// Agents beside each node, if there are any.
    pub agents: Vec<HostId<Agent>>,
    /// Runs of agents so far.
    instances: u64,
    pub cores: Vec<HostId<Core>>,
    pub clients: Vec<HostId<Client>>,
    pub hostiles: Vec<HostId<Hostile>>,
    pub metrics: Vec<Arc<CoreMetrics>>,
    /// Clients' connections that any core has.
    pub known_clients: Clients,
    pub memory: Memory,
    pub ring: Ring,
    pub options: SceneOptions,
    pub proxy: SocketAddr,
    /// For each node, true if [`Scene::post_cluster`] says that it is up.
    pub said_up: Vec<bool>,
    /// For each node, true if [`Scene::post_cluster`] says that it belongs to the ring.
    pub known: Vec<bool>,
    /// Nodes that [`Scene::post_cluster`] says are drained.
    pub drained: Vec<usize>,
    /// Columns of the table, as [`Scene::post_cluster`] reports them.
    pub columns: Vec<(&'static str, ColumnKind)>,
    /// Keyspaces, as [`Scene::post_cluster`] reports them.
    pub keyspaces: Vec<&'static str>,
    /// Tables beside the stub's, as [`Scene::post_cluster`] reports them.
    pub tables: Vec<Table>,
    generation: u64,
    control: mpsc::Receiver<ControlRequest>,
}

impl Scene {
    /// Starts nodes and cores, which know the ring if `knows_ring`; clients come later.
    pub fn new(options: SceneOptions) -> Scene {
        let mut world = World::new(options.seed, options.network.clone());
        let memory: Memory = Memory::default();
        let addresses: Vec<SocketAddr> = (0..options.nodes)
            .map(|index| format!("10.1.0.{}:9042", index + 1).parse().unwrap())
            .collect();
        let ring = Ring { replication: 2.min(options.nodes as u8), ..Ring::even(&addresses, 4) };
        let nodes: Vec<HostId<Stub>> = (0..options.nodes)
            .map(|index| world.add(&format!("node {index}"), stub(&options, &ring, &memory, index)))
            .collect();
        for (node, address) in nodes.iter().zip(&addresses) {
            world.listen(*node, *address);
            if let Some(port) = options.aggregate_port {
                world.listen(*node, SocketAddr::new(address.ip(), port));
            }
        }
        let proxy: SocketAddr = "10.2.0.1:9042".parse().unwrap();
        let agents = agents(&mut world, &options, proxy);
        let (sender, control) = mpsc::channel(64);
        let store = Arc::new(PreparedStore::new());
        let log_limits = Arc::<LogLimits>::default();
        let listen = vec![proxy].into();
        let config = Arc::new(Config { cores: options.cores, listen, ..options.config.clone() });
        let metrics: Vec<Arc<CoreMetrics>> =
            (0..options.cores).map(|index| Arc::new(CoreMetrics::new(index))).collect();
        let known_clients = Clients::default();
        let cores = (0..options.cores)
            .map(|index| {
                let core = Core::new(CoreOptions {
                    index,
                    config: Arc::clone(&config),
                    metrics: Arc::clone(&metrics[index]),
                    prepared: Arc::clone(&store),
                    log_limits: Arc::clone(&log_limits),
                    control: sender.clone(),
                    cores: Vec::new(),
                    state_file: None,
                    handover: options.hands_over.then(|| handover(&options, &known_clients, index)),
                    outgoing: options.outgoing.clone(),
                    seed: options.seed ^ index as u64,
                });
                let core = world.add(&format!("core {index}"), core);
                world.listen(core, proxy);
                core
            })
            .collect();
        let (said_up, known) = (vec![true; options.nodes], vec![true; options.nodes]);
        let mut scene = Scene {
            world,
            nodes,
            instances: agents.len() as u64,
            agents,
            known_clients,
            cores,
            clients: Vec::new(),
            hostiles: Vec::new(),
            metrics,
            memory,
            ring,
            options,
            proxy,
            said_up,
            drained: Vec::new(),
            known,
            keyspaces: vec!["bench"],
            tables: Vec::new(),
            columns: vec![
                ("k", ColumnKind::Single),
                ("v", ColumnKind::Single),
                ("l", ColumnKind::List),
                ("m", ColumnKind::Keyed),
            ],
            generation: 0,
            control,
        };
        if scene.options.knows_ring {
            scene.post_cluster();
        }
        if let Beginning::Late(delay_ns) = scene.options.beginning {
            scene.cores.clone().into_iter().for_each(|core| scene.world.freeze(core));
            scene.world.run_for(delay_ns);
            scene.cores.clone().into_iter().for_each(|core| scene.world.thaw(core));
        }
        scene
    }

    /// Adds a client with these options beside its number.
    pub fn add_client(&mut self, change: impl FnOnce(&mut ClientOptions)) -> HostId<Client> {
        let number = self.clients.len() as u16;
        let mut options = ClientOptions::new(number, self.proxy, self.options.seed);
        change(&mut options);
        let client = self.world.add(&format!("client {number}"), Client::new(options));
        self.clients.push(client);
        client
    }

    /// Sends the cores the ring in the state of `said_up`.
    pub fn post_cluster(&mut self) {
        self.generation += 1;
        let mut nodes = cluster::nodes(&self.ring);
        nodes.iter_mut().zip(&self.said_up).for_each(|(node, up)| node.up = *up);
        nodes.retain(|node| self.known[usize::from(node.id.0)]);
        let with_login = !self.options.credentials.is_empty();
        let cells = Cells::new(self.columns.iter().copied(), false);
        let state = ClusterState {
            drained: self.drained.iter().map(|node| NodeId(*node as u16)).collect(),
            modes: None,
            generation: self.generation,
            protocol_version_max: self.options.protocol_max,
            authenticator: with_login.then(|| self.options.authenticator.to_owned()),
            ..cluster::state_with(&self.ring, nodes, cells, &self.keyspaces, &self.tables)
        };
        let mut modes = TableModes::default();
        if self.options.beginning == Beginning::InDoubt {
            modes.set_in_doubt();
        }
        for core in self.cores.clone() {
            let asked_ns = self.world.clock(core).local_ns(self.world.now_ns());
            let read = InitialModes { modes: modes.clone(), asked_ns };
            let modes = (self.options.beginning != Beginning::Untold).then_some(read);
            let state = ClusterState { modes, ..state.clone() };
            self.world.post(core, CoreMail::Cluster(Arc::new(state)));
        }
    }

    /// Sends the cores one more table: its key comes first, and no column has many cells.
    pub fn add_table(&mut self, keyspace: &str, name: &str, columns: &[&'static str]) {
        let key = Column { name: columns[0].into(), cql_type: CqlType::Int };
        let cells = Cells::new(columns.iter().map(|column| (*column, ColumnKind::Single)), false);
        self.tables.push(Table {
            keyspace: keyspace.into(),
            name: name.into(),
            partition_key: vec![key],
            cells,
        });
        self.post_cluster();
        self.world.run_for(MILLISECOND);
    }

    /// Sends the cores an event that a table was created.
    pub fn post_schema_event(&mut self) {
        let change = SchemaChange {
            change: "CREATED",
            target: "TABLE",
            keyspace: "bench",
            name: Some("kv2"),
            arguments: None,
        };
        let mut body = Vec::new();
        encode::event(&mut body, &Event::SchemaChange(change));
        let body: Arc<[u8]> = body.into();
        for core in self.cores.clone() {
            self.world.post(core, CoreMail::SchemaEvent(Arc::clone(&body)));
        }
    }

    /// Sends the cores a configuration with another window and another time for frames to gather.
    pub fn reload(&mut self, window_us: Window, gather_us: u64) {
        self.reload_as(Config { window_us, gather_us, ..self.options.config.clone() });
    }

    /// Sends the cores a configuration.
    pub fn reload_as(&mut self, config: Config) {
        let (cores, listen) = (self.options.cores, vec![self.proxy].into());
        let config = Arc::new(Config { cores, listen, ..config });
        for core in self.cores.clone() {
            self.world.post(core, CoreMail::Reload(Arc::clone(&config)));
        }
    }

    /// Starts a node again after a kill, with its data and without its prepared statements.
    pub fn restart_node(&mut self, index: usize) {
        let stub = stub(&self.options, &self.ring, &self.memory, index);
        self.world.restart(self.nodes[index], stub);
    }

    /// Starts an agent again, without its former state.
    pub fn restart_agent(&mut self, index: usize) {
        self.instances += 1;
        let agent = agent(&self.options, self.proxy, index, self.instances);
        self.world.thaw(self.agents[index]);
        self.world.restart(self.agents[index], agent);
    }

    /// Adds a hostile client of each kind.
    pub fn add_hostiles(&mut self) {
        for misbehaviour in MISBEHAVIOURS {
            let hostile = Hostile::new(misbehaviour, self.proxy, self.options.seed);
            self.hostiles.push(self.world.add("hostile", hostile));
        }
    }

    /// Ends the hostile clients for good.
    pub fn dismiss_hostiles(&mut self) {
        for hostile in std::mem::take(&mut self.hostiles) {
            self.world.kill(hostile);
        }
    }

    pub fn mail_clients(&mut self, mail: ClientMail) {
        for client in self.clients.clone() {
            self.world.post(client, mail);
        }
    }

    /// Lets every client make this many more requests and waits until all are answered.
    pub fn work(&mut self, each: u64, max_ns: u64) {
        self.mail_clients(ClientMail::More(each));
        self.wait_idle(max_ns);
    }

    /// Waits until no client has a request in flight or to send.
    pub fn wait_idle(&mut self, max_ns: u64) {
        let clients = self.clients.clone();
        // Mail takes a turn to arrive; without it idle clients would look finished.
        self.world.run_for(SECOND / 100);
        let idle = |world: &mut World| clients.iter().all(|client| world.host(*client).is_idle());
        if !self.world.run_until(max_ns, idle) {
            self.show_clients();
            panic!("requests were not answered within {} virtual seconds", max_ns / SECOND);
        }
        while self.control.try_recv().is_ok() {}
    }

    /// Prints all clients, for the output of a test that fails.
    pub fn show_clients(&self) {
        for client in &self.clients {
            let client = self.world.host(*client);
            eprintln!(
                "{:?}\n{:?} {:?}\n{}",
                client.options, client.tally, client.in_flight, client.last_error
            );
        }
        eprintln!("{}", self.log_of_metrics());
    }

    pub fn wait_ready(&mut self, max_ns: u64) {
        let clients = self.clients.clone();
        let ready = |world: &mut World| clients.iter().all(|client| world.host(*client).is_ready());
        assert!(self.world.run_until(max_ns, ready), "clients did not get READY");
    }

    /// Makes a node take aggregated frames from now on, or no longer.
    pub fn offer_aggregates(&mut self, node: usize, offered: bool) {
        let limits = offered.then_some(self.options.aggregate_limits);
        self.world.post(self.nodes[node], StubMail::Aggregate(limits));
    }

    /// Links to a node that carry aggregated frames, and all links to it.
    pub fn links(&self, node: usize) -> (u64, u64) {
        let of = |metrics: &Arc<CoreMetrics>| {
            let node = metrics.nodes.node(NodeId(node as u16));
            (node.aggregated_links.get(), node.links.get())
        };
        self.metrics.iter().map(of).fold((0, 0), |sum, links| (sum.0 + links.0, sum.1 + links.1))
    }

    /// Takes the requests of the cores to the control plane since the last call.
    pub fn asked_of_control(&mut self) -> Vec<ControlRequest> {
        std::iter::from_fn(|| self.control.try_recv().ok()).collect()
    }

    pub fn hook(&mut self, node: usize, hook: Option<shunt_bench::stub::Hook>) {
        self.world.post(self.nodes[node], StubMail::Hook(hook));
    }

    // --- checks ---

    pub fn sum(&self, of: impl Fn(&Client) -> u64) -> u64 {
        self.clients.iter().map(|client| of(self.world.host(*client))).sum()
    }

    /// Checks that no acknowledged write is missing, and no key has another's value.
    pub fn check_memory(&self) {
        let mut known = self.registers_written();
        let memory = self.memory.lock().unwrap();
        for client in &self.clients {
            let model = &self.world.host(*client).model;
            for number in 0..model.len() {
                match memory.get(&model.key(number)) {
                    Some(value) => {
                        assert!(value == model.value(number), "key {number} has another value");
                        assert_ne!(
                            model.fate(number),
                            super::model::Fate::NotBegun,
                            "it was written all the same"
                        );
                        known += 1;
                    }
                    None => assert_ne!(
                        model.fate(number),
                        super::model::Fate::Acknowledged,
                        "a write was lost"
                    ),
                }
            }
        }
        assert_eq!(known, memory.len(), "the nodes hold keys that nobody wrote");
    }

    /// Checks that no core exceeds its bounds.
    pub fn check_bounds(&self) {
        for core in self.cores.iter().filter(|core| self.world.is_running(**core)) {
            let held = self.world.held(*core);
            let connections = self.world.io(*core).connections();
            // One incomplete message, and the bytes of one read of 128 KB beside it.
            let message_bytes = self.options.config.frame_bytes_max as usize + (160 << 10);
            assert!(
                held.unread <= connections * message_bytes,
                "{held:?} of {connections} connections"
            );
            // Reading from a client stops at its bound; later bytes are answers to requests in
            // flight.
            assert!(
                held.backlog_most <= self.options.config.client_backlog_bytes + (4 << 20),
                "{held:?}"
            );
            assert!(held.retained <= 64 << 20, "{held:?}");
        }
    }

    /// Checks that soon nothing is in flight in the proxy and it holds no bytes for anybody. There
    /// must be no hostile clients.
    pub fn check_at_rest(&mut self) {
        // Statements that nobody waits for may still be on their way to nodes.
        self.world.run_for(5 * SECOND);
        if self.options.hands_over {
            self.world.run_for(90 * SECOND);
        }
        for agent in &self.agents {
            let agent = self.world.host(*agent);
            assert_eq!((agent.taken(), agent.kept_bytes()), (0, 0));
        }
        if self.options.hands_over {
            let clients: u64 = self.metrics.iter().map(|metrics| metrics.clients.get()).sum();
            assert_eq!(
                self.known_clients.len() as u64,
                clients,
                "those that are connected are known, and no others"
            );
        }
        for (core, metrics) in self.cores.iter().zip(&self.metrics) {
            assert!(self.world.host(*core).has_handed_back());
            assert_eq!(metrics.in_flight.get(), 0, "in flight");
            let [sent, won, abandoned] = [HedgeEvent::Sent, HedgeEvent::Won, HedgeEvent::Abandoned]
                .map(|event| metrics.hedges.of(event).get());
            assert_eq!(sent, won + abandoned, "each second read has an end");
            assert_eq!(metrics.own_statements.in_flight.get(), 0, "own statements in flight");
            assert_eq!(metrics.clients_paused.get(), 0, "paused clients");
        }
        // At any moment a part of the answer to a heartbeat may have come. Bytes that nobody wants
        // never go.
        for core in self.cores.clone() {
            let holds_nothing = |world: &mut World| {
                let held = world.held(core);
                (held.unread, held.backlog, held.retained) == (0, 0, 0)
            };
            let is_at_rest = self.world.run_until(5 * SECOND, holds_nothing);
            assert!(is_at_rest, "{:?}", self.world.held(core));
        }
    }

    pub fn log_of_metrics(&self) -> String {
        self.metrics.iter().map(|metrics| format!("{:?}\n", metrics.outcomes)).collect()
    }
}

fn random(seed: u64) -> shunt_proxy::handover::Random {
    let mut random = Random::new(seed);
    Box::new(move |bytes| random.fill(bytes))
}

fn handover(options: &SceneOptions, clients: &Clients, core: usize) -> HandoverOptions {
    HandoverOptions {
        clients: clients.clone(),
        key: SharedKey::new(&[7; 32]).unwrap(),
        owner: OwnerId(core as u64),
        instance: Instance(core as u64),
        steer: Box::new(Anywhere),
        random: random(options.seed ^ 0x6f77_6e65_7200 ^ core as u64),
    }
}

fn agents(world: &mut World, options: &SceneOptions, proxy: SocketAddr) -> Vec<HostId<Agent>> {
    let count = if options.hands_over { options.nodes } else { 0 };
    let start = |index| {
        // The product has the same bound: all bytes that a kernel may buffer for a client that
        // nobody reads can come back.
        let mut loop_options = LoopOptions::default();
        loop_options.frozen_limits.unread_bytes_max = UNREAD_BYTES_MAX;
        let agent = agent(options, proxy, index, index as u64);
        let host = world.add_with(&format!("agent {index}"), loop_options, agent);
        world.listen(
            host,
            SocketAddr::new([10, 1, 0, index as u8 + 1].into(), options.config.handover_agent_port),
        );
        host
    };
    (0..count).map(start).collect()
}

fn agent(options: &SceneOptions, proxy: SocketAddr, index: usize, instance: u64) -> Agent {
    Agent::new(AgentOptions {
        protocol: Protocol::Cql,
        upstream: SocketAddr::new([10, 1, 0, index as u8 + 1].into(), 9042),
        key: SharedKey::new(&[7; 32]).unwrap(),
        instance: Instance(instance),
        threshold_bytes: Some(1),
        hold_ns: 0,
        vips: vec![proxy],
        packet_filter: None,
        upstream_connections_max: 64,
        upstream_timeout_ns: 20 * SECOND,
        random: random(options.seed.wrapping_mul(31) ^ instance),
    })
}

fn stub(options: &SceneOptions, ring: &Ring, memory: &Memory, index: usize) -> Stub {
    let aggregate = options.aggregate.get(index).copied().unwrap_or(false);
    Stub::new(StubOptions {
        listeners: vec![index; 2],
        memory: Some(Arc::clone(memory)),
        aggregate: aggregate.then_some(options.aggregate_limits),
        aggregate_port: options.aggregate_port,
        protocol_max: options.protocol_max,
        credentials: options.credentials.clone(),
        ..StubOptions::new(ring.clone())
    })
}
