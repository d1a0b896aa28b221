//! Requests that take long to read: a loop reads some of them in a turn, others come first, and all
//! are answered in order.

use std::ops::Range;
use std::sync::Arc;

use shunt_proxy::limits::HEAVY_TURN_BYTES_MAX;
use shunt_proxy::metrics::{QueryKind, StallReason};
use shunt_reactor::LoopOptions;
use shunt_reactor::sim::{HostId, SECOND};
use shunt_testing::{bytes, simulated};
use shunt_wire::cql::compression::{Algorithm, Compressor};
use shunt_wire::cql::envelope::{Header, flag, opcode};
use shunt_wire::cql::message::error_code::{INVALID, PROTOCOL_ERROR};

use super::testbed::{ANN, Testbed};

/// A read with this many blanks in it.
fn long_read(blanks: usize) -> String {
    format!("SELECT v FROM bench.kv {}WHERE k = 0x00", " ".repeat(blanks))
}

fn stalls(testbed: &Testbed) -> u64 {
    testbed.scene.metrics[0].client_stalls.of(StallReason::Heavy).get()
}

/// Checks that every one of this many requests was answered, in order.
fn is_answered(testbed: &mut Testbed, client: HostId<simulated::Client>, requests: i16) {
    testbed.answered(client, requests as usize);
    let answers = testbed.take_answers(client);
    let streams: Vec<i16> = answers.iter().map(|answer| answer.header.stream).collect();
    assert!(answers.iter().all(|answer| answer.header.opcode == opcode::RESULT));
    let mut sorted = streams.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..requests).collect::<Vec<_>>());
}

#[test]
fn long_texts_of_many_clients_are_read_in_line_and_all_are_answered() {
    let mut testbed = Testbed::new();
    let clients: Vec<_> = (0..20).map(|_| testbed.started_offender(4)).collect();
    testbed.start_work();
    for client in &clients {
        (0..10).for_each(|stream| {
            testbed.send(*client, &bytes::query(4, stream, &long_read(300 << 10)))
        });
    }
    for client in &clients {
        is_answered(&mut testbed, *client, 10);
    }
    assert!(stalls(&testbed) > 20, "{}", stalls(&testbed));
    assert_eq!(testbed.scene.metrics[0].clients_stalled.of(StallReason::Heavy).get(), 0);
    testbed.check_recovered();
}

/// A request that waits in line has its turn, also if segments wait behind it.
#[test]
fn a_large_request_with_another_behind_it_has_its_turn() {
    let mut testbed = Testbed::new();
    let client = segmented_clients(&mut testbed, 1)[0];
    let texts = (0..2).map(|stream| bytes::query(5, stream, &long_read(600 << 10)));
    let segments: Vec<u8> = texts.flat_map(|text| segments_of(&text)).collect();
    testbed.send(client, &segments);
    is_answered(&mut testbed, client, 2);
    testbed.check_recovered();
}

/// Requests that the proxy answers itself are small and cost more than their bytes: a turn takes a
/// number of them.
#[test]
fn many_small_requests_are_answered_in_turns() {
    const REQUESTS: usize = 20_000;
    let mut testbed = Testbed::new();
    let client = testbed.started_offender(4);
    testbed.start_work();
    let stream = |number: usize| (number % 30_000) as i16;
    let flood: Vec<u8> =
        (0..REQUESTS).flat_map(|number| bytes::options(4, stream(number))).collect();
    testbed.send(client, &flood);
    // A turn follows the other, and waits for no timer of the core.
    testbed.run_for(SECOND / 10);
    assert_eq!(testbed.scene.world.host(client).answers.len(), REQUESTS);
    let answers = testbed.take_answers(client);
    let streams = answers.iter().map(|answer| answer.header.stream);
    assert!(streams.eq((0..REQUESTS).map(stream)), "in order");
    assert!(stalls(&testbed) > 5, "{}", stalls(&testbed));
    assert_eq!(testbed.scene.metrics[0].clients_stalled.of(StallReason::Heavy).get(), 0);
    testbed.check_recovered();
}

#[test]
fn a_client_that_asks_for_options_for_ever_is_refused() {
    let mut testbed = Testbed::new();
    let offender = testbed.offender();
    let options: Vec<u8> = (0..8).flat_map(|stream| bytes::options(4, stream)).collect();
    testbed.send(offender, &options);
    testbed.answered(offender, 8);
    testbed.take_answers(offender);
    testbed.refused(offender, &bytes::options(4, 9), PROTOCOL_ERROR, "before STARTUP");
    testbed.check_recovered();
}

/// A claim beyond what a client may send before its login is refused at once: it takes no room.
#[test]
fn a_large_claim_before_the_login_is_refused() {
    let mut testbed = Testbed::with(|options| {
        options.credentials = vec![(ANN.0.to_owned(), ANN.1.to_owned())];
    });
    let offender = testbed.offender();
    testbed.send(offender, &bytes::startup(4, Some("lz4")));
    testbed.scene.world.with(offender, |client, _| client.expect_compression(Some(Algorithm::Lz4)));
    testbed.answered(offender, 1);
    testbed.take_answers(offender);
    let claim = [&16_000_000_u32.to_be_bytes()[..], &[0; 8]].concat();
    let header = Header {
        flags: flag::COMPRESSION,
        length: claim.len() as u32,
        ..Header::request(4, 1, opcode::AUTH_RESPONSE)
    };
    let request = [&header.to_bytes()[..], &claim].concat();
    testbed.refused(offender, &request, INVALID, "before the login");
    assert_eq!(stalls(&testbed), 0);
    testbed.check_recovered();
}

#[test]
fn a_small_body_that_says_it_is_large_counts_as_what_it_says() {
    let mut testbed = Testbed::new();
    let client = compressing_client(&mut testbed);
    let plain = bytes::query(4, 0, &long_read(15 << 20))[9..].to_vec();
    let mut body = Vec::new();
    assert!(Compressor::new().compress(Algorithm::Lz4, &plain, &mut body) && body.len() < 70_000);
    testbed.start_work();
    let pipeline: Vec<u8> = (0..5)
        .flat_map(|stream| bytes::said_compressed(bytes::request(4, stream, opcode::QUERY, &body)))
        .collect();
    testbed.send(client, &pipeline);
    is_answered(&mut testbed, client, 5);
    // Each turn reads one, and one more where a turn ends.
    assert!(stalls(&testbed) >= 3, "{}", stalls(&testbed));
    testbed.check_recovered();
}

/// Connects a client that compresses its bodies.
fn compressing_client(testbed: &mut Testbed) -> HostId<simulated::Client> {
    let client = testbed.offender();
    testbed.send(client, &bytes::startup(4, Some("lz4")));
    testbed.scene.world.with(client, |client, _| client.expect_compression(Some(Algorithm::Lz4)));
    testbed.answered(client, 1);
    testbed.take_answers(client);
    testbed.run_for(SECOND);
    client
}

/// Makes a compressed query on a table of which the proxy answers itself.
fn refused_query(stream: i16, blanks: usize) -> Vec<u8> {
    let text = format!("SELECT v FROM shunt_admin.kv {}WHERE k = 0", " ".repeat(blanks));
    let plain = bytes::query(4, stream, &text)[9..].to_vec();
    let mut body = Vec::new();
    assert!(Compressor::new().compress(Algorithm::Lz4, &plain, &mut body));
    bytes::said_compressed(bytes::request(4, stream, opcode::QUERY, &body))
}

/// A read has hundreds of bodies of a few hundred bytes that hold 60 KiB each, and nothing but the
/// line holds their client: the proxy refuses them by short answers.
#[test]
fn small_bodies_that_hold_many_times_their_bytes_count_as_what_they_hold() {
    const REQUESTS: i16 = 400;
    let mut testbed = Testbed::new();
    let client = compressing_client(&mut testbed);
    let metrics = Arc::clone(&testbed.scene.metrics[0]);
    let first = metrics.queries.of(QueryKind::Query).get();
    let queries = || metrics.queries.of(QueryKind::Query).get() - first;
    let flood = (0..REQUESTS).flat_map(|stream| refused_query(stream, SEGMENT_BLANKS));
    let flood: Vec<u8> = flood.collect();
    assert!(flood.len() < 2 * LoopOptions::default().receive_buffer_bytes);
    let core = testbed.scene.cores[0];
    testbed.scene.world.freeze(core);
    testbed.send(client, &flood);
    testbed.run_for(SECOND / 10);
    testbed.scene.world.thaw(core);
    let (mut before, mut most) = (queries(), 0);
    let are_read = testbed.scene.world.run_until(30 * SECOND, |_| {
        let now = queries();
        most = most.max(now - before);
        before = now;
        now == REQUESTS as u64
    });
    assert!(are_read, "{} were read", queries());
    let most_bytes = most as usize * SEGMENT_BLANKS;
    assert!(most_bytes <= 2 * HEAVY_TURN_BYTES_MAX, "a turn has read {most_bytes} bytes");
    testbed.answered(client, REQUESTS as usize);
    let streams = testbed.take_answers(client).into_iter().map(|answer| answer.header.stream);
    assert!(streams.eq(0..REQUESTS), "in order");
    assert_eq!(metrics.clients_stalled.of(StallReason::Heavy).get(), 0);
    testbed.check_recovered();
}

/// Compression is no way around the number of requests that the proxy answers itself in a turn.
#[test]
fn compressed_requests_that_the_proxy_answers_itself_count_as_others_do() {
    const REQUESTS: i16 = 10_000;
    let mut testbed = Testbed::new();
    let client = compressing_client(&mut testbed);
    let flood: Vec<u8> = (0..REQUESTS).flat_map(|stream| refused_query(stream, 200)).collect();
    testbed.send(client, &flood);
    testbed.answered(client, REQUESTS as usize);
    assert!(stalls(&testbed) > 5, "{}", stalls(&testbed));
    assert_eq!(testbed.scene.metrics[0].clients_stalled.of(StallReason::Heavy).get(), 0);
    testbed.check_recovered();
}

/// Bytes of blanks in a text of [`segments`]; none of them is heavy by itself.
const SEGMENT_BLANKS: usize = 60 << 10;

/// Connects clients that compress their segments.
fn segmented_clients(testbed: &mut Testbed, count: usize) -> Vec<HostId<simulated::Client>> {
    let clients = (0..count).map(|_| {
        let client = testbed.offender();
        testbed
            .scene
            .world
            .with(client, |client, _| client.expect_compression(Some(Algorithm::Lz4)));
        testbed.send(client, &bytes::startup(5, Some("lz4")));
        testbed.answered(client, 1);
        testbed.take_answers(client);
        client
    });
    let clients = clients.collect();
    testbed.run_for(SECOND);
    clients
}

/// Makes compressed segments of one request that is longer than a segment.
fn segments_of(request: &[u8]) -> Vec<u8> {
    let segment = |part: &[u8]| {
        let mut block = Vec::new();
        assert!(Compressor::new().compress(Algorithm::Lz4, part, &mut block));
        let payload = &block[4..];
        let lengths = payload.len() as u64 | (part.len() as u64) << 17;
        bytes::segment_with_lengths(&lengths.to_le_bytes()[..5], payload)
    };
    request.chunks(131_071).flat_map(segment).collect()
}

/// Makes one compressed segment for the text of each stream.
fn segments(streams: Range<i16>) -> Vec<u8> {
    let segment = |stream| {
        let plain = bytes::query(5, stream, &long_read(SEGMENT_BLANKS));
        let mut block = Vec::new();
        assert!(Compressor::new().compress(Algorithm::Lz4, &plain, &mut block));
        // In v4 a length precedes the block.
        bytes::segment_lz4(&block[4..], plain.len())
    };
    streams.flat_map(segment).collect()
}

/// A few bytes of a v5 segment stand for 128 KiB, and a read takes hundreds of such segments.
#[test]
fn compressed_segments_count_as_what_they_hold() {
    let mut testbed = Testbed::new();
    let clients = segmented_clients(&mut testbed, 8);
    testbed.start_work();
    for client in &clients {
        testbed.send(*client, &segments(0..100));
    }
    for client in &clients {
        is_answered(&mut testbed, *client, 100);
    }
    assert!(stalls(&testbed) > 0);
    assert_eq!(testbed.scene.metrics[0].clients_stalled.of(StallReason::Heavy).get(), 0);
    testbed.check_recovered();
}

/// More segments of a client in line arrive before its turn comes. The loop reads them too then, so
/// a place in line counts as much as a turn may read, and not as what had arrived.
#[test]
fn a_place_in_line_counts_as_much_as_may_have_arrived_when_its_turn_comes() {
    let mut testbed = Testbed::new();
    let clients = segmented_clients(&mut testbed, 20);
    let core = testbed.scene.cores[0];
    // Each send arrives as a whole before the next turn.
    let send_all = |testbed: &mut Testbed, streams: Range<i16>| {
        testbed.scene.world.freeze(core);
        for client in &clients {
            testbed.send(*client, &segments(streams.clone()));
        }
        testbed.run_for(SECOND / 10);
        testbed.scene.world.thaw(core);
    };
    let metrics = Arc::clone(&testbed.scene.metrics[0]);
    let first = metrics.queries.of(QueryKind::Query).get();
    let queries = || metrics.queries.of(QueryKind::Query).get() - first;
    let in_line = || metrics.clients_stalled.of(StallReason::Heavy).get();
    send_all(&mut testbed, 0..2);
    assert!(testbed.scene.world.run_until(SECOND, |_| in_line() > 0), "all were read at once");
    send_all(&mut testbed, 2..10);
    let (mut before, mut most) = (queries(), 0);
    let are_read = testbed.scene.world.run_until(30 * SECOND, |_| {
        let now = queries();
        most = most.max(now - before);
        before = now;
        now == 20 * 10
    });
    assert!(are_read, "{} were read", queries());
    let most_bytes = most as usize * SEGMENT_BLANKS;
    assert!(most_bytes <= 2 * HEAVY_TURN_BYTES_MAX, "a turn has read {most_bytes} bytes");
    for client in &clients {
        is_answered(&mut testbed, *client, 10);
    }
}

/// Small requests have no line: a turn takes one read of each connection, and so many requests. The
/// time of a turn follows from that, without a clock.
#[test]
fn a_turn_reads_one_buffer_of_a_client_and_others_come_next() {
    const REQUESTS: i16 = 2_000;
    let mut testbed = Testbed::new();
    let [client, other] = [0; 2].map(|_| testbed.started_offender(4));
    let metrics = Arc::clone(&testbed.scene.metrics[0]);
    let first = metrics.queries.of(QueryKind::Query).get();
    let queries = || metrics.queries.of(QueryKind::Query).get() - first;
    let requests: Vec<Vec<u8>> =
        (0..REQUESTS).map(|stream| bytes::query(4, stream, &long_read(1_000))).collect();
    let bytes_max = LoopOptions::default().receive_buffer_bytes;
    let most_in_turn = (bytes_max / requests[0].len() + 2) as u64;
    // Both arrive as a whole before the next turn.
    let core = testbed.scene.cores[0];
    testbed.scene.world.freeze(core);
    testbed.send(client, &requests.concat());
    testbed.send(other, &bytes::query(4, 0, &long_read(0)));
    testbed.run_for(SECOND / 10);
    testbed.scene.world.thaw(core);
    let (mut before, mut most, mut when_answered) = (0, 0, None);
    let are_read = testbed.scene.world.run_until(30 * SECOND, |world| {
        let now = queries();
        most = most.max(now - before);
        before = now;
        let is_answered = !world.host(other).answers.is_empty();
        when_answered = when_answered.or(is_answered.then_some(now));
        now == REQUESTS as u64 + 1
    });
    assert!(are_read, "{} were read", queries());
    assert!(most <= most_in_turn, "a turn has read {most} requests, {most_in_turn} at most");
    let early = when_answered.is_some_and(|count| count < REQUESTS as u64);
    assert!(early, "the other client was answered after {when_answered:?} requests");
    is_answered(&mut testbed, client, REQUESTS);
}

#[test]
fn values_that_are_only_passed_on_do_not_count() {
    let mut testbed = Testbed::new();
    let client = testbed.started_offender(4);
    (0..8).for_each(|stream| {
        testbed.send(client, &bytes::execute(4, stream, b"sixteen bytes id", &[&[0; 400 << 10]]))
    });
    testbed.answered(client, 8);
    assert_eq!(stalls(&testbed), 0);
}
