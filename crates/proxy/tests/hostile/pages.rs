//! Pages of tables with node-local rows: they come from the node that began, or not at all.

use std::sync::{Arc, Mutex};

use shunt_bench::stub::Action;
use shunt_bench::stub::hook::Request;
use shunt_reactor::sim::{HostId, SECOND};
use shunt_testing::{Answer, bytes, simulated};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::encode_result::{self, PreparedSpec, native};
use shunt_wire::cql::message::{
    Consistency, Execute, Query, QueryParams, ResultMessage, encode, error_code,
};
use shunt_wire::cql::message::{put, result_kind};

use super::testbed::Testbed;

const ID: [u8; 16] = *b"sixteen bytes id";

/// A node's own paging state: its number, and the progress of the read.
fn own_state(node: usize, page: u8) -> Vec<u8> {
    vec![0xF0, node as u8, page]
}

/// Answers like a node with three pages of one row, its own number.
fn answer(request: &Request<'_>, mixed: &Mutex<u32>) -> Action {
    let has = |part: &[u8]| request.body.windows(part.len()).any(|found| found == part);
    let body = match request.opcode {
        opcode::PREPARE if has(b"clients") => bytes::body(|out| {
            let spec = PreparedSpec {
                id: &ID,
                result_metadata_id: &ID,
                keyspace: "system_views",
                table: "clients",
                bind: &[],
                partition_key: &[],
                result: &[("port", native::INT)],
            };
            encode_result::prepared(out, request.version, &spec);
        }),
        opcode::QUERY | opcode::EXECUTE if has(b"clients") || has(&ID) => {
            let params = match request.opcode {
                opcode::QUERY => Query::decode(request.version, request.body).unwrap().params,
                _ => Execute::decode(request.version, request.body).unwrap().params,
            };
            let page = match params.paging_state {
                None => 0,
                Some(&[0xF0, node, page]) => {
                    *mixed.lock().unwrap() += u32::from(usize::from(node) != request.node);
                    page
                }
                Some(_) => return Action::Error(error_code::PROTOCOL_ERROR),
            };
            bytes::body(|out| {
                put::int(out, result_kind::ROWS);
                // No metadata, and more pages.
                put::int(out, if page < 2 { 6 } else { 4 });
                put::int(out, 1);
                if page < 2 {
                    put::bytes(out, Some(&own_state(request.node, page + 1)));
                }
                put::int(out, 1);
                put::bytes(out, Some(&[request.node as u8]));
            })
        }
        _ => return Action::Answer,
    };
    let framed =
        bytes::envelope(Header::response(request.version, request.stream, opcode::RESULT), &body);
    Action::Garbage(bytes::framed(request.version, framed))
}

struct Reader {
    version: u8,
    host: HostId<simulated::Client>,
    /// The statement's text; `None` if it is prepared.
    text: Option<&'static str>,
}

impl Reader {
    fn ask(&self, testbed: &mut Testbed, request: Vec<u8>) -> Answer {
        testbed.send(self.host, &bytes::framed(self.version, request));
        testbed.answered(self.host, 1);
        testbed.take_answers(self.host).remove(0)
    }

    fn page(&self, testbed: &mut Testbed, state: Option<&[u8]>) -> Answer {
        let params = QueryParams {
            paging_state: state,
            page_size: Some(1),
            ..QueryParams::simple(Consistency::ONE)
        };
        let (op, body) = match self.text {
            Some(text) => {
                (opcode::QUERY, bytes::body(|out| encode::query(out, self.version, text, &params)))
            }
            None => {
                let write =
                    |out: &mut Vec<u8>| encode::execute(out, self.version, &ID, Some(&ID), &params);
                (opcode::EXECUTE, bytes::body(write))
            }
        };
        self.ask(testbed, bytes::request(self.version, 2, op, &body))
    }
}

/// The node of the row, and the paging state.
fn row(answer: &Answer) -> (u8, Option<Vec<u8>>) {
    match ResultMessage::decode(answer.header.version, &answer.body) {
        Ok(ResultMessage::Rows(rows)) => {
            let node = rows.rows().next().unwrap().unwrap().get(0).unwrap()[0];
            (node, rows.metadata.paging_state.map(<[u8]>::to_vec))
        }
        other => panic!("{other:?} {:?}", answer.error()),
    }
}

fn testbed() -> (Testbed, Arc<Mutex<u32>>) {
    let (mut testbed, mixed) = (Testbed::new(), Arc::new(Mutex::new(0)));
    let shared = Arc::clone(&mixed);
    testbed.hook_all(move || {
        let mixed = Arc::clone(&shared);
        Box::new(move |request| answer(request, &mixed))
    });
    (testbed, mixed)
}

#[test]
fn pages_come_from_the_node_that_began() {
    for (version, text) in [
        (3, Some("SELECT port FROM system_views.clients")),
        (4, Some("SELECT port FROM clients")),
        (5, Some("SELECT port FROM System_Views.\"clients\"")),
        (4, None),
        (5, None),
    ] {
        let (mut testbed, mixed) = testbed();
        let mut reader = Reader { version, host: testbed.started_offender(version), text };
        if text.is_some_and(|text| !text.contains('.')) {
            reader.ask(&mut testbed, bytes::query(version, 1, "USE system_views"));
        }
        if text.is_none() {
            reader.ask(
                &mut testbed,
                bytes::prepare(version, 1, "SELECT port FROM system_views.clients"),
            );
        }
        let mut began = [0; 3];
        for round in 0..12 {
            let (node, mut state) = row(&reader.page(&mut testbed, None));
            began[usize::from(node)] += 1;
            for _ in 0..2 {
                // Other queries in between, or other connections, do not matter.
                if round % 3 == 0 && text.is_none_or(|text| text.contains('.')) {
                    reader.host = testbed.started_offender(version);
                }
                let (of, next) = row(&reader.page(&mut testbed, state.as_deref()));
                assert_eq!((of, *mixed.lock().unwrap()), (node, 0), "version {version} {text:?}");
                state = next;
            }
            assert_eq!(state, None);
            for _ in 0..round % 2 {
                row(&reader.page(&mut testbed, None));
            }
        }
        assert!(
            began.iter().filter(|count| **count > 0).count() > 1,
            "reads begin on one node only: {began:?}"
        );
    }
}

#[test]
fn a_page_whose_node_is_gone_is_an_error() {
    for text in [Some("SELECT port FROM system_views.clients"), None] {
        let (mut testbed, mixed) = testbed();
        let reader = Reader { version: 4, host: testbed.started_offender(4), text };
        if text.is_none() {
            reader.ask(&mut testbed, bytes::prepare(4, 1, "SELECT port FROM system_views.clients"));
        }
        let (node, state) = row(&reader.page(&mut testbed, None));
        // The state is from another proxy's client, for example, or from an earlier release.
        let (code, why) = reader.page(&mut testbed, Some(&own_state(usize::from(node), 1))).error();
        assert!(
            code == error_code::INVALID && why.contains("begin the read again"),
            "{code:#x} {why}"
        );
        testbed.scene.world.kill(testbed.scene.nodes[usize::from(node)]);
        testbed.run_for(20 * SECOND);
        for _ in 0..6 {
            let (code, why) = reader.page(&mut testbed, state.as_deref()).error();
            let known = [error_code::INVALID, error_code::OVERLOADED].contains(&code);
            assert!(known && !why.contains("hook"), "{code:#x} {why}");
        }
        assert_eq!(*mixed.lock().unwrap(), 0);
        let (other, state) = row(&reader.page(&mut testbed, None));
        assert_ne!(other, node);
        assert_eq!(row(&reader.page(&mut testbed, state.as_deref())).0, other);
        testbed.reset(reader.host);
    }
}
