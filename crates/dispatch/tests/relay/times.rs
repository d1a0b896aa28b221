//! Durations of a hand-over's steps as dispatcher and agent measure them: each equals the time
//! between its two events, to the nanosecond.

use std::sync::Arc;

use shunt_admin::Histogram;
use shunt_agent::Left;
use shunt_dispatch::{Ended, Way, Why};
use shunt_reactor::sim::{MICROSECOND, MILLISECOND, Options, SECOND};

use crate::check;
use crate::requests::Request;
use crate::scene::Scene;

/// Fixed latency between hosts.
const WAY: u64 = 3 * MILLISECOND;
/// Fixed time from an event until the loop turns.
const TURN: u64 = 7 * MICROSECOND;
/// Count and sum of a histogram.
type Times = (u64, u64);

fn even() -> Options {
    Options {
        latency_ns: WAY..WAY + 1,
        turn_delay_ns: TURN..TURN + 1,
        timer_delay_ns: 0..1,
        // The window takes a whole answer at once.
        window_bytes: 64 << 20..(64 << 20) + 1,
        ..Options::calm()
    }
}

/// The client requests a large answer, and then a small one, which brings its connection back.
fn scene(options: Options) -> Scene {
    // With this seed the client waits for the first answer before the second request.
    let mut scene = Scene::handing_over(
        3,
        Options::calm(),
        1,
        vec![vec![Request::Length(300_000), Request::Length(10)]],
    );
    scene.wait_for_backends();
    scene.world.set_options(options);
    scene
}

fn times(histogram: &Histogram) -> Times {
    let all = histogram.snapshot();
    (all.count(), all.sum())
}

fn dispatcher(scene: &Scene) -> Arc<shunt_dispatch::Metrics> {
    scene.world.host(scene.dispatcher).metrics()
}

fn agent(scene: &Scene) -> Arc<shunt_agent::Metrics> {
    scene.world.host(scene.agents[0]).metrics()
}

/// Time at which the condition becomes true.
fn when(
    scene: &mut Scene,
    is_so: impl Fn(&shunt_dispatch::Metrics, &shunt_agent::Metrics) -> bool,
) -> u64 {
    let (dispatcher, agent) = (dispatcher(scene), agent(scene));
    assert!(scene.world.run_until(SECOND, |_| is_so(&dispatcher, &agent)), "{}", scene.words());
    scene.world.now_ns()
}

#[test]
fn each_is_the_time_between_its_two_moments() {
    let mut scene = scene(even());
    let requested = when(&mut scene, |_, agent| agent.requests.get() == 1);
    let offered = when(&mut scene, |_, agent| agent.offers.get() == 1);
    let decided = when(&mut scene, |dispatcher, _| dispatcher.handovers.get() == 1);
    // The agent had the request one way and one turn after it was sent.
    let backend = &dispatcher(&scene).backends[0].times;
    assert_eq!(times(backend), (1, decided - requested + WAY + TURN));
    let begun =
        when(&mut scene, |_, agent| agent.answer_bytes.of(shunt_agent::Way::Direct).get() > 0);
    when(&mut scene, |_, agent| agent.answers.of(shunt_agent::Way::Direct).get() == 1);
    let host = scene.agents[0];
    // Nothing holds up the last byte, and the loop learns of it in its next turn.
    assert!(scene.world.run_until(SECOND, |world| world.held(host).backlog == 0));
    let out = scene.world.now_ns() + TURN;
    let left = when(&mut scene, |_, agent| agent.left.of(Left::Returned).get() == 1);
    let back = when(&mut scene, |dispatcher, _| dispatcher.ended.of(Ended::Returned).get() == 1);
    assert!(scene.run(SECOND), "{}", scene.words());
    assert_eq!(check(&scene, 0, false), 2);

    let (dispatcher, agent) = (dispatcher(&scene), agent(&scene));
    assert_eq!(times(&dispatcher.freeze), (1, TURN));
    // The connection goes to the agent and is restored, and the dispatcher is told.
    assert_eq!(begun, decided + TURN + WAY + TURN + TURN);
    assert_eq!(times(&dispatcher.taking), (1, begun - decided + WAY + TURN));
    assert_eq!(times(&dispatcher.absence), (1, back - decided));
    assert_eq!(times(&dispatcher.restore), (1, TURN));
    assert_eq!(back, left + WAY + TURN + TURN);

    assert_eq!(times(&agent.restore), (1, begun - offered));
    assert_eq!(times(&agent.arrival), (1, TURN));
    assert_eq!(times(&agent.first_byte), (1, begun - requested));
    assert_eq!(times(&agent.freeze), (1, TURN));
    // The dispatcher confirms at once, a turn before the connection is restored.
    assert_eq!(times(&agent.giving_back), (1, left + WAY + TURN + WAY + TURN - out));
}

#[test]
fn relayed_answers_feed_no_estimate() {
    let mut scene =
        Scene::new(3, even(), 1, vec![vec![Request::Length(300_000), Request::Length(10)]]);
    scene.wait_for_backends();
    assert!(scene.run(SECOND), "{}", scene.words());
    let (dispatcher, agent) = (dispatcher(&scene), agent(&scene));
    let of_dispatcher =
        [&dispatcher.freeze, &dispatcher.taking, &dispatcher.absence, &dispatcher.restore];
    let of_agent =
        [&agent.restore, &agent.arrival, &agent.first_byte, &agent.freeze, &agent.giving_back];
    assert!(of_dispatcher.into_iter().chain(of_agent).all(|histogram| times(histogram) == (0, 0)));
    assert_eq!((dispatcher.relayed.of(Why::Off).get(), dispatcher.relayed.total()), (1, 1));
    assert_eq!((agent.relayed.of(shunt_agent::Why::Fetched).get(), agent.relayed.total()), (1, 1));
    assert_eq!(agent.answer_bytes.of(shunt_agent::Way::Direct).get(), 0);
}

#[test]
fn a_connection_that_is_let_in_nowhere_is_not_there_at_any_time() {
    let mut scene = scene(Options { restore_failed: 1.0, ..even() });
    when(&mut scene, |dispatcher, _| dispatcher.ended.of(Ended::NotRestored).get() == 1);
    let (dispatcher, agent) = (dispatcher(&scene), agent(&scene));
    assert_eq!(times(&dispatcher.freeze), (1, TURN));
    assert_eq!(agent.taken.of(shunt_agent::Taken::NotRestored).get(), 1);
    let never = [
        &dispatcher.taking,
        &dispatcher.absence,
        &dispatcher.restore,
        &agent.restore,
        &agent.arrival,
    ];
    assert!(
        never
            .into_iter()
            .chain([&agent.first_byte, &agent.giving_back])
            .all(|one| times(one) == (0, 0))
    );
    assert_eq!(dispatcher.answers.of(Way::HandedOver).get(), 0);
}
