//! Nodes that are slower than the others, or fail more often, get fewer queries for a while.
//!
//! Once an interval, a core compares its counters of the nodes of the local datacentre with those
//! at the end of the interval before. An outlier is *ejected*: for a time it gets only queries that
//! no other node can take. Then its share of queries grows from a tenth to the whole; so does that
//! of a node that was away, or that is new. Each core judges by itself.
//!
//! A share only orders the nodes of a choice (`route/choice.rs`). It must never
//!
//! - change which nodes may get a query, or make one wait or fail that a node could have answered;
//! - eject more than a third of the nodes that take queries, and so none of fewer than three: when
//!   others go away, the ejected ones come back;
//! - move conditional statements: they stay with the coordinator of their partition;
//! - last without an end: a hold ends by time, and the node is judged anew by its own answers;
//! - end and begin each interval: each ejection of a node lasts longer than the one before;
//! - count what clients cause at will: wrong statements, unreachable consistency levels, and errors
//!   of the proxy itself do not count, and a node is judged against the others of the interval;
//! - judge by few queries, or by those of an ejected node.

use std::time::Duration;

use shunt_topology::NodeId;

use crate::config::Config;
use crate::limits;
use crate::metrics::{NodeMetrics, Snapshot};

/// The share of a node that gets as much as the others.
pub(crate) const SHARE_FULL: u8 = u8::MAX;

/// The options in force.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Multiple of the others' median above which a node is slow; 0: none is.
    latency_factor: u64,
    /// Percentage of failed queries from which a node is an outlier; 0: none is.
    errors_percent: u64,
    pub(super) interval_ns: u64,
    hold_ns: u64,
    slow_start_ns: u64,
}

impl Rules {
    pub(super) fn of(config: &Config) -> Self {
        let ns = |ms: u64| ms.saturating_mul(1_000_000);
        Self {
            latency_factor: u64::from(config.outlier_latency_factor),
            errors_percent: u64::from(config.outlier_errors_percent),
            interval_ns: ns(config.outlier_interval_ms),
            hold_ns: ns(config.outlier_hold_ms),
            slow_start_ns: ns(config.slow_start_ms),
        }
    }

    fn are_off(&self) -> bool {
        self.latency_factor == 0 && self.errors_percent == 0
    }

    /// Length of the hold of a node with this many recent ejections.
    fn hold_ns(&self, ejections: u32) -> u64 {
        let times = ejections.clamp(1, limits::OUTLIER_HOLDS_MAX);
        self.hold_ns.saturating_mul(u64::from(times))
    }
}

/// The standing of a node with one core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Since this time it gets as much as the others.
    Full { since_ns: u64 },
    /// Until this time it gets only queries that no other node can take.
    Ejected { until_ns: u64 },
    /// Since this time its share grows.
    Returning { since_ns: u64 },
}

/// The counts of a node at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    latency: Snapshot,
    errors: u64,
    timed_out: u64,
}

impl Counts {
    fn of(metrics: &NodeMetrics) -> Self {
        Self {
            latency: metrics.latency_ns.snapshot(),
            errors: metrics.errors.get(),
            timed_out: metrics.timed_out.get(),
        }
    }

    fn since(&self, earlier: &Counts) -> Interval {
        let latency = self.latency.since(&earlier.latency);
        let timed_out = self.timed_out.saturating_sub(earlier.timed_out);
        Interval {
            queries: latency.count() + timed_out,
            failures: self.errors.saturating_sub(earlier.errors) + timed_out,
            median_ns: latency.quantile(0.5).unwrap_or(0),
        }
    }
}

/// The queries of a node in an interval.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Interval {
    queries: u64,
    /// Queries that the node could not serve, or did not answer in time.
    failures: u64,
    median_ns: u64,
}

impl Interval {
    fn failures_percent(&self) -> u64 {
        self.failures.min(self.queries) * 100 / self.queries.max(1)
    }
}

/// The reason for an ejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Failures { percent: u64, others_percent: u64 },
    Latency { median_ns: u64, others_ns: u64 },
}

impl Cause {
    /// Severity of an outlier: failures are worse than delays.
    fn rank(self) -> (bool, u64) {
        match self {
            Cause::Failures { percent, .. } => (true, percent),
            Cause::Latency { median_ns, others_ns } => (false, median_ns / others_ns.max(1)),
        }
    }

    /// The reason, for the log.
    pub(super) fn text(self) -> String {
        match self {
            Cause::Failures { percent, others_percent } => format!(
                "{percent} % of its queries failed, and {others_percent} % of the other nodes'"
            ),
            Cause::Latency { median_ns, others_ns } => format!(
                "its median time of an answer is {:?}, and that of the other nodes {:?}",
                Duration::from_nanos(median_ns),
                Duration::from_nanos(others_ns)
            ),
        }
    }
}

/// The record of one node.
#[derive(Clone, Debug)]
struct Record {
    standing: Standing,
    /// Ejections that are not forgotten.
    ejections: u32,
    /// True if no link to it opened when the core last looked.
    is_away: bool,
    /// True if the counts of this interval begin with the present standing.
    is_comparable: bool,
    /// Counts at the end of the last interval.
    counts: Counts,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            standing: Standing::Full { since_ns: 0 },
            ejections: 0,
            is_away: false,
            is_comparable: false,
            counts: Counts::default(),
        }
    }
}

impl Record {
    fn is_ejected(&self) -> bool {
        matches!(self.standing, Standing::Ejected { .. })
    }

    fn begin_slowly(&mut self, now_ns: u64) {
        self.standing = Standing::Returning { since_ns: now_ns };
        self.is_comparable = false;
    }

    fn eject(&mut self, now_ns: u64, rules: &Rules) -> u64 {
        self.ejections = (self.ejections + 1).min(limits::OUTLIER_HOLDS_MAX);
        let hold_ns = rules.hold_ns(self.ejections);
        self.standing = Standing::Ejected { until_ns: now_ns.saturating_add(hold_ns) };
        hold_ns
    }

    /// Moves the node's standing on. Returns true if its hold has ended.
    fn go_on(&mut self, now_ns: u64, rules: &Rules) -> bool {
        match self.standing {
            Standing::Ejected { until_ns } if now_ns >= until_ns || rules.are_off() => {
                self.begin_slowly(now_ns);
                return true;
            }
            Standing::Returning { since_ns }
                if now_ns.saturating_sub(since_ns) >= rules.slow_start_ns =>
            {
                self.standing = Standing::Full { since_ns: now_ns };
            }
            Standing::Full { since_ns }
                if self.ejections > 0
                    && now_ns.saturating_sub(since_ns) >= rules.hold_ns(self.ejections) =>
            {
                self.ejections -= 1;
                self.standing = Standing::Full { since_ns: now_ns };
            }
            _ => {}
        }
        false
    }

    /// The node's share: in this many of 255 choices, it ranks with the first.
    fn share(&self, now_ns: u64, rules: &Rules) -> u8 {
        match self.standing {
            Standing::Full { .. } => SHARE_FULL,
            Standing::Ejected { .. } => 0,
            Standing::Returning { since_ns } => {
                let passed_ns = now_ns.saturating_sub(since_ns);
                if passed_ns >= rules.slow_start_ns {
                    return SHARE_FULL;
                }
                let missing = u128::from(SHARE_FULL - limits::SLOW_START_SHARE);
                let grown = missing * u128::from(passed_ns) / u128::from(rules.slow_start_ns);
                limits::SLOW_START_SHARE + grown as u8
            }
        }
    }
}

/// The owner of the standings of all nodes with one core.
#[derive(Debug, Default)]
pub(crate) struct Outliers {
    /// By node id.
    records: Vec<Record>,
    /// Begin of the interval, nanoseconds.
    pub(super) interval_began_ns: u64,
}

impl Outliers {
    /// Forgets the node that had this number before. `is_new`: the node joined a known ring.
    pub(crate) fn forget(&mut self, node: NodeId, is_new: bool) {
        *self.record(node) = Record { is_away: is_new, ..Record::default() };
    }

    fn record(&mut self, node: NodeId) -> &mut Record {
        let index = usize::from(node.0);
        if self.records.len() <= index {
            self.records.resize_with(index + 1, Record::default);
        }
        &mut self.records[index]
    }

    /// Notes whether the node has links; one that was away and has one begins slowly.
    pub(super) fn note_links(&mut self, node: NodeId, has_links: bool, fails: bool, now_ns: u64) {
        let record = self.record(node);
        if has_links && std::mem::take(&mut record.is_away) && !record.is_ejected() {
            record.begin_slowly(now_ns);
        }
        record.is_away |= !has_links && fails;
    }

    /// Ends holds: those that are over, and the oldest ones while too many nodes are ejected.
    /// `usable`: nodes that take queries. Returns the nodes whose hold ended.
    pub(super) fn release(&mut self, now_ns: u64, rules: &Rules, usable: &[NodeId]) -> Vec<NodeId> {
        let mut released = Vec::new();
        for (index, record) in self.records.iter_mut().enumerate() {
            if record.go_on(now_ns, rules) {
                released.push(NodeId(index as u16));
            }
        }
        let mut held: Vec<(u64, NodeId)> = Vec::new();
        for node in usable {
            if let Standing::Ejected { until_ns } = self.record(*node).standing {
                held.push((until_ns, *node));
            }
        }
        held.sort_unstable();
        let excess = held.len().saturating_sub(ejected_max(usable.len()));
        for (_, node) in &held[..excess] {
            self.record(*node).begin_slowly(now_ns);
            released.push(*node);
        }
        released
    }

    /// The node takes no queries now: its present interval is not compared.
    pub(super) fn skip(&mut self, node: NodeId) {
        self.record(node).is_comparable = false;
    }

    /// Ends the interval of a node; returns it if it can be compared.
    pub(super) fn end_interval(&mut self, node: NodeId, metrics: &NodeMetrics) -> Option<Interval> {
        let record = self.record(node);
        let counts = Counts::of(metrics);
        let interval = counts.since(&record.counts);
        record.counts = counts;
        let is_judged = !record.is_ejected();
        let was_comparable = std::mem::replace(&mut record.is_comparable, is_judged);
        (was_comparable && is_judged).then_some(interval)
    }

    /// Shares of the nodes by number, and whether they are ejected.
    pub(super) fn shares(&self, now_ns: u64, rules: &Rules) -> impl Iterator<Item = (u8, bool)> {
        self.records.iter().map(move |record| (record.share(now_ns, rules), record.is_ejected()))
    }

    /// Ejects the worst outliers, as many as may be. `usable`: nodes that take queries, with their
    /// interval if that can be compared. Returns the ejected nodes with the lengths of their holds.
    pub(super) fn judge(
        &mut self,
        now_ns: u64,
        rules: &Rules,
        usable: &[(NodeId, Option<Interval>)],
    ) -> Vec<(NodeId, Cause, u64)> {
        let ejected = usable.iter().filter(|(node, _)| self.record(*node).is_ejected()).count();
        let room = ejected_max(usable.len()).saturating_sub(ejected);
        let of_enough = |(node, interval): &(NodeId, Option<Interval>)| {
            interval
                .filter(|interval| interval.queries >= limits::OUTLIER_QUERIES_MIN)
                .map(|interval| (*node, interval))
        };
        let mut found =
            find_outliers(rules, &usable.iter().filter_map(of_enough).collect::<Vec<_>>());
        found.sort_unstable_by_key(|(_, cause)| std::cmp::Reverse(cause.rank()));
        let worst = found.into_iter().take(room);
        worst.map(|(node, cause)| (node, cause, self.record(node).eject(now_ns, rules))).collect()
    }
}

/// Largest number of ejected nodes, if this many take queries.
fn ejected_max(usable: usize) -> usize {
    usable / limits::OUTLIER_PART
}

/// The nodes that are outliers among these.
fn find_outliers(rules: &Rules, nodes: &[(NodeId, Interval)]) -> Vec<(NodeId, Cause)> {
    let sorted = |value: fn(&Interval) -> u64| -> Vec<u64> {
        let mut values: Vec<u64> = nodes.iter().map(|(_, interval)| value(interval)).collect();
        values.sort_unstable();
        values
    };
    let (medians, failures) = (sorted(|it| it.median_ns), sorted(Interval::failures_percent));
    let cause = |(node, interval): &(NodeId, Interval)| {
        let percent = interval.failures_percent();
        let others_percent = median_without(&failures, percent)?;
        let is_failing = rules.errors_percent > 0
            && percent >= rules.errors_percent
            && percent >= others_percent.saturating_mul(2);
        if is_failing {
            return Some((*node, Cause::Failures { percent, others_percent }));
        }
        let median_ns = interval.median_ns;
        let others_ns = median_without(&medians, median_ns)?;
        let is_slow = rules.latency_factor > 0
            && median_ns > others_ns.saturating_mul(rules.latency_factor)
            && median_ns - others_ns >= limits::OUTLIER_EXCESS_NS;
        is_slow.then_some((*node, Cause::Latency { median_ns, others_ns }))
    };
    nodes.iter().filter_map(cause).collect()
}

/// The upper median of sorted values without one of them; `None` if fewer than two others are left.
fn median_without(sorted: &[u64], value: u64) -> Option<u64> {
    let others = sorted.len().checked_sub(1).filter(|others| *others >= 2)?;
    let (middle, own) = (others / 2, sorted.partition_point(|other| *other < value));
    Some(if own <= middle { sorted[middle + 1] } else { sorted[middle] })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const RULES: Rules = Rules {
        latency_factor: 4,
        errors_percent: 50,
        interval_ns: 10 * SECOND,
        hold_ns: 30 * SECOND,
        slow_start_ns: 30 * SECOND,
    };

    fn interval(median_ms: u64, failures: u64) -> Option<Interval> {
        Some(Interval { queries: 100, failures, median_ns: median_ms * 1_000_000 })
    }

    fn numbered(intervals: &[Option<Interval>]) -> Vec<(NodeId, Option<Interval>)> {
        let numbered = intervals.iter().enumerate();
        numbered.map(|(index, interval)| (NodeId(index as u16), *interval)).collect()
    }

    fn judge(outliers: &mut Outliers, now_ns: u64, intervals: &[Option<Interval>]) -> Vec<u16> {
        let ejected = outliers.judge(now_ns, &RULES, &numbered(intervals));
        ejected.into_iter().map(|(node, ..)| node.0).collect()
    }

    /// The nodes ejected at once, where none was before.
    fn ejected(intervals: &[Option<Interval>]) -> Vec<u16> {
        judge(&mut Outliers::default(), 0, intervals)
    }

    fn nodes(count: u16) -> Vec<NodeId> {
        (0..count).map(NodeId).collect()
    }

    fn share(outliers: &mut Outliers, node: u16, now_ns: u64) -> u8 {
        outliers.record(NodeId(node)).share(now_ns, &RULES)
    }

    #[test]
    fn a_node_far_slower_than_the_others_is_ejected() {
        let fast = interval(2, 0);
        assert_eq!(ejected(&[fast, interval(200, 0), fast]), [1]);
        assert_eq!(ejected(&[fast, interval(8, 0), fast]), [0; 0], "four times is not more");
        let tiny = |micros: u64| Some(Interval { median_ns: micros * 1_000, ..fast.unwrap() });
        assert_eq!(ejected(&[tiny(300), tiny(4_900), tiny(300)]), [0; 0], "racks apart");
    }

    #[test]
    fn a_node_that_fails_is_ejected_unless_the_others_fail_too() {
        let well = interval(2, 0);
        assert_eq!(ejected(&[well, well, interval(1, 60)]), [2]);
        assert_eq!(ejected(&[well, well, interval(1, 49)]), [0; 0]);
        assert_eq!(ejected(&[interval(2, 100); 6]), [0; 0], "clients can make all of them fail");
        assert_eq!(ejected(&[interval(2, 40), interval(2, 40), interval(2, 79)]), [0; 0]);
    }

    #[test]
    fn nodes_that_are_slow_together_stay() {
        assert_eq!(ejected(&[interval(900, 0); 7]), [0; 0]);
        assert_eq!(ejected(&[interval(900, 0), interval(900, 0), interval(2, 0)]), [0; 0]);
    }

    #[test]
    fn at_most_a_third_is_ejected_the_worst_first() {
        let (fast, slow) = (interval(2, 0), |ms| interval(ms, 0));
        let nodes = [fast, slow(50), fast, slow(300), fast, slow(200), fast, slow(100), fast];
        assert_eq!(ejected(&nodes), [3, 5, 7]);
        let failing = [fast, slow(900), fast, interval(1, 80), fast];
        assert_eq!(ejected(&failing), [3], "failures are worse than delays");
        let mut outliers = Outliers::default();
        assert_eq!(judge(&mut outliers, 0, &[fast, slow(200), fast]), [1]);
        assert_eq!(judge(&mut outliers, SECOND, &[slow(200), None, fast]), [0; 0]);
    }

    #[test]
    fn of_one_or_two_nodes_none_is_ejected() {
        assert_eq!(ejected(&[interval(900, 100)]), [0; 0]);
        assert_eq!(ejected(&[interval(900, 100), interval(2, 0)]), [0; 0]);
    }

    #[test]
    fn few_queries_eject_nobody() {
        let (fast, slow) = (interval(2, 0), interval(200, 0));
        let few = Some(Interval { queries: limits::OUTLIER_QUERIES_MIN - 1, ..slow.unwrap() });
        assert_eq!(ejected(&[fast, few, fast]), [0; 0]);
        assert_eq!(ejected(&[few, slow, fast]), [0; 0], "too few others");
        assert_eq!(ejected(&[None, slow, fast]), [0; 0], "too few others");
    }

    #[test]
    fn a_hold_ends_by_time_and_the_share_grows_again() {
        let mut outliers = Outliers::default();
        let (fast, slow) = (interval(2, 0), interval(200, 0));
        judge(&mut outliers, 0, &[fast, slow, fast]);
        assert_eq!((share(&mut outliers, 1, 0), share(&mut outliers, 0, 0)), (0, SHARE_FULL));
        assert_eq!(outliers.release(29 * SECOND, &RULES, &nodes(3)), []);
        assert_eq!(outliers.release(30 * SECOND, &RULES, &nodes(3)), [NodeId(1)]);
        let shares = [30, 45, 59, 60].map(|second| share(&mut outliers, 1, second * SECOND));
        assert_eq!(shares, [26, 140, 247, SHARE_FULL]);
        assert_eq!(outliers.release(60 * SECOND, &RULES, &nodes(3)), []);
        assert_eq!(outliers.record(NodeId(1)).standing, Standing::Full { since_ns: 60 * SECOND });
    }

    #[test]
    fn holds_grow_with_repetition_up_to_a_bound_and_are_forgotten_in_peace() {
        let mut outliers = Outliers::default();
        let intervals = [interval(2, 0), interval(200, 0), interval(2, 0)];
        let (mut now_ns, mut holds) = (0, Vec::new());
        for _ in 0..12 {
            let [(_, _, hold_ns)] = outliers.judge(now_ns, &RULES, &numbered(&intervals))[..]
            else {
                panic!("not ejected");
            };
            holds.push(hold_ns / SECOND);
            now_ns += hold_ns;
            assert_eq!(outliers.release(now_ns, &RULES, &nodes(3)), [NodeId(1)]);
        }
        assert_eq!(holds, [30, 60, 90, 120, 150, 180, 210, 240, 270, 300, 300, 300]);
        // A hold and a slow start pass for each ejection that is forgotten.
        for _ in 0..20 {
            now_ns += 300 * SECOND;
            assert_eq!(outliers.release(now_ns, &RULES, &nodes(3)), []);
        }
        let again = outliers.judge(now_ns, &RULES, &numbered(&intervals));
        assert_eq!(again[0].2, 30 * SECOND);
    }

    #[test]
    fn an_ejected_node_comes_back_when_others_go_away() {
        let mut outliers = Outliers::default();
        let mut intervals = vec![interval(2, 0); 6];
        intervals[1] = interval(200, 0);
        intervals[4] = interval(300, 0);
        assert_eq!(judge(&mut outliers, 0, &intervals), [4, 1]);
        assert_eq!(outliers.release(SECOND, &RULES, &nodes(6)), []);
        let five = [1, 2, 3, 4, 5].map(NodeId);
        assert_eq!(outliers.release(2 * SECOND, &RULES, &five), [NodeId(1)]);
        assert_eq!(outliers.release(3 * SECOND, &RULES, &[NodeId(4), NodeId(5)]), [NodeId(4)]);
    }

    #[test]
    fn switched_off_it_ejects_nobody_and_keeps_nobody() {
        let mut outliers = Outliers::default();
        let intervals = [interval(2, 0), interval(200, 0), interval(2, 0)];
        judge(&mut outliers, 0, &intervals);
        let off = Rules { latency_factor: 0, errors_percent: 0, slow_start_ns: 0, ..RULES };
        assert_eq!(outliers.release(SECOND, &off, &nodes(3)), [NodeId(1)]);
        assert_eq!(outliers.record(NodeId(1)).share(SECOND, &off), SHARE_FULL);
        assert!(outliers.judge(SECOND, &off, &numbered(&intervals)).is_empty());
    }

    #[test]
    fn a_node_that_was_away_or_is_new_begins_slowly() {
        let mut outliers = Outliers::default();
        outliers.note_links(NodeId(0), false, false, 0);
        outliers.note_links(NodeId(0), true, false, 0);
        assert_eq!(share(&mut outliers, 0, 0), SHARE_FULL, "links open at the start, or are idle");
        outliers.note_links(NodeId(0), false, true, SECOND);
        outliers.note_links(NodeId(0), false, false, 2 * SECOND);
        assert_eq!(share(&mut outliers, 0, 2 * SECOND), SHARE_FULL);
        outliers.note_links(NodeId(0), true, false, 3 * SECOND);
        assert_eq!(share(&mut outliers, 0, 3 * SECOND), limits::SLOW_START_SHARE);
        outliers.forget(NodeId(1), true);
        outliers.note_links(NodeId(1), true, false, 4 * SECOND);
        assert_eq!(share(&mut outliers, 1, 4 * SECOND), limits::SLOW_START_SHARE);
        outliers.forget(NodeId(1), false);
        outliers.note_links(NodeId(1), true, false, 5 * SECOND);
        assert_eq!(share(&mut outliers, 1, 5 * SECOND), SHARE_FULL);
    }

    #[test]
    fn an_interval_has_its_own_answers_and_begins_with_the_standing() {
        let (mut outliers, metrics) = (Outliers::default(), NodeMetrics::default());
        let add = |count: u64, latency_ns: u64| {
            (0..count).for_each(|_| metrics.latency_ns.record(latency_ns));
        };
        add(1_000, 1 << 30);
        assert!(outliers.end_interval(NodeId(0), &metrics).is_none(), "not yet known");
        add(30, 1 << 20);
        metrics.errors.add(3);
        metrics.timed_out.add(10);
        let first = outliers.end_interval(NodeId(0), &metrics).unwrap();
        assert_eq!((first.queries, first.failures, first.median_ns), (40, 13, 1 << 20));
        outliers.record(NodeId(0)).eject(0, &RULES);
        assert!(outliers.end_interval(NodeId(0), &metrics).is_none(), "of an ejected node");
        outliers.release(30 * SECOND, &RULES, &nodes(3));
        assert!(outliers.end_interval(NodeId(0), &metrics).is_none(), "in part of the hold");
        assert!(outliers.end_interval(NodeId(0), &metrics).is_some());
        outliers.skip(NodeId(0));
        assert!(outliers.end_interval(NodeId(0), &metrics).is_none(), "after an absence");
    }

    #[test]
    fn the_median_of_the_others_is_that_without_the_node() {
        for length in 0..9 {
            let values: Vec<u64> = (0..length).map(|index| index * 7 % 5).collect();
            let mut sorted = values.clone();
            sorted.sort_unstable();
            for left_out in 0..values.len() {
                let mut others = values.clone();
                others.remove(left_out);
                others.sort_unstable();
                let median = (others.len() >= 2).then(|| others[others.len() / 2]);
                assert_eq!(median_without(&sorted, values[left_out]), median, "{values:?}");
            }
        }
    }
}
