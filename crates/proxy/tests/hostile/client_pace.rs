//! Clients that dawdle, go deaf, vanish, or want too much at once.

use std::sync::Arc;

use allocation_counter::measure;
use shunt_bench::stub::Action;
use shunt_proxy::metrics::{CoreMetrics, StallReason};
use shunt_reactor::sim::{MILLISECOND, SECOND};
use shunt_testing::bytes;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::error_code::SERVER_ERROR;

use super::testbed::Testbed;

const TEXT: &str = "SELECT v FROM bench.kv WHERE k = 0x00";

#[test]
fn a_handshake_that_does_not_end() {
    for begun in [&[][..], &bytes::startup(4, None)[..5], &bytes::options(4, 0)] {
        let mut testbed = Testbed::new();
        let offender = testbed.offender();
        testbed.refused(offender, begun, SERVER_ERROR, "handshake was not completed in time");
        let offences: u64 =
            testbed.scene.metrics.iter().map(|metrics| metrics.client_protocol_errors.get()).sum();
        assert_eq!(offences, 0, "to be late breaks no rule of the protocol");
    }
}

#[test]
fn a_request_that_comes_a_byte_at_a_time() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(4);
    testbed.start_work();
    for byte in bytes::query(4, 1, TEXT) {
        testbed.send(offender, &[byte]);
        testbed.run_for(2 * SECOND);
    }
    testbed.closed(offender);
    testbed.check_recovered();
}

#[test]
fn a_large_request_that_comes_a_segment_at_a_time() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(5);
    testbed.start_work();
    let header = Header { length: 10_000_000, ..Header::request(5, 1, opcode::QUERY) };
    testbed.send(offender, &bytes::segment(&header.to_bytes(), false));
    for _ in 0..12 {
        testbed.run_for(10 * SECOND);
        if !testbed.scene.world.host(offender).is_closed() {
            testbed.send(offender, &bytes::segment(&[0], false));
        }
    }
    assert!(
        testbed.scene.world.host(offender).is_closed(),
        "one byte every ten seconds is no request"
    );
    testbed.check_recovered();
}

/// The request is in pieces through no fault of the client: the proxy did not read.
#[test]
fn a_client_held_back_is_not_taken_for_a_slow_one() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(4);
    testbed.send(offender, &bytes::insert(4, 0, "long", 100_000));
    testbed.answered(offender, 1);
    testbed.stop_reading(offender);
    let select = format!(
        "SELECT v FROM bench.kv WHERE k = 0x{}",
        "long".bytes().map(|b| format!("{b:02x}")).collect::<String>()
    );
    let selects: Vec<u8> = (1..=60).flat_map(|stream| bytes::query(4, stream, &select)).collect();
    let last = bytes::insert(4, 99, "late", 10_000);
    testbed.send(offender, &[&selects[..], &last[..5_000]].concat());
    // The client takes its replies so slowly that the proxy does not read from it for more than a
    // minute.
    for _ in 0..10 {
        testbed.run_for(20 * SECOND);
        testbed.resume_reading(offender);
        testbed.run_for(MILLISECOND / 4);
        testbed.stop_reading(offender);
    }
    testbed.resume_reading(offender);
    testbed.run_for(3 * SECOND);
    testbed.send(offender, &last[5_000..]);
    testbed.answered(offender, 62);
    testbed.reset(offender);
    testbed.forget_key("long");
    testbed.forget_key("late");
    testbed.check_recovered();
}

/// The same holds while an agent has its connection, with a large answer that it takes slowly.
#[test]
fn a_client_whose_connection_was_away_is_not_taken_for_a_slow_one() {
    let mut testbed = Testbed::bare(|options| {
        options.hands_over = true;
        options.config.handover_threshold = 64 << 10;
    });
    testbed.run_for(SECOND);
    let offender = testbed.started_offender(4);
    testbed.send(offender, &bytes::insert(4, 0, "long", 15_000_000));
    testbed.answered(offender, 1);
    testbed.stop_reading(offender);
    let select = format!(
        "SELECT v FROM bench.kv WHERE k = 0x{}",
        "long".bytes().map(|b| format!("{b:02x}")).collect::<String>()
    );
    let last = bytes::insert(4, 99, "late", 10_000);
    testbed.send(offender, &[&bytes::query(4, 1, &select)[..], &last[..5_000]].concat());
    let mut rests = 0;
    while testbed.scene.world.host(offender).answers.len() < 2 {
        testbed.run_for(20 * SECOND);
        testbed.resume_reading(offender);
        testbed.run_for(MILLISECOND / 4);
        testbed.stop_reading(offender);
        rests += 1;
        assert!(rests < 50, "the answer does not come to its end");
    }
    assert!(rests > 4, "its connection was away for too short a time to tell anything");
    testbed.resume_reading(offender);
    testbed.run_for(20 * SECOND);
    assert!(!testbed.scene.world.host(offender).is_closed(), "it had no time to send the rest");
    testbed.send(offender, &last[5_000..]);
    testbed.answered(offender, 3);
    let sent = &testbed.scene.metrics[0].handover.answers;
    assert_eq!(sent.of(shunt_proxy::metrics::HandedOver::Sent).get(), 1);
}

#[test]
fn a_client_that_reads_no_replies() {
    for version in [4, 5] {
        let mut testbed = Testbed::with(|options| options.config.client_backlog_bytes = 100_000);
        let offender = testbed.started_offender(version);
        testbed.start_work();
        let counted = measure(|| {
            testbed.stop_reading(offender);
            let query = bytes::query(version, 1, "SELECT * FROM system_schema.columns");
            let query = bytes::framed(version, query);
            for _ in 0..2_000 {
                testbed.send(offender, &query);
            }
            testbed.run_for(60 * SECOND);
        });
        assert!(counted.bytes_max < 30 << 20, "{counted:?}");
        testbed.check_bystanders();
        // No proxy keeps replies for ever.
        testbed.closed(offender);
        testbed.check_recovered();
    }
}

/// Each client stays within its own bounds; together they would fill the memory of the process, and
/// end all clients.
#[test]
fn many_clients_that_read_no_replies() {
    let mut testbed = Testbed::with(|options| {
        options.config.clients_bytes_max = 2 << 20;
        (options.config.frame_bytes_max, options.config.client_backlog_bytes) = (1 << 20, 1 << 20);
    });
    let offenders: Vec<_> = (0..20).map(|_| testbed.started_offender(4)).collect();
    testbed.start_work();
    let counted = measure(|| {
        for &offender in &offenders {
            testbed.stop_reading(offender);
            let query = bytes::query(4, 1, "SELECT * FROM system_schema.columns");
            (0..3_000).for_each(|_| testbed.send(offender, &query));
        }
        // The buffers of the closed clients go, too.
        testbed.run_for(50 * SECOND);
    });
    // Without the bound it would be twice as much; the bytes of the simulated network count too.
    assert!(counted.bytes_current < 48 << 20, "{counted:?}");
    let gone = offenders
        .iter()
        .filter(|offender| testbed.scene.world.host(**offender).is_closed())
        .count();
    assert!((1..20).contains(&gone), "{gone} were closed");
    testbed.check_bystanders();
}

#[test]
fn a_client_that_vanishes_with_queries_in_flight() {
    for version in [4, 5] {
        let mut testbed = Testbed::new();
        testbed.hook_all(|| Box::new(|_| Action::Delay(50 * MILLISECOND)));
        testbed.start_work();
        for _ in 0..20 {
            let offender = testbed.started_offender(version);
            let queries: Vec<u8> =
                (0..100).flat_map(|stream| bytes::query(version, stream, TEXT)).collect();
            testbed.send(offender, &bytes::framed(version, queries));
            testbed.run_for(10 * MILLISECOND);
            testbed.reset(offender);
        }
        testbed.check_recovered();
    }
}

#[test]
fn all_stream_ids_at_once() {
    for version in [4, 5] {
        let mut testbed = Testbed::with(|options| options.config.in_flight_max = 16_384);
        testbed.hook_all(|| Box::new(|_| Action::Delay(50 * MILLISECOND)));
        let offender = testbed.started_offender(version);
        testbed.start_work();
        for first in (0..=i16::MAX).step_by(1000) {
            let last = first.saturating_add(999);
            let queries: Vec<u8> =
                (first..=last).flat_map(|stream| bytes::query(version, stream, TEXT)).collect();
            testbed.send(offender, &bytes::framed(version, queries));
        }
        testbed.answered(offender, 32_768);
        let mut seen = vec![0_u8; 32_768];
        for answer in testbed.take_answers(offender) {
            assert_eq!(answer.header.opcode, opcode::RESULT);
            seen[answer.header.stream as usize] += 1;
        }
        assert!(seen.iter().all(|count| *count == 1));
        testbed.reset(offender);
        testbed.check_recovered();
    }
}

#[test]
fn one_stream_id_for_everything() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(4);
    testbed.start_work();
    testbed.send(offender, &bytes::query(4, 7, TEXT).repeat(500));
    testbed.answered(offender, 500);
    testbed.reset(offender);
    testbed.check_recovered();
}

/// The client with the fewest queries in flight must not wait longest: room on a full link goes
/// round.
#[test]
fn a_client_that_fills_every_link() {
    for version in [4, 5] {
        let mut testbed = Testbed::with(|options| options.config.in_flight_max = 4);
        testbed.hook_all(|| Box::new(|_| Action::Delay(20 * MILLISECOND)));
        let offender = testbed.started_offender(version);
        testbed.scene.world.with(offender, |offender, _| offender.discards_answers = true);
        for round in 0..40 {
            let queries: Vec<u8> =
                (0..500).flat_map(|stream| bytes::query(version, stream, TEXT)).collect();
            testbed.send(offender, &bytes::framed(version, queries));
            if round == 5 {
                testbed.start_work();
            }
            testbed.run_for(100 * MILLISECOND);
        }
        testbed.check_bystanders();
        let slowest_ms = testbed
            .scene
            .clients
            .iter()
            .map(|client| testbed.scene.world.host(*client).tally.slowest_ns)
            .max();
        assert!(slowest_ms < Some(2 * SECOND), "{slowest_ms:?}");
        testbed.reset(offender);
        testbed.check_recovered();
    }
}

/// Clients in line for a full link are read in the order in which they came, and one answer makes
/// the core read as many as there is room for, not all.
#[test]
fn the_line_of_a_full_link_goes_round() {
    const CLIENTS: usize = 40;
    let mut testbed = Testbed::bare(|options| {
        (options.nodes, options.aggregate) = (1, vec![false]);
        options.config.in_flight_max = 4;
    });
    testbed.hook_all(|| Box::new(|_| Action::Delay(5 * MILLISECOND)));
    let clients: Vec<_> = (0..CLIENTS).map(|_| testbed.started_offender(4)).collect();
    let stalls = |testbed: &Testbed| -> u64 {
        let of = |metrics: &Arc<CoreMetrics>| metrics.client_stalls.of(StallReason::LinkFull).get();
        testbed.scene.metrics.iter().map(of).sum()
    };
    let before = stalls(&testbed);
    for client in &clients {
        let queries: Vec<u8> = (0..50).flat_map(|stream| bytes::query(4, stream, TEXT)).collect();
        testbed.send(*client, &queries);
    }
    let answers = |testbed: &Testbed| -> Vec<usize> {
        let world = &testbed.scene.world;
        clients.iter().map(|client| world.host(*client).answers.len()).collect()
    };
    while answers(&testbed).iter().sum::<usize>() < 10 * CLIENTS {
        testbed.run_for(MILLISECOND);
    }
    let counts = answers(&testbed);
    assert!(
        counts.iter().all(|count| *count >= 4),
        "some wait while others are served: {counts:?}"
    );
    let (answered, stalled) = (counts.iter().sum::<usize>(), stalls(&testbed) - before);
    let bound = 2 * (answered + CLIENTS) as u64;
    assert!(stalled <= bound, "{stalled} requests were held for {answered} answers");
}

/// A client that joins the line of a full link in the turn in which the link gets room is read as
/// well.
#[test]
fn a_client_that_joins_the_line_as_it_ends_does_not_wait() {
    for seed in 1..30 {
        let mut testbed = Testbed::bare(|options| {
            options.seed = seed;
            (options.nodes, options.aggregate) = (1, vec![false]);
            options.config.in_flight_max = 2;
        });
        testbed.hook_all(|| Box::new(|_| Action::Delay(MILLISECOND)));
        let clients: Vec<_> = (0..8).map(|_| testbed.started_offender(4)).collect();
        for round in 0..200 {
            let client = clients[round % clients.len()];
            testbed.send(client, &bytes::query(4, round as i16, TEXT));
            testbed.run_for(MILLISECOND / 3);
        }
        testbed.run_for(SECOND / 2);
        let answers = clients.iter().map(|client| testbed.scene.world.host(*client).answers.len());
        assert_eq!(answers.sum::<usize>(), 200, "seed {seed}: a client waits for an idle link");
    }
}

/// One client that has not logged in holds little. Many of them hold much, at no cost to a client
/// that has, even if that one holds the most.
#[test]
fn many_clients_that_do_not_log_in() {
    let mut testbed = Testbed::bare(|options| {
        options.config.clients_bytes_max = 4 << 20;
        (options.config.frame_bytes_max, options.config.client_backlog_bytes) = (1 << 20, 1 << 20);
    });
    let reader = testbed.started_offender(4);
    testbed.send(reader, &bytes::insert(4, 0, "long", 500_000));
    testbed.answered(reader, 1);
    testbed.stop_reading(reader);
    let key: String = "long".bytes().map(|byte| format!("{byte:02x}")).collect();
    let select = bytes::query(4, 1, &format!("SELECT v FROM bench.kv WHERE k = 0x{key}"));
    (0..4).for_each(|_| testbed.send(reader, &select));
    testbed.run_for(SECOND);
    let startup = Header { length: 64 << 10, ..Header::request(4, 1, opcode::STARTUP) };
    let part = [&startup.to_bytes()[..], &[0; 60_000]].concat();
    let strangers: Vec<_> = (0..80).map(|_| testbed.offender()).collect();
    strangers.iter().for_each(|stranger| testbed.send(*stranger, &part));
    testbed.run_for(SECOND);
    assert!(!testbed.scene.world.host(reader).is_closed(), "it is closed for what others sent");
    let gone = strangers
        .iter()
        .filter(|stranger| testbed.scene.world.host(**stranger).is_closed())
        .count();
    assert!((1..80).contains(&gone), "{gone} were closed");
}
