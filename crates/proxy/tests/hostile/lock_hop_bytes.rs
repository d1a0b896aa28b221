//! Messages between proxies of a fleet, changed at random, from a sender that is no proxy:
//! mutations must not end a core, take a lock from its holder, or leave anything behind. The
//! decoders themselves have fuzz targets (requests, lock_tables); this tests what the proxy does
//! with the decoded values. `SHUNT_HOP_SEED` makes another run, `SHUNT_HOP_ROUNDS` a longer one.

use shunt_proxy::config::Secret;
use shunt_reactor::sim::{MILLISECOND, SECOND};
use shunt_testing::bytes;
use shunt_wire::cql::envelope::{HEADER_BYTES, Header, flag, opcode};
use shunt_wire::cql::message::{Consistency, encode, put};

use super::lock_ring::LockTestbed;
use super::lock_withdrawals::withdraws;

const TAKE: &str =
    "INSERT INTO shunt.fast_locks (name, owner) VALUES ('a', 'holds') IF NOT EXISTS USING TTL 30";
const STATEMENTS: [&str; 8] = [
    "INSERT INTO shunt.fast_locks (name, owner, wait_ms) VALUES ('a', 'eve', 1500) IF NOT EXISTS USING TTL 20",
    "INSERT INTO shunt.fast_rwlocks (name, owner, mode) VALUES ('a', 'holds', 'S') IF NOT EXISTS USING TTL 20",
    "UPDATE shunt.fast_locks USING TTL 1 SET owner = 'holds' WHERE name = 'a' IF owner = 'holds'",
    "UPDATE shunt.fast_rwlocks USING TTL 1 SET mode = 'S' WHERE name = 'a' AND owner = 'holds' IF EXISTS",
    "DELETE FROM shunt.fast_locks WHERE name = 'a' IF owner = 'holds'",
    "DELETE FROM shunt.fast_rwlocks WHERE name = 'a' AND owner = 'holds' IF EXISTS",
    "SELECT owner, fence, ttl_ms, waiters FROM shunt.fast_locks WHERE name = 'a'",
    "SELECT * FROM shunt.lock_queue WHERE name = 'a'",
];
/// Messages of one connection. The last of them is changed: an unreadable one may close the
/// connection.
const MESSAGES: usize = 6;

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }
}

/// A message between proxies: forwarded, giving back, or withdrawing.
fn message(random: &mut Random, stream: i16) -> Vec<u8> {
    if random.below(5) == 0 {
        return withdraws(random.below(MESSAGES + 2) as i16);
    }
    let payload = [[1], [2], [3], [4], [0]][random.below(5)];
    let body = bytes::body(|out| {
        put::bytes_map(out, [("shunt-hop", Some(&payload[..]))]);
        encode::query_simple(out, 4, STATEMENTS[random.below(STATEMENTS.len())], Consistency::ONE);
    });
    bytes::envelope(
        Header { flags: flag::CUSTOM_PAYLOAD, ..Header::request(4, stream, opcode::QUERY) },
        &body,
    )
}

/// Changes some of the body; its length stays right, or the connection would wait for the rest.
fn mutate(random: &mut Random, message: &mut Vec<u8>) {
    for _ in 0..=random.below(3) {
        let body = message.len() - HEADER_BYTES;
        if body == 0 {
            break;
        }
        let at = HEADER_BYTES + random.below(body);
        match random.below(5) {
            0 => message[at] ^= 1 << random.below(8),
            1 => message[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            2 => message.truncate(at),
            3 => message.insert(at, random.below(256) as u8),
            _ => {
                let end = (at + random.below(40)).min(message.len());
                message.extend_from_within(at..end);
            }
        }
    }
    let length = (message.len() - HEADER_BYTES) as u32;
    message[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn changed_messages_between_proxies_gain_nothing() {
    let mut ring = LockTestbed::new(|options| {
        options.credentials =
            ["ann", "eve"].map(|role| (role.to_owned(), "secret".to_owned())).to_vec();
        options.config.username = Some("ann".to_owned());
        options.config.password = Some(Secret::new("secret"));
    });
    let seed = number("SHUNT_HOP_SEED", 1);
    println!("SHUNT_HOP_SEED={seed} repeats this run");
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let ann = ring.client(Some(("ann", "secret")));
    let (mut closed, mut answered) = (0, 0);
    for round in 0..number("SHUNT_HOP_ROUNDS", 500) {
        assert!(ring.applies(ann, TAKE), "round {round}");
        let fence = |ring: &mut LockTestbed| {
            let answer =
                ring.ask(ann, "SELECT owner, fence FROM shunt.fast_locks WHERE name = 'a'");
            let row = answer.rows()[0].clone();
            assert_eq!(row[0].as_deref(), Some(&b"holds"[..]), "round {round}");
            row[1].clone()
        };
        let held = fence(&mut ring);
        let eve = ring.client(Some(("eve", "secret")));
        for stream in 1..=MESSAGES as i16 {
            let mut message = message(&mut random, stream);
            if stream == MESSAGES as i16 {
                mutate(&mut random, &mut message);
            }
            ring.testbed.send(eve, &message);
        }
        ring.testbed.run_for(20 * MILLISECOND);
        assert_eq!(fence(&mut ring), held, "round {round}: the holder has lost it");
        closed += usize::from(ring.testbed.scene.world.host(eve).is_closed());
        answered += ring.testbed.take_answers(eve).len();
        ring.testbed.scene.world.with(eve, |client, io| client.reset(io));
        ring.testbed.run_for(10 * MILLISECOND);
        assert!(
            ring.applies(ann, "DELETE FROM shunt.fast_locks WHERE name = 'a' IF owner = 'holds'")
        );
    }
    // The proxy understands most of them, and an unreadable one costs its connection.
    assert!(answered > 1_000 && closed > 0, "{answered} answers, {closed} connections closed");
    ring.testbed.run_for(30 * SECOND);
    assert_eq!(ring.testbed.scene.metrics[0].in_flight.get(), 0);
    assert_eq!(ring.testbed.scene.metrics[0].locks.waiting.get(), 0, "nobody is left in a queue");
}
