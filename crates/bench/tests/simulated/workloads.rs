//! Operations other than SELECT and INSERT of single keys, the distributions, and the routes to the
//! nodes, against stubs with memory.

use crate::talk::addresses;
use shunt_bench::load::{
    Distribution, Load, LoadOptions, Operation, Phase, Round, template::Layout,
};
use shunt_bench::stub::{Action, Counts, Hook, Memory, Ring, Stub, StubOptions, hook};
use shunt_reactor::sim::{MILLISECOND, Options, SECOND, World, for_seeds};
use shunt_wire::cql::envelope::opcode;

const KEYS: u64 = 60;
const ALL: &str = "read=0.2,update=0.2,insert=0.1,rmw=0.2,scan=0.1,multiget=0.2";

fn small(mix: &str) -> LoadOptions {
    LoadOptions {
        connections: 6,
        outstanding: 3,
        keys: KEYS,
        mix: Some(mix.parse().expect("a mix")),
        multiget: 4,
        layout: Layout { version: 4, consistency: 1, key_bytes: 16, value_bytes: 40 },
        verify: true,
        populate: true,
        create: Some(1),
        warm_up_ns: 100 * MILLISECOND,
        duration_ns: 400 * MILLISECOND,
        stops_loop: false,
        ..LoadOptions::default()
    }
}

/// Outcome of a run.
struct Outcome {
    failure: Option<String>,
    rounds: Vec<Round>,
    counts: shunt_bench::load::LoadCounts,
    nodes: Counts,
    by_node: Vec<u64>,
    remembered: usize,
}

fn run(seed: u64, network: Options, nodes: u8, load: LoadOptions, hook: Option<Hook>) -> Outcome {
    let mut world = World::new(seed, network);
    let ring = addresses(nodes);
    let memory = Memory::default();
    let options = StubOptions {
        memory: Some(memory.clone()),
        hook,
        ..StubOptions::new(Ring::even(&ring, 2))
    };
    let stub = world.add("stub", Stub::new(options));
    for &address in &ring {
        world.listen(stub, address);
    }
    let targets = if load.targets == LoadOptions::default().targets { ring } else { load.targets };
    let load = world.add("load", Load::new(LoadOptions { targets, ..load }, Box::new(|_| {})));
    assert!(world.run_until(200 * SECOND, |world| world.host(load).phase() == Phase::Done));
    let by_node = world
        .with(stub, |stub, io| stub.report(io))
        .nodes
        .iter()
        .map(|node| node.counts.queries)
        .collect();
    let service = world.host(load);
    Outcome {
        failure: service.failure().map(str::to_owned),
        rounds: service.rounds().to_vec(),
        counts: service.counts().clone(),
        nodes: world.host(stub).counts(),
        by_node,
        remembered: memory.lock().expect("not poisoned").len(),
    }
}

/// Asserts that no answer was wrong and every requested key was found.
fn assert_right(outcome: &Outcome) {
    assert_eq!(outcome.failure, None);
    let counts = &outcome.counts;
    assert!(counts.is_sound() && counts.errors.is_empty() && counts.not_found == 0, "{counts:?}");
}

#[test]
fn every_operation_finds_what_was_written() {
    for_seeds(6, |seed| {
        let version = [3, 4, 5][seed as usize % 3];
        let options = small(ALL);
        let layout = Layout { version, ..options.layout };
        let outcome = run(seed, Options::crumbs(), 3, LoadOptions { layout, ..options }, None);
        assert_right(&outcome);
        // The nodes' count includes two statements from before the load.
        assert_eq!(outcome.nodes.queries, outcome.counts.answered + 2);
        assert_eq!(outcome.nodes.multiget_keys, outcome.nodes.multigets * 4);
        assert!(
            outcome.nodes.multigets > 0 && outcome.nodes.multiget_keys_elsewhere > 0,
            "{:?}",
            outcome.nodes
        );
        let round = &outcome.rounds[0];
        let operations: Vec<_> =
            round.counts.operations.iter().map(|part| part.operation).collect();
        assert_eq!(operations, Operation::ALL);
        assert!(round.counts.operations.iter().all(|part| !part.latency.is_empty()));
        let sum: u64 = round.counts.operations.iter().map(|part| part.latency.len()).sum();
        assert_eq!(sum, round.latency.len());
        assert!(outcome.remembered > KEYS as usize, "new keys were inserted");
    });
}

#[test]
fn a_read_modify_write_takes_two_answers_and_counts_once() {
    let outcome = run(1, Options::calm(), 1, small("rmw=0.5,read=0.5"), None);
    assert_right(&outcome);
    let round = &outcome.rounds[0];
    let [read, rmw] = &round.counts.operations[..] else {
        panic!("{:?}", round.counts.operations.len())
    };
    assert_eq!((read.operation, rmw.operation), (Operation::Read, Operation::ReadModifyWrite));
    let queries = read.latency.len() + 2 * rmw.latency.len();
    // Half of those in flight at the begin or end of the round belong to it.
    assert!(
        round.counts.answered.abs_diff(queries) <= 2 * 18,
        "{} {queries}",
        round.counts.answered
    );
    let ratio = rmw.latency.mean() / read.latency.mean();
    assert!((1.7..2.3).contains(&ratio), "a read and a write take {ratio} times as long as a read");
}

#[test]
fn reads_find_the_latest_inserts() {
    for_seeds(4, |seed| {
        let load = LoadOptions {
            distribution: Distribution::Latest { exponent: 0.99 },
            token_aware: seed % 2 == 1,
            ..small("read=0.5,insert=0.5")
        };
        let outcome = run(seed, Options::crumbs(), 3, load, None);
        assert_right(&outcome);
        assert!(outcome.remembered > 2 * KEYS as usize, "{}", outcome.remembered);
    });
}

#[test]
fn a_token_aware_load_asks_replicas_only() {
    for (seed, rate) in [(1, None), (2, Some(3000.0))] {
        for token_aware in [true, false] {
            let load =
                LoadOptions { token_aware, rate, populate: false, verify: false, ..small(ALL) };
            let outcome = run(seed, Options::calm(), 3, load, None);
            assert_right(&outcome);
            assert_eq!(outcome.nodes.misrouted == 0, token_aware, "{:?}", outcome.nodes);
            let total = outcome.counts.answered;
            assert!(
                outcome.by_node.iter().all(|&queries| queries > total / 6),
                "{:?}",
                outcome.by_node
            );
            assert!(outcome.nodes.multiget_keys_elsewhere > 0, "only the first key decides");
        }
    }
}

#[test]
fn a_target_missing_for_a_token_aware_load_is_named() {
    let load = LoadOptions { token_aware: true, targets: addresses(2), ..small("read=1") };
    let failure = run(1, Options::calm(), 3, load, None).failure.expect("a failure");
    assert!(failure.contains("10.9.9.3:9042 is in the ring but not a --target"), "{failure}");
    let load = LoadOptions { token_aware: true, keys: 1, ..small("read=1") };
    let failure = run(1, Options::calm(), 3, load, None).failure.expect("a failure");
    assert!(failure.contains("keys drawn belongs to 10.9.9."), "{failure}");
}

#[test]
fn an_open_loop_counts_operations_and_not_queries() {
    for token_aware in [false, true] {
        let options = small("rmw=0.4,multiget=0.2,scan=0.2,insert=0.2");
        let load = LoadOptions {
            rate: Some(2000.0),
            outstanding: 64,
            duration_ns: 2 * SECOND,
            token_aware,
            ..options
        };
        let outcome = run(3, Options::calm(), 3, load, None);
        assert_right(&outcome);
        let operations = outcome.rounds[0].latency.len();
        assert!((3700..4300).contains(&operations), "{operations}");
        assert_eq!((outcome.rounds[0].counts.shed, outcome.rounds[0].counts.waiting), (0, 0));
    }
}

#[test]
fn arrivals_during_a_pause_count_from_their_intended_time() {
    for (mix, token_aware) in
        [("read=1", false), ("rmw=0.5,multiget=0.5", false), ("rmw=0.5,insert=0.5", true)]
    {
        let load = LoadOptions {
            connections: 1,
            outstanding: 1,
            rate: Some(200.0),
            warm_up_ns: 0,
            duration_ns: 4 * SECOND,
            populate: false,
            verify: false,
            token_aware,
            ..small(mix)
        };
        let pause = hook::once(Action::Delay(SECOND), |request| request.opcode == opcode::EXECUTE);
        let outcome = run(5, Options::calm(), 1, load, Some(pause));
        assert_eq!(outcome.failure, None);
        let latency = &outcome.rounds[0].latency;
        // The 200 arrivals in that second wait half a second on average, because the stream id is
        // busy until its end.
        let late = latency.count_between(100 * MILLISECOND, 2 * SECOND);
        assert!((140..220).contains(&late), "{mix}: {late} of {} were late", latency.len());
    }
}

#[test]
fn answers_after_their_round_count_as_late() {
    let load = LoadOptions {
        connections: 4,
        outstanding: 128,
        rate: Some(200.0),
        warm_up_ns: SECOND,
        rounds: 3,
        populate: false,
        verify: false,
        ..small("read=1")
    };
    let slow: Hook = Box::new(|request| match request.opcode {
        opcode::EXECUTE => Action::Delay(SECOND),
        _ => Action::Answer,
    });
    let outcome = run(9, Options::calm(), 1, load, Some(slow));
    assert_eq!(outcome.failure, None);
    let found: Vec<u64> = outcome.rounds.iter().map(|round| round.latency.len()).collect();
    // The two rounds of 400 ms only see answers to queries that were due before. The last round has
    // all queries that were due in the three.
    assert!(found[..2] == [0, 0] && (200..280).contains(&found[2]), "{found:?}");
    assert!(
        outcome.rounds[2].latency.min() >= 990 * MILLISECOND,
        "{}",
        outcome.rounds[2].latency.min()
    );
}

#[test]
fn a_key_whose_write_fails_is_written_again() {
    let mut turn = 0;
    let sometimes: Hook = Box::new(move |request| {
        turn += 1;
        let fails = request.opcode == opcode::EXECUTE && turn < 60 && turn % 3 == 0;
        if fails { Action::Error(0x1100) } else { Action::Answer }
    });
    let outcome = run(13, Options::calm(), 1, small("read=1"), Some(sometimes));
    assert_eq!((outcome.failure, outcome.counts.not_found), (None, 0));
    assert!(outcome.counts.errors_total() > 0, "{:?}", outcome.counts);
}

#[test]
fn a_query_that_is_never_answered_is_counted() {
    let silent = hook::once(Action::Silence, |request| request.opcode == opcode::EXECUTE);
    let load = LoadOptions { populate: false, verify: false, ..small("read=1") };
    let outcome = run(11, Options::calm(), 1, load, Some(silent));
    assert_eq!((outcome.failure, outcome.rounds[0].counts.queries_lost), (None, 1));
}

#[test]
fn an_overloaded_round_reports_its_backlog() {
    for token_aware in [false, true] {
        let load = LoadOptions {
            connections: 1,
            outstanding: 2,
            rate: Some(1000.0),
            warm_up_ns: 0,
            duration_ns: SECOND,
            populate: false,
            verify: false,
            token_aware,
            ..small("read=0.5,rmw=0.5")
        };
        let slow: Hook = Box::new(|request| match request.opcode {
            opcode::EXECUTE => Action::Delay(100 * MILLISECOND),
            _ => Action::Answer,
        });
        let outcome = run(7, Options::calm(), 1, load, Some(slow));
        let waiting = outcome.rounds[0].counts.waiting;
        assert!((900..1050).contains(&waiting), "{waiting}");
    }
}

#[test]
fn lost_connections_and_errors_leave_every_operation_sound() {
    for_seeds(6, |seed| {
        let network = Options { half_open: 0.0, connect_lost: 0.0, ..Options::rough() };
        let load = LoadOptions {
            populate: false,
            duration_ns: 2 * SECOND,
            token_aware: seed % 2 == 1,
            distribution: Distribution::Latest { exponent: 0.99 },
            ..small(ALL)
        };
        let mut turn = 0;
        let sometimes: Hook = Box::new(move |request| {
            turn += 1;
            let fails = request.opcode == opcode::EXECUTE && turn % 10 == 0;
            if fails { Action::Error(0x1001) } else { Action::Answer }
        });
        let outcome = run(seed, network, 3, load, Some(sometimes));
        assert_eq!(outcome.failure, None);
        assert!(
            outcome.counts.is_sound() && outcome.counts.errors_total() > 0,
            "{:?}",
            outcome.counts
        );
    });
}
