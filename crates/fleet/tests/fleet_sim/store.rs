//! The fleet's rows, in a store that carries statements out one after the other.

use std::collections::BTreeMap;

use shunt_fleet::schema::FORMAT;
use shunt_fleet::{
    FleetRow, Incarnation, Level, MemberRow, Outcome, Shards, State, Statement, View,
};

pub(crate) struct Store {
    pub(crate) fleet: FleetRow,
    members: BTreeMap<Incarnation, MemberRow>,
    /// Changes of the view.
    pub(crate) changes: u64,
}

impl Store {
    pub(crate) fn new(lease_ms: i32, max_ttl_ms: i32) -> Self {
        let fleet = FleetRow {
            format: FORMAT,
            level: Level::Serial,
            datacentre: String::new(),
            max_ttl_ms,
            lease_ms,
            epoch: 0,
            view: View::default(),
            ts_floor_us: 0,
            handed_over: Shards::ALL,
        };
        Self { fleet, members: BTreeMap::new(), changes: 0 }
    }

    /// Carries a statement out now.
    pub(crate) fn apply(&mut self, statement: &Statement) -> Outcome {
        let applied = match statement {
            Statement::ReadFleet { .. } => {
                return Outcome::Fleet(Some(Box::new(self.fleet.clone())));
            }
            Statement::ReadMembers { .. } => {
                return Outcome::Members {
                    rows: self.members.values().cloned().collect(),
                    unreadable: Vec::new(),
                };
            }
            Statement::ReadMember(who) => {
                return Outcome::Member(self.members.get(who).cloned().map(Box::new));
            }
            Statement::Found(_) => false,
            Statement::Join { incarnation, address, ts_limit_us, format } => {
                let row = MemberRow {
                    incarnation: *incarnation,
                    address: address.clone(),
                    state: State::Live,
                    beat: 0,
                    ts_limit_us: *ts_limit_us,
                    format: *format,
                    leaving: false,
                };
                let free = !self.members.contains_key(incarnation);
                self.members.entry(*incarnation).or_insert(row);
                free
            }
            Statement::Renew { incarnation, beat_seen, ts_limit_us, leaving } => {
                self.live(*incarnation, *beat_seen).is_some_and(|row| {
                    (row.beat, row.ts_limit_us) = (beat_seen + 1, *ts_limit_us);
                    row.leaving |= *leaving;
                    true
                })
            }
            Statement::DeclareDead { incarnation, beat_seen } => {
                self.ends(*incarnation, *beat_seen, State::Dead)
            }
            Statement::Leave { incarnation, beat_seen } => {
                self.ends(*incarnation, *beat_seen, State::Sealed)
            }
            Statement::TellToLeave(who) => {
                let live = self.members.get_mut(who).filter(|row| row.state == State::Live);
                live.is_some_and(|row| {
                    row.leaving = true;
                    true
                })
            }
            Statement::Seal(who) => {
                let dead = self.members.get_mut(who).filter(|row| row.state == State::Dead);
                dead.is_some_and(|row| {
                    row.state = State::Sealed;
                    true
                })
            }
            Statement::Purge(who) => {
                let sealed = self.members.get(who).is_some_and(|row| row.state == State::Sealed);
                sealed && self.members.remove(who).is_some()
            }
            Statement::ChangeView(change) => {
                let stands = self.fleet.epoch == change.epoch_seen;
                if stands {
                    self.changes += 1;
                    self.fleet.epoch += 1;
                    self.fleet.view = change.view.clone();
                    self.fleet.ts_floor_us = change.ts_floor_us;
                    self.fleet.handed_over = Shards::from_bits(change.handed_over);
                    self.fleet.format = change.format;
                }
                stands
            }
        };
        if applied { Outcome::Applied } else { Outcome::NotApplied }
    }

    fn live(&mut self, who: Incarnation, beat: i64) -> Option<&mut MemberRow> {
        self.members.get_mut(&who).filter(|row| row.state == State::Live && row.beat == beat)
    }

    fn ends(&mut self, who: Incarnation, beat: i64, state: State) -> bool {
        self.live(who, beat).is_some_and(|row| {
            row.state = state;
            row.leaving &= state != State::Dead;
            true
        })
    }
}
