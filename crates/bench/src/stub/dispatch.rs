//! Dispatches requests: the handshake is handled here, queries go to the node's
//! [`answer`](super::answer), aggregated frames to [`aggregate`](super::aggregate). Before all
//! that, the hook may replace the answer.

use std::collections::HashMap;
use std::ops::ControlFlow;

use shunt_reactor::{ConnId, Io};
use shunt_wire::aggregate::{Offer, SUPPORTED_KEY};
use shunt_wire::cql::{
    compression::Algorithm,
    envelope::{Header, flag, opcode},
    message::{
        AuthResponse, BytesMap, Execute, Register, ResponsePrefix, Startup, encode, error_code,
        split_request_prefix,
    },
};

use crate::stub::{
    StubOptions,
    answer::Node,
    failure::put_unprepared,
    hook::{Action, Hook, Request},
    ring::Ring,
    session::{SessionRest, Stage, response_to},
};

/// Limits of aggregated frames as SUPPORTED states them.
pub use shunt_wire::aggregate::Limits as AggregateLimits;

/// An answer that waits for its time.
#[derive(Debug)]
pub(super) struct Delayed {
    pub(super) conn: ConnId,
    pub(super) header: Header,
    pub(super) body: Vec<u8>,
}

/// The nodes, and the state that all their connections share.
pub(super) struct Dispatcher {
    pub(super) nodes: Vec<Node>,
    pub(super) hook: Option<Hook>,
    /// Connections whose output has an open segment.
    pub(super) unfinished: Vec<ConnId>,
    pub(super) aggregate: Option<AggregateLimits>,
    aggregate_port: Option<u16>,
    echo: bool,
    protocol_max: u8,
    credentials: Vec<(String, String)>,
    /// Buffer for the body of a response.
    body: Vec<u8>,
    delays: u64,
    answer_bytes: usize,
    memory: Option<super::Memory>,
}

/// Outcome of one query.
pub(super) enum Reply {
    /// Send this opcode, flags and stream, with the body in the dispatcher's buffer.
    Body(Header),
    Nothing,
    Later(u64, Header),
    Garbage(Vec<u8>),
    Close,
}

impl Dispatcher {
    pub(super) fn new(options: StubOptions) -> Self {
        let mut dispatcher = Self {
            nodes: Vec::new(),
            hook: options.hook,
            unfinished: Vec::new(),
            aggregate: options.aggregate,
            aggregate_port: options.aggregate_port,
            echo: options.echo,
            protocol_max: options.protocol_max.clamp(3, 5),
            credentials: options.credentials,
            body: Vec::new(),
            delays: 0,
            answer_bytes: options.answer_bytes,
            memory: options.memory,
        };
        dispatcher.set_ring(&options.ring);
        dispatcher
    }

    pub(super) fn set_ring(&mut self, ring: &Ring) {
        self.nodes.iter_mut().for_each(|node| node.set_ring(ring));
        for index in self.nodes.len()..ring.nodes.len() {
            self.nodes.push(Node::new(ring, index, self.answer_bytes, self.memory.clone()));
        }
    }

    /// Appends a response to the connection's output.
    pub(super) fn send(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        rest: &mut SessionRest,
        header: Header,
        body: &[u8],
    ) {
        rest.output.push(io.output(conn), header, body);
        self.note_unfinished(conn, rest);
    }

    fn note_unfinished(&mut self, conn: ConnId, rest: &mut SessionRest) {
        if rest.output.is_segmented() && !rest.unfinished {
            rest.unfinished = true;
            self.unfinished.push(conn);
        }
    }

    fn send_own_body(&mut self, io: &mut Io, conn: ConnId, rest: &mut SessionRest, header: Header) {
        rest.output.push(io.output(conn), header, &self.body);
        self.note_unfinished(conn, rest);
    }

    /// Serves one envelope. A break means that the connection has to be closed.
    #[allow(clippy::too_many_arguments)] // one connection's state, in parts
    pub(super) fn serve(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        node: usize,
        rest: &mut SessionRest,
        header: Header,
        body: &[u8],
        delayed: &mut HashMap<u64, Delayed>,
    ) -> ControlFlow<()> {
        rest.counts.frames += 1;
        self.body.clear();
        if header.response || !(3..=self.protocol_max).contains(&header.version) {
            return self.refuse_version(io, conn, rest, header);
        }
        if self.echo && header.opcode == opcode::EXECUTE && rest.stage == Stage::Open {
            return self.echo(io, conn, node, rest, header, body);
        }
        if matches!(
            header.opcode,
            opcode::QUERY | opcode::EXECUTE | opcode::PREPARE | opcode::BATCH
        ) && rest.stage == Stage::Open
        {
            let reply = self.reply(node, rest, header, body, false);
            return self.send_reply(io, conn, rest, reply, delayed);
        }
        let takes_frames =
            self.aggregate.is_some() && self.aggregate_port.is_none_or(|port| port == rest.port);
        if header.opcode == opcode::AGGREGATE && takes_frames && rest.stage == Stage::Open {
            return self.serve_aggregate(io, conn, node, rest, header, body);
        }
        self.handshake(io, conn, rest, header, body)
    }

    /// Returns the answer for the kind of statement that the id encodes.
    fn echo(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        node: usize,
        rest: &mut SessionRest,
        header: Header,
        body: &[u8],
    ) -> ControlFlow<()> {
        rest.counts.queries += 1;
        let answer = self.nodes[node].fixed_answer(body.get(2).copied().unwrap_or_default());
        rest.output.push(io.output(conn), response_to(header, opcode::RESULT), answer);
        self.note_unfinished(conn, rest);
        ControlFlow::Continue(())
    }

    fn send_reply(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        rest: &mut SessionRest,
        reply: Reply,
        delayed: &mut HashMap<u64, Delayed>,
    ) -> ControlFlow<()> {
        match reply {
            Reply::Body(header) => self.send_own_body(io, conn, rest, header),
            Reply::Nothing => {}
            Reply::Later(delay_ns, header) => {
                self.delays += 1;
                delayed.insert(self.delays, Delayed { conn, header, body: self.body.clone() });
                io.set_timer(io.now_ns() + delay_ns, self.delays);
            }
            Reply::Garbage(bytes) => {
                rest.output.finish(io.output(conn));
                io.output(conn).extend_from_slice(&bytes);
            }
            Reply::Close => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    /// Builds the answer to a query in the dispatcher's buffer, or the hook's replacement.
    pub(super) fn reply(
        &mut self,
        node: usize,
        rest: &mut SessionRest,
        header: Header,
        body: &[u8],
        aggregated: bool,
    ) -> Reply {
        self.body.clear();
        let action = match &mut self.hook {
            None => Action::Answer,
            Some(hook) => hook(&Request {
                node,
                version: header.version,
                stream: header.stream,
                opcode: header.opcode,
                body,
                aggregated,
            }),
        };
        match action {
            Action::Answer => Reply::Body(self.right_answer(node, rest, header, body)),
            Action::Delay(delay_ns) => {
                Reply::Later(delay_ns, self.right_answer(node, rest, header, body))
            }
            Action::Silence => Reply::Nothing,
            Action::Garbage(bytes) => Reply::Garbage(bytes),
            Action::Close => Reply::Close,
            Action::UnknownStream(stream) => {
                let answer = self.right_answer(node, rest, header, body);
                Reply::Body(Header { stream, ..answer })
            }
            Action::Unprepared if header.opcode == opcode::EXECUTE => {
                rest.counts.errors += 1;
                let message =
                    split_request_prefix(header.flags, body).map_or(body, |(_, message)| message);
                let id =
                    Execute::decode(header.version, message).map_or(&[][..], |request| request.id);
                put_unprepared(&mut self.body, header.version, id);
                Reply::Body(response_to(header, opcode::ERROR))
            }
            Action::Unprepared => Reply::Body(self.right_answer(node, rest, header, body)),
            Action::Error(code) => {
                rest.counts.errors += 1;
                encode::error(&mut self.body, code, "as the hook wants it");
                Reply::Body(response_to(header, opcode::ERROR))
            }
        }
    }

    /// Builds the regular answer, with the parts that its request asks for before it: a tracing id,
    /// the echoed custom payload.
    fn right_answer(
        &mut self,
        node: usize,
        rest: &mut SessionRest,
        header: Header,
        body: &[u8],
    ) -> Header {
        let (payload, message) = match split_request_prefix(header.flags, body) {
            Ok(split) => split,
            Err(error) => {
                encode::error(&mut self.body, error_code::PROTOCOL_ERROR, &error.to_string());
                return response_to(header, opcode::ERROR);
            }
        };
        let flags = if header.flags & flag::TRACING != 0 || payload.is_some() {
            self.put_prefix(header, payload)
        } else {
            0
        };
        let node = &mut self.nodes[node];
        let keyspace = rest.keyspace.as_deref();
        let answered = node.answer(
            header.version,
            header.opcode,
            message,
            keyspace,
            &mut rest.counts,
            &mut self.body,
        );
        if answered.keyspace.is_some() {
            rest.keyspace = answered.keyspace;
        }
        Header { flags, ..response_to(header, answered.opcode) }
    }

    fn put_prefix(&mut self, header: Header, custom_payload: Option<BytesMap<'_>>) -> u8 {
        let tracing_id = (header.flags & flag::TRACING != 0).then_some([0x77; 16]);
        let prefix = ResponsePrefix { tracing_id, custom_payload, ..ResponsePrefix::default() };
        prefix.put(&mut self.body);
        prefix.flags()
    }

    /// Returns the bytes of the last answer.
    pub(super) fn answer_body(&self) -> &[u8] {
        &self.body
    }

    fn refuse_version(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        rest: &mut SessionRest,
        header: Header,
    ) -> ControlFlow<()> {
        rest.counts.protocol_errors += 1;
        let version = self.protocol_max;
        let supported: Vec<String> =
            (3..=version).map(|version| format!("{version}/v{version}")).collect();
        let text = format!(
            "Invalid or unsupported protocol version ({}); supported versions are ({})",
            header.version,
            supported.join(", ")
        );
        encode::error(&mut self.body, error_code::PROTOCOL_ERROR, &text);
        self.send_own_body(io, conn, rest, Header::response(version, header.stream, opcode::ERROR));
        ControlFlow::Break(())
    }

    fn handshake(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        rest: &mut SessionRest,
        header: Header,
        body: &[u8],
    ) -> ControlFlow<()> {
        let answer = match (header.opcode, rest.stage) {
            (opcode::OPTIONS, _) => {
                rest.counts.options += 1;
                self.put_supported();
                Ok(opcode::SUPPORTED)
            }
            (opcode::STARTUP, Stage::New) => return self.startup(io, conn, rest, header, body),
            (opcode::AUTH_RESPONSE, Stage::Login) => Ok(self.login(rest, body)),
            (opcode::REGISTER, Stage::Open) => Register::decode(body)
                .map(|request| {
                    rest.registered.extend(request.events.iter().map(str::to_owned));
                    opcode::READY
                })
                .map_err(|error| error.to_string()),
            (other, stage) => Err(format!("opcode {other:#x} while the connection is {stage:?}")),
        };
        let opcode = answer.unwrap_or_else(|problem| {
            rest.counts.errors += 1;
            encode::error(&mut self.body, error_code::PROTOCOL_ERROR, &problem);
            opcode::ERROR
        });
        self.send_own_body(io, conn, rest, response_to(header, opcode));
        ControlFlow::Continue(())
    }

    fn put_supported(&mut self) {
        let versions: Vec<String> =
            (3..=self.protocol_max).map(|version| format!("{version}/v{version}")).collect();
        let mut options: Vec<(&str, Vec<&str>)> = vec![
            ("COMPRESSION", vec!["lz4", "snappy"]),
            ("CQL_VERSION", vec!["3.4.7"]),
            ("PROTOCOL_VERSIONS", versions.iter().map(String::as_str).collect()),
        ];
        let offer = self.aggregate.map(|limits| {
            let AggregateLimits { count_max, bytes_max } = limits;
            Offer { count_max, bytes_max, port: self.aggregate_port }.values()
        });
        if let Some(values) = &offer {
            options.push((SUPPORTED_KEY, values.iter().map(String::as_str).collect()));
        }
        encode::supported(&mut self.body, options);
    }

    fn startup(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        rest: &mut SessionRest,
        header: Header,
        body: &[u8],
    ) -> ControlFlow<()> {
        let asked = Startup::decode(body)
            .map(|request| request.options.get("COMPRESSION").map(str::to_owned));
        let compression = match asked {
            Ok(None) => Ok(None),
            Ok(Some(name)) => {
                name.parse().map(Some).map_err(|_| format!("unknown compression {name}"))
            }
            Err(error) => Err(error.to_string()),
        };
        let compression = match compression {
            Ok(compression) => compression,
            Err(problem) => {
                encode::error(&mut self.body, error_code::PROTOCOL_ERROR, &problem);
                self.send_own_body(io, conn, rest, response_to(header, opcode::ERROR));
                return ControlFlow::Break(());
            }
        };
        rest.version = header.version;
        let opcode = if self.credentials.is_empty() {
            rest.stage = Stage::Open;
            opcode::READY
        } else {
            rest.stage = Stage::Login;
            encode::authenticate(&mut self.body, "org.apache.cassandra.auth.PasswordAuthenticator");
            opcode::AUTHENTICATE
        };
        if header.version < 5 {
            rest.compression = compression;
            rest.output.compression = compression;
            let flags =
                if opcode == opcode::READY { self.put_empty_compressed(compression) } else { 0 };
            rest.output.push_as_is(
                io.output(conn),
                Header { flags, ..response_to(header, opcode) },
                &self.body,
            );
            return ControlFlow::Continue(());
        }
        self.send_own_body(io, conn, rest, response_to(header, opcode));
        // "the first response ... is the last message that is not framed" (v5, section 2.3.1).
        rest.output.start_segments(compression.is_some());
        ControlFlow::Continue(())
    }

    /// Cassandra compresses even the empty body of READY. Returns the header's flags.
    fn put_empty_compressed(&mut self, compression: Option<Algorithm>) -> u8 {
        match compression {
            None => return 0,
            // A length of 0 and an empty block.
            Some(Algorithm::Lz4) => self.body.extend_from_slice(&[0; 5]),
            Some(Algorithm::Snappy) => self.body.push(0),
        }
        flag::COMPRESSION
    }

    /// Checks SASL PLAIN in the form of PasswordAuthenticator: `[authzid] 0 user 0 password`.
    fn login(&mut self, rest: &mut SessionRest, body: &[u8]) -> u8 {
        let token =
            AuthResponse::decode(body).ok().and_then(|response| response.token).unwrap_or_default();
        let mut parts = token.split(|&byte| byte == 0).skip(1);
        let (user, password) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let known = self.credentials.iter().any(|(known_user, known_password)| {
            known_user.as_bytes() == user && known_password.as_bytes() == password
        });
        if known {
            rest.stage = Stage::Open;
            encode::auth_success(&mut self.body, None);
            return opcode::AUTH_SUCCESS;
        }
        rest.counts.errors += 1;
        encode::error(
            &mut self.body,
            error_code::BAD_CREDENTIALS,
            "Provided username and/or password are incorrect",
        );
        opcode::ERROR
    }
}
