//! Effects of events.

use super::events::{AGE_MAX, Event, LEASE, LeftOut, Model, WALL};
use super::machine::{InFlight, Outcomes, Said, Word};
use super::state::{Operation, Owner, PROXIES, Pending, Proxy, State};
use super::store::merged;
use crate::types::Namespace;

impl Model {
    /// Carries out an event; the error names a violated invariant.
    pub(super) fn happen(&mut self, state: &mut State, event: Event) -> Result<(), String> {
        use Event::{Crashes, Fails, Leaves, ReadFails};
        state.faults += u8::from(matches!(
            event,
            Crashes { .. } | Fails { .. } | Leaves { .. } | ReadFails { .. }
        ));
        match event {
            Event::Tick => self.pass(state),
            Event::Asks { client, proxy, operation } => {
                let of = &mut state.clients[usize::from(client)];
                of.asked += 1;
                of.pending = Some(Pending { proxy, operation, age: 0 });
                if operation == Operation::Release {
                    of.belief = None;
                }
                self.say(state, proxy, Word::Ask { client, operation });
            }
            Event::Leaves { client } => {
                let pending = state.clients[usize::from(client)].pending.take();
                if let Some(Pending { proxy, .. }) = pending {
                    self.say(state, proxy, Word::Cancel { client });
                }
            }
            Event::Timers { proxy } => self.say(state, proxy, Word::Timers),
            Event::Acknowledged { proxy, client, without } => {
                let row = self.in_flight(state, proxy, client);
                state.store.reach(row.slot, row.at, without.into());
                self.say(state, proxy, Word::Written { client, written: Outcomes::Acknowledged });
            }
            Event::Fails { proxy, client, written } => {
                let row = self.in_flight(state, proxy, client);
                if written == Outcomes::NotSent {
                    state.store.unsend(row.slot, row.at);
                }
                self.say(state, proxy, Word::Written { client, written });
            }
            Event::Read { proxy, replica, way } => {
                self.read(state, proxy, replica.into(), way.into())
            }
            Event::ReadFails { proxy } => self.say(state, proxy, Word::LoadFailed),
            _ => self.happen_to_fleet(state, event),
        }
        state.order_replicas();
        let sought = self.bounds.sought;
        self.violation.take().filter(|what| what.contains(sought)).map_or(Ok(()), Err)
    }

    fn happen_to_fleet(&mut self, state: &mut State, event: Event) {
        match event {
            Event::Renews { proxy } => self.renew(state, proxy),
            Event::TakesOver { proxy } => {
                let limit = match state.owner {
                    Owner::Proxy(owner) => {
                        state.proxies[usize::from(owner)].dead = true;
                        state.proxies[usize::from(owner)].limit
                    }
                    Owner::Ended(_, _, limit) => limit,
                };
                if self.bounds.fleet != LeftOut::Floor {
                    state.floor = state.floor.max(limit);
                }
                self.give(state, proxy, false);
            }
            Event::HearsOfItsDeath { proxy } => {
                self.lose(state, proxy);
                let of = &mut state.proxies[usize::from(proxy)];
                (of.dead, of.lease, of.limit, of.drained) = (false, 0, 0, None);
                self.say(state, proxy, Word::Lease { ticks: 0, limit: 0 });
            }
            Event::Crashes { proxy } => {
                let of = &mut state.proxies[usize::from(proxy)];
                state.owner = Owner::Ended(proxy, of.lease, of.limit);
                *of = Proxy { machine: of.machine, ..Proxy::default() };
                for client in &mut state.clients {
                    client.pending = client.pending.filter(|pending| pending.proxy != proxy);
                }
                self.say(state, proxy, Word::Begin);
            }
            Event::Drains { proxy } => {
                let facts = self.facts(state, proxy);
                state.proxies[usize::from(proxy)].drained =
                    Some((facts.last_token, facts.memory_free));
                self.lose(state, proxy);
            }
            Event::HandsOver { proxy } => {
                if let Some((last, memory_free)) = state.proxies[usize::from(proxy)].drained.take()
                {
                    state.floor = state.floor.max(last);
                    self.give(state, 1 - proxy, memory_free);
                }
            }
            Event::Resumes { proxy } => {
                state.take_overs += 1;
                let of = &mut state.proxies[usize::from(proxy)];
                of.drained = None;
                let grace = of.forgotten;
                self.say(state, proxy, Word::Gain { floor: 0, grace });
            }
            _ => {}
        }
    }

    fn in_flight(&self, state: &State, proxy: u8, client: u8) -> InFlight {
        let mut all = self.facts(state, proxy).in_flight.iter();
        *all.find(|write| write.client == client).expect("it is in flight")
    }

    pub(super) fn renew(&mut self, state: &mut State, proxy: u8) {
        let (last, tokens) = (self.facts(state, proxy).last_token, self.bounds.tokens);
        let last = last.max(state.floor).max(WALL[usize::from(proxy)]);
        let of = &mut state.proxies[usize::from(proxy)];
        of.lease = LEASE;
        if of.limit <= last + 64 {
            of.limit = last + tokens * 64 + 1;
        }
        let limit = of.limit;
        self.say(state, proxy, Word::Lease { ticks: LEASE, limit });
    }

    /// Gives the shard to a proxy in the fleet's row, and tells the proxy's core.
    fn give(&mut self, state: &mut State, proxy: u8, memory_free: bool) {
        // Only a proxy with a lease takes over or is given a shard.
        self.renew(state, proxy);
        state.take_overs += 1;
        state.owner = Owner::Proxy(proxy);
        let durable = self.bounds.namespace == Namespace::Durable;
        let grace = if memory_free || durable { 0 } else { self.bounds.longest };
        self.say(state, proxy, Word::Gain { floor: state.floor, grace });
    }

    fn lose(&mut self, state: &mut State, proxy: u8) {
        if !self.facts(state, proxy).no_memory_holds {
            state.proxies[usize::from(proxy)].forgotten = self.bounds.longest;
        }
        self.say(state, proxy, Word::Lose);
    }

    /// A replica answers a reading; the second answer completes it.
    fn read(&mut self, state: &mut State, proxy: u8, replica: usize, way: u32) {
        state.store.arrive(replica, way);
        let rows = state.store.replicas[replica];
        let of = &mut state.proxies[usize::from(proxy)];
        let found = match of.read {
            None if self.bounds.fleet != LeftOut::Quorum && self.bounds.replicas > 1 => {
                of.read = Some((replica as u8, rows));
                return;
            }
            None => rows,
            Some((first, of_first)) => {
                let found = merged(&of_first, &rows);
                state.store.repair(first.into(), &found);
                state.store.repair(replica, &found);
                found
            }
        };
        self.say(state, proxy, Word::Loaded(found));
    }

    fn pass(&mut self, state: &mut State) {
        for proxy in 0..PROXIES as u8 {
            self.say(state, proxy, Word::Pass);
            let of = &mut state.proxies[usize::from(proxy)];
            (of.lease, of.forgotten) = (of.lease.saturating_sub(1), of.forgotten.saturating_sub(1));
        }
        if let Owner::Ended(_, lease, _) = &mut state.owner {
            *lease = lease.saturating_sub(1);
        }
        for client in &mut state.clients {
            if let Some(pending) = &mut client.pending {
                pending.age = AGE_MAX.min(pending.age + 1);
            }
            if let Some(belief) = &mut client.belief {
                belief.left -= 1;
            }
            client.belief = client.belief.filter(|belief| belief.left > 0);
        }
    }

    /// Passes an input to a proxy's locks, and carries out their outputs.
    pub(super) fn say(&mut self, state: &mut State, proxy: u8, word: Word) {
        let index = usize::from(proxy);
        let (machine, said) = self.machines[index].say(state.proxies[index].machine, word);
        state.proxies[index].machine = machine;
        if said.answers.is_empty() && said.writes.is_empty() && !said.loads {
            if !self.machines[index].facts(machine).loading {
                state.proxies[index].read = None;
            }
            return;
        }
        let Said { answers, writes, loads } = said.clone();
        for (slot, version) in writes {
            self.note(|| format!("proxy {proxy} writes {version:?} to slot {slot}"));
            if let Err(why) = state.store.send(slot, version) {
                self.violation.get_or_insert(why);
            }
        }
        if loads || !self.machines[index].facts(machine).loading {
            state.proxies[index].read = None;
        }
        for (client, answer) in answers {
            self.note(|| format!("proxy {proxy} answers client {client}: {answer:?}"));
            self.told(state, client, &answer);
        }
    }

    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(what());
        }
    }
}
