//! From a fresh connection to one on which both statements are prepared.

use shunt_reactor::Io;
use shunt_wire::cql::framing::Next;
use shunt_wire::cql::{
    envelope::{Header, opcode},
    message::{Consistency, ErrorMessage, ResultMessage, encode},
};

use crate::load::{
    ATTEMPTS_MAX, RETRY_NS, TIMER_SESSION,
    generator::Generator,
    session::{SessionRest, Step},
    template::{Operation, Template},
};

impl Generator {
    pub(super) fn send_startup(&mut self, io: &mut Io, rest: &mut SessionRest) {
        rest.step = Step::Startup;
        self.body.clear();
        let compression = self.options.compression.map(|algorithm| ("COMPRESSION", algorithm.name()));
        encode::startup(&mut self.body, [("CQL_VERSION", "3.0.0")].into_iter().chain(compression));
        self.send_body(io, rest, opcode::STARTUP);
    }

    /// Asks for the statement of the session's present step.
    pub(super) fn send_prepare(&mut self, io: &mut Io, rest: &mut SessionRest) {
        let text = self.statement(if rest.step == Step::PrepareSelect { Operation::Select } else { Operation::Insert });
        self.body.clear();
        encode::prepare(&mut self.body, self.options.layout.version, &text, None);
        self.send_body(io, rest, opcode::PREPARE);
    }

    fn statement(&self, operation: Operation) -> String {
        let (keyspace, table) = (&self.options.keyspace, &self.options.table);
        match operation {
            Operation::Insert => format!("INSERT INTO {keyspace}.{table} (k, v) VALUES (?, ?)"),
            Operation::Select => format!("SELECT v FROM {keyspace}.{table} WHERE k = ?"),
        }
    }

    fn send_query(&mut self, io: &mut Io, rest: &mut SessionRest, text: &str) {
        self.body.clear();
        encode::query_simple(&mut self.body, self.options.layout.version, text, Consistency(1));
        self.send_body(io, rest, opcode::QUERY);
    }

    fn send_body(&mut self, io: &mut Io, rest: &mut SessionRest, opcode: u8) {
        let header = Header::request(self.options.layout.version, 0, opcode);
        rest.output.push(io.output(rest.conn), header, &self.body);
        self.note_unfinished(rest);
    }

    /// An answer before the session is ready.
    pub(super) fn handshake(&mut self, io: &mut Io, rest: &mut SessionRest, header: Header, body: &[u8]) -> Next {
        if header.opcode == opcode::ERROR {
            return self.handshake_error(io, rest, header, body);
        }
        match (rest.step, header.opcode) {
            (Step::Startup, opcode::READY) => {
                let next = self.negotiated(rest);
                self.opened(io, rest);
                next
            }
            (Step::Startup, opcode::AUTHENTICATE) => {
                let next = self.negotiated(rest);
                rest.step = Step::Login;
                let (user, password) = self.options.credentials.clone().unwrap_or_default();
                self.body.clear();
                encode::auth_response(&mut self.body, Some(format!("\0{user}\0{password}").as_bytes()));
                self.send_body(io, rest, opcode::AUTH_RESPONSE);
                next
            }
            (Step::Login, opcode::AUTH_SUCCESS) => {
                self.opened(io, rest);
                Next::Continue
            }
            (Step::CreateKeyspace, opcode::RESULT) => {
                rest.step = Step::CreateTable;
                let (keyspace, table) = (&self.options.keyspace, &self.options.table);
                let text = format!("CREATE TABLE IF NOT EXISTS {keyspace}.{table} (k blob PRIMARY KEY, v blob)");
                self.send_query(io, rest, &text);
                Next::Continue
            }
            (Step::CreateTable, opcode::RESULT) => {
                rest.step = Step::Gate;
                self.gate_open = true;
                Next::Continue
            }
            (Step::PrepareInsert | Step::PrepareSelect, opcode::RESULT) => self.prepared(io, rest, header, body),
            (step, opcode) => {
                self.fail(io, format!("opcode {opcode:#x} in answer to {step:?}"));
                Next::Stop
            }
        }
    }

    /// STARTUP was taken: from here on as agreed.
    fn negotiated(&mut self, rest: &mut SessionRest) -> Next {
        if self.options.layout.version < 5 {
            rest.output.compression = self.options.compression;
            return Next::Continue;
        }
        let lz4 = self.options.compression.is_some();
        rest.output.start_segments(lz4);
        Next::Segments { lz4 }
    }

    fn opened(&mut self, io: &mut Io, rest: &mut SessionRest) {
        match self.options.create {
            Some(replication) if rest.index == 0 && !self.gate_open => {
                rest.step = Step::CreateKeyspace;
                let text = format!(
                    "CREATE KEYSPACE IF NOT EXISTS {} WITH replication = \
                     {{'class': 'SimpleStrategy', 'replication_factor': {replication}}}",
                    self.options.keyspace
                );
                self.send_query(io, rest, &text);
            }
            Some(_) if !self.gate_open => rest.step = Step::Gate,
            _ => self.start_preparing(io, rest),
        }
    }

    pub(super) fn start_preparing(&mut self, io: &mut Io, rest: &mut SessionRest) {
        rest.step = Step::PrepareInsert;
        self.send_prepare(io, rest);
    }

    fn prepared(&mut self, io: &mut Io, rest: &mut SessionRest, header: Header, body: &[u8]) -> Next {
        let Ok(ResultMessage::Prepared(prepared)) = ResultMessage::decode(header.version, body) else {
            self.fail(io, "the answer to PREPARE is not PREPARED".into());
            return Next::Stop;
        };
        let operation = if rest.step == Step::PrepareSelect { Operation::Select } else { Operation::Insert };
        let known = &mut self.statements[operation as usize];
        match known {
            Some((id, _)) if id != prepared.id => {
                self.fail(io, "the same statement has different ids on different connections".into());
                return Next::Stop;
            }
            Some(_) => {}
            None => {
                let template = Template::new(operation, prepared.id, prepared.result_metadata_id, self.options.layout);
                *known = Some((prepared.id.to_vec(), template));
            }
        }
        if rest.step == Step::PrepareInsert {
            rest.step = Step::PrepareSelect;
            self.send_prepare(io, rest);
        } else {
            rest.step = Step::Ready;
            rest.attempts = 0;
            self.session_ready(rest);
        }
        Next::Continue
    }

    /// A table just created may not be known everywhere yet; anything else will not get better by itself.
    fn handshake_error(&mut self, io: &mut Io, rest: &mut SessionRest, header: Header, body: &[u8]) -> Next {
        let text = ErrorMessage::decode(header.version, body)
            .map_or_else(|error| error.to_string(), |error| format!("{:#06x} {}", error.code, error.message));
        rest.attempts += 1;
        let preparing = matches!(rest.step, Step::PrepareInsert | Step::PrepareSelect);
        if preparing && rest.attempts < ATTEMPTS_MAX {
            rest.step = Step::PrepareInsert;
            io.set_timer(io.now_ns() + RETRY_NS, TIMER_SESSION + rest.index as u64);
            return Next::Continue;
        }
        if rest.step == Step::Startup && rest.attempts < ATTEMPTS_MAX {
            return Next::Stop; // not ready to serve yet, perhaps: tried again on a new connection
        }
        self.fail(io, format!("{:?} was answered with error {text}", rest.step));
        Next::Stop
    }
}
