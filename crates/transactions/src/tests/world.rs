//! Three proxies, three replicas and their clients: messages are late or lost, processes stand
//! still, die and come back, wall clocks are off, and one proxy after the other has the shard,
//! which is taken from dead ones and given away by live ones.

mod clients;
mod events;
mod fleet;
mod openings;
mod replicas;
mod seals;

use clients::Said;
use events::{At, Change, Event, Heard};
use replicas::{Mutation, Replica};

use std::collections::{BTreeMap, HashMap};

use shunt_locks::{Lease, Now, Written};

use crate::engine::types::{
    Begin, Decision, Effects, Limits, Mode, Outcome, Partition, Ticket, TransactionId,
};
use crate::engine::weakened::Without;
use crate::{
    Claim, Conditional, Failed, FoundRecord, Generation, Opened, Opening, OpeningEffects, Page,
    Place, Position, Row, Transactions,
};

const HOSTS: usize = 3;
const REPLICAS: usize = 3;
pub(super) const KEYS: usize = 6;
pub(super) const BALANCE: i64 = 20;
const LEASE_MS: u64 = 600;
const RENEW_MS: u64 = 200;
const TIMEOUT_MS: u64 = 300;
/// Records of one page of the log.
const PAGE: usize = 2;
/// A late mutation comes at most so long after it was sent, as a hint does.
const LATE_MS: u64 = 5_000;

/// Steps of the crate, or of the code around it, that are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weak {
    pub(super) member: Option<Without>,
    pub(super) around: Option<Around>,
}

/// A step that is left out around the crate, or of what it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Around {
    /// The logs of former owners are not read.
    Recovery,
    /// Generations are not sealed: a later recovery takes what it finds there.
    Seal,
    /// The shard is served as soon as all is recovered, whatever becomes of the seal.
    SealBeforeService,
    /// The seal does not ask if its claim still stands.
    ClaimOfSeal,
    /// The claim does not ask if the row is as it was.
    RowOfClaim,
    /// The claim does not ask what is sealed.
    SealedOfClaim,
    /// The row is believed, whether or not the shard is held.
    LeaseAtRow,
    /// Writes of found records are made, whether or not the shard is held.
    LeaseInRecovery,
    /// Records that are found are not written again.
    Rewriting,
    /// Low marks have the clock's timestamps.
    TimestampOfLow,
    /// The shard's next owner begins below timestamps that were given.
    Floor,
}

/// A value of a register: the transaction that wrote it, and a balance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Value {
    pub(super) timestamp_us: i64,
    pub(super) operation: usize,
    pub(super) balance: i64,
}

type Writes = Vec<(usize, Value)>;
/// A client's knowledge of its transaction.
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

/// A row of the fleet's table; changed by agreement, so all see the same.
struct Member {
    is_live: bool,
    beat: u64,
    ts_limit_us: i64,
}

/// The owner of the shard.
#[derive(Clone, Copy, Debug, Default)]
struct View {
    owner: Option<usize>,
    epoch: u64,
}

struct Host {
    /// Counts the starts of processes; what was meant for an earlier one is lost.
    process: u64,
    member: usize,
    engine: Transactions,
    bodies: HashMap<TransactionId, (usize, Writes)>,
    places: HashMap<TransactionId, Place>,
    wall_offset_us: i64,
    stopped_until_ms: u64,
    /// The lease cannot be renewed until then; it is otherwise well.
    cut_until_ms: u64,
    /// The beat of the owner as it was last seen, and since when.
    seen: (usize, u64, u64),
    /// Since which epoch it has the shard, as far as it knows, and since which it is about to.
    gained: Option<u64>,
    gaining: Option<u64>,
    /// The member is about to give the shard away, until then.
    closing_until_ms: Option<u64>,
    opening: Option<Opening>,
    /// Bodies of records that the opening has found.
    redo: HashMap<Place, Writes>,
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

/// Faults that are more frequent than elsewhere: each in every third world, and most in every
/// fourth.
#[derive(Clone, Copy, Debug, Default)]
struct Temper {
    /// Openings stand still.
    stalls: bool,
    /// A member that is taken for dead, or has lost the shard, learns so late.
    is_deaf: bool,
    /// Records are late, and low marks.
    late_records: bool,
    late_lows: bool,
    /// Writes of transactions are late.
    late_writes: bool,
}

/// Events that have happened, so that a test sees that they do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) take_overs: usize,
    pub(super) given: usize,
    pub(super) rejoined: usize,
    pub(super) claims: usize,
    pub(super) claims_refused: usize,
    pub(super) seals_refused: usize,
    pub(super) unknown: usize,
    pub(super) opened: usize,
    pub(super) found: usize,
    pub(super) deleted: usize,
    pub(super) carried_forward: usize,
}

pub(super) struct World {
    random: Random,
    weak: Weak,
    pub(super) now_ms: u64,
    /// Events by millisecond, in order.
    events: Vec<Vec<Event>>,
    replicas: Vec<Replica>,
    members: Vec<Member>,
    view: View,
    floor_us: i64,
    /// The shard's, in `shunt_meta.txn_shard`.
    row: Option<Row>,
    /// Commits in generations that are not sealed.
    begun: BTreeMap<Place, Writes>,
    /// Up to here generations were sealed, or followed by one that was served.
    closed: Generation,
    hosts: Vec<Host>,
    processes: u64,
    claims: u128,
    pub(super) operations: Vec<Operation>,
    is_quiet: bool,
    temper: Temper,
    pub(super) seen: Seen,
    pub(super) fault: Option<String>,
}

impl World {
    pub(super) fn new(seed: u64, weak: Weak) -> Self {
        let mut world = Self {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            weak,
            now_ms: 10_000,
            events: Vec::new(),
            replicas: (0..REPLICAS).map(|_| Replica::default()).collect(),
            members: Vec::new(),
            view: View::default(),
            floor_us: 0,
            row: None,
            begun: BTreeMap::new(),
            closed: Generation(0),
            hosts: Vec::new(),
            processes: 0,
            claims: 0,
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
            temper: Temper::default(),
            seen: Seen::default(),
            fault: None,
        };
        // Former owners do harm where several things go wrong together.
        let is_bad = seed.is_multiple_of(4);
        let mut or_not = |is: bool| is || world.random.one_in(3);
        world.temper = Temper {
            stalls: or_not(is_bad),
            is_deaf: or_not(is_bad),
            late_records: or_not(is_bad),
            late_lows: or_not(false),
            late_writes: or_not(false),
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
        let at_ms = (self.now_ms + after_ms) as usize;
        if at_ms >= self.events.len() {
            self.events.resize_with(at_ms + 1, Vec::new);
        }
        self.events[at_ms].push(event);
    }

    fn later(&mut self, host: usize, after_ms: u64, what: At) {
        let process = self.hosts[host].process;
        self.at(after_ms, Event::Host(host, process, what));
    }

    fn now(&self, host: usize) -> Now {
        let wall_us = self.now_ms as i64 * 1_000 + self.hosts[host].wall_offset_us;
        Now { boot_ns: self.now_ms * 1_000_000, wall_us }
    }

    /// Runs for so long.
    pub(super) fn run(&mut self, for_ms: u64) {
        let until_ms = self.now_ms + for_ms;
        while self.now_ms < until_ms && self.fault.is_none() {
            // What happens may let more happen in the same millisecond.
            while let Some(happening) =
                self.events.get_mut(self.now_ms as usize).filter(|events| !events.is_empty())
            {
                std::mem::take(happening).into_iter().for_each(|event| self.take(event));
            }
            self.now_ms += 1;
        }
    }

    /// No more trouble and no new transactions, until all is done and what was late has come.
    pub(super) fn come_to_rest(&mut self) {
        self.is_quiet = true;
        self.run(3 * LATE_MS);
        for host in &self.hosts {
            if host.engine.open() > 0 || host.engine.open_records() > 0 {
                let fault = format!(
                    "{} transactions and {} records are left",
                    host.engine.open(),
                    host.engine.open_records()
                );
                self.fault.get_or_insert(fault);
            }
        }
        if !self
            .hosts
            .iter()
            .any(|host| Some(host.member) == self.view.owner && host.engine.shards[0].is_open)
        {
            self.fault.get_or_insert("nobody has opened the shard".to_owned());
        }
    }

    /// The values that all replicas together have.
    pub(super) fn registers(&self) -> [Value; KEYS] {
        let newest = |key: usize| {
            self.replicas.iter().map(|replica| replica.registers[key]).max().unwrap_or_default()
        };
        std::array::from_fn(newest)
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Deliver(replica, mutation) => self.replicas[replica].take(mutation),
            Event::Host(host, process, what) => {
                let stopped = self.hosts[host].stopped_until_ms;
                if self.hosts[host].process != process {
                    return;
                }
                if stopped > self.now_ms {
                    return self.at(stopped - self.now_ms, Event::Host(host, process, what));
                }
                self.at_host(host, what);
            }
            Event::ReadAt { host, process, id, keys, mut left, mut found } => {
                let Some(replica) = left.pop() else {
                    return self.at(0, Event::Host(host, process, At::Read(id, found)));
                };
                for (place, key) in keys.iter().enumerate() {
                    let value = self.replicas[replica].registers[*key];
                    match found.get_mut(place) {
                        Some((_, newest)) => *newest = (*newest).max(value),
                        None => found.push((*key, value)),
                    }
                }
                let after_ms = self.delay();
                self.at(after_ms, Event::ReadAt { host, process, id, keys, left, found });
            }
            Event::PageAt { host, process, claim, from, mut left, mut found } => {
                let Some(replica) = left.pop() else {
                    let heard = Heard::Page(from, found.visible());
                    return self.at(0, Event::Host(host, process, At::Opening(claim, heard)));
                };
                self.replicas[replica].log.read(from, &mut found);
                let after_ms = self.delay();
                self.at(after_ms, Event::PageAt { host, process, claim, from, left, found });
            }
            Event::LowAt { host, process, claim, generation, mut left, mut found } => {
                let Some(replica) = left.pop() else {
                    let heard =
                        Heard::Low(generation, Ok(found.map_or(Position(0), |(_, low)| low)));
                    return self.at(0, Event::Host(host, process, At::Opening(claim, heard)));
                };
                found = found.max(self.replicas[replica].low(generation));
                let after_ms = self.delay();
                self.at(after_ms, Event::LowAt { host, process, claim, generation, left, found });
            }
            Event::RowAt(host, process, claim) => {
                let (after_ms, heard) = (self.delay(), Heard::Row(Ok(self.row)));
                self.at(after_ms, Event::Host(host, process, At::Opening(claim, heard)));
            }
            Event::ChangeAt(host, process, claim, change, answer_ms) => {
                let outcome = self.change_row(claim, change);
                if let Some(after_ms) = answer_ms {
                    let heard = Heard::Changed(change, outcome);
                    self.at(after_ms, Event::Host(host, process, At::Opening(claim, heard)));
                }
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
        let owner = self.hosts.iter().position(|host| Some(host.member) == self.view.owner);
        let host = owner
            .filter(|_| !self.random.one_in(4))
            .unwrap_or(self.random.below(HOSTS as u64) as usize);
        match self.random.below(6) {
            0 if self.random.one_in(2) => self.restart(host),
            0 => self.rejoin(host),
            1 => self.hosts[host].wall_offset_us = self.random.below(8_000_000) as i64 - 4_000_000,
            2 => self.close(host),
            3 => self.hosts[host].cut_until_ms = self.now_ms + self.random.below(3_000),
            _ => self.hosts[host].stopped_until_ms = self.now_ms + self.random.below(4_000),
        }
        let after_ms = 300 + self.random.below(4_000);
        self.at(after_ms, Event::Trouble);
    }

    fn at_host(&mut self, host: usize, what: At) {
        let now = self.now(host);
        let mut said = Said::default();
        let engine = &mut self.hosts[host].engine;
        match what {
            At::Renew { member } => return self.renew(host, member, now),
            At::Renewed { member, sent_ms, applied, ts_limit_us } => {
                if member != self.hosts[host].member {
                    return;
                }
                if !applied {
                    return if self.random.one_in(2) {
                        self.restart(host)
                    } else {
                        self.rejoin(host)
                    };
                }
                let valid_until_ns = (sent_ms + LEASE_MS * 99 / 100) * 1_000_000;
                let lease = Lease { valid_until_ns, ts_limit_us };
                self.hosts[host].engine.set_lease(now, lease, &mut said);
                self.later(host, RENEW_MS, At::Renew { member });
            }
            At::Watch => {
                self.watch(host);
                self.later(host, 50, At::Watch);
            }
            At::Gain { member, epoch, floor_us } => self.gain(host, member, epoch, floor_us),
            At::Given { epoch } => {
                if self.hosts[host].gained == Some(epoch) {
                    self.lose(host);
                }
            }
            At::Tick => {
                engine.tick(now, &mut said);
                if self.random.one_in(3) {
                    self.hosts[host].engine.tell_lows(&mut said);
                }
                self.open(host, |opening, wanted| opening.tick(now, wanted));
                if self.random.one_in(50) {
                    self.hosts[host].engine.hurry(now, &mut said);
                    self.open(host, |opening, wanted| opening.hurry(now, wanted));
                }
                self.later(host, 40, At::Tick);
            }
            At::Ask(operation) => self.ask(host, now, operation, &mut said),
            At::Read(id, found) => self.decide(host, now, id, found, &mut said),
            At::Appended(id, written) => engine.appended(now, id, written, &mut said),
            At::Applied(id, write, written) => {
                engine.applied(now, id, write, Ok(written), &mut said)
            }
            At::LowWritten(generation, low, written) => {
                engine.low_written(0, generation, low, written, &mut said)
            }
            At::Opening(claim, heard) => self.hear(host, now, claim, heard),
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
            let is_late = self.random.below(12) < self.late_of_12(replica, &mutation);
            if is_late && self.random.one_in(2) {
                acknowledged.push(TIMEOUT_MS);
                continue;
            }
            let arrives_ms = if is_late { self.random.below(LATE_MS) } else { self.delay() };
            self.at(arrives_ms, Event::Deliver(replica, mutation.clone()));
            acknowledged.push(arrives_ms + self.delay());
        }
        acknowledged.sort_unstable();
        match acknowledged[1] {
            after_ms if after_ms < TIMEOUT_MS && !self.random.one_in(40) => {
                (after_ms, Written::Acknowledged)
            }
            _ => (TIMEOUT_MS, Written::Unknown),
        }
    }

    /// Number of 12 mutations of this kind come late to this replica now, or not at all.
    fn late_of_12(&self, replica: usize, mutation: &Mutation) -> u64 {
        // For three seconds of five, some come to one replica only.
        let is_phase = self.now_ms % 5_000 < 3_000;
        let of_phase = if self.now_ms / 5_000 % REPLICAS as u64 == replica as u64 { 1 } else { 11 };
        match mutation {
            _ if self.is_quiet => 1,
            Mutation::Record(..) if self.temper.late_records && is_phase => of_phase,
            Mutation::Register(0, _) if self.temper.late_writes && is_phase => of_phase,
            Mutation::Register(..) if self.temper.late_writes => 3,
            Mutation::Low(..) if self.temper.late_lows => 10,
            _ => 1,
        }
    }
}
