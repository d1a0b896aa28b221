//! Draws the requests of a simulated client and judges the answers.

use shunt_reactor::sim::Random;
use shunt_testing::{Answer, Statement};
use shunt_wire::cql::envelope::{flag, opcode};
use shunt_wire::cql::message::{
    BatchChild, BatchKind, BatchStatement, BytesMap, Consistency, QueryParams, ResultMessage, Row,
    Value, ValueList, encode, error_code, put, query_flag,
};

use super::model::{Fate, Model};
use super::registers::found;

/// The text of the errors that a test makes a stub node give.
const HOOKED: &str = "as the hook wants it";

/// Texts of the statements that a client prepares when it connects, with the table's keyspace, or
/// without it after USE.
pub fn texts(uses_keyspace: bool) -> (&'static str, &'static str) {
    match uses_keyspace {
        false => {
            ("INSERT INTO bench.kv (k, v) VALUES (?, ?)", "SELECT v FROM bench.kv WHERE k = ?")
        }
        true => ("INSERT INTO kv (k, v) VALUES (?, ?)", "SELECT v FROM kv WHERE k = ?"),
    }
}

/// The two statements of [`texts`], prepared.
#[derive(Clone, Copy, Debug)]
pub struct Statements<'a> {
    pub insert: &'a Statement,
    pub select: &'a Statement,
}

/// A request in flight.
#[derive(Clone, Debug)]
pub struct Operation {
    pub kind: Kind,
    pub sent_ns: u64,
    traced: bool,
    payload: Option<[u8; 8]>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Write these keys (several: a batch).
    Write(Vec<u32>),
    /// Read a key; its fate when the read was sent.
    Read(u32, Fate),
    /// `SELECT rpc_address FROM system.local`.
    Local,
    /// `SELECT peer FROM system.peers`.
    Peers,
    /// OPTIONS between queries.
    Options,
    /// PREPARE of a text of the client's own.
    Prepare,
    /// USE of the keyspace the client is in.
    Use,
    /// Overwrite a register; its place in the history.
    WriteRegister(usize),
    /// Read a register; its place in the history.
    ReadRegister(usize),
}

/// The verdict on an answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    Right,
    /// The answer is right, with the value of a register if it read one.
    Found(Option<u64>),
    /// The proxy says that the request was not begun.
    NotBegun(String),
    /// The answer is one of the errors that drivers know to handle.
    Refused(String),
}

/// Makes requests.
pub struct Maker<'a> {
    pub version: u8,
    pub statements: Statements<'a>,
    pub model: &'a mut Model,
    pub random: &'a mut Random,
    pub value_bytes: u64,
    /// True if it makes only requests of one key, each for its replica.
    pub keyed_only: bool,
    /// True if the client has sent USE and leaves the keyspace out.
    pub uses_keyspace: bool,
    /// The client's timestamp for a write, if it gives one.
    pub timestamp_us: Option<i64>,
    /// Number of registers, shared by all clients, that all requests read and write; 0: none.
    pub registers: u32,
}

impl Maker<'_> {
    /// Draws the next request; appends its body and returns opcode and flags.
    pub fn draw(&mut self, now_ns: u64, body: &mut Vec<u8>) -> (Operation, u8, u8) {
        let traced = self.random.chance(0.05);
        let payload = (self.version >= 4 && self.random.chance(0.05))
            .then(|| self.random.next().to_be_bytes());
        let mut flags = if traced { flag::TRACING } else { 0 };
        if let Some(payload) = payload {
            flags |= flag::CUSTOM_PAYLOAD;
            put::short(body, 1);
            put::string(body, "whose");
            put::bytes(body, Some(&payload));
        }
        let (kind, op) = match self.registers {
            0 => self.draw_kind(body),
            registers => self.draw_register(now_ns, registers, body),
        };
        if matches!(kind, Kind::Options | Kind::Use) {
            // The proxy itself answers it, and traces nothing.
            body.clear();
            if kind == Kind::Use {
                encode::query_simple(body, self.version, "USE bench", Consistency::ONE);
            }
            return (Operation { kind, sent_ns: now_ns, traced: false, payload: None }, op, 0);
        }
        (Operation { kind, sent_ns: now_ns, traced, payload }, op, flags)
    }

    fn draw_kind(&mut self, body: &mut Vec<u8>) -> (Kind, u8) {
        match self.random.below(100) {
            0..35 => self.write_prepared(body),
            35..70 if self.model.len() > 0 => self.read(body),
            70..78 => self.write_text(body),
            78..88 => self.write_batch(body),
            _ if self.keyed_only => self.write_prepared(body),
            88..90 => self.query(body, Kind::Local, "SELECT rpc_address FROM system.local"),
            90..92 => self.query(body, Kind::Peers, "SELECT peer FROM system.peers"),
            92..94 => (Kind::Options, opcode::OPTIONS),
            94..96 => self.prepare(body),
            96..98 if self.uses_keyspace => self.query(body, Kind::Use, "USE bench"),
            _ => self.write_prepared(body),
        }
    }

    fn add_key(&mut self) -> u32 {
        self.model.add(self.random.below(self.value_bytes + 1) as u32)
    }

    fn write_prepared(&mut self, body: &mut Vec<u8>) -> (Kind, u8) {
        let number = self.add_key();
        let values = self.key_and_value(number);
        self.execute(body, self.statements.insert, &values, 0);
        (Kind::Write(vec![number]), opcode::EXECUTE)
    }

    fn read(&mut self, body: &mut Vec<u8>) -> (Kind, u8) {
        let number = self.random.below(u64::from(self.model.len())) as u32;
        let fate = self.model.fate(number);
        let key = self.model.key(number);
        if self.random.chance(0.2) {
            let text = texts(self.uses_keyspace).1.replace('?', &format!("0x{}", hex(&key)));
            return self.query(body, Kind::Read(number, fate), &text);
        }
        let mut values = ValueList::positional(self.version);
        values.push(Value::Bytes(&key));
        self.execute(body, self.statements.select, &values, query_flag::SKIP_METADATA);
        (Kind::Read(number, fate), opcode::EXECUTE)
    }

    fn write_text(&mut self, body: &mut Vec<u8>) -> (Kind, u8) {
        let number = self.add_key();
        if self.random.chance(0.5) {
            let values = self.key_and_value(number);
            let params = QueryParams { values: values.values(), ..self.simple() };
            encode::query(body, self.version, texts(self.uses_keyspace).0, &params);
        } else {
            let (key, value) = (hex(&self.model.key(number)), hex(&self.model.value(number)));
            let text = texts(self.uses_keyspace).0.replace("?, ?", &format!("0x{key}, 0x{value}"));
            encode::query(body, self.version, &text, &self.simple());
        }
        (Kind::Write(vec![number]), opcode::QUERY)
    }

    fn write_batch(&mut self, body: &mut Vec<u8>) -> (Kind, u8) {
        let count = if self.keyed_only { 1 } else { 1 + self.random.below(3) };
        let numbers: Vec<u32> = (0..count).map(|_| self.add_key()).collect();
        let values: Vec<ValueList> =
            numbers.iter().map(|number| self.key_and_value(*number)).collect();
        let prepared = BatchStatement::Prepared(&self.statements.insert.id);
        let (text, insert) = (self.random.chance(0.3), texts(self.uses_keyspace).0);
        let children = values.iter().enumerate().map(|(index, values)| BatchChild {
            statement: if text && index % 2 == 1 { BatchStatement::Text(insert) } else { prepared },
            values: values.values(),
        });
        encode::batch(body, self.version, BatchKind::Unlogged, children, &self.simple());
        (Kind::Write(numbers), opcode::BATCH)
    }

    fn prepare(&mut self, body: &mut Vec<u8>) -> (Kind, u8) {
        let text = format!("{} /* {} */", texts(self.uses_keyspace).1, self.random.below(20));
        encode::prepare(body, self.version, &text, None);
        (Kind::Prepare, opcode::PREPARE)
    }

    fn query(&mut self, body: &mut Vec<u8>, kind: Kind, text: &str) -> (Kind, u8) {
        encode::query_simple(body, self.version, text, Consistency::ONE);
        (kind, opcode::QUERY)
    }

    pub(super) fn execute(
        &self,
        body: &mut Vec<u8>,
        statement: &Statement,
        values: &ValueList,
        flags: u32,
    ) {
        let params = QueryParams { flags, values: values.values(), ..self.simple() };
        encode::execute(
            body,
            self.version,
            &statement.id,
            statement.metadata_id.as_deref(),
            &params,
        );
    }

    fn key_and_value(&self, number: u32) -> ValueList {
        let mut values = ValueList::positional(self.version);
        values.push(Value::Bytes(&self.model.key(number)));
        values.push(Value::Bytes(&self.model.value(number)));
        values
    }
}

impl Operation {
    /// Gives the keys of its writes their fate; an operation on a register counts as answered if
    /// the fate is known.
    pub fn settle(&self, model: &mut Model, fate: Fate, found: Option<u64>, now_ns: u64) {
        match (&self.kind, fate) {
            (Kind::WriteRegister(entry) | Kind::ReadRegister(entry), Fate::Acknowledged) => {
                model.history.returned(*entry, found, now_ns);
            }
            (Kind::WriteRegister(entry), Fate::NotBegun) => model.history.refused(*entry),
            _ => {}
        }
        if let Kind::Write(numbers) = &self.kind {
            numbers.iter().for_each(|number| model.settle(*number, fate));
        }
    }

    /// Judges an answer. Panics if no proxy may give it.
    pub fn judge(&self, model: &Model, own_address: [u8; 4], answer: &Answer) -> Verdict {
        if answer.opcode() == opcode::ERROR {
            return self.judge_error(answer);
        }
        let prefix = answer.prefix();
        assert_eq!(prefix.tracing_id.is_some(), self.traced, "tracing id of {self:?}");
        let payload = prefix.custom_payload.and_then(own_payload);
        assert_eq!(payload, self.payload, "somebody else's payload in the answer to {self:?}");
        if self.kind == Kind::Options {
            assert_eq!(answer.opcode(), opcode::SUPPORTED);
            return Verdict::Right;
        }
        assert_eq!(answer.opcode(), opcode::RESULT, "answer to {self:?}");
        let result = ResultMessage::decode(answer.header.version, answer.message())
            .unwrap_or_else(|error| panic!("{error} in answer to {self:?}: {answer:02x?}"));
        if matches!(self.kind, Kind::ReadRegister(_)) {
            return Verdict::Found(found(&result));
        }
        self.judge_result(model, own_address, &result);
        Verdict::Right
    }

    /// Accepts errors that say "not now"; every other one would be the proxy's own fault here.
    fn judge_error(&self, answer: &Answer) -> Verdict {
        let error = answer.error_message();
        let harmless = [
            error_code::OVERLOADED,
            error_code::WRITE_TIMEOUT,
            error_code::READ_TIMEOUT,
            error_code::SERVER_ERROR,
            error_code::UNPREPARED,
        ];
        let version = answer.header.version;
        assert!(
            harmless.contains(&error.code),
            "{:#x}: {} in answer to {self:?} of version {version}",
            error.code,
            error.message
        );
        let said = format!("{:#x}: {}", error.code, error.message);
        // An overloaded node's error may come in the middle of a write. UNPREPARED is for a
        // statement that a node was too slow to learn, and says that nobody has executed it.
        let not_begun = match error.code {
            error_code::OVERLOADED => error.message != HOOKED,
            code => code == error_code::UNPREPARED,
        };
        if not_begun { Verdict::NotBegun(said) } else { Verdict::Refused(said) }
    }

    fn judge_result(&self, model: &Model, own_address: [u8; 4], result: &ResultMessage<'_>) {
        match (&self.kind, result) {
            (Kind::Write(_) | Kind::WriteRegister(_), ResultMessage::Void)
            | (Kind::Prepare, ResultMessage::Prepared(_)) => {}
            (Kind::Use, ResultMessage::SetKeyspace(keyspace)) => assert_eq!(*keyspace, "bench"),
            (Kind::Read(number, fate), ResultMessage::Rows(rows)) => {
                let found: Vec<Vec<u8>> =
                    rows.rows().map(|row| row.unwrap().get(0).unwrap().to_vec()).collect();
                let expected = model.value(*number);
                match &found[..] {
                    [value] => assert!(
                        *value == expected,
                        "key {number} has another value: {}",
                        show(value)
                    ),
                    [] => assert_ne!(
                        *fate,
                        Fate::Acknowledged,
                        "acknowledged key {number} is not there"
                    ),
                    more => panic!("{} rows for one key", more.len()),
                }
            }
            (Kind::Local, ResultMessage::Rows(rows)) => {
                let row = rows.rows().next().expect("system.local has a row").unwrap();
                assert_eq!(row.get(0), Some(&own_address[..]), "system.local must show the proxy");
            }
            (Kind::Peers, ResultMessage::Rows(rows)) => {
                let node = |row: Row<'_>| {
                    row.get(0).is_none_or(|address| !address.starts_with(&own_address[..2]))
                };
                assert!(
                    !rows.rows().any(|row| node(row.unwrap())),
                    "system.peers must not show nodes"
                );
            }
            (kind, result) => panic!("{result:?} is no answer to {kind:?}"),
        }
    }
}

fn own_payload(payload: BytesMap<'_>) -> Option<[u8; 8]> {
    payload.iter().find(|(name, _)| *name == "whose").and_then(|(_, bytes)| bytes?.try_into().ok())
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn show(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(24)]).into_owned()
}
