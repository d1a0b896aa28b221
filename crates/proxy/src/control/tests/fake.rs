//! A ring of CQL servers in this process, with the answers that the control plane needs.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shunt_wire::cql::envelope::{EVENT_STREAM, HEADER_BYTES, Header, opcode};
use shunt_wire::cql::frame_v5::{self, SegmentWriter};
use shunt_wire::cql::message::encode_result::{RowsWriter, native};
use shunt_wire::cql::message::{AuthResponse, Consistency, Event, Query, encode, error_code, put};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio::task::{AbortHandle, JoinSet};

/// A node as the system tables show it.
#[derive(Clone)]
pub(super) struct FakeNode {
    pub(super) host_id: u128,
    /// Address in `system.local` and `system.peers`.
    pub(super) address: SocketAddr,
    pub(super) datacentre: &'static str,
    pub(super) tokens: Vec<i64>,
    pub(super) release_version: &'static str,
    /// 0: null.
    pub(super) schema_version: u128,
}

/// The state that all nodes of the ring report.
pub(super) struct FakeState {
    pub(super) nodes: Vec<FakeNode>,
    /// Rows that every node has about peers, besides those of the nodes.
    pub(super) remnants: Vec<FakeNode>,
    pub(super) cluster_name: &'static str,
    /// Name and replication.
    pub(super) keyspaces: Vec<(String, Vec<(String, String)>)>,
    /// Keyspace, table, column, kind, position, type.
    pub(super) columns: Vec<(String, String, String, &'static str, i32, &'static str)>,
    /// Delay of every answer.
    pub(super) delay: Duration,
    pub(super) version_min: u8,
    pub(super) version_max: u8,
    pub(super) login: Option<(&'static str, &'static str)>,
    /// True for Cassandra 4.0 and later: `peers_v2`, ports in the tables.
    pub(super) tells_ports: bool,
    /// Rows of a page, whatever the request says.
    pub(super) page_rows: usize,
    /// Number of queries answered.
    pub(super) queries: usize,
    /// Number of times that nodes were asked for their own host id alone.
    pub(super) introductions: usize,
    /// Number of inventories of the schema that were begun.
    pub(super) inventories: usize,
    /// A node that knows only the first schema version.
    pub(super) behind: Option<u128>,
    /// Replicas of three that answer about modes and rules; `None`: there are no such tables.
    pub(super) modes: Option<u8>,
    /// True if a question for modes or rules ends the connection.
    pub(super) ends_at_modes: bool,
    /// True if nodes say that the role may not read modes and rules.
    pub(super) modes_forbidden: bool,
    /// Such questions.
    pub(super) mode_questions: usize,
    /// Keyspace, table and mode. There are no rules.
    pub(super) mode_rows: Vec<[&'static str; 3]>,
    /// A node whose list of columns has no last page.
    pub(super) endless: Option<u128>,
    /// Events after which a connection is told the columns; an answer before that waits.
    pub(super) columns_after: usize,
    /// True if such an answer waits.
    pub(super) is_holding: bool,
}

/// Schema version of all nodes at first.
pub(super) const FIRST_SCHEMA_VERSION: u128 = 77;

/// The ring.
pub(super) struct FakeRing {
    pub(super) state: Arc<Mutex<FakeState>>,
    events: broadcast::Sender<Vec<u8>>,
    running: HashMap<u128, AbortHandle>,
}

impl FakeRing {
    /// Starts `count` nodes with host ids from 1 on loopback, on ports of their own.
    pub(super) async fn start(count: u128) -> Self {
        let state = FakeState {
            nodes: Vec::new(),
            remnants: Vec::new(),
            cluster_name: "fake",
            keyspaces: Vec::new(),
            columns: Vec::new(),
            delay: Duration::ZERO,
            version_min: 3,
            version_max: 5,
            login: None,
            tells_ports: true,
            page_rows: 2,
            queries: 0,
            introductions: 0,
            inventories: 0,
            behind: None,
            modes: None,
            ends_at_modes: false,
            modes_forbidden: false,
            mode_questions: 0,
            mode_rows: Vec::new(),
            endless: None,
            columns_after: 0,
            is_holding: false,
        };
        let state = Arc::new(Mutex::new(state));
        let mut ring = Self { state, events: broadcast::channel(2_048).0, running: HashMap::new() };
        for host_id in 1..=count {
            ring.add_node(host_id, "127.0.0.1:0").await;
        }
        ring
    }

    /// Starts one more node.
    pub(super) async fn add_node(&mut self, host_id: u128, address: &str) -> SocketAddr {
        let listener = TcpListener::bind(address).await.expect("bind");
        let address = listener.local_addr().expect("address");
        let node = FakeNode {
            host_id,
            address,
            datacentre: "dc1",
            tokens: vec![host_id as i64 * 1000],
            release_version: "5.0.9",
            schema_version: FIRST_SCHEMA_VERSION,
        };
        self.edit(|state| state.nodes.push(node));
        self.serve(host_id, listener);
        address
    }

    /// Starts one more node at an address that another may just have left.
    pub(super) async fn add_node_soon(&mut self, host_id: u128, address: SocketAddr) {
        drop(bind_soon(address).await);
        self.add_node(host_id, &address.to_string()).await;
    }

    /// Lets a node listen at one more address, which no table shows.
    pub(super) async fn also_at(&mut self, host_id: u128, address: &str) -> SocketAddr {
        let listener = TcpListener::bind(address).await.expect("bind");
        let address = listener.local_addr().expect("address");
        self.serve(host_id, listener);
        address
    }

    /// Lets a killed node listen again at its address.
    pub(super) async fn revive(&mut self, host_id: u128) {
        let listener = bind_soon(self.address(host_id)).await;
        self.serve(host_id, listener);
    }

    /// Lets a node serve the connections of a listener.
    pub(super) fn serve(&mut self, host_id: u128, listener: TcpListener) {
        let (state, events) = (Arc::clone(&self.state), self.events.clone());
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let server = Server {
                    host_id,
                    state: Arc::clone(&state),
                    version: 0,
                    framed: false,
                    out: Vec::new(),
                    events: 0,
                    held: None,
                };
                connections.spawn(server.run(stream, events.subscribe()));
            }
        });
        self.running.insert(host_id, task.abort_handle());
    }

    /// Closes a node's listener and connections.
    pub(super) fn kill(&mut self, host_id: u128) {
        if let Some(task) = self.running.remove(&host_id) {
            task.abort();
        }
    }

    pub(super) fn address(&self, host_id: u128) -> SocketAddr {
        let state = self.state.lock().expect("lock");
        state.nodes.iter().find(|node| node.host_id == host_id).expect("node").address
    }

    pub(super) fn edit(&self, change: impl FnOnce(&mut FakeState)) {
        change(&mut self.state.lock().expect("lock"));
    }

    /// Sends an event on all connections that registered; returns its body.
    pub(super) fn event(&self, event: &Event<'_>) -> Vec<u8> {
        let mut body = Vec::new();
        encode::event(&mut body, event);
        self.send_event(body.clone());
        body
    }

    /// Sends the body of an event on all connections that registered.
    pub(super) fn send_event(&self, body: Vec<u8>) {
        self.events.send(body).expect("nobody is connected");
    }

    /// A keyspace with one table `t` whose partition key is `a`, `b`, and a counter table `c`.
    pub(super) fn add_keyspace(&self, name: &str) {
        let option = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let class = option("class", "org.apache.cassandra.locator.SimpleStrategy");
        let column = |table: &str, column: &str, kind, position, cql_type| {
            (name.to_owned(), table.to_owned(), column.to_owned(), kind, position, cql_type)
        };
        self.edit(|state| {
            state.keyspaces.push((name.to_owned(), vec![class, option("replication_factor", "1")]));
            state.columns.push(column("t", "b", "partition_key", 1, "text"));
            state.columns.push(column("t", "a", "partition_key", 0, "int"));
            state.columns.push(column("t", "v", "regular", -1, "text"));
            state.columns.push(column("t", "l", "regular", -1, "list<frozen<list<int>>>"));
            state.columns.push(column("t", "s", "regular", -1, "set<int>"));
            state.columns.push(column("c", "k", "partition_key", 0, "int"));
            state.columns.push(column("c", "n", "regular", -1, "counter"));
        });
    }
}

/// Listens on an address whose port a killed listener may hold for another moment.
pub(super) async fn bind_soon(address: SocketAddr) -> TcpListener {
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

type Value = Option<Vec<u8>>;

/// One connection of a node.
struct Server {
    host_id: u128,
    state: Arc<Mutex<FakeState>>,
    version: u8,
    framed: bool,
    out: Vec<u8>,
    /// Events sent.
    events: usize,
    /// A query that is answered after more events.
    held: Option<(Header, Vec<u8>)>,
}

impl Server {
    async fn run(mut self, mut stream: TcpStream, mut events: broadcast::Receiver<Vec<u8>>) {
        let (mut received, mut registered) = (Vec::new(), false);
        loop {
            tokio::select! {
                read = stream.read_buf(&mut received) => {
                    if read.unwrap_or_default() == 0 {
                        return;
                    }
                    while let Some((header, body)) = self.next(&mut received) {
                        registered |= header.opcode == opcode::REGISTER;
                        if !self.answer(header, &body) {
                            let _ = stream.write_all(&self.out).await;
                            return;
                        }
                    }
                }
                event = events.recv(), if registered => {
                    let body = event.expect("event");
                    self.send(EVENT_STREAM, opcode::EVENT, &body);
                    self.events += 1;
                    if let Some((header, body)) = self.held.take() {
                        self.answer(header, &body);
                    }
                }
            }
            let delay = self.state.lock().expect("lock").delay;
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            if stream.write_all(&std::mem::take(&mut self.out)).await.is_err() {
                return;
            }
        }
    }

    /// Takes a request out of the received bytes.
    fn next(&self, received: &mut Vec<u8>) -> Option<(Header, Vec<u8>)> {
        let (consumed, envelope) = if self.framed {
            let segment = frame_v5::decode(received, false).expect("segment")?;
            (segment.consumed, segment.payload.to_vec())
        } else {
            let length = HEADER_BYTES + Header::decode(received)?.length as usize;
            (length, received.get(..length)?.to_vec())
        };
        received.drain(..consumed);
        let header = Header::decode(&envelope).expect("header");
        Some((header, envelope[HEADER_BYTES..].to_vec()))
    }

    fn send(&mut self, stream: i16, opcode: u8, body: &[u8]) {
        let mut header = Header::response(self.version, stream, opcode);
        header.length = body.len() as u32;
        if self.framed {
            let mut writer = SegmentWriter::new(false);
            writer.push(&mut self.out, &header.to_bytes(), body);
            writer.finish(&mut self.out);
        } else {
            self.out.extend_from_slice(&header.to_bytes());
            self.out.extend_from_slice(body);
        }
    }

    /// Answers a request; `false` closes the connection.
    fn answer(&mut self, header: Header, body: &[u8]) -> bool {
        let (version_min, version_max, login) = {
            let state = self.state.lock().expect("lock");
            (state.version_min, state.version_max, state.login)
        };
        let (stream, mut answer) = (header.stream, Vec::new());
        if !(version_min..=version_max).contains(&header.version) {
            self.version = version_max;
            encode::error(
                &mut answer,
                error_code::PROTOCOL_ERROR,
                "Invalid or unsupported protocol version",
            );
            // Cassandra does the same, because it has not read the stream id yet.
            self.send(0, opcode::ERROR, &answer);
            return false;
        }
        self.version = header.version;
        match header.opcode {
            opcode::OPTIONS => {
                encode::supported(
                    &mut answer,
                    [("COMPRESSION", vec!["snappy", "lz4"]), ("CQL_VERSION", vec!["3.4.7"])],
                );
                self.send(stream, opcode::SUPPORTED, &answer);
            }
            opcode::STARTUP if login.is_some() => {
                encode::authenticate(
                    &mut answer,
                    "org.apache.cassandra.auth.PasswordAuthenticator",
                );
                self.send(stream, opcode::AUTHENTICATE, &answer);
                self.framed = self.version >= 5;
            }
            opcode::STARTUP => {
                self.send(stream, opcode::READY, &[]);
                self.framed = self.version >= 5;
            }
            opcode::AUTH_RESPONSE => {
                let (user, password) = login.expect("nobody asked for a login");
                let expected = format!("\0{user}\0{password}");
                if AuthResponse::decode(body).expect("token").token == Some(expected.as_bytes()) {
                    encode::auth_success(&mut answer, None);
                    self.send(stream, opcode::AUTH_SUCCESS, &answer);
                } else {
                    encode::error(&mut answer, error_code::BAD_CREDENTIALS, "wrong password");
                    self.send(stream, opcode::ERROR, &answer);
                }
            }
            opcode::REGISTER => self.send(stream, opcode::READY, &[]),
            opcode::QUERY if self.holds(body) => self.held = Some((header, body.to_vec())),
            opcode::QUERY if self.ends_at(body) => return false,
            opcode::QUERY => {
                let opcode = self.query(body, &mut answer);
                self.send(stream, opcode, &answer);
            }
            other => panic!("unexpected opcode {other:#x}"),
        }
        true
    }

    /// True if a query is to be answered later.
    fn holds(&self, body: &[u8]) -> bool {
        let mut state = self.state.lock().expect("lock");
        let is_early = self.events < state.columns_after;
        state.is_holding = is_early
            && Query::decode(self.version, body)
                .expect("query")
                .text
                .contains("FROM system_schema.columns");
        state.is_holding
    }

    /// True if a query for modes or rules ends the connection.
    fn ends_at(&self, body: &[u8]) -> bool {
        let mut state = self.state.lock().expect("lock");
        let text = Query::decode(self.version, body).expect("query").text;
        let is_of_modes = is_of_modes_or_rules(text);
        state.mode_questions += usize::from(is_of_modes);
        is_of_modes && state.ends_at_modes
    }

    /// Answers a query; returns the opcode of the answer.
    fn query(&self, body: &[u8], answer: &mut Vec<u8>) -> u8 {
        let mut state = self.state.lock().expect("lock");
        state.queries += 1;
        let query = Query::decode(self.version, body).expect("query");
        let text = query.text;
        state.introductions += usize::from(text.starts_with("SELECT host_id FROM system.local"));
        state.inventories += usize::from(text.contains("durable_writes"));
        let (columns, rows) = if text.contains("FROM system.local") {
            local(&state, self.host_id)
        } else if text.contains("FROM system.peers_v2") && state.tells_ports {
            peers_v2(&state, self.host_id)
        } else if text.ends_with("FROM system.peers") {
            peers(&state, self.host_id)
        } else if text.contains("FROM system_schema.keyspaces") {
            keyspaces(&state)
        } else if text.contains("FROM system_schema.columns") {
            columns_table(&state)
        } else if text.contains("default_time_to_live FROM system_schema.tables") {
            tables_table(&state)
        } else if state.modes_forbidden && is_of_modes_or_rules(text) {
            let why = "User shunt has no SELECT permission on <table shunt_meta.transactional>";
            encode::error(answer, error_code::UNAUTHORIZED, why);
            return opcode::ERROR;
        } else if let Some(replicas) = state.modes.filter(|_| is_of_modes_or_rules(text)) {
            let wanted = if query.params.consistency == Consistency::ONE { 1 } else { 2 };
            if replicas < wanted {
                encode::error(answer, error_code::OVERLOADED, "too few replicas");
                return opcode::ERROR;
            }
            let is_of_modes = text.contains("FROM shunt_meta.transactional");
            let rows = state.mode_rows.iter().filter(|_| is_of_modes);
            (
                ["keyspace_name", "table_name", "mode"].map(|name| (name, native::TEXT)).to_vec(),
                rows.map(|row| row.map(|value| Some(value.into())).to_vec()).collect(),
            )
        } else {
            encode::error(answer, error_code::INVALID, "unconfigured table");
            return opcode::ERROR;
        };
        let start = query.params.paging_state.map_or(0, |state| {
            usize::from(u16::from_be_bytes(state.try_into().expect("two bytes")))
        });
        let is_endless =
            state.endless == Some(self.host_id) && text.contains("FROM system_schema.columns");
        let end = if is_endless { start } else { (start + state.page_rows).min(rows.len()) };
        let mut writer = RowsWriter::new(answer, "system", "table", &columns);
        rows[start..end].iter().flatten().for_each(|value| {
            writer.value(value.as_deref());
        });
        writer.finish();
        if end < rows.len() || is_endless {
            // Flag HAS_MORE_PAGES, and the paging state behind the column count.
            answer[7] |= 2;
            let mut paging_state = Vec::new();
            put::bytes(&mut paging_state, Some(&(end as u16).to_be_bytes()));
            answer.splice(12..12, paging_state);
        }
        opcode::RESULT
    }
}

/// True if this is a question for modes or rules.
fn is_of_modes_or_rules(text: &str) -> bool {
    text.contains("FROM shunt_meta.transactional") || text.contains("FROM shunt.guards")
}

type Table = (Vec<(&'static str, &'static [u8])>, Vec<Vec<Value>>);

fn text(text: &str) -> Value {
    Some(text.as_bytes().to_vec())
}

fn uuid(uuid: u128) -> Value {
    Some(uuid.to_be_bytes().to_vec())
}

fn int(int: i32) -> Value {
    Some(int.to_be_bytes().to_vec())
}

fn inet(address: SocketAddr) -> Value {
    match address {
        SocketAddr::V4(v4) => Some(v4.ip().octets().to_vec()),
        SocketAddr::V6(v6) => Some(v6.ip().octets().to_vec()),
    }
}

/// A collection of texts: a count, then each with its length.
fn texts<'t>(texts: impl IntoIterator<Item = &'t str>, count: usize) -> Value {
    let mut out = Vec::new();
    put::int(&mut out, count as i32);
    texts.into_iter().for_each(|text| put::bytes(&mut out, Some(text.as_bytes())));
    Some(out)
}

const COMMON: [(&str, &[u8]); 6] = [
    ("host_id", native::UUID),
    ("data_center", native::TEXT),
    ("rack", native::TEXT),
    ("release_version", native::TEXT),
    ("schema_version", native::UUID),
    ("tokens", native::SET_OF_TEXT),
];

fn common(state: &FakeState, asked: u128, node: &FakeNode) -> Vec<Value> {
    let schema_version =
        if state.behind == Some(asked) { FIRST_SCHEMA_VERSION } else { node.schema_version };
    let tokens: Vec<String> = node.tokens.iter().map(ToString::to_string).collect();
    vec![
        uuid(node.host_id),
        text(node.datacentre),
        text("r1"),
        text(node.release_version),
        uuid(schema_version).filter(|_| schema_version > 0),
        texts(tokens.iter().map(String::as_str), tokens.len()),
    ]
}

fn local(state: &FakeState, host_id: u128) -> Table {
    let node = state.nodes.iter().find(|node| node.host_id == host_id).expect("node");
    let mut columns = COMMON.to_vec();
    let mut row = common(state, host_id, node);
    columns.extend([
        ("cluster_name", native::TEXT),
        ("cql_version", native::TEXT),
        ("partitioner", native::TEXT),
    ]);
    row.extend([
        text(state.cluster_name),
        text("3.4.7"),
        text("org.apache.cassandra.dht.Murmur3Partitioner"),
    ]);
    columns.push(("rpc_address", native::INET));
    if state.tells_ports {
        columns.push(("rpc_port", native::INT));
        row.extend([inet(node.address), int(node.address.port().into())]);
    } else {
        row.push(Some(vec![0; 4]));
    }
    (columns, vec![row])
}

fn peers_v2(state: &FakeState, host_id: u128) -> Table {
    let mut columns = COMMON.to_vec();
    columns.extend([
        ("peer", native::INET),
        ("native_address", native::INET),
        ("native_port", native::INT),
    ]);
    let row = |node: &FakeNode| {
        let mut row = common(state, host_id, node);
        row.extend([inet(node.address), inet(node.address), int(node.address.port().into())]);
        row
    };
    let nodes = state.nodes.iter().filter(|node| node.host_id != host_id);
    (columns, nodes.chain(&state.remnants).map(row).collect())
}

/// The old table: no ports, and here every address a wildcard.
fn peers(state: &FakeState, host_id: u128) -> Table {
    let mut columns = COMMON.to_vec();
    columns.extend([("peer", native::INET), ("rpc_address", native::INET)]);
    let row = |node: &FakeNode| {
        let mut row = common(state, host_id, node);
        row.extend([inet(node.address), Some(vec![0; 4])]);
        row
    };
    let nodes = state.nodes.iter().filter(|node| node.host_id != host_id);
    (columns, nodes.chain(&state.remnants).map(row).collect())
}

fn keyspaces(state: &FakeState) -> Table {
    let row = |(name, replication): &(String, Vec<(String, String)>)| {
        let pairs = replication.iter().flat_map(|(key, value)| [key.as_str(), value.as_str()]);
        vec![text(name), texts(pairs, replication.len())]
    };
    let columns = vec![("keyspace_name", native::TEXT), ("replication", native::MAP_OF_TEXT)];
    (columns, state.keyspaces.iter().map(row).collect())
}

fn columns_table(state: &FakeState) -> Table {
    let names =
        ["keyspace_name", "table_name", "column_name", "kind"].map(|name| (name, native::TEXT));
    let mut columns = names.to_vec();
    columns.extend([("position", native::INT), ("type", native::TEXT)]);
    let rows = state.columns.iter().map(|(keyspace, table, column, kind, position, cql_type)| {
        vec![text(keyspace), text(table), text(column), text(kind), int(*position), text(cql_type)]
    });
    (columns, rows.collect())
}

/// Only the tables named `t`.
fn tables_table(state: &FakeState) -> Table {
    let mut columns = ["keyspace_name", "table_name"].map(|name| (name, native::TEXT)).to_vec();
    columns.push(("default_time_to_live", native::INT));
    let row = |(name, _): &(String, Vec<(String, String)>)| vec![text(name), text("t"), int(0)];
    (columns, state.keyspaces.iter().map(row).collect())
}
