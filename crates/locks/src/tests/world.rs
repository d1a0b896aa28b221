//! Proxies that take a shard over from each other, their store, and clients that believe their
//! answers.

mod sweep;

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Without;
use super::store::Store;
use crate::Locks;
use crate::types::{
    Asked, Handle, Lease, Limits, LoadId, Mode, Namespace, Now, Outcome, Sink, Ticket, Write,
    WriteId, Written,
};

/// Random numbers from a seed.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

/// Shorter than a TTL, so that holds outlive their proxies.
const LEASE_MS: u64 = 2000;
const TTL_MAX_MS: u64 = 4000;
const CLIENTS: u64 = 5;

/// A request as its client knows it.
#[derive(Clone, Debug)]
struct Sent {
    client: u64,
    lock: (Namespace, usize),
    operation: Asks,
    at_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    Acquire(Mode, u32),
    Renew(u32),
    Release,
    Look,
}

/// A client's belief that it holds a lock.
#[derive(Clone, Copy, Debug)]
struct Belief {
    mode: Mode,
    fence: i64,
    until_ms: u64,
}

/// Holder in a reply: owner, mode, fence, time left.
type Told = (Vec<u8>, Mode, i64, u32);
/// A write: its name, partition, texts, token, TTL and timestamp.
type Wanted = (WriteId, u16, Vec<Vec<u8>>, i64, u32, i64);

/// A reading for obsolete rows: arrival time, partition, and the latest timestamp of each name.
type Swept = (u64, LoadId, Vec<(Vec<u8>, i64)>);

/// Outputs of a proxy, handled after each of its turns.
#[derive(Default)]
pub(super) struct Said {
    replies: Vec<(Ticket, String, Option<Told>)>,
    writes: Vec<Wanted>,
    loads: Vec<LoadId>,
}

impl Sink for Said {
    fn reply(&mut self, ticket: Ticket, outcome: Outcome<'_>) {
        let (kind, holder) = match outcome {
            Outcome::Granted { holder, .. } => ("granted", Some(holder)),
            Outcome::Refused { holder, .. } => ("refused", holder),
            Outcome::Seen { holder, .. } => ("seen", holder),
            Outcome::Released { .. } => ("released", None),
            Outcome::InDoubt => ("in doubt", None),
            Outcome::Unauthorized => ("unauthorized", None),
            _ => ("not executed", None),
        };
        let holder =
            holder.map(|holder| (holder.owner.to_vec(), holder.mode, holder.fence, holder.ttl_ms));
        self.replies.push((ticket, kind.to_owned(), holder));
    }

    fn write(&mut self, write: Write<'_>) {
        let row = write.row;
        let texts = [row.name, row.slot, row.owner, row.role].map(<[u8]>::to_vec).to_vec();
        self.writes.push((write.id, write.bucket, texts, row.token, row.ttl_ms, row.timestamp_us));
    }

    fn load(&mut self, load: LoadId) {
        self.loads.push(load);
    }
}

struct Proxy {
    locks: Locks,
    lease: Lease,
    /// Outcomes on their way to it.
    outcomes: Vec<(u64, WriteId, Written)>,
    loads: Vec<(u64, LoadId)>,
    /// Readings for obsolete rows: the latest timestamp of each name.
    swept: Vec<Swept>,
    open: Vec<(Handle, Ticket)>,
}

pub(super) struct World {
    random: Random,
    now_ms: u64,
    /// Offsets of the hosts' wall clocks.
    wall_offset_us: [i64; 2],
    names: Vec<Vec<u8>>,
    proxies: [Proxy; 2],
    /// The proxy that has all shards in the fleet's view; the other may not know it yet.
    owner: usize,
    ts_floor: i64,
    told_to_lose: bool,
    store: Store,
    sent: HashMap<u64, Sent>,
    next_ticket: u64,
    beliefs: BTreeMap<(u64, usize, bool), Belief>,
    /// Highest fences of an exclusive holder, and of any, for each lock.
    fences: HashMap<(bool, usize), (i64, i64)>,
    /// Fences that holders were told.
    heard: HashSet<((u64, usize, bool), i64)>,
    quiet: bool,
    pub(super) grants: u64,
    pub(super) take_overs: u64,
    pub(super) deletions: u64,
    /// The violated invariant.
    pub(super) violation: Option<String>,
}

fn owner_text(client: u64) -> Vec<u8> {
    if client == 0 {
        b"one-that-has-a-rather-long-name-as-uuids-are".to_vec()
    } else {
        format!("c{client}").into_bytes()
    }
}

impl World {
    pub(super) fn new(seed: u64, without: Without) -> Self {
        let proxy = || {
            let mut locks = Locks::new(Limits::default());
            locks.without = without;
            Proxy {
                locks,
                lease: Lease::default(),
                outcomes: Vec::new(),
                loads: Vec::new(),
                swept: Vec::new(),
                open: Vec::new(),
            }
        };
        let mut world = Self {
            random: Random::new(seed),
            now_ms: 1_000,
            wall_offset_us: [1_700_000_000_000_000; 2],
            names: vec![b"a".to_vec(), b"a lock whose name is longer than fifteen bytes".to_vec()],
            proxies: [proxy(), proxy()],
            owner: 0,
            ts_floor: 0,
            told_to_lose: true,
            store: Store::default(),
            sent: HashMap::new(),
            next_ticket: 1,
            beliefs: BTreeMap::new(),
            fences: HashMap::new(),
            heard: HashSet::new(),
            quiet: false,
            grants: 0,
            take_overs: 0,
            deletions: 0,
            violation: None,
        };
        world.renew_lease();
        world.gain(0);
        world
    }

    fn now(&self, proxy: usize) -> Now {
        Now {
            boot_ns: self.now_ms * 1_000_000,
            wall_us: self.wall_offset_us[proxy] + self.now_ms as i64 * 1000,
        }
    }

    fn renew_lease(&mut self) {
        let now = self.now(self.owner);
        let proxy = &mut self.proxies[self.owner];
        let last = proxy.locks.last_token_us().max(self.ts_floor);
        let ts_limit_us =
            now.wall_us.max(last).max(proxy.lease.ts_limit_us) + 2 * LEASE_MS as i64 * 1000;
        proxy.lease = Lease { valid_until_ns: (self.now_ms + LEASE_MS) * 1_000_000, ts_limit_us };
        let mut said = Said::default();
        proxy.locks.set_lease(now, proxy.lease, &mut said);
        self.take_up(self.owner, said);
    }

    fn gain(&mut self, grace_ms: u64) {
        let (now, mut said) = (self.now(self.owner), Said::default());
        for shard in 0..crate::SHARDS as u8 {
            let grace_ns = (self.now_ms + grace_ms) * 1_000_000;
            self.proxies[self.owner].locks.gain(now, shard, self.ts_floor, grace_ns, &mut said);
        }
        self.take_up(self.owner, said);
    }

    /// The other proxy takes over when the owner's lease has run out, and the owner learns of it
    /// some time later.
    fn take_over(&mut self) {
        self.take_overs += 1;
        let lease = self.proxies[self.owner].lease;
        self.lose_other();
        self.now_ms = self.now_ms.max(lease.valid_until_ns / 1_000_000);
        self.ts_floor = self.ts_floor.max(lease.ts_limit_us);
        self.owner = 1 - self.owner;
        self.told_to_lose = false;
        self.renew_lease();
        self.gain(TTL_MAX_MS);
    }

    fn lose_other(&mut self) {
        if !std::mem::replace(&mut self.told_to_lose, true) {
            let mut said = Said::default();
            for shard in 0..crate::SHARDS as u8 {
                self.proxies[1 - self.owner].locks.lose(shard, &mut said);
            }
            self.take_up(1 - self.owner, said);
        }
    }

    pub(super) fn step(&mut self) {
        self.now_ms += self.random.below(60);
        self.store.deliver(self.now_ms);
        match self.random.below(400) {
            0 => self.wall_offset_us[self.random.below(2) as usize] += 3_600_000_000,
            1 => self.wall_offset_us[self.random.below(2) as usize] -= 3_600_000_000,
            2 | 3 if !self.quiet => self.take_over(),
            4..=8 => self.lose_other(),
            9..=60 => self.renew_lease(),
            61..=80 => self.sweep(),
            _ if !self.quiet => self.client_acts(),
            _ => {}
        }
        for proxy in 0..2 {
            self.outcomes_arrive(proxy);
            let (now, mut said) = (self.now(proxy), Said::default());
            self.proxies[proxy].locks.tick(now, &mut said);
            self.take_up(proxy, said);
        }
    }

    /// Runs without further requests and with a working store; in the end nothing is held.
    pub(super) fn come_to_rest(&mut self) {
        self.quiet = true;
        for _ in 0..2000 {
            self.step();
            self.renew_lease();
        }
        self.lose_other();
        for _ in 0..200 {
            self.step();
        }
        let locks = &self.proxies[self.owner].locks;
        if !locks.is_empty() || locks.requests() > 0 || !self.sent.is_empty() {
            self.violate(format!(
                "{} locks, {} requests, {} unanswered at rest",
                locks.len(),
                locks.requests(),
                self.sent.len()
            ));
        }
    }

    fn client_acts(&mut self) {
        let (client, name) =
            (self.random.below(CLIENTS), self.random.below(self.names.len() as u64) as usize);
        let namespace = if self.random.one_in(2) { Namespace::Durable } else { Namespace::Memory };
        let lock = (namespace, name);
        if self.sent.values().any(|sent| sent.client == client && sent.lock == lock) {
            if self.random.one_in(10) {
                self.disconnect(client, lock);
            }
            return;
        }
        let key = (client, name, namespace == Namespace::Durable);
        let ttl_ms = 1 + self.random.below(TTL_MAX_MS) as u32;
        let wait_ms = if self.random.one_in(2) { self.random.below(1500) as u32 } else { 0 };
        let mode = if self.random.one_in(3) { Mode::Shared } else { Mode::Exclusive };
        let believes = self.beliefs.get(&key).is_some_and(|belief| belief.until_ms > self.now_ms);
        let operation = match self.random.below(6) {
            0 | 1 if believes => Asks::Renew(ttl_ms),
            2 | 3 if believes => Asks::Release,
            0 => Asks::Look,
            _ => Asks::Acquire(mode, ttl_ms + wait_ms),
        };
        if operation == Asks::Release {
            self.beliefs.remove(&key);
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.sent.insert(ticket.0, Sent { client, lock, operation, at_ms: self.now_ms });
        // Some requests go to the proxy that no longer is the owner, or not yet.
        let proxy = if self.random.one_in(8) { 1 - self.owner } else { self.owner };
        let (now, mut said) = (self.now(proxy), Said::default());
        let (owner, name) = (owner_text(client), self.names[name].clone());
        let asked = Asked { namespace, name: &name, role: b"role", owner: &owner, ticket };
        let locks = &mut self.proxies[proxy].locks;
        let handle = match operation {
            Asks::Acquire(mode, ttl_ms) => {
                locks.acquire(now, &asked, mode, (ttl_ms, wait_ms), &mut said)
            }
            Asks::Renew(ttl_ms) => locks.renew(now, &asked, None, (ttl_ms, None), &mut said),
            Asks::Release => locks.release(now, &asked, None, false, &mut said),
            Asks::Look => locks.look(now, &asked, &mut said),
        };
        if let Some(handle) = handle {
            self.proxies[proxy].open.push((handle, ticket));
        }
        self.take_up(proxy, said);
    }

    /// A client goes away while it waits; it comes back later with a new connection.
    fn disconnect(&mut self, client: u64, lock: (Namespace, usize)) {
        let gone: Vec<u64> = self
            .sent
            .iter()
            .filter(|(_, sent)| sent.client == client && sent.lock == lock)
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in gone {
            for proxy in 0..2 {
                let open = &self.proxies[proxy].open;
                let Some((handle, _)) = open.iter().find(|(_, of)| of.0 == ticket).copied() else {
                    continue;
                };
                self.sent.remove(&ticket);
                let (now, mut said) = (self.now(proxy), Said::default());
                self.proxies[proxy].locks.cancel(now, handle, &mut said);
                self.take_up(proxy, said);
            }
        }
    }

    fn outcomes_arrive(&mut self, proxy: usize) {
        self.delete_unneeded(proxy);
        let (now, now_ms) = (self.now(proxy), self.now_ms);
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.proxies[proxy].outcomes)
            .into_iter()
            .partition(|(at_ms, ..)| *at_ms <= now_ms);
        self.proxies[proxy].outcomes = later;
        for (_, id, written) in due {
            let mut said = Said::default();
            self.proxies[proxy].locks.written(now, id, written, &mut said);
            self.take_up(proxy, said);
        }
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.proxies[proxy].loads)
            .into_iter()
            .partition(|(at_ms, _)| *at_ms <= now_ms);
        self.proxies[proxy].loads = later;
        for (_, load) in due {
            let mut said = Said::default();
            let locks = &mut self.proxies[proxy].locks;
            if !self.quiet && self.random.one_in(6) {
                locks.load_failed(load, &mut said);
            } else {
                let rows = self.store.read(load.bucket, &mut self.random);
                let (first, rest) = rows.split_at(rows.len() / 2);
                locks.loaded(
                    now,
                    load,
                    first.iter().map(|(key, stored)| stored.row(key)),
                    false,
                    &mut said,
                );
                locks.loaded(
                    now,
                    load,
                    rest.iter().map(|(key, stored)| stored.row(key)),
                    true,
                    &mut said,
                );
            }
            self.take_up(proxy, said);
        }
    }

    /// Carries out a proxy's outputs, and gives its answers to clients.
    fn take_up(&mut self, proxy: usize, said: Said) {
        for (id, bucket, texts, token, ttl_ms, timestamp_us) in said.writes {
            let [name, slot, owner, role] = &texts[..] else { unreachable!() };
            let row = crate::Row { name, slot, owner, role, token, ttl_ms, timestamp_us };
            let write = Write { id, bucket, row, role: b"", is_release: false };
            let (written, reached) = match if self.quiet { 9 } else { self.random.below(12) } {
                0 => (Written::NotSent, 0),
                1 | 2 => (Written::Unknown, self.random.below(4) as usize),
                _ => (Written::Acknowledged, 2 + self.random.below(2) as usize),
            };
            let slow = self.random.one_in(20);
            let within_ms = self.random.below(if slow { 9_000 } else { 40 });
            if reached > 0 || written == Written::Unknown {
                self.store.write((self.now_ms, within_ms), &write, reached, &mut self.random);
            }
            if id != WriteId::UNWATCHED {
                self.proxies[proxy].outcomes.push((self.now_ms + within_ms, id, written));
            }
        }
        for load in said.loads {
            let at_ms = self.now_ms + self.random.below(300);
            self.proxies[proxy].loads.push((at_ms, load));
        }
        for (ticket, kind, holder) in said.replies {
            self.told(ticket, &kind, holder);
        }
    }

    fn told(&mut self, ticket: Ticket, kind: &str, holder: Option<Told>) {
        let Some(sent) = self.sent.remove(&ticket.0) else {
            self.violate(format!(
                "a second answer to {ticket:?}, or one to somebody who has gone: {kind}"
            ));
            return;
        };
        for proxy in &mut self.proxies {
            proxy.open.retain(|(_, of)| *of != ticket);
        }
        let (client, (namespace, name)) = (sent.client, sent.lock);
        let key = (client, name, namespace == Namespace::Durable);
        let own = holder.filter(|(owner, ..)| *owner == owner_text(client));
        match (kind, sent.operation, own) {
            ("granted", Asks::Acquire(_, ttl_ms), Some((_, mode, fence, _))) => {
                self.grants += 1;
                self.saw_fence(key, mode, fence, &sent);
                self.believe(key, Belief { mode, fence, until_ms: sent.at_ms + u64::from(ttl_ms) });
            }
            ("granted", Asks::Renew(ttl_ms), Some((_, mode, fence, _))) => {
                self.believe(key, Belief { mode, fence, until_ms: sent.at_ms + u64::from(ttl_ms) });
            }
            ("refused", Asks::Acquire(..), Some((_, mode, fence, left_ms))) => {
                if self.beliefs.get(&key).is_none_or(|belief| belief.fence != fence) {
                    self.saw_fence(key, mode, fence, &sent);
                }
                self.believe(
                    key,
                    Belief { mode, fence, until_ms: sent.at_ms + u64::from(left_ms) },
                );
            }
            ("refused", Asks::Renew(_), _) => {
                self.beliefs.remove(&key);
            }
            _ => {}
        }
    }

    /// Checks a fence that its holder was not told before. Sharers of a lock may be told theirs in
    /// any order.
    fn saw_fence(&mut self, key: (u64, usize, bool), mode: Mode, fence: i64, sent: &Sent) {
        let (exclusive, any) = self.fences.entry((key.2, key.1)).or_insert((i64::MIN, i64::MIN));
        let below = if mode == Mode::Exclusive { *any } else { *exclusive };
        *any = fence.max(*any);
        if mode == Mode::Exclusive {
            *exclusive = fence.max(*exclusive);
        }
        // A holder that missed its grant may ask again before another's grant was told, but not
        // later.
        if fence < below
            || fence == below
                && matches!(mode, Mode::Exclusive)
                && !self.heard.contains(&(key, fence))
        {
            self.violate(format!("fence {fence} after {below}: {sent:?}"));
        }
        self.heard.insert((key, fence));
    }

    fn believe(&mut self, key: (u64, usize, bool), belief: Belief) {
        if belief.until_ms <= self.now_ms {
            self.beliefs.remove(&key);
            return;
        }
        let now_ms = self.now_ms;
        let other = self.beliefs.iter().find(|((client, name, durable), other)| {
            *client != key.0
                && (*name, *durable) == (key.1, key.2)
                && other.until_ms > now_ms
                && (other.mode == Mode::Exclusive || belief.mode == Mode::Exclusive)
        });
        if let Some(other) = other {
            self.violate(format!("two holders: {key:?} {belief:?} and {other:?}"));
        }
        self.beliefs.insert(key, belief);
    }

    fn violate(&mut self, what: String) {
        let at_ms = self.now_ms;
        self.violation.get_or_insert(format!("at {at_ms} ms: {what}"));
    }
}
