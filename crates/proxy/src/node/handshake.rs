//! Opening a link: OPTIONS, STARTUP, the pool's login, the question who is there ([`super::identity`]), USE of the pool's
//! keyspace, each after the answer to the one before (section 3 and 4 of the specifications).

use shunt_reactor::Io;
use shunt_wire::aggregate::{AggregateWriter, Limits};
use shunt_wire::cql::compression::Algorithm;
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::frame_v5::SegmentWriter;
use shunt_wire::cql::message::{Authenticate, Consistency, encode, error_code, split_response_prefix};

use crate::core::Core;
use crate::limits;
use crate::log_limits::Logged;
use crate::metrics::GivenUp;
use crate::node::{LinkWriter, PoolId, Role, Step, Verdict};
use crate::repair::cannot_serve;

impl Core {
    pub(crate) fn link_connected(&mut self, io: &mut Io, key: u32) {
        let Some(link) = self.links.get_mut(key as usize) else { return };
        link.step = Step::Options;
        link.last_received_ns = io.now_ns();
        self.write_handshake(io, key, opcode::OPTIONS, &[]);
    }

    /// The answer to the last step.
    pub(crate) fn handshake_answer(&mut self, io: &mut Io, key: u32, header: &Header, body: &[u8]) {
        let Some(link) = self.links.get(key as usize) else { return };
        match (link.step, header.opcode) {
            (Step::Options, opcode::SUPPORTED) => self.send_startup(io, key, body),
            (Step::Startup, opcode::READY) => {
                self.switch_framing(key);
                // A node that asks for no login accepts any.
                self.ask_identity(io, key);
            }
            (Step::Startup, opcode::AUTHENTICATE) => {
                self.switch_framing(key);
                self.send_login(io, key, header, body);
            }
            (Step::Login, opcode::AUTH_SUCCESS) => self.ask_identity(io, key),
            (Step::Identity, opcode::RESULT | opcode::ERROR) => self.take_identity(io, key, header, body),
            (Step::Login, opcode::AUTH_CHALLENGE) => {
                let why = "the node's login takes several steps, which this proxy cannot repeat for its shared links";
                self.refuse_login(io, key, why);
            }
            (Step::Use, opcode::RESULT) => self.link_ready(io, key),
            (step @ (Step::Login | Step::Use), opcode::ERROR) => {
                let mut plain = Vec::new();
                match self.plain_error(key, header, body, &mut plain) {
                    Some(error) if is_no_verdict(error) => {
                        self.turned_away(io, key, "it cannot say whether a login or keyspace is right", None);
                    }
                    Some(error) => self.step_refused(io, key, step == Step::Login, error),
                    None => self.node_fault(io, key, &format!("the body of its ERROR in {step:?} is malformed")),
                }
            }
            (Step::Options | Step::Startup, opcode::ERROR) if is_protocol_error(header, body) => {
                self.wishes_refused(io, key);
            }
            (step, op) => {
                let name = opcode::name(op).unwrap_or("an unknown message");
                self.node_fault(io, key, &format!("{name} is no answer to {step:?}"));
            }
        }
    }

    fn send_startup(&mut self, io: &mut Io, key: u32, supported: &[u8]) {
        let offer = match self.read_offer(io, key, supported) {
            Ok(offer) => offer,
            Err(why) => {
                self.node_fault(io, key, &why);
                return;
            }
        };
        let Some(link) = self.links.get_mut(key as usize) else { return };
        let Some(pool) = self.pools.get(link.pool) else { return };
        if offer.is_some() {
            // Aggregated frames exist on v4 connections; what they carry is of the clients' version.
            link.aggregate = offer;
            link.version = 4;
        } else if matches!(link.role, Role::Replaces(..)) {
            self.upgrade_failed(io, key, "it does not offer aggregated frames on that port");
            return;
        }
        let mut options = vec![("CQL_VERSION", "3.0.0"), ("DRIVER_NAME", "Shunt")];
        options.push(("DRIVER_VERSION", env!("CARGO_PKG_VERSION")));
        match pool.key.compression {
            Some(Algorithm::Lz4) => options.push(("COMPRESSION", "lz4")),
            Some(Algorithm::Snappy) => options.push(("COMPRESSION", "snappy")),
            None => {}
        }
        if pool.key.no_compact {
            options.push(("NO_COMPACT", "true"));
        }
        link.step = Step::Startup;
        let mut body = Vec::new();
        encode::startup(&mut body, options);
        self.write_handshake(io, key, opcode::STARTUP, &body);
    }

    /// v5: after the answer to STARTUP everything travels in segments (v5 section 2.2).
    fn switch_framing(&mut self, key: u32) {
        let Some(link) = self.links.get_mut(key as usize) else { return };
        if link.version >= 5 {
            link.segmented = true;
            link.writer = LinkWriter::Segments(SegmentWriter::new(false));
        }
    }

    fn send_login(&mut self, io: &mut Io, key: u32, header: &Header, body: &[u8]) {
        let Some(link) = self.links.get_mut(key as usize) else { return };
        let Some(pool) = self.pools.get(link.pool) else { return };
        let Some(token) = pool.key.login.clone() else {
            let asked = split_response_prefix(header.flags, body).map(|(_, body)| body).and_then(Authenticate::decode);
            match asked.map(|asked| Verdict::asks_for_login(asked.class)) {
                Ok(verdict) => {
                    let why = "it asks for a login, which the ring did not when its clients connected";
                    self.turned_away(io, key, why, Some(verdict));
                }
                Err(error) => self.node_fault(io, key, &format!("its AUTHENTICATE is malformed: {error}")),
            }
            return;
        };
        link.step = Step::Login;
        let mut body = Vec::new();
        encode::auth_response(&mut body, Some(&token));
        self.write_handshake(io, key, opcode::AUTH_RESPONSE, &body);
    }

    /// The node took the login, and is the one it should be.
    pub(crate) fn link_logged_in(&mut self, io: &mut Io, key: u32) {
        let Some(link) = self.links.get(key as usize) else { return };
        let (pool, role) = (link.pool, link.role);
        self.login_accepted(io, pool);
        if role == Role::Verifies {
            self.drop_link(io, key);
            self.ensure_links(io, pool);
        } else {
            self.send_use(io, key);
        }
    }

    fn send_use(&mut self, io: &mut Io, key: u32) {
        let Some(link) = self.links.get_mut(key as usize) else { return };
        let keyspace = self.pools.get(link.pool).and_then(|pool| pool.key.keyspace.clone());
        let Some(keyspace) = keyspace else {
            self.link_ready(io, key);
            return;
        };
        link.step = Step::Use;
        let version = link.version;
        let text = format!("USE \"{}\"", keyspace.replace('"', "\"\""));
        let mut body = Vec::new();
        encode::query_simple(&mut body, version, &text, Consistency::ONE);
        self.write_handshake(io, key, opcode::QUERY, &body);
    }

    /// The message itself of an ERROR: decompressed, and without what its flags put in front (warnings, say). It may
    /// go to clients under flags of its own.
    fn plain_error<'a>(&self, key: u32, header: &Header, body: &'a [u8], plain: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let body = self.plain_body(key, header.flags, body, limits::HANDSHAKE_BYTES_MAX, plain)?;
        split_response_prefix(header.flags, body).ok().map(|(_, error)| error)
    }

    /// An ERROR where the login or the keyspace was to be accepted: it goes to the clients who asked for it.
    fn step_refused(&mut self, io: &mut Io, key: u32, login: bool, body: &[u8]) {
        let verdict = Verdict::of_node(body, login);
        if let Some(pool) = self.pool_refused(io, key, "its login or keyspace was refused", Some(verdict)) {
            self.switch_refused(io, pool, login, body);
        }
    }

    /// A node refuses what the pool of this link asks for, not the link: it is dropped, and the node asked again ever more
    /// rarely. The pool; none when the node's ordinary port takes the same, and this is between the node and its other port.
    fn pool_refused(&mut self, io: &mut Io, key: u32, why: &str, verdict: Option<Verdict>) -> Option<PoolId> {
        let link = self.links.get(key as usize)?;
        let (id, node) = (link.pool, link.node);
        if matches!(link.role, Role::Replaces(..)) {
            self.upgrade_failed(io, key, why);
            return None;
        }
        let (now, random) = (io.now_ns(), self.random());
        if let Some(pool) = self.pools.get_mut(id) {
            pool.refused_by(node, verdict, now, random);
        }
        self.count_given_up(node, GivenUp::Refused);
        self.drop_link(io, key);
        Some(id)
    }

    /// The node does not take what this pool's clients asked for in STARTUP: their version of the protocol, say, or their
    /// compression. That is between the pool and the node; others are welcome there.
    fn wishes_refused(&mut self, io: &mut Io, key: u32) {
        self.turned_away(io, key, "it does not take that version, compression or options", Some(Verdict::of_wishes()));
    }

    /// A node gives a pool no link, and that is no answer to its clients' login or USE.
    pub(crate) fn turned_away(&mut self, io: &mut Io, key: u32, why: &str, verdict: Option<Verdict>) {
        let node = self.links.get(key as usize).map(|link| self.node_named(link.node));
        let Some(pool) = self.pool_refused(io, key, why, verdict) else { return };
        if let Some(suppressed) = self.log_limits.admit(Logged::NoAccess, io.now_ns()) {
            let names = self.pools.get(pool).map(|pool| pool.names.clone());
            let role = names.as_ref().and_then(|names| names.role.as_deref());
            let keyspace = names.as_ref().and_then(|names| names.keyspace.as_deref());
            tracing::info!(
                core = self.index,
                node,
                role,
                keyspace,
                why,
                suppressed,
                "a node gives the links of a pool no access"
            );
        }
        self.cursor = self.cursor.wrapping_add(1);
        if let Some(pool) = self.pools.get_mut(pool) {
            // The tick asks another node while somebody waits; asked at once, this one would be hammered.
            pool.verifying = false;
        }
    }

    fn refuse_login(&mut self, io: &mut Io, key: u32, why: &str) {
        let mut body = Vec::new();
        encode::error(&mut body, error_code::BAD_CREDENTIALS, why);
        self.step_refused(io, key, true, &body);
    }

    /// Handshake messages travel one at a time, so they need no stream table.
    pub(crate) fn write_handshake(&mut self, io: &mut Io, key: u32, op: u8, body: &[u8]) {
        let Some(link) = self.links.get_mut(key as usize) else { return };
        let header = Header {
            version: link.version,
            response: false,
            flags: 0,
            stream: 0,
            opcode: op,
            length: body.len() as u32,
        };
        let out = io.output(link.conn);
        match &mut link.writer {
            LinkWriter::Segments(writer) => {
                writer.push(out, &header.to_bytes(), body);
                if !std::mem::replace(&mut link.dirty, true) {
                    self.dirty_links.push(key);
                }
            }
            LinkWriter::Envelopes | LinkWriter::Aggregate(_) => {
                out.extend_from_slice(&header.to_bytes());
                out.extend_from_slice(body);
            }
        }
    }

    /// From here on queries go out in the layout the node understands best.
    pub(crate) fn choose_layout(&mut self, key: u32) {
        let Some(link) = self.links.get_mut(key as usize) else { return };
        if let Some(offer) = link.aggregate {
            link.writer = LinkWriter::Aggregate(AggregateWriter::new(Limits::from(offer)));
        }
    }
}

/// Whether an ERROR in place of a login's or a keyspace's acceptance says of neither that it is wrong: the node is
/// overloaded, starts or stops, or cannot read its own tables, in which case PasswordAuthenticators speak of bad
/// credentials all the same.
fn is_no_verdict(error: &[u8]) -> bool {
    match error_code::peek(error) {
        // The message's length comes between the code and the text.
        Some(error_code::BAD_CREDENTIALS) => {
            error.get(6..).is_some_and(|text| NOT_CHECKED.iter().any(|words| text.starts_with(words)))
        }
        Some(code) => cannot_serve(code) || matches!(code, error_code::READ_TIMEOUT | error_code::READ_FAILURE),
        None => false,
    }
}

/// How authenticators begin when they could not look the role up. Looked for at the start only: further on, a role's name
/// may be quoted.
const NOT_CHECKED: [&[u8]; 7] = [
    // Cassandra since 4.0, 3, and before.
    b"Unable to perform authentication",
    b"Error during authentication of user",
    b"org.apache.cassandra.exceptions.",
    // ScyllaDB: the words of the read's own error.
    b"Could not verify password",
    b"Cannot achieve consistency level",
    b"Operation timed out",
    b"Operation failed",
];

/// Whether an ERROR, whose body is never compressed that early, says that what was asked is not understood.
fn is_protocol_error(header: &Header, body: &[u8]) -> bool {
    let error = split_response_prefix(header.flags, body).map_or(&[][..], |(_, error)| error);
    error_code::peek(error) == Some(error_code::PROTOCOL_ERROR)
}
