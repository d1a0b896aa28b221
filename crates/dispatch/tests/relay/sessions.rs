//! Encrypted connections between dispatcher and agents.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use shunt_dispatch::AgentTls;
use shunt_reactor::sim::{Options, Random, SECOND, TornSession, for_seeds};
use shunt_reactor::{Session, SessionInfo};

use crate::requests::Request;
use crate::scene::Scene;
use crate::{REQUESTS, check, draw};

/// The agents that sessions were made for, and the handshakes that have ended.
#[derive(Default)]
struct Asked {
    agents: Mutex<Vec<usize>>,
    completed: AtomicUsize,
    failed: AtomicUsize,
}

impl Asked {
    fn handshakes(&self) -> [usize; 2] {
        [&self.completed, &self.failed].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Makes sessions, and notes the agents that they are for.
struct Torn(Arc<Asked>);

impl AgentTls for Torn {
    fn session(&self, agent: usize) -> Box<dyn Session> {
        self.0.agents.lock().unwrap().push(agent);
        Box::new(TornSession::new(Random::new(agent as u64), true))
    }

    fn handshake_ended(&self, session: Option<&SessionInfo>) {
        let count = if session.is_some() { &self.0.completed } else { &self.0.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn sessions(asked: &Arc<Asked>) -> Box<dyn AgentTls> {
    Box::new(Torn(Arc::clone(asked)))
}

#[test]
fn answers_arrive_whole_and_each_agent_has_its_own_session() {
    let asked = Arc::<Asked>::default();
    let plans = vec![draw(3), draw(4)];
    let mut scene = Scene::with_sessions(3, Options::calm().sealed(), 2, plans, sessions(&asked));
    scene.wait_for_backends();
    let cut = Options { window_bytes: 512..8192, ..Options::crumbs() };
    scene.world.set_options(cut.sealed());
    assert!(scene.run(600 * SECOND), "not all was answered: {}", scene.words());
    assert_eq!(check(&scene, 0, false) + check(&scene, 1, false), 2 * REQUESTS);
    let mut agents = asked.agents.lock().unwrap().clone();
    agents.sort_unstable();
    assert_eq!((agents, asked.handshakes()), (vec![0, 1], [2, 0]));
    scene.is_at_rest();
}

#[test]
fn an_agent_that_is_lost_gets_a_new_session() {
    let whole = Arc::<AtomicUsize>::default();
    for_seeds(8, |seed| {
        let asked = Arc::<Asked>::default();
        let plans = vec![draw(seed), draw(!seed)];
        let mut scene =
            Scene::with_sessions(seed, Options::calm().sealed(), 2, plans, sessions(&asked));
        scene.wait_for_backends();
        scene.world.set_options(Options::mixed(seed).sealed());
        scene.suffer(seed);
        assert!(scene.run(900 * SECOND), "not all has come to an end: {}", scene.words());
        let answers = check(&scene, 0, true) + check(&scene, 1, true);
        whole.fetch_add(answers, Ordering::Relaxed);
        assert!(asked.agents.lock().unwrap().iter().all(|index| *index < 2));
        scene.is_at_rest();
    });
    assert!(whole.load(Ordering::Relaxed) > REQUESTS, "too few answers to tell anything");
}

/// Nobody can tell a handshake from the connect that has no answer.
#[test]
fn an_agent_that_cannot_be_reached_fails_no_handshake() {
    let asked = Arc::<Asked>::default();
    let plans = vec![vec![Request::Length(1_000)]];
    let mut scene = Scene::with_sessions(5, Options::calm().sealed(), 1, plans, sessions(&asked));
    scene.world.cut(scene.dispatcher, scene.agents[0]);
    scene.world.run_for(60 * SECOND);
    assert!(asked.agents.lock().unwrap().len() > 2, "the dispatcher tries again");
    assert_eq!(asked.handshakes(), [0, 0]);
}

#[test]
fn an_agent_in_clear_text_gets_no_request_of_a_dispatcher_that_encrypts() {
    let asked = Arc::<Asked>::default();
    let plans = vec![vec![Request::Length(1_000)]];
    let mut scene = Scene::with_sessions(5, Options::calm(), 1, plans, sessions(&asked));
    scene.world.run_for(20 * SECOND);
    assert_eq!(scene.world.host(scene.dispatcher).backends_up(), 0);
    let tries = asked.agents.lock().unwrap().len();
    assert!(tries > 1, "the dispatcher tries again");
    let [completed, failed] = asked.handshakes();
    assert!(completed == 0 && (tries - 1..=tries).contains(&failed), "{failed} of {tries}");
    assert!(scene.run(60 * SECOND), "{}", scene.words());
    assert_eq!(scene.world.host(scene.origins[0]).reads, 0);
}
