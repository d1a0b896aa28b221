//! The whole sidecar in a simulation: applications that send ahead, servers, and a network that
//! cuts the stream anywhere. A simulated host has no datagrams, so all shims are silent, and every
//! multiget ends over TCP.

mod app;
mod begin;
mod bounds;
mod cluster;
mod health;
mod login;
mod script;
mod server;
mod sessions;
mod split;
mod turns;
mod walks;

use std::net::SocketAddr;
use std::sync::Arc;

use shunt_multiget::mode::Mode;
use shunt_multiget::{Login, Mail, ServerTls, Sidecar, SidecarOptions};
use shunt_reactor::sim::{HostId, MILLISECOND, Options, Random, SECOND, World, for_seeds};

use app::App;
use server::Server;

const SERVERS: u8 = 3;

struct Scene {
    world: World,
    sidecar: HostId<Sidecar>,
    servers: Vec<HostId<Server>>,
    apps: Vec<HostId<App>>,
}

fn server_address(index: u8) -> SocketAddr {
    ([192, 0, 2, 10 + index], 6379).into()
}

fn listen_address() -> SocketAddr {
    ([192, 0, 2, 1], 6380).into()
}

impl Scene {
    fn new(seed: u64, options: Options, apps: usize) -> Scene {
        Self::with_login(seed, options, apps, Login::default())
    }

    fn with_login(seed: u64, options: Options, apps: usize, login: Login) -> Scene {
        Self::build(seed, options, apps, login, None)
    }

    fn build(
        seed: u64,
        options: Options,
        apps: usize,
        login: Login,
        server_tls: Option<Arc<dyn ServerTls>>,
    ) -> Scene {
        let mut world = World::new(seed, options);
        let add = |world: &mut World, index| {
            let server = world.add("server", Server::default());
            world.listen(server, server_address(index));
            server
        };
        let servers = (0..SERVERS).map(|index| add(&mut world, index)).collect();
        let shim = |index| SocketAddr::from(([192, 0, 2, 10 + index], 9700));
        let sidecar = Sidecar::new(SidecarOptions {
            servers: (0..SERVERS).map(|index| (server_address(index), shim(index))).collect(),
            mode: if seed.is_multiple_of(3) { Mode::Cli } else { Mode::Tcp },
            cluster: None,
            login,
            server_tls,
            timeout_ns: 5 * SECOND,
            resend_ns: 20 * MILLISECOND,
            seed,
        });
        let sidecar = world.add("sidecar", sidecar);
        let listen = listen_address();
        world.listen(sidecar, listen);
        let mut random = Random::new(seed ^ 7);
        let apps =
            (0..apps).map(|index| world.add("app", App::new(listen, index, &mut random))).collect();
        Scene { world, sidecar, servers, apps }
    }

    fn is_done(&mut self, limit_ns: u64) -> bool {
        let apps = self.apps.clone();
        self.world.run_until(limit_ns, |world| apps.iter().all(|app| world.host(*app).is_done()))
    }

    /// Asserts that no state is left once applications have gone.
    fn is_at_rest(&mut self) {
        for app in self.apps.clone() {
            self.world.with(app, App::leave);
        }
        self.world.run_for(10 * SECOND);
        let metrics = self.world.host(self.sidecar).metrics();
        assert_eq!(
            (metrics.clients.get(), metrics.under_way.get(), metrics.groups.get()),
            (0, 0, 0)
        );
        assert_eq!(metrics.splits.get(), 0);
        let held = self.world.held(self.sidecar);
        assert_eq!((held.backlog, held.unread), (0, 0), "{held:?}");
    }
}

/// Options with cuts and delays, but no broken connections.
fn whole(seed: u64) -> Options {
    let options = if seed.is_multiple_of(2) { Options::crumbs() } else { Options::mixed(seed) };
    Options { reset: 0.0, connect_refused: 0.0, connect_lost: 0.0, half_open: 0.0, ..options }
}

#[test]
fn answers_are_in_order_and_say_what_was_true_at_their_turn() {
    for_seeds(60, |seed| {
        let mut scene = Scene::new(seed, whole(seed), 3);
        assert!(scene.is_done(600 * SECOND), "not in time");
        for app in scene.apps.clone() {
            scene.world.host(app).check_exactly();
        }
        scene.is_at_rest();
    });
}

#[test]
fn servers_that_come_and_go_cost_errors_and_no_answer() {
    let mut errors = 0;
    for_seeds(60, |seed| {
        let mut scene = Scene::new(seed, whole(seed), 3);
        let mut random = Random::new(seed);
        for _ in 0..4 {
            scene.world.run_for(random.range(&(MILLISECOND..300 * MILLISECOND)));
            let victim = scene.servers[random.index(scene.servers.len())];
            match random.below(3) {
                0 => {
                    let state = scene.world.kill(victim);
                    scene.world.run_for(random.range(&(MILLISECOND..100 * MILLISECOND)));
                    scene.world.restart(victim, state.unwrap_or_default().restarted());
                }
                1 => scene.world.freeze(victim),
                _ => scene.world.thaw(victim),
            }
        }
        for server in scene.servers.clone() {
            scene.world.thaw(server);
        }
        assert!(scene.is_done(600 * SECOND), "not in time");
        for app in scene.apps.clone() {
            errors += scene.world.host(app).check_with_errors();
        }
        scene.is_at_rest();
    });
    assert!(errors > 0, "no server was missed");
}

#[test]
fn an_order_to_end_lets_what_is_under_way_be_answered() {
    for_seeds(20, |seed| {
        let mut scene = Scene::new(seed, whole(seed), 2);
        scene.world.run_for(100 * MILLISECOND);
        scene.world.post(scene.sidecar, Mail::Drain);
        scene.world.run_for(60 * SECOND);
        assert!(!scene.world.is_running(scene.sidecar));
        for app in scene.apps.clone() {
            scene.world.host(app).check_prefix();
        }
    });
}
