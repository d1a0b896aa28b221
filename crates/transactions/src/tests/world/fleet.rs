//! Members of the fleet: they renew their leases, declare each other dead, and recover what a dead one has left undone.

use super::*;

impl World {
    pub(super) fn join(&mut self) -> usize {
        self.members.push(Member { state: State::Live, beat: 0, ts_limit_us: 0 });
        self.members.len() - 1
    }

    pub(super) fn host(&self, member: usize, wall_offset_us: i64) -> Host {
        let mut engine = Transactions::new(Limits { transactions: 64, ..Limits::default() });
        engine.without = self.weak.member;
        Host {
            member,
            engine,
            bodies: HashMap::new(),
            wall_offset_us,
            stopped_until_ms: 0,
            seen: (usize::MAX, 0, 0),
            recovering: None,
            valid_until_ns: 0,
        }
    }

    pub(super) fn start(&mut self, host: usize) {
        self.later(host, 1, At::Renew);
        self.later(host, 50, At::Watch);
        self.later(host, 20, At::Tick);
    }

    /// The process is gone with all it knew, and another begins in its place, which knows that the former is dead.
    pub(super) fn restart(&mut self, host: usize) {
        self.declare_dead(self.hosts[host].member);
        let member = self.join();
        let offset = self.hosts[host].wall_offset_us;
        self.hosts[host] = self.host(member, offset);
        self.start(host);
    }

    pub(super) fn declare_dead(&mut self, member: usize) {
        let row = &mut self.members[member];
        if row.state == State::Live {
            row.state = State::Dead;
            self.floor_us = self.floor_us.max(row.ts_limit_us);
        }
    }

    pub(super) fn renew(&mut self, host: usize, now: Now) {
        let owned_us = self.hosts[host].engine.last_timestamp_us(0);
        let ts_limit_us = now.wall_us.max(owned_us).max(self.floor_us) + 2_000 * LEASE_MS as i64;
        let after_ms = self.delay();
        let member = self.hosts[host].member;
        let row = &mut self.members[member];
        let applied = row.state == State::Live;
        if applied {
            row.beat += 1;
            row.ts_limit_us = row.ts_limit_us.max(ts_limit_us);
        }
        self.later(host, after_ms, At::Renewed { sent_ms: self.now_ms, applied, ts_limit_us });
    }

    /// Looks if the shard's owner lives, and takes the shard over if not.
    pub(super) fn watch(&mut self, host: usize) {
        let me = self.hosts[host].member;
        if self.members[me].state != State::Live || self.hosts[host].recovering.is_some() {
            return;
        }
        if let Some(owner) = self.owner.filter(|owner| *owner != me && self.members[*owner].state == State::Live) {
            let (beat, seen) = (self.members[owner].beat, &mut self.hosts[host].seen);
            if (seen.0, seen.1) != (owner, beat) {
                *seen = (owner, beat, self.now_ms);
            } else if self.now_ms - seen.2 > LEASE_MS * 101 / 100 {
                self.declare_dead(owner);
            }
            return;
        }
        if self.owner == Some(me) && self.next_dead().is_none() {
            return;
        }
        if self.owner != Some(me) {
            self.owner = Some(me);
            self.take_overs += 1;
            // What they wrote late is found by this recovery, and believed.
            for member in self.members.iter_mut().filter(|member| self.weak.no_seal && member.state == State::Sealed) {
                member.state = State::Dead;
            }
        }
        self.recover_next(host);
    }

    pub(super) fn next_dead(&self) -> Option<usize> {
        self.members.iter().position(|member| member.state == State::Dead)
    }

    /// Begins with the next dead member, or serves the shard when there is none left.
    pub(super) fn recover_next(&mut self, host: usize) {
        let me = self.hosts[host].member;
        if self.owner != Some(me) || self.members[me].state != State::Live {
            return;
        }
        match self.next_dead().filter(|_| !self.weak.no_recovery) {
            Some(dead) => {
                let mut wanted = Wanted::default();
                let recovery = Recovery::begin([(0, Position(0))], &mut wanted);
                self.hosts[host].recovering = Some((dead, recovery));
                self.want(host, dead, wanted);
            }
            None => {
                for member in &mut self.members {
                    if member.state == State::Dead {
                        member.state = State::Sealed;
                    }
                }
                let floor_us = if self.weak.no_floor { 0 } else { self.floor_us };
                self.hosts[host].engine.gain(0, floor_us);
            }
        }
    }

    pub(super) fn recover(&mut self, host: usize, step: impl FnOnce(&mut Recovery, &mut Wanted)) {
        let Some((dead, mut recovery)) = self.hosts[host].recovering.take() else { return };
        let mut wanted = Wanted::default();
        step(&mut recovery, &mut wanted);
        if !recovery.is_done() {
            if self.stalls_in_recovery && !self.is_quiet && self.random.one_in(8) {
                self.hosts[host].stopped_until_ms = self.now_ms + self.random.below(2_500);
            }
            self.hosts[host].recovering = Some((dead, recovery));
            return self.want(host, dead, wanted);
        }
        self.members[dead].state = State::Sealed;
        self.recover_next(host);
    }

    pub(super) fn want(&mut self, host: usize, dead: usize, wanted: Wanted) {
        for bucket in wanted.reads {
            let (member, left) = (self.hosts[host].member, self.quorum());
            let after_ms = self.delay();
            self.at(after_ms, Event::LogAt { host, member, dead, bucket, left, found: BTreeMap::new() });
        }
        for place in wanted.appends {
            let key = (dead, place.position);
            let (after_ms, written) = match self.weak.no_rewriting {
                true => (0, Written::Acknowledged),
                false => self.write(Mutation::Record(key, self.redo[&key].clone())),
            };
            self.later(host, after_ms, At::Rewritten { dead, place, written });
        }
        for (place, write) in wanted.applies {
            let (key, value) = self.redo[&(dead, place.position)][usize::from(write)];
            let (after_ms, written) = self.write(Mutation::Register(key, value));
            self.later(host, after_ms, At::Redone { dead, place, write, written });
        }
    }

    pub(super) fn log_read(
        &mut self,
        host: usize,
        now: Now,
        dead: usize,
        bucket: u64,
        records: Option<Vec<(Position, Writes)>>,
    ) {
        if self.hosts[host].recovering.as_ref().is_none_or(|(of, _)| *of != dead) {
            return;
        }
        if self.random.one_in(10) {
            return self.recover(host, |recovery, _| recovery.failed(now, 0));
        }
        let records = records.unwrap_or_default();
        let found: Vec<Found> = records
            .iter()
            .map(|(position, writes)| Found { position: *position, writes: writes.len() as u16 })
            .collect();
        self.redo.extend(records.into_iter().map(|(position, writes)| ((dead, position), writes)));
        self.recover(host, |recovery, wanted| recovery.read(0, bucket, &found, wanted));
    }
}
