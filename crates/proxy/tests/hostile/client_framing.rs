//! Clients with wrong bytes: headers, lengths, checksums, compression.

use shunt_reactor::sim::{MILLISECOND, Random};
use shunt_testing::bytes;
use shunt_wire::cql::compression::{Algorithm, Compressor};
use shunt_wire::cql::envelope::{Header, flag, opcode};
use shunt_wire::cql::message::error_code::{INVALID, PROTOCOL_ERROR};

use super::testbed::Testbed;

const TEXT: &str = "SELECT v FROM bench.kv WHERE k = 0x00";

#[test]
fn random_bytes() {
    for (version, prefix) in
        [(4, vec![]), (4, bytes::startup(4, None)), (5, bytes::startup(5, None))]
    {
        let mut testbed = Testbed::new();
        let mut random = Random::new(u64::from(version));
        let offender = testbed.offender();
        testbed.start_work();
        for _ in 0..100 {
            let mut garbage = vec![0; 1 + random.index(300)];
            random.fill(&mut garbage);
            if random.chance(0.5) {
                // Set the version, so that the proxy reads more than that.
                garbage[0] = version;
            }
            testbed.send(offender, &prefix);
            testbed.run_for(MILLISECOND);
            testbed.send(offender, &garbage);
            testbed.run_for(5 * MILLISECOND);
        }
        assert!(testbed.scene.world.host(offender).closings > 10);
        testbed.reset(offender);
        testbed.check_recovered();
    }
}

#[test]
fn a_request_that_ends_in_the_middle() {
    let query = bytes::query(4, 1, TEXT);
    let mut testbed = Testbed::new();
    testbed.start_work();
    for end in 1..query.len() {
        let offender = testbed.started_offender(4);
        testbed.send(offender, &query[..end]);
        testbed.run_for(MILLISECOND);
        testbed.reset(offender);
    }
    testbed.check_recovered();
}

#[test]
fn a_length_that_cuts_the_body_short() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(4);
    let query = bytes::with_header(bytes::query(4, 1, TEXT), |header| header.length -= 3);
    testbed.refused(offender, &query, PROTOCOL_ERROR, "consistency");
}

#[test]
fn a_string_longer_than_its_body() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(4);
    testbed.refused(
        offender,
        &bytes::request(4, 1, opcode::QUERY, &[0x7f, 0xff, 0xff, 0xff, 1]),
        PROTOCOL_ERROR,
        "text",
    );
}

#[test]
fn a_body_longer_than_allowed_is_refused_by_its_header() {
    for length in [(16 << 20) + 1, 1 << 30, u32::MAX] {
        let mut testbed = Testbed::new();
        let offender = testbed.started_offender(4);
        let header = bytes::with_header(bytes::query(4, 1, ""), |header| header.length = length)
            [..9]
            .to_vec();
        let counted = allocation_counter::measure(|| {
            testbed.refused(offender, &header, INVALID, "exceeds the limit")
        });
        assert!(counted.bytes_max < 4 << 20, "{counted:?}");
    }
}

#[test]
fn before_the_login_bodies_are_small() {
    let mut testbed = Testbed::new();
    let offender = testbed.offender();
    let header = Header { length: 100_000, ..Header::request(4, 0, opcode::STARTUP) };
    testbed.refused(offender, &header.to_bytes(), INVALID, "exceeds the limit");
}

#[test]
fn a_large_envelope_in_segments_is_refused_by_its_header() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(5);
    let header = Header { length: 1 << 28, ..Header::request(5, 7, opcode::QUERY) };
    testbed.refused(
        offender,
        &bytes::segment(&header.to_bytes(), false),
        INVALID,
        "exceeds the limit",
    );
}

#[test]
fn a_segment_whose_header_has_a_wrong_checksum() {
    for at in 0..6 {
        let mut testbed = Testbed::new();
        let offender = testbed.started_offender(5);
        let mut segment = bytes::segment(&bytes::query(5, 1, TEXT), true);
        segment[at] ^= 0x10;
        testbed.refused(offender, &segment, PROTOCOL_ERROR, "CRC24");
    }
}

#[test]
fn a_segment_whose_payload_has_a_wrong_checksum() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(5);
    let mut segment = bytes::segment(&bytes::query(5, 1, TEXT), true);
    let middle = segment.len() / 2;
    segment[middle] ^= 0x10;
    testbed.refused(offender, &segment, PROTOCOL_ERROR, "CRC32");
}

#[test]
fn a_segment_that_ends_in_the_middle_of_an_envelope() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(5);
    let query = bytes::query(5, 1, TEXT);
    let segment = bytes::segment(&query[..query.len() - 1], true);
    testbed.refused(offender, &segment, PROTOCOL_ERROR, "ends in the middle");
}

/// Cassandra sends parts only of one large envelope; accepting any part is as good and needs no
/// rule.
#[test]
fn envelopes_cut_into_segments_at_any_byte() {
    let stream: Vec<u8> = (1..4).flat_map(|id| bytes::query(5, id, TEXT)).collect();
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(5);
    for at in 1..stream.len() {
        let (head, tail) = stream.split_at(at);
        testbed.send(offender, &bytes::segment(head, false));
        testbed.send(offender, &bytes::segment(tail, false));
        testbed.answered(offender, 3);
        assert!(
            testbed
                .take_answers(offender)
                .iter()
                .all(|answer| answer.header.opcode == opcode::RESULT)
        );
    }
    let whole: Vec<u8> = stream.iter().flat_map(|byte| bytes::segment(&[*byte], false)).collect();
    testbed.send(offender, &whole);
    testbed.answered(offender, 3);
    testbed.reset(offender);
    testbed.check_recovered();
}

#[test]
fn segments_that_are_empty() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(5);
    let mut bytes = bytes::segment(&[], true).repeat(1000);
    bytes.extend(bytes::segment(&[], false));
    bytes.extend(bytes::segment(&bytes::query(5, 1, TEXT), true));
    testbed.send(offender, &bytes);
    testbed.answered(offender, 1);
    testbed.reset(offender);
    testbed.check_recovered();
}

#[test]
fn a_segment_with_broken_lz4() {
    for claimed in [1, 100, 131_071] {
        let mut testbed = Testbed::new();
        let offender = testbed.offender();
        testbed
            .scene
            .world
            .with(offender, |offender, _| offender.expect_compression(Some(Algorithm::Lz4)));
        testbed.send(offender, &bytes::startup(5, Some("lz4")));
        testbed.answered(offender, 1);
        let segment = bytes::segment_lz4(&[0xf0, 1, 2, 3, 4, 5, 6], claimed);
        testbed.refused(offender, &segment, PROTOCOL_ERROR, "segment payload");
    }
}

#[test]
fn a_broken_compressed_body() {
    for (name, algorithm) in [("lz4", Algorithm::Lz4), ("snappy", Algorithm::Snappy)] {
        for garbage in [
            &[][..],
            &[0xff],
            &[0, 0, 1, 0, 0xff, 0xff],
            &[0x7f, 0xff, 0xff, 0xff, 1, 2, 3],
            &[0xfe; 40],
        ] {
            let mut testbed = Testbed::new();
            let offender = testbed.offender();
            testbed
                .scene
                .world
                .with(offender, |offender, _| offender.expect_compression(Some(algorithm)));
            testbed.send(offender, &bytes::startup(4, Some(name)));
            testbed.answered(offender, 1);
            let query = bytes::said_compressed(bytes::request(4, 1, opcode::QUERY, garbage));
            // LZ4's length leads the body: a body that claims to be larger than any request is
            // refused for that alone.
            let huge = algorithm == Algorithm::Lz4
                && garbage.first().is_some_and(|byte| *byte >= 0x7f)
                && garbage.len() > 4;
            testbed.refused(offender, &query, if huge { INVALID } else { PROTOCOL_ERROR }, "");
        }
    }
}

#[test]
fn a_compressed_body_that_would_burst() {
    let mut testbed = Testbed::new();
    let offender = testbed.offender();
    testbed
        .scene
        .world
        .with(offender, |offender, _| offender.expect_compression(Some(Algorithm::Lz4)));
    testbed.send(offender, &bytes::startup(4, Some("lz4")));
    testbed.answered(offender, 1);
    let mut bomb = Vec::new();
    assert!(Compressor::new().compress(Algorithm::Lz4, &vec![0; 40 << 20], &mut bomb));
    let query = bytes::said_compressed(bytes::request(4, 1, opcode::QUERY, &bomb));
    let counted = allocation_counter::measure(|| testbed.refused(offender, &query, INVALID, ""));
    assert!(counted.bytes_max < 8 << 20, "{counted:?}");
}

#[test]
fn a_compressed_body_without_compression_agreed_on() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(4);
    let query = bytes::said_compressed(bytes::query(4, 1, TEXT));
    testbed.refused(offender, &query, PROTOCOL_ERROR, "asked for no compression");
}

#[test]
fn a_request_with_the_direction_bit_of_a_response() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(4);
    let query = bytes::with_header(bytes::query(4, 1, TEXT), |header| header.response = true);
    testbed.refused(offender, &query, PROTOCOL_ERROR, "direction");
}

#[test]
fn opcodes_that_are_no_requests() {
    let known = [
        opcode::STARTUP,
        opcode::OPTIONS,
        opcode::QUERY,
        opcode::PREPARE,
        opcode::EXECUTE,
        opcode::REGISTER,
        opcode::BATCH,
    ];
    let mut testbed = Testbed::new();
    for op in (0..=0xff).filter(|op| !known.contains(op)) {
        let offender = testbed.started_offender(4);
        testbed.send(offender, &bytes::request(4, 1, op, &[]));
        testbed.closed(offender);
        assert_eq!(testbed.scene.world.host(offender).last().error().0, PROTOCOL_ERROR, "{op:#x}");
    }
    testbed.check_recovered();
}

#[test]
fn another_version_in_mid_connection() {
    for (first, second) in [(4, 3), (4, 5), (5, 4), (3, 99)] {
        let mut testbed = Testbed::new();
        let offender = testbed.started_offender(first);
        let mut query = bytes::query(second, 1, TEXT);
        if first == 5 {
            query = bytes::segment(&query, true);
        }
        testbed.refused(offender, &query, PROTOCOL_ERROR, "connection that started with");
    }
}

#[test]
fn a_negative_stream_id() {
    for stream in [-1, i16::MIN] {
        let mut testbed = Testbed::new();
        let offender = testbed.started_offender(4);
        testbed.refused(offender, &bytes::query(4, stream, TEXT), PROTOCOL_ERROR, "negative");
    }
}

#[test]
fn flags_nobody_knows() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(4);
    let query = bytes::with_header(bytes::query(4, 1, TEXT), |header| {
        header.flags = !(flag::COMPRESSION | flag::TRACING | flag::CUSTOM_PAYLOAD);
    });
    testbed.send(offender, &query);
    testbed.answered(offender, 1);
    testbed.reset(offender);
    testbed.check_recovered();
}

#[test]
fn a_custom_payload_that_is_none() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(4);
    let query =
        bytes::with_header(bytes::query(4, 1, TEXT), |header| header.flags = flag::CUSTOM_PAYLOAD);
    testbed.refused(offender, &query, PROTOCOL_ERROR, "");
}

#[test]
fn statements_that_are_not_text() {
    let mut body = Vec::from(4_i32.to_be_bytes());
    body.extend([0xff, 0xfe, 0xfd, 0xfc, 0, 1, 0]);
    for op in [opcode::QUERY, opcode::PREPARE] {
        let mut testbed = Testbed::new();
        let offender = testbed.started_offender(4);
        testbed.refused(offender, &bytes::request(4, 1, op, &body), PROTOCOL_ERROR, "UTF-8");
    }
}

#[test]
fn batches_that_are_none() {
    for body in [&[3, 0, 0, 0, 1, 0][..], &[0, 0, 9, 0], &[0, 0, 1, 7], &[0, 0xff, 0xff], &[]] {
        let mut testbed = Testbed::new();
        let offender = testbed.started_offender(4);
        testbed.refused(
            offender,
            &bytes::request(4, 1, opcode::BATCH, body),
            PROTOCOL_ERROR,
            "batch",
        );
    }
}
