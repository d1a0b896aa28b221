//! Nodes that answer with nonsense. The proxy gives up the link, answers the requests in flight on
//! it all the same, and uses the node again when it recovers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use allocation_counter::measure;
use shunt_bench::stub::hook::{self, Request};
use shunt_bench::stub::{Action, StubMail};
use shunt_reactor::sim::SECOND;
use shunt_testing::bytes;
use shunt_wire::aggregate::{AggregateWriter, Limits};
use shunt_wire::cql::envelope::{EVENT_STREAM, Header, opcode};
use shunt_wire::cql::message::encode_result::{self, PreparedSpec, native};
use shunt_wire::cql::message::{encode, error_code};

use super::testbed::Testbed;

/// An empty RESULT.
const VOID: [u8; 4] = [0, 0, 0, 1];

fn is_query(request: &Request<'_>) -> bool {
    matches!(request.opcode, opcode::QUERY | opcode::EXECUTE | opcode::BATCH | opcode::PREPARE)
}

/// An answer to `request` in a node's framing.
fn framed(request: &Request<'_>, header: Header, body: &[u8]) -> Vec<u8> {
    let answer = bytes::envelope(header, body);
    if request.version >= 5 && !request.aggregated { bytes::segment(&answer, true) } else { answer }
}

fn right(request: &Request<'_>) -> Header {
    Header::response(request.version, request.stream, opcode::RESULT)
}

/// Applies this fault of node 0 to every third query for a while, and none afterwards.
fn misbehaves(aggregate: bool, fault: impl Fn(&Request<'_>) -> Action + Clone + Send + 'static) {
    let mut testbed = Testbed::with(|options| options.aggregate = vec![aggregate; 3]);
    let mut count = 0;
    let counted = measure(|| {
        let hook = move |request: &Request<'_>| {
            count += u32::from(is_query(request));
            if is_query(request) && count % 3 == 0 { fault(request) } else { Action::Answer }
        };
        testbed.scene.world.post(testbed.scene.nodes[0], StubMail::Hook(Some(Box::new(hook))));
        for _ in 0..5 {
            testbed.start_work();
            testbed.scene.wait_idle(60 * SECOND);
        }
    });
    assert!(counted.bytes_max < 8 << 20, "{counted:?}");
    testbed.check_bystanders();
    assert!(faults(&testbed) > 0, "the proxy must have noticed");
    testbed.scene.hook(0, None);
    testbed.run_for(15 * SECOND);
    let before = testbed.scene.world.host(testbed.scene.nodes[0]).counts().queries;
    testbed.check_recovered();
    assert!(
        testbed.scene.world.host(testbed.scene.nodes[0]).counts().queries > before,
        "the node must be used again"
    );
}

fn faults(testbed: &Testbed) -> u64 {
    testbed.scene.metrics.iter().map(|metrics| metrics.node_protocol_errors.get()).sum()
}

#[test]
fn garbage() {
    for aggregate in [false, true] {
        misbehaves(aggregate, |_| Action::Garbage(vec![0xA5; 64]));
        misbehaves(aggregate, |_| Action::Garbage(vec![0; 64]));
    }
}

#[test]
fn a_stream_id_nobody_asked_for() {
    for aggregate in [false, true] {
        misbehaves(aggregate, |_| Action::UnknownStream(i16::MAX));
        misbehaves(aggregate, |_| Action::UnknownStream(EVENT_STREAM));
    }
}

#[test]
fn an_answer_twice() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(4);
    testbed.hook_all(|| {
        Box::new(|request: &Request<'_>| {
            match request.body.windows(5).any(|word| word == b"twice") {
                true => Action::Garbage(framed(request, right(request), &VOID).repeat(2)),
                false => Action::Answer,
            }
        })
    });
    testbed.start_work();
    testbed.send(offender, &bytes::query(4, 1, "SELECT twice FROM bench.kv"));
    testbed.run_for(SECOND);
    assert_eq!(testbed.scene.world.host(offender).answers.len(), 1);
    testbed.check_bystanders();
    assert_eq!(faults(&testbed), 1, "the second answer belongs to nobody");
    testbed.reset(offender);
    testbed.check_recovered();
}

#[test]
fn a_request_instead_of_an_answer() {
    misbehaves(false, |request| {
        Action::Garbage(framed(request, Header { response: false, ..right(request) }, &VOID))
    });
}

#[test]
fn an_answer_of_another_version() {
    misbehaves(false, |request| {
        Action::Garbage(framed(request, Header { version: 2, ..right(request) }, &VOID))
    });
}

#[test]
fn an_aggregated_frame_unasked() {
    misbehaves(false, |request| {
        let mut writer = AggregateWriter::responses(Limits { count_max: 9, bytes_max: 9000 });
        let mut frame = Vec::new();
        writer.push(&mut frame, request.stream, 1, request.version, 0, opcode::RESULT, &VOID);
        writer.finish(&mut frame);
        Action::Garbage(bytes::framed(request.version, frame))
    });
}

#[test]
fn an_envelope_among_aggregated_frames() {
    for opcode in [opcode::RESULT, opcode::ERROR, opcode::READY] {
        misbehaves(true, move |request| {
            let mut body = Vec::new();
            encode::error(&mut body, error_code::PROTOCOL_ERROR, "not wanted");
            Action::Garbage(bytes::envelope(Header::response(4, request.stream, opcode), &body))
        });
    }
}

#[test]
fn an_aggregated_frame_with_a_wrong_count() {
    for count in [-1, 2, 1000, i32::MAX] {
        misbehaves(true, move |request| {
            let mut writer = AggregateWriter::responses(Limits { count_max: 9, bytes_max: 9000 });
            let mut frame = Vec::new();
            writer.push(&mut frame, request.stream, 1, request.version, 0, opcode::RESULT, &VOID);
            writer.finish(&mut frame);
            frame[9..13].copy_from_slice(&count.to_be_bytes());
            Action::Garbage(frame)
        });
    }
}

#[test]
fn a_huge_length() {
    for length in [1 << 31, u32::MAX] {
        misbehaves(false, move |request| {
            let header = Header { length, ..right(request) }.to_bytes();
            Action::Garbage(if request.version >= 5 {
                bytes::segment(&header, false)
            } else {
                header.to_vec()
            })
        });
    }
}

#[test]
fn an_answer_longer_than_the_limit_is_its_clients_alone() {
    let long = vec![7; 3 << 20];
    for (version, aggregate) in [(3, false), (4, false), (5, false), (4, true)] {
        let mut testbed = Testbed::with(|options| {
            options.aggregate = vec![aggregate; 3];
            options.config.frame_bytes_max = 1 << 20;
        });
        let offender = testbed.started_offender(version);
        testbed.hook_all(|| {
            let long = long.clone();
            Box::new(move |request: &Request<'_>| {
                if !request.body.windows(4).any(|word| word == b"long") {
                    return Action::Answer;
                }
                if request.aggregated {
                    let mut writer =
                        AggregateWriter::responses(Limits { count_max: 9, bytes_max: u32::MAX });
                    let mut frame = Vec::new();
                    writer.push(
                        &mut frame,
                        request.stream,
                        1,
                        request.version,
                        0,
                        opcode::RESULT,
                        &long,
                    );
                    writer.finish(&mut frame);
                    return Action::Garbage(frame);
                }
                let answer = bytes::envelope(right(request), &long);
                Action::Garbage(match request.version {
                    5 => answer
                        .chunks(100_000)
                        .flat_map(|part| bytes::segment(part, false))
                        .collect(),
                    _ => answer,
                })
            })
        });
        let query = |testbed: &mut Testbed, stream: i16, text: &str| {
            let query = bytes::query(version, stream, text);
            testbed.send(offender, &bytes::framed(version, query));
            testbed.answered(offender, usize::from(stream as u16));
        };
        let links =
            |testbed: &Testbed| (0..3).map(|node| testbed.scene.links(node).1).collect::<Vec<_>>();
        query(&mut testbed, 1, "SELECT v FROM bench.kv");
        testbed.run_for(SECOND);
        let before = links(&testbed);
        for round in 2..5 {
            testbed.start_work();
            query(&mut testbed, round, "SELECT long FROM bench.kv");
            testbed.check_bystanders();
            let (code, text) = testbed.scene.world.host(offender).last().error();
            assert!(
                code == error_code::INVALID && text.contains("frame_bytes_max"),
                "{code:#x} {text}"
            );
        }
        assert_eq!(
            (faults(&testbed), links(&testbed)),
            (0, before),
            "version {version}, in frames: {aggregate}"
        );
        testbed.reset(offender);
        testbed.check_recovered();
    }
}

#[test]
fn a_segment_with_a_wrong_checksum() {
    for from_end in [1, 8] {
        misbehaves(false, move |request| {
            let mut answer = framed(request, right(request), &VOID);
            if request.version < 5 {
                return Action::Garbage(vec![0xff; 9]);
            }
            let at = answer.len() - from_end;
            answer[at] ^= 1;
            Action::Garbage(answer)
        });
    }
}

#[test]
fn an_error_about_no_request() {
    // Cassandra answers an undecodable body like this, because it has not read the stream id yet.
    misbehaves(false, |request| {
        let body = bytes::body(|out| {
            encode::error(out, error_code::SERVER_ERROR, "cannot be decompressed")
        });
        Action::Garbage(framed(request, Header::response(request.version, 0, opcode::ERROR), &body))
    });
}

#[test]
fn compressed_bodies_that_are_none() {
    // Clients whose answers the proxy does not inspect get a malformed answer; here the proxy
    // inspects it.
    misbehaves(false, |request| {
        if request.opcode == opcode::PREPARE {
            return Action::Garbage(framed(
                request,
                Header { flags: 1, ..right(request) },
                &[0xff; 20],
            ));
        }
        Action::UnknownStream(9)
    });
}

#[test]
fn a_statement_that_changes_the_shared_keyspace() {
    let mut testbed = Testbed::new();
    let offender = testbed.started_offender(4);
    let changes_keyspace = |request: &Request<'_>| {
        let body = bytes::body(|out| encode::set_keyspace(out, "elsewhere"));
        Action::Garbage(framed(request, right(request), &body))
    };
    testbed.hook_all(move || {
        Box::new(move |request: &Request<'_>| {
            let strange = request.body.windows(5).any(|word| word == b"ODD 1");
            if strange { changes_keyspace(request) } else { Action::Answer }
        })
    });
    testbed.start_work();
    testbed.send(offender, &bytes::query(4, 1, "ODD 1"));
    testbed.answered(offender, 1);
    testbed.check_bystanders();
    assert_eq!(faults(&testbed), 1, "the link with the wrong keyspace is given up");
    testbed.reset(offender);
    testbed.check_recovered();
}

#[test]
fn a_connection_closed_in_the_middle_of_an_answer() {
    let mut testbed = Testbed::new();
    let mut halves = 0;
    let hook = move |request: &Request<'_>| {
        if !is_query(request) {
            return Action::Answer;
        }
        halves += 1;
        match halves % 8 {
            6 => {
                let answer = framed(request, right(request), &[7; 500]);
                Action::Garbage(answer[..300].to_vec())
            }
            7 => Action::Close,
            _ => Action::Answer,
        }
    };
    testbed.scene.world.post(testbed.scene.nodes[0], StubMail::Hook(Some(Box::new(hook))));
    for _ in 0..5 {
        testbed.start_work();
        testbed.scene.wait_idle(60 * SECOND);
    }
    // Until the close comes, half an answer looks like a slow one.
    testbed.accept_errors();
    testbed.scene.hook(0, None);
    testbed.run_for(15 * SECOND);
    testbed.check_recovered();
}

/// Nodes forget statements whose table changes. Clients before version 5 decode rows by the columns
/// that PREPARE named, so they have to hear of it. `unprepared.rs` covers version 5.
#[test]
fn a_statement_whose_columns_have_changed() {
    const ID: [u8; 16] = *b"sixteen bytes id";
    let columns: [&[(&str, &[u8])]; 2] =
        [&[("v", native::TEXT)], &[("a", native::INT), ("v", native::TEXT)]];
    for version in 3..=4 {
        let mut testbed = Testbed::new();
        let offender = testbed.started_offender(version);
        let altered = Arc::new(AtomicBool::new(false));
        testbed.hook_all(|| {
            let (altered, mut known) = (Arc::clone(&altered), false);
            Box::new(move |request: &Request<'_>| {
                let altered = altered.load(Ordering::Relaxed);
                if request.opcode == opcode::PREPARE
                    && request.body.windows(5).any(|word| word == b"shape")
                {
                    known = altered;
                    let (id, result_metadata_id, bind) =
                        (&ID[..], &[u8::from(altered)][..], &[][..]);
                    let (partition_key, result) = (&[][..], columns[usize::from(altered)]);
                    let (keyspace, table) = ("bench", "shape");
                    let spec = PreparedSpec {
                        id,
                        result_metadata_id,
                        keyspace,
                        table,
                        bind,
                        partition_key,
                        result,
                    };
                    let answer =
                        bytes::body(|out| encode_result::prepared(out, request.version, &spec));
                    return Action::Garbage(framed(request, right(request), &answer));
                }
                let ours = request.opcode == opcode::EXECUTE
                    && request.body.windows(16).any(|word| word == ID);
                match (ours, altered == known) {
                    (false, _) => Action::Answer,
                    (true, true) => Action::Garbage(framed(request, right(request), &VOID)),
                    (true, false) => Action::Unprepared,
                }
            })
        });
        let mut ask = |request: Vec<u8>| {
            testbed.send(offender, &request);
            testbed.answered(offender, 1);
            testbed.take_answers(offender).remove(0)
        };
        let prepare = || bytes::prepare(version, 1, "SELECT * FROM bench.shape");
        let execute = || bytes::execute(version, 2, &ID, &[]);
        assert_eq!(ask(prepare()).header.opcode, opcode::RESULT);
        assert_eq!(ask(execute()).header.opcode, opcode::RESULT);
        altered.store(true, Ordering::Relaxed);
        let answer = ask(execute());
        assert_eq!(answer.error().0, error_code::UNPREPARED, "version {version}");
        assert_eq!(ask(prepare()).header.opcode, opcode::RESULT);
        // Each node says once that it does not know the statement, and learns it on the way.
        let mut refused = 0;
        for _ in 0..20 {
            let answer = ask(execute());
            refused += u32::from(answer.header.opcode == opcode::ERROR);
        }
        assert!(refused <= 2, "version {version}: {refused}");
        assert_eq!(ask(execute()).header.opcode, opcode::RESULT);
    }
}

#[test]
fn unprepared_for_ever() {
    for aggregate in [false, true] {
        let mut testbed = Testbed::with(|options| options.aggregate = vec![aggregate; 3]);
        testbed.hook_all(|| Box::new(|_| Action::Unprepared));
        let offender = testbed.started_offender(4);
        testbed.send(offender, &bytes::prepare(4, 1, "SELECT v FROM bench.kv WHERE k = ?"));
        testbed.answered(offender, 1);
        let id = testbed.take_answers(offender)[0].prepared().id;
        testbed.send(offender, &bytes::execute(4, 2, &id, &[b"key"]));
        testbed.answered(offender, 1);
        let (code, _) = testbed.take_answers(offender)[0].error();
        assert_eq!(
            code,
            shunt_wire::cql::message::error_code::UNPREPARED,
            "the truth, after enough attempts"
        );
        testbed.hook_all(|| hook::once(Action::Answer, |_| false));
        testbed.send(offender, &bytes::execute(4, 2, &id, &[b"key"]));
        testbed.answered(offender, 1);
        assert_eq!(testbed.scene.world.host(offender).last().header.opcode, opcode::RESULT);
        testbed.reset(offender);
        testbed.check_recovered();
    }
}
