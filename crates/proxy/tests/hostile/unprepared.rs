//! Nodes that do not know a prepared statement: forgotten with a change of its table, pushed out of
//! a cache that is too small, or kept under another id. The proxy prepares it again, a few times at
//! most, and never hides from a client what only the client can mend.

use std::sync::{Arc, Mutex, MutexGuard};

use shunt_bench::stub::Action;
use shunt_bench::stub::hook::Request;
use shunt_reactor::sim::{HostId, SECOND};
use shunt_testing::{Answer, bytes, simulated};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::encode_result::{self, PreparedSpec, native};
use shunt_wire::cql::message::{
    BatchChild, BatchKind, BatchStatement, Consistency, QueryParams, Value, ValueList,
};
use shunt_wire::cql::message::{ErrorDetails, ErrorMessage, ResultMessage, encode, error_code};

use super::testbed::Testbed;

const ID: [u8; 16] = *b"sixteen bytes id";
const OTHER_ID: [u8; 16] = *b"made differently";
/// An empty RESULT.
const VOID: [u8; 4] = [0, 0, 0, 1];
/// Stands for a RESULT with all metadata, which v5 sends to a client with outdated metadata.
const METADATA: [u8; 5] = [0, 0, 0, 1, 1];

/// The state of one statement on three nodes, and the requests for it.
#[derive(Default)]
struct Known {
    /// Number of changes of its table.
    altered: u8,
    /// For each node, the value of `altered` when it prepared the statement; `None`: the node does
    /// not know it.
    as_of: [Option<u8>; 3],
    /// For each node, true if it forgets at once what it prepares.
    thrashes: [bool; 3],
    /// For each node, true if it makes another id of the same text.
    differs: [bool; 3],
    /// True if the table's key changes its type, too.
    bind_changes: bool,
    /// True if keyspace `gone` no longer exists.
    dropped: bool,
    prepares: [u32; 3],
    /// True if no PREPARE is answered.
    swallows: bool,
}

#[derive(Clone, Default)]
struct Nodes(Arc<Mutex<Known>>);

impl Nodes {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap()
    }

    fn settle(&self, testbed: &mut Testbed) {
        let nodes = self.clone();
        testbed.hook_all(move || {
            let nodes = nodes.clone();
            Box::new(move |request| nodes.known().answer(request))
        });
    }

    fn alter(&self) {
        self.known().altered += 1;
    }

    fn forget(&self) {
        self.known().as_of = [None; 3];
    }

    /// PREPAREs of the statement since the last call, by node.
    fn prepares(&self) -> [u32; 3] {
        std::mem::take(&mut self.known().prepares)
    }
}

impl Known {
    fn answer(&mut self, request: &Request<'_>) -> Action {
        let has = |part: &[u8]| request.body.windows(part.len()).any(|found| found == part);
        match request.opcode {
            opcode::PREPARE if has(b"shape") => self.prepare(request),
            opcode::EXECUTE | opcode::BATCH if has(&ID) || has(&OTHER_ID) => self.execute(request),
            opcode::QUERY if self.dropped && has(b"USE \"gone\"") => {
                Action::Error(error_code::INVALID)
            }
            _ => Action::Answer,
        }
    }

    fn prepare(&mut self, request: &Request<'_>) -> Action {
        self.prepares[request.node] += 1;
        if self.swallows {
            return Action::Silence;
        }
        self.as_of[request.node] = (!self.thrashes[request.node]).then_some(self.altered);
        let two = [("a", native::INT), ("v", native::TEXT)];
        let key = if self.bind_changes && self.altered > 0 { native::TEXT } else { native::INT };
        let spec = PreparedSpec {
            id: if self.differs[request.node] { &OTHER_ID } else { &ID },
            result_metadata_id: &[self.altered; 4],
            keyspace: "bench",
            table: "shape",
            bind: &[("k", key)],
            partition_key: &[0],
            result: if self.altered > 0 { &two } else { &two[1..] },
        };
        framed(
            request,
            opcode::RESULT,
            &bytes::body(|out| encode_result::prepared(out, request.version, &spec)),
        )
    }

    fn execute(&mut self, request: &Request<'_>) -> Action {
        let id = if self.differs[request.node] { &OTHER_ID } else { &ID };
        let knows = request.body.windows(16).any(|found| found == id);
        if !knows || self.as_of[request.node] != Some(self.altered) {
            let asked =
                if request.body.windows(16).any(|found| found == ID) { &ID } else { &OTHER_ID };
            let details = ErrorDetails::Unprepared { id: asked };
            let error = ErrorMessage {
                code: error_code::UNPREPARED,
                message: "never heard of it",
                details,
            };
            return framed(
                request,
                opcode::ERROR,
                &bytes::body(|out| error.put(out, request.version)),
            );
        }
        let is_told = request.version >= 5 && request.opcode == opcode::EXECUTE;
        let stale = is_told
            && !request.body[18..].starts_with(&[0, 4, self.altered, self.altered, self.altered]);
        framed(request, opcode::RESULT, if stale { &METADATA } else { &VOID })
    }
}

fn framed(request: &Request<'_>, op: u8, body: &[u8]) -> Action {
    let answer = bytes::envelope(Header::response(request.version, request.stream, op), body);
    Action::Garbage(bytes::framed(request.version, answer))
}

/// A client of one protocol version in front of nodes that know the statement.
struct Client {
    version: u8,
    host: HostId<simulated::Client>,
    id: Vec<u8>,
    metadata_id: Vec<u8>,
    key: i32,
}

impl Client {
    fn new(testbed: &mut Testbed, version: u8) -> Client {
        let host = testbed.started_offender(version);
        Client { version, host, id: Vec::new(), metadata_id: Vec::new(), key: 0 }
    }

    fn ask(&self, testbed: &mut Testbed, request: Vec<u8>) -> Answer {
        testbed.send(self.host, &bytes::framed(self.version, request));
        testbed.answered(self.host, 1);
        testbed.take_answers(self.host).remove(0)
    }

    fn prepare(&mut self, testbed: &mut Testbed, text: &str) {
        let answer = self.ask(testbed, bytes::prepare(self.version, 1, text));
        match ResultMessage::decode(self.version, &answer.body) {
            Ok(ResultMessage::Prepared(prepared)) => {
                self.id = prepared.id.to_vec();
                self.metadata_id = prepared.result_metadata_id.unwrap_or_default().to_vec();
            }
            other => panic!("{other:?}"),
        }
    }

    /// Sends EXECUTE, each time with another key; returns the body of the RESULT, or the code of
    /// the ERROR.
    fn execute(&mut self, testbed: &mut Testbed) -> Result<Vec<u8>, i32> {
        self.key += 1;
        let key = self.key.to_be_bytes();
        let mut values = ValueList::positional(self.version);
        values.push(Value::Bytes(&key));
        let params =
            QueryParams { values: values.values(), ..QueryParams::simple(Consistency::ONE) };
        let metadata_id = Some(&self.metadata_id[..]);
        let body =
            bytes::body(|out| encode::execute(out, self.version, &self.id, metadata_id, &params));
        outcome(&self.ask(testbed, bytes::request(self.version, 2, opcode::EXECUTE, &body)))
    }

    fn batch(&self, testbed: &mut Testbed) -> Result<Vec<u8>, i32> {
        let mut values = ValueList::positional(self.version);
        values.push(Value::Bytes(&[0, 0, 0, 7]));
        let child =
            BatchChild { statement: BatchStatement::Prepared(&self.id), values: values.values() };
        let params = QueryParams::simple(Consistency::ONE);
        let body = bytes::body(|out| {
            encode::batch(out, self.version, BatchKind::Unlogged, [child], &params)
        });
        outcome(&self.ask(testbed, bytes::request(self.version, 3, opcode::BATCH, &body)))
    }
}

fn outcome(answer: &Answer) -> Result<Vec<u8>, i32> {
    match answer.header.opcode {
        opcode::ERROR => Err(answer.error().0),
        _ => Ok(answer.body.clone()),
    }
}

const SELECT: &str = "SELECT * FROM bench.shape WHERE k = ?";
const INSERT: &str = "INSERT INTO bench.shape (k, v) VALUES (?, 'v')";
/// A statement for the keyspace that is dropped.
const UNQUALIFIED: &str = "INSERT INTO shape (k, v) VALUES (?, 'v')";

fn scene() -> (Testbed, Nodes) {
    let (mut testbed, nodes) = (Testbed::new(), Nodes::default());
    nodes.settle(&mut testbed);
    (testbed, nodes)
}

/// Otherwise the rows of each answer would carry all metadata for ever: drivers learn a new id only
/// by preparing again.
#[test]
fn a_client_whose_metadata_are_out_of_date_is_asked_to_prepare() {
    let (mut testbed, nodes) = scene();
    let (mut client, mut other) = (Client::new(&mut testbed, 5), Client::new(&mut testbed, 5));
    client.prepare(&mut testbed, SELECT);
    other.prepare(&mut testbed, SELECT);
    assert_eq!(client.execute(&mut testbed), Ok(VOID.to_vec()));
    nodes.alter();
    assert_eq!(client.execute(&mut testbed), Err(error_code::UNPREPARED));
    client.prepare(&mut testbed, SELECT);
    assert_eq!(client.metadata_id, [1; 4]);
    for _ in 0..20 {
        assert_eq!(client.execute(&mut testbed), Ok(VOID.to_vec()), "to be asked once is enough");
    }
    // A client that has not prepared it again gets rows with all metadata, or is asked to.
    for _ in 0..20 {
        match other.execute(&mut testbed) {
            Ok(body) => assert_eq!(body, METADATA),
            Err(code) => assert_eq!(code, error_code::UNPREPARED),
        }
        assert_eq!(client.execute(&mut testbed), Ok(VOID.to_vec()));
    }
    other.prepare(&mut testbed, SELECT);
    assert_eq!(other.execute(&mut testbed), Ok(VOID.to_vec()));
    // The node forgot it without a change: no client needs to know.
    nodes.forget();
    for _ in 0..20 {
        assert_eq!(
            (client.execute(&mut testbed), other.execute(&mut testbed)),
            (Ok(VOID.to_vec()), Ok(VOID.to_vec()))
        );
    }
}

/// Values for the old types would be taken for values of the new ones.
#[test]
fn bind_markers_of_another_type_are_no_secret_in_a_batch_either() {
    for version in 3..=5 {
        let (mut testbed, nodes) = scene();
        nodes.known().bind_changes = true;
        let mut client = Client::new(&mut testbed, version);
        client.prepare(&mut testbed, INSERT);
        assert_eq!(client.batch(&mut testbed), Ok(VOID.to_vec()));
        nodes.alter();
        assert_eq!(client.batch(&mut testbed), Err(error_code::UNPREPARED), "version {version}");
        client.prepare(&mut testbed, INSERT);
        let refused = (0..20).filter(|_| client.batch(&mut testbed).is_err()).count();
        assert!(refused <= 2, "once per node: {refused}");
    }
}

#[test]
fn a_node_that_keeps_nothing_is_not_asked_for_ever() {
    for version in 3..=5 {
        let (mut testbed, nodes) = scene();
        let mut client = Client::new(&mut testbed, version);
        client.prepare(&mut testbed, SELECT);
        nodes.known().thrashes[0] = true;
        nodes.forget();
        for _ in 0..30 {
            nodes.prepares();
            assert_eq!(client.execute(&mut testbed), Ok(VOID.to_vec()), "the others keep it");
            let asked = nodes.prepares();
            assert!(
                asked[0] <= 2 && asked.iter().sum::<u32>() <= 3,
                "PREPAREs for one query: {asked:?}"
            );
        }
        nodes.known().thrashes = [true; 3];
        nodes.forget();
        nodes.prepares();
        assert_eq!(client.execute(&mut testbed), Err(error_code::UNPREPARED));
        let asked = nodes.prepares();
        assert!(asked.iter().sum::<u32>() <= 4, "PREPAREs for one query: {asked:?}");
    }
}

#[test]
fn a_node_that_makes_another_id_is_not_asked_twice() {
    let (mut testbed, nodes) = scene();
    let mut client = Client::new(&mut testbed, 4);
    client.prepare(&mut testbed, SELECT);
    assert_eq!(client.id, ID);
    nodes.known().differs[0] = true;
    for _ in 0..30 {
        nodes.prepares();
        assert_eq!(
            client.execute(&mut testbed),
            Ok(VOID.to_vec()),
            "the others know it by this id"
        );
        let asked = nodes.prepares();
        assert!(asked[0] <= 1, "PREPAREs for one query: {asked:?}");
    }
    nodes.known().differs = [true; 3];
    assert_eq!(client.execute(&mut testbed), Err(error_code::UNPREPARED));
    client.prepare(&mut testbed, SELECT);
    assert_eq!(client.id, OTHER_ID);
    assert_eq!(client.execute(&mut testbed), Ok(VOID.to_vec()));
}

/// A client prepared the statement in a keyspace that is gone now.
fn prepared_in_a_dropped_keyspace(text: &str) -> (Testbed, Nodes, Client) {
    let (mut testbed, nodes) = scene();
    let mut client = Client::new(&mut testbed, 4);
    let used = bytes::query(4, 1, "USE gone");
    assert_eq!(client.ask(&mut testbed, used).header.opcode, opcode::RESULT);
    client.prepare(&mut testbed, text);
    testbed.reset(client.host);
    testbed.run_for(200 * SECOND);
    client.host = testbed.started_offender(4);
    nodes.known().dropped = true;
    nodes.forget();
    (testbed, nodes, client)
}

#[test]
fn a_statement_of_a_dropped_keyspace_is_unprepared_and_not_late() {
    let (mut testbed, _nodes, mut client) = prepared_in_a_dropped_keyspace(UNQUALIFIED);
    for _ in 0..5 {
        assert_eq!(client.execute(&mut testbed), Err(error_code::UNPREPARED));
    }
    testbed.reset(client.host);
    testbed.check_recovered();
}

#[test]
fn a_statement_that_names_its_keyspace_needs_none() {
    let (mut testbed, nodes, mut client) = prepared_in_a_dropped_keyspace(INSERT);
    for _ in 0..5 {
        nodes.forget();
        assert_eq!(client.execute(&mut testbed), Ok(VOID.to_vec()));
    }
    testbed.reset(client.host);
    testbed.check_recovered();
}

#[test]
fn requests_that_wait_for_a_node_to_prepare_have_a_bound_in_bytes() {
    let (mut testbed, nodes) = scene();
    let [mut client, mut other] = [4, 4].map(|version| Client::new(&mut testbed, version));
    client.prepare(&mut testbed, INSERT);
    other.prepare(&mut testbed, INSERT);
    nodes.known().swallows = true;
    nodes.forget();
    let value = vec![7; 512 << 10];
    (0..64).for_each(|stream| {
        testbed.send(client.host, &bytes::execute(4, stream, &ID, &[&[0, 0, 0, 1], &value]))
    });
    // Long before their deadline.
    testbed.run_for(SECOND);
    let answers = testbed.take_answers(client.host);
    assert_eq!(answers.len(), 64 - 15, "15 of them take less than 8 MiB");
    assert!(answers.iter().all(|answer| answer.error().0 == error_code::UNPREPARED));
    // Requests of others wait, and go on when nodes do.
    testbed.send(other.host, &bytes::execute(4, 1, &ID, &[&[0, 0, 0, 1], b"v"]));
    testbed.run_for(SECOND / 4);
    assert_eq!(testbed.take_answers(other.host).len(), 0);
    nodes.known().swallows = false;
    testbed.answered(client.host, 15);
    testbed.answered(other.host, 1);
    let waited = testbed.take_answers(client.host);
    assert!(
        waited.iter().all(|answer| answer.error().0 == error_code::UNPREPARED),
        "no node has answered PREPARE"
    );
}
