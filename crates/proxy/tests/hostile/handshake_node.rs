//! A node for tests of the handshake: it accepts each step, refuses it or ignores it, as the test
//! wants. Queries get an empty answer, or are held.

use std::collections::{BTreeMap, BTreeSet};

use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_testing::bytes;
use shunt_wire::cql::envelope::{BODY_BYTES_MAX, Header, opcode};
use shunt_wire::cql::message::encode_result::{RowsWriter, native};
use shunt_wire::cql::message::{Query, Startup, encode, error_code};
use shunt_wire::cql::reader::EnvelopeReader;
use shunt_wire::cql::writer::EnvelopeWriter;

/// The reaction of the node to a step of the handshake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reaction {
    Accept,
    /// Answers with an ERROR of this code.
    Refuse(i32),
    /// Does not answer.
    Ignore,
}

/// A connection to the node.
#[derive(Default)]
struct Connection {
    reader: EnvelopeReader,
    keyspace: Option<String>,
    token: Vec<u8>,
    /// URIs in the certificate of the peer.
    uris: Vec<String>,
}

pub struct HandshakeNode {
    /// Host id and cluster that it claims as its own.
    pub identity: (u128, String),
    /// The reaction to the query for them.
    pub identification: Reaction,
    /// A connection that logged in with this token does not get them.
    pub hides_identity_from: Option<&'static [u8]>,
    /// True if it asks for a login.
    pub asks_for_login: bool,
    /// True if a certificate is a login here, so that those who show one are not asked.
    pub takes_certificates_at_once: bool,
    /// A certificate with this URI ends its connection as soon as it is seen.
    pub refused_uri: Option<&'static str>,
    /// True if it does so by a reset.
    pub refuses_by_reset: bool,
    /// Class of the authenticator with which it asks.
    pub authenticator: &'static str,
    /// The reaction to STARTUP with a compression.
    pub compression: Reaction,
    /// The reaction to AUTH_RESPONSE.
    pub login: Reaction,
    /// A token that is refused whatever `login` says.
    pub refused_token: Option<&'static [u8]>,
    /// A login with this password gets no answer, whatever `login` says.
    pub ignored_password: Option<&'static str>,
    /// The reaction to USE.
    pub keyspace: Reaction,
    /// Logins that may SELECT from tables of locks, with the table.
    pub permits: BTreeSet<(&'static [u8], &'static str)>,
    /// The reaction to a SELECT from such a table; an accepted one succeeds only for a login that
    /// may.
    pub permission: Reaction,
    /// Number of such SELECTs.
    pub permission_queries: u64,
    /// The text of its ERRORs.
    pub error_text: &'static str,
    /// A keyspace that is refused whatever `keyspace` says.
    pub refused_keyspace: Option<&'static str>,
    /// True if every connection is reset at once.
    pub refuses_connections: bool,
    /// True if queries wait until [`HandshakeNode::release`].
    pub holds_queries: bool,
    held: Vec<(ConnId, Header)>,
    open: BTreeMap<(u32, u32), Connection>,
    /// The received queries, each with the keyspace of its connection.
    pub queries: Vec<(Option<String>, String)>,
    /// The token of the connection of each of them.
    pub tokens: Vec<Vec<u8>>,
    /// The first URI in the certificate of that connection; empty: it showed none.
    pub uris: Vec<String>,
    /// The tokens of all AUTH_RESPONSEs.
    pub shown_tokens: Vec<Vec<u8>>,
    pub logins: u64,
    pub uses: u64,
    /// Number of queries for its identity.
    pub identity_queries: u64,
    /// Number of connections so far.
    pub accepted: u64,
}

impl HandshakeNode {
    pub fn new(asks_for_login: bool, identity: (u128, String)) -> HandshakeNode {
        HandshakeNode {
            identity,
            identification: Reaction::Accept,
            hides_identity_from: None,
            asks_for_login,
            takes_certificates_at_once: false,
            refused_uri: None,
            refuses_by_reset: false,
            authenticator: "org.apache.cassandra.auth.PasswordAuthenticator",
            compression: Reaction::Accept,
            login: Reaction::Accept,
            refused_token: None,
            ignored_password: None,
            keyspace: Reaction::Accept,
            permits: BTreeSet::new(),
            permission: Reaction::Accept,
            permission_queries: 0,
            error_text: "the node says no",
            refused_keyspace: None,
            refuses_connections: false,
            holds_queries: false,
            held: Vec::new(),
            open: BTreeMap::new(),
            queries: Vec::new(),
            tokens: Vec::new(),
            uris: Vec::new(),
            shown_tokens: Vec::new(),
            logins: 0,
            uses: 0,
            identity_queries: 0,
            accepted: 0,
        }
    }

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        self.open.len()
    }

    /// Resets the connections with this keyspace.
    pub fn reset_connections(&mut self, io: &mut Io, keyspace: Option<&str>) {
        let out = |connection: &Connection| connection.keyspace.as_deref() == keyspace;
        let conns: Vec<_> = self
            .open
            .iter()
            .filter(|(_, connection)| out(connection))
            .map(|(conn, _)| *conn)
            .collect();
        for (index, generation) in conns {
            self.open.remove(&(index, generation));
            io.abort(ConnId { index, generation });
        }
    }

    /// Refuses a USE that it has ignored.
    pub fn refuse_use(&mut self, io: &mut Io, keyspace: &str) {
        let is_meant = |connection: &Connection| connection.keyspace.as_deref() == Some(keyspace);
        let found = self.open.iter().find(|(_, connection)| is_meant(connection));
        let Some((&(index, generation), _)) = found else { return };
        let mut answer = Vec::new();
        encode::error(&mut answer, error_code::INVALID, self.error_text);
        let asked = Header::request(4, 0, opcode::QUERY);
        send(io, ConnId { index, generation }, asked, opcode::ERROR, &answer);
    }

    /// Answers the held queries, and all queries from now on.
    pub fn release(&mut self, io: &mut Io) {
        self.holds_queries = false;
        for (conn, header) in std::mem::take(&mut self.held) {
            send(io, conn, header, opcode::RESULT, &VOID);
        }
    }

    fn serve(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        connection: &mut Connection,
        header: Header,
        body: &[u8],
    ) {
        let mut answer = Vec::new();
        let (reaction, op) = match header.opcode {
            opcode::OPTIONS => {
                encode::supported(&mut answer, [("CQL_VERSION", ["3.4.7"])]);
                (Reaction::Accept, opcode::SUPPORTED)
            }
            opcode::STARTUP => {
                let compresses = Startup::decode(body)
                    .is_ok_and(|asked| asked.options.get("COMPRESSION").is_some());
                let reaction = if compresses { self.compression } else { Reaction::Accept };
                let is_known = self.takes_certificates_at_once && !connection.uris.is_empty();
                let asks = self.asks_for_login && !is_known;
                if asks {
                    encode::authenticate(&mut answer, self.authenticator);
                }
                (reaction, if asks { opcode::AUTHENTICATE } else { opcode::READY })
            }
            opcode::AUTH_RESPONSE => {
                self.logins += 1;
                connection.token = body.get(4..).unwrap_or_default().to_vec();
                self.shown_tokens.push(connection.token.clone());
                encode::auth_success(&mut answer, None);
                let is_refused = self.refused_token == Some(&connection.token[..]);
                let refusal = Reaction::Refuse(error_code::BAD_CREDENTIALS);
                let is_ignored = self
                    .ignored_password
                    .is_some_and(|password| connection.token.ends_with(password.as_bytes()));
                let reaction = match (is_ignored, is_refused) {
                    (true, _) => Reaction::Ignore,
                    (false, true) => refusal,
                    (false, false) => self.login,
                };
                (reaction, opcode::AUTH_SUCCESS)
            }
            _ => {
                let text = Query::decode(header.version, body).map_or("", |query| query.text);
                if let Some(keyspace) = text.strip_prefix("USE ") {
                    self.uses += 1;
                    connection.keyspace = Some(keyspace.trim_matches('"').to_owned());
                    encode::set_keyspace(&mut answer, keyspace);
                    let refused = connection.keyspace.as_deref() == self.refused_keyspace;
                    (
                        if refused { Reaction::Refuse(error_code::INVALID) } else { self.keyspace },
                        opcode::RESULT,
                    )
                } else if text.contains("FROM system.local") && text.contains("host_id") {
                    self.identity_queries += 1;
                    let columns = [("host_id", native::UUID), ("cluster_name", native::TEXT)];
                    let mut rows = RowsWriter::new(&mut answer, "system", "local", &columns);
                    rows.value(Some(&self.identity.0.to_be_bytes()))
                        .value(Some(self.identity.1.as_bytes()));
                    rows.finish();
                    let refused = self.hides_identity_from == Some(&connection.token[..]);
                    (
                        if refused {
                            Reaction::Refuse(error_code::UNAUTHORIZED)
                        } else {
                            self.identification
                        },
                        opcode::RESULT,
                    )
                } else if let Some((_, rest)) = text.split_once("FROM shunt.") {
                    let table = rest.split(' ').next().unwrap_or_default();
                    // A proxy of a fleet also reads the rules of all tables.
                    self.permission_queries += u64::from(table != "guards");
                    RowsWriter::new(&mut answer, "shunt", "locks", &[("name", native::TEXT)])
                        .finish();
                    let may = self
                        .permits
                        .iter()
                        .any(|(login, of)| *login == &connection.token[..] && *of == table);
                    let refused = Reaction::Refuse(error_code::UNAUTHORIZED);
                    (
                        if may || self.permission != Reaction::Accept {
                            self.permission
                        } else {
                            refused
                        },
                        opcode::RESULT,
                    )
                } else {
                    self.queries.push((connection.keyspace.clone(), text.to_owned()));
                    self.tokens.push(connection.token.clone());
                    self.uris.push(connection.uris.first().cloned().unwrap_or_default());
                    if self.holds_queries {
                        self.held.push((conn, header));
                        return;
                    }
                    answer.extend(VOID);
                    (Reaction::Accept, opcode::RESULT)
                }
            }
        };
        match reaction {
            Reaction::Accept => send(io, conn, header, op, &answer),
            Reaction::Ignore => {}
            Reaction::Refuse(code) => {
                answer.clear();
                encode::error(&mut answer, code, self.error_text);
                send(io, conn, header, opcode::ERROR, &answer);
            }
        }
    }
}

const VOID: [u8; 4] = [0, 0, 0, 1];

fn send(io: &mut Io, conn: ConnId, asked: Header, op: u8, body: &[u8]) {
    EnvelopeWriter::default().push(
        io.output(conn),
        Header::response(asked.version, asked.stream, op),
        body,
    );
}

impl Service for HandshakeNode {
    type Mail = ();

    fn accepted(&mut self, io: &mut Io, conn: ConnId, _origin: &Accepted) {
        self.accepted += 1;
        if self.refuses_connections {
            return io.abort(conn);
        }
        let names = io.session_info(conn).map(|session| &session.peer_names[..]);
        let uris: Vec<String> =
            names.unwrap_or_default().iter().map(|name| name.text.to_string()).collect();
        if uris.iter().any(|uri| Some(&uri[..]) == self.refused_uri) {
            return if self.refuses_by_reset { io.abort(conn) } else { io.close(conn) };
        }
        let connection = Connection { uris, ..Connection::default() };
        self.open.insert((conn.index, conn.generation), connection);
    }

    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {
        unreachable!("nodes do not connect");
    }

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let Some(mut connection) = self.open.remove(&(conn.index, conn.generation)) else {
            return data.len();
        };
        let mut reader = std::mem::take(&mut connection.reader);
        let mut scratch = Vec::new();
        let mut envelopes = reader.read(data, &mut scratch);
        while let Some((header, body)) = envelopes.next(BODY_BYTES_MAX, None).unwrap() {
            self.serve(io, conn, &mut connection, header, body);
        }
        let used = envelopes.finish();
        connection.reader = reader;
        self.open.insert((conn.index, conn.generation), connection);
        used
    }

    fn closed(&mut self, _io: &mut Io, conn: ConnId, _reason: CloseReason) {
        self.open.remove(&(conn.index, conn.generation));
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn timer(&mut self, _io: &mut Io, _key: u64) {}
    fn mail(&mut self, _io: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _io: &mut Io) {}
}

/// A simple query.
pub fn select(stream: i16) -> Vec<u8> {
    bytes::query(4, stream, "SELECT v FROM t WHERE k = 1")
}
