//! Clients that dawdle, go deaf, vanish, or want too much at once.

use allocation_counter::measure;
use shunt_bench::stub::Action;
use shunt_reactor::sim::{MILLISECOND, SECOND};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::error_code::SERVER_ERROR;

use super::bytes;
use super::town::Town;

const TEXT: &str = "SELECT v FROM bench.kv WHERE k = 0x00";

#[test]
fn a_handshake_that_does_not_end() {
    for begun in [&[][..], &bytes::startup(4, None)[..5], &bytes::options(4, 0)] {
        let mut town = Town::new();
        let offender = town.offender();
        town.refused(offender, begun, SERVER_ERROR, "handshake was not completed in time");
    }
}

#[test]
fn a_request_that_comes_a_byte_at_a_time() {
    let mut town = Town::new();
    let offender = town.started_offender(4);
    town.begin_work();
    for byte in bytes::query(4, 1, TEXT) {
        town.send(offender, &[byte]);
        town.pass(2 * SECOND);
    }
    town.closed(offender);
    town.at_peace();
}

#[test]
fn a_large_request_that_comes_a_segment_at_a_time() {
    let mut town = Town::new();
    let offender = town.started_offender(5);
    town.begin_work();
    let header = Header { length: 10_000_000, ..Header::request(5, 1, opcode::QUERY) };
    town.send(offender, &bytes::segment(&header.to_bytes(), false));
    for _ in 0..12 {
        town.pass(10 * SECOND);
        if !town.scene.world.host(offender).is_closed() {
            town.send(offender, &bytes::segment(&[0], false));
        }
    }
    assert!(town.scene.world.host(offender).is_closed(), "one byte every ten seconds is no request");
    town.at_peace();
}

/// Its request is in pieces through no fault of its own: the proxy did not read.
#[test]
fn a_client_held_back_is_not_taken_for_a_slow_one() {
    let mut town = Town::new();
    let offender = town.started_offender(4);
    town.send(offender, &bytes::insert(4, 0, "long", 100_000));
    town.answered(offender, 1);
    town.scene.world.with(offender, |offender, io| offender.go_deaf(io));
    let select = format!(
        "SELECT v FROM bench.kv WHERE k = 0x{}",
        "long".bytes().map(|b| format!("{b:02x}")).collect::<String>()
    );
    let selects: Vec<u8> = (1..=60).flat_map(|stream| bytes::query(4, stream, &select)).collect();
    let last = bytes::insert(4, 99, "late", 10_000);
    town.send(offender, &[&selects[..], &last[..5_000]].concat());
    // It takes its replies so slowly that the proxy does not read from it for more than a minute.
    for _ in 0..10 {
        town.pass(20 * SECOND);
        town.scene.world.with(offender, |offender, io| offender.hear(io));
        town.pass(MILLISECOND / 4);
        town.scene.world.with(offender, |offender, io| offender.go_deaf(io));
    }
    town.scene.world.with(offender, |offender, io| offender.hear(io));
    town.pass(3 * SECOND);
    town.send(offender, &last[5_000..]);
    town.answered(offender, 62);
    town.scene.world.with(offender, |offender, io| offender.vanish(io));
    town.forget("long");
    town.forget("late");
    town.at_peace();
}

#[test]
fn a_client_that_reads_no_replies() {
    for version in [4, 5] {
        let mut town = Town::with(|options| options.config.client_backlog_bytes = 100_000);
        let offender = town.started_offender(version);
        town.begin_work();
        let counted = measure(|| {
            town.scene.world.with(offender, |offender, io| offender.go_deaf(io));
            let query = bytes::query(version, 1, "SELECT * FROM system_schema.columns");
            let query = if version == 5 { bytes::segment(&query, true) } else { query };
            for _ in 0..2_000 {
                town.send(offender, &query);
            }
            town.pass(60 * SECOND);
        });
        assert!(counted.bytes_max < 30 << 20, "{counted:?}");
        town.at_work();
        // Nobody keeps replies for ever.
        town.closed(offender);
        town.at_peace();
    }
}

/// Each within its own bounds; together they would fill the memory of the process, and all clients would go with it.
#[test]
fn many_clients_that_read_no_replies() {
    let mut town = Town::with(|options| {
        options.config.clients_bytes_max = 2 << 20;
        (options.config.frame_bytes_max, options.config.client_backlog_bytes) = (1 << 20, 1 << 20);
    });
    let offenders: Vec<_> = (0..20).map(|_| town.started_offender(4)).collect();
    town.begin_work();
    let counted = measure(|| {
        for &offender in &offenders {
            town.scene.world.with(offender, |offender, io| offender.go_deaf(io));
            let query = bytes::query(4, 1, "SELECT * FROM system_schema.columns");
            (0..3_000).for_each(|_| town.send(offender, &query));
        }
        // The buffers of those who were closed go, too.
        town.pass(50 * SECOND);
    });
    // Twice as much without the bound; what the simulated network holds is in it.
    assert!(counted.bytes_current < 48 << 20, "{counted:?}");
    let gone = offenders.iter().filter(|offender| town.scene.world.host(**offender).is_closed()).count();
    assert!((1..20).contains(&gone), "{gone} were closed");
    town.at_work();
}

#[test]
fn a_client_that_vanishes_with_queries_in_flight() {
    for version in [4, 5] {
        let mut town = Town::new();
        town.hook_all(|| Box::new(|_| Action::Delay(50 * MILLISECOND)));
        town.begin_work();
        for _ in 0..20 {
            let offender = town.started_offender(version);
            let queries: Vec<u8> = (0..100).flat_map(|stream| bytes::query(version, stream, TEXT)).collect();
            town.send(offender, &if version == 5 { bytes::segment(&queries, true) } else { queries });
            town.pass(10 * MILLISECOND);
            town.scene.world.with(offender, |offender, io| offender.vanish(io));
        }
        town.at_peace();
    }
}

#[test]
fn all_stream_ids_at_once() {
    for version in [4, 5] {
        let mut town = Town::with(|options| options.config.in_flight_max = 16_384);
        town.hook_all(|| Box::new(|_| Action::Delay(50 * MILLISECOND)));
        let offender = town.started_offender(version);
        town.begin_work();
        for first in (0..=i16::MAX).step_by(1000) {
            let last = first.saturating_add(999);
            let queries: Vec<u8> = (first..=last).flat_map(|stream| bytes::query(version, stream, TEXT)).collect();
            town.send(offender, &if version == 5 { bytes::segment(&queries, true) } else { queries });
        }
        town.answered(offender, 32_768);
        let mut seen = vec![0_u8; 32_768];
        for answer in town.take_answers(offender) {
            assert_eq!(answer.header.opcode, opcode::RESULT);
            seen[answer.header.stream as usize] += 1;
        }
        assert!(seen.iter().all(|count| *count == 1));
        town.scene.world.with(offender, |offender, io| offender.vanish(io));
        town.at_peace();
    }
}

#[test]
fn one_stream_id_for_everything() {
    let mut town = Town::new();
    let offender = town.started_offender(4);
    town.begin_work();
    town.send(offender, &bytes::query(4, 7, TEXT).repeat(500));
    town.answered(offender, 500);
    town.scene.world.with(offender, |offender, io| offender.vanish(io));
    town.at_peace();
}

/// Who has least in flight must not wait longest: room on a full link goes round.
#[test]
fn a_client_that_fills_every_link() {
    for version in [4, 5] {
        let mut town = Town::with(|options| options.config.in_flight_max = 4);
        town.hook_all(|| Box::new(|_| Action::Delay(20 * MILLISECOND)));
        let offender = town.started_offender(version);
        town.scene.world.with(offender, |offender, _| offender.forgetful = true);
        for round in 0..40 {
            let queries: Vec<u8> = (0..500).flat_map(|stream| bytes::query(version, stream, TEXT)).collect();
            town.send(offender, &if version == 5 { bytes::segment(&queries, true) } else { queries });
            if round == 5 {
                town.begin_work();
            }
            town.pass(100 * MILLISECOND);
        }
        town.at_work();
        let slowest_ms = town.scene.clients.iter().map(|client| town.scene.world.host(*client).tally.slowest_ns).max();
        assert!(slowest_ms < Some(2 * SECOND), "{slowest_ms:?}");
        town.scene.world.with(offender, |offender, io| offender.vanish(io));
        town.at_peace();
    }
}
