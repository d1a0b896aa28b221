//! Builds a fleet: nodes with the data of one ring, proxies of one or two cores with the real code,
//! clients; and carries mail between the cores of a proxy.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use shunt_proxy::config::{Commit, Config};
use shunt_proxy::control::post::Mailbox;
use shunt_proxy::control::state::{ClusterState, ControlRequest, CoreMail};
use shunt_proxy::core::{Core, CoreOptions};
use shunt_proxy::log_limits::LogLimits;
use shunt_proxy::metrics::CoreMetrics;
use shunt_proxy::prepared::PreparedStore;
use shunt_proxy::weakened::{self, Weakened};
use shunt_reactor::sim::{Clock, HostId, MILLISECOND, Options, SECOND, World};
use shunt_topology::schema::{Cells, ColumnKind, Factor};
use shunt_topology::{Keyspace, Replication, RoutingTable};
use shunt_transactions::catalogue::modes::{InitialModes, TableModes};
use tokio::sync::mpsc;

use super::client::{ClientMail, LockClient};
use super::cluster;
use super::node::Node;
use super::ring::{Ring, Shared};
use super::transactions::history::History;
use super::transactions::schema::MODES;
use super::transactions::spec::KEYSPACES;
use super::transactions::transactor::{Kind as Clients, Transactor};
use super::witness::Witness;

/// The settings of a run.
#[derive(Clone)]
pub struct Settings {
    pub seed: u64,
    pub network: Options,
    pub proxies: usize,
    pub cores: usize,
    pub clients: usize,
    /// Clients that ask for transactions.
    pub transactors: usize,
    /// True if they ask only for shifts.
    pub shifts_only: bool,
    /// True if they ask only for leases.
    pub leases_only: bool,
    /// True if the ring's view of transactions is checked.
    pub looks_inside: bool,
    /// Locks of each kind.
    pub locks: usize,
    /// True if clients give requests up and ask for several locks.
    pub rough_clients: bool,
    /// The clocks of each proxy's host.
    pub clocks: Vec<Clock>,
    /// True if exclusion of holders is checked.
    pub exclusion: bool,
    /// Proof by which proxies commit transactions.
    pub commit: Commit,
    /// Steps to leave out.
    pub weakened: Weakened,
}

/// A proxy: its cores, and the parts to start them once more.
pub struct Proxy {
    pub address: SocketAddr,
    pub cores: Vec<HostId<Core>>,
    pub metrics: Vec<Arc<CoreMetrics>>,
    pub is_up: bool,
    /// True once it was asked to stop.
    drains: bool,
    starts: u64,
}

/// Timers of an idle core: each purpose has one or two, and a connection that was just opened has
/// one.
const TIMERS_MAX: usize = 30;

/// Further timers where connections are encrypted: one for each accepted in the last ten seconds.
const HANDSHAKES_MAX: usize = 300;

type Post = Arc<Mutex<VecDeque<(usize, usize, CoreMail)>>>;

pub struct Scene {
    pub world: World,
    pub settings: Settings,
    pub nodes: Vec<HostId<Node>>,
    pub proxies: Vec<Proxy>,
    pub clients: Vec<HostId<LockClient>>,
    pub transactors: Vec<HostId<Transactor>>,
    pub history: Rc<RefCell<History>>,
    pub ring: Shared,
    pub witness: Rc<RefCell<Witness>>,
    stub: shunt_bench::stub::Ring,
    state: ClusterState,
    /// Modes that the next proxy begins with.
    modes: TableModes,
    /// Mail between cores: proxy and core.
    post: Post,
    control: (mpsc::Sender<ControlRequest>, mpsc::Receiver<ControlRequest>),
}

impl Scene {
    pub fn new(settings: Settings) -> Scene {
        let mut world = World::new(settings.seed, settings.network.clone());
        let ring: Shared = Arc::new(Mutex::new(Ring::new(settings.seed)));
        let addresses: Vec<SocketAddr> =
            (1..=3).map(|index| ([10, 1, 0, index], 9042).into()).collect();
        let stub = shunt_bench::stub::Ring {
            replication: 3,
            ..shunt_bench::stub::Ring::even(&addresses, 4)
        };
        let nodes: Vec<HostId<Node>> = (0..3)
            .map(|index| world.add(&format!("node {index}"), node(&stub, &ring, index)))
            .collect();
        for (node, address) in nodes.iter().zip(&addresses) {
            world.listen(*node, *address);
        }
        let rate_ppm = settings
            .clocks
            .iter()
            .map(|clock| clock.rate_ppm)
            .max()
            .unwrap_or(1_000_000)
            .max(1_000_000);
        let witness = Rc::new(RefCell::new(Witness::new(settings.exclusion, rate_ppm)));
        let mut scene = Scene {
            world,
            nodes,
            proxies: Vec::new(),
            clients: Vec::new(),
            transactors: Vec::new(),
            history: Rc::default(),
            ring,
            witness,
            state: state(&stub),
            modes: if settings.transactors > 0 { modes() } else { TableModes::default() },
            stub,
            post: Post::default(),
            control: mpsc::channel(64),
            settings,
        };
        for number in 0..scene.settings.proxies {
            scene.add_proxy(number);
        }
        let Settings { clients, locks, rough_clients, seed, .. } = scene.settings;
        let proxies: Vec<SocketAddr> = scene.proxies.iter().map(|proxy| proxy.address).collect();
        for number in 0..clients {
            let client = LockClient::new(
                number,
                proxies.clone(),
                locks,
                rough_clients,
                seed,
                Rc::clone(&scene.witness),
            );
            scene.clients.push(scene.world.add(&format!("client {number}"), client));
        }
        for number in 0..scene.settings.transactors {
            let (history, witness) = (Rc::clone(&scene.history), Rc::clone(&scene.witness));
            let Settings { shifts_only, leases_only, exclusion, .. } = scene.settings;
            let kind = Clients {
                rough: rough_clients,
                shifts_only,
                leases_only,
                wrong_clocks: !exclusion,
            };
            let client = Transactor::new(number, proxies.clone(), kind, seed, history, witness);
            scene.transactors.push(scene.world.add(&format!("transactor {number}"), client));
        }
        if scene.settings.transactors > 0 {
            let mut ring = scene.ring.lock().unwrap();
            ring.has_transactions = true;
            ring.tables.fill(0);
            ring.tables.inside.is_looking = scene.settings.looks_inside;
            drop(ring);
        }
        scene
    }

    fn add_proxy(&mut self, number: usize) {
        let address: SocketAddr = ([10, 2, 0, number as u8 + 1], 9042).into();
        let proxy = Proxy {
            address,
            cores: Vec::new(),
            metrics: Vec::new(),
            is_up: true,
            drains: false,
            starts: 0,
        };
        self.proxies.push(proxy);
        let (cores, metrics) = self.new_cores(number);
        for (index, core) in cores.into_iter().enumerate() {
            let host = self.world.add(&format!("proxy {number} core {index}"), core);
            self.world.listen(host, address);
            self.world.set_clock(host, self.settings.clocks[number]);
            self.proxies[number].cores.push(host);
        }
        self.proxies[number].metrics = metrics;
        self.tell_ring(number);
    }

    fn new_cores(&mut self, number: usize) -> (Vec<Core>, Vec<Arc<CoreMetrics>>) {
        let proxy = &mut self.proxies[number];
        proxy.starts += 1;
        let cores = self.settings.cores;
        let config = Arc::new(Config {
            cores,
            fleet: Some("main".to_owned()),
            listen: vec![proxy.address].into(),
            query_timeout_ms: 1_000,
            connect_timeout_ms: 500,
            heartbeat_interval_ms: 1_000,
            handshake_timeout_ms: 5_000,
            lock_rows_kept_ms: 1,
            transaction_commit: self.settings.commit,
            ..Config::default()
        });
        let store = Arc::new(PreparedStore::new());
        let log_limits = Arc::<LogLimits>::default();
        let metrics: Vec<Arc<CoreMetrics>> =
            (0..cores).map(|index| Arc::new(CoreMetrics::new(index))).collect();
        let core = |index: usize| {
            let mailbox = |to: usize| -> Mailbox {
                let post = Arc::clone(&self.post);
                Box::new(move |mail| {
                    post.lock().unwrap().push_back((number, to, mail));
                    Ok(())
                })
            };
            let mut core = Core::new(CoreOptions {
                index,
                config: Arc::clone(&config),
                metrics: Arc::clone(&metrics[index]),
                prepared: Arc::clone(&store),
                log_limits: Arc::clone(&log_limits),
                control: self.control.0.clone(),
                cores: if cores > 1 { (0..cores).map(mailbox).collect() } else { Vec::new() },
                state_file: None,
                handover: None,
                outgoing: Default::default(),
                seed: self.settings.seed
                    ^ (proxy.starts << 32 | (number as u64) << 16 | index as u64),
            });
            weakened::leave_out(&mut core, self.settings.weakened);
            weakened::hurry(&mut core);
            core
        };
        ((0..cores).map(core).collect(), metrics)
    }

    /// Sends the control plane's first messages.
    fn tell_ring(&mut self, number: usize) {
        for core in self.proxies[number].cores.clone() {
            let asked_ns = self.world.clock(core).local_ns(self.world.now_ns());
            let modes = Some(InitialModes { modes: self.modes.clone(), asked_ns });
            let state = ClusterState { modes, ..self.state.clone() };
            self.world.post(core, CoreMail::Cluster(Arc::new(state)));
        }
    }

    /// Drops the modes of all tables; nobody waits for pending writes of their owners.
    pub fn drop_modes(&mut self) {
        self.ring.lock().unwrap().has_modes = false;
        self.modes = TableModes::default();
    }

    /// Kills the process of a proxy.
    pub fn kill_proxy(&mut self, number: usize) {
        if std::mem::replace(&mut self.proxies[number].is_up, false) {
            for core in self.proxies[number].cores.clone() {
                self.world.kill(core);
            }
        }
    }

    /// Starts a proxy, if it does not run or is about to stop.
    pub fn start_proxy(&mut self, number: usize) {
        if std::mem::replace(&mut self.proxies[number].drains, false) {
            self.kill_proxy(number);
        }
        if self.proxies[number].is_up {
            return;
        }
        let (cores, metrics) = self.new_cores(number);
        for (core, host) in cores.into_iter().zip(self.proxies[number].cores.clone()) {
            self.world.restart(host, core);
        }
        self.proxies[number].metrics = metrics;
        self.proxies[number].is_up = true;
        self.tell_ring(number);
    }

    /// Asks a proxy to stop in order.
    pub fn drain_proxy(&mut self, number: usize) {
        self.proxies[number].drains = self.proxies[number].is_up;
        for core in self.proxies[number].cores.clone() {
            self.world.post(core, CoreMail::Drain);
        }
    }

    /// Starts a node again, with its data and without its pending requests.
    pub fn restart_node(&mut self, index: usize) {
        let node = node(&self.stub, &self.ring, index);
        self.world.restart(self.nodes[index], node);
    }

    pub fn mail_clients(&mut self, mail: impl Fn() -> ClientMail) {
        for client in self.clients.clone() {
            self.world.post(client, mail());
        }
        for client in self.transactors.clone() {
            self.world.post(client, mail());
        }
    }

    /// Lets this much time pass, or less after a violation.
    pub fn run_for(&mut self, duration_ns: u64) {
        self.run_until(duration_ns, |_| false);
    }

    /// Lets time pass until the condition holds, which is checked every few milliseconds.
    pub fn run_until(
        &mut self,
        max_ns: u64,
        mut condition: impl FnMut(&mut Scene) -> bool,
    ) -> bool {
        let end_ns = self.world.now_ns() + max_ns;
        loop {
            if condition(self) {
                return true;
            }
            let now_ns = self.world.now_ns();
            let seen = self.ring.lock().unwrap().tables.inside.fault.take();
            if let Some(what) = seen {
                self.violate(&what);
            }
            if now_ns >= end_ns || self.witness.borrow().violation.is_some() {
                return false;
            }
            let limit_ns = end_ns.min(now_ns + 20 * MILLISECOND);
            while self.world.step(limit_ns) {
                self.carry_mail();
            }
            self.world.run_for(limit_ns.saturating_sub(self.world.now_ns()));
        }
    }

    fn carry_mail(&mut self) {
        loop {
            let next = self.post.lock().unwrap().pop_front();
            let Some((proxy, core, mail)) = next else { return };
            let host = self.proxies[proxy].cores[core];
            self.world.post(host, mail);
        }
    }

    /// Lets the clients take and release every lock once, when nobody holds one. `false`: not in
    /// time.
    pub fn sweep(&mut self, max_ns: u64) -> bool {
        self.mail_clients(|| ClientMail::Sweep);
        self.run_for(50 * MILLISECOND);
        self.run_until(max_ns, |scene| {
            scene.clients.iter().all(|client| scene.world.host(*client).is_idle())
                && scene.transactors.iter().all(|client| scene.world.host(*client).is_idle())
        })
    }

    pub fn violate(&mut self, what: &str) {
        let now_ns = self.world.now_ns();
        self.witness.borrow_mut().violate(now_ns, what);
    }

    /// Requests that wait at any proxy, by the last count.
    pub fn waiting(&self) -> u64 {
        self.proxies
            .iter()
            .flat_map(|proxy| &proxy.metrics)
            .map(|metrics| metrics.locks.waiting.get())
            .sum()
    }

    /// Remaining requests, holds and bytes of every core.
    pub fn left(&mut self) -> Vec<String> {
        while self.control.1.try_recv().is_ok() {}
        let mut left = Vec::new();
        for (number, proxy) in self.proxies.iter().enumerate() {
            for (core, metrics) in proxy.cores.iter().zip(&proxy.metrics) {
                if !self.world.is_running(*core) {
                    continue;
                }
                let held = self.world.held(*core);
                let of_transactions = &metrics.transactions;
                let counts = [
                    of_transactions.open.get(),
                    of_transactions.records.get(),
                    of_transactions.opening.get(),
                    metrics.in_flight.get(),
                    metrics.own_statements.in_flight.get(),
                    metrics.locks.held.get(),
                    metrics.locks.waiting.get(),
                    (held.unread + held.backlog) as u64,
                ];
                let handshakes = if self.settings.network.sealed { HANDSHAKES_MAX } else { 0 };
                if held.timers > TIMERS_MAX + handshakes {
                    left.push(format!("proxy {number} {core:?}: {} timers", held.timers));
                }
                if counts.iter().any(|count| *count > 0) {
                    left.push(format!("proxy {number} {core:?}: transactions, records, openings, in flight, own, held, waiting, bytes: {counts:?}"));
                }
            }
        }
        left
    }

    pub fn show(&self) -> String {
        let clients = self.clients.iter().map(|client| self.world.host(*client).show());
        let clients =
            clients.chain(self.transactors.iter().map(|client| self.world.host(*client).show()));
        let proxies = self.proxies.iter().enumerate().map(|(number, proxy)| {
            let metrics = &proxy.metrics[0].locks;
            let (shards, lease) = (metrics.shards.get(), metrics.lease.get());
            format!("proxy {number}: up {}, {shards} shards, lease {lease}", proxy.is_up)
        });
        clients.chain(proxies).collect::<Vec<_>>().join("\n")
    }

    /// Ends the faults: all locks are released or expire, everything is served again, and nothing
    /// is left for longer than this. Proxies go on reading the fleet's rows, so that a request may
    /// be in flight at any moment.
    pub fn come_to_rest(&mut self, patience_ns: u64) {
        self.mail_clients(|| ClientMail::Act(false));
        self.mail_clients(|| ClientMail::Peace);
        self.run_until(20 * SECOND, |scene| scene.is_served());
        if !self.sweep(SWEEP_NS) {
            let shown = self.show();
            self.violate(&format!("not served again:\n{shown}"));
        }
        if !self.run_until(patience_ns, |scene| scene.left().is_empty()) {
            let left = self.left();
            self.violate(&left.join("\n"));
        }
    }

    /// True if all shards have a live owner.
    pub fn is_served(&self) -> bool {
        let shards = self
            .proxies
            .iter()
            .filter(|proxy| proxy.is_up)
            .map(|proxy| proxy.metrics[0].locks.shards.get());
        shards.sum::<u64>() == 64
    }
}

fn node(stub: &shunt_bench::stub::Ring, ring: &Shared, index: usize) -> Node {
    Node::new(index, stub.nodes[index].host_id, &stub.cluster_name, Arc::clone(ring))
}

/// The modes of the tables of transactions.
fn modes() -> TableModes {
    let mut modes = TableModes::default();
    for keyspace in KEYSPACES {
        MODES.iter().for_each(|(table, mode)| modes.add(keyspace, table, mode));
    }
    modes
}

fn state(stub: &shunt_bench::stub::Ring) -> ClusterState {
    let nodes = cluster::nodes(stub);
    let factor = Factor { all: 3, transient: 0 };
    let keyspace =
        |name: &str| Keyspace { name: name.into(), replication: Replication::Simple(factor) };
    let keyspaces = vec![keyspace("shunt_meta"), keyspace("shunt")];
    let routing = RoutingTable::build(nodes.clone(), keyspaces, Vec::new(), Some("datacenter1"));
    ClusterState {
        drained: Vec::new(),
        modes: None,
        routing: Arc::new(routing),
        protocol_version_max: 4,
        ..cluster::state(stub, nodes, Cells::new([] as [(&str, ColumnKind); 0], false))
    }
}

/// Longest duration of a sweep.
pub const SWEEP_NS: u64 = 20 * SECOND;
