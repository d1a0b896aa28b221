//! Answers of a server, and what a test reads from them. An answer of another kind than asked for
//! fails the test.

use shunt_wire::aggregate::{AggregateReader, Entry};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::{
    ErrorMessage, Prepared, ResponsePrefix, ResultMessage, Row, Rows as EncodedRows,
    split_response_prefix,
};

/// All values of all rows, as they came.
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
    /// As it came.
    pub header: Header,
    /// With tracing id, warnings and custom payload, if the header says so.
    pub body: Vec<u8>,
}

impl Answer {
    /// One of [`shunt_wire::cql::envelope::opcode`].
    pub fn opcode(&self) -> u8 {
        self.header.opcode
    }

    /// Id of the request that it answers.
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

    /// The ERROR that it must be.
    pub fn error_message(&self) -> ErrorMessage<'_> {
        assert_eq!(self.opcode(), opcode::ERROR, "{:?}", self.header);
        ErrorMessage::decode(self.header.version, self.message()).expect("the body of an ERROR")
    }

    /// Code and text of the ERROR that it must be.
    pub fn error(&self) -> (i32, String) {
        let error = self.error_message();
        (error.code, error.message.to_owned())
    }

    /// The RESULT that it must be.
    pub fn result(&self) -> ResultMessage<'_> {
        if self.opcode() == opcode::ERROR {
            panic!("a RESULT was expected: {:x?}", self.error());
        }
        assert_eq!(self.opcode(), opcode::RESULT, "{:?}", self.header);
        ResultMessage::decode(self.header.version, self.message()).expect("the body of a RESULT")
    }

    /// The rows of the RESULT of kind rows that it must be.
    pub fn encoded_rows(&self) -> EncodedRows<'_> {
        match self.result() {
            ResultMessage::Rows(rows) => rows,
            other => panic!("rows were expected: {other:?}"),
        }
    }

    /// Values of the rows of the RESULT that it must be; none, if it is of another kind.
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

    /// The answers in the aggregated frame that it must be, each with the number of the client that
    /// it is for.
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
    /// It is an ERROR.
    pub fn outcome(&self) -> Result<Rows, String> {
        if self.opcode() == opcode::ERROR { Err(self.error().1) } else { Ok(self.rows()) }
    }

    /// Where the next page begins; nothing on the last page.
    pub fn paging_state(&self) -> Option<Vec<u8>> {
        self.encoded_rows().metadata.paging_state.map(<[u8]>::to_vec)
    }

    /// The statement of the RESULT of kind prepared that it must be.
    pub fn prepared(&self) -> Statement {
        match self.result() {
            ResultMessage::Prepared(prepared) => Statement::of(&prepared),
            other => panic!("PREPARED was expected: {other:?}"),
        }
    }
}

/// A prepared statement as PREPARED described it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Statement {
    /// Names it in EXECUTE and BATCH.
    pub id: Vec<u8>,
    /// Names the metadata of its rows (v5).
    pub metadata_id: Option<Vec<u8>>,
    /// Places of the partition key among the bind markers (v4, v5).
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
