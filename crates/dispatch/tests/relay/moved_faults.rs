//! The same guarantees while control connections are lost, agents and servers die, and clients
//! reset their connections.

use shunt_reactor::sim::{MILLISECOND, Options, Random, SECOND, World, for_seeds};

use crate::client::Outcome;
use crate::requests::Request;
use crate::scene::Scene;
use crate::{check, draw};

/// Answers around the threshold, and small ones between them.
fn draw_sizes(seed: u64) -> Vec<Request> {
    let mut random = Random::new(seed ^ 0x7369_7a65_7300);
    let size = |random: &mut Random| match random.below(6) {
        0 => 0,
        1 => random.below(1_000) as usize,
        2 => (64 << 10) - 2 + random.index(4),
        3 => 60_000 + random.index(10_000),
        4 => random.index(1 << 20),
        _ => 1 << 20,
    };
    let request = |random: &mut Random| match random.below(5) {
        0 => Request::Chunked(size(random)),
        1 => Request::draw(random),
        _ => Request::Length(size(random)),
    };
    (0..12).map(|_| request(&mut random)).collect()
}

#[test]
fn every_answer_arrives_whole_while_connections_move_however_the_bytes_are_cut() {
    let (mut handed_over, mut returned) = (0, 0);
    for_seeds(12, |seed| {
        let plans = vec![draw_sizes(seed), draw_sizes(!seed), draw(seed)];
        let requests: usize = plans.iter().map(Vec::len).sum();
        let mut scene = Scene::handing_over(seed, Options::calm(), 2, plans);
        scene.wait_for_backends();
        scene.world.set_options(Options {
            window_bytes: 512..8192,
            freeze_failed: 0.0,
            restore_failed: 0.0,
            ..Options::crumbs()
        });
        assert!(scene.run(600 * SECOND), "not all was answered: {}", scene.words());
        assert_eq!((0..3).map(|client| check(&scene, client, false)).sum::<usize>(), requests);
        let counters = scene.counted();
        handed_over += counters.handed_over;
        returned += counters.returned;
        scene.is_at_rest();
    });
    assert!(
        handed_over > 12 && returned > 12,
        "{handed_over} connections went, {returned} came back"
    );
}

#[test]
fn faults_while_connections_move_never_make_a_byte_wrong_or_a_part_look_whole() {
    let (mut whole, mut runs, mut handed_over, mut returned, mut closed) = (0, 0, 0, 0, 0);
    for_seeds(20, |seed| {
        let plans = vec![draw_sizes(seed), draw_sizes(!seed), draw_sizes(seed << 8), draw(seed)];
        let mut scene = Scene::handing_over(seed, Options::calm(), 2, plans);
        scene.wait_for_backends();
        scene.world.set_options(Options::mixed(seed));
        let mut random = Random::new(seed);
        for _ in 0..8 {
            scene.world.run_for(random.range(&(MILLISECOND..300 * MILLISECOND)));
            let victim = random.index(2);
            let agent = scene.agents[victim];
            match random.below(6) {
                0 => scene.restart_agent(victim),
                1 if seed % 2 == 0 => scene.restart_origin(victim),
                2 => scene.world.freeze(agent),
                3 => scene.world.cut(scene.dispatcher, agent),
                4 => scene.world.join(scene.dispatcher, agent),
                _ => scene.world.thaw(agent),
            }
        }
        scene.world.calm();
        assert!(scene.run(900 * SECOND), "not all has come to an end: {}", scene.words());
        whole += (0..4).map(|client| check(&scene, client, true)).sum::<usize>();
        runs += 1;
        let counters = scene.counted();
        (handed_over, returned) =
            (handed_over + counters.handed_over, returned + counters.returned);
        closed += counters.gone;
        scene.is_at_rest();
    });
    assert!(
        whole > runs * 20,
        "{whole} answers of {runs} runs were whole: too few to tell anything"
    );
    assert!(
        handed_over > 20 && returned > 20 && closed > 0,
        "{handed_over} went, {returned} came back, {closed} ended"
    );
}

#[test]
fn a_client_of_an_agent_that_dies_sees_its_answer_end() {
    let mut scene =
        Scene::handing_over(7, Options::calm(), 1, vec![vec![Request::Length(32 << 20)]]);
    scene.wait_for_backends();
    let client = scene.clients[0];
    assert!(scene.world.run_until(SECOND, |world| world.host(client).has_begun()));
    assert_eq!(scene.world.host(scene.agents[0]).taken(), 1);
    scene.kill_agent(0);
    assert!(scene.run(60 * SECOND), "{}", scene.words());
    assert_eq!(scene.world.host(client).outcomes, [Outcome::Broken]);
    scene.restart_agent(0);
    scene.is_at_rest();
    assert_eq!(scene.counted().gone, 1);
}

#[test]
fn an_answer_that_is_lost_while_its_connection_comes_in_takes_no_other_one_with_it() {
    let plans = vec![vec![Request::Length(1 << 20)], vec![Request::Length(32 << 20)]];
    let mut scene = Scene::handing_over(3, Options::calm(), 1, plans);
    let (dispatcher, agent, [lost, other]) =
        (scene.dispatcher, scene.agents[0], [scene.clients[0], scene.clients[1]]);
    assert!(scene.world.run_until(10 * SECOND, |world| world.host(dispatcher).backends_up() == 1));
    scene.world.post(lost, ());
    assert!(scene.world.run_until(SECOND, |world| world.host(agent).taken() == 1));
    // The connection would be restored in the agent's next turn; the server resets the answer
    // before. A connection this new cannot be frozen again.
    let calm = Options { freeze_failed: 1.0, ..Options::calm() };
    scene.world.set_options(Options { latency_ns: 1..2, ..calm.clone() });
    let conn = scene.world.host(scene.origins[0]).conn();
    scene.world.reset(scene.origins[0], conn);
    assert!(scene.world.run_until(SECOND, |world| world.host(agent).exchanges() == 0));
    assert_eq!(scene.world.host(agent).taken(), 1);
    scene.world.set_options(calm);
    // The other client's answer is half way when the connection leaves.
    scene.world.post(other, ());
    assert!(scene.world.run_until(SECOND, |world| world.host(other).has_begun()));
    scene.world.freeze(other);
    scene.world.set_options(Options::calm());
    assert!(scene.world.run_until(SECOND, |world| world.host(agent).taken() == 0));
    scene.world.thaw(other);
    assert!(scene.run(60 * SECOND), "{}", scene.words());
    assert!(matches!(scene.world.host(lost).outcomes[..], [Outcome::Whole { status: 502, .. }]));
    assert_eq!(check(&scene, 1, false), 1);
    scene.is_at_rest();
}

#[test]
fn an_answer_goes_on_and_its_connection_comes_back_although_the_control_connection_was_lost_meanwhile()
 {
    // The agent's message that it has the connection is lost, or arrives.
    for is_heard in [false, true] {
        let plan = vec![Request::Length(32 << 20), Request::Length(10)];
        let mut scene = Scene::handing_over(8, Options::calm(), 1, vec![plan]);
        scene.wait_for_backends();
        let client = scene.clients[0];
        assert!(scene.world.run_until(SECOND, |world| world.host(client).has_begun()));
        if is_heard {
            scene.world.run_for(100 * MILLISECOND);
        }
        scene.drop_control(0);
        assert!(scene.run(60 * SECOND), "{}", scene.words());
        assert_eq!(check(&scene, 0, false), 2);
        let counters = scene.counted();
        assert_eq!(
            (counters.clients, counters.handed_over, counters.returned, counters.gone),
            (1, 1, 1, 0)
        );
        scene.is_at_rest();
    }
}

#[test]
fn a_dispatcher_that_ends_gets_connections_back_although_the_control_connection_was_lost_meanwhile()
{
    let mut scene =
        Scene::handing_over(8, Options::calm(), 1, vec![vec![Request::Length(32 << 20)]]);
    scene.wait_for_backends();
    let client = scene.clients[0];
    assert!(scene.world.run_until(SECOND, |world| world.host(client).has_begun()));
    scene.world.run_for(100 * MILLISECOND);
    scene.world.post(scene.dispatcher, shunt_dispatch::DispatchMail::Drain);
    scene.drop_control(0);
    assert!(scene.run(60 * SECOND), "{}", scene.words());
    assert_eq!(check(&scene, 0, false), 1);
    let dispatcher = scene.dispatcher;
    let has_ended = scene.world.run_until(60 * SECOND, |world| !world.is_running(dispatcher));
    let counters = scene.counted();
    assert_eq!((has_ended, counters.returned, counters.gone), (true, 1, 0), "{counters:?}");
}

#[test]
fn an_agent_that_ends_keeps_what_it_gives_back_until_that_is_there() {
    let plan = vec![Request::Length(4 << 20), Request::Length(10)];
    let mut scene = Scene::handing_over(3, Options::calm(), 2, vec![plan]);
    scene.wait_for_backends();
    let (dispatcher, client) = (scene.dispatcher, scene.clients[0]);
    assert!(scene.world.run_until(SECOND, |world| world.host(client).has_begun()));
    let agent = *scene.agents.iter().find(|agent| scene.world.host(**agent).taken() == 1).unwrap();
    scene.world.post(agent, shunt_agent::AgentMail::Drain);
    scene.world.freeze(dispatcher);
    // The client has its answer, and sends the next request.
    scene.world.run_for(SECOND);
    assert_eq!(scene.world.host(client).outcomes.len(), 1);
    assert!(scene.world.is_running(agent), "it has ended with a connection that nobody else has");
    scene.world.thaw(dispatcher);
    assert!(scene.run(60 * SECOND), "{}", scene.words());
    assert_eq!(check(&scene, 0, false), 2);
    let counted = scene.counted();
    assert_eq!((counted.clients, counted.returned, counted.gone), (1, 1, 0), "{counted:?}");
    assert!(scene.world.run_until(20 * SECOND, |world| !world.is_running(agent)));
}

#[test]
fn an_agent_that_ends_lets_a_dispatcher_come_back_for_what_it_has_of_it_and_begins_nothing_new() {
    let plans =
        vec![vec![Request::Length(32 << 20), Request::Length(10)], vec![Request::Length(10)]];
    let mut scene = Scene::handing_over(3, Options::calm(), 1, plans);
    let (dispatcher, agent, [client, other]) =
        (scene.dispatcher, scene.agents[0], [scene.clients[0], scene.clients[1]]);
    assert!(scene.world.run_until(10 * SECOND, |world| world.host(dispatcher).backends_up() == 1));
    scene.world.post(client, ());
    assert!(scene.world.run_until(SECOND, |world| world.host(client).has_begun()));
    assert_eq!(scene.world.host(agent).taken(), 1);
    scene.world.post(agent, shunt_agent::AgentMail::Drain);
    for conn in scene.world.host(agent).control_connections() {
        scene.world.reset(agent, conn);
    }
    assert!(scene.world.run_until(SECOND, |world| world.host(dispatcher).backends_up() == 0));
    let is_back = |world: &mut World| world.host(dispatcher).backends_up() == 1;
    assert!(scene.world.run_until(SECOND, is_back), "it is not let in");
    scene.world.post(other, ());
    assert!(scene.world.run_until(SECOND, |world| world.host(other).is_done()));
    assert!(matches!(scene.world.host(other).outcomes[..], [Outcome::Whole { status: 503, .. }]));
    assert!(scene.run(60 * SECOND), "{}", scene.words());
    assert!(check(&scene, 0, true) >= 1, "the answer that was under way is whole");
    let counted = scene.counted();
    assert_eq!((counted.returned, counted.gone), (1, 0), "{counted:?}");
    assert!(scene.world.run_until(20 * SECOND, |world| !world.is_running(agent)));
}

#[test]
fn a_connection_to_an_address_that_the_agent_does_not_serve_is_refused_and_its_answer_relayed() {
    let mut scene = Scene::elsewhere(
        9,
        Options::calm(),
        vec![vec![Request::Length(1 << 20), Request::Length(10)]],
    );
    scene.wait_for_backends();
    assert!(scene.run(60 * SECOND), "{}", scene.words());
    assert_eq!(check(&scene, 0, false), 2);
    let counters = scene.counted();
    assert_eq!(
        (counters.offers, counters.handed_over, counters.not_handed_over, counters.clients),
        (1, 1, 1, 1)
    );
    scene.is_at_rest();
}

#[test]
fn a_client_that_resets_its_connection_while_it_is_elsewhere_leaves_nothing_behind() {
    for_seeds(10, |seed| {
        let mut scene =
            Scene::handing_over(seed, Options::calm(), 2, vec![vec![Request::Length(8 << 20); 4]]);
        scene.wait_for_backends();
        let client = scene.clients[0];
        let mut random = Random::new(seed);
        for _ in 0..3 {
            scene.world.run_for(random.range(&(MILLISECOND..30 * MILLISECOND)));
            if let Some(conn) = scene.world.host(client).conn() {
                scene.world.with(client, |client, io| client.give_up(io, conn));
            }
        }
        assert!(scene.run(60 * SECOND), "{}", scene.words());
        check(&scene, 0, true);
        scene.is_at_rest();
    });
}
