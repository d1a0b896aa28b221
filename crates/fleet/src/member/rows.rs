//! The rows of all members: reading them, and declaring dead, sealing and purging others.

use std::collections::BTreeSet;

use crate::answer::{Outcome, State};
use crate::ids::Incarnation;
use crate::lane::Flight;
use crate::observations::{Seen, Snapshot};
use crate::output::{Alarm, Event, Output, Sink};
use crate::statement::Statement;

use super::{Member, Phase};

/// Rows of sealed members that are kept for later inspection.
const SEALED_KEPT: usize = 8;

impl Member {
    pub(super) fn step_rows(&mut self, now_ns: u64, sink: &mut dyn Sink) {
        if self.phase == Phase::Ended || !self.rows_lane.is_free(now_ns) {
            return;
        }
        if self.rows_read.serial {
            return self.read_rows(true, now_ns, sink);
        }
        if self.may_act(now_ns)
            && let Some(statement) = self.wanted_of_others(now_ns, sink)
        {
            let id = self.next_statement();
            return self.rows_lane.send(id, statement, now_ns, self.times.deadline_ns, sink);
        }
        if now_ns >= self.rows_read.due_ns() {
            self.read_rows(false, now_ns, sink);
        }
    }

    fn read_rows(&mut self, serial: bool, now_ns: u64, sink: &mut dyn Sink) {
        self.rows_read.sent_ns = Some(now_ns);
        let id = self.next_statement();
        self.rows_lane.send(
            id,
            Statement::ReadMembers { serial },
            now_ns,
            self.times.deadline_ns,
            sink,
        );
    }

    pub(super) fn rows_outcome(
        &mut self,
        flight: Flight,
        outcome: Outcome,
        now_ns: u64,
        sink: &mut dyn Sink,
    ) {
        let failed =
            matches!(outcome, Outcome::Timeout | Outcome::Failed(_) | Outcome::Unreadable(_));
        if failed {
            self.rows_lane.failed(now_ns, self.times.deadline_ns);
        } else {
            self.rows_lane.succeeded();
        }
        match (&flight.statement, outcome) {
            (Statement::ReadMembers { serial }, Outcome::Members { rows, unreadable }) => {
                self.rows_read.serial &= !serial;
                let own = rows.iter().find(|row| row.incarnation == self.me);
                let unreadable: BTreeSet<Incarnation> =
                    unreadable.into_iter().map(|(incarnation, _)| incarnation).collect();
                // An invalid row is not a missing one.
                let is_there = !serial || unreadable.contains(&self.me);
                self.own_row_seen(own, !is_there, sink);
                let (serial, sent_ns) = (*serial, flight.sent_ns);
                let snapshot = Snapshot { rows, unreadable, serial, sent_ns, now_ns };
                self.rows_read.serial |= self.others.take(snapshot, &self.times);
                self.note_missing(serial, sent_ns, now_ns, sink);
            }
            (Statement::ReadMembers { .. }, _) => {}
            (Statement::DeclareDead { incarnation, .. }, Outcome::Applied) => {
                self.others.set_state(*incarnation, State::Dead, now_ns);
                let incarnation = *incarnation;
                let address = self.others.address(incarnation).unwrap_or_default().to_owned();
                let shards =
                    self.fleet.as_ref().map_or(0, |row| row.view.shards_of(incarnation).len());
                sink.put(Output::Event(Event::DeclaredDead { incarnation, address, shards }));
            }
            (Statement::Seal(incarnation), Outcome::Applied) => {
                self.others.set_state(*incarnation, State::Sealed, now_ns);
                self.host_dead.remove(incarnation);
                sink.put(Output::Event(Event::Sealed(*incarnation)));
            }
            (Statement::Purge(incarnation), Outcome::Applied) => self.others.remove(*incarnation),
            _ => self.rows_read.serial = true,
        }
    }

    fn note_missing(&mut self, serial: bool, sent_ns: u64, now_ns: u64, sink: &mut dyn Sink) {
        let Some(row) = &self.fleet else { return };
        let absent = self.others.note_missing(&row.view, serial, sent_ns, now_ns, &self.times);
        self.rows_read.serial |= absent.read_wanted;
        for incarnation in absent.confirmed {
            sink.put(Output::Alarm(Alarm::MissingMember(incarnation)));
        }
    }

    /// Dead members whose work may not all be done, and that own nothing any more or soon will not.
    pub(super) fn unsealed(&self) -> impl Iterator<Item = &Seen> {
        self.others.all().filter(|seen| seen.row.state == State::Dead)
    }

    /// The next statement about other members, one at a time.
    fn wanted_of_others(&mut self, now_ns: u64, sink: &mut dyn Sink) -> Option<Statement> {
        let turn_ns = self.turn_ns(now_ns);
        let dead = self.others.all().find(|seen| {
            let is_it = seen.row.state == State::Live && seen.row.incarnation != self.me;
            let my_turn =
                seen.silent_at_ns.is_some_and(|at_ns| now_ns >= at_ns.saturating_add(turn_ns));
            is_it && (my_turn || self.host_dead.contains(&seen.row.incarnation))
        });
        if let Some(seen) = dead {
            return Some(Statement::DeclareDead {
                incarnation: seen.row.incarnation,
                beat_seen: seen.row.beat,
            });
        }
        self.wanted_seal(now_ns, turn_ns, sink).or_else(|| self.wanted_purge(turn_ns))
    }

    fn owns_shards(&self, incarnation: Incarnation) -> bool {
        self.fleet
            .as_ref()
            .is_none_or(|row| row.view.owned().any(|(_, owner)| owner == incarnation))
    }

    /// Seals a dead member that owns nothing, once its unfinished work is done.
    fn wanted_seal(&mut self, now_ns: u64, turn_ns: u64, sink: &mut dyn Sink) -> Option<Statement> {
        let mine = |seen: &&Seen| now_ns >= seen.state_since_ns.saturating_add(turn_ns);
        let ready: Vec<Incarnation> =
            self.unsealed().filter(mine).map(|seen| seen.row.incarnation).collect();
        for incarnation in
            ready.into_iter().filter(|dead| !self.owns_shards(*dead)).collect::<Vec<_>>()
        {
            let seen = self.others.find_mut(incarnation)?;
            if !self.config.redo || seen.redone {
                return Some(Statement::Seal(incarnation));
            }
            if !seen.redo_asked {
                seen.redo_asked = true;
                sink.put(Output::Redo(incarnation));
            }
        }
        None
    }

    /// Removes the sealed member with the lowest limit of tokens, the oldest, if there are too
    /// many.
    fn wanted_purge(&self, turn_ns: u64) -> Option<Statement> {
        let sealed = self.others.all().filter(|seen| seen.row.state == State::Sealed);
        let sealed: Vec<&Seen> =
            sealed.filter(|seen| !self.owns_shards(seen.row.incarnation)).collect();
        if turn_ns > 0 || sealed.len() <= SEALED_KEPT {
            return None;
        }
        let oldest =
            sealed.into_iter().min_by_key(|seen| (seen.row.ts_limit_us, seen.row.incarnation))?;
        Some(Statement::Purge(oldest.row.incarnation))
    }
}
