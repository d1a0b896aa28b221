//! Breaks nodes, links and clients at random, by the scene's seed, and ends all faults again.

use shunt_bench::stub::{Action, StubMail, hook};
use shunt_proxy::config::Window;
use shunt_reactor::sim::{MILLISECOND, Options, Random, SECOND};
use shunt_wire::cql::message::error_code;

use super::client::ClientMail;
use super::scene::Scene;

/// The possible faults of a run. They are drawn by seed, so that runs differ in kind.
#[derive(Clone, Debug)]
pub struct Chaos {
    pub kills: bool,
    pub power_cuts: bool,
    pub freezes: bool,
    pub cuts: bool,
    pub forgets: bool,
    pub node_faults: bool,
    pub news: bool,
    pub reconnects: bool,
    pub reloads: bool,
    random: Random,
}

impl Chaos {
    pub fn drawn(seed: u64) -> Chaos {
        let mut random = Random::new(seed ^ 0x0063_6861_6f73);
        let mut maybe = || random.chance(0.4);
        Chaos {
            kills: maybe(),
            power_cuts: maybe(),
            freezes: maybe(),
            cuts: maybe(),
            forgets: maybe(),
            node_faults: maybe(),
            news: maybe(),
            reconnects: maybe(),
            reloads: maybe(),
            random,
        }
    }

    /// Lets this much time pass with faults now and then.
    pub fn run(&mut self, scene: &mut Scene, duration_ns: u64) {
        let end_ns = scene.world.now_ns() + duration_ns;
        while scene.world.now_ns() < end_ns {
            scene.world.run_for(self.random.range(&(20 * MILLISECOND..800 * MILLISECOND)));
            scene.check_bounds();
            self.act(scene);
        }
    }

    fn act(&mut self, scene: &mut Scene) {
        let node = self.random.index(scene.nodes.len());
        let id = scene.nodes[node];
        match self.random.below(11) {
            0 if self.kills => drop(scene.world.kill(id)),
            1 if self.power_cuts => drop(scene.world.power_off(id)),
            0..4 if !scene.world.is_running(id) => scene.restart_node(node),
            2 if self.freezes => scene.world.freeze(id),
            3 if self.freezes => scene.world.thaw(id),
            4 if self.cuts => {
                let core = scene.cores[self.random.index(scene.cores.len())];
                if self.random.chance(0.5) {
                    scene.world.cut(core, id)
                } else {
                    scene.world.join(core, id)
                }
            }
            5 if self.forgets => scene.world.post(id, StubMail::ForgetStatements(node)),
            6 if self.node_faults => {
                let faults = self.draw_faults();
                scene.hook(node, Some(hook::random(self.random.next(), faults)));
            }
            7 if self.news => {
                scene.said_up[node] = self.random.chance(0.5);
                scene.post_cluster();
                scene.post_schema_event();
            }
            9 if self.reloads => {
                let us = [0, 0, 30, 200][self.random.index(4)];
                let window = if us == 0 { Window::Auto } else { Window::Fixed { us } };
                scene.reload(window, [0, 100, 5_000][self.random.index(3)]);
            }
            8 if self.reconnects => {
                let client = scene.clients[self.random.index(scene.clients.len())];
                scene.world.post(client, ClientMail::Reconnect);
            }
            _ => {}
        }
    }

    fn draw_faults(&mut self) -> Vec<(f64, Action)> {
        let mut garbage = vec![0; 1 + self.random.index(80)];
        self.random.fill(&mut garbage);
        let all = [
            Action::Delay(self.random.below(3 * SECOND)),
            Action::Silence,
            Action::UnknownStream(self.random.next() as i16),
            Action::Error(error_code::OVERLOADED),
            Action::Unprepared,
            Action::Garbage(garbage),
            Action::Close,
        ];
        let random = &mut self.random;
        all.into_iter().filter(|_| random.chance(0.3)).map(|action| (0.02, action)).collect()
    }

    /// Makes everything work again. Broken connections stay broken for sides that have not noticed
    /// yet.
    pub fn end(&mut self, scene: &mut Scene) {
        scene.world.calm();
        for node in 0..scene.nodes.len() {
            if !scene.world.is_running(scene.nodes[node]) {
                scene.restart_node(node);
            }
            scene.hook(node, None);
            scene.said_up[node] = true;
        }
        scene.post_cluster();
    }
}

/// The network of a seed, without options under which a run of 50,000 bytes would take a virtual
/// minute. A quarter of the seeds encrypts every connection.
pub fn network(seed: u64) -> Options {
    let mut options = Options::mixed(seed);
    options.window_bytes.start = options.window_bytes.start.max(256);
    options.sealed = seed % 4 == 3;
    options
}
