//! Clients whose bytes are wrong: headers, lengths, checksums, compression.

use shunt_reactor::sim::{MILLISECOND, Random};
use shunt_wire::cql::compression::{Algorithm, Compressor};
use shunt_wire::cql::envelope::{Header, flag, opcode};
use shunt_wire::cql::message::error_code::{INVALID, PROTOCOL_ERROR};

use super::bytes;
use super::town::Town;

const TEXT: &str = "SELECT v FROM bench.kv WHERE k = 0x00";

#[test]
fn random_bytes() {
    for (version, prefix) in [(4, vec![]), (4, bytes::startup(4, None)), (5, bytes::startup(5, None))] {
        let mut town = Town::new();
        let mut random = Random::new(u64::from(version));
        let offender = town.offender();
        town.begin_work();
        for _ in 0..100 {
            let mut garbage = vec![0; 1 + random.index(300)];
            random.fill(&mut garbage);
            if random.chance(0.5) {
                // So that more is looked at than the version.
                garbage[0] = version;
            }
            town.send(offender, &prefix);
            town.pass(MILLISECOND);
            town.send(offender, &garbage);
            town.pass(5 * MILLISECOND);
        }
        assert!(town.scene.world.host(offender).closings > 10);
        town.scene.world.with(offender, |offender, io| offender.vanish(io));
        town.at_peace();
    }
}

#[test]
fn a_request_that_ends_in_the_middle() {
    let query = bytes::query(4, 1, TEXT);
    let mut town = Town::new();
    town.begin_work();
    for end in 1..query.len() {
        let offender = town.started_offender(4);
        town.send(offender, &query[..end]);
        town.pass(MILLISECOND);
        town.scene.world.with(offender, |offender, io| offender.vanish(io));
    }
    town.at_peace();
}

#[test]
fn a_length_that_cuts_the_body_short() {
    let mut town = Town::new();
    let offender = town.started_offender(4);
    let query = bytes::with_header(bytes::query(4, 1, TEXT), |header| header.length -= 3);
    town.refused(offender, &query, PROTOCOL_ERROR, "consistency");
}

#[test]
fn a_string_longer_than_its_body() {
    let mut town = Town::new();
    let offender = town.started_offender(4);
    town.refused(offender, &bytes::request(4, 1, opcode::QUERY, &[0x7f, 0xff, 0xff, 0xff, 1]), PROTOCOL_ERROR, "text");
}

#[test]
fn a_body_longer_than_allowed_is_refused_by_its_header() {
    for length in [(16 << 20) + 1, 1 << 30, u32::MAX] {
        let mut town = Town::new();
        let offender = town.started_offender(4);
        let header = bytes::with_header(bytes::query(4, 1, ""), |header| header.length = length)[..9].to_vec();
        let counted = allocation_counter::measure(|| town.refused(offender, &header, INVALID, "exceeds the limit"));
        assert!(counted.bytes_max < 4 << 20, "{counted:?}");
    }
}

#[test]
fn before_the_login_bodies_are_small() {
    let mut town = Town::new();
    let offender = town.offender();
    let header = Header { length: 100_000, ..Header::request(4, 0, opcode::STARTUP) };
    town.refused(offender, &header.to_bytes(), INVALID, "exceeds the limit");
}

#[test]
fn a_large_envelope_in_segments_is_refused_by_its_header() {
    let mut town = Town::new();
    let offender = town.started_offender(5);
    let header = Header { length: 1 << 28, ..Header::request(5, 7, opcode::QUERY) };
    town.refused(offender, &bytes::segment(&header.to_bytes(), false), INVALID, "exceeds the limit");
}

#[test]
fn a_segment_whose_header_has_a_wrong_checksum() {
    for at in 0..6 {
        let mut town = Town::new();
        let offender = town.started_offender(5);
        let mut segment = bytes::segment(&bytes::query(5, 1, TEXT), true);
        segment[at] ^= 0x10;
        town.refused(offender, &segment, PROTOCOL_ERROR, "CRC24");
    }
}

#[test]
fn a_segment_whose_payload_has_a_wrong_checksum() {
    let mut town = Town::new();
    let offender = town.started_offender(5);
    let mut segment = bytes::segment(&bytes::query(5, 1, TEXT), true);
    let middle = segment.len() / 2;
    segment[middle] ^= 0x10;
    town.refused(offender, &segment, PROTOCOL_ERROR, "CRC32");
}

#[test]
fn a_segment_that_ends_in_the_middle_of_an_envelope() {
    let mut town = Town::new();
    let offender = town.started_offender(5);
    let query = bytes::query(5, 1, TEXT);
    let segment = bytes::segment(&query[..query.len() - 1], true);
    town.refused(offender, &segment, PROTOCOL_ERROR, "ends in the middle");
}

/// Cassandra wants parts of one large envelope only; to take any part is as good and needs no rule.
#[test]
fn envelopes_cut_into_segments_at_any_byte() {
    let stream: Vec<u8> = (1..4).flat_map(|id| bytes::query(5, id, TEXT)).collect();
    let mut town = Town::new();
    let offender = town.started_offender(5);
    for at in 1..stream.len() {
        let (head, tail) = stream.split_at(at);
        town.send(offender, &bytes::segment(head, false));
        town.send(offender, &bytes::segment(tail, false));
        town.answered(offender, 3);
        assert!(town.take_answers(offender).iter().all(|answer| answer.header.opcode == opcode::RESULT));
    }
    let whole: Vec<u8> = stream.iter().flat_map(|byte| bytes::segment(&[*byte], false)).collect();
    town.send(offender, &whole);
    town.answered(offender, 3);
    town.scene.world.with(offender, |offender, io| offender.vanish(io));
    town.at_peace();
}

#[test]
fn segments_that_are_empty() {
    let mut town = Town::new();
    let offender = town.started_offender(5);
    let mut bytes = bytes::segment(&[], true).repeat(1000);
    bytes.extend(bytes::segment(&[], false));
    bytes.extend(bytes::segment(&bytes::query(5, 1, TEXT), true));
    town.send(offender, &bytes);
    town.answered(offender, 1);
    town.scene.world.with(offender, |offender, io| offender.vanish(io));
    town.at_peace();
}

#[test]
fn a_segment_with_broken_lz4() {
    for claimed in [1, 100, 131_071] {
        let mut town = Town::new();
        let offender = town.offender();
        town.scene.world.with(offender, |offender, _| offender.lz4 = true);
        town.send(offender, &bytes::startup(5, Some("lz4")));
        town.answered(offender, 1);
        let segment = bytes::segment_lz4(&[0xf0, 1, 2, 3, 4, 5, 6], claimed);
        town.refused(offender, &segment, PROTOCOL_ERROR, "segment payload");
    }
}

#[test]
fn a_broken_compressed_body() {
    for (name, algorithm) in [("lz4", Algorithm::Lz4), ("snappy", Algorithm::Snappy)] {
        for garbage in [&[][..], &[0xff], &[0, 0, 1, 0, 0xff, 0xff], &[0x7f, 0xff, 0xff, 0xff, 1, 2, 3], &[0xfe; 40]] {
            let mut town = Town::new();
            let offender = town.offender();
            town.scene.world.with(offender, |offender, _| offender.expect_compression(algorithm));
            town.send(offender, &bytes::startup(4, Some(name)));
            town.answered(offender, 1);
            let query = bytes::said_compressed(bytes::request(4, 1, opcode::QUERY, garbage));
            // LZ4's length leads the body: what claims to be larger than any request is refused for that alone.
            let huge =
                algorithm == Algorithm::Lz4 && garbage.first().is_some_and(|byte| *byte >= 0x7f) && garbage.len() > 4;
            town.refused(offender, &query, if huge { INVALID } else { PROTOCOL_ERROR }, "");
        }
    }
}

#[test]
fn a_compressed_body_that_would_burst() {
    let mut town = Town::new();
    let offender = town.offender();
    town.scene.world.with(offender, |offender, _| offender.expect_compression(Algorithm::Lz4));
    town.send(offender, &bytes::startup(4, Some("lz4")));
    town.answered(offender, 1);
    let mut bomb = Vec::new();
    assert!(Compressor::new().compress(Algorithm::Lz4, &vec![0; 40 << 20], &mut bomb));
    let query = bytes::said_compressed(bytes::request(4, 1, opcode::QUERY, &bomb));
    let counted = allocation_counter::measure(|| town.refused(offender, &query, INVALID, ""));
    assert!(counted.bytes_max < 8 << 20, "{counted:?}");
}

#[test]
fn a_compressed_body_without_compression_agreed_on() {
    let mut town = Town::new();
    let offender = town.started_offender(4);
    let query = bytes::said_compressed(bytes::query(4, 1, TEXT));
    town.refused(offender, &query, PROTOCOL_ERROR, "asked for no compression");
}

#[test]
fn a_request_with_the_direction_bit_of_a_response() {
    let mut town = Town::new();
    let offender = town.started_offender(4);
    let query = bytes::with_header(bytes::query(4, 1, TEXT), |header| header.response = true);
    town.refused(offender, &query, PROTOCOL_ERROR, "direction");
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
    let mut town = Town::new();
    for op in (0..=0xff).filter(|op| !known.contains(op)) {
        let offender = town.started_offender(4);
        town.send(offender, &bytes::request(4, 1, op, &[]));
        town.closed(offender);
        assert_eq!(town.scene.world.host(offender).last().error().0, PROTOCOL_ERROR, "{op:#x}");
    }
    town.at_peace();
}

#[test]
fn another_version_in_mid_connection() {
    for (first, second) in [(4, 3), (4, 5), (5, 4), (3, 99)] {
        let mut town = Town::new();
        let offender = town.started_offender(first);
        let mut query = bytes::query(second, 1, TEXT);
        if first == 5 {
            query = bytes::segment(&query, true);
        }
        town.refused(offender, &query, PROTOCOL_ERROR, "connection that started with");
    }
}

#[test]
fn a_negative_stream_id() {
    for stream in [-1, i16::MIN] {
        let mut town = Town::new();
        let offender = town.started_offender(4);
        town.refused(offender, &bytes::query(4, stream, TEXT), PROTOCOL_ERROR, "negative");
    }
}

#[test]
fn flags_nobody_knows() {
    let mut town = Town::new();
    let offender = town.started_offender(4);
    let query = bytes::with_header(bytes::query(4, 1, TEXT), |header| {
        header.flags = !(flag::COMPRESSION | flag::TRACING | flag::CUSTOM_PAYLOAD);
    });
    town.send(offender, &query);
    town.answered(offender, 1);
    town.scene.world.with(offender, |offender, io| offender.vanish(io));
    town.at_peace();
}

#[test]
fn a_custom_payload_that_is_none() {
    let mut town = Town::new();
    let offender = town.started_offender(4);
    let query = bytes::with_header(bytes::query(4, 1, TEXT), |header| header.flags = flag::CUSTOM_PAYLOAD);
    town.refused(offender, &query, PROTOCOL_ERROR, "");
}

#[test]
fn statements_that_are_not_text() {
    let mut body = Vec::from(4_i32.to_be_bytes());
    body.extend([0xff, 0xfe, 0xfd, 0xfc, 0, 1, 0]);
    for op in [opcode::QUERY, opcode::PREPARE] {
        let mut town = Town::new();
        let offender = town.started_offender(4);
        town.refused(offender, &bytes::request(4, 1, op, &body), PROTOCOL_ERROR, "UTF-8");
    }
}

#[test]
fn batches_that_are_none() {
    for body in [&[3, 0, 0, 0, 1, 0][..], &[0, 0, 9, 0], &[0, 0, 1, 7], &[0, 0xff, 0xff], &[]] {
        let mut town = Town::new();
        let offender = town.started_offender(4);
        town.refused(offender, &bytes::request(4, 1, opcode::BATCH, body), PROTOCOL_ERROR, "batch");
    }
}
