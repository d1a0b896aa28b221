//! A load for a node whose disk fails. Each row and batch is written only once, so each is
//! acknowledged, or refused or unanswered, or never tried.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use shunt_testing::blocking::Client;
use shunt_testing::{Answer, number};

use crate::model::Random;
use crate::process::is_given_up;

const CONNECTIONS: i64 = 3;
/// Statements sent together.
const VOLLEY: i64 = 8;
/// Partitions of a batch.
const PARTS: i64 = 4;
/// Volleys without an acknowledgement after which a connection gives up.
const REFUSALS_MAX: usize = 3;

/// The written rows and batches.
#[derive(Default)]
pub(crate) struct Plain {
    rows: Tried,
    batches: Tried,
    tables: Tried,
    next: i64,
    /// The distinct messages of refusals.
    pub(crate) refusals: BTreeSet<String>,
}

#[derive(Default)]
struct Tried {
    all: BTreeSet<i64>,
    acknowledged: BTreeSet<i64>,
}

/// One statement.
#[derive(Clone, Copy)]
enum What {
    Row,
    Batch,
    Table,
}

/// Text that compresses poorly, so that disks fill up.
fn pad(id: i64) -> String {
    let mut random = Random::new(id as u64);
    (0..30).map(|_| format!("{:08x}", random.below(1 << 32))).collect()
}

fn text(what: What, id: i64) -> String {
    match what {
        What::Row => format!("INSERT INTO f.row (id, pad) VALUES ({id}, '{}')", pad(id)),
        What::Table => format!("CREATE TABLE f.t{id} (id int PRIMARY KEY)"),
        What::Batch => {
            let part = |part| format!("INSERT INTO f.part (id, part) VALUES ({id}, {part}); ");
            format!("BEGIN BATCH {} APPLY BATCH", (0..PARTS).map(part).collect::<String>())
        }
    }
}

impl Plain {
    /// Creates keyspace and tables.
    pub(crate) fn prepare(client: &mut Client) {
        let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
        client.run(&format!(
            "CREATE KEYSPACE f WITH replication = {replication} AND durability = 'batch'"
        ));
        client.run("CREATE TABLE f.row (id int PRIMARY KEY, pad text)");
        client.run("CREATE TABLE f.part (id int, part int, PRIMARY KEY ((id, part)))");
    }

    fn tried(&mut self, what: What) -> &mut Tried {
        match what {
            What::Row => &mut self.rows,
            What::Batch => &mut self.batches,
            What::Table => &mut self.tables,
        }
    }

    /// Writes over several connections until each has sent `volleys` volleys or is refused
    /// repeatedly.
    pub(crate) fn run(&mut self, address: SocketAddr, volleys: usize) {
        let shared = Mutex::new(self);
        std::thread::scope(|scope| {
            for connection in 0..CONNECTIONS {
                let shared = &shared;
                scope.spawn(move || {
                    let mut client = Client::connect(address, 4);
                    let mut refused = 0;
                    for volley in 0..volleys {
                        let schema = connection == 0 && volley % 8 == 7;
                        refused =
                            if volley_of(shared, &mut client, schema) { 0 } else { refused + 1 };
                        if refused == REFUSALS_MAX {
                            break;
                        }
                    }
                });
            }
        });
    }

    /// Writes one row; true if it was acknowledged.
    pub(crate) fn one(&mut self, client: &mut Client) -> bool {
        let before = self.rows.acknowledged.len();
        let id = self.next;
        self.next += 1;
        self.rows.all.insert(id);
        let asked = Instant::now();
        let answer = client.pipeline(&[text(What::Row, id)]).remove(0);
        self.answered(What::Row, id, &answer.expect("no answer from a node that runs"), asked);
        self.rows.acknowledged.len() > before
    }

    fn answered(&mut self, what: What, id: i64, answer: &Answer, asked: Instant) {
        match answer.outcome() {
            Err(_) if is_given_up(answer, asked) => {}
            Ok(_) => drop(self.tried(what).acknowledged.insert(id)),
            Err(why) => drop(self.refusals.insert(why)),
        }
    }

    /// Number of acknowledged writes.
    pub(crate) fn acknowledged(&self) -> usize {
        self.rows.acknowledged.len()
            + self.batches.acknowledged.len()
            + self.tables.acknowledged.len()
    }

    /// Checks that everything read is as written and no acknowledged write is missing. A read that
    /// the disk makes fail is returned as an error.
    pub(crate) fn verify(&self, client: &mut Client) -> Vec<String> {
        let mut errors = Vec::new();
        let mut read = |text: &str| match client.query(text).outcome() {
            Ok(rows) => Some(rows),
            Err(why) => {
                errors.push(why);
                None
            }
        };
        match read("SELECT id, pad FROM f.row") {
            Some(rows) => {
                let rows = rows
                    .iter()
                    .map(|row| (number(row[0].as_ref()).expect("an id"), row[1].clone()));
                let rows: BTreeMap<i64, Option<Vec<u8>>> = rows.collect();
                rows.iter().for_each(|(id, value)| {
                    assert_eq!(*value, Some(pad(*id).into_bytes()), "row {id}")
                });
                self.rows.same(&rows.into_keys().collect(), "rows");
            }
            // One by one: data outside the damage can be read.
            None => {
                for id in self.rows.acknowledged.iter().step_by(7) {
                    let Some(rows) = read(&format!("SELECT pad FROM f.row WHERE id = {id}")) else {
                        continue;
                    };
                    assert_eq!(rows, [[Some(pad(*id).into_bytes())]], "row {id}");
                }
            }
        }
        if let Some(rows) = read("SELECT id, part FROM f.part") {
            let mut parts: BTreeMap<i64, i64> = BTreeMap::new();
            rows.iter().for_each(|row| {
                *parts.entry(number(row[0].as_ref()).expect("an id")).or_default() += 1
            });
            parts.iter().for_each(|(id, parts)| assert_eq!(*parts, PARTS, "half of batch {id}"));
            self.batches.same(&parts.into_keys().collect(), "batches");
        }
        if let Some(rows) =
            read("SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'f'")
        {
            let names = rows.into_iter().filter_map(|row| String::from_utf8(row[0].clone()?).ok());
            self.tables.same(
                &names.filter_map(|name| name.strip_prefix('t')?.parse().ok()).collect(),
                "tables",
            );
        }
        errors
    }
}

impl Tried {
    fn same(&self, found: &BTreeSet<i64>, what: &str) {
        let lost: Vec<_> = self.acknowledged.difference(found).collect();
        assert!(lost.is_empty(), "{what} {lost:?} were acknowledged and are lost");
        let foreign: Vec<_> = found.difference(&self.all).collect();
        assert!(foreign.is_empty(), "{what} {foreign:?} were never written");
    }
}

fn volley_of(shared: &Mutex<&mut Plain>, client: &mut Client, schema: bool) -> bool {
    let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    let statements: Vec<(What, i64)> = {
        let mut plain = lock();
        let kinds = (0..VOLLEY).map(|index| match index {
            0 if schema => What::Table,
            1 => What::Batch,
            _ => What::Row,
        });
        kinds
            .map(|what| {
                plain.next += 1;
                let id = plain.next;
                plain.tried(what).all.insert(id);
                (what, id)
            })
            .collect()
    };
    let texts: Vec<String> = statements.iter().map(|(what, id)| text(*what, *id)).collect();
    let asked = Instant::now();
    let answers = client.pipeline(&texts);
    let mut plain = lock();
    let before = plain.acknowledged();
    for ((what, id), answer) in statements.into_iter().zip(answers) {
        plain.answered(what, id, &answer.expect("no answer from a node that runs"), asked);
    }
    plain.acknowledged() > before
}
