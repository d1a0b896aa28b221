//! Traces: a request whose client records a trace makes a span with the client's span as its
//! parent, whatever its end; others make none; and a flood of them costs a bounded memory.

use shunt_admin::Label as _;
use shunt_bench::stub::Action;
use shunt_otlp::{Endpoint, Loss};
use shunt_proxy::config::Config;
use shunt_proxy::control::CoreMail;
use shunt_proxy::limits;
use shunt_proxy::metrics::{Outcome, QueryKind};
use shunt_proxy::traces::metrics::TraceState;
use shunt_proxy::traces::table::QuerySpan;
use shunt_reactor::sim::{MILLISECOND, SECOND};
use shunt_testing::bytes;
use shunt_wire::cql::envelope::{HEADER_BYTES, flag, opcode};
use shunt_wire::cql::message::error_code::{OVERLOADED, READ_TIMEOUT};
use shunt_wire::cql::message::{ResultMessage, put, split_response_prefix};

use super::support::scene::SceneOptions;
use super::testbed::Testbed;
use tokio::sync::mpsc;

fn traced(options: &mut SceneOptions) {
    let endpoint = Endpoint::parse("http://127.0.0.1:1").expect("a URL");
    options.config.otlp_endpoint = Some(endpoint);
    options.config.query_timeout_ms = 2_000;
}

/// The spans of the only core.
fn spans(testbed: &mut Testbed) -> Vec<QuerySpan> {
    let mut found = Vec::new();
    loop {
        let (sender, mut answers) = mpsc::channel(1);
        testbed.scene.world.post(testbed.scene.cores[0], CoreMail::Spans(sender));
        testbed.run_for(10 * MILLISECOND);
        let answer = answers.try_recv().expect("an answer");
        found.extend(answer.spans);
        if !answer.has_more {
            return found;
        }
    }
}

fn trace_id(number: u64) -> [u8; 16] {
    (u128::from(number) << 64 | 0xABCD).to_be_bytes()
}

/// The same request with a `traceparent` in its payload.
fn with_trace(request: Vec<u8>, number: u64, flags: u8) -> Vec<u8> {
    let trace = u128::from_be_bytes(trace_id(number));
    with_payload(request, &format!("00-{trace:032x}-{number:016x}-{flags:02x}"))
}

fn with_payload(request: Vec<u8>, traceparent: &str) -> Vec<u8> {
    let (head, body) = request.split_at(HEADER_BYTES);
    let mut envelope = head.to_vec();
    put::bytes_map(&mut envelope, [("traceparent", Some(traceparent.as_bytes()))]);
    envelope.extend_from_slice(body);
    let length = (envelope.len() - HEADER_BYTES) as u32;
    bytes::with_header(envelope, |header| {
        header.flags |= flag::CUSTOM_PAYLOAD;
        header.length = length;
    })
}

#[test]
fn a_sampled_request_has_a_span_with_its_times_and_its_node() {
    let mut testbed = Testbed::bare(traced);
    let client = testbed.client_with_open_links();
    testbed.answer_queries_with(|| Action::Delay(300 * MILLISECOND));
    let text = "SELECT v FROM bench.kv WHERE k = 'secret'";
    testbed.send(client, &with_trace(bytes::query(4, 7, text), 5, 1));
    testbed.answered(client, 1);
    let found = spans(&mut testbed);
    let [span] = &found[..] else { panic!("{found:?}") };
    assert_eq!((span.parent.trace_id, span.parent.parent_id[7]), (trace_id(5), 5));
    assert_eq!((span.outcome, span.error, span.kind), (Outcome::Ok, None, QueryKind::Query));
    assert!(span.node_ns >= 300 * MILLISECOND && span.wait_ns < SECOND, "{span:?}");
    assert!(span.node.is_some_and(|node| node.port() == 9042) && span.client.is_some());
    // The first query of a statement has its digest too.
    let text = span.digest.as_ref().map(|digest| &*digest.text);
    assert_eq!(text, Some("SELECT v FROM bench.kv WHERE k = ?"));
    assert_eq!(span.table.as_deref(), Some("bench.kv"));
    assert!(spans(&mut testbed).is_empty(), "each span is handed over once");
}

#[test]
fn an_execution_and_a_preparation_have_spans_too() {
    let mut testbed = Testbed::bare(traced);
    let client = testbed.started_offender(4);
    let statement = "INSERT INTO bench.kv (k, v) VALUES (?, ?)";
    testbed.send(client, &with_trace(bytes::prepare(4, 1, statement), 1, 1));
    testbed.answered(client, 1);
    let answers = testbed.take_answers(client);
    // The node gives the payload back.
    let (flags, body) = (answers[0].header.flags, &answers[0].body);
    let (_, message) = split_response_prefix(flags, body).expect("a prefix");
    let Ok(ResultMessage::Prepared(prepared)) = ResultMessage::decode(4, message) else {
        panic!("{answers:?}")
    };
    let id = prepared.id.to_vec();
    testbed.send(client, &with_trace(bytes::execute(4, 1, &id, &[b"secret", b"value"]), 2, 1));
    testbed.answered(client, 1);
    let found = spans(&mut testbed);
    let [prepare, execute] = &found[..] else { panic!("{found:?}") };
    assert_eq!((prepare.kind, execute.kind), (QueryKind::Prepare, QueryKind::Execute));
    assert_eq!((prepare.parent.parent_id[7], execute.parent.parent_id[7]), (1, 2));
    assert_eq!(execute.digest.as_ref().map(|digest| &*digest.text), Some(statement));
    assert!(prepare.node.is_some() && execute.node.is_some());
}

#[test]
fn requests_without_a_sampled_trace_have_no_span() {
    let mut testbed = Testbed::bare(traced);
    let client = testbed.client_with_open_links();
    let query = || bytes::query(4, 1, "SELECT v FROM bench.kv WHERE k = 'x'");
    for request in [query(), with_trace(query(), 1, 0), with_payload(query(), "00-zz-1-01")] {
        testbed.send(client, &request);
        testbed.answered(client, 1);
        testbed.take_answers(client);
    }
    assert!(spans(&mut testbed).is_empty());
    let requests = &testbed.scene.metrics[0].traces.requests;
    let counts = TraceState::ALL.iter().map(|state| requests.of(*state).get());
    assert_eq!(counts.collect::<Vec<_>>(), [0, 1, 1], "sampled, unsampled, invalid");
}

#[test]
fn off_is_off_and_a_reload_switches_it_on() {
    let mut testbed = Testbed::bare(|_| {});
    let client = testbed.client_with_open_links();
    let query = || bytes::query(4, 1, "SELECT v FROM bench.kv WHERE k = 'x'");
    testbed.send(client, &with_trace(query(), 1, 1));
    testbed.answered(client, 1);
    assert!(spans(&mut testbed).is_empty());
    let otlp_endpoint = Some(Endpoint::parse("http://127.0.0.1:1").expect("a URL"));
    let config = Config { otlp_endpoint, ..testbed.scene.options.config.clone() };
    testbed.scene.reload_as(config);
    testbed.send(client, &with_trace(query(), 2, 1));
    testbed.answered(client, 2);
    assert_eq!(spans(&mut testbed).len(), 1);
}

#[test]
fn each_end_of_a_request_ends_its_span() {
    for (action, outcome, error) in [
        (Action::Error(READ_TIMEOUT), Outcome::Error, Some(READ_TIMEOUT)),
        // Asked of another node first.
        (Action::Error(OVERLOADED), Outcome::Error, Some(OVERLOADED)),
        (Action::Silence, Outcome::TimedOut, None),
        (Action::Close, Outcome::LinkLost, None),
    ] {
        let mut testbed = Testbed::bare(traced);
        let client = testbed.client_with_open_links();
        let made = action.clone();
        testbed.hook_all(|| {
            let action = made.clone();
            Box::new(move |request| match request.opcode {
                opcode::QUERY => action.clone(),
                _ => Action::Answer,
            })
        });
        let query = bytes::query(4, 1, "SELECT v FROM bench.kv WHERE k = 'x'");
        testbed.send(client, &with_trace(query, 3, 1));
        testbed.answered(client, 1);
        let found = spans(&mut testbed);
        let [span] = &found[..] else { panic!("{action:?}: {found:?}") };
        assert_eq!((span.outcome, span.parent.trace_id), (outcome, trace_id(3)), "{action:?}");
        if error.is_some() {
            assert_eq!(span.error, error, "{action:?}");
        }
    }
}

#[test]
fn a_query_that_no_link_took_in_time_has_a_span_without_a_node() {
    let mut testbed = Testbed::bare(traced);
    testbed.answer_queries_with(|| Action::Silence);
    let client = testbed.started_offender(4);
    let query = bytes::query(4, 1, "SELECT v FROM bench.kv WHERE k = 'x'");
    testbed.send(client, &with_trace(query, 3, 1));
    testbed.answered(client, 1);
    let found = spans(&mut testbed);
    let [span] = &found[..] else { panic!("{found:?}") };
    assert_eq!((span.outcome, span.node, span.node_ns), (Outcome::Overloaded, None, 0));
}

/// Nobody fetches the spans, as with a control thread that hangs; the client gives each request
/// another trace. Each request is answered, and each trace is a span or counted as lost.
#[test]
fn a_flood_of_traces_costs_a_bounded_number_of_spans() {
    let mut testbed = Testbed::bare(traced);
    let client = testbed.client_with_open_links();
    let (rounds, each) = (20, 500);
    for round in 0..rounds {
        for stream in 0..each {
            let query = bytes::insert(4, stream, "k", 9);
            let number = 1 + round * 1_000 + stream as u64;
            testbed.send(client, &with_trace(query, number, 1));
        }
        testbed.answered(client, each as usize);
        testbed.take_answers(client);
        testbed.run_for(SECOND);
    }
    let kept = spans(&mut testbed).len();
    assert_eq!(kept, limits::SPANS_KEPT_MAX);
    let traces = &testbed.scene.metrics[0].traces;
    let sent = rounds * each as u64;
    assert_eq!(traces.requests.of(TraceState::Sampled).get(), sent);
    assert_eq!(traces.dropped.total(), sent - kept as u64);
    let lost = traces.dropped.of(Loss::CoreFull).get() + traces.dropped.of(Loss::RateLimit).get();
    assert_eq!(lost, traces.dropped.total());
}

/// A client that leaves takes its trace with it.
#[test]
fn the_trace_of_a_client_that_leaves_is_lost_and_counted() {
    let mut testbed = Testbed::bare(traced);
    let client = testbed.client_with_open_links();
    testbed.answer_queries_with(|| Action::Silence);
    let query = bytes::query(4, 1, "SELECT v FROM bench.kv WHERE k = 'x'");
    testbed.send(client, &with_trace(query, 3, 1));
    testbed.run_for(100 * MILLISECOND);
    testbed.reset(client);
    testbed.run_for(10 * SECOND);
    assert!(spans(&mut testbed).is_empty());
    let traces = &testbed.scene.metrics[0].traces;
    assert_eq!(traces.dropped.of(Loss::ClientGone).get(), 1);
}
