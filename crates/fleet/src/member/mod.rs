//! One proxy's part in the fleet: its own lease, the view, and the handling of silent members.
//!
//! Inputs are times, outcomes of statements and reports of the cores; outputs go to a [`Sink`].
//! Three lanes have at most one statement in flight each: `own` renews this member's lease, `fleet`
//! reads and changes the view, `rows` reads all members and declares dead, seals and purges others.
//! Three invariants hold:
//!
//! - A lease is valid only from before the sending of a renewal that was certainly applied. A
//!   member that renewed cannot be declared dead, because the condition names the beat; a member
//!   declared dead cannot renew, because the condition names the state.
//! - A shard leaves a live owner only by its own change of the view, after its core reported it
//!   drained. Until an epoch above that of an offer is known, the shard stays closed, because the
//!   offer may yet be applied.
//! - The floor of a changed view is not below any token that an owner who lost a shard by it can
//!   have granted.

mod fleet;
mod row;
mod rows;
mod shards;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::answer::{FleetRow, Outcome};
use crate::config::{Config, FENCES_AHEAD_MAX_US, Times};
use crate::ids::{Incarnation, SHARDS, Shard, Shards};
use crate::lane::Lane;
use crate::observations::Others;
use crate::output::{Alarm, End, Event, LeasePost, Output, Peer, Sink, StatementId};
use crate::refusal::Refusal;
use crate::statement::Statement;
use crate::weakened::Steps;
use row::OwnRow;
use shards::Holding;
pub use status::Shown;

/// Incarnations that the host's supervisor may report at once; further ones are found by their
/// silence.
const HOST_DEAD_MAX: usize = 64;

/// Phase of a membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Reading the fleet's rows before any write.
    Checking,
    /// Writing the first row.
    Joining,
    /// A member.
    Live,
    /// A member that hands over its shards.
    Leaving,
    /// Owning nothing and ending the membership.
    Closing,
    /// Ended.
    Ended,
}

/// One proxy's part in the fleet.
#[derive(Debug)]
pub struct Member {
    config: Config,
    times: Times,
    me: Incarnation,
    phase: Phase,
    steps: Steps,
    next_id: u64,
    own: OwnRow,
    own_lane: Lane,
    /// Newest known view.
    fleet: Option<FleetRow>,
    fleet_lane: Lane,
    fleet_read: Reading,
    others: Others,
    rows_lane: Lane,
    rows_read: Reading,
    holdings: [Holding; SHARDS],
    next_drain: u64,
    /// Time at which the last drain was requested.
    drain_since_ns: u64,
    /// Incarnations that this host knows to be dead.
    host_dead: BTreeSet<Incarnation>,
    /// Epoch and time at which shards to take over were first seen.
    claim_since: Option<(i64, u64)>,
    /// Fingerprint of the observations that may change the view, and until when its row is read
    /// often.
    watched: (u64, u64),
    /// Highest token reported by any core.
    last_token_us: i64,
    told: Told,
}

/// Schedule of the reads of some rows.
#[derive(Debug, Default)]
struct Reading {
    /// Time at which the last read was sent.
    sent_ns: Option<u64>,
    /// Interval until the next read.
    every_ns: u64,
    /// A linearizable read must first settle statements in doubt.
    serial: bool,
    /// Read at once.
    now: bool,
}

impl Reading {
    fn due_ns(&self) -> u64 {
        match self.sent_ns {
            Some(sent_ns) if !self.serial => sent_ns.saturating_add(self.every_ns),
            _ => 0,
        }
    }
}

/// Values last reported, so that each is reported once.
#[derive(Debug, Default)]
struct Told {
    peers: Vec<Peer>,
    valid: bool,
    joined: bool,
    failure: String,
    fences_ahead: bool,
    /// Pairs of live members at one address.
    rivals: BTreeSet<[Incarnation; 2]>,
    unreadable: Option<crate::columns::BadRow>,
}

/// State of a member for `/status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Phase of the membership.
    pub phase: Phase,
    /// Epoch of the view; -1 while none is known.
    pub epoch: i64,
    /// Shards that this member serves.
    pub held: Shards,
    /// Shards that it is giving away.
    pub giving: Shards,
    /// End of the lease on the boot-time clock; 0 is never.
    pub valid_until_ns: u64,
    /// Limit of tokens, in microseconds.
    pub ts_limit_us: i64,
    /// Members that are dead and not yet sealed.
    pub unsealed: Vec<Incarnation>,
}

impl Member {
    /// Creates a prospective member. `incarnation` must never have been used. Refuses settings that
    /// work with no fleet.
    pub fn new(config: Config, incarnation: Incarnation) -> Result<Self, Refusal> {
        config.check()?;
        let times = Times::new(config.lease_ms, config.max_ttl_ms);
        Ok(Self {
            times,
            me: incarnation,
            phase: Phase::Checking,
            steps: Steps::default(),
            next_id: 0,
            own: OwnRow::default(),
            own_lane: Lane::default(),
            fleet: None,
            fleet_lane: Lane::default(),
            fleet_read: Reading { serial: true, ..Reading::default() },
            others: Others::default(),
            rows_lane: Lane::default(),
            rows_read: Reading { serial: true, every_ns: times.poll_ns, ..Reading::default() },
            holdings: [Holding::Foreign; SHARDS],
            next_drain: 0,
            drain_since_ns: 0,
            host_dead: config
                .own_dead
                .iter()
                .copied()
                .filter(|dead| *dead != incarnation)
                .collect(),
            claim_since: None,
            watched: (0, 0),
            last_token_us: 0,
            told: Told::default(),
            config,
        })
    }

    /// Leaves out a step of the protocol, for tests that expect to see the effect.
    #[cfg(feature = "weakened")]
    pub fn leave_out(&mut self, step: crate::weakened::Step) {
        self.steps = Steps::without(step);
    }

    /// Starts. Here and everywhere `now_ns` is the boot-time clock and `wall_us` the wall clock.
    pub fn start(&mut self, now_ns: u64, wall_us: i64, sink: &mut dyn Sink) {
        self.step(now_ns, wall_us, sink);
    }

    /// Advances time: call it at [`Member::next_wakeup_ns`], or at any other time.
    pub fn tick(&mut self, now_ns: u64, wall_us: i64, sink: &mut dyn Sink) {
        self.step(now_ns, wall_us, sink);
    }

    /// Takes a statement's outcome. A late or repeated one changes nothing.
    pub fn outcome(
        &mut self,
        id: StatementId,
        outcome: Outcome,
        now_ns: u64,
        wall_us: i64,
        sink: &mut dyn Sink,
    ) {
        self.hear(&outcome, sink);
        if let Some(flight) = self.own_lane.take(id) {
            self.own_outcome(flight, outcome, now_ns, sink);
        } else if let Some(flight) = self.fleet_lane.take(id) {
            self.fleet_outcome(flight, outcome, now_ns, sink);
        } else if let Some(flight) = self.rows_lane.take(id) {
            self.rows_outcome(flight, outcome, now_ns, sink);
        }
        self.step(now_ns, wall_us, sink);
    }

    /// Prepares for a stop of the proxy: hands over all shards, then ends with [`End::Left`].
    pub fn drain(&mut self, now_ns: u64, wall_us: i64, sink: &mut dyn Sink) {
        match self.phase {
            Phase::Checking => self.end(End::Left, sink),
            Phase::Joining | Phase::Live => self.phase = Phase::Leaving,
            Phase::Leaving | Phase::Closing | Phase::Ended => {}
        }
        self.step(now_ns, wall_us, sink);
    }

    /// Takes a core's report that it has stopped granting in a shard. `last_token_us` is not below
    /// any token granted there; `memory_empty` says that no memory lock of the shard is held.
    #[expect(clippy::too_many_arguments, reason = "one word of a core, and the time")]
    pub fn drained(
        &mut self,
        shard: Shard,
        number: u64,
        last_token_us: i64,
        memory_empty: bool,
        now_ns: u64,
        wall_us: i64,
        sink: &mut dyn Sink,
    ) {
        if let Some(holding) = self.holdings.get_mut(usize::from(shard))
            && *holding == (Holding::Draining { number })
        {
            *holding = Holding::Drained { last_token_us, memory_empty, offered_at: None };
        }
        self.step(now_ns, wall_us, sink);
    }

    /// Takes the supervisor's report that another incarnation's process on this host has ended:
    /// there is no need to wait for it.
    pub fn host_says_dead(
        &mut self,
        incarnation: Incarnation,
        now_ns: u64,
        wall_us: i64,
        sink: &mut dyn Sink,
    ) {
        if incarnation != self.me && self.host_dead.len() < HOST_DEAD_MAX {
            self.host_dead.insert(incarnation);
        }
        self.step(now_ns, wall_us, sink);
    }

    /// Takes a core's highest token. Cores call it several times a second while they grant: the
    /// limit follows it where tokens run ahead of the wall clock.
    pub fn granted_up_to(&mut self, token_us: i64) {
        self.last_token_us = self.last_token_us.max(token_us);
    }

    /// Takes an epoch that another member mentioned. One unknown here makes this member read the
    /// view at once.
    pub fn epoch_heard(&mut self, epoch: i64, now_ns: u64, wall_us: i64, sink: &mut dyn Sink) {
        self.fleet_read.now |= self.fleet.as_ref().is_some_and(|row| row.epoch < epoch);
        self.step(now_ns, wall_us, sink);
    }

    /// Notes that the work a dead member left undone is done, as [`Output::Redo`] asked.
    pub fn redone(
        &mut self,
        incarnation: Incarnation,
        now_ns: u64,
        wall_us: i64,
        sink: &mut dyn Sink,
    ) {
        if let Some(seen) = self.others.find_mut(incarnation) {
            seen.redone = true;
        }
        self.step(now_ns, wall_us, sink);
    }

    /// Boot time of the next call of [`Member::tick`], if nothing happens before.
    pub fn next_wakeup_ns(&self) -> u64 {
        if self.phase == Phase::Ended {
            return u64::MAX;
        }
        let lanes = [
            self.own_lane.wakeup_ns(self.own_due_ns()),
            self.fleet_lane.wakeup_ns(self.fleet_read.due_ns()),
            self.rows_lane.wakeup_ns(self.rows_read.due_ns()),
        ];
        let lease_ends_ns = if self.told.valid { self.own.valid_until_ns } else { u64::MAX };
        lanes.into_iter().min().unwrap_or(u64::MAX).min(lease_ends_ns)
    }

    /// Owner of a shard, its address if it has a row, and the epoch of the view.
    pub fn owner(&self, shard: Shard) -> Option<(Incarnation, Option<&str>, i64)> {
        let row = self.fleet.as_ref()?;
        let owner = row.view.owner(shard)?;
        Some((owner, self.others.address(owner), row.epoch))
    }

    /// State for `/status`.
    pub fn status(&self) -> Status {
        Status {
            phase: self.phase,
            epoch: self.fleet.as_ref().map_or(-1, |row| row.epoch),
            held: self.shards_where(|holding| holding == Holding::Mine),
            giving: self
                .shards_where(|holding| !matches!(holding, Holding::Mine | Holding::Foreign)),
            valid_until_ns: self.own.valid_until_ns,
            ts_limit_us: self.own.ts_limit_us,
            unsealed: self.unsealed().map(|seen| seen.row.incarnation).collect(),
        }
    }

    fn step(&mut self, now_ns: u64, wall_us: i64, sink: &mut dyn Sink) {
        if self.phase == Phase::Ended {
            return;
        }
        if let Some(flight) = self.own_lane.take_expired(now_ns) {
            self.own_outcome(flight, Outcome::Timeout, now_ns, sink);
        }
        if let Some(flight) = self.fleet_lane.take_expired(now_ns) {
            self.fleet_outcome(flight, Outcome::Timeout, now_ns, sink);
        }
        if let Some(flight) = self.rows_lane.take_expired(now_ns) {
            self.rows_outcome(flight, Outcome::Timeout, now_ns, sink);
        }
        self.settle_giving(now_ns, sink);
        self.step_own(now_ns, wall_us, sink);
        self.step_fleet(now_ns, wall_us, sink);
        self.step_rows(now_ns, sink);
        self.tell(now_ns, sink);
        self.tell_fences_ahead(wall_us, sink);
        self.tell_rivals(sink);
    }

    /// Reports two processes with one configuration: nothing else would reveal them. Any member
    /// that sees them reports it, because they may not notice themselves.
    fn tell_rivals(&mut self, sink: &mut dyn Sink) {
        let mut told = BTreeSet::new();
        for [one, other] in self.others.rivals(self.me) {
            let incarnations = [one.incarnation, other.incarnation];
            if !self.told.rivals.contains(&incarnations) {
                sink.put(Output::Alarm(Alarm::SameAddress {
                    incarnations,
                    address: one.address.clone(),
                }));
            }
            told.insert(incarnations);
        }
        self.told.rivals = told;
    }

    /// Reports fences far ahead of the clock: a member whose clock is ahead raises the fences of
    /// all when its shards change hands.
    fn tell_fences_ahead(&mut self, wall_us: i64, sink: &mut dyn Sink) {
        let floor_us = self.fleet.as_ref().map_or(0, |row| row.ts_floor_us);
        let ahead_us = floor_us.max(self.others.limit_max_us()).saturating_sub(wall_us);
        let is_ahead = ahead_us > FENCES_AHEAD_MAX_US;
        if is_ahead && !self.told.fences_ahead {
            sink.put(Output::Alarm(Alarm::FencesAhead(ahead_us)));
        }
        self.told.fences_ahead = is_ahead;
    }

    /// Reports failures, each once until a different one comes.
    fn hear(&mut self, outcome: &Outcome, sink: &mut dyn Sink) {
        match outcome {
            Outcome::Failed(text) if *text != self.told.failure => {
                self.told.failure.clone_from(text);
                sink.put(Output::Alarm(Alarm::StatementFailed(text.clone())));
            }
            Outcome::Unreadable(bad) => self.tell_unreadable(bad, sink),
            Outcome::Members { unreadable, .. } => {
                if let Some((_, bad)) = unreadable.first() {
                    self.tell_unreadable(bad, sink);
                }
            }
            _ => {}
        }
    }

    fn tell_unreadable(&mut self, bad: &crate::columns::BadRow, sink: &mut dyn Sink) {
        if self.told.unreadable.as_ref() != Some(bad) {
            self.told.unreadable = Some(bad.clone());
            sink.put(Output::Alarm(Alarm::Unreadable(bad.clone())));
        }
    }

    /// Reports all changes.
    fn tell(&mut self, now_ns: u64, sink: &mut dyn Sink) {
        if self.phase == Phase::Ended {
            return;
        }
        let peers = self.others.peers(self.me);
        if peers != self.told.peers {
            self.told.peers.clone_from(&peers);
            sink.put(Output::Peers(peers));
        }
        let valid = self.is_valid(now_ns);
        if valid != self.told.valid {
            self.told.valid = valid;
            let event = match (valid, self.told.joined) {
                (true, false) => Event::Joined,
                (true, true) => Event::LeaseBack,
                (false, _) => Event::LeaseLapsed,
            };
            self.told.joined = true;
            sink.put(Output::Event(event));
        }
    }

    /// Ends the membership: no core grants any more.
    fn end(&mut self, end: End, sink: &mut dyn Sink) {
        if self.phase == Phase::Ended {
            return;
        }
        self.phase = Phase::Ended;
        self.own.valid_until_ns = 0;
        self.post_lease(sink);
        let epoch = self.fleet.as_ref().map_or(-1, |row| row.epoch);
        for shard in Shards::ALL.iter() {
            if self.holding(shard) != Holding::Foreign {
                self.set_holding(shard, Holding::Foreign);
                sink.put(Output::Lost { shard, epoch });
            }
        }
        sink.put(Output::Ended(end));
    }

    fn post_lease(&self, sink: &mut dyn Sink) {
        sink.put(Output::Lease(LeasePost {
            incarnation: self.me,
            epoch: self.fleet.as_ref().map_or(-1, |row| row.epoch),
            valid_until_ns: self.own.valid_until_ns,
            ts_limit_us: self.own.ts_limit_us,
        }));
    }

    fn is_valid(&self, now_ns: u64) -> bool {
        now_ns < self.own.valid_until_ns
    }

    /// True if this member may change other rows: its lease is valid, so its knowledge is not old.
    fn may_act(&self, now_ns: u64) -> bool {
        matches!(self.phase, Phase::Live | Phase::Leaving) && self.is_valid(now_ns)
    }

    fn next_statement(&mut self) -> StatementId {
        self.next_id += 1;
        StatementId(self.next_id)
    }

    /// Delay before this member acts on a finding that other members share: it depends on the
    /// member's rank among them.
    fn turn_ns(&self, now_ns: u64) -> u64 {
        let before = self.others.receivers(self.me, now_ns, &self.times);
        let rank = before.iter().filter(|other| **other < self.me).count() as u64;
        rank * self.times.stagger_ns
    }

    fn send_on_fleet(&mut self, statement: Statement, now_ns: u64, sink: &mut dyn Sink) {
        let id = self.next_statement();
        self.fleet_lane.send(id, statement, now_ns, self.times.deadline_ns, sink);
    }
}
