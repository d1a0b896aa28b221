//! DESCRIBE by a client: with QUERY, and prepared, in each version of the protocol.

use std::sync::Arc;

use shunt_storage::store::StoreOptions;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::{
    Consistency, ErrorMessage, Prepared, QueryParams, ResultMessage, encode, error_code,
    result_kind,
};

use super::cluster;
use crate::execute::{ClientState, Executor, Request};
use crate::shared::Shared;

/// A client of the first node.
struct Client {
    executor: Executor,
    state: ClientState,
    version: u8,
}

impl Client {
    fn ask(&mut self, opcode: u8, body: &[u8]) -> (u8, Vec<u8>) {
        let mut out = Vec::new();
        let request = Request { version: self.version, flags: 0, opcode, body };
        let done = self.executor.execute(&mut self.state, &request, &mut out);
        (done.opcode, out)
    }

    fn query(&mut self, text: &str) -> (u8, Vec<u8>) {
        let mut body = Vec::new();
        encode::query_simple(&mut body, self.version, text, Consistency::ONE);
        self.ask(opcode::QUERY, &body)
    }

    /// Prepares and executes.
    fn prepared(&mut self, text: &str) -> (u8, Vec<u8>) {
        let mut body = Vec::new();
        encode::prepare(&mut body, self.version, text, None);
        let (_, answer) = self.ask(opcode::PREPARE, &body);
        let Ok(ResultMessage::Prepared(Prepared { id, result_metadata_id, .. })) =
            ResultMessage::decode(self.version, &answer)
        else {
            panic!("{text}: not prepared");
        };
        body.clear();
        encode::execute(
            &mut body,
            self.version,
            id,
            result_metadata_id,
            &QueryParams::simple(Consistency::ONE),
        );
        self.ask(opcode::EXECUTE, &body)
    }
}

/// The names in an answer with rows.
fn names(version: u8, (opcode, body): &(u8, Vec<u8>)) -> Vec<String> {
    assert_eq!((*opcode, result_kind::peek(body)), (opcode::RESULT, Some(result_kind::ROWS)));
    let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(version, body) else {
        panic!("no rows")
    };
    let name = rows.metadata.column_index("name").unwrap();
    rows.rows()
        .map(|row| String::from_utf8(row.unwrap().get(name).unwrap().to_vec()).unwrap())
        .collect()
}

#[test]
fn clients_are_answered() {
    let directory = tempfile::tempdir().unwrap();
    let open =
        || Arc::new(Shared::open(directory.path(), cluster(), &StoreOptions::default()).unwrap());
    let client = |shared: Arc<Shared>, version| {
        let executor = Executor::new(shared, 0);
        Client { executor, state: ClientState::default(), version }
    };
    let mut first = client(open(), 5);
    for statement in [
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "USE k",
        "CREATE TYPE point (x int)",
        "CREATE TABLE t (p int PRIMARY KEY, v point)",
    ] {
        assert_eq!(first.query(statement).0, opcode::RESULT, "{statement}");
    }
    drop(first);
    // The schema is restored by a restart.
    let shared = open();
    for version in [4, 5] {
        let mut client = client(Arc::clone(&shared), version);
        assert!(names(version, &client.query("DESCRIBE TABLES")).len() > 15);
        let (opcode, body) = client.query("DESCRIBE TABLE t");
        let error = ErrorMessage::decode(version, &body).unwrap();
        assert_eq!((opcode, error.code), (opcode::ERROR, error_code::INVALID));
        assert_eq!(error.message, "No keyspace specified and no current keyspace");
        assert_eq!(client.query("USE k").0, opcode::RESULT);
        for (text, expected) in [
            ("DESCRIBE TABLES", &["t"][..]),
            ("DESCRIBE KEYSPACE", &["k", "point", "t"]),
            ("DESC t", &["t"]),
            ("DESC FUNCTIONS", &[]),
        ] {
            assert_eq!(names(version, &client.query(text)), expected, "{text}");
            assert_eq!(names(version, &client.prepared(text)), expected, "{text}, prepared");
        }
    }
}
