//! Estimate of the nodes' time from their answers, by the clock that never goes back. Without I/O.
//!
//! A node reads its clock between the question and the answer. We take the time as read when the
//! answer came. So the node's time is never overestimated, and is underestimated by the round trip
//! at most, and no proxy seems further behind than it is. An answer that took longer than
//! [`CLOCK_ROUND_TRIP_MAX_NS`] can only raise the estimate for its node.
//!
//! An answer counts for the node that was asked, whatever name it gives itself.
//!
//! The estimate is the nodes' median, of two nodes the one that is behind: one node's wrong clock
//! makes no proxy look behind, unless there is no other node. It rests on the clock that never goes
//! back, so a jump of the proxy's own wall clock shows at once.

use shunt_topology::NodeId;

use crate::limits::{CLOCK_KEPT_NS, CLOCK_NODES_MAX, CLOCK_ROUND_TRIP_MAX_NS};

/// One node's clock, by one of its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// The node that was asked.
    pub(super) node: NodeId,
    /// Microseconds that its wall clock is ahead of this host's boot-time clock, at least.
    pub(super) ahead_us: i64,
    pub(super) round_trip_ns: u64,
    /// Time at which the answer came, by the boot-time clock.
    pub(super) heard_ns: u64,
}

impl Sample {
    fn is_slow(&self) -> bool {
        self.round_trip_ns > CLOCK_ROUND_TRIP_MAX_NS
    }
}

/// The median; of an even number the lower of the two in the middle.
fn lower_median(all: impl Iterator<Item = i64>) -> Option<i64> {
    let mut all: Vec<i64> = all.collect();
    all.sort_unstable();
    all.get(all.len().saturating_sub(1) / 2).copied()
}

/// The nodes' clocks.
#[derive(Debug, Default)]
pub(super) struct Estimate {
    samples: Vec<Sample>,
    /// The median of what they are ahead of the boot-time clock.
    median_us: Option<i64>,
}

impl Estimate {
    /// Takes an answer, unless the last one of this node says more. A slow answer raises what a
    /// quick one said, and replaces a slow one.
    pub(super) fn learn(&mut self, sample: Sample) {
        let has_room = self.samples.len() < CLOCK_NODES_MAX;
        match self.samples.iter_mut().find(|old| old.node == sample.node) {
            Some(old) if sample.is_slow() && !old.is_slow() => {
                old.ahead_us = old.ahead_us.max(sample.ahead_us);
            }
            Some(old) if old.is_slow() || says_more(&sample, old) => *old = sample,
            None if has_room || !sample.is_slow() => self.add(sample),
            Some(_) | None => {}
        }
        self.expire(sample.heard_ns);
    }

    /// Takes the first answer of a node, in the place of the oldest if there are too many.
    fn add(&mut self, sample: Sample) {
        if self.samples.len() >= CLOCK_NODES_MAX {
            let oldest = (0..self.samples.len()).min_by_key(|at| self.samples[*at].heard_ns);
            oldest.into_iter().for_each(|at| _ = self.samples.swap_remove(at));
        }
        self.samples.push(sample);
    }

    /// Forgets nodes that have not answered for [`CLOCK_KEPT_NS`]. Nodes that are slow count only
    /// where they prove more than the quick ones say, so one quick node with a wrong clock does not
    /// outvote them.
    pub(super) fn expire(&mut self, now_ns: u64) {
        self.samples.retain(|sample| now_ns.saturating_sub(sample.heard_ns) <= CLOCK_KEPT_NS);
        let quick = self.samples.iter().filter(|sample| !sample.is_slow());
        let quick_us = lower_median(quick.map(|sample| sample.ahead_us));
        let counts =
            |sample: &&Sample| !sample.is_slow() || quick_us.is_some_and(|us| sample.ahead_us > us);
        self.median_us = quick_us.and_then(|_| {
            lower_median(self.samples.iter().filter(counts).map(|sample| sample.ahead_us))
        });
    }

    /// Microseconds that a wall clock is behind the nodes' median, at least; negative: it is ahead.
    /// `None`: no node has told its time lately.
    pub(super) fn behind_us(&self, boot_ns: u64, wall_us: i64) -> Option<i64> {
        let boot_us = i64::try_from(boot_ns / 1_000).ok()?;
        Some(self.median_us?.saturating_add(boot_us).saturating_sub(wall_us))
    }
}

/// True if an answer replaces an earlier one of its node: it proves that the node is further ahead,
/// or was as quick, or the earlier one is old. The node's clock may have been set back, so a later
/// time is not all that counts. An earlier answer is replaced long before it expires.
fn says_more(sample: &Sample, old: &Sample) -> bool {
    let age_ns = sample.heard_ns.saturating_sub(old.heard_ns);
    // Clocks run at rates that differ by 1 % at most.
    let is_as_quick = sample.round_trip_ns <= old.round_trip_ns.saturating_add(age_ns / 100);
    sample.ahead_us > old.ahead_us || is_as_quick || age_ns >= CLOCK_KEPT_NS / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{CLOCK_ASK_NS, SECOND_NS};

    const SECOND_US: i64 = 1_000_000;

    /// Nodes that are so many seconds ahead of the boot-time clock.
    fn of(nodes: &[i64]) -> Estimate {
        let mut estimate = Estimate::default();
        for (node, seconds) in (1..).zip(nodes) {
            estimate.learn(sample(node, *seconds, 0, 0));
        }
        estimate
    }

    fn sample(node: u16, seconds: i64, round_trip_ns: u64, heard_ns: u64) -> Sample {
        let (node, ahead_us) = (NodeId(node), seconds * SECOND_US);
        Sample { node, ahead_us, round_trip_ns, heard_ns }
    }

    #[test]
    fn one_node_with_a_wrong_clock_makes_nobody_look_behind() {
        let behind_s = |nodes: &[i64]| of(nodes).behind_us(0, 0).map(|us| us / SECOND_US);
        for (nodes, seconds) in [
            (&[][..], None),
            (&[120], Some(120)),
            (&[0, 3_600], Some(0)),
            (&[0, 0, 3_600], Some(0)),
            (&[-3_600, 0, 0], Some(0)),
            (&[120, 120, 0], Some(120)),
            (&[120, 120, 0, 0], Some(0)),
            (&[120, 120, 120, 0, 0], Some(120)),
        ] {
            assert_eq!(behind_s(nodes), seconds, "{nodes:?}");
        }
    }

    /// Two nodes of three answer after more than a second, and the third has a wrong clock.
    #[test]
    fn slow_nodes_are_not_outvoted_by_a_quick_one_that_is_behind() {
        const SLOW_NS: u64 = 2 * SECOND_NS;
        let mut estimate = Estimate::default();
        estimate.learn(sample(1, 118, SLOW_NS, 0));
        assert_eq!(estimate.behind_us(0, 0), None, "slow answers alone are no measurement");
        estimate.learn(sample(2, 118, SLOW_NS, 0));
        estimate.learn(sample(3, 0, 1, 0));
        assert_eq!(estimate.behind_us(0, 0), Some(118 * SECOND_US));
        // They prove nothing that the quick ones do not say.
        estimate.learn(sample(4, 200, 1, 0));
        estimate.learn(sample(5, 200, 1, 0));
        assert_eq!(estimate.behind_us(0, 0), Some(200 * SECOND_US));
    }

    #[test]
    fn a_wall_clock_that_jumps_is_behind_at_once() {
        let estimate = of(&[100]);
        let behind = |boot_s: u64, wall_s: i64| {
            estimate.behind_us(boot_s * SECOND_NS, wall_s * SECOND_US).map(|us| us / SECOND_US)
        };
        assert_eq!((behind(0, 100), behind(7, 107)), (Some(0), Some(0)));
        assert_eq!((behind(7, 47), behind(7, 3_707)), (Some(60), Some(-3_600)));
        assert_eq!(estimate.behind_us(u64::MAX, i64::MIN), Some(i64::MAX));
    }

    #[test]
    fn a_slow_answer_does_not_replace_one_that_says_more_until_that_is_old() {
        let mut estimate = of(&[0]);
        let slow_ns = SECOND_NS / 10;
        for (at_s, seconds, expected) in [(9, -1, 0), (10, -2, -2), (11, -3, -3)] {
            estimate.learn(sample(1, seconds, slow_ns, at_s * SECOND_NS));
            assert_eq!(estimate.behind_us(0, 0), Some(expected * SECOND_US), "at {at_s} s");
        }
        // The node's clock was set.
        estimate.learn(sample(1, 60, 0, 12 * SECOND_NS));
        assert_eq!(estimate.behind_us(0, 0), Some(60 * SECOND_US));
    }

    /// A host was paused with both its clocks, and nodes take longer to answer since.
    #[test]
    fn a_slower_answer_that_proves_the_proxy_further_behind_counts_at_once() {
        let mut estimate = of(&[0, 0, 0]);
        for node in 1..=3 {
            estimate.learn(sample(node, 120, SECOND_NS / 3, SECOND_NS));
        }
        assert_eq!(estimate.behind_us(0, 0), Some(120 * SECOND_US));
    }

    /// Round trips have risen by more than answers are forgiven within the time that they count.
    #[test]
    fn nodes_that_answer_more_slowly_than_before_stay_known() {
        let mut estimate = of(&[0, 0, 0]);
        for second in (0..300).step_by(CLOCK_ASK_NS as usize / SECOND_NS as usize) {
            let heard_ns = second * SECOND_NS;
            estimate.expire(heard_ns);
            assert_eq!(estimate.behind_us(0, 0).map(|us| us / SECOND_US), Some(0), "{second} s");
            for node in 1..=3 {
                let sample = sample(node, 0, SECOND_NS * 9 / 10, heard_ns);
                estimate.learn(Sample { ahead_us: -900_000, ..sample });
            }
        }
    }

    #[test]
    fn an_answer_that_took_too_long_proves_only_that_its_node_is_no_further_behind() {
        let late_ns = CLOCK_ROUND_TRIP_MAX_NS + 1;
        let mut estimate = Estimate::default();
        estimate.learn(sample(1, 0, late_ns, 0));
        assert_eq!(estimate.behind_us(0, 0), None, "the clock may be behind by the round trip");
        estimate.learn(sample(1, 0, 0, 0));
        estimate.learn(sample(1, -8, late_ns, CLOCK_KEPT_NS - 1));
        assert_eq!(estimate.behind_us(0, 0), Some(0));
        estimate.learn(sample(1, 112, late_ns, CLOCK_KEPT_NS));
        assert_eq!(estimate.behind_us(0, 0), Some(112 * SECOND_US));
        // It keeps nothing alive.
        estimate.expire(CLOCK_KEPT_NS + 1);
        assert_eq!(estimate.behind_us(0, 0), None);
    }

    #[test]
    fn a_node_that_says_nothing_counts_for_a_while_and_then_no_more() {
        let mut estimate = of(&[120, 120, 0]);
        estimate.expire(CLOCK_KEPT_NS);
        assert_eq!(estimate.behind_us(0, 0), Some(120 * SECOND_US));
        estimate.learn(sample(3, 0, 0, CLOCK_KEPT_NS + 1));
        assert_eq!(estimate.behind_us(0, 0), Some(0));
        estimate.expire(2 * CLOCK_KEPT_NS + 2);
        assert_eq!(estimate.behind_us(0, 0), None);
    }

    #[test]
    fn no_more_nodes_are_kept_than_may_be() {
        let mut estimate = Estimate::default();
        for node in 0..3 * CLOCK_NODES_MAX as u16 {
            estimate.learn(sample(node, 0, 0, node.into()));
        }
        assert_eq!(estimate.samples.len(), CLOCK_NODES_MAX);
        assert!(estimate.samples.iter().all(|kept| kept.node.0 >= 2 * CLOCK_NODES_MAX as u16));
    }
}
