//! Nodes whose short answers ask for many times their bytes of memory.

use allocation_counter::measure;
use shunt_bench::stub::Action;
use shunt_bench::stub::hook::Request;
use shunt_testing::bytes;
use shunt_testing::simulated::Client;
use shunt_wire::cql::compression::{Algorithm, Compressor};
use shunt_wire::cql::envelope::{Header, flag, opcode};
use shunt_wire::cql::message::encode_result::{self, PreparedSpec, native};
use shunt_wire::cql::message::{encode, error_code};

use super::testbed::Testbed;

/// Most bytes that the whole simulation may take for one such answer.
const BYTES_MAX: u64 = 24 << 20;

fn right(request: &Request<'_>) -> Header {
    Header::response(request.version, request.stream, opcode::RESULT)
}

fn names(request: &Request<'_>, word: &str) -> bool {
    request.body.windows(word.len()).any(|part| part == word.as_bytes())
}

/// A body of 64 MiB in some 250 KiB.
fn compressed(beginning: Vec<u8>) -> Vec<u8> {
    let (mut plain, mut out) = (beginning, Vec::new());
    plain.resize(64 << 20, 0);
    assert!(Compressor::default().compress(Algorithm::Lz4, &plain, &mut out));
    out
}

/// A node tells which markers are the key, any number of them, and each name may have 64 KiB.
#[test]
fn a_marker_that_a_node_names_very_often_is_kept_never() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(4);
    testbed.hook_all(|| {
        Box::new(|request: &Request<'_>| {
            if request.opcode != opcode::PREPARE || !names(request, "often") {
                return Action::Answer;
            }
            let name = "k".repeat(60_000);
            let spec = PreparedSpec {
                id: b"sixteen bytes id",
                result_metadata_id: b"",
                keyspace: "bench",
                table: "often",
                bind: &[(&name, native::TEXT)],
                partition_key: &[0; 2_000],
                result: &[],
            };
            let body = bytes::body(|out| encode_result::prepared(out, request.version, &spec));
            Action::Garbage(bytes::envelope(right(request), &body))
        })
    });
    testbed.start_work();
    let counted = measure(|| {
        testbed.send(offender, &bytes::prepare(4, 1, "SELECT v FROM bench.often WHERE k = ?"));
        testbed.answered(offender, 1);
        testbed.check_bystanders();
    });
    assert!(counted.bytes_max < BYTES_MAX, "{counted:?}");
    assert_eq!(testbed.take_answers(offender)[0].header.opcode, opcode::RESULT);
    testbed.reset(offender);
    testbed.check_recovered();
}

/// Decompressing an answer that claims 64 MiB would hold the core up, and such answers are short.
#[test]
fn errors_and_prepared_statements_that_claim_many_bytes_are_not_decompressed() {
    let error = bytes::body(|out| encode::error(out, error_code::INVALID, "long"));
    for (request, answer) in [
        (bytes::query(4, 1, "SELECT huge FROM bench.kv"), (opcode::ERROR, compressed(error))),
        (
            bytes::prepare(4, 1, "SELECT huge FROM bench.kv"),
            (opcode::RESULT, compressed(vec![0, 0, 0, 4])),
        ),
    ] {
        let mut testbed = Testbed::new();
        let offender = testbed.offender();
        testbed.send(offender, &bytes::startup(4, Some("lz4")));
        let expect = |client: &mut Client| client.expect_compression(Some(Algorithm::Lz4));
        testbed.scene.world.with(offender, |client, _| expect(client));
        testbed.answered(offender, 1);
        testbed.take_answers(offender);
        testbed.hook_all(|| {
            let (opcode, body) = answer.clone();
            Box::new(move |request: &Request<'_>| {
                if !names(request, "huge") {
                    return Action::Answer;
                }
                let header = Header { opcode, flags: flag::COMPRESSION, ..right(request) };
                Action::Garbage(bytes::envelope(header, &body))
            })
        });
        testbed.start_work();
        let counted = measure(|| {
            testbed.send(offender, &request);
            testbed.answered(offender, 1);
            testbed.check_bystanders();
        });
        assert!(counted.bytes_max < BYTES_MAX, "{counted:?}");
        testbed.take_answers(offender)[0].error();
        let faults = testbed.scene.metrics.iter().map(|core| core.node_protocol_errors.get());
        assert_eq!(faults.sum::<u64>(), 0, "no other client loses its link");
        testbed.reset(offender);
        testbed.check_recovered();
    }
}
