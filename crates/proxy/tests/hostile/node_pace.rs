//! Nodes that answer late, never, or too slowly to be told from dead ones.

use shunt_bench::stub::hook::Request;
use shunt_bench::stub::{Action, StubMail};
use shunt_reactor::sim::{HostId, MILLISECOND, SECOND};
use shunt_testing::{bytes, simulated};
use shunt_topology::NodeId;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::{INVALID, OVERLOADED, READ_TIMEOUT, WRITE_TIMEOUT};
use shunt_wire::cql::message::{
    BatchChild, BatchKind, BatchStatement, Consistency, ErrorDetails, ErrorMessage,
};
use shunt_wire::cql::message::{QueryParams, Values, encode};

use super::testbed::Testbed;

const SELECT: &str = "SELECT v FROM bench.kv WHERE k = 0x00";
const INSERT: &str = "INSERT INTO bench.kv (k, v) VALUES (0x00, 0x01)";
const COUNT: &str = "UPDATE bench.counters SET n = n + 1 WHERE k = 0x00";

fn is_query(request: &Request<'_>) -> bool {
    matches!(request.opcode, opcode::QUERY | opcode::EXECUTE | opcode::BATCH | opcode::PREPARE)
}

/// An unanswered query gets the error of its deadline, once, and its late answer is dropped.
#[test]
fn queries_that_are_never_answered() {
    for aggregate in [false, true] {
        let mut testbed = Testbed::with(|options| options.aggregate = vec![aggregate; 3]);
        let offender = testbed.started_offender(4);
        testbed.hook_all(|| Box::new(|_| Action::Silence));
        for (stream, text) in [(1, SELECT), (2, INSERT), (3, COUNT), (4, "TRUNCATE bench.kv")] {
            testbed.send(offender, &bytes::query(4, stream, text));
        }
        testbed.answered(offender, 3);
        assert!(testbed.scene.world.host(offender).on(4).is_none(), "TRUNCATE may take longer");
        testbed.run_for(60 * SECOND);
        let codes = [1, 2, 3, 4]
            .map(|stream| testbed.scene.world.host(offender).on(stream).unwrap().error().0);
        assert_eq!(codes, [READ_TIMEOUT, WRITE_TIMEOUT, WRITE_TIMEOUT, WRITE_TIMEOUT]);
        for node in 0..3 {
            testbed.scene.hook(node, None);
        }
        testbed.run_for(10 * SECOND);
        assert_eq!(testbed.scene.world.host(offender).answers.len(), 4);
        testbed.reset(offender);
        testbed.check_recovered();
    }
}

/// The outcome of a conditional batch whose link died is unknown, and it must not be mistaken for a
/// plain batch.
#[test]
fn a_conditional_batch_that_is_never_answered() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(4);
    testbed.hook_all(|| {
        Box::new(
            |request| if request.opcode == opcode::BATCH { Action::Close } else { Action::Answer },
        )
    });
    for (stream, condition, kind) in [(1, "", "BATCH"), (2, " IF NOT EXISTS", "CAS")] {
        let text = format!("{INSERT}{condition}");
        let child =
            BatchChild { statement: BatchStatement::Text(&text), values: Values::default() };
        let params = QueryParams::simple(Consistency::ONE);
        let batch = bytes::body(|out| encode::batch(out, 4, BatchKind::Counter, [child], &params));
        testbed.send(offender, &bytes::request(4, stream, opcode::BATCH, &batch));
        testbed.answered(offender, 1);
        let answer = testbed.take_answers(offender).remove(0);
        let error = ErrorMessage::decode(4, &answer.body).unwrap();
        assert!(
            matches!(error.details, ErrorDetails::WriteTimeout { write_type, .. } if write_type == kind),
            "{error:?}"
        );
    }
}

#[test]
fn answers_that_come_after_the_deadline() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(4);
    testbed.hook_all(|| Box::new(|_| Action::Delay(5 * SECOND)));
    for stream in 0..100 {
        testbed.send(offender, &bytes::query(4, stream, SELECT));
    }
    testbed.answered(offender, 100);
    testbed.run_for(10 * SECOND);
    assert_eq!(testbed.scene.world.host(offender).answers.len(), 100, "one answer each");
    for node in 0..3 {
        testbed.scene.hook(node, None);
    }
    testbed.reset(offender);
    testbed.check_recovered();
}

/// The node answers OPTIONS, so it is alive; but the queries that it swallows must not fill the
/// links for ever.
#[test]
fn a_node_that_swallows_every_query() {
    let mut testbed = Testbed::with(|options| options.config.in_flight_max = 64);
    let swallow =
        |request: &Request<'_>| if is_query(request) { Action::Silence } else { Action::Answer };
    testbed.scene.world.post(testbed.scene.nodes[0], StubMail::Hook(Some(Box::new(swallow))));
    for _ in 0..20 {
        testbed.start_work();
        testbed.run_for(2 * SECOND);
    }
    testbed.scene.wait_idle(60 * SECOND);
    testbed.accept_errors();
    testbed.scene.hook(0, None);
    testbed.run_for(15 * SECOND);
    testbed.check_recovered();
}

/// Two nodes, of which the second is drained. All streams of the first are in use. It is silent, or
/// else just overloaded. Two clients: the second has sent nothing yet.
fn beside_a_drained_node(silent: bool) -> (Testbed, [HostId<simulated::Client>; 2]) {
    let mut testbed = Testbed::bare(|options| {
        options.nodes = 2;
        options.config.in_flight_max = 64;
    });
    let clients = [testbed.started_offender(4), testbed.started_offender(4)];
    testbed.run_for(SECOND);
    testbed.scene.drained = vec![1];
    testbed.scene.post_cluster();
    testbed.run_for(SECOND / 10);
    let swallow =
        |request: &Request<'_>| if is_query(request) { Action::Silence } else { Action::Answer };
    testbed.scene.world.post(testbed.scene.nodes[0], StubMail::Hook(Some(Box::new(swallow))));
    testbed.run_for(SECOND / 10);
    // No other statement keeps its stream for so long.
    for stream in 0..100 {
        testbed.send(clients[0], &bytes::query(4, stream, "TRUNCATE bench.kv"));
    }
    // The first client has all streams once nobody else has asked for some for a while.
    testbed.run_for(2 * SECOND);
    if silent {
        testbed.scene.world.freeze(testbed.scene.nodes[0]);
    }
    (testbed, clients)
}

/// The links to a silent node are given up after 5 s. Until then a drained node takes the queries.
#[test]
fn full_links_to_a_silent_node_keep_nobody_from_a_drained_one() {
    let (mut testbed, [_, second]) = beside_a_drained_node(true);
    testbed.run_for(3 * SECOND);
    testbed.send(second, &bytes::query(4, 1, SELECT));
    testbed.run_for(SECOND / 10);
    let answers = testbed.take_answers(second);
    let found: Vec<u8> = answers.iter().map(|answer| answer.header.opcode).collect();
    assert_eq!(found, [opcode::RESULT], "it waits for the silent node");
}

#[test]
fn a_query_that_has_waited_in_vain_goes_to_a_drained_node() {
    let (mut testbed, [_, second]) = beside_a_drained_node(false);
    let start_ns = testbed.scene.world.now_ns();
    testbed.send(second, &bytes::query(4, 1, SELECT));
    testbed.answered(second, 1);
    let answer = testbed.take_answers(second).remove(0);
    assert_eq!(answer.header.opcode, opcode::RESULT, "the drained node has room");
    let waited_ns = testbed.scene.world.now_ns() - start_ns;
    assert!(waited_ns > SECOND, "{waited_ns} ns: it waits for an undrained node first");
}

/// A query that a lost node did not answer cannot wait for a full link as a new one can.
#[test]
fn a_repeated_query_goes_to_a_drained_node_if_the_others_are_full() {
    const STREAMS: u16 = 64;
    let mut testbed = Testbed::bare(|options| {
        options.nodes = 3;
        options.config.in_flight_max = u32::from(STREAMS);
    });
    let clients = [testbed.started_offender(4), testbed.started_offender(4)];
    testbed.run_for(SECOND);
    let drain = |testbed: &mut Testbed, nodes: &[usize]| {
        testbed.scene.drained = nodes.to_vec();
        testbed.scene.post_cluster();
        testbed.run_for(SECOND / 10);
    };
    drain(&mut testbed, &[1, 2]);
    let swallow =
        |request: &Request<'_>| if is_query(request) { Action::Silence } else { Action::Answer };
    for node in [0, 1] {
        let node = testbed.scene.nodes[node];
        testbed.scene.world.post(node, StubMail::Hook(Some(Box::new(swallow))));
    }
    testbed.run_for(SECOND / 10);
    for stream in 0..STREAMS as i16 {
        testbed.send(clients[0], &bytes::query(4, stream, "TRUNCATE bench.kv"));
    }
    testbed.run_for(2 * SECOND);
    drain(&mut testbed, &[2]);
    testbed.send(clients[1], &bytes::query(4, 1, SELECT));
    testbed.run_for(SECOND / 10);
    assert!(testbed.take_answers(clients[1]).is_empty(), "the second node has it");
    testbed.scene.world.kill(testbed.scene.nodes[1]);
    testbed.run_for(SECOND / 10);
    let answers = testbed.take_answers(clients[1]);
    let found: Vec<u8> = answers.iter().map(|answer| answer.header.opcode).collect();
    assert_eq!(found, [opcode::RESULT], "the drained node has room");
}

#[test]
fn a_node_that_stops() {
    for aggregate in [false, true] {
        let mut testbed = Testbed::with(|options| options.aggregate = vec![aggregate; 3]);
        testbed.scene.world.freeze(testbed.scene.nodes[0]);
        testbed.start_work();
        testbed.scene.wait_idle(60 * SECOND);
        testbed.accept_errors();
        // Once found silent, it gets no more queries.
        testbed.start_work();
        testbed.check_bystanders();
        testbed.scene.world.thaw(testbed.scene.nodes[0]);
        testbed.run_for(15 * SECOND);
        testbed.check_recovered();
    }
}

/// A node may pause for as long as `node_silence_ms`: nobody loses an answer, not even a client
/// whose query the link has no room for.
#[test]
fn a_node_that_pauses_for_less_than_its_silence_may_last() {
    // The node has no table of counters; so it says, if it is waited for.
    let ends = [(5_000, [Some(WRITE_TIMEOUT), Some(OVERLOADED)]), (60_000, [Some(INVALID), None])];
    for (silence_ms, expected) in ends {
        let mut testbed = Testbed::bare(|options| {
            options.nodes = 1;
            options.config.in_flight_max = 1;
            options.config.query_timeout_ms = 90_000;
            options.config.node_silence_ms = silence_ms;
        });
        let [first, second] = [0, 1].map(|_| testbed.started_offender(4));
        testbed.run_for(SECOND);
        testbed.scene.world.freeze(testbed.scene.nodes[0]);
        testbed.send(first, &bytes::query(4, 1, COUNT));
        testbed.run_for(SECOND);
        testbed.send(second, &bytes::query(4, 1, SELECT));
        testbed.run_for(30 * SECOND);
        testbed.scene.world.thaw(testbed.scene.nodes[0]);
        [first, second].iter().for_each(|client| testbed.answered(*client, 1));
        let ends = [first, second].map(|client| {
            let answer = testbed.take_answers(client).remove(0);
            (answer.opcode() == opcode::ERROR).then(|| answer.error().0)
        });
        assert_eq!(ends, expected, "{silence_ms} ms of silence");
    }
}

/// A client that has waited in vain once waits again the next time.
#[test]
fn a_query_after_one_that_was_refused_waits_for_room() {
    let mut testbed = Testbed::bare(|options| {
        options.nodes = 1;
        options.config.in_flight_max = 1;
        options.config.query_timeout_ms = 90_000;
        options.config.node_silence_ms = 5_000;
    });
    let [first, second] = [0, 1].map(|_| testbed.started_offender(4));
    testbed.run_for(SECOND);
    for (stream, frozen_ns) in [(1, 30 * SECOND), (2, 2 * SECOND)] {
        testbed.scene.world.freeze(testbed.scene.nodes[0]);
        testbed.send(first, &bytes::query(4, stream, SELECT));
        testbed.run_for(SECOND);
        testbed.send(second, &bytes::query(4, stream, SELECT));
        testbed.run_for(frozen_ns);
        testbed.scene.world.thaw(testbed.scene.nodes[0]);
        [first, second].iter().for_each(|client| testbed.answered(*client, 1));
        testbed.run_for(15 * SECOND);
        let [_, answer] = [first, second].map(|client| testbed.take_answers(client).remove(0));
        let refused = (answer.opcode() == opcode::ERROR).then(|| answer.error().0);
        assert_eq!(refused, (stream == 1).then_some(OVERLOADED));
    }
}

/// A full link has no stream id left to probe the node.
#[test]
fn a_full_link_whose_node_stops() {
    let mut testbed = Testbed::with(|options| {
        options.config.in_flight_max = 1;
        options.config.query_timeout_ms = 60_000;
    });
    testbed.scene.world.freeze(testbed.scene.nodes[0]);
    testbed.start_work();
    testbed.run_for(8 * SECOND);
    let lost = testbed.scene.metrics[0].nodes.get(NodeId(0)).unwrap().links_lost.get();
    assert!(lost > 0, "the links must be given up");
    testbed.check_bystanders();
    testbed.scene.world.thaw(testbed.scene.nodes[0]);
    testbed.run_for(15 * SECOND);
    testbed.check_recovered();
}

/// A long answer on its way is a sign of life, even if the answer to a probe waits after it.
#[test]
fn a_long_answer_over_a_slow_network() {
    let mut testbed = Testbed::with(|options| {
        options.nodes = 1;
        options.aggregate = vec![false];
        options.config.query_timeout_ms = 60_000;
        options.config.client_backlog_bytes = 64 << 20;
    });
    let offender = testbed.started_offender(4);
    testbed.send(offender, &bytes::insert(4, 1, "long", 3 << 20));
    testbed.answered(offender, 1);
    testbed.take_answers(offender);
    let calm = testbed.scene.world.options().clone();
    let slow = shunt_reactor::sim::Options {
        latency_ns: 700 * MILLISECOND..701 * MILLISECOND,
        ..calm.clone()
    };
    testbed.scene.world.set_options(slow);
    let key: String = "long".bytes().map(|byte| format!("{byte:02x}")).collect();
    testbed
        .send(offender, &bytes::query(4, 2, &format!("SELECT v FROM bench.kv WHERE k = 0x{key}")));
    let arrived = testbed
        .scene
        .world
        .run_until(60 * SECOND, |world| !world.host(offender).answers.is_empty());
    assert!(arrived);
    assert_eq!(testbed.scene.world.host(offender).last().header.opcode, opcode::RESULT);
    let lost = testbed.scene.metrics[0].nodes.get(NodeId(0)).unwrap().links_lost.get();
    assert_eq!(lost, 0, "the link is alive");
    testbed.scene.world.set_options(calm);
    testbed.forget_key("long");
    testbed.reset(offender);
    testbed.check_recovered();
}
