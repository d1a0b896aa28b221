//! Answers that are too long for one message.

use shunt_testing::{Answer, number};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{Consistency, QueryParams, encode};

use super::*;
use crate::limits::{ANSWER_BYTES_MAX, SELECTED_MAX};

/// Rows of the page, each with a text of this length.
const ROWS: usize = 40;
const TEXT_BYTES: usize = 1 << 10;

/// The slow queries: `stream` counts them. The last has a text that is longer.
pub(super) fn slow_queries() -> Vec<Value> {
    let row = |stream: usize| {
        let bytes = if stream == ROWS { 9 * TEXT_BYTES } else { TEXT_BYTES };
        json!({ "stream": stream, "text": "x".repeat(bytes) })
    };
    (0..=ROWS).map(row).collect()
}

/// A SELECT of one column as often as possible, and of `stream`.
fn statement(rest: &str) -> String {
    let aliases: Vec<_> = (1..SELECTED_MAX).map(|number| format!("digest AS d{number}")).collect();
    let aliases = aliases.join(", ");
    format!("SELECT stream, {aliases} FROM shunt_admin.slow_queries WHERE {rest}")
}

fn ask(client: &mut Client, version: u8, text: &str, paging_state: Option<&[u8]>) -> Answer {
    let mut body = Vec::new();
    let params = QueryParams { paging_state, ..QueryParams::simple(Consistency(1)) };
    encode::query(&mut body, version, text, &params);
    client.send(Header::request(version, 1, opcode::QUERY), &body);
    client.receive()
}

#[test]
fn a_long_result_comes_in_pages() {
    let server = Server::start(false);
    for version in [4, 5] {
        let mut client = server.client(version);
        let text = statement(&format!("stream < {ROWS}"));
        let (mut state, mut streams) = (None, Vec::new());
        loop {
            let answer = ask(&mut client, version, &text, state.as_deref());
            // The names and types of the columns come on top.
            assert!(answer.message().len() < ANSWER_BYTES_MAX + (4 << 10));
            streams.extend(answer.rows().iter().map(|row| number(row[0].as_ref())));
            state = answer.paging_state();
            if state.is_none() {
                break;
            }
        }
        let expected: Vec<_> = (0..ROWS as i64).map(Some).collect();
        assert_eq!(streams, expected);
    }
}

#[test]
fn a_row_that_is_too_long_is_refused() {
    let server = Server::start(false);
    let mut client = server.client(5);
    let refused = ask(&mut client, 5, &statement(&format!("stream = {ROWS}")), None);
    let (_, message) = refused.error();
    assert!(message.contains("select fewer columns"), "{message}");
    let text = format!("SELECT digest FROM shunt_admin.slow_queries WHERE stream = {ROWS}");
    let found = client.rows(&text);
    assert_eq!(found[0][0].as_ref().map(Vec::len), Some(9 * TEXT_BYTES));
}
