//! The world: clients, one dispatcher, agents with a server each.

use std::net::SocketAddr;

use shunt_agent::{Agent, AgentOptions};
use shunt_dispatch::{AgentTls, DispatchOptions, Dispatcher, Ended, Handover, Metrics, Way, Why};
use shunt_handover::Clients;
use shunt_handover::session::{Instance, OwnerId, Protocol, SharedKey};
use shunt_reactor::LoopOptions;
use shunt_reactor::sim::{HostId, MILLISECOND, Options, Random, SECOND, World};

use crate::client::Client;
use crate::origin::Origin;
use crate::requests::Request;

/// Size from which bodies are offered.
const THRESHOLD: u64 = 64 << 10;
/// Fewer than clients could use, so that requests wait for one another.
const UPSTREAM_CONNECTIONS_MAX: usize = 2;

pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) clients: Vec<HostId<Client>>,
    pub(crate) dispatcher: HostId<Dispatcher>,
    pub(crate) agents: Vec<HostId<Agent>>,
    pub(crate) origins: Vec<HostId<Origin>>,
    key: [u8; 20],
    seed: u64,
    /// Runs of agents so far.
    instances: u64,
    pub(crate) origins_restarted: usize,
}

/// Counts of a dispatcher.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) clients: u64,
    pub(crate) requests: u64,
    pub(crate) answers: u64,
    pub(crate) bytes_relayed: u64,
    pub(crate) bytes_handed_over: u64,
    pub(crate) offers: u64,
    pub(crate) handed_over: u64,
    /// Hand-overs that were relayed after all.
    pub(crate) not_handed_over: u64,
    pub(crate) returned: u64,
    pub(crate) gone: u64,
    pub(crate) repeated: u64,
    pub(crate) resumed: u64,
    pub(crate) cut: u64,
}

impl Counted {
    fn of(metrics: &Metrics) -> Self {
        let relayed = [
            Why::Full,
            Why::NotSteered,
            Why::NotFrozen,
            Why::NotSendable,
            Why::Refused,
            Why::AgentLost,
        ];
        let gone = [Ended::BrokenOff, Ended::AgentLost, Ended::NotRestored];
        Self {
            clients: metrics.clients_accepted.get(),
            requests: metrics.requests.get(),
            answers: metrics.answers.total(),
            bytes_relayed: metrics.answer_bytes.of(Way::Relayed).get(),
            bytes_handed_over: metrics.answer_bytes.of(Way::HandedOver).get(),
            offers: metrics.offers.get(),
            handed_over: metrics.handovers.get(),
            not_handed_over: relayed.iter().map(|why| metrics.relayed.of(*why).get()).sum(),
            returned: metrics.ended.of(Ended::Returned).get(),
            gone: gone.iter().map(|ended| metrics.ended.of(*ended).get()).sum(),
            repeated: metrics.repeated.get(),
            resumed: metrics.resumed.get(),
            cut: metrics.cut.get(),
        }
    }
}

pub(crate) fn address(last: u8, port: u16) -> SocketAddr {
    ([192, 0, 2, last], port).into()
}

fn random(seed: u64) -> shunt_dispatch::Random {
    let mut random = Random::new(seed);
    Box::new(move |bytes| random.fill(bytes))
}

impl Scene {
    pub(crate) fn new(
        seed: u64,
        options: Options,
        backends: usize,
        plans: Vec<Vec<Request>>,
    ) -> Scene {
        Scene::build(seed, options, backends, plans, ([1; 20], [1; 20]), Handover::Off)
    }

    /// A scene in which large answers go over their clients' own connections.
    pub(crate) fn handing_over(
        seed: u64,
        options: Options,
        backends: usize,
        plans: Vec<Vec<Request>>,
    ) -> Scene {
        Scene::build(seed, options, backends, plans, ([1; 20], [1; 20]), Handover::Auto)
    }

    /// A scene whose agent serves another virtual address than the dispatcher's.
    pub(crate) fn elsewhere(seed: u64, options: Options, plans: Vec<Vec<Request>>) -> Scene {
        let mut scene = Scene::handing_over(seed, options, 1, plans);
        let agent = agent(scene.key, 0, seed, 0, address(2, 80));
        scene.world.restart(scene.agents[0], agent);
        scene
    }

    /// The agent has so many connections to its server.
    pub(crate) fn with_connections(
        seed: u64,
        options: Options,
        plans: Vec<Vec<Request>>,
        connections_max: usize,
    ) -> Scene {
        let mut scene = Scene::new(seed, options, 1, plans);
        let options = agent_options(scene.key, 0, seed, 0, address(1, 80));
        let options = AgentOptions { upstream_connections_max: connections_max, ..options };
        scene.world.restart(scene.agents[0], Agent::new(options));
        scene
    }

    /// The dispatcher waits this long for an answer and for more of it.
    pub(crate) fn with_answer_timeout(
        seed: u64,
        options: Options,
        plans: Vec<Vec<Request>>,
        answer_timeout_ns: u64,
    ) -> Scene {
        let mut scene = Scene::new(seed, options, 1, plans);
        let options = dispatch_options(seed, 1, scene.key, Handover::Off);
        let options = DispatchOptions { answer_timeout_ns, ..options };
        scene.world.restart(scene.dispatcher, Dispatcher::new(options));
        scene
    }

    pub(crate) fn with_keys(
        seed: u64,
        options: Options,
        plans: Vec<Vec<Request>>,
        ours: [u8; 20],
        theirs: [u8; 20],
    ) -> Scene {
        Scene::build(seed, options, 1, plans, (ours, theirs), Handover::Off)
    }

    /// The dispatcher encrypts its connections to agents.
    pub(crate) fn with_sessions(
        seed: u64,
        options: Options,
        backends: usize,
        plans: Vec<Vec<Request>>,
        tls: Box<dyn AgentTls>,
    ) -> Scene {
        let mut scene = Scene::new(seed, options, backends, plans);
        let options = dispatch_options(seed, backends, scene.key, Handover::Off);
        let options = DispatchOptions { agent_tls: Some(tls), ..options };
        scene.world.restart(scene.dispatcher, Dispatcher::new(options));
        scene
    }

    fn build(
        seed: u64,
        options: Options,
        backends: usize,
        plans: Vec<Vec<Request>>,
        (ours, theirs): ([u8; 20], [u8; 20]),
        handover: Handover,
    ) -> Scene {
        let mut world = World::new(seed, options);
        let (mut agents, mut origins) = (Vec::new(), Vec::new());
        for index in 0..backends as u8 {
            // A stock server waits long for slow readers.
            let options = LoopOptions { linger_ns: 300 * SECOND, ..LoopOptions::default() };
            let origin = world.add_with("origin", options, Origin::of_version(index));
            world.listen(origin, address(10 + index, 80));
            origins.push(origin);
            let agent =
                world.add("agent", agent(theirs, index, seed, u64::from(index), address(1, 80)));
            world.listen(agent, address(10 + index, 7000));
            agents.push(agent);
        }
        let dispatcher = dispatch_options(seed, backends, ours, handover);
        let dispatcher = world.add("dispatcher", Dispatcher::new(dispatcher));
        world.listen(dispatcher, address(1, 80));
        let clients = plans.into_iter().enumerate().map(|(index, plan)| {
            world.add("client", Client::new(address(1, 80), plan, 1 + (seed as usize + index) % 3))
        });
        let clients = clients.collect();
        Scene {
            world,
            clients,
            dispatcher,
            agents,
            origins,
            key: theirs,
            seed,
            instances: 100,
            origins_restarted: 0,
        }
    }

    pub(crate) fn wait_for_backends(&mut self) {
        let all = self.agents.len();
        let dispatcher = self.dispatcher;
        assert!(
            self.world.run_until(10 * SECOND, |world| world.host(dispatcher).backends_up() == all)
        );
        for client in &self.clients {
            self.world.post(*client, ());
        }
    }

    /// Runs until all clients are done; false if the time limit passes first.
    pub(crate) fn run(&mut self, limit_ns: u64) -> bool {
        for client in &self.clients {
            if !self.world.host(*client).is_started {
                self.world.post(*client, ());
            }
        }
        let clients = self.clients.clone();
        self.world
            .run_until(limit_ns, |world| clients.iter().all(|client| world.host(*client).is_done()))
    }

    pub(crate) fn kill_agent(&mut self, index: usize) {
        self.world.kill(self.agents[index]);
    }

    pub(crate) fn restart_agent(&mut self, index: usize) {
        self.instances += 1;
        let next = agent(self.key, index as u8, self.seed, self.instances, address(1, 80));
        self.world.thaw(self.agents[index]);
        self.world.restart(self.agents[index], next);
    }

    /// Restarts or stops agents, and for even seeds restarts servers, while clients go on; then
    /// calms down.
    pub(crate) fn suffer(&mut self, seed: u64) {
        let mut random = Random::new(seed);
        for _ in 0..6 {
            self.world.run_for(random.range(&(MILLISECOND..400 * MILLISECOND)));
            let victim = random.index(self.agents.len());
            match random.below(4) {
                0 => self.restart_agent(victim),
                1 if seed.is_multiple_of(2) => self.restart_origin(victim),
                2 => self.world.freeze(self.agents[victim]),
                _ => self.world.thaw(self.agents[victim]),
            }
        }
        self.world.calm();
    }

    /// The first agent dies when the first client has had some answers: it answers no more, and
    /// requests sent to it are lost.
    pub(crate) fn lose_an_agent_within(&mut self) {
        self.wait_for_backends();
        let client = self.clients[0];
        self.world.run_until(SECOND, |world| world.host(client).outcomes.len() > 5);
        self.world.freeze(self.agents[0]);
        self.world.run_for(20 * MILLISECOND);
        self.kill_agent(0);
    }

    /// Breaks the control connection to an agent; both processes go on.
    pub(crate) fn drop_control(&mut self, index: usize) {
        self.world.cut(self.dispatcher, self.agents[index]);
        let dispatcher = self.dispatcher;
        assert!(
            self.world.run_until(60 * SECOND, |world| world.host(dispatcher).backends_up() == 0)
        );
        self.world.join(self.dispatcher, self.agents[index]);
    }

    pub(crate) fn restart_origin(&mut self, index: usize) {
        self.origins_restarted += 1;
        let version = 100 + self.origins_restarted as u8;
        self.world.restart(self.origins[index], Origin::of_version(version));
    }

    /// Asserts that all state of ended requests is gone.
    pub(crate) fn is_at_rest(&mut self) {
        self.world.run_for(90 * SECOND);
        let dispatcher = self.world.host(self.dispatcher);
        assert_eq!((dispatcher.exchanges(), dispatcher.moved()), (0, 0));
        for agent in &self.agents {
            let agent = self.world.host(*agent);
            assert_eq!((agent.exchanges(), agent.upstream_connections(), agent.taken()), (0, 0, 0));
        }
        let held = self.world.held(self.dispatcher);
        assert_eq!((held.backlog, held.unread), (0, 0), "{held:?}");
    }

    pub(crate) fn counted(&self) -> Counted {
        Counted::of(&self.world.host(self.dispatcher).metrics())
    }

    /// Progress of all parties.
    pub(crate) fn words(&self) -> String {
        let clients = self.clients.iter().map(|client| self.world.host(*client));
        let outcomes: Vec<String> = clients
            .map(|client| format!("{}/{}", client.outcomes.len(), client.plan.len()))
            .collect();
        let dispatcher = self.world.host(self.dispatcher);
        let exchanges = dispatcher.exchanges();
        format!(
            "clients {outcomes:?}, {exchanges} exchanges, {} backends, {:?}",
            dispatcher.backends_up(),
            self.counted()
        )
    }
}

fn dispatch_options(
    seed: u64,
    backends: usize,
    key: [u8; 20],
    handover: Handover,
) -> DispatchOptions {
    DispatchOptions {
        listen: vec![address(1, 80)],
        body_bytes_per_timeout: 256 * 30,
        clients: Clients::default(),
        backends: (0..backends as u8).map(|index| address(10 + index, 7000)).collect(),
        agent_tls: None,
        key: SharedKey::new(&key).unwrap(),
        owner: OwnerId(1),
        instance: Instance(1),
        handover,
        steer: None,
        body_bytes_max: 1 << 30,
        idle_timeout_ns: 60 * SECOND,
        head_timeout_ns: 10 * SECOND,
        body_timeout_ns: 30 * SECOND,
        answer_timeout_ns: 40 * SECOND,
        random: random(seed ^ 1),
    }
}

fn agent(key: [u8; 20], index: u8, seed: u64, instance: u64, serves: SocketAddr) -> Agent {
    Agent::new(agent_options(key, index, seed, instance, serves))
}

fn agent_options(
    key: [u8; 20],
    index: u8,
    seed: u64,
    instance: u64,
    serves: SocketAddr,
) -> AgentOptions {
    AgentOptions {
        protocol: Protocol::Http,
        hold_ns: 20_000_000,
        upstream: address(10 + index, 80),
        key: SharedKey::new(&key).unwrap(),
        instance: Instance(instance),
        threshold_bytes: Some(THRESHOLD),
        vips: vec![serves],
        packet_filter: None,
        upstream_connections_max: UPSTREAM_CONNECTIONS_MAX,
        upstream_timeout_ns: 20 * SECOND,
        random: random(seed.wrapping_mul(31) ^ instance),
    }
}
