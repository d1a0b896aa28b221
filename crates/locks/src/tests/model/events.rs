//! Events that can happen next.

use super::machine::{Facts, InFlight, Machines, Outcomes, Times, Word};
use super::state::{CLIENTS_MAX, Client, Operation, Owner, PROXIES, Pending, Proxy, State};
use super::store::Store;
use crate::tests::Without;
use crate::types::Namespace;

/// Ticks of a lease: shorter than a TTL, so that holds outlive the lease under which they were
/// granted.
pub(super) const LEASE: u8 = 1;
pub(super) const TTL: u8 = 2;
pub(super) const WAIT: u8 = 1;
/// The first proxy's wall clock is five tokens ahead.
pub(super) const WALL: [i32; PROXIES] = [320, 0];
/// Age at which no answer has any time left to give.
pub(super) const AGE_MAX: u8 = 8;

/// Bounds on the events, and the steps outside [`crate::Locks`] that are left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) namespace: Namespace,
    pub(super) clients: u8,
    /// The lock is requested in both modes, and with waiting; otherwise neither shared nor with
    /// waiting.
    pub(super) modes: bool,
    /// Requests of all clients.
    pub(super) requests: u8,
    /// Changes of the shard's owner.
    pub(super) take_overs: u8,
    /// Failed writes and readings, clients that leave, proxies that end without notice.
    pub(super) faults: u8,
    /// Longest TTL, which renewals may request, in ticks; for this long the next owner of the shard
    /// grants no memory lock.
    pub(super) longest: u8,
    /// Tokens that a lease allows, above those at its renewal.
    pub(super) tokens: i32,
    /// Three, or one in place of three.
    pub(super) replicas: u8,
    pub(super) without: Without,
    pub(super) fleet: LeftOut,
    /// The kind of violation to look for.
    pub(super) sought: &'static str,
    /// Events before the search begins.
    pub(super) begun: &'static [Event],
}

/// A step of the fleet, or of reading, that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeftOut {
    Nothing,
    /// The shard is taken before the owner's lease has run out.
    LeaseOver,
    /// The next owner's tokens need not be above the former owner's limit.
    Floor,
    /// Rows are read from one replica.
    Quorum,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Tick,
    Asks { client: u8, proxy: u8, operation: Operation },
    Leaves { client: u8 },
    Timers { proxy: u8 },
    Acknowledged { proxy: u8, client: u8, without: u8 },
    Fails { proxy: u8, client: u8, written: Outcomes },
    Read { proxy: u8, replica: u8, way: u8 },
    ReadFails { proxy: u8 },
    Renews { proxy: u8 },
    TakesOver { proxy: u8 },
    HearsOfItsDeath { proxy: u8 },
    Crashes { proxy: u8 },
    Drains { proxy: u8 },
    HandsOver { proxy: u8 },
    Resumes { proxy: u8 },
}

/// Cases that occurred in any history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) exclusive: bool,
    pub(super) shared: bool,
    pub(super) shared_by_two: bool,
    pub(super) renewed: bool,
    pub(super) told_again: bool,
    pub(super) told_by_next_owner: bool,
    pub(super) after_wait: bool,
}

pub(super) struct Model {
    pub(super) bounds: Bounds,
    pub(super) machines: [Machines; PROXIES],
    pub(super) seen: Seen,
    /// Answers and writes, for readers of a history.
    pub(super) log: Option<Vec<String>>,
    pub(super) violation: Option<String>,
}

impl Model {
    pub(super) fn new(bounds: Bounds) -> Self {
        let times = Times { ttl: TTL, longer: bounds.longest, wait: WAIT };
        let machines =
            WALL.map(|wall| Machines::new(bounds.namespace, bounds.without, times, wall.into()));
        Self { bounds, machines, seen: Seen::default(), log: None, violation: None }
    }

    pub(super) fn machines(&self) -> usize {
        self.machines.iter().map(Machines::len).sum()
    }

    /// The first proxy owns the shard and there are no holds; then the given events happen.
    pub(super) fn begin(&mut self) -> State {
        let mut state = State {
            proxies: [Proxy::default(); PROXIES],
            owner: Owner::Proxy(0),
            floor: 0,
            take_overs: 0,
            faults: 0,
            clients: [Client::default(); CLIENTS_MAX],
            store: Store::new(self.bounds.replicas.into()),
            highest: (0, 0),
        };
        self.renew(&mut state, 0);
        self.say(&mut state, 0, Word::Gain { floor: 0, grace: 0 });
        for event in self.bounds.begun {
            self.note(|| format!("{event:?}"));
            self.happen(&mut state, *event).expect("a beginning in which nothing is wrong");
        }
        state
    }

    /// Each event that can happen next.
    pub(super) fn events(&self, state: &State, out: &mut Vec<Event>) {
        out.clear();
        if !self.is_anybody_told(state) {
            return;
        }
        out.push(Event::Tick);
        for client in 0..self.bounds.clients {
            self.events_of_client(state, client, out);
        }
        for proxy in 0..PROXIES as u8 {
            self.events_of_proxy(state, proxy, out);
            self.events_of_fleet(state, proxy, out);
        }
    }

    /// True if a client may yet be told that it has the lock. Otherwise no violation is possible.
    fn is_anybody_told(&self, state: &State) -> bool {
        let hears = |pending: Pending| pending.operation != Operation::Release;
        self.may_ask(state) || state.clients.iter().any(|client| client.pending.is_some_and(hears))
    }

    fn may_ask(&self, state: &State) -> bool {
        state.clients.iter().map(|client| client.asked).sum::<u8>() < self.bounds.requests
    }

    fn may_fail(&self, state: &State) -> bool {
        state.faults < self.bounds.faults
    }

    fn events_of_client(&self, state: &State, client: u8, out: &mut Vec<Event>) {
        let of = &state.clients[usize::from(client)];
        if of.pending.is_some() {
            if self.may_fail(state) {
                out.push(Event::Leaves { client });
            }
            return;
        }
        // Clients are alike: the first one asks first.
        let is_turn = client == 0 || state.clients[usize::from(client) - 1].asked > 0;
        if !self.may_ask(state) || !is_turn {
            return;
        }
        for proxy in (0..PROXIES as u8).filter(|proxy| self.facts(state, *proxy).owned) {
            let mut ask = |operation| out.push(Event::Asks { client, proxy, operation });
            for (shared, waits) in [(false, false), (false, true), (true, false), (true, true)] {
                // A holder that missed its answer repeats the same request.
                let is_asked = self.bounds.modes || !shared && !waits;
                if is_asked && of.belief.is_none_or(|belief| belief.shared == shared && !waits) {
                    ask(Operation::Acquire { shared, waits });
                }
            }
            if of.belief.is_some() {
                ask(Operation::Renew { longer: false });
                ask(Operation::Renew { longer: true });
            }
            if of.asked > 0 {
                ask(Operation::Release);
            }
        }
    }

    fn events_of_proxy(&self, state: &State, proxy: u8, out: &mut Vec<Event>) {
        let facts = self.facts(state, proxy);
        if facts.due {
            out.push(Event::Timers { proxy });
        }
        for InFlight { client, repeated, .. } in facts.in_flight.iter().copied() {
            for without in 0..self.bounds.replicas {
                out.push(Event::Acknowledged { proxy, client, without });
            }
            if self.may_fail(state) {
                out.push(Event::Fails { proxy, client, written: Outcomes::Unknown });
            }
            if self.may_fail(state) && !repeated {
                out.push(Event::Fails { proxy, client, written: Outcomes::NotSent });
            }
        }
        if facts.loading {
            let first = state.proxies[usize::from(proxy)].read.map(|(first, _)| first);
            for replica in (0..self.bounds.replicas).filter(|replica| Some(*replica) != first) {
                for way in 0..state.store.arrivals(usize::from(replica)) {
                    out.push(Event::Read { proxy, replica, way: way as u8 });
                }
            }
            if self.may_fail(state) {
                out.push(Event::ReadFails { proxy });
            }
        }
    }

    fn events_of_fleet(&self, state: &State, proxy: u8, out: &mut Vec<Event>) {
        let of = &state.proxies[usize::from(proxy)];
        let owns = state.owner == Owner::Proxy(proxy);
        if of.dead {
            out.push(Event::HearsOfItsDeath { proxy });
        } else if self.facts(state, proxy).owned {
            out.push(Event::Renews { proxy });
        }
        if state.take_overs >= self.bounds.take_overs {
            return;
        }
        let waits = self.bounds.fleet != LeftOut::LeaseOver;
        let can_take = match state.owner {
            Owner::Proxy(owner) => {
                owner != proxy && (state.proxies[usize::from(owner)].lease == 0 || !waits)
            }
            // Its own host knows that the process has ended.
            Owner::Ended(host, lease, _) => lease == 0 || host == proxy || !waits,
        };
        if can_take && !of.dead {
            out.push(Event::TakesOver { proxy });
        }
        if owns && self.may_fail(state) {
            out.push(Event::Crashes { proxy });
        }
        match of.drained {
            None if owns && of.lease > 0 && self.facts(state, proxy).owned => {
                out.push(Event::Drains { proxy })
            }
            Some(_) if owns && of.lease > 0 => {
                out.push(Event::Resumes { proxy });
                let other = &state.proxies[usize::from(1 - proxy)];
                if !other.dead {
                    out.push(Event::HandsOver { proxy });
                }
            }
            _ => {}
        }
    }

    pub(super) fn facts(&self, state: &State, proxy: u8) -> &Facts {
        self.machines[usize::from(proxy)].facts(state.proxies[usize::from(proxy)].machine)
    }
}
