//! SELECT end to end: statements in, rows as literals out, on three nodes sharing the data.

mod aggregates;
mod cassandra;
mod indexes;
mod intervals;
mod pages;
mod refused;
mod rows;
mod selectors;

use std::net::SocketAddr;
use std::sync::Arc;

use shunt_language::types::CqlType;
use shunt_language::values::literal;
use shunt_storage::store::StoreOptions;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::values::{Value, ValueList};
use shunt_wire::cql::message::{
    Consistency, QueryParams, Reader, ResultMessage, encode, query_flag, split_response_prefix,
};

use crate::cluster::ClusterInfo;
use crate::execute::{ClientState, Executor, Request};
use crate::shared::Shared;

pub(in crate::execute) const VERSION: u8 = 5;

/// A process with three nodes.
pub(in crate::execute) struct Nodes {
    pub(in crate::execute) executor: Executor,
    pub(in crate::execute) client: ClientState,
    _directory: tempfile::TempDir,
}

/// A page of a result.
#[derive(Debug, Default)]
struct Answer {
    names: Vec<String>,
    types: Vec<String>,
    /// Rows as literals.
    rows: Vec<String>,
    state: Option<Vec<u8>>,
}

/// Options of a query besides its text.
#[derive(Default)]
struct Asked<'a> {
    values: &'a [Option<&'a [u8]>],
    page_size: Option<i32>,
    state: Option<&'a [u8]>,
    level: Option<Consistency>,
    serial: Option<Consistency>,
}

impl Nodes {
    pub(in crate::execute) fn new(statements: &[&str]) -> Nodes {
        let directory = tempfile::tempdir().expect("a directory");
        let addresses: Vec<SocketAddr> =
            (1..=3).map(|index| SocketAddr::from(([127, 0, 0, index], 9042))).collect();
        let info = ClusterInfo::new("test", &addresses);
        let shared =
            Shared::open(directory.path(), info, &StoreOptions::default()).expect("stores");
        let executor = Executor::new(Arc::new(shared), 1);
        let mut nodes = Nodes { executor, client: ClientState::default(), _directory: directory };
        let keyspace = "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
        nodes.all(&[keyspace, "USE k"]);
        nodes.all(statements);
        nodes
    }

    fn all(&mut self, statements: &[&str]) {
        for statement in statements {
            self.ask(statement, &Asked::default()).expect(statement);
        }
    }

    /// Executes a query; returns the message of an error.
    fn ask(&mut self, text: &str, asked: &Asked<'_>) -> Result<Answer, String> {
        let mut list = ValueList::positional(VERSION);
        for value in asked.values {
            list.push(value.map_or(Value::Null, Value::Bytes));
        }
        let mut params = QueryParams::simple(asked.level.unwrap_or(Consistency::ONE));
        params.flags |= query_flag::VALUES;
        if asked.serial.is_some() {
            params.flags |= query_flag::SERIAL_CONSISTENCY;
        }
        params.serial_consistency = asked.serial;
        params.values = list.values();
        if asked.page_size.is_some() {
            params.flags |= query_flag::PAGE_SIZE;
        }
        if asked.state.is_some() {
            params.flags |= query_flag::PAGING_STATE;
        }
        (params.page_size, params.paging_state) = (asked.page_size, asked.state);
        let mut body = Vec::new();
        encode::query(&mut body, VERSION, text, &params);
        let request = Request { version: VERSION, flags: 0, opcode: opcode::QUERY, body: &body };
        let mut out = Vec::new();
        let done = self.executor.execute(&mut self.client, &request, &mut out);
        let (_, message) = split_response_prefix(done.flags, &out).expect("a prefix");
        if done.opcode == opcode::ERROR {
            let mut reader = Reader::new(message);
            reader.int("code").expect("a code");
            return Err(reader.string("message").expect("a message").to_owned());
        }
        Ok(answer(message))
    }

    /// All rows in one line.
    pub(in crate::execute) fn rows(&mut self, text: &str) -> String {
        match self.ask(text, &Asked::default()) {
            Ok(answer) => answer.rows.join("; "),
            Err(message) => format!("error: {message}"),
        }
    }

    /// Checks statements and their rows.
    fn check(&mut self, cases: &[(&str, &str)]) {
        for (text, expected) in cases {
            assert_eq!(self.rows(text), *expected, "{text}");
        }
    }

    /// Sorted, as the rows have no order.
    fn check_sorted(&mut self, cases: &[(&str, &str)]) {
        for (text, expected) in cases {
            let mut answer = self.ask(text, &Asked::default()).expect(text);
            answer.rows.sort();
            assert_eq!(answer.rows.join("; "), *expected, "{text}");
        }
    }

    /// Reads all pages; returns the rows and the number of pages.
    fn pages(&mut self, text: &str, page_size: i32) -> (Vec<String>, usize) {
        let (mut rows, mut state, mut pages) = (Vec::new(), None, 0);
        loop {
            let asked =
                Asked { page_size: Some(page_size), state: state.as_deref(), ..Asked::default() };
            let answer = self.ask(text, &asked).expect(text);
            assert!(answer.rows.len() <= page_size as usize, "{text}");
            rows.extend(answer.rows);
            pages += 1;
            state = answer.state;
            if state.is_none() {
                return (rows, pages);
            }
            assert!(pages < 1000, "{text} never ends");
        }
    }
}

fn answer(body: &[u8]) -> Answer {
    let ResultMessage::Rows(found) = ResultMessage::decode(VERSION, body).expect("a result") else {
        return Answer::default();
    };
    let option = |mut bytes: &[u8]| CqlType::read_option(&mut bytes).expect("a type");
    let types: Vec<CqlType> =
        found.metadata.columns().map(|column| option(column.type_option)).collect();
    let shown = |row: shunt_wire::cql::message::Row<'_>| {
        let values = row.values().zip(&types).map(|(value, cql_type)| match value {
            Some(bytes) => literal(cql_type, bytes),
            None => "null".to_owned(),
        });
        values.collect::<Vec<_>>().join(", ")
    };
    Answer {
        names: found.metadata.columns().map(|column| column.name.to_owned()).collect(),
        types: types.iter().map(CqlType::to_string).collect(),
        rows: found.rows().map(|row| shown(row.expect("a row"))).collect(),
        state: found.metadata.paging_state.map(<[u8]>::to_vec),
    }
}
