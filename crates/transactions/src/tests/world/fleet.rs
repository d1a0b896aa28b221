//! Members of the fleet: they renew their leases, declare each other dead, take the shard of a dead
//! one over, and give it away.

use super::*;

impl World {
    pub(super) fn join(&mut self) -> usize {
        self.members.push(Member { is_live: true, beat: 0, ts_limit_us: 0 });
        self.members.len() - 1
    }

    pub(super) fn host(&mut self, member: usize, wall_offset_us: i64) -> Host {
        let mut engine = Transactions::new(Limits {
            transactions: 64,
            transactions_of_shard: 48,
            told_early: 4,
            ..Limits::default()
        });
        engine.without = self.weak.member;
        self.processes += 1;
        Host {
            process: self.processes,
            member,
            engine,
            bodies: HashMap::new(),
            places: HashMap::new(),
            wall_offset_us,
            stopped_until_ms: 0,
            cut_until_ms: 0,
            seen: (usize::MAX, 0, 0),
            gained: None,
            gaining: None,
            closing_until_ms: None,
            opening: None,
            redo: HashMap::new(),
        }
    }

    pub(super) fn start(&mut self, host: usize) {
        let member = self.hosts[host].member;
        self.later(host, 1, At::Renew { member });
        self.later(host, 50, At::Watch);
        self.later(host, 20, At::Tick);
    }

    /// The process is gone with all it knew, and another begins in its place, which knows that the
    /// former is dead.
    pub(super) fn restart(&mut self, host: usize) {
        self.declare_dead(self.hosts[host].member);
        let member = self.join();
        let offset = self.hosts[host].wall_offset_us;
        self.hosts[host] = self.host(member, offset);
        self.start(host);
    }

    /// The process goes on with a membership of its own, in the place of one that is over.
    pub(super) fn rejoin(&mut self, host: usize) {
        self.declare_dead(self.hosts[host].member);
        self.lose(host);
        let mut said = Said::default();
        let (now, lease) = (self.now(host), Lease::default());
        self.hosts[host].engine.set_lease(now, lease, &mut said);
        self.carry_out(host, said);
        let member = self.join();
        (self.hosts[host].member, self.hosts[host].gaining) = (member, None);
        self.seen.rejoined += 1;
        self.later(host, 1, At::Renew { member });
    }

    pub(super) fn lose(&mut self, host: usize) {
        let (at, mut said) = (&mut self.hosts[host], Said::default());
        (at.gained, at.opening, at.closing_until_ms) = (None, None, None);
        at.redo.clear();
        at.engine.lose(0, &mut said);
        self.carry_out(host, said);
    }

    /// The member is about to give the shard away, if it has it.
    pub(super) fn close(&mut self, host: usize) {
        let (at, mut said) = (&mut self.hosts[host], Said::default());
        if at.gained.is_some() {
            at.closing_until_ms = Some(self.now_ms + 1_000);
            at.engine.close(0, &mut said);
        }
        self.carry_out(host, said);
    }

    pub(super) fn declare_dead(&mut self, member: usize) {
        let row = &mut self.members[member];
        if row.is_live {
            row.is_live = false;
            self.floor_us = self.floor_us.max(row.ts_limit_us);
        }
    }

    pub(super) fn renew(&mut self, host: usize, member: usize, now: Now) {
        if member != self.hosts[host].member {
            return;
        }
        let cut_ms = self.hosts[host].cut_until_ms.saturating_sub(self.now_ms);
        if cut_ms > 0 && !self.is_quiet {
            return self.later(host, cut_ms, At::Renew { member });
        }
        let owned_us = self.hosts[host].engine.last_timestamp_us(0);
        let ts_limit_us = now.wall_us.max(owned_us).max(self.floor_us) + 2_000 * LEASE_MS as i64;
        let row = &mut self.members[member];
        let applied = row.is_live;
        if applied {
            row.beat += 1;
            row.ts_limit_us = row.ts_limit_us.max(ts_limit_us);
        }
        let deaf_ms = if !applied && self.temper.is_deaf {
            self.random.below(2_000)
        } else {
            self.random.below(60)
        };
        // At rest nobody is taken for dead any more.
        let after_ms = if self.is_quiet { 1 } else { self.delay() + deaf_ms };
        self.later(
            host,
            after_ms,
            At::Renewed { member, sent_ms: self.now_ms, applied, ts_limit_us },
        );
    }

    /// Looks at the view: who has the shard, and whether that one lives.
    pub(super) fn watch(&mut self, host: usize) {
        let (me, view) = (self.hosts[host].member, self.view);
        let is_mine = view.owner == Some(me);
        if self.hosts[host].gained.is_some_and(|epoch| !is_mine || epoch != view.epoch)
            && self.random.one_in(if self.temper.is_deaf { 40 } else { 4 })
        {
            self.lose(host);
        }
        if !self.members[me].is_live {
            return;
        }
        if is_mine {
            let is_known = self.hosts[host].gained == Some(view.epoch)
                || self.hosts[host].gaining == Some(view.epoch);
            return if is_known { self.give_away(host) } else { self.begin_gain(host) };
        }
        if let Some(owner) = view.owner.filter(|owner| self.members[*owner].is_live) {
            let (beat, seen) = (self.members[owner].beat, &mut self.hosts[host].seen);
            if (seen.0, seen.1) != (owner, beat) {
                *seen = (owner, beat, self.now_ms);
            } else if self.now_ms - seen.2 > LEASE_MS * 101 / 100 {
                self.declare_dead(owner);
            }
            return;
        }
        self.view = View { owner: Some(me), epoch: view.epoch + 1 };
        self.seen.take_overs += 1;
        self.begin_gain(host);
    }

    /// The view names this member; it hears of it a little later.
    fn begin_gain(&mut self, host: usize) {
        let (member, epoch) = (self.hosts[host].member, self.view.epoch);
        let floor_us = if self.weak.around == Some(Around::Floor) { 0 } else { self.floor_us };
        self.hosts[host].gaining = Some(epoch);
        let after_ms = self.delay();
        self.later(host, after_ms, At::Gain { member, epoch, floor_us });
        self.stalls(host, 5);
    }

    /// A closed shard is given away as soon as nothing is under way, or kept after all.
    fn give_away(&mut self, host: usize) {
        let Some(until_ms) = self.hosts[host].closing_until_ms else { return };
        let (me, epoch) = (self.hosts[host].member, self.view.epoch);
        let to = (1..HOSTS)
            .map(|step| self.hosts[(host + step) % HOSTS].member)
            .find(|to| self.members[*to].is_live);
        if let Some(to) = to.filter(|_| self.hosts[host].engine.is_idle(0)) {
            let last_us = self.hosts[host].engine.last_timestamp_us(0);
            self.floor_us = self.floor_us.max(self.members[me].ts_limit_us).max(last_us);
            self.view = View { owner: Some(to), epoch: epoch + 1 };
            self.seen.given += 1;
            let after_ms = self.delay();
            self.later(host, after_ms, At::Given { epoch });
        } else if until_ms <= self.now_ms {
            self.hosts[host].closing_until_ms = None;
            self.hosts[host].engine.reopen(0);
        }
    }
}
