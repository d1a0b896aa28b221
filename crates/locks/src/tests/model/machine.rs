//! The states of [`Locks`], each stored once under a number, and the effect of each input on each
//! state, computed once.
//!
//! Times are relative to the present, so that a state is the same whenever it occurs. Numbers of
//! entries and their generations are left out: the model identifies holds and requests by their
//! clients, and sends `Locks` no stale ones.

use std::collections::HashMap;

use super::state::Operation;
use super::store::{Rows, SLOTS, Version};
use crate::Locks;
use crate::slab::NIL;
use crate::state::{Awaits, BucketState, HoldState, Operation as Asked};
use crate::tests::Without;
use crate::types::{
    self, BUCKETS_PER_SHARD, Handle, Lease, Limits, LoadId, Mode, Namespace, Now, Outcome, Row,
    Sink, Ticket, Write, WriteId, Written, bucket_of,
};

/// Milliseconds of a tick: longer than the wait before a write is first repeated.
pub(super) const TICK_MS: u64 = 200;

/// Milliseconds that have passed after this many ticks, and not before.
pub(super) fn ticks(count: u8) -> u32 {
    u32::from(count) * TICK_MS as u32 - 1
}

/// Inputs of [`Locks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Word {
    Ask {
        client: u8,
        operation: Operation,
    },
    Cancel {
        client: u8,
    },
    /// Outcome for the row of this client's hold.
    Written {
        client: u8,
        written: Outcomes,
    },
    Loaded(Rows),
    LoadFailed,
    /// Handle the timers that are due.
    Timers,
    /// One tick passes.
    Pass,
    Lease {
        ticks: u8,
        limit: i32,
    },
    Gain {
        floor: i32,
        grace: u8,
    },
    Lose,
    /// Start anew without knowledge.
    Begin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Outcomes {
    Acknowledged,
    Unknown,
    NotSent,
}

/// An answer to this client.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Granted {
        shared: bool,
        fence: i32,
    },
    /// The client's own hold, with the ticks left.
    Own {
        shared: bool,
        fence: i32,
        left: u8,
    },
    /// The lock has another holder, or none.
    Refused,
    #[expect(dead_code, reason = "whoever reads a history sees it")]
    Other(String),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    pub(super) answers: Vec<(u8, Answer)>,
    /// Slots and rows.
    pub(super) writes: Vec<(u8, Version)>,
    pub(super) loads: bool,
}

/// A write whose outcome has not come.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub(super) client: u8,
    pub(super) slot: u8,
    pub(super) at: i32,
    /// An earlier attempt may have been executed.
    pub(super) repeated: bool,
}

/// Visible facts of a state.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) owned: bool,
    pub(super) loading: bool,
    pub(super) due: bool,
    pub(super) last_token: i32,
    pub(super) memory_free: bool,
    pub(super) no_memory_holds: bool,
    pub(super) in_flight: Vec<InFlight>,
}

struct Machine {
    locks: Locks,
    tick: u64,
}

/// Times in ticks, for requests and holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) ttl: u8,
    pub(super) longer: u8,
    pub(super) wait: u8,
}

pub(super) struct Machines {
    namespace: Namespace,
    without: Without,
    times: Times,
    /// The host's wall clock, which stands still: only its offset can matter.
    wall_us: i64,
    name: Vec<u8>,
    numbers: HashMap<Vec<u8>, u32>,
    all: Vec<Machine>,
    facts: Vec<Facts>,
    tried: HashMap<(u32, Word), (u32, u32)>,
    said: Vec<Said>,
}

impl Machines {
    pub(super) fn new(namespace: Namespace, without: Without, times: Times, wall_us: i64) -> Self {
        // A name in the first partition of the first shard: the others are not needed.
        let name = (0_u32..).map(|n| n.to_string().into_bytes()).find(|name| bucket_of(name) == 0);
        let mut machines = Self {
            namespace,
            without,
            times,
            wall_us,
            name: name.unwrap_or_default(),
            numbers: HashMap::new(),
            all: Vec::new(),
            facts: Vec::new(),
            tried: HashMap::new(),
            said: Vec::new(),
        };
        let locks = machines.begin();
        machines.number(Machine { locks, tick: 1 });
        machines
    }

    /// [`Locks`] before any input; number 0.
    fn begin(&self) -> Locks {
        let mut locks = Locks::new(Limits { load_ms: TICK_MS as u32, ..Limits::default() });
        locks.without = self.without;
        locks.shards.truncate(1);
        locks.buckets.truncate(BUCKETS_PER_SHARD);
        locks
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn facts(&self, machine: u32) -> &Facts {
        &self.facts[machine as usize]
    }

    /// Passes an input to a state; returns the state after it, and the outputs.
    pub(super) fn say(&mut self, machine: u32, word: Word) -> (u32, &Said) {
        if let Some((after, said)) = self.tried.get(&(machine, word)) {
            return (*after, &self.said[*said as usize]);
        }
        let before = &self.all[machine as usize];
        let (mut locks, mut tick, mut said) = (before.locks.clone(), before.tick, Said::default());
        match word {
            Word::Pass => tick += 1,
            Word::Begin => (locks, tick) = (self.begin(), 1),
            _ => self.tell(&mut locks, self.now(tick), word, &mut said),
        }
        let after = self.number(Machine { locks, tick });
        self.said.push(said);
        let number = self.said.len() - 1;
        self.tried.insert((machine, word), (after, number as u32));
        (after, &self.said[number])
    }

    fn now(&self, tick: u64) -> Now {
        Now { boot_ns: tick * TICK_MS * 1_000_000, wall_us: self.wall_us }
    }

    fn tell(&self, locks: &mut Locks, now: Now, word: Word, said: &mut Said) {
        let until_ns = |ticks: u8| now.boot_ns + u64::from(ticks) * TICK_MS * 1_000_000;
        match word {
            Word::Ask { client, operation } => self.ask(locks, now, client, operation, said),
            Word::Cancel { client } => {
                if let Some(handle) = self.handle(locks, client) {
                    locks.cancel(now, handle, said);
                }
            }
            Word::Written { client, written } => {
                let written = match written {
                    Outcomes::Acknowledged => Written::Acknowledged,
                    Outcomes::Unknown => Written::Unknown,
                    Outcomes::NotSent => Written::NotSent,
                };
                if let Some(id) = self.write(locks, client) {
                    locks.written(now, id, written, said);
                }
            }
            Word::Loaded(rows) => {
                let load = LoadId { bucket: 0, generation: locks.buckets[0].generation };
                let name = &self.name[..];
                let of_slot = |(slot, version): (usize, &Version)| {
                    (version.at != 0).then_some(Row {
                        name,
                        slot: if slot == 0 { b"" } else { owner(slot as u8 - 1) },
                        owner: version.owner.checked_sub(1).map_or(b"", owner),
                        role: b"",
                        token: version.token.into(),
                        ttl_ms: version.ttl_ms,
                        timestamp_us: version.at.into(),
                    })
                };
                locks.loaded(now, load, rows.iter().enumerate().filter_map(of_slot), true, said);
            }
            Word::LoadFailed => {
                let load = LoadId { bucket: 0, generation: locks.buckets[0].generation };
                locks.load_failed(load, said);
            }
            Word::Timers => while locks.tick(now, said) {},
            Word::Lease { ticks: 0, .. } => locks.set_lease(now, Lease::default(), said),
            Word::Lease { ticks, limit } => {
                let lease = Lease { valid_until_ns: until_ns(ticks), ts_limit_us: limit.into() };
                locks.set_lease(now, lease, said);
            }
            Word::Gain { floor, grace } => {
                let grace_ns = if grace == 0 { 0 } else { until_ns(grace) };
                locks.gain(now, 0, floor.into(), grace_ns, said);
            }
            Word::Lose => locks.lose(0, said),
            Word::Pass | Word::Begin => {}
        }
    }

    fn ask(&self, locks: &mut Locks, now: Now, client: u8, operation: Operation, said: &mut Said) {
        let (namespace, owner, ticket) = (self.namespace, owner(client), Ticket(client.into()));
        let asked = types::Asked { namespace, name: &self.name, role: b"", owner, ticket };
        let Times { ttl, longer, wait } = self.times;
        match operation {
            Operation::Acquire { shared, waits } => {
                let mode = if shared { Mode::Shared } else { Mode::Exclusive };
                locks.acquire(
                    now,
                    &asked,
                    mode,
                    (ticks(ttl), if waits { ticks(wait) } else { 0 }),
                    said,
                );
            }
            Operation::Renew { longer: false } => {
                _ = locks.renew(now, &asked, None, (ticks(ttl), None), said)
            }
            Operation::Renew { longer: true } => {
                _ = locks.renew(now, &asked, None, (ticks(longer), None), said)
            }
            Operation::Release => _ = locks.release(now, &asked, None, false, said),
        }
    }

    fn lock(&self, locks: &Locks) -> Option<u32> {
        locks.find(0, self.namespace, &self.name)
    }

    fn holds<'a>(&self, locks: &'a Locks) -> impl Iterator<Item = u32> + 'a {
        let first = self.lock(locks).map_or(NIL, |lock| locks.locks[lock].first_hold);
        chain(first, |hold| locks.next_hold(hold))
    }

    /// Unanswered requests, in the order of their lists.
    fn requests(&self, locks: &Locks) -> Vec<u32> {
        let requests = &locks.timed.requests;
        let next = |request: u32| requests[request].next;
        let first = self.lock(locks).map_or(NIL, |lock| locks.first_waiter(lock));
        let mut all: Vec<u32> = chain(first, next).collect();
        for hold in self.holds(locks) {
            let write = locks.write_of(hold);
            if write != NIL {
                all.extend(chain(locks.timed.writes[write].first_request, next));
            }
        }
        let deferred = locks.buckets[0].deferred.iter().map(|deferred| deferred.handle);
        let is_there = |handle: &Handle| requests[handle.index].generation == handle.generation;
        all.extend(deferred.filter(is_there).map(|handle| handle.index));
        all
    }

    fn handle(&self, locks: &Locks, client: u8) -> Option<Handle> {
        let is_it = |request: &u32| locks.timed.requests[*request].ticket == Ticket(client.into());
        self.requests(locks).into_iter().find(is_it).map(|request| locks.handle(request))
    }

    /// The write in flight of this client's hold.
    fn write(&self, locks: &Locks, client: u8) -> Option<WriteId> {
        let is_it =
            |hold: &u32| locks.owners.bytes(locks.timed.holds[*hold].owner) == owner(client);
        let index = self.holds(locks).find(is_it).map(|hold| locks.write_of(hold))?;
        let write =
            (index != NIL).then(|| &locks.timed.writes[index]).filter(|write| write.in_flight)?;
        Some(WriteId(u64::from(index) | u64::from(write.generation) << 32))
    }

    /// Number of a state, which may be new.
    fn number(&mut self, machine: Machine) -> u32 {
        let key = self.encode(&machine.locks, machine.tick);
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let locks = &machine.locks;
        let now = self.now(machine.tick);
        let in_flight = |hold: u32| {
            let write = locks.write_of(hold);
            let hold = &locks.timed.holds[hold];
            let write = (write != NIL)
                .then(|| &locks.timed.writes[write])
                .filter(|write| write.in_flight)?;
            let client = client(locks.owners.bytes(hold.owner));
            let slot = if hold.mode == Mode::Shared { client + 1 } else { 0 };
            Some(InFlight {
                client,
                slot,
                at: write.timestamp_us as i32,
                repeated: write.unknown > 0,
            })
        };
        let facts = Facts {
            owned: locks.shards[0].owned,
            loading: locks.buckets[0].state == BucketState::Loading,
            due: locks.next_due_ms().is_some_and(|due_ms| due_ms <= now.ms()),
            last_token: locks.last_token_us() as i32,
            memory_free: locks.is_memory_free(now, 0),
            no_memory_holds: locks.has_no_memory_holds(0),
            in_flight: self.holds(locks).filter_map(in_flight).collect(),
        };
        let number = self.all.len() as u32;
        self.facts.push(facts);
        self.all.push(machine);
        self.numbers.insert(key, number);
        number
    }

    fn encode(&self, locks: &Locks, tick: u64) -> Vec<u8> {
        let (now_ms, mut out) = (tick * TICK_MS, Vec::new());
        let left = |due_ms: u64| due_ms.saturating_sub(now_ms).div_ceil(TICK_MS) as u8;
        let number =
            |out: &mut Vec<u8>, number: i64| out.extend_from_slice(&(number as i32).to_le_bytes());
        let lease = left(locks.lease.valid_until_ns / 1_000_000);
        out.extend([lease, u8::from(locks.shards[0].owned)]);
        number(&mut out, if lease > 0 { locks.lease.ts_limit_us } else { 0 });
        number(&mut out, locks.shards[0].last_token);
        let bucket = &locks.buckets[0];
        out.extend([left(locks.shards[0].memory_grace_until_ns / 1_000_000), bucket.state as u8]);
        number(&mut out, if bucket.state == BucketState::Loading { bucket.found_us } else { 0 });
        out.push(self.lock(locks).map_or(2, |lock| u8::from(locks.locks[lock].stalled)));
        for index in self.holds(locks) {
            let hold = &locks.timed.holds[index];
            let state = match hold.state {
                HoldState::Held => 0,
                HoldState::Writing => 1,
                HoldState::Unconfirmed => 2,
            };
            out.extend([
                b'h',
                client(locks.owners.bytes(hold.owner)),
                hold.mode as u8,
                state,
                left(hold.due_ms),
            ]);
            let _ = [hold.token, locks.timestamp_us(index), i64::from(hold.ttl_ms)]
                .map(|of| number(&mut out, of));
            if locks.write_of(index) == NIL {
                continue;
            }
            let write = &locks.timed.writes[locks.write_of(index)];
            let original = (write.original != NIL)
                .then(|| locks.timed.requests[write.original].ticket.0 as u8);
            out.extend([
                b'w',
                u8::from(write.in_flight),
                u8::from(write.abandoned),
                original.unwrap_or(u8::MAX),
            ]);
            // No timer runs while the write is in flight, and delays stop growing after the fifth.
            out.extend([
                write.unknown.min(5) as u8,
                if write.in_flight { 0 } else { left(write.due_ms) },
            ]);
            let _ = [write.timestamp_us, i64::from(write.ttl_ms)].map(|of| number(&mut out, of));
        }
        for request in self.requests(locks) {
            let request = &locks.timed.requests[request];
            let due = matches!(request.awaits, Awaits::Turn(_) | Awaits::Load(_))
                .then(|| left(request.due_ms));
            let awaits = match request.awaits {
                Awaits::Turn(_) => 0,
                Awaits::Write(_) => 1,
                Awaits::Load(_) => 2,
                Awaits::Nothing => 3,
            };
            out.extend([b'r', request.ticket.0 as u8, awaits, due.unwrap_or(0)]);
            match request.operation {
                Asked::Acquire { mode, wait_ms, .. } => {
                    out.extend([mode as u8, u8::from(wait_ms > 0)])
                }
                Asked::Renew { ttl_ms, .. } => out.push(2 + (u64::from(ttl_ms) / TICK_MS) as u8),
                Asked::Release { .. } => out.push(u8::MAX),
                Asked::Look => out.push(u8::MAX - 1),
                // The model's clients never give back: whether a hold was found again is not part
                // of its states.
                Asked::GiveBack { .. } => out.push(u8::MAX - 2),
            }
        }
        out
    }
}

/// Iterates a list that is linked by numbers.
fn chain(first: u32, next: impl Fn(u32) -> u32) -> impl Iterator<Item = u32> {
    let there = |number: u32| (number != NIL).then_some(number);
    std::iter::successors(there(first), move |number| there(next(*number)))
}

fn owner(client: u8) -> &'static [u8] {
    const OWNERS: [&[u8]; SLOTS - 1] = [b"a", b"b", b"c"];
    OWNERS[usize::from(client)]
}

fn client(owner: &[u8]) -> u8 {
    owner[0] - b'a'
}

impl Sink for Said {
    fn reply(&mut self, ticket: Ticket, outcome: Outcome<'_>) {
        let asker = ticket.0 as u8;
        let answer = match outcome {
            Outcome::Granted { holder, .. } => {
                Answer::Granted { shared: holder.mode == Mode::Shared, fence: holder.fence as i32 }
            }
            Outcome::Refused { holder: Some(holder), .. } if holder.owner == owner(asker) => {
                let left = u64::from(holder.ttl_ms).div_ceil(TICK_MS) as u8;
                Answer::Own {
                    shared: holder.mode == Mode::Shared,
                    fence: holder.fence as i32,
                    left,
                }
            }
            Outcome::Refused { .. } => Answer::Refused,
            other => Answer::Other(format!("{other:?}")),
        };
        self.answers.push((asker, answer));
    }

    fn write(&mut self, write: Write<'_>) {
        let Row { slot, owner, token, ttl_ms, timestamp_us, .. } = write.row;
        let slot = if slot.is_empty() { 0 } else { client(slot) + 1 };
        let owner = if owner.is_empty() { 0 } else { client(owner) + 1 };
        self.writes
            .push((slot, Version { at: timestamp_us as i32, owner, token: token as i32, ttl_ms }));
    }

    fn load(&mut self, _: LoadId) {
        self.loads = true;
    }
}
