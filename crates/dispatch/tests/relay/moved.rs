//! Large answers on their clients' own connections, which move between the simulated hosts.

use shunt_reactor::sim::{Options, SECOND, for_seeds};

use crate::client::Outcome;
use crate::requests::Request;
use crate::scene::{Counted, Scene};
use crate::{REQUESTS, check, draw};

#[test]
fn large_answers_pass_the_dispatcher_by_and_the_connection_comes_back_for_each_next_request() {
    let plan = (0..20).map(|turn| {
        if turn % 2 == 0 { Request::Length(1 << 20) } else { Request::Chunked(300_000 + turn) }
    });
    let small = [Request::Length(10), Request::Upload(7_000), Request::Head(1 << 20)];
    let plan: Vec<Request> = plan
        .flat_map(|large| [large, small[0].clone(), small[1].clone(), small[2].clone()])
        .collect();
    let asked = plan.len();
    let mut scene = Scene::handing_over(5, Options::calm(), 2, vec![plan]);
    scene.wait_for_backends();
    assert!(scene.run(120 * SECOND), "{}", scene.words());
    assert_eq!(check(&scene, 0, false), asked);
    let counters = scene.counted();
    assert_eq!(
        (counters.handed_over, counters.returned, counters.not_handed_over, counters.gone),
        (20, 20, 0, 0),
        "{counters:?}"
    );
    assert!(
        counters.bytes_relayed < 2 << 20 && counters.bytes_handed_over > 10 << 20,
        "{counters:?}"
    );
    assert_eq!(counters.answers as usize, asked);
    let served: Vec<u64> =
        scene.origins.iter().map(|origin| scene.world.host(*origin).reads).collect();
    assert!(served.iter().all(|reads| *reads >= 10), "{served:?}");
    scene.is_at_rest();
}

#[test]
fn every_answer_arrives_whole_however_the_bytes_are_cut() {
    let (mut moved, mut returned) = (0, 0);
    for_seeds(12, |seed| {
        let mut scene =
            Scene::handing_over(seed, Options::calm(), 2, vec![draw(seed), draw(!seed)]);
        scene.wait_for_backends();
        scene.world.set_options(Options { window_bytes: 512..8192, ..Options::crumbs() });
        assert!(scene.run(600 * SECOND), "not all was answered: {}", scene.words());
        assert_eq!(check(&scene, 0, false) + check(&scene, 1, false), 2 * REQUESTS);
        moved += scene.counted().handed_over;
        returned += scene.counted().returned;
        scene.is_at_rest();
    });
    assert!(moved > 24 && returned > 19, "{moved} were handed over, {returned} came back");
}

#[test]
fn faults_never_make_a_byte_wrong_or_a_part_look_whole() {
    let (mut whole, mut runs, mut all) = (0, 0, Counted::default());
    for_seeds(24, |seed| {
        let mut scene = Scene::handing_over(
            seed,
            Options::calm(),
            3,
            vec![draw(seed), draw(!seed), draw(seed << 8)],
        );
        scene.wait_for_backends();
        scene.world.set_options(Options::mixed(seed));
        scene.suffer(seed);
        assert!(scene.run(900 * SECOND), "not all has come to an end: {}", scene.words());
        whole += (0..3).map(|client| check(&scene, client, true)).sum::<usize>();
        runs += 1;
        let counters = scene.counted();
        all.handed_over += counters.handed_over;
        all.not_handed_over += counters.not_handed_over;
        all.returned += counters.returned;
        all.gone += counters.gone;
        scene.is_at_rest();
    });
    assert!(
        whole > runs * REQUESTS / 2,
        "{whole} answers of {runs} runs were whole: too few to tell anything"
    );
    assert!(all.returned > 40 && all.gone > 2 && all.not_handed_over > 2, "{all:?}");
}

#[test]
fn a_slow_client_bounds_what_is_kept_for_it_and_the_dispatcher_keeps_nothing() {
    let mut scene = Scene::handing_over(
        3,
        Options::calm(),
        1,
        vec![vec![Request::Length(32 << 20)], vec![Request::Length(100); 30]],
    );
    scene.wait_for_backends();
    scene.world.run_until(SECOND, |world| world.host(scene.clients[0]).has_begun());
    scene.world.freeze(scene.clients[0]);
    scene.world.run_for(5 * SECOND);
    assert_eq!(scene.world.host(scene.clients[1]).outcomes.len(), 30);
    let held = scene.world.held(scene.dispatcher);
    assert!(held.backlog_most < 200_000, "{held:?}");
    let held = scene.world.held(scene.agents[0]);
    assert!(held.backlog > 100_000 && held.backlog + held.unread < 4 << 20, "{held:?}");
    scene.world.thaw(scene.clients[0]);
    assert!(scene.run(60 * SECOND), "{}", scene.words());
    check(&scene, 0, false);
    assert_eq!((scene.counted().handed_over, scene.counted().gone), (1, 0));
}

#[test]
fn a_client_that_takes_nothing_for_too_long_is_cut_off_by_the_agent() {
    let mut scene =
        Scene::handing_over(4, Options::calm(), 1, vec![vec![Request::Length(32 << 20)]]);
    scene.wait_for_backends();
    scene.world.run_until(SECOND, |world| world.host(scene.clients[0]).has_begun());
    scene.world.freeze(scene.clients[0]);
    scene.world.run_for(90 * SECOND);
    assert_eq!(scene.counted().gone, 1);
    scene.world.thaw(scene.clients[0]);
    assert!(scene.run(60 * SECOND), "{}", scene.words());
    assert!(matches!(scene.world.host(scene.clients[0]).outcomes[0], Outcome::Broken));
    scene.is_at_rest();
}

#[test]
fn a_drain_waits_for_connections_to_come_back() {
    let mut scene =
        Scene::handing_over(9, Options::calm(), 1, vec![vec![Request::Length(4 << 20)]]);
    scene.wait_for_backends();
    scene.world.run_until(SECOND, |world| world.host(scene.clients[0]).has_begun());
    assert_eq!(scene.counted().handed_over, 1);
    scene.world.post(scene.dispatcher, shunt_dispatch::DispatchMail::Drain);
    assert!(scene.run(60 * SECOND), "{}", scene.words());
    check(&scene, 0, false);
    scene.world.run_for(20 * SECOND);
    assert!(!scene.world.is_running(scene.dispatcher), "{}", scene.words());
    assert_eq!(scene.counted().returned, 1);
}
