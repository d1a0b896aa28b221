//! The shards of this member: gained and lost by views, drained before they are given away.

use crate::answer::FleetRow;
use crate::ids::{Incarnation, SHARDS, Shard, Shards};
use crate::output::{Alarm, Gain, Output, Sink};
use crate::plan;
use crate::statement::ViewChange;
use crate::weakened::Step;

use super::{Member, Phase};

/// This member's hold on a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holding {
    /// None.
    Foreign,
    /// The core may grant.
    Mine,
    /// The core was asked to stop.
    Draining { number: u64 },
    /// The core has stopped.
    Drained {
        last_token_us: i64,
        memory_empty: bool,
        /// Epoch of the change that offered the shard to another member; the change may be applied
        /// as long as the epoch stands.
        offered_at: Option<i64>,
    },
}

impl Member {
    pub(super) fn holding(&self, shard: Shard) -> Holding {
        self.holdings[usize::from(shard) % SHARDS]
    }

    pub(super) fn set_holding(&mut self, shard: Shard, holding: Holding) {
        self.holdings[usize::from(shard) % SHARDS] = holding;
    }

    pub(super) fn shards_where(&self, is: impl Fn(Holding) -> bool) -> Shards {
        Shards::ALL.iter().filter(|shard| is(self.holding(*shard))).collect()
    }

    /// Takes a new view.
    pub(super) fn take_view(&mut self, row: &FleetRow, now_ns: u64, sink: &mut dyn Sink) {
        for shard in Shards::ALL.iter() {
            let mine = row.view.owner(shard) == Some(self.me);
            match (self.holding(shard), mine) {
                (Holding::Foreign, true) => self.gain(shard, row, 0, true, now_ns, sink),
                (Holding::Foreign, false) => {}
                (Holding::Drained { offered_at: Some(_), .. }, false) => {
                    self.lose(shard, row.epoch, sink)
                }
                (_, false) => {
                    self.lose(shard, row.epoch, sink);
                    if self.is_valid(now_ns) {
                        sink.put(Output::Alarm(Alarm::ShardTaken(shard)));
                    }
                }
                (
                    Holding::Drained { last_token_us, memory_empty, offered_at: Some(epoch) },
                    true,
                ) => {
                    if row.epoch == epoch.saturating_add(1) {
                        // Another change took that epoch, so the offer can never be applied.
                        self.set_holding(
                            shard,
                            Holding::Drained { last_token_us, memory_empty, offered_at: None },
                        );
                    } else {
                        // Another member may have owned it in between: the knowledge about it
                        // counts as an earlier owner's.
                        self.lose(shard, row.epoch, sink);
                        self.gain(shard, row, last_token_us, memory_empty, now_ns, sink);
                    }
                }
                (_, true) => {}
            }
        }
    }

    /// Gains a shard in which this member has granted up to a token before, and may have memory
    /// locks left.
    fn gain(
        &mut self,
        shard: Shard,
        row: &FleetRow,
        last_token_us: i64,
        memory_empty: bool,
        now_ns: u64,
        sink: &mut dyn Sink,
    ) {
        if self.phase == Phase::Closing {
            return; // The membership is ending; others will take the shard.
        }
        self.set_holding(shard, Holding::Mine);
        let at_once =
            row.handed_over.contains(shard) && memory_empty || !self.steps.has(Step::Grace);
        let memory_grace_until_ns =
            if at_once { 0 } else { now_ns.saturating_add(self.times.grace_ns) };
        let (epoch, ts_floor_us) = (row.epoch, row.ts_floor_us.max(last_token_us));
        sink.put(Output::Gain(Gain { shard, epoch, ts_floor_us, memory_grace_until_ns }));
    }

    fn lose(&mut self, shard: Shard, epoch: i64, sink: &mut dyn Sink) {
        self.set_holding(shard, Holding::Foreign);
        sink.put(Output::Lost { shard, epoch });
    }

    /// Handles a linearizable read at the epoch of an offer: the offer has not been applied, but
    /// may be yet.
    pub(super) fn offers_stand(&mut self) {
        if self.steps.has(Step::ClosedWhileOffered) {
            return;
        }
        for holding in &mut self.holdings {
            if let Holding::Drained { offered_at, .. } = holding {
                *offered_at = None;
            }
        }
    }

    /// Receivers of this member's surplus shards, one entry for each shard; `None` if no member can
    /// take it.
    fn wanted_gifts(&self, now_ns: u64) -> Vec<Option<Incarnation>> {
        let Some(row) = &self.fleet else { return Vec::new() };
        let mut receivers = self.others.receivers(self.me, now_ns, &self.times);
        if self.phase == Phase::Leaving {
            if !self.has_told_leaving(now_ns) {
                return Vec::new();
            }
            let mine = row.view.shards_of(self.me);
            if receivers.is_empty() {
                return vec![None; mine.len()];
            }
            return plan::spread(&row.view, mine, &receivers)
                .into_iter()
                .map(|(_, to)| Some(to))
                .collect();
        }
        // A new member gets shards only after renewing its lease once.
        receivers.retain(|other| self.others.find(*other).is_some_and(|seen| seen.row.beat > 0));
        receivers.push(self.me);
        plan::surplus(&row.view, &receivers, self.me).into_iter().map(Some).collect()
    }

    /// Shards to give, closed ones first.
    fn chosen_gifts(&self, count: usize) -> Vec<Shard> {
        let mut mine: Vec<Shard> =
            self.shards_where(|holding| holding != Holding::Foreign).iter().rev().collect();
        mine.sort_by_key(|shard| match self.holding(*shard) {
            Holding::Drained { offered_at: Some(_), .. } => 0,
            Holding::Drained { .. } => 1,
            Holding::Draining { .. } => 2,
            Holding::Mine | Holding::Foreign => 3,
        });
        mine.truncate(count);
        mine
    }

    /// Closes shards that are to be given away, and reopens those that are to be kept after all.
    pub(super) fn settle_giving(&mut self, now_ns: u64, sink: &mut dyn Sink) {
        if !self.may_act(now_ns) {
            return;
        }
        let chosen: Shards =
            self.chosen_gifts(self.wanted_gifts(now_ns).len()).into_iter().collect();
        for shard in Shards::ALL.iter() {
            match (self.holding(shard), chosen.contains(shard)) {
                (Holding::Mine, true) => {
                    self.next_drain += 1;
                    let number = self.next_drain;
                    self.drain_since_ns = now_ns;
                    if self.steps.has(Step::DrainFirst) {
                        self.set_holding(shard, Holding::Draining { number });
                        sink.put(Output::Drain { shard, number });
                    } else {
                        let holding = Holding::Drained {
                            last_token_us: 0,
                            memory_empty: true,
                            offered_at: None,
                        };
                        self.set_holding(shard, holding);
                    }
                }
                (Holding::Draining { .. } | Holding::Drained { offered_at: None, .. }, false) => {
                    self.set_holding(shard, Holding::Mine);
                    sink.put(Output::Resume(shard));
                }
                _ => {}
            }
        }
    }

    /// The change of the view that gives closed shards away. For a while it waits for shards that
    /// are still draining.
    pub(super) fn gift(&self, now_ns: u64) -> Option<ViewChange> {
        let row = self.fleet.as_ref()?;
        let wanted = self.wanted_gifts(now_ns);
        let chosen = self.chosen_gifts(wanted.len());
        let waits =
            chosen.iter().any(|shard| matches!(self.holding(*shard), Holding::Draining { .. }));
        if waits && now_ns < self.drain_since_ns.saturating_add(self.times.deadline_ns) {
            return None;
        }
        let mut change = unchanged(row);
        let mut handed_over = row.handed_over;
        for (shard, to) in chosen.into_iter().zip(wanted) {
            if let Holding::Drained { last_token_us, memory_empty, .. } = self.holding(shard) {
                change.view.give(shard, to);
                change.ts_floor_us = change.ts_floor_us.max(last_token_us);
                handed_over.set(shard, memory_empty);
            }
        }
        change.handed_over = handed_over.bits();
        (change.view != row.view).then_some(change)
    }

    /// A change of the epoch alone, after which unwanted offers can never be applied.
    pub(super) fn voided_offers(&self) -> Option<ViewChange> {
        let offered = |holding| matches!(holding, Holding::Drained { offered_at: Some(_), .. });
        let row = self.fleet.as_ref()?;
        (!self.shards_where(offered).is_empty()).then(|| unchanged(row))
    }

    /// True if no view or offer concerns this member any more.
    pub(super) fn owns_nothing(&self) -> bool {
        let held = self.shards_where(|holding| holding != Holding::Foreign);
        let viewed = self.fleet.as_ref().is_some_and(|row| !row.view.shards_of(self.me).is_empty());
        held.is_empty() && !viewed
    }

    /// Notes the closed shards that a change offers to others.
    pub(super) fn note_offers(&mut self, change: &ViewChange) {
        for shard in Shards::ALL.iter() {
            if let Holding::Drained { last_token_us, memory_empty, .. } = self.holding(shard)
                && change.view.owner(shard) != Some(self.me)
            {
                let offered_at = Some(change.epoch_seen);
                self.set_holding(
                    shard,
                    Holding::Drained { last_token_us, memory_empty, offered_at },
                );
            }
        }
    }
}

/// A change equal to the current row.
pub(super) fn unchanged(row: &FleetRow) -> ViewChange {
    ViewChange {
        epoch_seen: row.epoch,
        view: row.view.clone(),
        ts_floor_us: row.ts_floor_us,
        handed_over: row.handed_over.bits(),
        format: row.format,
    }
}
