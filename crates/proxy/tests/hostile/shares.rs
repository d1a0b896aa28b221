//! One client that asks for all of a link leaves the others their parts, and has everything when it
//! is alone.

use shunt_bench::stub::hook::Request;
use shunt_bench::stub::{Action, StubMail};
use shunt_reactor::sim::{HostId, MILLISECOND, SECOND, World};
use shunt_testing::{bytes, simulated};
use shunt_wire::cql::envelope::opcode;

use super::testbed::Testbed;

/// Streams of the only link.
const STREAMS: u64 = 1_024;
/// The slow statement: the node takes two seconds for it.
const SLOW: &str = "SELECT v FROM bench.kv WHERE k = 0x01";
const FAST: &str = "SELECT v FROM bench.kv WHERE k = 0x02";
const FAST_NS: u64 = 20 * MILLISECOND;

/// One node that takes long for [`SLOW`], and these clients, whose pool has its link.
fn testbed<const N: usize>() -> (Testbed, [HostId<simulated::Client>; N]) {
    let mut testbed = Testbed::bare(|options| {
        options.nodes = 1;
        options.aggregate = vec![false];
        options.config.in_flight_max = STREAMS as u32;
        options.config.query_timeout_ms = 60_000;
        options.config.node_silence_ms = 30_000;
    });
    let clients = [(); N].map(|()| testbed.started_offender(4));
    testbed.run_for(SECOND);
    let slow = |request: &Request<'_>| {
        let is_slow = request.body.windows(SLOW.len()).any(|part| part == SLOW.as_bytes());
        let is_large = request.body.len() > 1_000;
        match request.opcode {
            opcode::QUERY if is_slow || is_large => Action::Delay(2 * SECOND),
            opcode::QUERY => Action::Delay(FAST_NS),
            _ => Action::Answer,
        }
    };
    testbed.scene.world.post(testbed.scene.nodes[0], StubMail::Hook(Some(Box::new(slow))));
    testbed.run_for(SECOND / 10);
    (testbed, clients)
}

fn send_many(testbed: &mut Testbed, client: HostId<simulated::Client>, number: i16) {
    testbed.scene.world.with(client, |client, _| client.discards_answers = true);
    let queries: Vec<u8> = (0..number).flat_map(|stream| bytes::query(4, stream, SLOW)).collect();
    testbed.send(client, &queries);
}

fn in_flight(testbed: &Testbed) -> u64 {
    testbed.scene.metrics[0].in_flight.get()
}

/// Asks one question; returns the nanoseconds until the answer.
fn ask(testbed: &mut Testbed, clients: &[HostId<simulated::Client>]) -> u64 {
    let start_ns = testbed.scene.world.now_ns();
    clients.iter().for_each(|client| testbed.send(*client, &bytes::query(4, 1, FAST)));
    clients.iter().for_each(|client| testbed.answered(*client, 1));
    for client in clients {
        let answers = testbed.take_answers(*client);
        assert!(answers.iter().all(|answer| answer.header.opcode == opcode::RESULT), "{answers:?}");
    }
    testbed.scene.world.now_ns() - start_ns
}

/// The node takes two seconds for each query of the hostile client, which always has thousands.
#[test]
fn a_hundred_clients_do_not_wait_for_the_queries_of_one() {
    let (mut testbed, [hostile]) = testbed::<1>();
    let good: Vec<_> = (0..100).map(|_| testbed.started_offender(4)).collect();
    testbed.run_for(SECOND);
    send_many(&mut testbed, hostile, 20_000);
    testbed.run_for(SECOND / 10);
    for round in 0..60 {
        let took_ns = ask(&mut testbed, &good);
        assert!(took_ns < 5 * FAST_NS, "round {round}: {} ms", took_ns / MILLISECOND);
        testbed.run_for(150 * MILLISECOND);
    }
    assert!(in_flight(&testbed) > STREAMS / 2, "the hostile client has what the others leave");
    assert!(testbed.scene.metrics[0].share_waits.get() > 0);
    // Nothing of it is lost either.
    let all = |world: &mut World| world.host(hostile).count == 20_001;
    assert!(testbed.scene.world.run_until(300 * SECOND, all));
    assert_eq!(testbed.scene.metrics[0].clients_paused.get(), 0);
}

#[test]
fn one_client_alone_has_all_streams() {
    let (mut testbed, [only, _idle]) = testbed::<2>();
    send_many(&mut testbed, only, 8_000);
    testbed.run_for(1_900 * MILLISECOND);
    assert_eq!(in_flight(&testbed), STREAMS);
    testbed.run_for(3 * SECOND);
    assert_eq!(in_flight(&testbed), STREAMS, "and keeps them");
}

#[test]
fn two_clients_that_want_everything_have_half_each() {
    let (mut testbed, [first, second]) = testbed::<2>();
    send_many(&mut testbed, first, 20_000);
    testbed.run_for(5 * SECOND);
    send_many(&mut testbed, second, 20_000);
    testbed.run_for(6 * SECOND);
    let before = [first, second].map(|client| testbed.scene.world.host(client).count);
    testbed.run_for(20 * SECOND);
    let after = [first, second].map(|client| testbed.scene.world.host(client).count);
    let [first, second] = [0, 1].map(|client| after[client] - before[client]);
    assert!(first.abs_diff(second) < (first + second) / 5, "{first} {second}");
    assert!(in_flight(&testbed) > STREAMS - STREAMS / 8, "no more than the reserve is unused");
}

#[test]
fn the_part_of_a_client_that_leaves_goes_to_the_others() {
    let (mut testbed, [hostile, other]) = testbed::<2>();
    send_many(&mut testbed, hostile, 8_000);
    testbed.run_for(SECOND);
    send_many(&mut testbed, other, 8_000);
    testbed.run_for(5 * SECOND);
    testbed.reset(hostile);
    testbed.run_for(5 * SECOND);
    let before = testbed.scene.world.host(other).count;
    testbed.run_for(2 * SECOND);
    let answered = testbed.scene.world.host(other).count - before;
    assert!(answered > STREAMS * 9 / 10, "{answered} of {STREAMS} streams are its own");
}

/// The requests of a client that has left are still in flight.
#[test]
fn a_client_that_leaves_and_comes_back_has_no_second_part() {
    let (mut testbed, [good, mut hostile]) = testbed::<2>();
    for round in 0..10 {
        send_many(&mut testbed, hostile, 20_000);
        testbed.run_for(SECOND / 20);
        let took_ns = ask(&mut testbed, &[good]);
        assert!(took_ns < 5 * FAST_NS, "round {round}: {} ms", took_ns / MILLISECOND);
        testbed.reset(hostile);
        hostile = testbed.started_offender(4);
        testbed.run_for(SECOND / 20);
    }
}

/// Requests of 350 KB fill the bytes of a link long before its streams.
#[test]
fn large_requests_of_one_client_leave_others_room() {
    let (mut testbed, [hostile, good]) = testbed::<2>();
    testbed.scene.world.with(hostile, |client, _| client.discards_answers = true);
    for stream in 0..120 {
        testbed.send(hostile, &bytes::insert(4, stream, "large", 350_000));
    }
    testbed.run_for(SECOND);
    for round in 0..20 {
        let took_ns = ask(&mut testbed, &[good]);
        assert!(took_ns < SECOND, "round {round}: {} ms", took_ns / MILLISECOND);
    }
    let all = |world: &mut World| world.host(hostile).count == 121;
    assert!(testbed.scene.world.run_until(300 * SECOND, all));
}

/// Five requests of 14 MB are more than a link keeps. Four are less than it keeps before its last
/// eighth.
#[test]
fn a_few_requests_of_the_largest_size_leave_others_room() {
    let (mut testbed, [hostile, good]) = testbed::<2>();
    testbed.scene.world.with(hostile, |client, _| client.discards_answers = true);
    for stream in 0..10 {
        testbed.send(hostile, &bytes::insert(4, stream, "large", 14_000_000));
    }
    testbed.run_for(SECOND / 2);
    for round in 0..60 {
        let took_ns = ask(&mut testbed, &[good]);
        assert!(took_ns < SECOND, "round {round}: {} ms", took_ns / MILLISECOND);
    }
    assert!(testbed.scene.metrics[0].share_waits.get() > 0);
    let all = |world: &mut World| world.host(hostile).count == 11;
    assert!(testbed.scene.world.run_until(300 * SECOND, all));
}
