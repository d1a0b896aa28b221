//! The fleet's row: reading the view, taking over shards without a live owner, giving away surplus
//! ones, raising the format.

use crate::answer::{FleetRow, Outcome, State};
use crate::ids::{Incarnation, Shards};
use crate::lane::Flight;
use crate::output::{Alarm, Event, Output, Sink};
use crate::plan;
use crate::refusal::Refusal;
use crate::statement::{Statement, ViewChange};
use crate::weakened::Step;

use super::shards::{Holding, unchanged};
use super::{Member, Phase};

/// Shards that can be taken over.
#[derive(Debug, Default)]
struct Claim {
    /// Shards of dead owners, or without an owner.
    shards: Shards,
    /// Shards of dead owners.
    of_dead: Shards,
    /// Lower bound of the new floor.
    ts_floor_us: i64,
    /// This host knows that one of the owners is dead.
    at_once: bool,
}

impl Member {
    pub(super) fn step_fleet(&mut self, now_ns: u64, wall_us: i64, sink: &mut dyn Sink) {
        if self.phase == Phase::Ended || !self.fleet_lane.is_free(now_ns) {
            return;
        }
        if !self.fleet_read.serial
            && self.may_act(now_ns)
            && let Some(change) = self.wanted_change(now_ns, wall_us)
        {
            self.note_offers(&change);
            self.send_on_fleet(Statement::ChangeView(Box::new(change)), now_ns, sink);
            return;
        }
        let soon = self.watches(now_ns) || self.fleet_read.now;
        self.fleet_read.every_ns = if soon { self.times.watch_ns } else { self.times.poll_ns };
        let serial = self.fleet_read.serial;
        if now_ns >= self.fleet_read.due_ns() {
            (self.fleet_read.sent_ns, self.fleet_read.now) = (Some(now_ns), false);
            self.send_on_fleet(Statement::ReadFleet { serial }, now_ns, sink);
        }
    }

    pub(super) fn fleet_outcome(
        &mut self,
        flight: Flight,
        outcome: Outcome,
        now_ns: u64,
        sink: &mut dyn Sink,
    ) {
        let failed =
            matches!(outcome, Outcome::Timeout | Outcome::Failed(_) | Outcome::Unreadable(_));
        if failed {
            self.fleet_lane.failed(now_ns, self.times.deadline_ns);
        } else {
            self.fleet_lane.succeeded();
        }
        match (flight.statement, outcome) {
            (Statement::ReadFleet { serial }, Outcome::Fleet(Some(row))) => {
                self.take_read(*row, serial, now_ns, sink)
            }
            (Statement::ReadFleet { .. }, Outcome::Fleet(None))
                if self.phase == Phase::Checking =>
            {
                self.refuse(Refusal::NoFleet(self.config.cluster.clone()), sink);
            }
            // In any phase: the member does not know the meaning of its statements in that format.
            (Statement::ReadFleet { .. }, Outcome::UnknownFormat(fleet)) => {
                self.refuse(Refusal::Format { fleet, known: self.config.formats.clone() }, sink);
            }
            (Statement::ReadFleet { .. }, Outcome::Unreadable(bad))
                if self.phase == Phase::Checking =>
            {
                self.refuse(Refusal::Row(bad), sink);
            }
            (Statement::ReadFleet { .. }, _) => {}
            (Statement::ChangeView(change), Outcome::Applied) => {
                self.changed(*change, now_ns, sink)
            }
            _ => self.fleet_read.serial = true,
        }
    }

    fn take_read(&mut self, row: FleetRow, serial: bool, now_ns: u64, sink: &mut dyn Sink) {
        self.fleet_read.serial &= !serial;
        let known = self.fleet.as_ref().map_or(-1, |known| known.epoch);
        if row.epoch < known {
            if serial {
                sink.put(Output::Alarm(Alarm::EpochBack { known, read: row.epoch }));
            }
            return;
        }
        if let Err(refusal) = self.config.fits(&row) {
            return self.refuse(refusal, sink);
        }
        if row.epoch == known {
            if serial {
                self.offers_stand();
            }
            return;
        }
        self.take_row(row, now_ns, sink);
    }

    fn take_row(&mut self, row: FleetRow, now_ns: u64, sink: &mut dyn Sink) {
        self.take_view(&row, now_ns, sink);
        sink.put(Output::Owners { epoch: row.epoch, view: Box::new(row.view.clone()) });
        self.fleet = Some(row);
        if self.own.beat.is_some() {
            self.post_lease(sink);
        }
    }

    /// Applies this member's own change.
    fn changed(&mut self, change: ViewChange, now_ns: u64, sink: &mut dyn Sink) {
        let Some(old) = self.fleet.clone().filter(|row| row.epoch == change.epoch_seen) else {
            self.fleet_read.serial = true;
            return;
        };
        let moved: Shards =
            Shards::ALL.iter().filter(|s| old.view.owner(*s) != change.view.owner(*s)).collect();
        let taken_over = moved.iter().any(|shard| old.view.owner(shard) != Some(self.me));
        let epoch = change.epoch_seen.saturating_add(1);
        if change.format != old.format {
            sink.put(Output::Event(Event::FormatRaised(change.format)));
        } else {
            sink.put(Output::Event(Event::ViewChanged { epoch, moved: moved.len(), taken_over }));
        }
        let row = FleetRow {
            epoch,
            view: change.view,
            ts_floor_us: change.ts_floor_us,
            handed_over: Shards::from_bits(change.handed_over),
            format: change.format,
            ..old
        };
        self.take_row(row, now_ns, sink);
    }

    /// The next change to make, if any: take over first, then give away, then raise the format.
    fn wanted_change(&mut self, now_ns: u64, wall_us: i64) -> Option<ViewChange> {
        if self.phase == Phase::Live {
            let taken = self.take_over(now_ns, wall_us);
            if taken.is_some() {
                return taken;
            }
        }
        self.gift(now_ns).or_else(|| self.voided_offers()).or_else(|| self.raised_format(now_ns))
    }

    fn claim(&self, wall_us: i64) -> Option<Claim> {
        let row = self.fleet.as_ref()?;
        let mut claim = Claim { ts_floor_us: row.ts_floor_us, ..Claim::default() };
        for shard in Shards::ALL.iter() {
            let Some(owner) = row.view.owner(shard) else {
                claim.shards.set(shard, true);
                continue;
            };
            let Some(limit_us) = self.limit_of_dead(owner) else { continue };
            // The tokens of an owner without a row are unknown: assume above all limits, and above
            // this clock by a lease's worth.
            let unknown_us =
                self.others.limit_max_us().max(wall_us.saturating_add(self.times.headroom_us));
            if self.steps.has(Step::TokenFloor) {
                claim.ts_floor_us = claim.ts_floor_us.max(limit_us.unwrap_or(unknown_us));
            }
            claim.at_once |= self.host_dead.contains(&owner);
            claim.shards.set(shard, true);
            claim.of_dead.set(shard, true);
        }
        (!claim.shards.is_empty()).then_some(claim)
    }

    /// Like [`crate::observations::Others::limit_of_dead`]; this member is never dead to itself.
    fn limit_of_dead(&self, owner: Incarnation) -> Option<Option<i64>> {
        if owner == self.me {
            return None;
        }
        if !self.steps.has(Step::DeadFirst) {
            let silent = self.others.find(owner).filter(|seen| seen.silent_at_ns.is_some());
            if let Some(seen) = silent {
                return Some(Some(seen.row.ts_limit_us));
            }
        }
        self.others.limit_of_dead(owner)
    }

    fn take_over(&mut self, now_ns: u64, wall_us: i64) -> Option<ViewChange> {
        let claim = self.claim(wall_us);
        let row = self.fleet.as_ref()?;
        let Some(claim) = claim else {
            self.claim_since = None;
            return None;
        };
        let since = self
            .claim_since
            .filter(|(epoch, _)| *epoch == row.epoch)
            .unwrap_or((row.epoch, now_ns));
        self.claim_since = Some(since);
        let since_ns = since.1;
        if !claim.at_once && now_ns < since_ns.saturating_add(self.turn_ns(now_ns)) {
            return None;
        }
        let mut receivers = self.others.receivers(self.me, now_ns, &self.times);
        receivers.retain(|other| !self.host_dead.contains(other));
        receivers.push(self.me);
        receivers.sort();
        let mut change = unchanged(row);
        let mut handed_over = row.handed_over;
        for (shard, to) in plan::spread(&row.view, claim.shards, &receivers) {
            change.view.give(shard, Some(to));
            if claim.of_dead.contains(shard) {
                handed_over.set(shard, false);
            }
        }
        change.handed_over = handed_over.bits();
        change.ts_floor_us = claim.ts_floor_us;
        Some(change)
    }

    /// The newest format that all live members know, if it is newer than the fleet's. A member that
    /// joins meanwhile without knowing it has no shards yet: a view that gave it some would have
    /// another epoch, and it reads the new format before it gets any. An owner whose row has not
    /// been read yet may be such a member.
    fn raised_format(&self, now_ns: u64) -> Option<ViewChange> {
        let row = self.fleet.as_ref()?;
        let live = self.others.all().filter(|seen| seen.row.state == State::Live);
        let mut known = live.map(|seen| seen.row.format).min()?.min(*self.config.formats.end());
        if !self.steps.has(Step::AllKnowFormat) {
            known = *self.config.formats.end();
        } else if row.view.owned().any(|(_, owner)| self.others.find(owner).is_none()) {
            return None;
        }
        let settled = self
            .shards_where(|holding| !matches!(holding, Holding::Mine | Holding::Foreign))
            .is_empty();
        let first = self.turn_ns(now_ns) == 0;
        if known <= row.format || !settled || !first || self.others.has_unreadable() {
            return None;
        }
        Some(ViewChange { format: known, ..unchanged(row) })
    }

    /// True if the view is about to change, as far as this member can see, and should be read
    /// often: for two leases at most, then not until its observations change.
    fn watches(&mut self, now_ns: u64) -> bool {
        let Some(row) = &self.fleet else { return true };
        if self.phase == Phase::Checking {
            return false;
        }
        let members = self.others.receivers(self.me, now_ns, &self.times).len() + 1;
        let mine = row.view.shards_of(self.me).len();
        let expects = self.phase == Phase::Live && mine < crate::ids::SHARDS / members;
        let nobodys = row.view.owned().count() < crate::ids::SHARDS;
        let goes = |owner: Incarnation| {
            self.others.find(owner).is_none_or(|seen| {
                seen.row.state != State::Live || seen.row.leaving || seen.silent_at_ns.is_some()
            })
        };
        let others_go = row.view.owned().any(|(_, owner)| owner != self.me && goes(owner));
        let bits = u64::from(expects) | u64::from(nobodys) << 1 | u64::from(others_go) << 2;
        if bits == 0 {
            self.watched = (0, 0);
            return false;
        }
        let seen = bits | (members as u64) << 3 | row.epoch.cast_unsigned() << 10;
        if seen != self.watched.0 {
            self.watched = (seen, now_ns.saturating_add(2 * self.times.lease_ns));
        }
        now_ns < self.watched.1
    }
}
