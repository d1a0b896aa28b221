//! Brings a new connection to the point at which all statements are prepared.

use std::ops::ControlFlow;

use shunt_reactor::Io;
use shunt_wire::cql::{
    envelope::{Header, opcode},
    message::{Consistency, ErrorMessage, ResultMessage, encode},
};

use crate::load::{
    ATTEMPTS_MAX, RETRY_NS, TIMER_SESSION,
    generator::Generator,
    locks,
    routes::Routes,
    session::{SessionRest, Step},
    template::Template,
};

impl Generator {
    pub(super) fn send_startup(&mut self, io: &mut Io, rest: &mut SessionRest) {
        if self.foreign().is_some() {
            return self.begin_foreign(io, rest);
        }
        rest.step = Step::Startup;
        self.body.clear();
        let compression =
            self.options.compression.map(|algorithm| ("COMPRESSION", algorithm.name()));
        encode::startup(&mut self.body, [("CQL_VERSION", "3.0.0")].into_iter().chain(compression));
        self.send_body(io, rest, opcode::STARTUP);
    }

    /// Sends the PREPARE of the session's current statement.
    pub(super) fn send_prepare(&mut self, io: &mut Io, rest: &mut SessionRest) {
        let statement = self.prepares[rest.preparing];
        let text = match (&self.options.locks, self.options.transfers) {
            (_, Some(kind)) => kind.text(&self.shape.table, self.options.fence),
            (Some(locks), None) => locks.text(statement, &self.shape.table),
            (None, None) => self.shape.text(statement),
        };
        self.body.clear();
        encode::prepare(&mut self.body, self.options.layout.version, &text, None);
        self.send_body(io, rest, opcode::PREPARE);
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

    /// Handles an answer before the session is ready.
    pub(super) fn handshake(
        &mut self,
        io: &mut Io,
        rest: &mut SessionRest,
        header: Header,
        body: &[u8],
    ) -> ControlFlow<()> {
        if header.opcode == opcode::ERROR {
            return self.handshake_error(io, rest, header, body);
        }
        match (rest.step, header.opcode) {
            (Step::Startup, opcode::READY) => {
                self.negotiated(rest);
                self.opened(io, rest);
                ControlFlow::Continue(())
            }
            (Step::Startup, opcode::AUTHENTICATE) => {
                self.negotiated(rest);
                rest.step = Step::Login;
                let (user, password) = self.options.credentials.clone().unwrap_or_default();
                self.body.clear();
                encode::auth_response(
                    &mut self.body,
                    Some(format!("\0{user}\0{password}").as_bytes()),
                );
                self.send_body(io, rest, opcode::AUTH_RESPONSE);
                ControlFlow::Continue(())
            }
            (Step::Login, opcode::AUTH_SUCCESS) => {
                self.opened(io, rest);
                ControlFlow::Continue(())
            }
            (Step::CreateKeyspace, opcode::RESULT) => {
                rest.step = Step::CreateTable;
                let text = match &self.options.locks {
                    Some(_) => locks::creation(&self.shape.table),
                    None => self.shape.creation(),
                };
                self.send_query(io, rest, &text);
                ControlFlow::Continue(())
            }
            (Step::CreateTable, opcode::RESULT) => {
                self.schema_is_there(io, rest);
                ControlFlow::Continue(())
            }
            (
                Step::ReadLocal | Step::ReadPeers | Step::ReadOldPeers | Step::ReadKeyspace,
                opcode::RESULT,
            ) => self.ring_answer(io, rest, header.version, body),
            (Step::Prepare, opcode::RESULT) => self.prepared(io, rest, header, body),
            (step, opcode) => {
                self.fail(io, format!("opcode {opcode:#x} in answer to {step:?}"));
                ControlFlow::Break(())
            }
        }
    }

    /// Handles the acceptance of STARTUP; from here on framing and compression are as agreed.
    fn negotiated(&mut self, rest: &mut SessionRest) {
        if self.options.layout.version < 5 {
            rest.output.compression = self.options.compression;
        } else {
            rest.output.start_segments(self.options.compression.is_some());
        }
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
            None if rest.index == 0 && !self.gate_open => self.schema_is_there(io, rest),
            _ if !self.gate_open => rest.step = Step::Gate,
            _ => self.start_preparing(io, rest),
        }
    }

    /// Continues once the schema exists: the first connection reads the ring if the load needs it.
    fn schema_is_there(&mut self, io: &mut Io, rest: &mut SessionRest) {
        if self.options.token_aware {
            rest.step = Step::ReadLocal;
            self.send_query(io, rest, "SELECT * FROM system.local WHERE key = 'local'");
        } else {
            self.open_gate(rest);
        }
    }

    fn open_gate(&mut self, rest: &mut SessionRest) {
        rest.step = Step::Gate;
        self.gate_open = true;
        self.gate_opens = true;
    }

    fn ring_answer(
        &mut self,
        io: &mut Io,
        rest: &mut SessionRest,
        version: u8,
        body: &[u8],
    ) -> ControlFlow<()> {
        match self.take_ring(io, rest, version, body) {
            Ok(()) => ControlFlow::Continue(()),
            Err(problem) => {
                self.fail(io, problem);
                ControlFlow::Break(())
            }
        }
    }

    fn take_ring(
        &mut self,
        io: &mut Io,
        rest: &mut SessionRest,
        version: u8,
        body: &[u8],
    ) -> Result<(), String> {
        match rest.step {
            Step::ReadLocal => {
                self.ring.take_local(version, body, self.options.targets[rest.target])?;
                rest.step = Step::ReadPeers;
                self.send_query(io, rest, "SELECT * FROM system.peers_v2");
            }
            Step::ReadPeers | Step::ReadOldPeers => {
                self.ring.take_peers(version, body, &self.options.targets)?;
                rest.step = Step::ReadKeyspace;
                // Unquoted names are stored in lower case.
                let keyspace = self.options.keyspace.to_ascii_lowercase();
                let text = format!(
                    "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = '{keyspace}'"
                );
                self.send_query(io, rest, &text);
            }
            _ => {
                self.ring.take_replication(version, body)?;
                let (keyspace, targets) = (&self.options.keyspace, &self.options.targets);
                let (table, of_targets) =
                    std::mem::take(&mut self.ring).route(keyspace, targets)?;
                self.routes =
                    Some(Routes::new(table, keyspace, &of_targets, self.options.layout.key_bytes)?);
                self.open_gate(rest);
            }
        }
        Ok(())
    }

    pub(super) fn start_preparing(&mut self, io: &mut Io, rest: &mut SessionRest) {
        rest.step = Step::Prepare;
        rest.preparing = 0;
        self.send_prepare(io, rest);
    }

    fn prepared(
        &mut self,
        io: &mut Io,
        rest: &mut SessionRest,
        header: Header,
        body: &[u8],
    ) -> ControlFlow<()> {
        let Ok(ResultMessage::Prepared(prepared)) = ResultMessage::decode(header.version, body)
        else {
            self.fail(io, "the answer to PREPARE is not PREPARED".into());
            return ControlFlow::Break(());
        };
        let statement = self.prepares[rest.preparing];
        let known = &mut self.statements[statement.index()];
        match known {
            Some((id, _)) if id != prepared.id => {
                self.fail(
                    io,
                    "the same statement has different ids on different connections".into(),
                );
                return ControlFlow::Break(());
            }
            Some(_) => {}
            None => {
                let (id, metadata_id) = (prepared.id, prepared.result_metadata_id);
                let layout = self.options.layout;
                let template = match self.options.transfers {
                    Some(kind) => Template::of_ints(
                        kind.values(0, 0, 0).as_slice().len(),
                        id,
                        metadata_id,
                        layout,
                    ),
                    None if self.options.texts => Template::of_text(statement, &self.shape, layout),
                    None => Template::new(statement, &self.shape, id, metadata_id, layout),
                };
                *known = Some((prepared.id.to_vec(), template));
            }
        }
        rest.preparing += 1;
        if rest.preparing < self.prepares.len() {
            self.send_prepare(io, rest);
        } else {
            rest.step = Step::Ready;
            rest.attempts = 0;
            self.session_ready(rest);
        }
        ControlFlow::Continue(())
    }

    /// Handles an error. A new table may be unknown on some node for a while; any other error is
    /// final.
    fn handshake_error(
        &mut self,
        io: &mut Io,
        rest: &mut SessionRest,
        header: Header,
        body: &[u8],
    ) -> ControlFlow<()> {
        let text = ErrorMessage::decode(header.version, body).map_or_else(
            |error| error.to_string(),
            |error| format!("{:#06x} {}", error.code, error.message),
        );
        rest.attempts += 1;
        if rest.step == Step::ReadPeers {
            // Servers before Cassandra 4.0 lack this table.
            rest.step = Step::ReadOldPeers;
            self.send_query(io, rest, "SELECT * FROM system.peers");
            return ControlFlow::Continue(());
        }
        if rest.step == Step::Prepare && rest.attempts < ATTEMPTS_MAX {
            rest.preparing = 0;
            io.set_timer(io.now_ns() + RETRY_NS, TIMER_SESSION + rest.index as u64);
            return ControlFlow::Continue(());
        }
        if rest.step == Step::Startup && rest.attempts < ATTEMPTS_MAX {
            // Perhaps the server is not ready yet: try again on a new connection.
            return ControlFlow::Break(());
        }
        self.fail(io, format!("{:?} was answered with error {text}", rest.step));
        ControlFlow::Break(())
    }
}
