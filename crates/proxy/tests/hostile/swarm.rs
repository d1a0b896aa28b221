//! Ten thousand clients at once that take, wait for, list and give up locks as nobody should.
//! Others are served meanwhile; memory stays under its bound, and is freed afterwards.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use allocation_counter::measure;
use shunt_reactor::sim::{HostId, MILLISECOND, SECOND};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};
use shunt_testing::bytes;
use shunt_wire::cql::envelope::{Header, flag, opcode};
use shunt_wire::cql::message::{Consistency, encode, put};

use super::lock_ring::LockTestbed;

const CLIENTS: usize = 10_000;
/// Bound on all memory, including the simulation of the clients.
const BYTES_MAX: u64 = 640 << 20;
const BYTES_LEFT: u64 = 128 << 20;

/// The attacking clients, as one host.
struct Swarm {
    server: SocketAddr,
    /// Number of the client by connection, until its first answer.
    new: BTreeMap<(u32, u32), usize>,
    open: Vec<ConnId>,
    opened: usize,
    answered: u64,
}

enum Mail {
    /// Connect this many more.
    Connect(usize),
    /// Make one in this many vanish.
    Vanish(usize),
}

fn acquire(table: &str, name: &str, owner: &str, wait_ms: u32) -> String {
    format!(
        "INSERT INTO shunt.{table} (name, owner, wait_ms) VALUES ('{name}', '{owner}', {wait_ms}) IF NOT EXISTS USING TTL 20"
    )
}

/// A client's requests, and whether it reads the answers.
fn attack(number: usize) -> (Vec<u8>, bool) {
    let mut out = Vec::new();
    let mut ask = |stream: usize, text: &str| out.extend(bytes::query(4, stream as i16, text));
    match number % 7 {
        0 => (0..5).for_each(|place| {
            ask(place, &acquire("fast_locks", "hot", &format!("{number} {place}"), 1_500))
        }),
        1 => (0..20).for_each(|place| {
            ask(
                place,
                &acquire(
                    "fast_locks",
                    &format!("{number} {place:0>1000}"),
                    &format!("{number:0>250}"),
                    0,
                ),
            );
        }),
        2 => (0..3).for_each(|place| {
            let one = |part| {
                acquire("fast_locks", &format!("{place} {part:0>500}"), &number.to_string(), 1_000)
            };
            let all: String = (0..16).map(|part| format!("{};", one(part))).collect();
            ask(place, &format!("BEGIN BATCH {all} APPLY BATCH"));
        }),
        3 => {
            (0..4).for_each(|stream| {
                ask(stream, "SELECT * FROM shunt.lock_queue WHERE name = 'hot'")
            });
            (4..8).for_each(|stream| ask(stream, "SELECT * FROM shunt.fast_locks"));
            return (out, false);
        }
        4 => {
            out = bytes::query(4, 1, &acquire("locks", &"n".repeat(1_000), "me", 0));
            out.truncate(out.len() - 9);
        }
        5 => {
            // The request claims that another proxy forwarded it.
            let body = bytes::body(|out| {
                put::bytes_map(out, [("shunt-hop", Some(&[1][..]))]);
                encode::query_simple(
                    out,
                    4,
                    &acquire("locks", &number.to_string(), "me", 0),
                    Consistency::ONE,
                );
            });
            let header =
                Header { flags: flag::CUSTOM_PAYLOAD, ..Header::request(4, 1, opcode::QUERY) };
            out = bytes::envelope(header, &body);
        }
        _ => {
            ask(
                1,
                "DELETE FROM shunt.fast_locks WHERE name = 'hot' IF owner = 'nobody' AND fence = -1",
            );
            ask(
                2,
                "UPDATE shunt.locks USING TTL 2147483647 SET owner = 'a' WHERE name = 'b' IF owner = 'a'",
            );
            ask(3, "SELECT * FROM shunt.rwlocks WHERE name = '' LIMIT 0");
            ask(4, "TRUNCATE shunt.locks");
        }
    }
    (out, true)
}

impl Service for Swarm {
    type Mail = Mail;

    fn accepted(&mut self, _io: &mut Io, _conn: ConnId, _origin: &Accepted) {}

    fn connected(&mut self, io: &mut Io, conn: ConnId) {
        io.output(conn).extend(bytes::startup(4, None));
    }

    fn received(&mut self, io: &mut Io, conn: ConnId, data: &[u8]) -> usize {
        self.answered += 1;
        if let Some(number) = self.new.remove(&(conn.index, conn.generation)) {
            let (bytes, reads) = attack(number);
            io.output(conn).extend(bytes);
            if !reads {
                io.pause_reading(conn);
            }
        }
        data.len()
    }

    fn closed(&mut self, _io: &mut Io, conn: ConnId, _reason: CloseReason) {
        self.open.retain(|open| *open != conn);
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}
    fn timer(&mut self, _io: &mut Io, _key: u64) {}

    fn mail(&mut self, io: &mut Io, mail: Mail) {
        match mail {
            Mail::Connect(count) => {
                for _ in 0..count {
                    let conn = io.connect(self.server, 10 * SECOND);
                    self.new.insert((conn.index, conn.generation), self.opened);
                    self.open.push(conn);
                    self.opened += 1;
                }
            }
            Mail::Vanish(one_in) => {
                let all = std::mem::take(&mut self.open);
                all.iter().step_by(one_in).for_each(|conn| io.abort(*conn));
                let left = all.into_iter().enumerate().filter(|(place, _)| place % one_in != 0);
                self.open = left.map(|(_, conn)| conn).collect();
            }
        }
    }

    fn turn_ended(&mut self, _io: &mut Io) {}
}

fn swarm(ring: &mut LockTestbed) -> HostId<Swarm> {
    let server = ring.testbed.scene.proxy;
    let swarm = Swarm { server, new: BTreeMap::new(), open: Vec::new(), opened: 0, answered: 0 };
    ring.testbed.scene.world.add("swarm", swarm)
}

#[test]
fn ten_thousand_clients_that_do_what_they_can() {
    let mut ring = LockTestbed::new(|options| {
        options.config.clients_max = 2 * CLIENTS;
        options.config.clients_bytes_max = 128 << 20;
    });
    let good = ring.client(None);
    let take = acquire("fast_locks", "good", "me", 0);
    let release = "DELETE FROM shunt.fast_locks WHERE name = 'good' IF owner = 'me'";
    let used = measure(|| {
        let swarm = swarm(&mut ring);
        for _ in 0..20 {
            ring.testbed.scene.world.post(swarm, Mail::Connect(CLIENTS / 20));
            ring.testbed.run_for(50 * MILLISECOND);
            assert!(ring.applies(good, &take) && ring.applies(good, release));
        }
        ring.testbed.run_for(500 * MILLISECOND);
        let metrics = ring.testbed.scene.metrics[0].clone();
        assert!(
            metrics.locks.held.get() > 20_000 && metrics.locks.waiting.get() > 1_000,
            "{:?}",
            metrics.locks
        );
        for _ in 0..3 {
            ring.testbed.scene.world.post(swarm, Mail::Vanish(2));
            ring.testbed.run_for(50 * MILLISECOND);
            assert!(ring.applies(good, &take) && ring.applies(good, release));
        }
        ring.testbed.scene.world.post(swarm, Mail::Vanish(1));
        ring.testbed.run_for(40 * SECOND);
        assert_eq!((metrics.locks.held.get(), metrics.locks.waiting.get()), (0, 0));
        assert!(ring.applies(good, &take) && ring.applies(good, release));
    });
    assert!(used.bytes_max < BYTES_MAX, "{used:?}");
    assert!(used.bytes_current < BYTES_LEFT as i64, "{used:?}");
    ring.testbed.scene.check_at_rest();
}
