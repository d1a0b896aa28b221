//! The data of a simulated ring: rows by which proxies agree, which change one statement after the
//! other, and rows of locks on three replicas, of which the last write wins; writes reach replicas
//! late or never, and a read asks two and repairs them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use shunt_reactor::sim::{Random, SECOND};

use super::transactions::tables::{self, Tables};

/// The longest TTL of a lock in memory, milliseconds.
pub const MEMORY_TTL_MAX_MS: i32 = 3_000;
/// The lease of a proxy, milliseconds.
pub const LEASE_MS: i32 = 1_500;

/// The kind of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    ReadFleet,
    ReadMembers,
    ReadMember,
    Join,
    Renew,
    RenewLeaving,
    DeclareDead,
    Seal,
    Leave,
    Purge,
    ChangeView,
    WriteLock,
    DeleteLock,
    DeleteShares,
    ReadLocks,
}

impl Kind {
    pub fn of(text: &str) -> Kind {
        let begins = |start: &str| text.starts_with(start);
        match () {
            () if begins("SELECT format") => Kind::ReadFleet,
            () if begins("SELECT inc") && text.contains("inc = ?") => Kind::ReadMember,
            () if begins("SELECT inc") => Kind::ReadMembers,
            () if begins("INSERT INTO shunt_meta.member") => Kind::Join,
            () if begins("UPDATE shunt_meta.member SET beat") && text.contains("leaving") => {
                Kind::RenewLeaving
            }
            () if begins("UPDATE shunt_meta.member SET beat") => Kind::Renew,
            () if begins("UPDATE shunt_meta.member SET state = 2") => Kind::DeclareDead,
            () if begins("UPDATE shunt_meta.member SET state = 3") && text.contains("beat") => {
                Kind::Leave
            }
            () if begins("UPDATE shunt_meta.member SET state = 3") => Kind::Seal,
            () if begins("DELETE FROM shunt_meta.member") => Kind::Purge,
            () if begins("UPDATE shunt_meta.fleet") => Kind::ChangeView,
            () if begins("INSERT INTO shunt_meta.lock") => Kind::WriteLock,
            () if begins("DELETE FROM shunt_meta.lock") && text.contains("slot") => {
                Kind::DeleteShares
            }
            () if begins("DELETE FROM shunt_meta.lock") => Kind::DeleteLock,
            () if begins("SELECT name, slot") => Kind::ReadLocks,
            () => panic!("no statement of a proxy's: {text}"),
        }
    }

    pub fn is_conditional(self) -> bool {
        use Kind::{
            DeleteLock, DeleteShares, ReadFleet, ReadLocks, ReadMember, ReadMembers, WriteLock,
        };
        !matches!(
            self,
            ReadFleet
                | ReadMembers
                | ReadMember
                | WriteLock
                | DeleteLock
                | DeleteShares
                | ReadLocks
        )
    }
}

/// The bound values.
pub type Values = Vec<Vec<u8>>;

/// The answer to a statement.
pub enum Reply {
    Applied(bool),
    Void,
    Rows(Kind, Vec<Values>),
    OfTransactions(tables::Reply),
}

struct Member {
    address: Vec<u8>,
    state: u8,
    beat: Vec<u8>,
    limit: Vec<u8>,
    format: Vec<u8>,
    leaving: Vec<u8>,
}

struct Fleet {
    epoch: Vec<u8>,
    owners: Vec<u8>,
    floor: Vec<u8>,
    handed_over: Vec<u8>,
    format: Vec<u8>,
}

/// A row of a lock: its timestamp, then owner, role, mode, fence and TTL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Stored {
    timestamp_us: i64,
    values: Values,
}

/// Bucket, name and slot.
type Key = (Vec<u8>, Vec<u8>, Vec<u8>);

/// A deletion of rows of a lock.
#[derive(Clone, PartialEq, Eq)]
struct Deletion {
    bucket: Vec<u8>,
    name: Vec<u8>,
    of_shares: bool,
    up_to_us: i64,
}

impl Deletion {
    fn covers(&self, (bucket, name, slot): &Key, stored: &Stored) -> bool {
        (&self.bucket, &self.name) == (bucket, name)
            && stored.timestamp_us <= self.up_to_us
            && !(self.of_shares && slot.is_empty())
    }
}

#[derive(Default)]
struct Replica {
    rows: BTreeMap<Key, Stored>,
    deletions: Vec<Deletion>,
}

impl Replica {
    fn put(&mut self, key: Key, stored: Stored) {
        if self.deletions.iter().any(|deletion| deletion.covers(&key, &stored)) {
            return;
        }
        let place = self.rows.entry(key).or_insert_with(|| stored.clone());
        if stored > *place {
            *place = stored;
        }
    }

    fn delete(&mut self, deletion: Deletion) {
        if !self.deletions.contains(&deletion) {
            self.rows.retain(|key, stored| !deletion.covers(key, stored));
            self.deletions.push(deletion);
        }
    }
}

/// A change on its way to a replica.
enum What {
    Row(Key, Stored),
    Deletion(Deletion),
}

struct Late {
    at_ns: u64,
    replica: usize,
    what: What,
}

/// The ring of all nodes.
pub struct Ring {
    pub random: Random,
    /// Share of faults, from 0 to 1.
    pub trouble: f64,
    /// Share of statements that run and are answered rightly, but seconds late.
    pub slow: f64,
    /// Share of transactions' records that are late.
    pub slow_records: f64,
    /// Microseconds that each node's wall clock is ahead of the world's time, where it tells its
    /// time. At first all are behind the clocks of all proxies, which differ by hours.
    pub clocks_off_us: [Option<i64>; 3],
    /// True if the tables of transactions have modes.
    pub has_modes: bool,
    /// Makes two of three reads of a member's row fail; `member_reads` counts the reads of each.
    pub fails_member_reads: bool,
    pub member_reads: BTreeMap<Vec<u8>, u64>,
    /// True if a read of rows of locks asks one replica.
    pub reads_one: bool,
    fleet: Fleet,
    members: BTreeMap<Vec<u8>, Member>,
    replicas: [Replica; 3],
    late: Vec<Late>,
    /// True if keyspaces take part in transactions.
    pub has_transactions: bool,
    /// The tables of transactions, and those of their log.
    pub tables: Tables,
    /// Changes of ownership.
    pub changes: u64,
    /// Number of members declared dead.
    pub deaths: u64,
    /// Deletions of rows of locks.
    pub deletions: u64,
}

pub type Shared = Arc<Mutex<Ring>>;

impl Ring {
    pub fn new(seed: u64) -> Ring {
        let fleet = Fleet {
            epoch: 0i64.to_be_bytes().to_vec(),
            owners: 0i32.to_be_bytes().to_vec(),
            floor: 0i64.to_be_bytes().to_vec(),
            handed_over: (-1i64).to_be_bytes().to_vec(),
            format: 1i32.to_be_bytes().to_vec(),
        };
        Ring {
            random: Random::new(seed ^ 0x7269_6e67),
            trouble: 0.0,
            slow: 0.0,
            clocks_off_us: [Some(-24 * 3_600_000_000); 3],
            has_modes: true,
            fails_member_reads: false,
            member_reads: BTreeMap::new(),
            slow_records: 0.0,
            reads_one: false,
            fleet,
            members: BTreeMap::new(),
            replicas: Default::default(),
            late: Vec::new(),
            has_transactions: false,
            tables: Tables::default(),
            changes: 0,
            deaths: 0,
            deletions: 0,
        }
    }

    /// Executes every kind except a change of a lock's rows.
    pub fn execute(&mut self, now_ns: u64, kind: Kind, values: &Values) -> Reply {
        match kind {
            Kind::ReadFleet => Reply::Rows(kind, vec![self.fleet_row()]),
            Kind::ReadMembers => Reply::Rows(
                kind,
                self.members.iter().map(|(inc, row)| member_row(inc, row)).collect(),
            ),
            Kind::ReadMember => {
                let row = self.members.get(&values[1]).map(|row| member_row(&values[1], row));
                Reply::Rows(kind, row.into_iter().collect())
            }
            Kind::ReadLocks => Reply::Rows(kind, self.read_locks(now_ns, &values[0])),
            Kind::WriteLock | Kind::DeleteLock | Kind::DeleteShares => Reply::Void,
            Kind::ChangeView => Reply::Applied(self.change_view(values)),
            _ => Reply::Applied(self.change_member(kind, values)),
        }
    }

    /// Draws whether a renewal is lost: leases expire under members that go on, and a dead member
    /// hears of it late.
    pub fn loses_renewal(&mut self, inc: &[u8]) -> bool {
        let is_dead = self.members.get(inc).is_none_or(|row| row.state != 1);
        self.random.chance(if is_dead { 0.8 } else { 0.2 })
    }

    fn change_view(&mut self, values: &Values) -> bool {
        let applies = self.fleet.epoch == values[6];
        if applies {
            let [epoch, owners, floor, handed_over, format] =
                std::array::from_fn(|place| values[place].clone());
            self.fleet = Fleet { epoch, owners, floor, handed_over, format };
            self.changes += 1;
        }
        applies
    }

    fn change_member(&mut self, kind: Kind, values: &Values) -> bool {
        let name = |place: usize| values[place].clone();
        match kind {
            Kind::Join => {
                let (beat, leaving) = (0i64.to_be_bytes().to_vec(), vec![0]);
                let row = Member {
                    address: name(2),
                    state: 1,
                    beat,
                    limit: name(3),
                    format: name(4),
                    leaving,
                };
                let is_new = !self.members.contains_key(&values[1]);
                self.members.entry(name(1)).or_insert(row);
                is_new
            }
            Kind::Renew | Kind::RenewLeaving => {
                self.member(&values[3], 1, Some(&values[4])).is_some_and(|row| {
                    (row.beat, row.limit) = (name(0), name(1));
                    if kind == Kind::RenewLeaving {
                        row.leaving = vec![1];
                    }
                    true
                })
            }
            Kind::DeclareDead => {
                let is_dead = self.ends(2, &values[1], 1, Some(&values[2]));
                self.deaths += u64::from(is_dead);
                is_dead
            }
            Kind::Seal => self.ends(3, &values[1], 2, None),
            Kind::Leave => self.ends(3, &values[1], 1, Some(&values[2])),
            _ => {
                self.member(&values[1], 3, None).is_some()
                    && self.members.remove(&values[1]).is_some()
            }
        }
    }

    fn member(&mut self, inc: &[u8], state: u8, beat: Option<&Vec<u8>>) -> Option<&mut Member> {
        let row = self.members.get_mut(inc)?;
        (row.state == state && beat.is_none_or(|beat| *beat == row.beat)).then_some(row)
    }

    fn ends(&mut self, state: u8, inc: &[u8], from: u8, beat: Option<&Vec<u8>>) -> bool {
        self.member(inc, from, beat).is_some_and(|row| {
            row.state = state;
            if state == 2 {
                row.leaving = vec![0];
            }
            true
        })
    }

    fn fleet_row(&self) -> Values {
        let Fleet { epoch, owners, floor, handed_over, format } = &self.fleet;
        let int = |number: i32| number.to_be_bytes().to_vec();
        let times = [int(MEMORY_TTL_MAX_MS), int(LEASE_MS)];
        let [ttl, lease] = times;
        let (serial, dc) = (b"SERIAL".to_vec(), Vec::new());
        let (epoch, owners) = (epoch.clone(), owners.clone());
        vec![
            format.clone(),
            serial,
            dc,
            ttl,
            lease,
            epoch,
            owners,
            floor.clone(),
            handed_over.clone(),
        ]
    }

    /// Writes a row of a lock to this many replicas now; the others get it later, or never.
    pub fn write_lock(&mut self, now_ns: u64, values: &Values, timestamp_us: i64, reached: usize) {
        let [bucket, name, slot, rest @ ..] = &values[..] else {
            panic!("a lock has a bucket, a name and a slot")
        };
        let key = (bucket.clone(), name.clone(), slot.clone());
        let stored = Stored { timestamp_us, values: rest.to_vec() };
        self.spread(now_ns, reached, || What::Row(key.clone(), stored.clone()));
    }

    /// Deletes rows of a lock, of all or of its sharers, on this many replicas.
    pub fn delete_lock(
        &mut self,
        now_ns: u64,
        kind: Kind,
        values: &Values,
        up_to_us: i64,
        reached: usize,
    ) {
        let [bucket, name, ..] = &values[..] else { panic!("a lock has a bucket and a name") };
        let of_shares = kind == Kind::DeleteShares;
        let deletion = Deletion { bucket: bucket.clone(), name: name.clone(), of_shares, up_to_us };
        self.deletions += 1;
        self.spread(now_ns, reached, || What::Deletion(deletion.clone()));
    }

    fn spread(&mut self, now_ns: u64, reached: usize, what: impl Fn() -> What) {
        let first = self.random.index(3);
        for offset in 0..3 {
            let replica = (first + offset) % 3;
            if offset < reached {
                self.apply(replica, what());
            } else if self.random.below(3) > 0 {
                let within_ns = if self.random.below(4) == 0 { 12 * SECOND } else { SECOND / 3 };
                let at_ns = now_ns + self.random.below(within_ns);
                self.late.push(Late { at_ns, replica, what: what() });
            }
        }
    }

    fn apply(&mut self, replica: usize, what: What) {
        match what {
            What::Row(key, stored) => self.replicas[replica].put(key, stored),
            What::Deletion(deletion) => self.replicas[replica].delete(deletion),
        }
    }

    fn read_locks(&mut self, now_ns: u64, bucket: &[u8]) -> Vec<Values> {
        let (due, late) =
            std::mem::take(&mut self.late).into_iter().partition(|late| late.at_ns <= now_ns);
        self.late = late;
        for Late { replica, what, .. } in due {
            self.apply(replica, what);
        }
        let first = self.random.index(3);
        let asked =
            [first, if self.reads_one { first } else { (first + 1 + self.random.index(2)) % 3 }];
        let deletions: Vec<Deletion> =
            asked.iter().flat_map(|replica| self.replicas[*replica].deletions.clone()).collect();
        for (replica, deletion) in
            asked.iter().flat_map(|replica| deletions.iter().map(move |of| (*replica, of)))
        {
            self.replicas[replica].delete(deletion.clone());
        }
        let mut merged: BTreeMap<Key, Stored> = BTreeMap::new();
        for replica in asked {
            for (key, stored) in
                self.replicas[replica].rows.iter().filter(|(key, _)| key.0 == bucket)
            {
                let place = merged.entry(key.clone()).or_insert_with(|| stored.clone());
                if stored > place {
                    *place = stored.clone();
                }
            }
        }
        for (key, stored) in &merged {
            asked
                .iter()
                .for_each(|replica| self.replicas[*replica].put(key.clone(), stored.clone()));
        }
        let row = |((_, name, slot), Stored { timestamp_us, values }): (Key, Stored)| {
            let [owner, role, _, fence, ttl] =
                <[Vec<u8>; 5]>::try_from(values).expect("five values");
            vec![name, slot, owner, role, fence, ttl, timestamp_us.to_be_bytes().to_vec()]
        };
        merged.into_iter().map(row).collect()
    }
}

fn member_row(inc: &[u8], row: &Member) -> Values {
    let Member { address, state, beat, limit, format, leaving } = row;
    let (beat, limit) = (beat.clone(), limit.clone());
    vec![inc.to_vec(), address.clone(), vec![*state], beat, limit, format.clone(), leaving.clone()]
}
