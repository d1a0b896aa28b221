//! Encrypted connections to servers.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use shunt_multiget::{Login, ServerState, ServerTls};
use shunt_reactor::sim::{MILLISECOND, Options, Random, SECOND, TornSession, for_seeds};
use shunt_reactor::{Session, SessionInfo};

use crate::script::Script;
use crate::{SERVERS, Scene, listen_address, server_address, whole};

/// Makes sessions, and notes the servers that they are for and how their handshakes end.
#[derive(Debug, Default)]
struct Sessions {
    servers: Mutex<Vec<SocketAddr>>,
    completed: AtomicUsize,
    failed: AtomicUsize,
}

impl Sessions {
    fn handshakes(&self) -> [usize; 2] {
        [&self.completed, &self.failed].map(|count| count.load(Ordering::Relaxed))
    }
}

impl ServerTls for Sessions {
    fn session(&self, server: SocketAddr) -> Box<dyn Session> {
        let mut servers = self.servers.lock().expect("no other test panics with it");
        servers.push(server);
        Box::new(TornSession::new(Random::new(servers.len() as u64), true))
    }

    fn handshake_ended(&self, session: Option<&SessionInfo>) {
        let count = if session.is_some() { &self.completed } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn scene(seed: u64, options: Options, apps: usize, sessions: &Arc<Sessions>) -> Scene {
    let tls: Arc<dyn ServerTls> = sessions.clone();
    Scene::build(seed, options, apps, Login::default(), Some(tls))
}

#[test]
fn answers_are_in_order_and_each_connection_has_a_session_with_its_server() {
    for_seeds(20, |seed| {
        let sessions = Arc::<Sessions>::default();
        let mut scene = scene(seed, whole(seed).sealed(), 3, &sessions);
        assert!(scene.is_done(600 * SECOND), "not in time");
        for app in scene.apps.clone() {
            scene.world.host(app).check_exactly();
        }
        scene.is_at_rest();
        let servers = sessions.servers.lock().unwrap();
        assert!((0..SERVERS).all(|index| servers.contains(&server_address(index))));
        let [completed, failed] = sessions.handshakes();
        assert!(completed >= usize::from(SERVERS) && failed == 0, "{completed} {failed}");
    });
}

#[test]
fn servers_that_come_and_go_cost_errors_and_no_answer() {
    let mut errors = 0;
    for_seeds(20, |seed| {
        let sessions = Arc::<Sessions>::default();
        let mut scene = scene(seed, whole(seed).sealed(), 3, &sessions);
        let mut random = Random::new(seed);
        for _ in 0..4 {
            scene.world.run_for(random.range(&(MILLISECOND..300 * MILLISECOND)));
            let victim = scene.servers[random.index(scene.servers.len())];
            let state = scene.world.kill(victim);
            scene.world.run_for(random.range(&(MILLISECOND..100 * MILLISECOND)));
            scene.world.restart(victim, state.unwrap_or_default().restarted());
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
fn a_server_in_clear_text_gets_no_command_of_a_sidecar_that_encrypts() {
    let sessions = Arc::<Sessions>::default();
    let mut scene = scene(1, Options::calm(), 0, &sessions);
    for server in scene.servers.clone() {
        scene.world.with(server, |server, _| server.hears_noise = true);
    }
    let script = scene.world.add("script", Script::new(listen_address()));
    let words: [&[&[u8]]; 3] = [
        &[b"SET", b"key", b"value"],
        &[b"MGET", b"key", b"other", b"third"],
        &[b"MSET", b"key", b"1", b"other", b"2", b"third", b"3"],
    ];
    for words in words {
        scene.world.with(script, |script, io| script.send(io, words));
    }
    scene.world.run_for(60 * SECOND);
    let answers = String::from_utf8_lossy(&scene.world.host(script).received).into_owned();
    assert_eq!(answers.matches("-ERR").count(), 3, "{answers}");
    assert!(answers.contains("TLS") && !answers.contains("may have been carried out"), "{answers}");
    for server in scene.servers.clone() {
        assert!(scene.world.host(server).values.is_empty());
    }
    let [completed, failed] = sessions.handshakes();
    assert!(completed == 0 && failed > 0, "{completed} {failed}");
    let metrics = scene.world.host(scene.sidecar).metrics();
    // Failures that are long ago say nothing of a server's present state.
    let servers = metrics.servers.all();
    assert!(servers.iter().all(|server| server.state == ServerState::Unknown));
}
