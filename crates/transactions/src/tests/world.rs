//! Three proxies, three replicas and their clients: messages are late or lost, processes stand still, die and come back, wall clocks are
//! off, and one proxy after the other has the shard.

mod clients;
mod fleet;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use shunt_locks::{Lease, Now, Written};

use crate::recovery::{Found, Place, Recovery, RecoverySink};
use crate::types::{Asked, Decision, Limits, Mode, Outcome, Partition, Sink, Ticket, TransactionId};
use crate::weakened::Without;
use crate::{Position, Transactions};

const HOSTS: usize = 3;
const REPLICAS: usize = 3;
pub(super) const KEYS: usize = 4;
pub(super) const BALANCE: i64 = 20;
const LEASE_MS: u64 = 600;
const RENEW_MS: u64 = 200;
const TIMEOUT_MS: u64 = 300;
/// A late mutation comes at most so long after it was sent, as a hint does.
const LATE_MS: u64 = 5_000;

/// What is left out, of the member's steps or of those around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weak {
    pub(super) member: Option<Without>,
    /// Nobody looks into the log of a dead member.
    pub(super) no_recovery: bool,
    /// Dead members are not sealed: a later recovery takes what it finds in their logs.
    pub(super) no_seal: bool,
    /// Records that are found are not written again.
    pub(super) no_rewriting: bool,
    /// The shard's next owner begins below timestamps that were given.
    pub(super) no_floor: bool,
}

/// A value of a register: the transaction that wrote it, and a balance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Value {
    pub(super) timestamp_us: i64,
    pub(super) operation: usize,
    pub(super) balance: i64,
}

type Writes = Vec<(usize, Value)>;
/// Whose record, and where.
type RecordKey = (usize, Position);

#[derive(Clone, Debug)]
enum Mutation {
    Register(usize, Value),
    Record(RecordKey, Writes),
}

#[derive(Default)]
struct Replica {
    registers: [Value; KEYS],
    log: BTreeMap<RecordKey, Writes>,
}

/// What a client knows of its transaction.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) invoked_ms: u64,
    pub(super) returned_ms: Option<u64>,
    pub(super) outcome: Option<Outcome>,
    keys: Vec<usize>,
    is_transfer: bool,
    pub(super) reads: Writes,
    pub(super) writes: Writes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Live,
    Dead,
    Sealed,
}

/// A row of the fleet's table; changed by agreement, so all see the same.
struct Member {
    state: State,
    beat: u64,
    ts_limit_us: i64,
}

struct Host {
    member: usize,
    engine: Transactions,
    bodies: HashMap<TransactionId, (usize, Writes)>,
    wall_offset_us: i64,
    stopped_until_ms: u64,
    /// The beat of the owner as it was last seen, and since when.
    seen: (usize, u64, u64),
    recovering: Option<(usize, Recovery)>,
    valid_until_ns: u64,
}

/// Something that happens at a host; its member, so that what was meant for an earlier one is lost.
#[derive(Clone, Debug)]
enum At {
    Renew,
    Renewed { sent_ms: u64, applied: bool, ts_limit_us: i64 },
    Watch,
    Tick,
    Ask(usize),
    Read(TransactionId, Writes),
    Appended(TransactionId, Written),
    Applied(TransactionId, u16, Written),
    LogRead { dead: usize, bucket: u64, records: Option<Vec<(Position, Writes)>> },
    Rewritten { dead: usize, place: Place, written: Written },
    Redone { dead: usize, place: Place, write: u16, written: Written },
}

#[derive(Clone, Debug)]
enum Event {
    Deliver(usize, Mutation),
    Host(usize, usize, At),
    /// A replica is read for a transaction, or its log for a recovery; the rest is what the ones before have said.
    ReadAt {
        host: usize,
        member: usize,
        id: TransactionId,
        keys: Vec<usize>,
        left: Vec<usize>,
        found: Writes,
    },
    LogAt {
        host: usize,
        member: usize,
        dead: usize,
        bucket: u64,
        left: Vec<usize>,
        found: BTreeMap<Position, Writes>,
    },
    Client,
    Trouble,
}

pub(super) struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

/// What an engine has said and wants done.
#[derive(Default)]
struct Said {
    locked: Vec<(TransactionId, Ticket)>,
    replies: Vec<(Ticket, Outcome)>,
    appends: Vec<(TransactionId, Position, i64)>,
    applies: Vec<(TransactionId, u16, i64)>,
    forgotten: Vec<TransactionId>,
}

impl Sink for Said {
    fn locked(&mut self, transaction: TransactionId, ticket: Ticket) {
        self.locked.push((transaction, ticket));
    }
    fn reply(&mut self, ticket: Ticket, outcome: Outcome) {
        self.replies.push((ticket, outcome));
    }
    fn append(&mut self, transaction: TransactionId, position: Position, timestamp_us: i64) {
        self.appends.push((transaction, position, timestamp_us));
    }
    fn apply(&mut self, transaction: TransactionId, write: u16, timestamp_us: i64) {
        self.applies.push((transaction, write, timestamp_us));
    }
    fn forget(&mut self, transaction: TransactionId) {
        self.forgotten.push(transaction);
    }
}

#[derive(Default)]
struct Wanted {
    reads: Vec<u64>,
    appends: Vec<Place>,
    applies: Vec<(Place, u16)>,
}

impl RecoverySink for Wanted {
    fn read(&mut self, _core: u16, bucket: u64) {
        self.reads.push(bucket);
    }
    fn append(&mut self, place: Place) {
        self.appends.push(place);
    }
    fn apply(&mut self, place: Place, write: u16) {
        self.applies.push((place, write));
    }
}

pub(super) struct World {
    random: Random,
    weak: Weak,
    pub(super) now_ms: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: HashMap<u64, Event>,
    next_event: u64,
    replicas: Vec<Replica>,
    members: Vec<Member>,
    owner: Option<usize>,
    floor_us: i64,
    hosts: Vec<Host>,
    /// What recoveries have found, to be written again.
    redo: HashMap<RecordKey, Writes>,
    pub(super) operations: Vec<Operation>,
    is_quiet: bool,
    /// Every fourth world has recoveries that stand still.
    stalls_in_recovery: bool,
    pub(super) take_overs: usize,
    pub(super) fault: Option<String>,
}

impl World {
    pub(super) fn new(seed: u64, weak: Weak) -> Self {
        let mut world = Self {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            weak,
            now_ms: 10_000,
            queue: BinaryHeap::new(),
            events: HashMap::new(),
            next_event: 0,
            replicas: (0..REPLICAS).map(|_| Replica::default()).collect(),
            members: Vec::new(),
            owner: None,
            floor_us: 0,
            hosts: Vec::new(),
            redo: HashMap::new(),
            // The first stands for what was there before.
            operations: vec![Operation {
                invoked_ms: 0,
                returned_ms: Some(0),
                outcome: None,
                keys: Vec::new(),
                is_transfer: false,
                reads: Vec::new(),
                writes: Vec::new(),
            }],
            is_quiet: false,
            stalls_in_recovery: seed.is_multiple_of(4),
            take_overs: 0,
            fault: None,
        };
        for replica in &mut world.replicas {
            replica.registers = [Value { timestamp_us: 0, operation: 0, balance: BALANCE }; KEYS];
        }
        for host in 0..HOSTS {
            let member = world.join();
            let wall_offset_us = world.random.below(4_000_000) as i64 - 2_000_000;
            let fresh = world.host(member, wall_offset_us);
            world.hosts.push(fresh);
            world.start(host);
        }
        world.at(100, Event::Client);
        world.at(500, Event::Trouble);
        world
    }

    fn at(&mut self, after_ms: u64, event: Event) {
        self.queue.push(Reverse((self.now_ms + after_ms, self.next_event)));
        self.events.insert(self.next_event, event);
        self.next_event += 1;
    }

    fn later(&mut self, host: usize, after_ms: u64, what: At) {
        let member = self.hosts[host].member;
        self.at(after_ms, Event::Host(host, member, what));
    }

    fn now(&self, host: usize) -> Now {
        let wall_us = self.now_ms as i64 * 1_000 + self.hosts[host].wall_offset_us;
        Now { boot_ns: self.now_ms * 1_000_000, wall_us }
    }

    /// Runs for so long.
    pub(super) fn run(&mut self, for_ms: u64) {
        let until_ms = self.now_ms + for_ms;
        while let Some(&Reverse((at_ms, number))) = self.queue.peek()
            && at_ms <= until_ms
            && self.fault.is_none()
        {
            self.queue.pop();
            self.now_ms = self.now_ms.max(at_ms);
            if let Some(event) = self.events.remove(&number) {
                self.take(event);
            }
        }
        self.now_ms = until_ms;
    }

    /// No more trouble and no new transactions, until all is done and what was late has come.
    pub(super) fn come_to_rest(&mut self) {
        self.is_quiet = true;
        self.run(4 * LATE_MS);
        for host in &self.hosts {
            if host.engine.open() > 0 || host.engine.open_records() > 0 {
                let fault =
                    format!("{} transactions and {} records are left", host.engine.open(), host.engine.open_records());
                self.fault.get_or_insert(fault);
            }
        }
    }

    /// The values that all replicas together have.
    pub(super) fn registers(&self) -> [Value; KEYS] {
        let newest = |key: usize| self.replicas.iter().map(|replica| replica.registers[key]).max().unwrap_or_default();
        std::array::from_fn(newest)
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Deliver(replica, Mutation::Register(key, value)) => {
                let register = &mut self.replicas[replica].registers[key];
                *register = (*register).max(value);
            }
            Event::Deliver(replica, Mutation::Record(key, writes)) => {
                self.replicas[replica].log.insert(key, writes);
            }
            Event::Host(host, member, what) => {
                let stopped = self.hosts[host].stopped_until_ms;
                if self.hosts[host].member != member {
                    return;
                }
                if stopped > self.now_ms {
                    return self.at(stopped - self.now_ms, Event::Host(host, member, what));
                }
                self.at_host(host, what);
            }
            Event::ReadAt { host, member, id, keys, mut left, mut found } => {
                let Some(replica) = left.pop() else {
                    return self.at(0, Event::Host(host, member, At::Read(id, found)));
                };
                for (place, key) in keys.iter().enumerate() {
                    let value = self.replicas[replica].registers[*key];
                    match found.get_mut(place) {
                        Some((_, newest)) => *newest = (*newest).max(value),
                        None => found.push((*key, value)),
                    }
                }
                let after_ms = self.delay();
                self.at(after_ms, Event::ReadAt { host, member, id, keys, left, found });
            }
            Event::LogAt { host, member, dead, bucket, mut left, mut found } => {
                let Some(replica) = left.pop() else {
                    let records = Some(found.into_iter().collect());
                    return self.at(0, Event::Host(host, member, At::LogRead { dead, bucket, records }));
                };
                let log = self.replicas[replica].log.iter();
                let own = log.filter(|((of, position), _)| *of == dead && position.bucket() == bucket);
                found.extend(own.map(|((_, position), writes)| (*position, writes.clone())));
                let after_ms = self.delay();
                self.at(after_ms, Event::LogAt { host, member, dead, bucket, left, found });
            }
            Event::Client => self.client(),
            Event::Trouble => self.trouble(),
        }
    }

    fn delay(&mut self) -> u64 {
        1 + if self.random.one_in(20) { self.random.below(400) } else { self.random.below(20) }
    }

    /// A process stands still, or dies and comes back; a clock jumps.
    fn trouble(&mut self) {
        if self.is_quiet {
            return;
        }
        let owner = self.hosts.iter().position(|host| Some(host.member) == self.owner);
        let host = owner.filter(|_| !self.random.one_in(4)).unwrap_or(self.random.below(HOSTS as u64) as usize);
        match self.random.below(4) {
            0 => self.restart(host),
            1 => self.hosts[host].wall_offset_us = self.random.below(8_000_000) as i64 - 4_000_000,
            _ => self.hosts[host].stopped_until_ms = self.now_ms + self.random.below(2_500),
        }
        let after_ms = 200 + self.random.below(3_000);
        self.at(after_ms, Event::Trouble);
    }

    fn at_host(&mut self, host: usize, what: At) {
        let now = self.now(host);
        let mut said = Said::default();
        let engine = &mut self.hosts[host].engine;
        match what {
            At::Renew => return self.renew(host, now),
            At::Renewed { sent_ms, applied, ts_limit_us } => {
                if !applied {
                    return self.restart(host);
                }
                let valid_until_ns = (sent_ms + LEASE_MS * 99 / 100) * 1_000_000;
                engine.set_lease(now, Lease { valid_until_ns, ts_limit_us }, &mut said);
                self.hosts[host].valid_until_ns = valid_until_ns;
                self.later(host, RENEW_MS, At::Renew);
            }
            At::Watch => {
                self.watch(host);
                self.later(host, 50, At::Watch);
            }
            At::Tick => {
                engine.tick(now, &mut said);
                if self.hosts[host].recovering.is_some() {
                    self.recover(host, |recovery, wanted| recovery.tick(now, wanted));
                }
                self.later(host, 20, At::Tick);
            }
            At::Ask(operation) => self.ask(host, now, operation, &mut said),
            At::Read(id, found) => self.decide(host, now, id, found, &mut said),
            At::Appended(id, written) => engine.appended(now, id, written, &mut said),
            At::Applied(id, write, written) => engine.applied(now, id, write, Ok(written), &mut said),
            At::LogRead { dead, bucket, records } => self.log_read(host, now, dead, bucket, records),
            At::Rewritten { dead, place, written } => {
                if self.hosts[host].recovering.as_ref().is_some_and(|(of, _)| *of == dead) {
                    let is_valid = now.boot_ns < self.hosts[host].valid_until_ns;
                    self.recover(host, |recovery, wanted| recovery.appended(now, place, written, is_valid, wanted));
                }
            }
            At::Redone { dead, place, write, written } => {
                if self.hosts[host].recovering.as_ref().is_some_and(|(of, _)| *of == dead) {
                    self.recover(host, |recovery, wanted| recovery.applied(now, place, write, Ok(written), wanted));
                }
            }
        }
        self.carry_out(host, said);
    }

    /// Two of three, in some order.
    fn quorum(&mut self) -> Vec<usize> {
        let first = self.random.below(REPLICAS as u64) as usize;
        let second = (first + 1 + self.random.below(REPLICAS as u64 - 1) as usize) % REPLICAS;
        vec![first, second]
    }

    /// Sends a mutation to all replicas at QUORUM: when its coordinator answers, and what.
    fn write(&mut self, mutation: Mutation) -> (u64, Written) {
        if self.random.one_in(60) {
            return (1, Written::NotSent);
        }
        let mut acknowledged = Vec::new();
        for replica in 0..REPLICAS {
            let is_late = self.random.one_in(8);
            let arrives_ms = if is_late { self.random.below(LATE_MS) } else { self.delay() };
            self.at(arrives_ms, Event::Deliver(replica, mutation.clone()));
            acknowledged.push(arrives_ms + self.delay());
        }
        acknowledged.sort_unstable();
        match acknowledged[1] {
            after_ms if after_ms < TIMEOUT_MS && !self.random.one_in(40) => (after_ms, Written::Acknowledged),
            _ => (TIMEOUT_MS, Written::Unknown),
        }
    }
}
