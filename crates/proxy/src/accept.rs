//! A client's way in: admission, OPTIONS, STARTUP, REGISTER; its deadlines, and draining.
//!
//! Nothing here is per query. Logging in is [`crate::auth`], being closed [`crate::closing`].

use shunt_reactor::{Accepted, ConnId, Io};
use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::compression::{self, CompressionError};
use shunt_wire::cql::envelope::{Header, flag, opcode};
use shunt_wire::cql::frame_v5::SegmentWriter;
use shunt_wire::cql::message::{AuthResponse, Event, Register, SchemaChange, Startup, encode, error_code, event};

use crate::client::{Client, ClientRef, Phase, Stall};
use crate::control::state::ClusterState;
use crate::core::Core;
use crate::decode::Taken;
use crate::limits;
use crate::metrics::{Closing, QueryKind, Refusal};
use crate::node::PoolKey;

/// What STARTUP asked for, and who it says it is.
struct Wishes<'a> {
    driver: &'a str,
    driver_version: &'a str,
    compression: Option<Algorithm>,
    no_compact: bool,
}

impl Core {
    pub(crate) fn accept_client(&mut self, io: &mut Io, conn: ConnId, origin: &Accepted) {
        self.metrics.clients_accepted.add(1);
        let deadline_ns = io.now_ns() + self.config.handshake_timeout_ms * 1_000_000;
        let id = self.next_client_id;
        // 0 names nobody and the last number the proxy itself.
        self.next_client_id = if id >= u32::MAX - 1 { 1 } else { id + 1 };
        let slot = self.clients.insert(Client::new(conn, id, origin.local, origin.peer, deadline_ns)) as u32;
        self.own_client(conn, slot);
        self.metrics.clients.add(1);
        let per_core = self.config.clients_max.div_ceil(self.config.cores.max(1));
        if self.clients.len() > per_core {
            // Aborted: nothing was written to it, and one that lingers holds a file that links may need.
            self.metrics.clients_refused.of(Refusal::TooMany).add(1);
            self.drop_client(io, slot, Closing::TooMany, "clients_max is reached");
        } else if self.draining {
            self.metrics.clients_refused.of(Refusal::Draining).add(1);
            self.drop_client(io, slot, Closing::Draining, "the proxy is shutting down");
        }
    }

    /// Everything but queries.
    pub(crate) fn take_session_request(
        &mut self,
        io: &mut Io,
        slot: u32,
        phase: Phase,
        header: &Header,
        body: &[u8],
    ) -> Taken {
        let mut plain = std::mem::take(&mut self.body_scratch);
        let decoded = self.decompress(slot, header, body, &mut plain);
        let taken = match decoded {
            Ok(false) => self.session_request(io, slot, phase, header, body),
            Ok(true) => self.session_request(io, slot, phase, header, &plain),
            Err((code, why)) => {
                self.refuse_client(io, slot, header.stream, code, &why);
                Taken::Closed
            }
        };
        self.body_scratch = plain;
        taken
    }

    /// Decompresses a v3/v4 body into `plain` if its flag says so. In v5 compression is the segments' business.
    pub(crate) fn decompress(
        &self,
        slot: u32,
        header: &Header,
        body: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<bool, (i32, String)> {
        let Some(client) = self.clients.get(slot as usize) else { return Ok(false) };
        if header.flags & flag::COMPRESSION == 0 || header.version >= 5 {
            return Ok(false);
        }
        let Some(algorithm) = client.compression else {
            let why = "a body is flagged as compressed, but STARTUP asked for no compression";
            return Err((error_code::PROTOCOL_ERROR, why.to_owned()));
        };
        plain.clear();
        compression::decompress(algorithm, body, limits::REQUEST_BYTES_MAX, plain).map_err(|error| match error {
            CompressionError::TooLarge { .. } => (error_code::INVALID, error.to_string()),
            _ => (error_code::PROTOCOL_ERROR, error.to_string()),
        })?;
        Ok(true)
    }

    fn session_request(&mut self, io: &mut Io, slot: u32, phase: Phase, header: &Header, body: &[u8]) -> Taken {
        self.metrics.queries.of(QueryKind::Other).add(1);
        let stream = header.stream;
        match (phase, header.opcode) {
            (_, opcode::OPTIONS) => self.answer_options(io, slot, header),
            (Phase::Startup, opcode::STARTUP) => return self.take_startup(io, slot, header, body),
            (Phase::Authenticating, opcode::AUTH_RESPONSE) => match AuthResponse::decode(body) {
                Ok(response) => self.take_login(io, slot, stream, response.token.unwrap_or_default()),
                Err(error) => self.refuse_client(io, slot, stream, error_code::PROTOCOL_ERROR, &error.to_string()),
            },
            (Phase::Ready, opcode::REGISTER) => match Register::decode(body) {
                Ok(register) => self.answer_register(io, slot, stream, &register),
                Err(error) => self.refuse_client(io, slot, stream, error_code::PROTOCOL_ERROR, &error.to_string()),
            },
            (phase, op) => {
                let name = opcode::name(op).unwrap_or("a message with an unknown opcode");
                let why = format!("{name} (0x{op:02x}) is not expected here: {}", expectation(phase));
                self.refuse_client(io, slot, stream, error_code::PROTOCOL_ERROR, &why);
                return Taken::Closed;
            }
        }
        Taken::Bytes(0)
    }

    fn answer_options(&mut self, io: &mut Io, slot: u32, header: &Header) {
        let Some(cluster) = self.cluster.clone() else { return };
        let versions = ["3/v3", "4/v4", "5/v5"];
        let versions = &versions[..usize::from(cluster.protocol_version_max.clamp(3, 5)) - 2];
        let compressions: Vec<&str> = ["lz4", "snappy"].into_iter().filter(|name| offers(&cluster, name)).collect();
        let cql_version = [cluster.cql_version.as_str()];
        let mut body = std::mem::take(&mut self.message_scratch);
        body.clear();
        let options: [(&str, &[&str]); 3] =
            [("CQL_VERSION", &cql_version), ("COMPRESSION", &compressions), ("PROTOCOL_VERSIONS", versions)];
        encode::supported(&mut body, options.map(|(key, values)| (key, values.iter().copied())));
        self.reply_as(io, slot, header.version, opcode::SUPPORTED, header.stream, &body);
        self.message_scratch = body;
    }

    fn take_startup(&mut self, io: &mut Io, slot: u32, header: &Header, body: &[u8]) -> Taken {
        let wishes = match startup_wishes(body, header.version) {
            Ok(wishes) => wishes,
            Err(why) => {
                self.refuse_client(io, slot, header.stream, error_code::PROTOCOL_ERROR, &why);
                return Taken::Closed;
            }
        };
        let Some(cluster) = self.cluster.clone() else { return Taken::Closed };
        // v5 compresses hop by hop; before, the nodes have to understand what clients send.
        if let Some(name) = wishes.compression.map(Algorithm::name).filter(|_| header.version < 5)
            && !offers(&cluster, name)
        {
            let why = format!("the nodes do not take {name} compression");
            self.refuse_client(io, slot, header.stream, error_code::PROTOCOL_ERROR, &why);
            return Taken::Closed;
        }
        let Some(client) = self.clients.get_mut(slot as usize) else { return Taken::Closed };
        client.version = header.version;
        client.driver = self.drivers.named(wishes.driver, wishes.driver_version);
        client.no_compact = wishes.no_compact;
        if header.version >= 5 {
            client.lz4 = wishes.compression.is_some();
            client.writer = SegmentWriter::new(client.lz4);
        } else {
            client.compression = wishes.compression;
        }
        let login_asked = self.login_asked.clone();
        if let Some(class) = cluster.authenticator.as_ref().or(login_asked.as_ref()) {
            let Some(client) = self.clients.get_mut(slot as usize) else { return Taken::Closed };
            client.phase = Phase::Authenticating;
            let mut body = Vec::new();
            encode::authenticate(&mut body, class);
            self.reply(io, slot, 0, opcode::AUTHENTICATE, header.stream, &body);
        } else {
            let key = PoolKey {
                login: None,
                version: client.version,
                keyspace: None,
                compression: client.compression,
                no_compact: client.no_compact,
            };
            let Some(pool) = self.pool_for(io, &key, 0) else {
                self.refuse_pool(io, slot, header.stream);
                return Taken::Closed;
            };
            self.join_pool(io, slot, pool);
            self.reply(io, slot, 0, opcode::READY, header.stream, &[]);
            self.client_is_ready(slot);
        }
        if let Some(client) = self.clients.get_mut(slot as usize) {
            client.segmented = client.version >= 5;
        }
        Taken::Bytes(0)
    }

    pub(crate) fn client_is_ready(&mut self, slot: u32) {
        if let Some(client) = self.clients.get_mut(slot as usize) {
            client.phase = Phase::Ready;
        }
    }

    /// The proxy itself keeps the register: links never register, the control connection sees all events.
    fn answer_register(&mut self, io: &mut Io, slot: u32, stream: i16, register: &Register<'_>) {
        let Some(client) = self.clients.get_mut(slot as usize) else { return };
        let mut unknown = None;
        for kind in register.events.iter() {
            match kind {
                event::SCHEMA_CHANGE => client.registered_schema = true,
                event::TOPOLOGY_CHANGE | event::STATUS_CHANGE => {}
                other => unknown = Some(format!("Invalid value '{other}' for Type")),
            }
        }
        match unknown {
            None => self.reply(io, slot, 0, opcode::READY, stream, &[]),
            Some(why) => self.refuse_client(io, slot, stream, error_code::PROTOCOL_ERROR, &why),
        }
    }

    /// Schema events go to those who registered; topology and status of the nodes behind the proxy are none of the
    /// clients' business, because the only host they know is the proxy.
    pub(crate) fn schema_event(&mut self, io: &mut Io, body: &[u8]) {
        let listeners: Vec<u32> = self
            .clients
            .iter()
            .filter(|(_, client)| client.registered_schema && client.phase == Phase::Ready)
            .map(|(slot, _)| slot as u32)
            .collect();
        // Version 3 knows neither functions nor aggregates: nodes say that the keyspace was changed.
        let mut for_v3 = Vec::new();
        if let Ok(Event::SchemaChange(found)) = Event::decode(body)
            && found.arguments.is_some()
        {
            let of_keyspace =
                SchemaChange { change: "UPDATED", target: "KEYSPACE", name: None, arguments: None, ..found };
            encode::event(&mut for_v3, &Event::SchemaChange(of_keyspace));
        }
        for slot in listeners {
            let old = self.clients.get(slot as usize).is_some_and(|client| client.version < 4);
            self.reply(io, slot, 0, opcode::EVENT, -1, if old && !for_v3.is_empty() { &for_v3 } else { body });
        }
    }

    /// Clients that take too long over their handshake or over one request; full rounds only now and then.
    pub(crate) fn tick_clients(&mut self, io: &mut Io, full_round: bool) {
        let now = io.now_ns();
        let (mut late, mut deaf, mut held) = (Vec::new(), Vec::new(), Vec::new());
        let mut bytes = 0;
        for (slot, client) in &mut self.clients {
            bytes += bytes_of(io, client);
            let handshake = !matches!(client.phase, Phase::Ready) && now > client.handshake_deadline_ns;
            let slow = client.partial_since_ns != 0
                && !client.stalls.any()
                && now - client.partial_since_ns > limits::REQUEST_READ_NS;
            if takes_nothing(io, client) {
                deaf.push(slot as u32);
            } else if handshake || (full_round && slow) {
                late.push((slot as u32, handshake));
            } else if client.stalled_since_ns != 0 && now - client.stalled_since_ns > limits::STALL_MAX_NS {
                held.push(slot as u32);
            }
        }
        for (slot, handshake) in late {
            if handshake {
                self.refuse_late(io, slot);
            } else {
                self.close_client(
                    io,
                    slot,
                    Closing::RequestTimeout,
                    "one request took it longer than a minute to send",
                );
            }
        }
        for slot in deaf {
            self.drop_client(io, slot, Closing::RepliesUntaken, "it does not take its replies");
        }
        self.drop_heaviest(io, bytes);
        for slot in held {
            if let Some(client) = self.clients.get_mut(slot as usize) {
                client.refuse_next = true;
            }
            self.unstall(slot, Stall::POOL);
            self.unstall(slot, Stall::LINK);
        }
        if full_round {
            self.forget_waiting();
        }
    }

    /// Each client has bounds of its own, and many clients many times as much: when all together (with `bytes`) have more
    /// than the core's share, those with the most go. The largest answer there may be always has room.
    fn drop_heaviest(&mut self, io: &mut Io, mut bytes: usize) {
        let one_answer = self.config.frame_bytes_max as usize + self.config.client_backlog_bytes;
        let share = (self.config.clients_bytes_max / self.config.cores.max(1)).max(one_answer);
        if bytes <= share {
            return;
        }
        let mut by_weight: Vec<(usize, u32)> =
            self.clients.iter().map(|(slot, client)| (bytes_of(io, client), slot as u32)).collect();
        by_weight.sort_unstable();
        while let Some((weight, slot)) = by_weight.pop()
            && bytes > share
        {
            bytes -= weight;
            let why = format!("clients_bytes_max is reached, and it leaves most lying: {weight} bytes");
            self.drop_client(io, slot, Closing::BytesMax, &why);
        }
    }

    /// Takes those who no longer wait out of the lists of who does: they left, or were told that it took too long.
    fn forget_waiting(&mut self) {
        let clients = &self.clients;
        let waits = |client: &ClientRef, reason| client.of(clients).is_some_and(|found| found.stalls.has(reason));
        for pool in self.pools.iter_mut() {
            pool.waiting.retain(|client| waits(client, Stall::POOL) || waits(client, Stall::SWITCH));
        }
        for (_, link) in &mut self.links {
            link.waiting.retain(|client| waits(client, Stall::LINK));
        }
    }

    /// A handshake took too long, perhaps because the proxy itself has not reached the ring yet.
    fn refuse_late(&mut self, io: &mut Io, slot: u32) {
        let (reason, closing, why) = match self.cluster {
            None => (Refusal::NoRing, Closing::NoRing, "Shunt has not reached any node of the ring yet"),
            Some(_) => {
                (Refusal::HandshakeTimeout, Closing::HandshakeTimeout, "the handshake was not completed in time")
            }
        };
        self.metrics.clients_refused.of(reason).add(1);
        self.refuse_client_for(io, slot, closing, (0, error_code::SERVER_ERROR, why));
    }

    /// SIGTERM: no new requests; what is in flight is answered, and a client that has taken its answers is closed.
    pub(crate) fn start_drain(&mut self, io: &mut Io) {
        self.draining = true;
        let slots: Vec<u32> = self.clients.iter().map(|(slot, _)| slot as u32).collect();
        for slot in slots {
            self.stall(io, slot, Stall::DRAIN);
        }
        self.drain_step(io);
    }

    pub(crate) fn drain_step(&mut self, io: &mut Io) {
        let done: Vec<u32> = self
            .clients
            .iter()
            .filter(|(_, client)| client.in_flight == 0 && client.switch.is_none() && io.backlog(client.conn) == 0)
            .map(|(slot, _)| slot as u32)
            .collect();
        for slot in done {
            self.close_client(io, slot, Closing::Draining, "the proxy is shutting down and owes it nothing");
        }
        if self.clients.is_empty() {
            self.close_links(io);
            // Closing connections may still have answers to send; the tick looks again.
            if io.connections() == 0 {
                io.stop();
            }
        }
    }

    pub(crate) fn close_all(&mut self, io: &mut Io) {
        let slots: Vec<u32> = self.clients.iter().map(|(slot, _)| slot as u32).collect();
        for slot in slots {
            self.close_client(io, slot, Closing::CutOff, "the proxy is shutting down and waits no longer");
        }
        self.close_links(io);
        io.stop();
    }

    /// Wakes clients held for a reason, if they are still there.
    pub(crate) fn unstall_all(&mut self, held: &mut Vec<ClientRef>, reason: Stall) {
        for client in held.drain(..) {
            if self.client(client).is_some() {
                self.unstall(client.slot, reason);
            }
        }
    }
}

/// Whether the nodes take this compression.
fn offers(cluster: &ClusterState, name: &str) -> bool {
    cluster.compressions.iter().any(|offered| offered.eq_ignore_ascii_case(name))
}

/// Memory of a client: replies that it has not taken, requests that are not complete.
fn bytes_of(io: &Io, client: &Client) -> usize {
    io.backlog(client.conn) + io.unread(client.conn) + client.carry.capacity()
}

/// Whether a client leaves its replies lying: more of them than any bound allows, or all of them for too long.
fn takes_nothing(io: &Io, client: &mut Client) -> bool {
    if !client.stalls.has(Stall::REPLIES) {
        return false;
    }
    let writes = io.writes_of(client.conn);
    if writes != client.writes_taken {
        client.writes_taken = writes;
        client.untaken_since_ns = io.now_ns();
    }
    io.now_ns() - client.untaken_since_ns > limits::REPLIES_UNTAKEN_NS
        || io.backlog(client.conn) > limits::CLIENT_BACKLOG_BYTES_HARD
}

fn expectation(phase: Phase) -> &'static str {
    match phase {
        Phase::Startup => "a connection begins with OPTIONS or STARTUP",
        Phase::Authenticating => "AUTH_RESPONSE must answer AUTHENTICATE",
        Phase::Ready => "the connection is established and takes queries",
        Phase::Closing => "the connection is closing",
    }
}

fn startup_wishes(body: &[u8], version: u8) -> Result<Wishes<'_>, String> {
    let startup = Startup::decode(body).map_err(|error| error.to_string())?;
    let mut wishes = Wishes { driver: "", driver_version: "", compression: None, no_compact: false };
    let mut cql_version = false;
    for (key, value) in startup.options.iter() {
        // In any case, as nodes read them.
        match key.to_ascii_uppercase().as_str() {
            "CQL_VERSION" => cql_version = true,
            "COMPRESSION" => {
                wishes.compression = match value.to_ascii_lowercase().as_str() {
                    "lz4" => Some(Algorithm::Lz4),
                    "snappy" if version < 5 => Some(Algorithm::Snappy),
                    "" | "none" => None,
                    other => return Err(format!("Unknown compression algorithm: {other}")),
                }
            }
            "DRIVER_NAME" => wishes.driver = value,
            "DRIVER_VERSION" => wishes.driver_version = value,
            "NO_COMPACT" => wishes.no_compact = value.eq_ignore_ascii_case("true"),
            _ => {}
        }
    }
    if !cql_version {
        return Err("Missing value CQL_VERSION in STARTUP message".to_owned());
    }
    Ok(wishes)
}
