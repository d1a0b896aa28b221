//! Prepared statements on locks that are forgotten while a request with them waits for permission:
//! clients are asked to prepare them again, which drivers do by themselves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use shunt_bench::stub::Action;
use shunt_proxy::config::Secret;
use shunt_reactor::sim::HostId;
use shunt_testing::{Answer, bytes, simulated};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::encode_result::{self, PreparedSpec, native};
use shunt_wire::cql::message::{
    BatchChild, BatchKind, BatchStatement, Consistency, QueryParams, ValueList,
};
use shunt_wire::cql::message::{ErrorDetails, encode, error_code};

use super::lock_ring::{LockTestbed, hook};

const TAKE: &str =
    "INSERT INTO shunt.fast_locks (name, owner) VALUES ('a', 'me') IF NOT EXISTS USING TTL 20";
const TAKE_ID: [u8; 16] = *b"the lock's names";
/// Bytes of the names of a huge statement's markers, each of which is kept.
const NAME_BYTES: usize = 60_000;
const MARKERS: u16 = 16;
/// Number of huge statements that pushes out a once-executed one twice over.
const HUGE: usize = 240;

/// The RESULT of a PREPARE: of the lock, or of a statement that takes a megabyte to remember.
fn prepared(version: u8, id: [u8; 16]) -> Vec<u8> {
    let name = "n".repeat(NAME_BYTES);
    let bind =
        vec![(name.as_str(), native::TEXT); if id == TAKE_ID { 0 } else { usize::from(MARKERS) }];
    let key: Vec<u16> = (0..bind.len() as u16).collect();
    let spec = PreparedSpec {
        id: &id,
        result_metadata_id: &[],
        keyspace: "bench",
        table: "kv",
        bind: &bind,
        partition_key: &key,
        result: &[],
    };
    bytes::body(|out| encode_result::prepared(out, version, &spec))
}

/// Nodes that prepare everything, and do not answer about permissions while told not to.
fn ring(says_nothing: &Arc<AtomicBool>) -> LockTestbed {
    let mut ring = LockTestbed::new(|options| {
        options.credentials = vec![("ann".to_owned(), "secret".to_owned())];
        options.config.username = Some("ann".to_owned());
        options.config.password = Some(Secret::new("secret"));
        options.config.auth_cache_ms = 0;
    });
    let (tables, says_nothing) = (Arc::clone(&ring.tables), Arc::clone(says_nothing));
    let made = Arc::new(Mutex::new(0_u128));
    ring.testbed.hook_all(move || {
        let (mut inner, says_nothing, made) =
            (hook(&tables), Arc::clone(&says_nothing), Arc::clone(&made));
        Box::new(move |request| {
            let has = |text: &[u8]| request.body.windows(text.len()).any(|part| part == text);
            if request.opcode == opcode::QUERY
                && has(b"WHERE name IN ()")
                && says_nothing.load(Ordering::Relaxed)
            {
                return Action::Silence;
            }
            if request.opcode != opcode::PREPARE {
                return inner(request);
            }
            let mut made = made.lock().unwrap();
            *made += 1;
            let id = if has(b"shunt.fast_locks") { TAKE_ID } else { made.to_be_bytes() };
            let body = prepared(request.version, id);
            let header = Header::response(request.version, request.stream, opcode::RESULT);
            Action::Garbage(bytes::envelope(header, &body))
        })
    });
    ring
}

fn take(ring: &mut LockTestbed, client: HostId<simulated::Client>, request: &[u8]) -> Answer {
    ring.testbed.send(client, request);
    ring.testbed.answered(client, 1);
    ring.testbed.take_answers(client).remove(0)
}

fn batch() -> Vec<u8> {
    let none = ValueList::positional(4);
    let child = BatchChild { statement: BatchStatement::Prepared(&TAKE_ID), values: none.values() };
    let params = QueryParams::simple(Consistency::ONE);
    let body = bytes::body(|out| encode::batch(out, 4, BatchKind::Unlogged, [child], &params));
    bytes::request(4, 2, opcode::BATCH, &body)
}

#[test]
fn a_statement_that_is_forgotten_while_its_request_waits_is_prepared_again() {
    let says_nothing = Arc::new(AtomicBool::new(false));
    let mut ring = ring(&says_nothing);
    let [client, other] = [0, 1].map(|_| ring.client(Some(("ann", "secret"))));
    assert_eq!(take(&mut ring, client, &bytes::prepare(4, 1, TAKE)).prepared().id, TAKE_ID);
    assert_eq!(
        take(&mut ring, client, &bytes::execute(4, 1, &TAKE_ID, &[])).rows()[0][0].as_deref(),
        Some(&[1][..])
    );

    says_nothing.store(true, Ordering::Relaxed);
    ring.testbed.send(client, &bytes::execute(4, 1, &TAKE_ID, &[]));
    ring.testbed.send(client, &batch());
    for number in 0..HUGE {
        let text = format!("SELECT v FROM bench.kv WHERE k = {number}");
        assert_eq!(take(&mut ring, other, &bytes::prepare(4, 1, &text)).opcode(), opcode::RESULT);
    }
    says_nothing.store(false, Ordering::Relaxed);
    ring.testbed.answered(client, 2);
    let mut answers = ring.testbed.take_answers(client);
    answers.sort_by_key(Answer::stream);
    for answer in &answers {
        let error = answer.error_message();
        assert_eq!(error.code, error_code::UNPREPARED, "{}", error.message);
        assert!(
            matches!(error.details, ErrorDetails::Unprepared { id } if id == TAKE_ID),
            "{error:?}"
        );
    }

    // A driver has to do no more than this.
    take(&mut ring, client, &bytes::prepare(4, 1, TAKE));
    let again = take(&mut ring, client, &bytes::execute(4, 1, &TAKE_ID, &[]));
    assert_eq!(again.rows()[0][0].as_deref(), Some(&[0][..]), "it is held since the first");
}
