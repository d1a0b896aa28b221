//! Keyspaces whose tables take part in transactions, and their log, played by nodes; and clients of
//! a fleet with one member.
//!
//! Each table has the columns `id int PRIMARY KEY, v int`, and perhaps `w int`. Nodes keep no rows:
//! they note the writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use shunt_bench::stub::hook::Request;
use shunt_bench::stub::{Action, Hook};
use shunt_reactor::sim::{HostId, SECOND};
use shunt_testing::{Answer, bytes, simulated};
use shunt_transactions::record::{Record, Write};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::encode_result::{PreparedSpec, prepared};
use shunt_wire::cql::message::error_code::{
    INVALID, IS_BOOTSTRAPPING, OVERLOADED, UNAUTHORIZED, UNAVAILABLE,
};
use shunt_wire::cql::message::{
    Consistency, Execute, Prepare, Query, QueryParams, SchemaChange, Value, encode, put,
};

use super::lock_ring::{self, LockTestbed, Tables, answer, applied, rows, some};
use super::support::scene::SceneOptions;
use super::testbed::Testbed;
use super::transaction_replicas::Obstacle;
use super::transaction_rows;

/// The nodes' handling of transactions' writes to a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    #[default]
    Acknowledged,
    Unanswered,
    /// Without an answer for this table.
    UnansweredOf(&'static str),
    /// Error: too few replicas.
    Unavailable,
    /// A node executes the first and breaks the connection; every later one is [`Writes::Refused`].
    CarriedOutAndLost,
    /// Error: the statement is wrong.
    Refused,
}

/// The nodes' answers about rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rights {
    #[default]
    All,
    None,
    /// Timeout.
    Unsaid,
}

/// The shard's row: generation, claim, sealed.
type Row = (u64, Vec<u8>, u64);
/// The bound parts of a key.
type Key = Vec<Vec<u8>>;

/// The nodes' state.
#[derive(Default)]
pub struct Bank {
    /// Ids of tables, by keyspace and name.
    pub tables: BTreeMap<(String, String), [u8; 16]>,
    pub writes: Writes,
    /// True if reads of a row get no answer.
    pub reads_unanswered: bool,
    /// True if each table has a column `w`.
    pub has_w: bool,
    /// Timestamp of the value 1 in each row, and each column.
    pub valued_us: Option<i64>,
    /// Remaining TTL of the value, in seconds.
    pub value_ttl: Option<i32>,
    /// Number of reads of a row by which a statement is decided.
    pub rows_read: usize,
    /// Versions of the schema that the nodes name in turn; empty: the ring's.
    pub schema_versions: Vec<[u8; 16]>,
    /// Number of questions for it.
    pub versions_asked: usize,
    /// Nodes that answer those questions with an error, or not at all.
    pub versions_refused: BTreeSet<usize>,
    pub versions_unanswered: BTreeSet<usize>,
    /// Writes, acknowledged or not: the text, and its timestamp.
    pub written: Vec<(String, Option<i64>)>,
    /// Number of questions which table has a name.
    pub looks: usize,
    /// Number of those questions that came as text.
    pub looks_as_text: usize,
    /// Number of first questions that get this id instead, as from a node that does not know the
    /// schema yet.
    pub stale: (usize, [u8; 16]),
    /// Number of nodes that do not answer them.
    pub looks_unanswered: bool,
    /// True if questions for a missing table get no answer.
    pub missing_unanswered: bool,
    /// Number of reads of all modes.
    pub modes_read: usize,
    /// Level of the last one.
    pub modes_level: Option<Consistency>,
    /// True if reads of all modes, or of rules, get no answer.
    pub modes_unanswered: bool,
    /// Table of these two whose reads alone get no answer.
    pub silent_about: Option<&'static str>,
    /// True if the last row of all modes is cut off.
    pub modes_cut_off: bool,
    /// Tables of these two, and nodes that say that the role may not read them.
    pub forbidden_by: BTreeSet<(&'static str, usize)>,
    /// True if nodes say that they could not look up the right to read modes and rules.
    pub rights_unread: bool,
    /// Nodes that deny the tables of modes and rules, as if they had missed the schema.
    pub unaware: BTreeSet<usize>,
    /// Reason for which nodes do not read modes and rules.
    pub obstacle: Obstacle,
    /// Mode of all tables; `None`: `unsafe`.
    pub mode: Option<&'static str>,
    /// Number of clients' statements to send back, as a node does that has begun nothing: it
    /// starts, or does not know the prepared statement.
    pub turned_away: usize,
    pub forgotten: usize,
    /// The last node that did so.
    pub sent_back_by: usize,
    /// Answer to the question whether a role may read a table, or write to it.
    pub rights: Rights,
    /// Prefix of tables for which that question gets no answer.
    pub rights_unanswered: Option<&'static str>,
    /// Number of such questions.
    pub rights_asked: usize,
    /// Replicas of each keyspace.
    pub replicas: u16,
    shards: BTreeMap<i32, Row>,
    log: BTreeMap<Key, BTreeMap<Vec<u8>, Vec<u8>>>,
    lows: BTreeMap<Key, Vec<u8>>,
    /// Prepared texts of clients.
    pub prepared: Vec<String>,
}

pub type Shared = Arc<Mutex<Bank>>;

/// Makes an ERROR.
pub fn error(request: &Request<'_>, code: i32, message: &str) -> Action {
    let body = bytes::body(|out| {
        encode::error(out, code, message);
        if code == UNAVAILABLE {
            put::short(out, 4);
            put::int(out, 2);
            put::int(out, 0);
        }
    });
    let header = Header {
        length: body.len() as u32,
        ..Header::response(request.version, request.stream, opcode::ERROR)
    };
    Action::Garbage([&header.to_bytes()[..], &body].concat())
}

fn void(request: &Request<'_>) -> Action {
    answer(request, &1i32.to_be_bytes())
}

/// The quoted text after this mark.
fn quoted_after(text: &str, mark: &str) -> Option<String> {
    Some(text.split_once(mark)?.1.split('\'').next()?.to_owned())
}

impl Bank {
    /// Makes a bank with these tables.
    pub fn with(tables: &[(&str, &str)]) -> Shared {
        let tables = (1u8..).zip(tables).map(|(number, (keyspace, table))| {
            (((*keyspace).to_owned(), (*table).to_owned()), [number; 16])
        });
        Arc::new(Mutex::new(Bank { tables: tables.collect(), replicas: 3, ..Bank::default() }))
    }

    /// Drops a table and makes another of the same name.
    pub fn make_again(&mut self, keyspace: &str, table: &str) {
        let id = self.tables.get_mut(&(keyspace.to_owned(), table.to_owned())).expect("a table");
        id[15] = id[15].wrapping_add(100);
    }

    /// Leaves a former owner's record of a transaction that writes once to this table, in its
    /// present form.
    pub fn leave(&mut self, (keyspace, table): (&str, &str), position: u64) {
        let shard = shunt_locks::shard_of(format!("transactions of {keyspace}").as_bytes());
        let text = format!("INSERT INTO {keyspace}.{table} (id, v) VALUES (1, {position})");
        let id = self.tables[&(keyspace.to_owned(), table.to_owned())];
        let write = Write { keyspace, table, id, text: &text, values: Vec::new() };
        let record = Record {
            shard,
            timestamp_us: 1_000 + position.cast_signed(),
            key: b"",
            writes: vec![write],
        };
        let mut body = Vec::new();
        record.encode(&mut body).expect("a record");
        let key: [&[u8]; 4] = [
            b"main",
            &i32::from(shard).to_be_bytes(),
            &1u64.to_be_bytes(),
            &(position / 4_096).to_be_bytes(),
        ];
        self.shards.insert(i32::from(shard), (1, vec![7; 16], 0));
        let partition = self.log.entry(key.map(<[u8]>::to_vec).to_vec()).or_default();
        partition.insert(position.to_be_bytes().to_vec(), body);
    }

    /// Generations of a keyspace's shard: the last claimed one, and the one up to which all are
    /// sealed.
    pub fn generations(&self, keyspace: &str) -> Option<(u64, u64)> {
        let shard = shunt_locks::shard_of(format!("transactions of {keyspace}").as_bytes());
        self.shards.get(&i32::from(shard)).map(|(generation, _, sealed)| (*generation, *sealed))
    }

    /// Number of received writes to this table.
    pub fn written_to(&self, name: &str) -> usize {
        self.written.iter().filter(|(text, _)| text.contains(name)).count()
    }

    pub fn request(&mut self, request: &Request<'_>) -> Option<Action> {
        match request.opcode {
            opcode::PREPARE => {
                let text = Prepare::decode(request.version, request.body).ok()?.text.to_owned();
                (text.contains("bank") && !text.contains("shunt_meta"))
                    .then(|| self.prepare(request, text))
            }
            opcode::EXECUTE => {
                let execute = Execute::decode(request.version, request.body).ok()?;
                let place = execute.id.strip_prefix(&b"transaction "[..])?;
                let text =
                    self.prepared[u32::from_be_bytes(place.try_into().ok()?) as usize].clone();
                if text.contains("FROM system_schema.") {
                    return self.schema(request, &text);
                }
                if self.forgotten > 0 {
                    (self.forgotten, self.sent_back_by) = (self.forgotten - 1, request.node);
                    return Some(Action::Unprepared);
                }
                Some(self.on_table(request, &text, &execute.params))
            }
            opcode::QUERY => {
                let query = Query::decode(request.version, request.body).ok()?;
                self.query(request, query.text, &query.params)
            }
            _ => None,
        }
    }

    fn prepare(&mut self, request: &Request<'_>, text: String) -> Action {
        let result = match text.starts_with("SELECT") {
            true => transaction_rows::columns(&text, self.has_w),
            false => &[],
        };
        let known = self.prepared.iter().position(|known| *known == text);
        let place = known.unwrap_or(self.prepared.len());
        if known.is_none() {
            self.prepared.push(text);
        }
        let id = [&b"transaction "[..], &(place as u32).to_be_bytes()].concat();
        let body = bytes::body(|out| {
            let spec = PreparedSpec {
                id: &id,
                result_metadata_id: &id,
                keyspace: "bank",
                table: "t",
                bind: &[],
                partition_key: &[],
                result,
            };
            prepared(out, request.version, &spec);
        });
        answer(request, &body)
    }

    /// Handles a statement on a client's table.
    fn on_table(&mut self, request: &Request<'_>, text: &str, params: &QueryParams<'_>) -> Action {
        if text.starts_with("SELECT") {
            if self.reads_unanswered {
                return Action::Silence;
            }
            self.rows_read += usize::from(text.contains("WRITETIME(v)"));
            let value = self.valued_us.map(|valued_us| (valued_us, self.value_ttl));
            return answer(request, &transaction_rows::rows(text, self.has_w, value));
        }
        if self.turned_away > 0 {
            (self.turned_away, self.sent_back_by) = (self.turned_away - 1, request.node);
            return error(request, IS_BOOTSTRAPPING, "the node starts");
        }
        self.written.push((text.to_owned(), params.timestamp));
        match self.writes {
            Writes::Acknowledged => void(request),
            Writes::Unanswered => Action::Silence,
            Writes::UnansweredOf(table) if text.contains(table) => Action::Silence,
            Writes::UnansweredOf(_) => void(request),
            Writes::Unavailable => {
                error(request, UNAVAILABLE, "Cannot achieve consistency level QUORUM")
            }
            Writes::CarriedOutAndLost => {
                self.writes = Writes::Refused;
                Action::Close
            }
            Writes::Refused => error(request, INVALID, "unconfigured table"),
        }
    }

    fn query(
        &mut self,
        request: &Request<'_>,
        text: &str,
        params: &QueryParams<'_>,
    ) -> Option<Action> {
        let value = |place| match params.values.get(place) {
            Some(Value::Bytes(bytes)) => Some(bytes.to_vec()),
            _ => None,
        };
        let values: Vec<Vec<u8>> = (0..).map_while(value).collect();
        if text.contains("shunt_meta.txn_") {
            return Some(answer(request, &self.on_log(text, &values)));
        }
        let is_look =
            text.contains("FROM shunt_meta.transactional") && !text.contains("keyspace_name = ");
        if is_look || text.contains("FROM shunt.guards") {
            let mut forbidden = self.forbidden_by.iter();
            if forbidden.any(|(table, node)| *node == request.node && text.contains(table)) {
                return Some(error(request, UNAUTHORIZED, "the node says no"));
            }
            if self.unaware.contains(&request.node) {
                return Some(error(request, INVALID, "unconfigured table"));
            }
            if let Some((code, why)) = self.obstacle.error(text) {
                return Some(error(request, code, why));
            }
            if self.rights_unread {
                let why = "Unable to perform authorization of permissions: Cannot achieve consistency level LOCAL_ONE";
                return Some(error(request, UNAUTHORIZED, why));
            }
            if self.modes_unanswered || self.silent_about.is_some_and(|name| text.contains(name)) {
                return Some(Action::Silence);
            }
        }
        if text.contains("FROM shunt_meta.transactional") {
            if is_look {
                self.modes_level = Some(params.consistency);
            }
            let modes = self.modes(text);
            let cut_off = if is_look && self.modes_cut_off { 2 } else { 0 };
            return Some(answer(request, &modes[..modes.len() - cut_off]));
        }
        if text.contains("FROM shunt.guards") {
            return Some(answer(request, &rows(&["table_name"], Vec::new())));
        }
        if text.contains("FROM system_schema.") {
            return self.schema(request, text);
        }
        if text.starts_with("SELECT schema_version FROM system.local") {
            let versions = &self.schema_versions;
            self.versions_asked += 1;
            if self.versions_refused.contains(&request.node) {
                return Some(error(request, OVERLOADED, "the node has no time"));
            }
            if self.versions_unanswered.contains(&request.node) {
                return Some(Action::Silence);
            }
            let version = versions.get(self.versions_asked % versions.len().max(1))?;
            return Some(answer(request, &rows(&["schema_version"], [vec![some(version)]])));
        }
        if text.starts_with("ALTER TABLE bank.t DROP") {
            let (keyspace, name) = ("bank", Some("t"));
            let (change, target) = ("UPDATED", "TABLE");
            let change = SchemaChange { change, target, keyspace, name, arguments: None };
            return Some(answer(request, &bytes::body(|out| encode::schema_change(out, &change))));
        }
        let writes = text.starts_with("INSERT INTO") && text.contains(" JSON '{}'");
        let locks = text.contains("WHERE name IN ()");
        if writes || locks || text.contains("LIMIT 0") {
            self.rights_asked += 1;
            if self.rights_unanswered.is_some_and(|table| text.contains(table)) {
                return Some(Action::Silence);
            }
            let about_nothing = if writes {
                "Invalid null value in condition for column id"
            } else {
                "LIMIT must be strictly positive"
            };
            return Some(match self.rights {
                Rights::All if locks => answer(request, &rows(&["name"], Vec::new())),
                Rights::All => error(request, INVALID, about_nothing),
                Rights::None => error(request, UNAUTHORIZED, "the node says no"),
                Rights::Unsaid => error(request, OVERLOADED, "the node has no time"),
            });
        }
        text.contains(" bank").then(|| self.on_table(request, text, params))
    }

    fn modes(&mut self, text: &str) -> Vec<u8> {
        let mode = self.mode.unwrap_or("unsafe");
        let Some(keyspace) = quoted_after(text, "keyspace_name = '") else {
            self.modes_read += 1;
            let all = self
                .tables
                .keys()
                .map(|(keyspace, table)| vec![some(keyspace), some(table), some(mode)]);
            return rows(&["keyspace_name", "table_name", "mode"], all);
        };
        let of = self.tables.keys().filter(|(of, _)| *of == keyspace);
        rows(&["table_name", "mode"], of.map(|(_, table)| vec![some(table), some(mode)]))
    }

    fn schema(&mut self, request: &Request<'_>, text: &str) -> Option<Action> {
        let keyspace = quoted_after(text, "keyspace_name = '")?;
        let table = quoted_after(text, "table_name = '").unwrap_or_default();
        let id = self.tables.get(&(keyspace, table)).copied();
        let map = |pairs: &[(&str, &str)]| {
            bytes::body(|out| {
                put::int(out, pairs.len() as i32);
                for text in pairs.iter().flat_map(|(key, value)| [key, value]) {
                    put::bytes(out, Some(text.as_bytes()));
                }
            })
        };
        let int = |number: i32| some(number.to_be_bytes());
        Some(if text.starts_with("SELECT durable_writes") {
            let replicas = self.replicas.to_string();
            let replication =
                map(&[("class", "SimpleStrategy"), ("replication_factor", &replicas)]);
            answer(
                request,
                &rows(&["durable_writes", "replication"], [vec![some([1]), some(replication)]]),
            )
        } else if text.starts_with("SELECT type_name") {
            answer(request, &rows(&["type_name", "field_names", "field_types"], []))
        } else if text.starts_with("SELECT id FROM") {
            self.looks += 1;
            self.looks_as_text += usize::from(request.opcode == opcode::QUERY);
            if self.looks_unanswered {
                return Some(Action::Silence);
            }
            let id = if self.looks <= self.stale.0 { Some(self.stale.1) } else { id };
            answer(request, &rows(&["id"], id.map(|id| vec![some(id)])))
        } else if text.starts_with("SELECT id, read_repair") {
            if id.is_none() && self.missing_unanswered {
                return Some(Action::Silence);
            }
            answer(
                request,
                &rows(&["id", "read_repair"], id.map(|id| vec![some(id), some("BLOCKING")])),
            )
        } else if text.starts_with("SELECT column_name, kind") {
            let row = |name: &str, kind: &str, position: i32| {
                vec![some(name), some(kind), int(position), some("int")]
            };
            let all = ["v", "w"].map(|name| row(name, "regular", -1));
            let regular = all.into_iter().take(if self.has_w { 2 } else { 1 });
            let all = [row("id", "partition_key", 0)].into_iter().chain(regular);
            answer(request, &rows(&["column_name", "kind", "position", "type"], all))
        } else {
            answer(request, &rows(&["column_name"], []))
        })
    }

    /// Handles a statement on the tables of the log.
    fn on_log(&mut self, text: &str, values: &[Vec<u8>]) -> Vec<u8> {
        let long = |place: usize| {
            u64::from_be_bytes(values[place].as_slice().try_into().expect("a bigint"))
        };
        let int =
            |place: usize| i32::from_be_bytes(values[place].as_slice().try_into().expect("an int"));
        let number = |number: u64| some(number.to_be_bytes());
        if text.starts_with("SELECT generation") {
            let row = self
                .shards
                .get(&int(1))
                .map(|(last, claim, sealed)| vec![number(*last), some(claim), number(*sealed)]);
            rows(&["generation", "claim", "sealed"], row)
        } else if text.starts_with("INSERT INTO shunt_meta.txn_shard") {
            let is_new = !self.shards.contains_key(&int(1));
            self.shards.entry(int(1)).or_insert((1, values[2].clone(), 0));
            applied(is_new)
        } else if text.starts_with("UPDATE shunt_meta.txn_shard SET generation") {
            let row =
                self.shards.get_mut(&int(3)).filter(|row| row.0 == long(4) && row.2 == long(5));
            applied(row.map(|row| (row.0, row.1) = (long(0), values[1].clone())).is_some())
        } else if text.starts_with("UPDATE shunt_meta.txn_shard SET sealed") {
            let row =
                self.shards.get_mut(&int(2)).filter(|row| row.0 == long(3) && row.1 == values[4]);
            applied(row.map(|row| row.2 = long(0)).is_some())
        } else if text.starts_with("SELECT low") {
            rows(&["low"], self.lows.get(values).map(|low| vec![some(low)]))
        } else if text.starts_with("SELECT position") {
            let found = self
                .log
                .get(&values[..4])
                .into_iter()
                .flatten()
                .filter(|(position, _)| **position >= values[4]);
            rows(
                &["position", "body"],
                found.take(16).map(|(position, body)| vec![some(position), some(body)]),
            )
        } else {
            if text.starts_with("INSERT INTO shunt_meta.txn_log") {
                let partition = self.log.entry(values[..4].to_vec()).or_default();
                partition.insert(values[4].clone(), values[5].clone());
            } else if text.starts_with("INSERT INTO shunt_meta.txn_low") {
                self.lows.insert(values[..3].to_vec(), values[3].clone());
            }
            1i32.to_be_bytes().to_vec()
        }
    }
}

/// The nodes' handling of requests for these tables.
pub fn hook(tables: &lock_ring::Shared, bank: &Shared) -> Hook {
    let (bank, mut others) = (Arc::clone(bank), lock_ring::hook(tables));
    Box::new(move |request: &Request<'_>| {
        let ours = bank.lock().unwrap().request(request);
        ours.unwrap_or_else(|| others(request))
    })
}

/// A proxy that decides the transactions of these tables.
pub struct TransactionTestbed {
    pub ring: LockTestbed,
    pub bank: Shared,
}

impl TransactionTestbed {
    pub fn new(bank: Shared, change: impl FnOnce(&mut SceneOptions)) -> TransactionTestbed {
        let tables = Tables::shared();
        let mut testbed = Testbed::bare(|options| {
            options.config.fleet = Some("main".to_owned());
            options.config.fleet_replicas_min = 0;
            options.config.advertise = Some("10.2.0.1:9042".parse().unwrap());
            change(options);
        });
        (0..testbed.scene.nodes.len())
            .for_each(|node| testbed.scene.hook(node, Some(hook(&tables, &bank))));
        testbed.run_for(15 * SECOND);
        assert!(tables.lock().unwrap().renewals > 2, "it is no member");
        TransactionTestbed { ring: LockTestbed { testbed, tables }, bank }
    }

    pub fn client(&mut self, login: Option<(&str, &str)>) -> HostId<simulated::Client> {
        self.ring.client(login)
    }

    pub fn run_for(&mut self, duration_ns: u64) {
        self.ring.testbed.run_for(duration_ns);
    }

    pub fn send(&mut self, client: HostId<simulated::Client>, bytes: &[u8]) {
        self.ring.testbed.send(client, bytes);
    }

    pub fn answers(&mut self, client: HostId<simulated::Client>) -> Vec<Answer> {
        self.ring.testbed.take_answers(client)
    }

    pub fn ask(&mut self, client: HostId<simulated::Client>, text: &str) -> Answer {
        self.ring.ask(client, text)
    }

    /// Number of the proxy's own statements.
    pub fn own_statements(&self) -> u64 {
        self.ring.testbed.scene.metrics[0].own_statements.sent.get()
    }

    /// Metrics of the proxy's only core.
    pub fn metrics(&self) -> &shunt_proxy::metrics::TransactionMetrics {
        &self.ring.testbed.scene.metrics[0].transactions
    }
}

/// A transaction that writes one row.
pub fn put(table: &str, id: i32, v: i32) -> String {
    format!("BEGIN TRANSACTION INSERT INTO {table} (id, v) VALUES ({id}, {v}); COMMIT TRANSACTION")
}

/// A transaction that reads one row, and writes another.
pub fn read_and_put(table: &str, id: i32, v: i32) -> String {
    format!(
        "BEGIN TRANSACTION LET a = (SELECT v FROM {table} WHERE id = {id}); IF a IS NULL THEN \
         INSERT INTO {table} (id, v) VALUES ({id}, {v}); END IF COMMIT TRANSACTION"
    )
}
