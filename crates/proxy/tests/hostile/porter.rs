//! A node of which only the door matters: it opens, refuses, or leaves one standing there, as the test wants. Behind
//! it every query is answered with nothing, or held.

use std::collections::BTreeMap;

use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::framing::{Input, Next, Output, Scratch};
use shunt_wire::cql::message::encode_result::{RowsWriter, native};
use shunt_wire::cql::message::{Consistency, Query, Startup, encode, error_code};

/// What happens to a request at the door.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Door {
    Open,
    /// An ERROR with this code.
    Refused(i32),
    /// No answer.
    Silent,
}

/// A connection.
#[derive(Default)]
struct Guest {
    input: Input,
    keyspace: Option<String>,
    token: Vec<u8>,
}

pub struct Porter {
    /// Host id and cluster that it says are its own.
    pub identity: (u128, String),
    /// What happens to who asks for them.
    pub introduces: Door,
    /// Whoever logged in with this is not told.
    pub refused_introduction: Option<&'static [u8]>,
    /// Asks for a login.
    pub asks: bool,
    /// STARTUP with a compression.
    pub compression: Door,
    pub login: Door,
    pub keyspace: Door,
    /// What it says when it refuses.
    pub words: &'static str,
    /// Refused whatever `keyspace` says.
    pub refused_keyspace: Option<&'static str>,
    /// Every connection is reset at once.
    pub shut: bool,
    /// Queries are not answered until [`Porter::let_go`].
    pub holds: bool,
    held: Vec<(ConnId, Header)>,
    guests: BTreeMap<(u32, u32), Guest>,
    /// Every query, with the keyspace of its connection.
    pub queries: Vec<(Option<String>, String)>,
    pub logins: u64,
    pub uses: u64,
    /// Questions who it is.
    pub introductions: u64,
    pub connections: u64,
}

impl Porter {
    pub fn new(asks: bool, identity: (u128, String)) -> Porter {
        Porter {
            identity,
            introduces: Door::Open,
            refused_introduction: None,
            asks,
            compression: Door::Open,
            login: Door::Open,
            keyspace: Door::Open,
            words: "the porter says no",
            refused_keyspace: None,
            shut: false,
            holds: false,
            held: Vec::new(),
            guests: BTreeMap::new(),
            queries: Vec::new(),
            logins: 0,
            uses: 0,
            introductions: 0,
            connections: 0,
        }
    }

    /// Connections there are.
    pub fn guests(&self) -> usize {
        self.guests.len()
    }

    /// Resets the connections with this keyspace.
    pub fn throw_out(&mut self, io: &mut Io, keyspace: Option<&str>) {
        let out = |guest: &Guest| guest.keyspace.as_deref() == keyspace;
        let conns: Vec<_> = self.guests.iter().filter(|(_, guest)| out(guest)).map(|(conn, _)| *conn).collect();
        for (index, generation) in conns {
            self.guests.remove(&(index, generation));
            io.abort(ConnId { index, generation });
        }
    }

    /// Answers what is held, and everything from now on.
    pub fn let_go(&mut self, io: &mut Io) {
        self.holds = false;
        for (conn, header) in std::mem::take(&mut self.held) {
            send(io, conn, header, opcode::RESULT, &VOID);
        }
    }

    fn serve(&mut self, io: &mut Io, conn: ConnId, guest: &mut Guest, header: Header, body: &[u8]) {
        let mut answer = Vec::new();
        let (door, op) = match header.opcode {
            opcode::OPTIONS => {
                encode::supported(&mut answer, [("CQL_VERSION", ["3.4.7"])]);
                (Door::Open, opcode::SUPPORTED)
            }
            opcode::STARTUP => {
                let compresses = Startup::decode(body).is_ok_and(|asked| asked.options.get("COMPRESSION").is_some());
                let door = if compresses { self.compression } else { Door::Open };
                if self.asks {
                    encode::authenticate(&mut answer, "org.apache.cassandra.auth.PasswordAuthenticator");
                }
                (door, if self.asks { opcode::AUTHENTICATE } else { opcode::READY })
            }
            opcode::AUTH_RESPONSE => {
                self.logins += 1;
                guest.token = body.get(4..).unwrap_or_default().to_vec();
                encode::auth_success(&mut answer, None);
                (self.login, opcode::AUTH_SUCCESS)
            }
            _ => {
                let text = Query::decode(header.version, body).map_or("", |query| query.text);
                if let Some(keyspace) = text.strip_prefix("USE ") {
                    self.uses += 1;
                    guest.keyspace = Some(keyspace.trim_matches('"').to_owned());
                    encode::set_keyspace(&mut answer, keyspace);
                    let refused = guest.keyspace.as_deref() == self.refused_keyspace;
                    (if refused { Door::Refused(error_code::INVALID) } else { self.keyspace }, opcode::RESULT)
                } else if text.contains("FROM system.local") && text.contains("host_id") {
                    self.introductions += 1;
                    let columns = [("host_id", native::UUID), ("cluster_name", native::TEXT)];
                    let mut rows = RowsWriter::new(&mut answer, "system", "local", &columns);
                    rows.value(Some(&self.identity.0.to_be_bytes())).value(Some(self.identity.1.as_bytes()));
                    rows.finish();
                    let refused = self.refused_introduction == Some(&guest.token[..]);
                    (if refused { Door::Refused(error_code::UNAUTHORIZED) } else { self.introduces }, opcode::RESULT)
                } else {
                    self.queries.push((guest.keyspace.clone(), text.to_owned()));
                    if self.holds {
                        self.held.push((conn, header));
                        return;
                    }
                    answer.extend(VOID);
                    (Door::Open, opcode::RESULT)
                }
            }
        };
        match door {
            Door::Open => send(io, conn, header, op, &answer),
            Door::Silent => {}
            Door::Refused(code) => {
                answer.clear();
                encode::error(&mut answer, code, self.words);
                send(io, conn, header, opcode::ERROR, &answer);
            }
        }
    }
}

const VOID: [u8; 4] = [0, 0, 0, 1];

fn send(io: &mut Io, conn: ConnId, asked: Header, op: u8, body: &[u8]) {
    Output::default().push(io.output(conn), Header::response(asked.version, asked.stream, op), body);
}

impl Service for Porter {
    type Mail = ();

    fn accepted(&mut self, io: &mut Io, conn: ConnId, _origin: &Accepted) {
        self.connections += 1;
        if self.shut {
            return io.abort(conn);
        }
        self.guests.insert((conn.index, conn.generation), Guest::default());
    }

    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {
        unreachable!("a porter calls nobody");
    }

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let Some(mut guest) = self.guests.remove(&(conn.index, conn.generation)) else { return data.len() };
        let mut input = std::mem::take(&mut guest.input);
        let used = input.feed(data, &mut Scratch::default(), |header, body| {
            self.serve(io, conn, &mut guest, header, body);
            Next::Continue
        });
        guest.input = input;
        self.guests.insert((conn.index, conn.generation), guest);
        used.unwrap()
    }

    fn closed(&mut self, _io: &mut Io, conn: ConnId, _reason: CloseReason) {
        self.guests.remove(&(conn.index, conn.generation));
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn timer(&mut self, _io: &mut Io, _key: u64) {}
    fn mail(&mut self, _io: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _io: &mut Io) {}
}

/// A simple query.
pub fn select(stream: i16) -> Vec<u8> {
    let body = super::bytes::body(|out| encode::query_simple(out, 4, "SELECT v FROM t WHERE k = 1", Consistency::ONE));
    super::bytes::request(4, stream, opcode::QUERY, &body)
}
