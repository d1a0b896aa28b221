//! The table before many traces, false ones and a flood from one host.

use shunt_admin::Label as _;
use shunt_wire::cql::message::put;

use super::*;

const FLAGS: u8 = flag::CUSTOM_PAYLOAD;

fn on() -> Traces {
    let mut traces = Traces::default();
    traces.switch(true);
    traces
}

fn client(host: u8) -> ClientAddress {
    std::net::SocketAddr::from(([10, 0, 0, host], 5000)).into()
}

/// The body of a request with this value.
fn body(traceparent: &str) -> Vec<u8> {
    let mut body = Vec::new();
    put::bytes_map(&mut body, [("other", None), (TRACEPARENT, Some(traceparent.as_bytes()))]);
    body
}

fn traceparent(number: u64, flags: u8) -> String {
    format!("00-{:032x}-{:016x}-{flags:02x}", u128::from(number) + 1, number + 1)
}

fn span(parent: TraceParent) -> QuerySpan {
    QuerySpan {
        parent,
        ended_ns: 0,
        wait_ns: 0,
        node_ns: 0,
        node: None,
        outcome: Outcome::Ok,
        error: None,
        kind: QueryKind::Query,
        consistency: 1,
        retries: 0,
        digest: None,
        table: None,
        keyspace: None,
        role: None,
        client: None,
    }
}

#[test]
fn only_a_sampled_trace_takes_a_place() {
    let (mut traces, metrics) = (on(), TraceMetrics::default());
    let mut begin = |flags, body: &[u8]| traces.begin((flags, body), (0, client(1)), &metrics);
    let sampled = body(&traceparent(1, 1));
    assert_ne!(begin(FLAGS, &sampled), TraceKey::NONE);
    for (flags, bytes) in [
        (0, &sampled),
        (FLAGS, &body(&traceparent(1, 0))),
        (FLAGS, &body("00-no")),
        (FLAGS, &vec![0xFF; 9]),
    ] {
        assert_eq!(begin(flags, bytes), TraceKey::NONE);
    }
    for (state, expected) in
        [(TraceState::Sampled, 1), (TraceState::Unsampled, 1), (TraceState::Invalid, 1)]
    {
        assert_eq!(metrics.requests.of(state).get(), expected, "{}", state.text());
    }
}

#[test]
fn a_trace_behind_too_many_entries_is_not_looked_for() {
    let (mut traces, metrics) = (on(), TraceMetrics::default());
    let names: Vec<String> = (0..70).map(|number| number.to_string()).collect();
    let value = traceparent(1, 1);
    let mut bytes = Vec::new();
    let before = names.iter().map(|name| (name.as_str(), None));
    put::bytes_map(&mut bytes, before.chain([(TRACEPARENT, Some(value.as_bytes()))]));
    let key = traces.begin((FLAGS, &bytes), (0, client(1)), &metrics);
    assert_eq!((key, metrics.requests.total()), (TraceKey::NONE, 0));
}

#[test]
fn a_table_that_is_switched_off_has_no_memory() {
    let (mut traces, metrics) = (on(), TraceMetrics::default());
    let bytes = body(&traceparent(1, 1));
    let key = traces.begin((FLAGS, &bytes), (0, client(1)), &metrics);
    traces.switch(false);
    assert!(traces.take(key).is_none(), "a request in flight");
    assert_eq!((traces.in_flight.capacity(), traces.ended.capacity()), (0, 0));
    assert_eq!(traces.begin((FLAGS, &bytes), (0, client(1)), &metrics), TraceKey::NONE);
    traces.switch(true);
    let newer = traces.begin((FLAGS, &bytes), (0, client(1)), &metrics);
    assert_ne!(newer, key);
    assert!(traces.take(key).is_none() && traces.take(newer).is_some());
}

/// Requests that never end, such as those of clients that leave, give their places away.
#[test]
fn traces_without_an_end_do_not_add_up() {
    let (mut traces, metrics) = (on(), TraceMetrics::default());
    let capacity = traces.in_flight.capacity();
    let count = 3 * limits::TRACES_IN_FLIGHT_MAX as u64;
    let mut last = TraceKey::NONE;
    for number in 0..count {
        let bytes = body(&traceparent(number, 1));
        // A thousand in each second.
        let now_ns = number * limits::SECOND_NS / 1_000;
        last = traces.begin((FLAGS, &bytes), (now_ns, client(1)), &metrics);
        assert_ne!(last, TraceKey::NONE);
    }
    assert_eq!(traces.in_flight.capacity(), capacity);
    let lost = metrics.dropped.of(Loss::TooManyInFlight).get();
    assert_eq!(lost, count - limits::TRACES_IN_FLIGHT_MAX as u64);
    assert!(traces.take(last).is_some_and(|trace| trace.parent.trace_id[14..] == [0x30, 0]));
}

#[test]
fn one_host_leaves_room_for_others_in_each_second() {
    let (mut traces, metrics) = (on(), TraceMetrics::default());
    let mut begin = |host: u8, second: u64| {
        let bytes = body(&traceparent(host.into(), 1));
        let now_ns = second * limits::SECOND_NS;
        traces.begin((FLAGS, &bytes), (now_ns, client(host)), &metrics) != TraceKey::NONE
    };
    for second in 0..3 {
        let taken = (0..10_000).filter(|_| begin(1, second)).count();
        assert_eq!(taken, usize::from(limits::TRACES_OF_HOST_PER_SECOND));
        // Two hosts may count at one place, but not all of them.
        assert!((2..12).filter(|host| begin(*host, second)).count() > 5);
    }
    let all: usize = (0..=255).map(|host| (0..100).filter(|_| begin(host, 9)).count()).sum();
    assert_eq!(all, limits::TRACES_PER_SECOND as usize);
}

#[test]
fn spans_that_are_not_fetched_do_not_add_up() {
    let (mut traces, metrics) = (on(), TraceMetrics::default());
    let parent = TraceParent::parse(traceparent(1, 1).as_bytes()).expect("well formed");
    let capacity = traces.ended.capacity();
    for _ in 0..10_000 {
        traces.keep(span(parent), &metrics);
    }
    assert_eq!((traces.ended.len(), traces.ended.capacity()), (limits::SPANS_KEPT_MAX, capacity));
    let lost = metrics.dropped.of(Loss::CoreFull).get();
    assert_eq!(lost, 10_000 - limits::SPANS_KEPT_MAX as u64);
}

#[test]
fn spans_stay_until_an_exporter_takes_them() {
    let (mut traces, metrics) = (on(), TraceMetrics::default());
    let parent = TraceParent::parse(traceparent(1, 1).as_bytes()).expect("well formed");
    let count = limits::SPANS_FETCHED_MAX + 1;
    (0..count).for_each(|_| traces.keep(span(parent), &metrics));
    let (gone, _) = mpsc::channel(1);
    traces.report(0, 0, &gone);
    assert_eq!(traces.ended.len(), count);
    let (sender, mut answers) = mpsc::channel(2);
    traces.report(3, 7, &sender);
    traces.report(3, 7, &sender);
    let (first, second) = (answers.try_recv().expect("one"), answers.try_recv().expect("two"));
    assert_eq!(
        (first.core, first.now_ns, first.spans.len(), first.has_more),
        (3, 7, count - 1, true)
    );
    assert_eq!((second.spans.len(), second.has_more), (1, false));
}

#[test]
fn a_traced_request_allocates_nothing() {
    let (mut traces, metrics) = (on(), TraceMetrics::default());
    let bytes = body(&traceparent(1, 1));
    let counted = allocation_counter::measure(|| {
        for number in 0..10_000_u64 {
            let now_ns = number * limits::SECOND_NS / 1_000;
            let key = traces.begin((FLAGS, &bytes), (now_ns, client(1)), &metrics);
            traces.note_node(key, || Some(([10, 0, 0, 1], 9042).into()));
            let trace = traces.take(key).expect("known");
            traces.keep(QuerySpan { node: trace.node, ..span(trace.parent) }, &metrics);
        }
    });
    assert_eq!((counted.count_total, traces.ended.len()), (0, limits::SPANS_KEPT_MAX));
}
