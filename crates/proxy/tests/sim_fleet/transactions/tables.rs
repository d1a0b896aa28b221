//! The simulated ring's tables of transactions, and those of their log: cells on three replicas, of
//! which the last write wins; writes reach replicas late or never, a read asks two and repairs
//! them, conditional statements run one after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use shunt_reactor::sim::{Random, SECOND};
use shunt_wire::cql::message::encode_result::Column;
use shunt_wire::cql::message::encode_result::native::{BIGINT, BLOB, INT, TEXT, UUID};

use super::inside::Inside;
use super::parsed::{Asked, Parsed, Request};
use super::spec::{KEYSPACES, RowOf};

/// Key of a row: its table, its partition, and its position there.
pub type RowKey = (usize, Vec<u8>, Vec<u8>);
/// Write time, microseconds, and value, by column.
pub type Row = BTreeMap<usize, (i64, Vec<u8>)>;

/// A table.
pub struct Table {
    pub keyspace: &'static str,
    pub name: &'static str,
    /// Columns, first those of the partition key, then of the clustering.
    pub columns: &'static [Column<'static>],
    pub partition: usize,
    pub clustering: usize,
}

const ACCOUNTS: &[Column<'static>] =
    &[("id", INT), ("balance", INT), ("version", INT), ("writer", BIGINT)];
const SHIFTS: &[Column<'static>] =
    &[("region", INT), ("id", INT), ("on_call", INT), ("version", INT), ("writer", BIGINT)];
const LEASES: &[Column<'static>] =
    &[("id", INT), ("holder", INT), ("version", INT), ("writer", BIGINT)];
const LOW: &[Column<'static>] =
    &[("cluster", TEXT), ("shard", INT), ("generation", BIGINT), ("low", BIGINT)];
const LOG: &[Column<'static>] = &[
    ("cluster", TEXT),
    ("shard", INT),
    ("generation", BIGINT),
    ("bucket", BIGINT),
    ("position", BIGINT),
    ("body", BLOB),
];

/// The tables; those of applications first.
pub const TABLES: [Table; 8] = [
    Table { keyspace: "bank", name: "accounts", columns: ACCOUNTS, partition: 1, clustering: 0 },
    Table { keyspace: "bank", name: "shifts", columns: SHIFTS, partition: 1, clustering: 1 },
    Table { keyspace: "bank", name: "leases", columns: LEASES, partition: 1, clustering: 0 },
    Table { keyspace: "shop", name: "accounts", columns: ACCOUNTS, partition: 1, clustering: 0 },
    Table { keyspace: "shop", name: "shifts", columns: SHIFTS, partition: 1, clustering: 1 },
    Table { keyspace: "shop", name: "leases", columns: LEASES, partition: 1, clustering: 0 },
    Table { keyspace: "shunt_meta", name: "txn_low", columns: LOW, partition: 3, clustering: 0 },
    Table { keyspace: "shunt_meta", name: "txn_log", columns: LOG, partition: 4, clustering: 1 },
];
/// Index of the log among them.
pub const LOG_TABLE: usize = 7;

impl Table {
    pub fn column(&self, name: &str) -> usize {
        let found = self.columns.iter().position(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("{}.{} has no column {name}", self.keyspace, self.name))
    }

    /// True for tables that applications write to, in transactions.
    pub fn is_applications(&self) -> bool {
        self.keyspace != "shunt_meta"
    }
}

#[derive(Default)]
struct Replica {
    rows: BTreeMap<RowKey, Row>,
    /// Deletion time of partitions, microseconds.
    deleted: BTreeMap<(usize, Vec<u8>), i64>,
}

impl Replica {
    fn put(&mut self, key: &RowKey, cells: &Row) {
        let deleted_us = self.deleted.get(&(key.0, key.1.clone())).copied().unwrap_or(i64::MIN);
        let row = self.rows.entry(key.clone()).or_default();
        for (column, cell) in cells.iter().filter(|(_, cell)| cell.0 > deleted_us) {
            let place = row.entry(*column).or_insert_with(|| cell.clone());
            if cell > place {
                *place = cell.clone();
            }
        }
        if row.is_empty() {
            self.rows.remove(key);
        }
    }

    fn delete(&mut self, table: usize, partition: &[u8], up_to_us: i64) {
        let place = self.deleted.entry((table, partition.to_vec())).or_insert(up_to_us);
        *place = up_to_us.max(*place);
        let of = |key: &RowKey| (key.0, key.1.as_slice()) == (table, partition);
        for row in self.rows.iter_mut().filter(|(key, _)| of(key)).map(|(_, row)| row) {
            row.retain(|_, cell| cell.0 > up_to_us);
        }
        self.rows.retain(|_, row| !row.is_empty());
    }
}

/// A write on its way to a replica.
struct Late {
    at_ns: u64,
    replica: usize,
    request: Request,
}

/// The log's row of a shard.
#[derive(Clone, Debug, Default)]
pub struct Shard {
    pub generation: i64,
    pub claim: Vec<u8>,
    pub sealed: i64,
}

/// The answer to a statement.
pub enum Reply {
    Void,
    Applied(bool),
    /// Columns, and rows of them.
    Rows(Vec<Column<'static>>, Vec<Vec<Option<Vec<u8>>>>),
}

/// The tables with their data.
#[derive(Default)]
pub struct Tables {
    replicas: [Replica; 3],
    late: Vec<Late>,
    /// Rows of the log by fleet and shard.
    pub shards: BTreeMap<(Vec<u8>, Vec<u8>), Shard>,
    parsed: BTreeMap<String, Arc<Parsed>>,
    /// The ring's observations.
    pub inside: Inside,
    /// Number of claimed generations.
    pub claims: u64,
    pub claims_refused: u64,
}

impl Tables {
    /// A text's statement, if it is on one of these tables.
    pub fn parsed(&mut self, text: &str) -> Option<Arc<Parsed>> {
        if let Some(known) = self.parsed.get(text) {
            return Some(Arc::clone(known));
        }
        let parsed = Arc::new(Parsed::read(text)?);
        self.parsed.insert(text.to_owned(), Arc::clone(&parsed));
        Some(parsed)
    }

    /// Puts the initial rows on all replicas, as written by an ordinary client at that time.
    pub fn fill(&mut self, written_us: i64) {
        for row in (0..KEYSPACES.len()).flat_map(RowOf::all).chain(RowOf::leases()) {
            let is_it = |table: &Table| {
                table.keyspace == KEYSPACES[row.keyspace] && table.name == row.table()
            };
            let table = TABLES.iter().position(is_it).expect("a table of the simulation");
            let key: Vec<Vec<u8>> =
                row.key().iter().map(|part| part.to_be_bytes().to_vec()).collect();
            let partition = [&4u16.to_be_bytes()[..], &key[0]].concat();
            let of = |name: &str| TABLES[table].column(name);
            let first = (row.value_at_first() as i32).to_be_bytes().to_vec();
            let cells = [
                (of(row.column()), (written_us, first)),
                (of("version"), (written_us, vec![0; 4])),
                (of("writer"), (written_us, vec![0; 8])),
            ];
            let key = (table, partition, key.get(1).cloned().unwrap_or_default());
            self.replicas
                .iter_mut()
                .for_each(|replica| replica.put(&key, &Row::from(cells.clone())));
        }
    }

    /// Executes a statement, a write on this many replicas now; the others get it later, or never.
    pub fn execute(
        &mut self,
        now_ns: u64,
        random: &mut Random,
        request: &Request,
        reached: usize,
    ) -> Reply {
        self.deliver(now_ns);
        match request {
            Request::Read { table, partition, clustering, columns, limit } => {
                let rows = self.read(random, (*table, partition), clustering, *limit);
                let of = &TABLES[*table];
                let value = |(key, row): &(RowKey, Row), asked: &Asked| match asked {
                    Asked::Value(column) if *column < of.partition + of.clustering => {
                        Some(key.2.clone())
                    }
                    Asked::Value(column) => row.get(column).map(|(_, value)| value.clone()),
                    Asked::WriteTime(column) => {
                        row.get(column).map(|(us, _)| us.to_be_bytes().to_vec())
                    }
                    Asked::TimeToLive => None,
                };
                let rows = rows
                    .iter()
                    .map(|row| columns.iter().map(|column| value(row, column)).collect());
                Reply::Rows(columns.iter().map(|asked| asked.column(of)).collect(), rows.collect())
            }
            Request::Write { key, cells } => {
                self.inside
                    .written(key, cells, &self.shards, &|key, us| count(&self.replicas, key, us));
                self.spread(now_ns, random, request, reached);
                Reply::Void
            }
            Request::Delete { .. } | Request::Several(_) => {
                self.spread(now_ns, random, request, reached);
                Reply::Void
            }
            Request::ReadShard { of } => {
                let columns = vec![("generation", BIGINT), ("claim", UUID), ("sealed", BIGINT)];
                let row = self.shards.get(of).map(|Shard { generation, claim, sealed }| {
                    let number = |number: &i64| Some(number.to_be_bytes().to_vec());
                    vec![number(generation), Some(claim.clone()), number(sealed)]
                });
                Reply::Rows(columns, row.into_iter().collect())
            }
            Request::First { of, claim } => {
                let is_new = !self.shards.contains_key(of);
                let first = Shard { generation: 1, claim: claim.clone(), sealed: 0 };
                self.shards.entry(of.clone()).or_insert(first);
                self.claimed(is_new)
            }
            Request::Claim { of, generation, claim, from, sealed } => {
                let row = self
                    .shards
                    .get_mut(of)
                    .filter(|row| (row.generation, row.sealed) == (*from, *sealed));
                let applies = row.is_some();
                if let Some(row) = row {
                    (row.generation, row.claim) = (*generation, claim.clone());
                }
                self.claimed(applies)
            }
            Request::Seal { of, sealed, generation, claim } => {
                let row = self
                    .shards
                    .get_mut(of)
                    .filter(|row| (row.generation, &row.claim) == (*generation, claim));
                let applies = row.is_some();
                if let Some(row) = row {
                    row.sealed = *sealed;
                    self.inside.sealed(of, *sealed, &|key, us| count(&self.replicas, key, us));
                }
                Reply::Applied(applies)
            }
        }
    }

    fn claimed(&mut self, applies: bool) -> Reply {
        *if applies { &mut self.claims } else { &mut self.claims_refused } += 1;
        Reply::Applied(applies)
    }

    /// Replicas that have a row as written then, or later.
    pub fn count(&self, key: &RowKey, written_us: i64) -> usize {
        count(&self.replicas, key, written_us)
    }

    fn spread(&mut self, now_ns: u64, random: &mut Random, request: &Request, reached: usize) {
        let first = random.index(3);
        for offset in 0..3 {
            let replica = (first + offset) % 3;
            if offset < reached {
                self.apply(replica, request);
            } else if random.below(3) > 0 {
                let within_ns = if random.below(4) == 0 { 12 * SECOND } else { SECOND / 3 };
                self.late.push(Late {
                    at_ns: now_ns + random.below(within_ns),
                    replica,
                    request: request.clone(),
                });
            }
        }
    }

    fn apply(&mut self, replica: usize, request: &Request) {
        match request {
            Request::Write { key, cells } => self.replicas[replica].put(key, cells),
            Request::Delete { table, partition, at_us } => {
                self.replicas[replica].delete(*table, partition, *at_us)
            }
            Request::Several(requests) => requests.iter().for_each(|one| self.apply(replica, one)),
            _ => {}
        }
    }

    /// Delivers the writes that are due.
    pub fn deliver(&mut self, now_ns: u64) {
        let (due, late) =
            std::mem::take(&mut self.late).into_iter().partition(|late| late.at_ns <= now_ns);
        self.late = late;
        for Late { replica, request, .. } in due {
            self.apply(replica, &request);
        }
    }

    /// Asks two replicas, repairs both, and returns their merged data: the row at a position, or
    /// all from there.
    fn read(
        &mut self,
        random: &mut Random,
        (table, partition): (usize, &Vec<u8>),
        clustering: &(Vec<u8>, bool),
        limit: usize,
    ) -> Vec<(RowKey, Row)> {
        let first = random.index(3);
        let asked = [first, (first + 1 + random.index(2)) % 3];
        let up_to_us = asked
            .iter()
            .filter_map(|one| self.replicas[*one].deleted.get(&(table, partition.clone())))
            .max();
        if let Some(up_to_us) = up_to_us.copied() {
            asked.iter().for_each(|one| self.replicas[*one].delete(table, partition, up_to_us));
        }
        let (from, is_range) = clustering;
        let mut merged: BTreeMap<RowKey, Row> = BTreeMap::new();
        for one in asked {
            let rows = self.replicas[one].rows.range((table, partition.clone(), from.clone())..);
            let of = |key: &RowKey| {
                key.0 == table && key.1 == *partition && (*is_range || key.2 == *from)
            };
            for (key, row) in rows.take_while(|(key, _)| of(key)).take(limit) {
                let place = merged.entry(key.clone()).or_default();
                for (column, cell) in row {
                    let kept = place.entry(*column).or_insert_with(|| cell.clone());
                    if cell > kept {
                        *kept = cell.clone();
                    }
                }
            }
        }
        for (key, row) in &merged {
            asked.iter().for_each(|one| self.replicas[*one].put(key, row));
        }
        merged.into_iter().take(limit).collect()
    }
}

fn count(replicas: &[Replica; 3], key: &RowKey, written_us: i64) -> usize {
    let has = |replica: &&Replica| {
        let is_deleted =
            replica.deleted.get(&(key.0, key.1.clone())).is_some_and(|us| *us >= written_us);
        is_deleted
            || replica
                .rows
                .get(key)
                .is_some_and(|row| row.values().any(|(us, _)| *us >= written_us))
    };
    replicas.iter().filter(has).count()
}
