//! Events and their results.

use std::rc::Rc;

use shunt_locks::{Lease, Now, Written};

use super::events::{Bounds, Event, LeftOut, come, events, is_in, simplify, ways, what_of};
use super::machine::{Machine, Machines, Said, Sent};
use super::opener::{Opener, Wanted};
use super::state::{Begin, Change, Fate, Message, Proxy, State, What};
use super::{fences, rest};
use crate::engine::types::Outcome;
use crate::{
    Claim, Conditional, FoundRecord, Generation, Opened, Opening, Page, Place, Position, Row,
};

/// The clock of the first proxy is ahead.
const WALL_US: [i64; 2] = [500, 5];
/// Limit of timestamps with a lease.
const LIMIT_US: i64 = 1_000;
pub(super) const DEADLINE_MS: u64 = 10_000;
const LEASE_ENDS_NS: u64 = u64::MAX;

/// Events that were seen, so that a search in which nothing happens does not pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) both_committed: bool,
    pub(super) refused: bool,
    pub(super) redone: bool,
    pub(super) never_made: bool,
    pub(super) in_doubt: bool,
    pub(super) read_under_the_later: bool,
    /// One was decided by a fence that was known, while its row was shared.
    pub(super) shared: bool,
    pub(super) rests: usize,
}

pub(super) struct Model {
    pub(super) bounds: Bounds,
    pub(super) machines: Machines,
    pub(super) seen: Seen,
    /// The history, if a reader wants it.
    pub(super) log: Option<Vec<String>>,
}

pub(super) fn now(proxy: &Proxy, number: u8) -> Now {
    let boot_ns = if proxy.is_late { DEADLINE_MS + 1 } else { 1 } * 1_000_000;
    Now { boot_ns, wall_us: WALL_US[usize::from(number)] }
}

impl Model {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, machines: Machines::default(), seen: Seen::default(), log: None }
    }

    pub(super) fn events(&self, state: &State, out: &mut Vec<Event>) {
        events(&self.bounds, &self.machines, state, out);
    }

    /// The first proxy serves the shard in its first generation, and all requests are on their way.
    pub(super) fn begin(&mut self) -> State {
        let (claim, generation) = (Claim(1), Generation(1));
        let mut first = Machine::begin(self.bounds.without);
        let lease = Lease { valid_until_ns: LEASE_ENDS_NS, ts_limit_us: LIMIT_US };
        let (at, mut said) = (Now { boot_ns: 1, wall_us: 0 }, Said::default());
        first.engine.set_lease(at, lease, &mut said);
        first.engine.gain(0, 0, claim);
        first
            .engine
            .open_shard(Opened { shard: 0, claim, generation, last_timestamp_us: 0 }, &mut said);
        let machines = [first, Machine::begin(self.bounds.without)]
            .map(|machine| self.machines.number(machine));
        let proxies = machines.map(|machine| Proxy {
            machine,
            opening: None,
            has_lease: true,
            limit_us: LIMIT_US,
            is_dead: false,
            is_gone: false,
            is_late: false,
        });
        let asked = Begin { fate: Fate::OnItsWay, timestamp_us: 0, seen: 0, raises: false };
        State {
            proxies,
            owner: 0,
            floor_us: 0,
            take_overs: 0,
            faults: 0,
            requests: vec![asked; self.bounds.requests.len()],
            messages: Vec::new(),
            row: Row { generation, claim, sealed: Generation(0) },
            changes: Vec::new(),
        }
    }

    /// The result of an event; an error says what must never happen.
    pub(super) fn happen(&mut self, state: &mut State, event: Event) -> Result<(), String> {
        match event {
            Event::Arrives { request, proxy } => self.arrives(state, request, proxy)?,
            Event::Reads { request, proxy, pair, new } => {
                self.reads(state, request, proxy, pair, new)?
            }
            Event::Acknowledged { proxy, what, new } => {
                if let Some(message) = state.message(what) {
                    message.at |= new;
                }
                self.hears(state, proxy, what, Written::Acknowledged)?;
            }
            Event::Unknown { proxy, what } => {
                state.faults += 1;
                self.hears(state, proxy, what, Written::Unknown)?;
            }
            Event::FoundRecord { proxy, what, new } => {
                if let Some(message) = state.message(what) {
                    message.at |= new;
                }
                self.redone(state, proxy, what)?;
            }
            Event::TriesAgain { proxy } => {
                self.engine(state, proxy, |machine, now, said| machine.engine.hurry(now, said))?
            }
            Event::Deadlines { proxy } => {
                state.proxies[usize::from(proxy)].is_late = true;
                self.engine(state, proxy, |machine, now, said| machine.engine.tick(now, said))?;
            }
            Event::LeaseEnds { proxy } => self.lease(state, proxy, false)?,
            Event::Renews { proxy } => self.lease(state, proxy, true)?,
            Event::Dies { proxy } => self.dies(state, proxy),
            Event::TakesOver { proxy } => self.takes_over(state, proxy)?,
            Event::HearsOfItsDeath { proxy } => {
                state.proxies[usize::from(proxy)].opening = None;
                self.engine(state, proxy, |machine, _, said| machine.engine.lose(0, said))?;
            }
            Event::ReadsRow { proxy } => {
                let row = state.row;
                let heard = [1, row.generation.0 as u8, row.claim.0 as u8, row.sealed.0 as u8];
                self.opens(state, proxy, &heard, |opener, now| {
                    opener.wanted.row = false;
                    opener.opening.row_read(now, Ok(Some(row)), true, &mut opener.wanted);
                })?;
            }
            Event::ReadsLog { proxy, pair, new } => self.reads_log(state, proxy, pair, new)?,
            Event::OpensAgain { proxy } => {
                self.opens(state, proxy, &[2], |opener, now| {
                    opener.opening.hurry(now, &mut opener.wanted)
                })?;
            }
            Event::Changes { number } => self.changes(state, number)?,
        }
        simplify(&self.bounds, state);
        rest::look(&self.bounds, &self.machines, state, &mut self.seen)
    }

    pub(super) fn say(&mut self, what: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(what());
        }
    }

    /// Says something to the transactions of a proxy, and carries out what comes of it.
    pub(super) fn engine(
        &mut self,
        state: &mut State,
        proxy: u8,
        step: impl FnOnce(&mut Machine, Now, &mut Said),
    ) -> Result<(), String> {
        let of = &state.proxies[usize::from(proxy)];
        let mut machine = self.machines.get(of.machine).clone();
        let mut said = Said::default();
        step(&mut machine, now(of, proxy), &mut said);
        machine.requests.extend(&said.locked);
        for (id, place, timestamp_us) in said.appends {
            let Some(request) = machine.request(id) else { continue };
            self.send(state, request, what_of(request, Sent::Record(place)), timestamp_us)?;
        }
        for (id, write, timestamp_us) in said.applies {
            let Some(request) = machine.request(id) else { continue };
            self.send(state, request, what_of(request, Sent::Write(write)), timestamp_us)?;
        }
        for (request, outcome) in said.replies {
            self.answered(state, request, outcome)?;
            if matches!(outcome, Outcome::Committed { .. })
                && state.requests[usize::from(request)].raises
            {
                fences::remember(&mut machine, self.bounds.requests[usize::from(request)].fence);
            }
        }
        machine.requests.retain(|(id, _)| !said.forgotten.contains(id));
        state.proxies[usize::from(proxy)].machine = self.machines.number(machine);
        Ok(())
    }

    /// A statement goes to all replicas. The same one may have before.
    fn send(
        &mut self,
        state: &mut State,
        request: u8,
        what: What,
        timestamp_us: i64,
    ) -> Result<(), String> {
        let asked = &mut state.requests[usize::from(request)];
        asked.timestamp_us = timestamp_us;
        self.say(|| format!("{what:?} is sent, {timestamp_us}"));
        if matches!(asked.fate, Fate::Refused | Fate::Answered(Outcome::NotExecuted(_))) {
            return Err(format!("refused, and written: {what:?}"));
        }
        let fence = self.bounds.requests[usize::from(request)].fence;
        let is_behind = state.requests.iter().zip(self.bounds.requests).any(|(other, of)| {
            of.fence > fence
                && matches!(
                    other.fate,
                    Fate::Answered(Outcome::Committed { .. } | Outcome::Read { .. })
                )
        });
        if state.message(what).is_none() {
            state.messages.push(Message { what, at: 0, is_behind });
        }
        Ok(())
    }

    fn answered(&mut self, state: &mut State, request: u8, outcome: Outcome) -> Result<(), String> {
        self.say(|| format!("request {request}: {outcome:?}"));
        let asked = &mut state.requests[usize::from(request)];
        if !matches!(asked.fate, Fate::At(_)) {
            return Err(format!("two answers to request {request}"));
        }
        asked.fate = Fate::Answered(outcome);
        self.seen.in_doubt |= outcome == Outcome::InDoubt;
        let has = |message: &Message| match message.what {
            What::Record(of, _) | What::Write(of, _) => of,
        };
        match outcome {
            Outcome::NotExecuted(_)
                if state.messages.iter().any(|message| has(message) == request) =>
            {
                Err(format!("refused, and written: request {request}"))
            }
            Outcome::Committed { .. } | Outcome::Read { .. } => {
                let fences = self.bounds.requests;
                let fence = fences[usize::from(request)].fence;
                for message in &mut state.messages {
                    let is_earlier = fences[usize::from(has(message))].fence < fence;
                    message.is_behind |= is_earlier && message.at.count_ones() < 2;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn hears(
        &mut self,
        state: &mut State,
        proxy: u8,
        what: What,
        written: Written,
    ) -> Result<(), String> {
        self.engine(state, proxy, |machine, now, said| {
            let (What::Record(request, _) | What::Write(request, _)) = what;
            let found = machine.requests.iter().find(|(_, of)| *of == request).copied();
            match (found, what) {
                (Some((id, _)), What::Record(..)) => {
                    machine.engine.appended(now, id, written, said)
                }
                (Some((id, _)), What::Write(_, number)) => {
                    machine.engine.applied(now, id, number.into(), Ok(written), said);
                }
                (None, _) => {}
            }
        })
    }

    fn lease(&mut self, state: &mut State, proxy: u8, is_valid: bool) -> Result<(), String> {
        let of = &mut state.proxies[usize::from(proxy)];
        of.has_lease = is_valid;
        let valid_until_ns = if is_valid { LEASE_ENDS_NS } else { 0 };
        let lease = Lease { valid_until_ns, ts_limit_us: of.limit_us };
        self.engine(state, proxy, |machine, now, said| machine.engine.set_lease(now, lease, said))
    }

    fn dies(&mut self, state: &mut State, proxy: u8) {
        state.faults += 1;
        let of = &mut state.proxies[usize::from(proxy)];
        (of.is_gone, of.has_lease, of.opening, of.is_late) = (true, false, None, false);
        of.machine = self.machines.number(Machine::begin(self.bounds.without));
        for asked in state.requests.iter_mut().filter(|asked| asked.fate == Fate::At(proxy)) {
            asked.fate = Fate::NeverAnswered;
        }
    }

    /// The owner is declared dead, and this one gains the shard, as another incarnation if its own
    /// is over.
    fn takes_over(&mut self, state: &mut State, proxy: u8) -> Result<(), String> {
        let former = &mut state.proxies[usize::from(state.owner)];
        (former.is_dead, former.has_lease) = (true, false);
        state.floor_us = state.floor_us.max(former.limit_us);
        state.take_overs += 1;
        state.owner = proxy;
        let (floor_us, claim) = (state.floor_us, Claim(u128::from(state.take_overs) + 1));
        let begins_us = if self.bounds.left_out == LeftOut::Floor { 0 } else { floor_us };
        let of = &mut state.proxies[usize::from(proxy)];
        (of.is_dead, of.is_gone, of.limit_us) = (false, false, floor_us + LIMIT_US);
        self.lease(state, proxy, true)?;
        self.engine(state, proxy, |machine, _, _| machine.engine.gain(0, begins_us, claim))?;
        let mut wanted = Wanted::default();
        let opening = Opening::begin(0, claim, &mut wanted);
        let opener = Opener { opening, wanted, heard: vec![claim.0 as u8] };
        state.proxies[usize::from(proxy)].opening = Some(Rc::new(opener));
        Ok(())
    }

    /// Says something to the opening of a proxy, and carries out what comes of it.
    fn opens(
        &mut self,
        state: &mut State,
        proxy: u8,
        heard: &[u8],
        step: impl FnOnce(&mut Opener, Now),
    ) -> Result<(), String> {
        let of = &mut state.proxies[usize::from(proxy)];
        let at = now(of, proxy);
        let Some(opener) = of.opening.take() else { return Ok(()) };
        let mut opener = Rc::unwrap_or_clone(opener);
        let applied = opener.wanted.applies.clone();
        opener.heard.extend(heard);
        step(&mut opener, at);
        loop {
            if let Some(generation) = opener.wanted.lows.pop() {
                opener.opening.low_read(at, generation, Ok(Position(0)), &mut opener.wanted);
            } else if self.bounds.left_out == LeftOut::Rewriting
                && !opener.wanted.appends.is_empty()
            {
                let place = opener.wanted.appends.remove(0);
                opener.opening.appended(at, place, Written::Acknowledged, true, &mut opener.wanted);
            } else if let Some(change) = opener.wanted.change.take() {
                if self.bounds.left_out == LeftOut::Seal && matches!(change, Change::Seal(_)) {
                    opener.opening.sealed(at, Conditional::Applied, &mut opener.wanted);
                } else {
                    state.changes.push((opener.opening.claim(), change));
                }
            } else {
                break;
            }
        }
        let new: Vec<_> = opener
            .wanted
            .applies
            .iter()
            .filter(|apply| !applied.contains(apply))
            .copied()
            .collect();
        for (place, write) in new {
            let Some(request) = request_at(state, place) else { continue };
            self.seen.redone = true;
            let timestamp_us = state.requests[usize::from(request)].timestamp_us;
            self.send(state, request, what_of(request, Sent::Write(write)), timestamp_us)?;
        }
        match opener.opening.opened() {
            None => state.proxies[usize::from(proxy)].opening = Some(Rc::new(opener)),
            Some(mut opened) => {
                if self.bounds.left_out == LeftOut::Floor {
                    opened.last_timestamp_us = 0;
                }
                self.engine(state, proxy, |machine, _, said| {
                    machine.engine.open_shard(opened, said);
                })?;
            }
        }
        Ok(())
    }

    fn reads_log(
        &mut self,
        state: &mut State,
        proxy: u8,
        pair: u8,
        new: u16,
    ) -> Result<(), String> {
        let Some(page) = state.proxies[usize::from(proxy)]
            .opening
            .as_ref()
            .and_then(|opener| opener.wanted.page)
        else {
            return Ok(());
        };
        let (open, _) = ways(state, pair, |what| is_in(page, what));
        come(state, pair, &open, new);
        let is_looked_for = self.bounds.left_out != LeftOut::Recovery;
        let is_here = |message: &&Message| {
            is_looked_for && message.at & pair != 0 && is_in(page, message.what)
        };
        let here = state.messages.iter().filter(is_here);
        let mut found: Vec<FoundRecord> =
            here.filter_map(|message| found(&self.bounds, state, message.what)).collect();
        found.sort_unstable_by_key(|found| found.position);
        let mut heard = vec![3, found.len() as u8];
        heard.extend(found.iter().map(|found| found.position.0 as u8));
        self.say(|| format!("finds {found:?}"));
        self.opens(state, proxy, &heard, |opener, now| {
            opener.wanted.page = None;
            let page_read = Page { records: &found, is_last: true };
            opener.opening.page_read(now, page, Ok(page_read), &mut opener.wanted);
        })
    }

    /// A record that was found, or a write of it, was acknowledged.
    fn redone(&mut self, state: &mut State, proxy: u8, what: What) -> Result<(), String> {
        match what {
            What::Record(_, place) => {
                let heard = [4, place.generation.0 as u8, place.position.0 as u8];
                self.opens(state, proxy, &heard, |opener, now| {
                    opener.wanted.appends.retain(|awaited| *awaited != place);
                    opener.opening.appended(
                        now,
                        place,
                        Written::Acknowledged,
                        true,
                        &mut opener.wanted,
                    );
                })
            }
            What::Write(request, write) => {
                let of = |place: &Place| request_at(state, *place) == Some(request);
                let opener = state.proxies[usize::from(proxy)].opening.as_ref();
                let awaited = opener.and_then(|opener| {
                    opener
                        .wanted
                        .applies
                        .iter()
                        .find(|(place, number)| *number == u16::from(write) && of(place))
                        .copied()
                });
                let Some((place, number)) = awaited else { return Ok(()) };
                let heard = [5, place.generation.0 as u8, place.position.0 as u8, write];
                self.opens(state, proxy, &heard, |opener, now| {
                    opener.wanted.applies.retain(|awaited| *awaited != (place, number));
                    opener.opening.applied(
                        now,
                        place,
                        number,
                        Ok(Written::Acknowledged),
                        &mut opener.wanted,
                    );
                })
            }
        }
    }

    /// A conditional statement is executed, and whoever asked hears of it, unless that opening is
    /// over.
    fn changes(&mut self, state: &mut State, number: u8) -> Result<(), String> {
        let (claim, change) = state.changes.remove(number.into());
        let row = &mut state.row;
        let is_applied = match change {
            Change::Claim(read) => {
                let is_as_read = read == Some((row.generation, row.sealed));
                if is_as_read {
                    (row.generation, row.claim) = (Generation(row.generation.0 + 1), claim);
                }
                is_as_read
            }
            Change::Seal(claimed) => {
                let stands = (row.generation, row.claim) == (claimed, claim);
                if stands {
                    row.sealed = Generation(claimed.0 - 1);
                }
                stands
            }
        };
        self.say(|| format!("{change:?} of {claim:?}: {is_applied}"));
        let outcome = if is_applied { Conditional::Applied } else { Conditional::Refused };
        for proxy in 0..2 {
            let is_its_own = |opener: &Rc<Opener>| opener.opening.claim() == claim;
            if state.proxies[usize::from(proxy)].opening.as_ref().is_some_and(is_its_own) {
                self.opens(state, proxy, &[6, u8::from(is_applied)], |opener, now| match change {
                    Change::Claim(_) => opener.opening.claimed(now, outcome, &mut opener.wanted),
                    Change::Seal(_) => opener.opening.sealed(now, outcome, &mut opener.wanted),
                })?;
            }
        }
        Ok(())
    }
}

fn request_at(state: &State, place: Place) -> Option<u8> {
    state.messages.iter().find_map(|message| match message.what {
        What::Record(request, at) if at == place => Some(request),
        _ => None,
    })
}

/// A record, as whoever reads it finds it.
fn found(bounds: &Bounds, state: &State, what: What) -> Option<FoundRecord> {
    let What::Record(request, place) = what else { return None };
    let asked = state.requests[usize::from(request)];
    let writes =
        u16::from(bounds.requests[usize::from(request)].writes.is_some()) + u16::from(asked.raises);
    Some(FoundRecord { position: place.position, timestamp_us: asked.timestamp_us, writes })
}
