//! The use of the fence's row by `guard/idempotency.rs` and `guard/fences.rs`.

use super::events::{Bounds, LeftOut, come, is_read, row_of, ways};
use super::happen::{DEADLINE_MS, Model};
use super::machine::Machine;
use super::rest;
use super::state::{FENCE, Fate, State, What, X};
use crate::engine::types::{Begin, Decision, Mode, Partition, Ticket};

/// The fence that a proxy knows the row to have.
fn known(bounds: &Bounds, machine: &Machine) -> Option<u8> {
    let (claim, fence) = machine.known?;
    (claim == machine.engine.shards[0].claim || bounds.left_out == LeftOut::Ownership)
        .then_some(fence)
}

/// A proxy knows it from now on.
pub(super) fn remember(machine: &mut Machine, fence: u8) {
    machine.known = machine.engine.claim(0).map(|claim| (claim, fence));
}

/// True if a request that has its partitions shares the row.
fn is_shared(machine: &Machine, request: u8) -> bool {
    let found = machine.requests.iter().find(|(_, of)| *of == request);
    let partitions = found.map(|(id, _)| &machine.engine.all[id.index as usize].partitions);
    partitions.is_some_and(|all| all.contains(&(Partition(FENCE.into()), Mode::Shared)))
}

impl Model {
    pub(super) fn arrives(
        &mut self,
        state: &mut State,
        request: u8,
        proxy: u8,
    ) -> Result<(), String> {
        state.requests[usize::from(request)].fate = Fate::At(proxy);
        let asked = self.bounds.requests[usize::from(request)];
        let mut partitions = Vec::new();
        if asked.reads {
            partitions.push((Partition(X.into()), Mode::Shared));
        }
        partitions.extend(asked.writes.map(|row| (Partition(row.into()), Mode::Exclusive)));
        if self.bounds.left_out != LeftOut::FenceLock {
            let machine = self.machines.get(state.proxies[usize::from(proxy)].machine);
            let is_shared = known(&self.bounds, machine) == Some(asked.fence);
            partitions.push((
                Partition(FENCE.into()),
                if is_shared { Mode::Shared } else { Mode::Exclusive },
            ));
        }
        // What comes when the deadlines of the others are over has one that does not come.
        let deadline_ms =
            if state.proxies[usize::from(proxy)].is_late { u64::MAX } else { DEADLINE_MS };
        let begun = Begin {
            ticket: Ticket(request.into()),
            shard: 0,
            partitions: &partitions,
            deadline_ms,
        };
        self.engine(state, proxy, |machine, now, said| {
            machine.engine.begin(now, &begun, said);
        })
    }

    /// The decision of `guard/idempotency.rs`: a later fence in the row refuses the request; one
    /// that is not in it is written too.
    pub(super) fn reads(
        &mut self,
        state: &mut State,
        request: u8,
        proxy: u8,
        pair: u8,
        new: u16,
    ) -> Result<(), String> {
        let bounds = self.bounds;
        let (open, _) = ways(state, pair, |what| is_read(&bounds, request, what));
        come(state, pair, &open, new);
        let newest = |row: u8| {
            let here = state.messages.iter().filter(|message| message.at & pair != 0);
            let of_row = here.filter(|message| row_of(&bounds, message.what) == Some(row));
            of_row
                .filter_map(|message| Some((rest::timestamp(state, message.what)?, message.what)))
                .max()
        };
        let writer = |what: What| match what {
            What::Write(request, _) | What::Record(request, _) => request,
        };
        let machine = self.machines.get(state.proxies[usize::from(proxy)].machine);
        let is_shared = is_shared(machine, request);
        let known = match bounds.left_out {
            LeftOut::SecondLook if is_shared => Some(bounds.requests[usize::from(request)].fence),
            _ => known(&bounds, machine),
        };
        let found =
            newest(FENCE).map_or(0, |(_, what)| bounds.requests[usize::from(writer(what))].fence);
        let fence = known.unwrap_or(found);
        let seen = newest(X).map_or(0, |(_, what)| writer(what) + 1);
        let of = bounds.requests[usize::from(request)];
        self.say(|| format!("request {request} finds fence {fence}, and what {seen} has written"));
        let is_forgotten = is_shared && fence < of.fence;
        let is_refused =
            (fence > of.fence || is_forgotten) && bounds.left_out != LeftOut::Comparison;
        let asked = &mut state.requests[usize::from(request)];
        let decision = if is_refused {
            self.seen.refused |= !is_forgotten;
            asked.fate = Fate::Refused;
            Decision::GiveUp
        } else {
            asked.seen = if of.reads { seen } else { 0 };
            asked.raises = fence != of.fence && bounds.left_out != LeftOut::Raise;
            match u16::from(of.writes.is_some()) + u16::from(asked.raises) {
                0 => Decision::Nothing,
                writes => Decision::Write(writes),
            }
        };
        if is_refused && state.messages.iter().any(|message| writer(message.what) == request) {
            return Err(format!("refused, and written: request {request}"));
        }
        self.seen.shared |= is_shared && known == Some(of.fence);
        let (raises, forgets) =
            (state.requests[usize::from(request)].raises, bounds.left_out != LeftOut::Forgetting);
        self.engine(state, proxy, |machine, now, said| {
            match raises {
                true if forgets => machine.known = None,
                false if fence > 0 => remember(machine, fence),
                _ => {}
            }
            let found = machine.requests.iter().find(|(_, of)| *of == request).copied();
            if let Some((id, _)) = found {
                machine.engine.decided(now, id, decision, said);
            }
        })
    }
}
