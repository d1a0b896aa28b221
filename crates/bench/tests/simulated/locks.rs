//! Pairs of an acquire and a release, on a simulated node and a simulated Redis that track the
//! holders of locks.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::talk::{addresses, take_requests};
use shunt_bench::load::{
    Load, LoadOptions, LockKind, LockOptions, Operation, Phase, template::Layout,
};
use shunt_reactor::sim::{HostId, MILLISECOND, Options, SECOND, World, for_seeds};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::encode_result::{PreparedSpec, RowsWriter, native, prepared};
use shunt_wire::cql::message::{Execute, Prepare, Value, encode};
use shunt_wire::cql::{reader::EnvelopeReader, writer::EnvelopeWriter};

const ACQUIRE: [u8; 16] = [1; 16];
const RELEASE: [u8; 16] = [2; 16];

#[derive(Default)]
struct Table {
    held: HashMap<Vec<u8>, Vec<u8>>,
    names: HashSet<Vec<u8>>,
    granted: u64,
    released: u64,
    refused: u64,
    /// Refuses every n-th request.
    refuses: Option<u64>,
}

impl Table {
    fn acquire(&mut self, name: &[u8], owner: &[u8]) -> bool {
        self.names.insert(name.to_vec());
        let asked = self.granted + self.refused + 1;
        if self.held.contains_key(name)
            || self.refuses.is_some_and(|each| asked.is_multiple_of(each))
        {
            self.refused += 1;
            return false;
        }
        self.granted += 1;
        self.held.insert(name.to_vec(), owner.to_vec());
        true
    }

    fn release(&mut self, name: &[u8], owner: &[u8]) -> bool {
        let holds = self.held.get(name).is_some_and(|holder| holder == owner);
        if holds {
            self.held.remove(name);
            self.released += 1;
        }
        holds
    }
}

/// A client that waits for an answer, and its owner.
type Waiter = (ConnId, Header, Vec<u8>);

/// A server of locks, over CQL v4 or as Redis.
#[derive(Default)]
struct LockNode {
    table: Table,
    /// True if a request for a held lock is answered only when the lock is released.
    waits: bool,
    /// Answers each acquisition with this error.
    error: Option<i32>,
    redis: bool,
    texts: HashSet<String>,
    waiting: HashMap<Vec<u8>, VecDeque<Waiter>>,
    readers: HashMap<ConnId, EnvelopeReader>,
}

impl LockNode {
    fn answer(&mut self, io: &mut Io, conn: ConnId, header: Header, body: &[u8]) {
        let mut out = Vec::new();
        let kind = match header.opcode {
            opcode::STARTUP => opcode::READY,
            opcode::PREPARE => {
                let text = Prepare::decode(4, body).expect("valid").text;
                self.texts.insert(text.to_owned());
                let id = if text.starts_with("INSERT") { &ACQUIRE } else { &RELEASE };
                let (keyspace, table, bind) =
                    ("k", "t", &[("name", native::TEXT), ("owner", native::TEXT)]);
                let spec = PreparedSpec {
                    id,
                    result_metadata_id: id,
                    keyspace,
                    table,
                    bind,
                    partition_key: &[0],
                    result: &[],
                };
                prepared(&mut out, 4, &spec);
                opcode::RESULT
            }
            _ => return self.execute(io, conn, header, body),
        };
        send(io, conn, header, kind, &out);
    }

    fn execute(&mut self, io: &mut Io, conn: ConnId, header: Header, body: &[u8]) {
        let request = Execute::decode(4, body).expect("valid");
        let value = |index| {
            request.params.values.get(index).and_then(Value::bytes).expect("a value").to_vec()
        };
        let (name, owner) = (value(0), value(1));
        if request.id == RELEASE {
            send_applied(io, conn, header, self.table.release(&name, &owner));
            let next = self.waiting.get_mut(&name).and_then(VecDeque::pop_front);
            if let Some((conn, header, owner)) = next {
                send_applied(io, conn, header, self.table.acquire(&name, &owner));
            }
        } else if let Some(code) = self.error {
            let mut out = Vec::new();
            encode::error(&mut out, code, "no");
            send(io, conn, header, opcode::ERROR, &out);
        } else if self.waits && self.table.held.contains_key(&name) {
            self.waiting.entry(name).or_default().push_back((conn, header, owner));
        } else {
            send_applied(io, conn, header, self.table.acquire(&name, &owner));
        }
    }

    fn redis(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        let text = std::str::from_utf8(data).expect("text");
        let mut parts: Vec<&str> = text.split("\r\n").collect();
        if parts.pop() != Some("") {
            return 0;
        }
        let words: Vec<&str> = parts.into_iter().skip(2).step_by(2).collect();
        let wanted = text
            .strip_prefix('*')
            .and_then(|text| text.split("\r\n").next())
            .and_then(|count| count.parse().ok());
        if wanted != Some(words.len()) {
            return 0;
        }
        let reply = match words[..] {
            ["SCRIPT", "LOAD", _] => "$3\r\nsha\r\n",
            ["SET", name, owner, "NX", "PX", "30000"]
                if self.table.acquire(name.as_bytes(), owner.as_bytes()) =>
            {
                "+OK\r\n"
            }
            ["SET", ..] => "$-1\r\n",
            ["EVALSHA", "sha", "1", name, owner]
                if self.table.release(name.as_bytes(), owner.as_bytes()) =>
            {
                ":1\r\n"
            }
            ["EVALSHA", ..] => ":0\r\n",
            _ => "-ERR\r\n",
        };
        io.output(conn).extend_from_slice(reply.as_bytes());
        data.len()
    }
}

fn send(io: &mut Io, conn: ConnId, request: Header, kind: u8, body: &[u8]) {
    EnvelopeWriter::default().push(
        io.output(conn),
        Header::response(4, request.stream, kind),
        body,
    );
}

fn send_applied(io: &mut Io, conn: ConnId, request: Header, applied: bool) {
    let mut out = Vec::new();
    let mut rows = RowsWriter::new(
        &mut out,
        "k",
        "t",
        &[("[applied]", native::BOOLEAN), ("name", native::TEXT)],
    );
    rows.value(Some(&[u8::from(applied)]));
    rows.finish();
    send(io, conn, request, opcode::RESULT, &out);
}

impl Service for LockNode {
    type Mail = ();

    fn started(&mut self, _io: &mut Io) {}
    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {}
    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        if self.redis {
            return self.redis(io, conn, data);
        }
        let mut reader = self.readers.remove(&conn).unwrap_or_default();
        let used =
            take_requests(&mut reader, data, |header, body| self.answer(io, conn, header, body));
        self.readers.insert(conn, reader);
        used
    }

    fn closed(&mut self, _io: &mut Io, _conn: ConnId, _reason: CloseReason) {}
    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn timer(&mut self, _io: &mut Io, _key: u64) {}
    fn mail(&mut self, _io: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _io: &mut Io) {}
}

fn run(
    seed: u64,
    node: LockNode,
    locks: LockOptions,
    load: LoadOptions,
) -> (World, HostId<Load>, HostId<LockNode>) {
    let mut world = World::new(seed, Options::crumbs());
    let targets = addresses(1);
    let node = world.add("node", node);
    world.listen(node, targets[0]);
    let load = LoadOptions { targets, stops_loop: false, ..load }.with_locks(locks);
    let load = world.add("load", Load::new(load, Box::new(|_| {})));
    assert!(world.run_until(200 * SECOND, |world| world.host(load).phase() == Phase::Done));
    assert_eq!(world.host(load).failure(), None);
    (world, load, node)
}

fn small() -> LoadOptions {
    LoadOptions {
        connections: 5,
        outstanding: 3,
        keys: 60,
        layout: Layout { version: 4, consistency: 4, key_bytes: 16, value_bytes: 40 },
        warm_up_ns: 100 * MILLISECOND,
        duration_ns: 400 * MILLISECOND,
        ..LoadOptions::default()
    }
}

fn locks(kind: LockKind) -> LockOptions {
    LockOptions { kind, ttl_seconds: 30, wait_ms: None }
}

#[test]
fn every_lock_is_granted_and_released_and_none_is_asked_for_twice() {
    for_seeds(8, |seed| {
        let (world, load, node) = run(seed, LockNode::default(), locks(LockKind::Durable), small());
        let (counts, table) = (world.host(load).counts(), &world.host(node).table);
        assert!(
            table.granted > 100 && table.held.is_empty(),
            "{} granted, {} held",
            table.granted,
            table.held.len()
        );
        assert_eq!((table.refused, table.released, counts.not_applied), (0, table.granted, 0));
        assert_eq!(counts.answered, 2 * table.granted);
        assert!(
            (31..=60).contains(&table.names.len()),
            "{} names of 60 for 15 stream ids",
            table.names.len()
        );
        let text = "INSERT INTO shunt.locks (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL 30";
        assert!(world.host(node).texts.contains(text), "{:?}", world.host(node).texts);
        let operations = &world.host(load).rounds()[0].counts.operations;
        let found: Vec<_> =
            operations.iter().map(|part| (part.operation, part.latency.is_empty())).collect();
        assert_eq!(found, [(Operation::Acquire, false), (Operation::Release, false)]);
    });
}

#[test]
fn refused_locks_are_counted_and_not_released() {
    let node =
        LockNode { table: Table { refuses: Some(7), ..Table::default() }, ..LockNode::default() };
    let (world, load, node) = run(1, node, locks(LockKind::Lwt), small());
    let (counts, table) = (world.host(load).counts(), &world.host(node).table);
    assert!(table.refused > 10, "{}", table.refused);
    assert_eq!((counts.not_applied, table.released), (table.refused, table.granted));
    assert_eq!(counts.answered, 2 * table.granted + table.refused);
}

#[test]
fn errors_are_counted_by_their_code() {
    let node = LockNode { error: Some(0x1002), ..LockNode::default() };
    let (world, load, node) = run(1, node, locks(LockKind::Fast), small());
    let counts = world.host(load).counts();
    assert_eq!((counts.errors.get(&0x1002), counts.not_applied), (Some(&counts.answered), 0));
    assert_eq!(world.host(node).table.granted, 0);
}

#[test]
fn one_lock_goes_from_hand_to_hand() {
    let node = LockNode { waits: true, ..LockNode::default() };
    let wait = LockOptions { wait_ms: Some(1500), ..locks(LockKind::Fast) };
    let (world, load, node) = run(3, node, wait, LoadOptions { keys: 1, ..small() });
    let (counts, table) = (world.host(load).counts(), &world.host(node).table);
    assert!(
        table.granted > 20 && table.held.is_empty() && table.names.len() == 1,
        "{}",
        table.granted
    );
    assert_eq!((counts.not_applied, table.released), (0, table.granted));
}

#[test]
fn redis_is_spoken_to_in_its_own_words() {
    let node = LockNode { redis: true, ..LockNode::default() };
    let (world, load, node) =
        run(4, node, locks(LockKind::Redis), LoadOptions { outstanding: 1, ..small() });
    let (counts, table) = (world.host(load).counts(), &world.host(node).table);
    assert!(table.granted > 20 && table.held.is_empty(), "{} granted", table.granted);
    assert_eq!((counts.not_applied, counts.wrong_answers, table.released), (0, 0, table.granted));
    let node = LockNode {
        redis: true,
        table: Table { refuses: Some(5), ..Table::default() },
        ..LockNode::default()
    };
    let (world, load, node) =
        run(5, node, locks(LockKind::Redis), LoadOptions { outstanding: 1, ..small() });
    assert_eq!(world.host(load).counts().not_applied, world.host(node).table.refused);
    assert!(world.host(node).table.refused > 0);
}
