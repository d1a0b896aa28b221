//! The faults of a run, drawn from its seed: proxies and nodes that are killed or paused, cuts in
//! one direction or both, statements with either outcome, wall clocks that jump.

use shunt_proxy::config::Commit;
use shunt_proxy::weakened::Weakened;
use shunt_reactor::sim::{Clock, HostId, MICROSECOND, MILLISECOND, Options, Random, SECOND};

use super::scene::{Scene, Settings};
use super::transactions::inside::Inside;

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    KillProxy,
    FreezeProxy,
    FreezeCore,
    DrainProxy,
    CutProxies,
    CutNode,
    KillNode,
    FreezeNode,
    JumpWall,
}

const FAULTS: [Fault; 9] = [
    Fault::KillProxy,
    Fault::FreezeProxy,
    Fault::FreezeCore,
    Fault::DrainProxy,
    Fault::CutProxies,
    Fault::CutNode,
    Fault::KillNode,
    Fault::FreezeNode,
    Fault::JumpWall,
];

/// The end of a fault.
#[derive(Clone, Copy, Debug)]
enum End {
    StartProxy(usize),
    Thaw(usize, usize),
    ThawNode(usize),
    StartNode(usize),
    Join(Side, Side),
}

/// A proxy's core, or a node.
#[derive(Clone, Copy, Debug)]
enum Side {
    Core(usize, usize),
    Node(usize),
}

/// The faults of a run.
pub struct Chaos {
    random: Random,
    kinds: Vec<Fault>,
    ends: Vec<(u64, End)>,
    /// Share of statements that fail.
    trouble: f64,
    /// Share of statements that are late.
    slow: f64,
    /// Event after which proxies preferably fall.
    pub hunts: Option<Prey>,
    /// Share of transactions' records that are late; if it is not 0, renewals are lost.
    slow_records: f64,
}

/// An event after which proxies may fall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prey {
    /// The log of a shard was claimed.
    Claims,
    /// A write of a transaction was made.
    Writes,
    /// A record of a transaction was written.
    Records,
    /// A record was sent that will be late.
    LateRecords,
}

/// Settings of a seed's run. With clocks a tenth off only fences are checked.
pub fn settings(seed: u64, drift_ppm: u64) -> Settings {
    let mut random = Random::new(seed ^ 0x0066_6c65_6574);
    let proxies = 2 + random.index(2);
    let clock = |random: &mut Random| {
        let rate_ppm = match drift_ppm {
            0..10_000 => 1_000_000 + random.below(drift_ppm + 1),
            _ => 1_000_000 - drift_ppm + random.below(2 * drift_ppm + 1),
        };
        let wall_offset_us =
            Clock::default().wall_offset_us + random.below(7_200_000_000) as i64 - 3_600_000_000;
        Clock { rate_ppm, boot_offset_ns: random.below(1_000_000) * SECOND, wall_offset_us }
    };
    let clocks = (0..proxies).map(|_| clock(&mut random)).collect();
    Settings {
        seed,
        network: network(&mut random),
        proxies,
        cores: 1 + random.index(2),
        clients: 3 + random.index(3),
        transactors: 0,
        shifts_only: false,
        leases_only: false,
        looks_inside: false,
        locks: 1 + random.index(2),
        rough_clients: random.chance(0.7),
        clocks,
        exclusion: drift_ppm < 10_000,
        commit: Commit::Lease,
        weakened: Weakened::default(),
    }
}

fn network(random: &mut Random) -> Options {
    let mut options = Options::calm();
    if random.chance(0.4) {
        options.latency_ns = 20 * MICROSECOND..random.range(&(100 * MICROSECOND..8 * MILLISECOND));
        options.turn_delay_ns = MICROSECOND..random.range(&(10 * MICROSECOND..MILLISECOND));
    }
    if random.chance(0.3) {
        (options.stall, options.deferral) = (0.01, 0.1);
    }
    if random.chance(0.3) {
        (options.partial_read, options.short_write) = (0.3, 0.3);
    }
    if random.chance(0.2) {
        (options.reset, options.connect_refused) = (0.002, 0.02);
    }
    // Of a copy: the other draws of a seed stay as they are.
    options.sealed = random.clone().chance(0.25);
    options
}

impl Chaos {
    pub fn drawn(seed: u64) -> Chaos {
        let mut random = Random::new(seed ^ 0x63_6861_6f73);
        let mut kinds: Vec<Fault> = FAULTS.into_iter().filter(|_| random.chance(0.4)).collect();
        if kinds.is_empty() {
            kinds.push(FAULTS[random.index(FAULTS.len())]);
        }
        let trouble =
            if random.chance(0.5) { 0.0 } else { 0.01 + 0.001 * random.below(120) as f64 };
        let slow = if random.chance(0.7) { 0.0 } else { 0.03 };
        Chaos { random, kinds, ends: Vec::new(), trouble, slow, hunts: None, slow_records: 0.0 }
    }

    /// Proxies are paused, and nodes are slow: tests decisions by an old clock reading, or without
    /// one.
    pub fn of_stops(seed: u64) -> Chaos {
        let random = Random::new(seed ^ 0x7374_6f70);
        Chaos {
            random,
            kinds: vec![Fault::FreezeProxy],
            ends: Vec::new(),
            trouble: 0.0,
            slow: 0.15,
            hunts: None,
            slow_records: 0.0,
        }
    }

    /// Proxies fall again and again, above all while logs open, and statements end late or with an
    /// unknown outcome.
    pub fn of_openings(seed: u64) -> Chaos {
        let random = Random::new(seed ^ 0x6f70_656e);
        let kinds = vec![Fault::KillProxy, Fault::FreezeProxy, Fault::DrainProxy];
        let hunts = Some(Prey::Claims);
        Chaos { random, kinds, ends: Vec::new(), trouble: 0.1, slow: 0.1, hunts, slow_records: 0.0 }
    }

    /// Records of transactions are late, leases expire because renewals are lost, and proxies are
    /// paused.
    pub fn of_late_records(seed: u64) -> Chaos {
        let (random, kinds) = (Random::new(seed ^ 0x6c61_7465), vec![Fault::FreezeProxy]);
        let hunts = Some(Prey::LateRecords);
        Chaos {
            random,
            kinds,
            ends: Vec::new(),
            trouble: 0.0,
            slow: 0.0,
            hunts,
            slow_records: 0.15,
        }
    }

    /// Proxies are killed just after a transaction has begun to write.
    pub fn of_writes(seed: u64) -> Chaos {
        let (random, kinds) = (Random::new(seed ^ 0x7772_6974), vec![Fault::KillProxy]);
        let hunts = Some(Prey::Writes);
        Chaos {
            random,
            kinds,
            ends: Vec::new(),
            trouble: 0.2,
            slow: 0.05,
            hunts,
            slow_records: 0.0,
        }
    }

    /// Applies faults for this long.
    pub fn run(&mut self, scene: &mut Scene, duration_ns: u64) {
        let mut ring = scene.ring.lock().unwrap();
        (ring.trouble, ring.slow, ring.slow_records) = (self.trouble, self.slow, self.slow_records);
        drop(ring);
        let end_ns = scene.world.now_ns() + duration_ns;
        while scene.world.now_ns() < end_ns && scene.witness.borrow().violation.is_none() {
            let falls = self.wait(scene);
            self.end_due(scene, false);
            if !falls {
                continue;
            }
            let fault = self.kinds[self.random.index(self.kinds.len())];
            self.begin(scene, fault);
        }
    }

    /// Waits for a while, or until the hunted event happens and a proxy falls for it. `true`:
    /// another fault is due now.
    fn wait(&mut self, scene: &mut Scene) -> bool {
        let for_ns = 50 * MILLISECOND + self.random.below(500 * MILLISECOND);
        let Some(prey) = self.hunts else {
            scene.run_for(for_ns);
            return true;
        };
        let end_ns = scene.world.now_ns() + for_ns;
        let seen = |scene: &Scene| {
            let ring = scene.ring.lock().unwrap();
            let Inside { writes, records_written, records_late, .. } = &ring.tables.inside;
            match prey {
                Prey::Claims => ring.tables.claims,
                Prey::Writes => *writes,
                Prey::Records => *records_written,
                Prey::LateRecords => *records_late,
            }
        };
        let before = seen(scene);
        // Time stops once a violation has happened.
        while scene.world.now_ns() < end_ns && scene.witness.borrow().violation.is_none() {
            scene.run_for(MILLISECOND / 2);
            if seen(scene) > before && self.random.chance(0.3) {
                scene.run_for(self.random.below(2 * MILLISECOND));
                if prey == Prey::LateRecords {
                    self.stop_for_long(scene);
                } else {
                    // The proxy at fault is unknown.
                    for _ in 0..1 + self.random.index(2) {
                        let fault = if self.random.chance(0.4) {
                            Fault::FreezeProxy
                        } else {
                            Fault::KillProxy
                        };
                        self.begin(scene, fault);
                    }
                }
                // Wait until another proxy owns and serves its shards.
                if prey != Prey::Claims || self.random.chance(0.5) {
                    scene.run_for(SECOND + self.random.below(2 * SECOND));
                }
                return false;
            }
        }
        self.random.chance(0.1)
    }

    /// Pauses a proxy until its shards have another owner, and then lets it go on.
    fn stop_for_long(&mut self, scene: &mut Scene) {
        let proxy = self.random.index(scene.proxies.len());
        let at_ns = scene.world.now_ns() + 3 * SECOND + self.random.below(2 * SECOND);
        for (core, host) in scene.proxies[proxy].cores.clone().into_iter().enumerate() {
            self.freeze(scene, host);
            self.ends.push((at_ns, End::Thaw(proxy, core)));
        }
    }

    /// Ends all faults.
    pub fn end(&mut self, scene: &mut Scene) {
        self.end_due(scene, true);
        let mut ring = scene.ring.lock().unwrap();
        (ring.trouble, ring.slow, ring.slow_records) = (0.0, 0.0, 0.0);
        drop(ring);
        scene.world.calm();
        for number in 0..scene.proxies.len() {
            scene.start_proxy(number);
        }
    }

    fn end_due(&mut self, scene: &mut Scene, all: bool) {
        let now_ns = scene.world.now_ns();
        let (due, later) = std::mem::take(&mut self.ends)
            .into_iter()
            .partition(|(at_ns, _)| all || *at_ns <= now_ns);
        self.ends = later;
        for (_, end) in due {
            match end {
                End::StartProxy(number) => scene.start_proxy(number),
                End::Thaw(number, core) => scene.world.thaw(scene.proxies[number].cores[core]),
                End::ThawNode(index) => scene.world.thaw(scene.nodes[index]),
                End::StartNode(index) => scene.restart_node(index),
                End::Join(one, other) => self.join(scene, one, other),
            }
        }
    }

    fn later(&mut self, scene: &Scene, most_ns: u64, end: End) {
        let at_ns = scene.world.now_ns() + 50 * MILLISECOND + self.random.below(most_ns);
        self.ends.push((at_ns, end));
    }

    fn begin(&mut self, scene: &mut Scene, fault: Fault) {
        let proxy = self.random.index(scene.proxies.len());
        let node = self.random.index(scene.nodes.len());
        let cores = scene.proxies[proxy].cores.clone();
        match fault {
            Fault::KillProxy | Fault::DrainProxy => {
                if fault == Fault::KillProxy {
                    scene.kill_proxy(proxy);
                } else {
                    scene.drain_proxy(proxy);
                }
                self.later(scene, 4 * SECOND, End::StartProxy(proxy));
            }
            Fault::FreezeProxy | Fault::FreezeCore => {
                let one = self.random.index(cores.len());
                let most_ns = if self.random.chance(0.5) { SECOND / 2 } else { 5 * SECOND };
                let for_ns = self.random.below(most_ns);
                for (core, host) in cores.into_iter().enumerate() {
                    if fault == Fault::FreezeCore && core != one {
                        continue;
                    }
                    self.freeze(scene, host);
                    let at_ns = scene.world.now_ns() + for_ns;
                    self.ends.push((at_ns, End::Thaw(proxy, core)));
                }
            }
            Fault::CutProxies => {
                let other = self.random.index(scene.proxies.len());
                if other != proxy {
                    let sides = (0..cores.len())
                        .flat_map(|one| (0..cores.len()).map(move |two| (one, two)));
                    let both = self.random.chance(0.4);
                    for (one, two) in sides {
                        self.cut(scene, Side::Core(proxy, one), Side::Core(other, two), both);
                    }
                }
            }
            Fault::CutNode => {
                let both = self.random.chance(0.4);
                let inwards = self.random.chance(0.5);
                for core in 0..cores.len() {
                    let (from, to) = (Side::Core(proxy, core), Side::Node(node));
                    let (from, to) = if inwards { (to, from) } else { (from, to) };
                    self.cut(scene, from, to, both);
                }
            }
            Fault::KillNode => {
                scene.world.kill(scene.nodes[node]);
                self.later(scene, 3 * SECOND, End::StartNode(node));
            }
            Fault::FreezeNode => {
                scene.world.freeze(scene.nodes[node]);
                self.later(scene, 5 * SECOND, End::ThawNode(node));
            }
            Fault::JumpWall => {
                let hour_us = 3_600_000_000;
                let by_us = if self.random.chance(0.5) { hour_us } else { -hour_us };
                for host in cores {
                    let clock = scene.world.clock(host);
                    let wall_offset_us = clock.wall_offset_us + by_us;
                    scene.world.set_clock(host, Clock { wall_offset_us, ..clock });
                }
            }
        }
    }

    fn freeze<S>(&mut self, scene: &mut Scene, host: HostId<S>) {
        if self.random.chance(0.5) {
            scene.world.freeze_in_turn(host);
        } else {
            scene.world.freeze(host);
        }
    }

    fn cut(&mut self, scene: &mut Scene, from: Side, to: Side, both: bool) {
        for (from, to) in [(from, to), (to, from)].into_iter().take(if both { 2 } else { 1 }) {
            match (from, to) {
                (Side::Core(one, core), Side::Core(other, place)) => {
                    scene.world.cut_one_way(
                        scene.proxies[one].cores[core],
                        scene.proxies[other].cores[place],
                    );
                }
                (Side::Core(one, core), Side::Node(node)) => {
                    scene.world.cut_one_way(scene.proxies[one].cores[core], scene.nodes[node]);
                }
                (Side::Node(node), Side::Core(one, core)) => {
                    scene.world.cut_one_way(scene.nodes[node], scene.proxies[one].cores[core]);
                }
                (Side::Node(_), Side::Node(_)) => {}
            }
        }
        self.later(scene, 4 * SECOND, End::Join(from, to));
    }

    fn join(&mut self, scene: &mut Scene, one: Side, other: Side) {
        match (one, other) {
            (Side::Core(one, core), Side::Core(other, place)) => {
                scene.world.join(scene.proxies[one].cores[core], scene.proxies[other].cores[place]);
            }
            (Side::Core(one, core), Side::Node(node))
            | (Side::Node(node), Side::Core(one, core)) => {
                scene.world.join(scene.proxies[one].cores[core], scene.nodes[node]);
            }
            (Side::Node(_), Side::Node(_)) => {}
        }
    }
}
