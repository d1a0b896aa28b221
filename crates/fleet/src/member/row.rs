//! A member's own row: joining, renewing the lease, leaving.
//!
//! Each beat is written once, by the one of its attempts that was applied; the condition refuses
//! all others. So reading the row settles an attempt of unknown fate, and if the beat has risen,
//! the lease counts from the first attempt.

use crate::answer::{MemberRow, Outcome, State};
use crate::columns::TIMESTAMP_MAX_US;
use crate::lane::Flight;
use crate::output::{End, Output, Sink};
use crate::refusal::Refusal;
use crate::statement::Statement;
use crate::weakened::Step;

use super::{Member, Phase};

/// Knowledge of the own row.
#[derive(Debug, Default)]
pub(super) struct OwnRow {
    /// Beat in the row; `None` before the row certainly exists.
    pub(super) beat: Option<i64>,
    /// Time at which the statement that wrote this beat, or an earlier one, was sent.
    began_ns: u64,
    /// End of the lease on this clock; 0 is no lease.
    pub(super) valid_until_ns: u64,
    /// Limit of tokens in the row, in microseconds.
    pub(super) ts_limit_us: i64,
    /// Time at which the first attempt to write the next beat was sent.
    attempts_since_ns: Option<u64>,
    /// An attempt is of unknown fate: read the row before the next.
    read_back: bool,
    /// Renew now.
    pub(super) renew_now: bool,
    /// Time since which the row says that this member is leaving.
    pub(super) leaving_since_ns: Option<u64>,
}

impl Member {
    /// Time of the next write or read of the own row, if nothing happens before.
    pub(super) fn own_due_ns(&self) -> u64 {
        match self.phase {
            Phase::Checking | Phase::Ended => u64::MAX,
            Phase::Live | Phase::Leaving if !self.own.read_back => {
                let soon = self.own.renew_now || self.leaving_is_untold();
                let after_ns = if soon { self.times.watch_ns } else { self.times.renew_ns };
                self.own.began_ns.saturating_add(after_ns)
            }
            _ => 0,
        }
    }

    fn leaving_is_untold(&self) -> bool {
        self.phase == Phase::Leaving && self.own.leaving_since_ns.is_none()
    }

    pub(super) fn step_own(&mut self, now_ns: u64, wall_us: i64, sink: &mut dyn Sink) {
        if self.phase == Phase::Checking {
            self.try_to_join(sink);
        }
        self.want_higher_limit(wall_us);
        self.close(now_ns);
        if self.phase == Phase::Ended
            || !self.own_lane.is_free(now_ns)
            || now_ns < self.own_due_ns()
        {
            return;
        }
        let statement = self.own_statement(wall_us);
        if statement.is_conditional() && self.phase != Phase::Closing {
            self.own.attempts_since_ns.get_or_insert(now_ns);
        }
        let id = self.next_statement();
        self.own_lane.send(id, statement, now_ns, self.times.deadline_ns, sink);
    }

    fn own_statement(&mut self, wall_us: i64) -> Statement {
        let incarnation = self.me;
        if self.own.read_back {
            return Statement::ReadMember(incarnation);
        }
        let ts_limit_us = self.next_limit_us(wall_us);
        match self.own.beat {
            None => {
                let (address, format) = (self.config.address.clone(), *self.config.formats.end());
                Statement::Join { incarnation, address, ts_limit_us, format }
            }
            Some(beat_seen) if self.phase == Phase::Closing => {
                Statement::Leave { incarnation, beat_seen }
            }
            Some(beat_seen) => {
                self.own.renew_now = false;
                let leaving = self.phase == Phase::Leaving;
                Statement::Renew { incarnation, beat_seen, ts_limit_us, leaving }
            }
        }
    }

    /// Limit for the next lease: above all that tokens can reach before it ends, and never below
    /// the present one, up to which a core may have granted.
    fn next_limit_us(&self, wall_us: i64) -> i64 {
        let floor_us = self.fleet.as_ref().map_or(0, |row| row.ts_floor_us);
        let reached_us = wall_us.max(floor_us).max(self.last_token_us);
        let next_us = reached_us.saturating_add(self.times.headroom_us).clamp(1, TIMESTAMP_MAX_US);
        if self.steps.has(Step::LimitNeverFalls) {
            next_us.max(self.own.ts_limit_us)
        } else {
            next_us
        }
    }

    /// Starts closing the membership once nothing is left to hand over.
    fn close(&mut self, now_ns: u64) {
        if self.phase == Phase::Leaving && self.has_told_leaving(now_ns) && self.owns_nothing() {
            self.phase = Phase::Closing;
        }
    }

    /// True once the others have had time to see that this member is leaving: they give it no
    /// shards, and expect to get its own.
    pub(super) fn has_told_leaving(&self, now_ns: u64) -> bool {
        let since_ns = self.own.leaving_since_ns;
        since_ns.is_some_and(|since_ns| now_ns >= since_ns.saturating_add(2 * self.times.poll_ns))
    }

    /// Renews early if tokens come near the limit: the wall clock leapt, the floor was raised, or
    /// there are more grants than microseconds.
    fn want_higher_limit(&mut self, wall_us: i64) {
        let floor_us = self.fleet.as_ref().map_or(0, |row| row.ts_floor_us);
        let reached_us = wall_us.max(floor_us).max(self.last_token_us);
        let room_us = self.own.ts_limit_us.saturating_sub(reached_us);
        self.own.renew_now |=
            room_us < self.times.headroom_us / 2 && self.own.ts_limit_us < TIMESTAMP_MAX_US;
    }

    /// Joins, or ends with a refusal, once all rows have been read.
    fn try_to_join(&mut self, sink: &mut dyn Sink) {
        let Some(row) = self.fleet.as_ref().filter(|_| self.others.was_read) else { return };
        let members: Vec<&MemberRow> = self.others.all().map(|seen| &seen.row).collect();
        match self.config.fits(row).and_then(|()| self.config.has_room(&members)) {
            Ok(()) => self.phase = Phase::Joining,
            Err(refusal) => self.end(End::Refused(refusal), sink),
        }
    }

    pub(super) fn own_outcome(
        &mut self,
        flight: Flight,
        outcome: Outcome,
        now_ns: u64,
        sink: &mut dyn Sink,
    ) {
        let failed =
            matches!(outcome, Outcome::Timeout | Outcome::Failed(_) | Outcome::Unreadable(_));
        if failed {
            self.own_lane.failed(now_ns, self.times.deadline_ns);
        } else {
            self.own_lane.succeeded();
        }
        match (&flight.statement, outcome) {
            (Statement::ReadMember(_), Outcome::Member(row)) => {
                self.read_back(row.as_deref(), sink)
            }
            (Statement::ReadMember(_), _) => {}
            (Statement::Join { ts_limit_us, .. }, Outcome::Applied) => {
                self.renewed(0, *ts_limit_us, self.begins_ns(&flight, now_ns), sink);
            }
            (Statement::Renew { beat_seen, ts_limit_us, leaving, .. }, Outcome::Applied) => {
                if *leaving {
                    self.own.leaving_since_ns.get_or_insert(now_ns);
                }
                self.renewed(beat_seen + 1, *ts_limit_us, self.begins_ns(&flight, now_ns), sink);
            }
            (Statement::Leave { .. }, Outcome::Applied) => self.end(End::Left, sink),
            (Statement::Renew { ts_limit_us, .. }, Outcome::Timeout)
                if !self.steps.has(Step::ReadBack) =>
            {
                self.own.read_back = true;
                self.set_lease(*ts_limit_us, flight.sent_ns, sink);
            }
            _ => self.own.read_back = true,
        }
    }

    fn begins_ns(&self, flight: &Flight, now_ns: u64) -> u64 {
        if self.steps.has(Step::BeginsBeforeSend) { flight.sent_ns } else { now_ns }
    }

    /// Takes the row after an attempt of unknown fate. A member that has not joined may find no
    /// row, and tries again.
    fn read_back(&mut self, row: Option<&MemberRow>, sink: &mut dyn Sink) {
        self.own.read_back = false;
        let next = self.own.beat.map_or(0, |beat| beat.saturating_add(1));
        match row {
            None if self.own.beat.is_none() => {}
            Some(row) if row.state == State::Live && row.beat == next => {
                let began_ns = self.own.attempts_since_ns.unwrap_or(self.own.began_ns);
                if row.leaving && self.phase == Phase::Leaving {
                    self.own.leaving_since_ns.get_or_insert(began_ns);
                }
                self.renewed(next, row.ts_limit_us, began_ns, sink);
                self.look_if_told_to_leave(row, sink);
            }
            Some(row) if row.state == State::Live && Some(row.beat) == self.own.beat => {
                self.look_if_told_to_leave(row, sink);
            }
            _ if self.phase == Phase::Closing => self.end(End::Left, sink),
            _ => self.end(End::Dead, sink),
        }
    }

    fn renewed(&mut self, beat: i64, ts_limit_us: i64, began_ns: u64, sink: &mut dyn Sink) {
        self.own.beat = Some(beat);
        self.own.attempts_since_ns = None;
        if self.phase == Phase::Joining {
            self.phase = Phase::Live;
        }
        self.set_lease(ts_limit_us, began_ns, sink);
    }

    fn set_lease(&mut self, ts_limit_us: i64, began_ns: u64, sink: &mut dyn Sink) {
        let valid_ns =
            if self.steps.has(Step::Margin) { self.times.valid_ns } else { self.times.lease_ns };
        self.own.began_ns = began_ns;
        self.own.valid_until_ns = began_ns.saturating_add(valid_ns);
        self.own.ts_limit_us = ts_limit_us;
        self.post_lease(sink);
    }

    /// Takes the own row from a read of all rows. A death in it is certain; a missing row may be
    /// due to an old read, unless the read was linearizable.
    pub(super) fn own_row_seen(
        &mut self,
        row: Option<&MemberRow>,
        serial: bool,
        sink: &mut dyn Sink,
    ) {
        if matches!(self.phase, Phase::Checking | Phase::Closing | Phase::Ended) {
            return;
        }
        match row {
            Some(row) if row.state != State::Live => self.end(End::Dead, sink),
            Some(row) => self.look_if_told_to_leave(row, sink),
            None if serial && self.own.beat.is_some() => self.end(End::Dead, sink),
            _ => {}
        }
    }

    /// Leaves if an operator has written into the row that this member should.
    fn look_if_told_to_leave(&mut self, row: &MemberRow, sink: &mut dyn Sink) {
        if row.leaving && self.phase == Phase::Live {
            self.phase = Phase::Leaving;
            sink.put(Output::ToldToLeave);
        }
    }

    /// Ends the membership because the fleet's row does not allow it.
    pub(super) fn refuse(&mut self, refusal: Refusal, sink: &mut dyn Sink) {
        self.end(End::Refused(refusal), sink);
    }
}
