//! Answers of a server and their content for tests. An answer of an unexpected kind fails the test.

use shunt_wire::aggregate::{AggregateReader, Entry};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{
    ErrorMessage, Prepared, ResponsePrefix, ResultMessage, Row, Rows as EncodedRows,
    split_response_prefix,
};

/// Values of all rows, unchanged.
pub type Rows = Vec<Vec<Option<Vec<u8>>>>;

/// A value of type int, bigint or counter; `None` if it is null or of another length.
pub fn number(value: Option<&Vec<u8>>) -> Option<i64> {
    let value = value?;
    match value.len() {
        4 => value.as_slice().try_into().ok().map(|bytes| i64::from(i32::from_be_bytes(bytes))),
        _ => value.as_slice().try_into().ok().map(i64::from_be_bytes),
    }
}

/// One envelope from a server: an answer or an event, its body uncompressed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    /// Header as received.
    pub header: Header,
    /// Body with tracing id, warnings and custom payload, if the header announces them.
    pub body: Vec<u8>,
}

impl Answer {
    /// One of [`shunt_wire::cql::envelope::opcode`].
    pub fn opcode(&self) -> u8 {
        self.header.opcode
    }

    /// Id of the answered request.
    pub fn stream(&self) -> i16 {
        self.header.stream
    }

    fn split(&self) -> (ResponsePrefix<'_>, &[u8]) {
        split_response_prefix(self.header.flags, &self.body)
            .expect("tracing id, warnings or payload of an answer")
    }

    /// Tracing id, warnings and custom payload.
    pub fn prefix(&self) -> ResponsePrefix<'_> {
        self.split().0
    }

    /// The message behind the prefix.
    pub fn message(&self) -> &[u8] {
        self.split().1
    }

    /// The answer as ERROR; fails the test for any other kind.
    pub fn error_message(&self) -> ErrorMessage<'_> {
        assert_eq!(self.opcode(), opcode::ERROR, "{:?}", self.header);
        ErrorMessage::decode(self.header.version, self.message()).expect("the body of an ERROR")
    }

    /// Code and text of the ERROR; fails the test for any other kind.
    pub fn error(&self) -> (i32, String) {
        let error = self.error_message();
        (error.code, error.message.to_owned())
    }

    /// The answer as RESULT; fails the test for any other kind.
    pub fn result(&self) -> ResultMessage<'_> {
        if self.opcode() == opcode::ERROR {
            panic!("a RESULT was expected: {:x?}", self.error());
        }
        assert_eq!(self.opcode(), opcode::RESULT, "{:?}", self.header);
        ResultMessage::decode(self.header.version, self.message()).expect("the body of a RESULT")
    }

    /// The RESULT of kind rows; fails the test for any other kind.
    pub fn encoded_rows(&self) -> EncodedRows<'_> {
        match self.result() {
            ResultMessage::Rows(rows) => rows,
            other => panic!("rows were expected: {other:?}"),
        }
    }

    /// Values of the rows of a RESULT; empty for another kind of RESULT.
    pub fn rows(&self) -> Rows {
        let ResultMessage::Rows(rows) = self.result() else { return Rows::new() };
        let values = |row: Row<'_>| row.values().map(|value| value.map(<[u8]>::to_vec)).collect();
        rows.rows().map(|row| values(row.expect("a row"))).collect()
    }

    /// The first column of all rows, in order; nulls are empty.
    pub fn first_column(&self) -> Vec<Vec<u8>> {
        let first = |row: Row<'_>| row.get(0).unwrap_or_default().to_vec();
        self.encoded_rows().rows().map(|row| first(row.expect("a row"))).collect()
    }

    /// The answers in an aggregated frame, each with its client id; fails the test for any other
    /// kind.
    pub fn entries(&self) -> Vec<(u32, Answer)> {
        assert_eq!(self.opcode(), opcode::AGGREGATE, "{:?}", self.header);
        let entries = AggregateReader::new(&self.body).expect("a count");
        let answer = |entry: Entry<'_>| {
            let header = Header {
                flags: entry.flags,
                length: entry.body.len() as u32,
                ..Header::response(entry.version, entry.stream, entry.opcode)
            };
            (entry.client_id, Answer { header, body: entry.body.to_vec() })
        };
        entries.map(|entry| answer(entry.expect("an entry"))).collect()
    }

    /// [`Answer::rows`], or the text of the ERROR.
    ///
    /// # Errors
    /// The answer is an ERROR.
    pub fn outcome(&self) -> Result<Rows, String> {
        if self.opcode() == opcode::ERROR { Err(self.error().1) } else { Ok(self.rows()) }
    }

    /// Start of the next page; `None` on the last page.
    pub fn paging_state(&self) -> Option<Vec<u8>> {
        self.encoded_rows().metadata.paging_state.map(<[u8]>::to_vec)
    }

    /// The statement of a RESULT of kind prepared; fails the test for any other kind.
    pub fn prepared(&self) -> Statement {
        match self.result() {
            ResultMessage::Prepared(prepared) => Statement::of(&prepared),
            other => panic!("PREPARED was expected: {other:?}"),
        }
    }
}

/// A prepared statement as described by PREPARED.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Statement {
    /// Id for EXECUTE and BATCH.
    pub id: Vec<u8>,
    /// Id of the metadata of its rows (v5).
    pub metadata_id: Option<Vec<u8>>,
    /// Indexes of the partition key among the bind markers (v4, v5).
    pub key_places: Vec<u16>,
}

impl Statement {
    fn of(prepared: &Prepared<'_>) -> Statement {
        Statement {
            id: prepared.id.to_vec(),
            metadata_id: prepared.result_metadata_id.map(<[u8]>::to_vec),
            key_places: prepared.bind.partition_key().collect(),
        }
    }
}
