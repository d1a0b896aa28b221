//! Client, dispatcher, agents and servers in one simulated world: whatever the network and the
//! processes do, a client never gets a wrong byte, and never takes a part of an answer for the
//! whole.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod agents;
mod broken_off;
mod client;
mod crowd;
mod moved;
mod moved_faults;
mod origin;
mod readers;
mod requests;
mod scene;
mod sessions;
mod shares;
mod times;
mod turns;
mod uploads;

use shunt_reactor::sim::{MILLISECOND, Options, Random, SECOND, for_seeds};

use client::Outcome;
use requests::Request;
use scene::Scene;

/// Requests of each client.
const REQUESTS: usize = 30;

fn draw(seed: u64) -> Vec<Request> {
    let mut random = Random::new(seed ^ 0x7265_7175_6573_7473);
    (0..REQUESTS).map(|_| Request::draw(&mut random)).collect()
}

/// Checks each outcome against the server's answer; with faults, errors of the dispatcher and
/// visible ends are right as well.
fn check(scene: &Scene, client: usize, may_fail: bool) -> usize {
    let service = scene.world.host(scene.clients[client]);
    let mut whole = 0;
    for (request, outcome) in service.plan.iter().zip(&service.outcomes) {
        match outcome {
            // An answer that ends with the connection also ends when the server dies; no client can
            // tell.
            Outcome::Whole { status: 200, body }
                if scene.origins_restarted > 0 && matches!(request, Request::UntilClose(_)) =>
            {
                assert!(request.answer().starts_with(body), "{request:?}");
            }
            Outcome::Whole { status, body } if *status == request.status() => {
                assert!(
                    request.is_answered_by(body),
                    "{request:?}: {} bytes are not the {} sent",
                    body.len(),
                    request.answer().len()
                );
                whole += 1;
            }
            Outcome::Whole { status: 502..=504, body } if may_fail => {
                assert!(request.is_head() || body.starts_with(b"shunt dispatch: "), "{request:?}");
            }
            Outcome::Broken if may_fail => {}
            other => panic!("{request:?}: {}", other.words()),
        }
    }
    assert_eq!(service.outcomes.len(), service.plan.len(), "requests without an outcome");
    whole
}

#[test]
fn every_answer_arrives_whole_however_the_bytes_are_cut() {
    for_seeds(12, |seed| {
        let mut scene = Scene::new(seed, Options::calm(), 2, vec![draw(seed), draw(!seed)]);
        scene.wait_for_backends();
        // Small enough to cut nearly everything, and large enough that no time-outs pass.
        scene.world.set_options(Options { window_bytes: 512..8192, ..Options::crumbs() });
        assert!(scene.run(600 * SECOND), "not all was answered: {}", scene.words());
        assert_eq!(check(&scene, 0, false) + check(&scene, 1, false), 2 * REQUESTS);
        scene.is_at_rest();
    });
}

#[test]
fn large_answers_are_offered_and_fetched_and_reads_go_to_all_backends() {
    let plan = vec![Request::Length(1 << 20); 6]
        .into_iter()
        .chain([Request::Upload(1 << 20), Request::Chunked(300_000)]);
    let mut scene = Scene::new(5, Options::calm(), 2, vec![plan.collect()]);
    scene.wait_for_backends();
    assert!(scene.run(60 * SECOND), "{}", scene.words());
    check(&scene, 0, false);
    let counters = scene.counted();
    assert_eq!((counters.requests, counters.answers, counters.offers), (8, 8, 7));
    let served: Vec<u64> =
        scene.origins.iter().map(|origin| scene.world.host(*origin).reads).collect();
    assert!(served.iter().all(|reads| *reads >= 3), "{served:?}");
    let writes: Vec<u64> =
        scene.origins.iter().map(|origin| scene.world.host(*origin).writes).collect();
    assert_eq!(writes, [1, 0], "writes go to the primary");
}

#[test]
fn faults_never_make_a_byte_wrong_or_a_part_look_whole() {
    let (mut whole, mut runs) = (0, 0);
    for_seeds(24, |seed| {
        let mut scene =
            Scene::new(seed, Options::calm(), 3, vec![draw(seed), draw(!seed), draw(seed << 8)]);
        scene.wait_for_backends();
        scene.world.set_options(Options::mixed(seed));
        scene.suffer(seed);
        assert!(scene.run(900 * SECOND), "not all has come to an end: {}", scene.words());
        whole += (0..3).map(|client| check(&scene, client, true)).sum::<usize>();
        runs += 1;
        scene.is_at_rest();
    });
    assert!(
        whole > runs * REQUESTS / 2,
        "{whole} answers of {runs} runs were whole: too few to tell anything"
    );
}

#[test]
fn a_read_is_answered_by_another_backend_when_its_own_dies() {
    let mut scene = Scene::new(11, Options::calm(), 2, vec![vec![Request::Length(2_000); 40]]);
    scene.lose_an_agent_within();
    assert!(scene.run(60 * SECOND), "{}", scene.words());
    assert_eq!(check(&scene, 0, false), 40);
    assert_eq!(scene.counted().repeated, 1);
}

#[test]
fn a_write_is_never_sent_twice_and_its_client_is_told() {
    let mut scene = Scene::new(11, Options::calm(), 2, vec![vec![Request::Upload(2_000); 40]]);
    scene.lose_an_agent_within();
    assert!(scene.run(60 * SECOND), "{}", scene.words());
    let outcomes = &scene.world.host(scene.clients[0]).outcomes;
    let of = |wanted: u16| {
        outcomes
            .iter()
            .filter(move |one| matches!(one, Outcome::Whole { status, .. } if *status == wanted))
    };
    assert!(
        of(200).count() > 5 && of(502).count() == 1 && of(503).count() > 5,
        "the first is lost, the others are refused"
    );
    assert_eq!(scene.counted().repeated, 0);
    assert_eq!(scene.world.host(scene.origins[1]).writes, 0);
}

#[test]
fn a_slow_client_holds_up_nobody_and_bounds_what_is_kept_for_it() {
    let mut scene = Scene::new(
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
    assert!(held.backlog_most > 100_000 && held.backlog < 2 << 20, "{held:?}");
    let held = scene.world.held(scene.agents[0]);
    assert!(held.backlog + held.unread < 2 << 20, "{held:?}");
    scene.world.thaw(scene.clients[0]);
    assert!(scene.run(60 * SECOND), "{}", scene.words());
    check(&scene, 0, false);
}

#[test]
fn a_client_that_takes_nothing_for_too_long_is_cut_off() {
    let mut scene = Scene::new(4, Options::calm(), 1, vec![vec![Request::Length(32 << 20)]]);
    scene.wait_for_backends();
    scene.world.run_until(SECOND, |world| world.host(scene.clients[0]).has_begun());
    scene.world.freeze(scene.clients[0]);
    scene.world.run_for(60 * SECOND);
    assert_eq!(scene.counted().cut, 1);
    scene.is_at_rest();
}

#[test]
fn requests_that_are_refused_are_told_why() {
    for (text, status, words) in [
        ("GET / HTTP/1.1\r\n\r\n", 400, "Host"),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
            "both",
        ),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505, "HTTP/1.1"),
        ("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "different hosts"),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer_Encoding: chunked\r\n\r\n", 400, "almost"),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: Authorization\r\n\r\n",
            400,
            "not for this connection alone",
        ),
        (
            "PUT /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n",
            400,
            "behind the last chunk",
        ),
        ("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n", 413, "more than"),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 400, "chunk"),
        ("GET /slow HTTP/1.1\r\nHost", 408, "head"),
        ("PUT /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc", 408, "body"),
        ("GET /never HTTP/1.1\r\nHost: a\r\n\r\n", 504, "time"),
    ] {
        let mut scene =
            Scene::new(1, Options::calm(), 1, vec![vec![Request::Raw(text.to_owned())]]);
        scene.wait_for_backends();
        assert!(scene.run(120 * SECOND), "{text}: {}", scene.words());
        let outcome = &scene.world.host(scene.clients[0]).outcomes[0];
        let Outcome::Whole { status: found, body } = outcome else {
            panic!("{text}: {}", outcome.words())
        };
        let body = String::from_utf8_lossy(body);
        assert!(*found == status && body.contains(words), "{text}: {found} {body}");
        scene.is_at_rest();
    }
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(20_000));
    let mut scene = Scene::new(1, Options::calm(), 1, vec![vec![Request::Raw(long)]]);
    scene.wait_for_backends();
    assert!(scene.run(60 * SECOND));
    assert!(matches!(
        scene.world.host(scene.clients[0]).outcomes[0],
        Outcome::Whole { status: 431, .. }
    ));
}

#[test]
fn a_server_that_takes_nothing_has_no_more_time_by_each_byte_that_its_client_sends() {
    let head = "PUT /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n";
    // More than the server's window and the agent's buffer, and less than the client's credit.
    let request = Request::Raw(format!("{head}{}", "x".repeat(150_000)));
    let options = Options { window_bytes: 65_536..65_537, ..Options::calm() };
    let mut scene = Scene::new(1, options, 1, vec![vec![request]]);
    scene.wait_for_backends();
    scene.world.freeze(scene.origins[0]);
    let client = scene.clients[0];
    for _ in 0..60 {
        scene.world.run_for(SECOND);
        scene.world.with(client, |client, io| {
            if let Some(conn) = client.conn() {
                io.output(conn).extend_from_slice(&[b'x'; 1_000]);
            }
        });
    }
    let outcomes = &scene.world.host(client).outcomes;
    assert!(matches!(outcomes[..], [Outcome::Whole { status: 504, .. }]), "{outcomes:?}");
    scene.world.thaw(scene.origins[0]);
    scene.is_at_rest();
}

/// Streaming applications answer like this. The size is unknown, so the agent holds the answer; the
/// request's ongoing body must not extend that time.
#[test]
fn an_answer_that_begins_within_its_request_is_not_held_for_as_long_as_that_takes() {
    let request =
        Request::Raw("POST /begun HTTP/1.1\r\nHost: a\r\nContent-Length: 40000\r\n\r\n".to_owned());
    let mut scene = Scene::handing_over(1, Options::calm(), 1, vec![vec![request]]);
    scene.wait_for_backends();
    let client = scene.clients[0];
    for sent in 1..=40 {
        scene.world.run_for(10 * MILLISECOND);
        scene.world.with(client, |client, io| {
            let conn = client.conn().expect("nobody has ended it");
            io.output(conn).extend_from_slice(&[b'x'; 1_000]);
        });
        assert!(
            sent < 20 || scene.world.host(client).has_begun(),
            "nothing has come in {sent} parts of the body"
        );
    }
    assert!(scene.run(10 * SECOND), "{}", scene.words());
    assert!(matches!(scene.world.host(client).outcomes[..], [Outcome::Whole { status: 200, .. }]));
    let relayed = scene.world.host(scene.agents[0]).metrics();
    assert_eq!(
        (relayed.relayed.of(shunt_agent::Why::HoldOver).get(), relayed.relayed.total()),
        (1, 1)
    );
    scene.is_at_rest();
}

#[test]
fn without_a_backend_the_client_is_told_so() {
    let mut scene =
        Scene::new(1, Options::calm(), 1, vec![vec![Request::Length(10), Request::Upload(10)]]);
    scene.wait_for_backends();
    scene.kill_agent(0);
    scene.world.run_for(SECOND);
    assert!(scene.run(30 * SECOND), "{}", scene.words());
    for outcome in &scene.world.host(scene.clients[0]).outcomes {
        assert!(matches!(outcome, Outcome::Whole { status: 503, .. }), "{}", outcome.words());
    }
}

#[test]
fn an_agent_with_another_key_is_never_used() {
    let mut scene =
        Scene::with_keys(1, Options::calm(), vec![vec![Request::Length(10)]], [1; 20], [2; 20]);
    scene.world.run_for(10 * SECOND);
    assert_eq!(scene.world.host(scene.dispatcher).backends_up(), 0);
    assert!(scene.run(30 * SECOND));
    assert!(matches!(
        scene.world.host(scene.clients[0]).outcomes[0],
        Outcome::Whole { status: 503, .. }
    ));
}

#[test]
fn a_drain_finishes_what_there_is_and_ends() {
    let mut scene = Scene::new(9, Options::calm(), 1, vec![vec![Request::Length(4 << 20)]]);
    scene.wait_for_backends();
    scene.world.run_until(SECOND, |world| world.host(scene.clients[0]).has_begun());
    scene.world.post(scene.dispatcher, shunt_dispatch::DispatchMail::Drain);
    scene.world.post(scene.agents[0], shunt_agent::AgentMail::Drain);
    assert!(scene.run(60 * SECOND), "{}", scene.words());
    check(&scene, 0, false);
    scene.world.run_for(10 * SECOND);
    assert!(!scene.world.is_running(scene.dispatcher) && !scene.world.is_running(scene.agents[0]));
}
