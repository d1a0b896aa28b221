//! Answers that break off go on from another backend, where the rest is certain to be that of the
//! same answer.

use shunt_reactor::sim::{MILLISECOND, Options, Random, SECOND, for_seeds};

use crate::client::Outcome;
use crate::requests::Request;
use crate::scene::{Counted, Scene};
use crate::{check, draw};

const LARGE: usize = 8 << 20;

/// A client has a part of its answer when the server dies; the server restarts later with another
/// version.
fn within_the_first(request: Request, backends: usize, hands_over: bool) -> Scene {
    let plan = vec![vec![request, Request::Length(10)]];
    let mut scene = match hands_over {
        true => Scene::handing_over(7, Options::calm(), backends, plan),
        false => Scene::new(7, Options::calm(), backends, plan),
    };
    scene.wait_for_backends();
    let client = scene.clients[0];
    assert!(scene.world.run_until(SECOND, |world| world.host(client).has_begun()));
    let victim =
        scene.origins.iter().position(|origin| scene.world.host(*origin).reads > 0).unwrap();
    scene.restart_origin(victim);
    assert!(scene.run(60 * SECOND), "{}", scene.words());
    scene
}

#[test]
fn a_large_answer_goes_on_from_another_server_when_its_own_dies() {
    for hands_over in [false, true] {
        let mut scene = within_the_first(Request::Length(LARGE), 2, hands_over);
        assert_eq!(check(&scene, 0, false), 2, "handing over: {hands_over}");
        let counted = scene.counted();
        assert_eq!((counted.resumed, counted.cut, counted.clients), (1, 0, 1), "{counted:?}");
        assert_eq!(
            counted.handed_over,
            if hands_over { 2 } else { 0 },
            "the rest passes the dispatcher by as well"
        );
        let parts: u64 = scene.origins.iter().map(|origin| scene.world.host(*origin).parts).sum();
        assert_eq!(parts, 1);
        scene.is_at_rest();
    }
}

#[test]
fn another_servers_version_never_follows_a_part() {
    for hands_over in [false, true] {
        for (request, asked) in [
            (Request::Versioned(LARGE), 1),
            (Request::Weak(LARGE), 0),
            (Request::Chunked(LARGE), 0),
        ] {
            let mut scene = within_the_first(request.clone(), 2, hands_over);
            assert_eq!(
                scene.world.host(scene.clients[0]).outcomes[0],
                Outcome::Broken,
                "{request:?}"
            );
            assert_eq!(check(&scene, 0, true), 1);
            let counted = scene.counted();
            // The other server is asked, and its answer is compared.
            assert!(
                counted.resumed >= asked && (asked > 0 || counted.resumed == 0),
                "{request:?}: {counted:?}"
            );
            scene.is_at_rest();
        }
    }
}

#[test]
fn a_client_of_http_1_0_has_the_rest_as_well() {
    let mut scene = within_the_first(Request::Old(LARGE), 2, true);
    assert_eq!(check(&scene, 0, false), 2);
    assert_eq!((scene.counted().resumed, scene.counted().handed_over), (1, 0));
    scene.is_at_rest();
}

#[test]
fn a_request_that_is_not_kept_is_not_asked_again() {
    for request in [Request::WithBody(LARGE), Request::LongHead(LARGE)] {
        let mut scene = within_the_first(request, 2, true);
        assert_eq!(scene.world.host(scene.clients[0]).outcomes[0], Outcome::Broken);
        assert_eq!(scene.counted().resumed, 0);
        scene.is_at_rest();
    }
}

#[test]
fn without_another_server_the_client_is_cut_off() {
    for hands_over in [false, true] {
        let mut scene = within_the_first(Request::Length(LARGE), 1, hands_over);
        assert_eq!(scene.world.host(scene.clients[0]).outcomes[0], Outcome::Broken);
        assert_eq!(scene.counted().resumed, 0);
        scene.is_at_rest();
    }
}

#[test]
fn servers_that_die_one_after_another_change_no_byte() {
    let (mut whole, mut all, mut asked) = (0, Counted::default(), 0);
    for_seeds(32, |seed| {
        let sizes = |seed: u64| {
            let mut random = Random::new(seed);
            let mut request = || match random.below(4) {
                0 => Request::Versioned(random.index(500_000)),
                1 => Request::Weak(random.index(500_000)),
                _ => Request::Length(random.index(500_000)),
            };
            (0..8).map(|_| request()).collect::<Vec<_>>()
        };
        let plans = vec![sizes(seed), sizes(!seed), draw(seed)];
        asked += plans.iter().map(Vec::len).sum::<usize>();
        let build = if seed % 3 == 0 { Scene::new } else { Scene::handing_over };
        let mut scene = build(seed, Options::calm(), 3, plans);
        scene.wait_for_backends();
        scene.world.set_options(Options { window_bytes: 2_000..20_000, ..Options::calm() });
        let mut random = Random::new(seed);
        for _ in 0..40 {
            scene.world.run_for(random.range(&(MILLISECOND..40 * MILLISECOND)));
            let victim = random.index(3);
            match random.below(8) {
                0 => scene.restart_agent(victim),
                _ => scene.restart_origin(victim),
            }
        }
        scene.world.calm();
        assert!(scene.run(900 * SECOND), "not all has come to an end: {}", scene.words());
        whole += (0..3).map(|client| check(&scene, client, true)).sum::<usize>();
        let counted = scene.counted();
        all.resumed += counted.resumed;
        all.cut += counted.cut;
        all.returned += counted.returned;
        scene.is_at_rest();
    });
    println!("{whole} of {asked} whole, {all:?}");
    assert!(
        whole * 10 > asked * 8 && all.resumed > 12 && all.cut > 2,
        "{whole} of {asked} whole, {all:?}"
    );
}
