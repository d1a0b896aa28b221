//! The tables of a fleet with one member, played by nodes that answer statements on `shunt_meta`,
//! and clients that use its locks.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use shunt_bench::stub::hook::Request;
use shunt_bench::stub::{Action, Hook};
use shunt_language::functions::timeuuid;
use shunt_reactor::sim::{HostId, SECOND};
use shunt_testing::{Answer, bytes, simulated};
use shunt_wire::cql::envelope::{Header, opcode};
use shunt_wire::cql::message::encode_result::{Column, RowsWriter, native};
use shunt_wire::cql::message::{Query, Value, put};

use super::support::scene::SceneOptions;
use super::testbed::Testbed;

/// Values of a row, in the order of its columns.
pub type Values = Vec<Option<Vec<u8>>>;

/// The nodes' handling of written rows of locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// Written.
    #[default]
    Acknowledged,
    /// Without an answer.
    Unanswered,
    /// Without an answer for rows with this owner: empty for free rows.
    UnansweredOf(&'static str),
}

/// The tables of `shunt_meta`.
#[derive(Default)]
pub struct Tables {
    /// Shards and their owners, as an encoded map.
    owners: Vec<u8>,
    epoch: i64,
    ts_floor: i64,
    /// Shards whose locks in memory had expired when they were handed over: a bit for each.
    pub handed_over: i64,
    /// Address, state, beat, limit, format and leaving, by incarnation.
    members: Vec<(Vec<u8>, Values)>,
    /// Rows put there by a test: partition, and name, slot, owner, role, fence, ttl_ms, timestamp.
    pub rows: Vec<(i32, Values)>,
    pub writes: Writes,
    /// True if reads of a partition of rows get no answer.
    pub reads_unanswered: bool,
    /// Number of reads of each partition.
    pub reads: BTreeMap<i32, usize>,
    /// Number of written rows.
    pub written: usize,
    /// Names whose free rows have come, answered or not.
    pub freed: BTreeSet<Vec<u8>>,
    /// Statements on the tables of locks, which must never reach a node.
    pub strays: usize,
    /// Renewals of leases that were applied.
    pub renewals: usize,
    /// Reading of the nodes' clocks, microseconds since 1970.
    pub nodes_us: i64,
    /// True if the fleet agrees within one datacentre.
    pub is_local: bool,
    /// True if another member exists, which renews its lease whenever the proxy reads it.
    has_peer: bool,
}

/// The incarnation of the other member.
const PEER: [u8; 16] = [9; 16];

pub type Shared = Arc<Mutex<Tables>>;

pub fn some(bytes: impl AsRef<[u8]>) -> Option<Vec<u8>> {
    Some(bytes.as_ref().to_vec())
}

/// A row of a lock in the form of [`Tables::rows`].
pub fn lock_row(
    name: &[u8],
    owner: &[u8],
    fence: i64,
    ttl_ms: i32,
    timestamp_us: i64,
) -> (i32, Values) {
    let values = [some(name), some(b""), some(owner), some(b"")].into_iter().chain([
        some(fence.to_be_bytes()),
        some(ttl_ms.to_be_bytes()),
        some(timestamp_us.to_be_bytes()),
    ]);
    (i32::from(shunt_locks::bucket_of(name)), values.collect())
}

pub fn rows(columns: &[&str], rows: impl IntoIterator<Item = Values>) -> Vec<u8> {
    let columns: Vec<Column<'_>> = columns.iter().map(|name| (*name, native::BLOB)).collect();
    bytes::body(|out| {
        let mut writer = RowsWriter::new(out, "shunt_meta", "t", &columns);
        for row in rows {
            for value in row {
                writer.value(value.as_deref());
            }
        }
        writer.finish();
    })
}

pub fn applied(is_applied: bool) -> Vec<u8> {
    rows(&["[applied]"], [vec![some([u8::from(is_applied)])]])
}

impl Tables {
    pub fn shared() -> Shared {
        Arc::new(Mutex::new(Tables {
            owners: 0i32.to_be_bytes().to_vec(),
            handed_over: -1,
            ..Tables::default()
        }))
    }

    /// The tables of a fleet in which another proxy at this address has all shards.
    pub fn with_peer(address: SocketAddr) -> Shared {
        let tables = Tables::shared();
        let mut inside = tables.lock().unwrap();
        inside.has_peer = true;
        inside.owners = bytes::body(|out| {
            put::int(out, 64);
            for shard in 0..64i32 {
                put::bytes(out, Some(&shard.to_be_bytes()));
                put::bytes(out, Some(&PEER));
            }
        });
        let zero = some(0i64.to_be_bytes());
        let row = vec![
            some(address.to_string()),
            some([1]),
            zero.clone(),
            zero,
            some(1i32.to_be_bytes()),
            some([0]),
        ];
        inside.members.push((PEER.to_vec(), row));
        drop(inside);
        tables
    }

    /// The body of the answer to a statement on `shunt_meta`; `None` for no answer.
    fn answer(&mut self, text: &str, values: &[Vec<u8>]) -> Option<Vec<u8>> {
        let long = |place: usize| i64::from_be_bytes(values[place].as_slice().try_into().unwrap());
        const MEMBER: [&str; 7] = ["inc", "addr", "state", "beat", "ts_limit", "format", "leaving"];
        let member = |(inc, row): &(Vec<u8>, Values)| [vec![some(inc)], row.clone()].concat();
        Some(if text.starts_with("SELECT format") {
            let columns = [
                "format",
                "serial",
                "dc",
                "max_ttl_ms",
                "lease_ms",
                "view_epoch",
                "owners",
                "ts_floor",
                "handed_over",
            ];
            let int = |number: i32| some(number.to_be_bytes());
            let bigint = |number: i64| some(number.to_be_bytes());
            let (format, owners) = (int(1), some(&self.owners));
            let (serial, datacentre) =
                if self.is_local { ("LOCAL_SERIAL", "dc1") } else { ("SERIAL", "") };
            let row = vec![
                format,
                some(serial),
                some(datacentre),
                int(30_000),
                int(6_000),
                bigint(self.epoch),
                owners,
                bigint(self.ts_floor),
                bigint(self.handed_over),
            ];
            rows(&columns, [row])
        } else if text.starts_with("SELECT inc") {
            if self.has_peer {
                let beat = &mut self.members[0].1[2];
                let next =
                    beat.as_deref().map_or(0, |beat| i64::from_be_bytes(beat.try_into().unwrap()))
                        + 1;
                *beat = some(next.to_be_bytes());
            }
            let wanted = values.get(1);
            let found =
                self.members.iter().filter(|(inc, _)| wanted.is_none_or(|wanted| wanted == inc));
            rows(&MEMBER, found.map(member).collect::<Vec<_>>())
        } else if text.starts_with("INSERT INTO shunt_meta.member") {
            let row = vec![
                some(&values[2]),
                some([1]),
                some(0i64.to_be_bytes()),
                some(&values[3]),
                some(&values[4]),
                some([0]),
            ];
            self.members.push((values[1].clone(), row));
            applied(true)
        } else if text.starts_with("UPDATE shunt_meta.member SET beat") {
            let found = self.members.iter_mut().find(|(inc, _)| *inc == values[3]);
            let is_applied = found.is_some_and(|(_, row)| {
                let same = row[1] == some([1]) && row[2] == some(&values[4]);
                if same {
                    (row[2], row[3]) = (some(&values[0]), some(&values[1]));
                    if text.contains("leaving = true") {
                        row[5] = some([1]);
                    }
                }
                same
            });
            self.renewals += usize::from(is_applied);
            applied(is_applied)
        } else if text.starts_with("UPDATE shunt_meta.fleet") {
            let same = self.epoch == long(6);
            if same {
                (self.epoch, self.owners, self.ts_floor) = (long(0), values[1].clone(), long(2));
            }
            applied(same)
        } else if text.starts_with("SELECT name, slot") {
            let bucket = i32::from_be_bytes(values[0].as_slice().try_into().unwrap());
            *self.reads.entry(bucket).or_default() += 1;
            if self.reads_unanswered {
                return None;
            }
            let columns = ["name", "slot", "owner", "role", "fence", "ttl_ms", "writetime(fence)"];
            let found =
                self.rows.iter().filter(|(at, _)| *at == bucket).map(|(_, row)| row.clone());
            rows(&columns, found.collect::<Vec<_>>())
        } else if text.contains(" FROM shunt_meta.transactional")
            || text.contains(" FROM shunt.guards")
        {
            // No keyspace has transactions, and no table a rule.
            rows(&["keyspace_name"], Vec::new())
        } else if text.contains(" FROM shunt_meta.txn_shard") {
            // No shard has had a transaction either.
            rows(&["generation", "claim", "sealed"], Vec::new())
        } else if text.starts_with("INSERT INTO shunt_meta.lock") {
            if values[3].is_empty() {
                self.freed.insert(values[1].clone());
            }
            match self.writes {
                Writes::Unanswered => return None,
                Writes::UnansweredOf(owner) if values[3] == owner.as_bytes() => return None,
                Writes::UnansweredOf(_) | Writes::Acknowledged => {}
            }
            self.written += 1;
            1i32.to_be_bytes().to_vec()
        } else {
            panic!("nobody answers {text}");
        })
    }
}

/// Makes a RESULT.
pub fn answer(request: &Request<'_>, body: &[u8]) -> Action {
    let header = Header {
        length: body.len() as u32,
        ..Header::response(request.version, request.stream, opcode::RESULT)
    };
    Action::Garbage([&header.to_bytes()[..], body].concat())
}

/// The nodes' handling of requests for these tables.
pub fn hook(tables: &Shared) -> Hook {
    let tables = Arc::clone(tables);
    Box::new(move |request: &Request<'_>| {
        // One copy serves all searches. A comparison of each window without regard to case takes
        // longer than all else in these tests.
        let body = String::from_utf8_lossy(request.body).to_ascii_lowercase();
        let has = |text: &str| body.contains(&text.to_ascii_lowercase());
        let is_ours = has("shunt_meta") || has("FROM shunt.guards");
        // A role may use locks, and nobody has put rows into their tables.
        let looks = has("WHERE name IN ()")
            || has("SELECT name FROM shunt.") && has(" LIMIT 1") && !has("WHERE");
        if request.opcode == opcode::QUERY && looks {
            return answer(request, &rows(&["name"], []));
        }
        if request.opcode == opcode::QUERY && has("now() FROM system.local") {
            let time = timeuuid(tables.lock().unwrap().nodes_us * 10, 0);
            return answer(request, &rows(&["now"], [vec![some(time)]]));
        }
        if has("FROM unanswered.") {
            return Action::Silence;
        }
        if !is_ours {
            let is_stray = has("shunt");
            tables.lock().unwrap().strays +=
                usize::from(is_stray && request.opcode != opcode::STARTUP);
            return Action::Answer;
        }
        // Leave prepared statements alone: a text travels until it is prepared.
        if request.opcode != opcode::QUERY {
            return Action::Error(0x2200);
        }
        let query = Query::decode(request.version, request.body).unwrap();
        let value = |place| match query.params.values.get(place) {
            Some(Value::Bytes(bytes)) => Some(bytes.to_vec()),
            _ => None,
        };
        let values: Vec<Vec<u8>> = (0..).map_while(value).collect();
        match tables.lock().unwrap().answer(query.text, &values) {
            None => Action::Silence,
            Some(body) => answer(request, &body),
        }
    })
}

/// A proxy that has all shards of its fleet.
pub struct LockTestbed {
    pub testbed: Testbed,
    pub tables: Shared,
}

impl LockTestbed {
    pub fn new(change: impl FnOnce(&mut SceneOptions)) -> LockTestbed {
        LockTestbed::with_tables(Tables::shared(), change)
    }

    pub fn with_tables(tables: Shared, change: impl FnOnce(&mut SceneOptions)) -> LockTestbed {
        let mut ring = LockTestbed::begun(tables, change);
        // Locks in memory are granted once the longest of them would have expired.
        ring.testbed.run_for(30 * SECOND);
        assert!(ring.tables.lock().unwrap().renewals > 5, "it is no member");
        ring
    }

    /// A testbed whose proxy has just become a member.
    pub fn begun(tables: Shared, change: impl FnOnce(&mut SceneOptions)) -> LockTestbed {
        let mut testbed = Testbed::bare(|options| {
            options.config.fleet = Some("main".to_owned());
            options.config.fleet_replicas_min = 0;
            options.config.advertise = Some("10.2.0.1:9042".parse().unwrap());
            change(options);
        });
        (0..testbed.scene.nodes.len())
            .for_each(|node| testbed.scene.hook(node, Some(hook(&tables))));
        testbed.run_for(15 * SECOND);
        LockTestbed { testbed, tables }
    }

    /// Connects a client that speaks version 4 and logs in, if a login is given.
    pub fn client(&mut self, login: Option<(&str, &str)>) -> HostId<simulated::Client> {
        let client = self.testbed.offender();
        self.testbed.send(client, &bytes::startup(4, None));
        self.testbed.answered(client, 1);
        if let Some((user, password)) = login {
            let token = format!("\0{user}\0{password}");
            self.testbed.send(client, &bytes::auth_response(4, token.as_bytes()));
            self.testbed.answered(client, 2);
        }
        self.testbed.take_answers(client);
        client
    }

    pub fn ask(&mut self, client: HostId<simulated::Client>, text: &str) -> Answer {
        self.testbed.send(client, &bytes::query(4, 1, text));
        self.testbed.answered(client, 1);
        self.testbed.take_answers(client).remove(0)
    }

    /// True if a conditional statement was applied.
    pub fn applies(&mut self, client: HostId<simulated::Client>, text: &str) -> bool {
        let answer = self.ask(client, text);
        answer.rows()[0][0].as_deref() == Some(&[1])
    }
}
