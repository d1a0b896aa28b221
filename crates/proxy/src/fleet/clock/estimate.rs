//! The nodes' time, estimated from their answers by the clock that never goes back. Without I/O.
//!
//! A node has read its clock at some time between question and answer. Taken as read when the
//! answer came, the node's time is never overestimated, and underestimated by the round trip at
//! most. So a proxy is never taken to be further behind than it is.
//!
//! The estimate is the nodes' median, of two nodes the one that is behind: one node's wrong clock
//! makes no proxy look behind, unless there is no other node. It rests on the clock that never goes
//! back, so a jump of the proxy's own wall clock shows at once.

use crate::limits::{CLOCK_KEPT_NS, CLOCK_NODES_MAX};

/// One node's clock, by one of its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// The node's host id.
    pub(super) node: u128,
    /// Microseconds that its wall clock is ahead of this host's boot-time clock, at least.
    pub(super) ahead_us: i64,
    pub(super) round_trip_ns: u64,
    /// When the answer came, by the boot-time clock.
    pub(super) heard_ns: u64,
}

/// The nodes' clocks.
#[derive(Debug, Default)]
pub(super) struct Estimate {
    samples: Vec<Sample>,
    /// The median of what they are ahead of the boot-time clock.
    median_us: Option<i64>,
}

impl Estimate {
    /// Takes an answer, unless the last one of this node says more.
    pub(super) fn learn(&mut self, sample: Sample) {
        // Clocks run at rates that differ by 1 % at most.
        let is_better = |old: &Sample| {
            let age_ns = sample.heard_ns.saturating_sub(old.heard_ns);
            sample.round_trip_ns <= old.round_trip_ns.saturating_add(age_ns / 100)
        };
        match self.samples.iter_mut().find(|old| old.node == sample.node) {
            Some(old) if is_better(old) => *old = sample,
            Some(_) => {}
            None => {
                if self.samples.len() >= CLOCK_NODES_MAX {
                    let oldest =
                        (0..self.samples.len()).min_by_key(|at| self.samples[*at].heard_ns);
                    oldest.into_iter().for_each(|at| _ = self.samples.swap_remove(at));
                }
                self.samples.push(sample);
            }
        }
        self.expire(sample.heard_ns);
    }

    /// Forgets nodes that have not answered for [`CLOCK_KEPT_NS`].
    pub(super) fn expire(&mut self, now_ns: u64) {
        self.samples.retain(|sample| now_ns.saturating_sub(sample.heard_ns) <= CLOCK_KEPT_NS);
        let mut all: Vec<i64> = self.samples.iter().map(|sample| sample.ahead_us).collect();
        all.sort_unstable();
        self.median_us = all.get(all.len().saturating_sub(1) / 2).copied();
    }

    /// Microseconds that a wall clock is behind the nodes' median, at least; negative: it is ahead.
    /// `None`: no node has told its time lately.
    pub(super) fn behind_us(&self, boot_ns: u64, wall_us: i64) -> Option<i64> {
        let boot_us = i64::try_from(boot_ns / 1_000).ok()?;
        Some(self.median_us?.saturating_add(boot_us).saturating_sub(wall_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SECOND_NS;

    const SECOND_US: i64 = 1_000_000;

    /// Nodes that are so many seconds ahead of the boot-time clock.
    fn of(nodes: &[i64]) -> Estimate {
        let mut estimate = Estimate::default();
        for (node, seconds) in (1..).zip(nodes) {
            estimate.learn(sample(node, *seconds, 0, 0));
        }
        estimate
    }

    fn sample(node: u128, seconds: i64, round_trip_ns: u64, heard_ns: u64) -> Sample {
        Sample { node, ahead_us: seconds * SECOND_US, round_trip_ns, heard_ns }
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
        for node in 0..3 * CLOCK_NODES_MAX as u64 {
            estimate.learn(sample(node.into(), 0, 0, node));
        }
        assert_eq!(estimate.samples.len(), CLOCK_NODES_MAX);
        assert!(estimate.samples.iter().all(|kept| kept.node >= 2 * CLOCK_NODES_MAX as u128));
    }
}
