//! A simulated node: it takes statements of proxies and executes them on the data of the
//! [`super::ring`], at once or late, and answers rightly, not at all, or with an unknown outcome.

use std::collections::BTreeMap;

use shunt_language::functions::timeuuid;
use shunt_reactor::sim::{MICROSECOND, MILLISECOND, SECOND};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_wire::cql::envelope::{BODY_BYTES_MAX, HEADER_BYTES, Header, opcode};
use shunt_wire::cql::message::encode_result::{PreparedSpec, RowsWriter, native, prepared};
use shunt_wire::cql::message::{
    Consistency, ErrorDetails, ErrorMessage, Execute, Prepare, Query, QueryParams, ReplicaCounts,
    Value, encode, error_code,
};
use shunt_wire::cql::reader::EnvelopeReader;

use super::ring::{Kind, Reply, Ring, Shared, Values};
use super::transactions::{parsed, schema, tables};

const FLEET: &[(&str, &[u8])] = &[
    ("format", native::INT),
    ("serial", native::TEXT),
    ("dc", native::TEXT),
    ("max_ttl_ms", native::INT),
    ("lease_ms", native::INT),
    ("view_epoch", native::BIGINT),
    ("owners", native::BLOB),
    ("ts_floor", native::BIGINT),
    ("handed_over", native::BIGINT),
];
const MEMBER: &[(&str, &[u8])] = &[
    ("inc", native::UUID),
    ("addr", native::TEXT),
    ("state", native::BLOB),
    ("beat", native::BIGINT),
    ("ts_limit", native::BIGINT),
    ("format", native::INT),
    ("leaving", native::BOOLEAN),
];
const LOCK: &[(&str, &[u8])] = &[
    ("name", native::TEXT),
    ("slot", native::TEXT),
    ("owner", native::TEXT),
    ("role", native::TEXT),
    ("fence", native::BIGINT),
    ("ttl_ms", native::INT),
    ("writetime", native::BIGINT),
];

/// The consistency levels whose statements see each other.
const QUORUMS: [Consistency; 5] = [
    Consistency::QUORUM,
    Consistency::ALL,
    Consistency::LOCAL_QUORUM,
    Consistency::SERIAL,
    Consistency::LOCAL_SERIAL,
];

/// Destination of an answer.
#[derive(Clone, Copy)]
struct To {
    conn: ConnId,
    stream: i16,
}

/// The end of a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answered {
    Rightly,
    /// A timeout, with an unknown outcome.
    InDoubt,
    Unavailable,
    Never,
}

/// The request of a statement.
enum Asked {
    OfFleet { kind: Kind, values: Values, timestamp_us: i64 },
    OfTransactions(parsed::Request),
}

impl Asked {
    /// True for a decision: the record of a transaction, or a statement without one.
    fn is_record(&self) -> bool {
        match self {
            Asked::OfTransactions(parsed::Request::Write { key: (table, ..), .. }) => {
                *table == tables::LOG_TABLE || tables::TABLES[*table].name == "leases"
            }
            Asked::OfTransactions(parsed::Request::Several(_)) => true,
            _ => false,
        }
    }

    /// The member that renews its membership.
    fn renews(&self) -> Option<&[u8]> {
        match self {
            Asked::OfFleet { kind: Kind::Renew | Kind::RenewLeaving, values, .. } => {
                Some(&values[3])
            }
            _ => None,
        }
    }

    fn class(&self) -> Class {
        use Kind::{ReadFleet, ReadLocks, ReadMember, ReadMembers};
        match self {
            Asked::OfFleet { kind: ReadFleet | ReadMembers | ReadMember | ReadLocks, .. } => {
                Class::Read
            }
            Asked::OfFleet { kind, .. } if kind.is_conditional() => Class::Conditional,
            Asked::OfTransactions(request) if request.is_read() => Class::Read,
            Asked::OfTransactions(request) if request.is_conditional() => Class::Conditional,
            _ => Class::Write,
        }
    }
}

/// The kind of error that stands for an unknown outcome.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Read,
    Write,
    Conditional,
}

enum Job {
    Execute { to: To, asked: Asked, reached: usize, answered: Answered },
    Answer { to: To, op: u8, body: Vec<u8> },
}

/// One node.
pub struct Node {
    index: usize,
    host_id: u128,
    cluster_name: String,
    ring: Shared,
    readers: BTreeMap<u32, EnvelopeReader>,
    texts: BTreeMap<Vec<u8>, String>,
    jobs: BTreeMap<u64, Job>,
    next_job: u64,
}

impl Node {
    pub fn new(index: usize, host_id: u128, cluster_name: &str, ring: Shared) -> Node {
        Node {
            index,
            host_id,
            cluster_name: cluster_name.to_owned(),
            ring,
            readers: BTreeMap::new(),
            texts: BTreeMap::new(),
            jobs: BTreeMap::new(),
            next_job: 0,
        }
    }

    fn later(&mut self, io: &mut Io, after_ns: u64, job: Job) {
        self.next_job += 1;
        self.jobs.insert(self.next_job, job);
        io.set_timer(io.now_ns() + after_ns, self.next_job);
    }

    fn request(&mut self, io: &mut Io, conn: ConnId, header: &Header, body: &[u8]) {
        let to = To { conn, stream: header.stream };
        let version = header.version;
        let mut out = Vec::new();
        match header.opcode {
            opcode::OPTIONS => {
                encode::supported(&mut out, [("CQL_VERSION", ["3.4.7"])]);
                send(io, to, opcode::SUPPORTED, &out);
            }
            opcode::STARTUP | opcode::REGISTER => send(io, to, opcode::READY, &[]),
            opcode::PREPARE => {
                let text = Prepare::decode(version, body).expect("PREPARE").text;
                let hash = text.bytes().fold(7u128, |hash, byte| {
                    hash.wrapping_mul(0x1000_0000_01b3) ^ u128::from(byte)
                });
                let id = hash.to_be_bytes();
                self.texts.insert(id.to_vec(), text.to_owned());
                let known = self.ring.lock().unwrap().tables.parsed(text);
                let unknown = || ("shunt_meta", "t", Vec::new(), Vec::new(), Vec::new());
                let (keyspace, table, bind, result, partition_key) =
                    known.map_or_else(unknown, |known| known.shown());
                let (bind, result, partition_key) = (&bind[..], &result[..], &partition_key[..]);
                let spec = PreparedSpec {
                    id: &id,
                    result_metadata_id: &[],
                    keyspace,
                    table,
                    bind,
                    partition_key,
                    result,
                };
                prepared(&mut out, version, &spec);
                send(io, to, opcode::RESULT, &out);
            }
            opcode::EXECUTE => {
                let Execute { id, params, .. } = Execute::decode(version, body).expect("EXECUTE");
                match self.texts.get(id).cloned() {
                    Some(text) => self.statement(io, to, &text, &params),
                    None => {
                        let details = ErrorDetails::Unprepared { id };
                        let message = "unprepared";
                        ErrorMessage { code: error_code::UNPREPARED, message, details }
                            .put(&mut out, version);
                        send(io, to, opcode::ERROR, &out);
                    }
                }
            }
            opcode::QUERY => {
                let Query { text, params } = Query::decode(version, body).expect("QUERY");
                if text.contains("now() FROM system.local") {
                    self.tell_time(io, to);
                } else if text.starts_with("SELECT schema_version FROM system.local") {
                    let columns = [("schema_version", native::UUID)];
                    let mut rows = RowsWriter::new(&mut out, "system", "local", &columns);
                    rows.value(Some(&[1; 16]));
                    rows.finish();
                    send(io, to, opcode::RESULT, &out);
                } else if text.contains("system.local") {
                    let columns = [("host_id", native::UUID), ("cluster_name", native::TEXT)];
                    let mut rows = RowsWriter::new(&mut out, "system", "local", &columns);
                    rows.value(Some(&self.host_id.to_be_bytes()))
                        .value(Some(self.cluster_name.as_bytes()));
                    rows.finish();
                    send(io, to, opcode::RESULT, &out);
                } else {
                    self.statement(io, to, text, &params);
                }
            }
            other => panic!("node {} was asked {other:#x}", self.index),
        }
    }

    /// The time by this node's clock, if it says so.
    fn tell_time(&mut self, io: &mut Io, to: To) {
        let off_us = self.ring.lock().unwrap().clocks_off_us[self.index];
        let Some(off_us) = off_us else { return };
        let time = timeuuid((io.wall_us() + off_us) * 10, 0);
        let columns = [("now", native::UUID)];
        let mut out = Vec::new();
        let mut rows = RowsWriter::new(&mut out, "system", "local", &columns);
        rows.value(Some(&time));
        rows.finish();
        send(io, to, opcode::RESULT, &out);
    }

    /// Draws the outcome of a statement.
    fn statement(&mut self, io: &mut Io, to: To, text: &str, params: &QueryParams<'_>) {
        // The ring keeps one copy of data that two of three nodes have, which is right for quorums
        // alone.
        if text.contains("shunt_meta.txn_") || text.contains("shunt_meta.lock") {
            assert!(QUORUMS.contains(&params.consistency), "{:?}: {text}", params.consistency);
        }
        let (has_transactions, has_modes) = {
            let ring = self.ring.lock().unwrap();
            (ring.has_transactions, ring.has_modes)
        };
        let has_transactions =
            has_transactions && (has_modes || !text.contains(" FROM shunt_meta.transactional"));
        if let Some(answer) = schema::answer(text).filter(|_| has_transactions) {
            return self.of_schema(io, to, answer);
        }
        if text.contains(" FROM shunt.") || text.contains(" FROM shunt_meta.transactional") {
            // For the question about a role: all may use the tables, which are empty. No keyspace
            // has transactions.
            let mut body = Vec::new();
            RowsWriter::new(&mut body, "shunt", "locks", &[("name", native::TEXT)]).finish();
            return send(io, to, opcode::RESULT, &body);
        }
        let value = |(_, value): (Option<&str>, Value<'_>)| match value {
            Value::Bytes(bytes) => bytes.to_vec(),
            other => panic!("{other:?} is bound"),
        };
        let values: Values = params.values.iter().map(value).collect();
        let shared = self.ring.clone();
        let mut ring = shared.lock().unwrap();
        let asked = match ring.tables.parsed(text) {
            Some(known) => {
                let timestamp_us = params.timestamp.unwrap_or(io.wall_us());
                Asked::OfTransactions(known.request(&values, timestamp_us))
            }
            None => Asked::OfFleet {
                kind: Kind::of(text),
                values,
                timestamp_us: params.timestamp.unwrap_or(0),
            },
        };
        let mut execute_ns = 50 * MICROSECOND + ring.random.below(500 * MICROSECOND);
        let goes_wrong = ring.trouble > 0.0;
        let trouble = ring.trouble;
        let mut reached = 2 + ring.random.index(2);
        let mut answered = Answered::Rightly;
        if goes_wrong && ring.random.chance(0.02) {
            execute_ns += ring.random.below(300 * MILLISECOND);
        }
        let (slow, slow_records) = (ring.slow, ring.slow_records);
        if slow_records > 0.0 && asked.is_record() && ring.random.chance(slow_records) {
            ring.tables.inside.records_late += 1;
            let is_soon = ring.random.chance(0.3);
            let (least_ns, more_ns) =
                if is_soon { (0, 900 * MILLISECOND) } else { (2 * SECOND, 2 * SECOND) };
            execute_ns += least_ns + ring.random.below(more_ns);
        } else if slow_records > 0.0 && asked.renews().is_some_and(|inc| ring.loses_renewal(inc)) {
            return;
        } else if ring.random.chance(slow) {
            execute_ns += ring.random.below(4 * SECOND);
        } else if goes_wrong && ring.random.chance(trouble) {
            answered = match ring.random.below(8) {
                0 => Answered::Unavailable,
                1..=4 => Answered::InDoubt,
                _ => Answered::Never,
            };
            reached = ring.random.index(4);
            if answered != Answered::Unavailable && ring.random.chance(0.4) {
                execute_ns = ring.random.below(8 * SECOND);
            }
        }
        if let Asked::OfFleet { kind: Kind::ReadMember, values, .. } = &asked
            && ring.fails_member_reads
        {
            let reads = ring.member_reads.entry(values[1].clone()).or_default();
            *reads += 1;
            if !reads.is_multiple_of(3) {
                answered = Answered::InDoubt;
            }
        }
        let is_carried_out = answered == Answered::Rightly || ring.random.chance(0.7);
        drop(ring);
        if answered == Answered::Unavailable || !is_carried_out {
            if answered != Answered::Never {
                self.answer(io, to, asked.class(), answered, None);
            }
            return;
        }
        if answered == Answered::InDoubt {
            // A write after the answer is late.
            self.answer(io, to, asked.class(), answered, None);
            answered = Answered::Never;
        }
        self.later(io, execute_ns, Job::Execute { to, asked, reached, answered });
    }

    /// Answers from a node's own data, or fails to.
    fn of_schema(&mut self, io: &mut Io, to: To, answer: Result<Vec<u8>, &str>) {
        let mut ring = self.ring.lock().unwrap();
        let trouble = ring.trouble;
        let fails = ring.random.chance(trouble).then(|| ring.random.chance(0.5));
        drop(ring);
        match (fails, answer) {
            (Some(true), _) => {}
            (Some(false), _) => self.answer(io, to, Class::Read, Answered::InDoubt, None),
            (None, Ok(body)) => send(io, to, opcode::RESULT, &body),
            (None, Err(message)) => {
                let mut body = Vec::new();
                encode::error(&mut body, error_code::INVALID, message);
                send(io, to, opcode::ERROR, &body);
            }
        }
    }

    fn answer(
        &mut self,
        io: &mut Io,
        to: To,
        class: Class,
        answered: Answered,
        reply: Option<Reply>,
    ) {
        let mut body = Vec::new();
        let counts = ReplicaCounts { consistency: Consistency::QUORUM, received: 1, block_for: 2 };
        let op = match answered {
            Answered::Rightly => {
                if let Some(reply) = reply {
                    put(&mut body, reply);
                }
                opcode::RESULT
            }
            Answered::Unavailable => {
                let details = ErrorDetails::Unavailable {
                    consistency: Consistency::QUORUM,
                    required: 2,
                    alive: 1,
                };
                ErrorMessage { code: error_code::UNAVAILABLE, message: "unavailable", details }
                    .put(&mut body, 4);
                opcode::ERROR
            }
            _ if class == Class::Read => {
                let details = ErrorDetails::ReadTimeout { counts, data_present: false };
                ErrorMessage { code: error_code::READ_TIMEOUT, message: "timeout", details }
                    .put(&mut body, 4);
                opcode::ERROR
            }
            _ => {
                let write_type = if class == Class::Conditional { "CAS" } else { "SIMPLE" };
                let details = ErrorDetails::WriteTimeout { counts, write_type, contentions: None };
                ErrorMessage { code: error_code::WRITE_TIMEOUT, message: "timeout", details }
                    .put(&mut body, 4);
                opcode::ERROR
            }
        };
        let after_ns = 50 * MICROSECOND + self.ring.lock().unwrap().random.below(500 * MICROSECOND);
        self.later(io, after_ns, Job::Answer { to, op, body });
    }
}

/// Executes a statement. A node's clock is the world's.
fn carry_out(
    ring: &mut Ring,
    now_ns: u64,
    asked: Asked,
    reached: usize,
    answered: Answered,
) -> Reply {
    match asked {
        Asked::OfTransactions(request) => {
            let Ring { tables, random, .. } = ring;
            Reply::OfTransactions(tables.execute(now_ns, random, &request, reached))
        }
        Asked::OfFleet { kind, values, timestamp_us } => {
            match kind {
                Kind::WriteLock => ring.write_lock(now_ns, &values, timestamp_us, reached),
                // These run at ALL.
                Kind::DeleteLock | Kind::DeleteShares => {
                    let reached = if answered == Answered::Rightly { 3 } else { reached };
                    ring.delete_lock(now_ns, kind, &values, timestamp_us, reached);
                }
                _ => {}
            }
            ring.execute(now_ns, kind, &values)
        }
    }
}

fn put(out: &mut Vec<u8>, reply: Reply) {
    match reply {
        Reply::Void => encode::void(out),
        Reply::Applied(applied) => {
            let mut rows =
                RowsWriter::new(out, "shunt_meta", "t", &[("[applied]", native::BOOLEAN)]);
            rows.value(Some(&[u8::from(applied)]));
            rows.finish();
        }
        Reply::OfTransactions(tables::Reply::Void) => encode::void(out),
        Reply::OfTransactions(tables::Reply::Applied(applied)) => put(out, Reply::Applied(applied)),
        Reply::OfTransactions(tables::Reply::Rows(columns, found)) => {
            let mut rows = RowsWriter::new(out, "bank", "t", &columns);
            for value in found.iter().flatten() {
                rows.value(value.as_deref());
            }
            rows.finish();
        }
        Reply::Rows(kind, found) => {
            let columns = match kind {
                Kind::ReadFleet => FLEET,
                Kind::ReadLocks => LOCK,
                _ => MEMBER,
            };
            let mut rows = RowsWriter::new(out, "shunt_meta", "t", columns);
            for value in found.iter().flatten() {
                rows.value(Some(value));
            }
            rows.finish();
        }
    }
}

fn send(io: &mut Io, to: To, op: u8, body: &[u8]) {
    let header = Header { length: body.len() as u32, ..Header::response(4, to.stream, op) };
    let out = io.output(to.conn);
    out.reserve(HEADER_BYTES + body.len());
    out.extend_from_slice(&header.to_bytes());
    out.extend_from_slice(body);
}

impl Service for Node {
    type Mail = ();

    fn accepted(&mut self, _io: &mut Io, conn: ConnId, _origin: &Accepted) {
        self.readers.insert(conn.index, EnvelopeReader::default());
    }

    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let mut reader = self.readers.remove(&conn.index).expect("it was accepted");
        let mut scratch = Vec::new();
        let mut envelopes = reader.read(data, &mut scratch);
        while let Some((header, body)) = envelopes.next(BODY_BYTES_MAX, None).expect("envelopes") {
            self.request(io, conn, &header, body);
        }
        let used = envelopes.finish();
        self.readers.insert(conn.index, reader);
        used
    }

    fn closed(&mut self, _io: &mut Io, conn: ConnId, _reason: CloseReason) {
        self.readers.remove(&conn.index);
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn timer(&mut self, io: &mut Io, key: u64) {
        match self.jobs.remove(&key) {
            Some(Job::Answer { to, op, body }) => send(io, to, op, &body),
            Some(Job::Execute { to, asked, reached, answered }) => {
                let class = asked.class();
                let reply = carry_out(
                    &mut self.ring.lock().unwrap(),
                    io.now_ns(),
                    asked,
                    reached,
                    answered,
                );
                if answered == Answered::Rightly {
                    self.answer(io, to, class, answered, Some(reply));
                }
            }
            None => {}
        }
    }

    fn mail(&mut self, _io: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _io: &mut Io) {}
}
