//! A CQL client, protocol v4, that sends several statements at once and survives the death of whom it talks to.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use shunt_wire::cql::envelope::{self, HEADER_BYTES, Header, opcode};
use shunt_wire::cql::message::{Consistency, ErrorMessage, ResultMessage, encode, split_response_prefix};

/// Longest wait for an answer; only a broken node reaches it.
const GUARD: Duration = Duration::from_secs(60);

/// What a statement was answered with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// Rows, or none; values as they came.
    Rows(Vec<Vec<Option<Vec<u8>>>>),
    /// The node's words.
    Error(String),
}

impl Answer {
    /// Rows; an error is a failed test.
    pub(crate) fn rows(self) -> Vec<Vec<Option<Vec<u8>>>> {
        match self {
            Answer::Rows(rows) => rows,
            Answer::Error(why) => panic!("refused: {why}"),
        }
    }

    /// The words of an error.
    pub(crate) fn error(&self) -> Option<&str> {
        match self {
            Answer::Rows(_) => None,
            Answer::Error(why) => Some(why),
        }
    }
}

pub(crate) struct Client(TcpStream);

impl Client {
    /// `None` if nobody is there, or not any more.
    pub(crate) fn try_connect(address: SocketAddr) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(GUARD)).ok()?;
        stream.set_nodelay(true).ok()?;
        let mut client = Self(stream);
        let mut out = Vec::new();
        envelope::append(&mut out, Header::request(4, 0, opcode::STARTUP), |body: &mut Vec<u8>| {
            encode::startup(body, [("CQL_VERSION", "3.0.0")]);
        });
        client.0.write_all(&out).ok()?;
        let (header, _) = client.receive()?;
        assert_eq!(header.opcode, opcode::READY);
        Some(client)
    }

    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).expect("connect")
    }

    /// Sends a statement and takes its answer; no answer is a failed test.
    pub(crate) fn ask(&mut self, text: &str) -> Answer {
        self.volley(&[text.to_owned()]).remove(0).unwrap_or_else(|| panic!("no answer to {text}"))
    }

    /// As `ask`, and an error is a failed test.
    pub(crate) fn rows(&mut self, text: &str) -> Vec<Vec<Option<Vec<u8>>>> {
        match self.ask(text) {
            Answer::Rows(rows) => rows,
            Answer::Error(why) => panic!("{text}: {why}"),
        }
    }

    /// Sends statements at once and takes their answers; `None` for those that never came.
    pub(crate) fn volley(&mut self, statements: &[String]) -> Vec<Option<Answer>> {
        let mut out = Vec::new();
        for (stream, text) in statements.iter().enumerate() {
            let header = Header::request(4, stream as i16, opcode::QUERY);
            envelope::append(&mut out, header, |body: &mut Vec<u8>| {
                encode::query_simple(body, 4, text, Consistency::ONE);
            });
        }
        let mut answers = vec![None; statements.len()];
        if self.0.write_all(&out).is_err() {
            // What was sent before may have been carried out all the same.
            return answers;
        }
        for _ in statements {
            let Some((header, body)) = self.receive() else { break };
            let answer = &mut answers[header.stream as usize];
            assert!(answer.is_none(), "a second answer to {}", statements[header.stream as usize]);
            let (_, body) = split_response_prefix(header.flags, &body).expect("warnings");
            *answer = Some(decode(header.opcode, body));
        }
        answers
    }

    fn receive(&mut self) -> Option<(Header, Vec<u8>)> {
        let mut header = [0; HEADER_BYTES];
        self.0.read_exact(&mut header).ok()?;
        let header = Header::decode(&header)?;
        let mut body = vec![0; header.length as usize];
        self.0.read_exact(&mut body).ok()?;
        Some((header, body))
    }
}

fn decode(opcode: u8, body: &[u8]) -> Answer {
    if opcode == opcode::ERROR {
        return Answer::Error(ErrorMessage::decode(4, body).expect("an error").message.to_owned());
    }
    assert_eq!(opcode, opcode::RESULT);
    match ResultMessage::decode(4, body).expect("a result") {
        ResultMessage::Rows(rows) => {
            let row = |row: Result<shunt_wire::cql::message::Row<'_>, _>| {
                row.expect("a row").values().map(|value| value.map(<[u8]>::to_vec)).collect()
            };
            Answer::Rows(rows.rows().map(row).collect())
        }
        _ => Answer::Rows(Vec::new()),
    }
}

/// A value of type int, bigint or counter.
pub(crate) fn number(value: Option<&Vec<u8>>) -> Option<i64> {
    let value = value?;
    match value.len() {
        4 => value.as_slice().try_into().ok().map(|bytes| i64::from(i32::from_be_bytes(bytes))),
        _ => value.as_slice().try_into().ok().map(i64::from_be_bytes),
    }
}
