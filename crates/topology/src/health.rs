//! Decides whether the proxy may open links to a node, from the outcome of earlier links and the
//! ring's events, and how long it waits before a retry. Open links stay in use whatever this module
//! decides.
//!
//! Pure: time is a parameter in nanoseconds of the loop's clock and randomness a number, so a test
//! or the simulator can replay it.

use std::time::Duration;

use crate::node::NodeId;

/// Exponential backoff with jitter: the n-th delay is uniform in `[d/2, d]` with `d = min(base *
/// 2^n, max)`. The minimum of half a delay protects a restarting node; the jitter keeps many
/// proxies from returning together.
#[derive(Copy, Clone, Debug)]
pub struct Backoff {
    /// Upper end of the first delay.
    pub base: Duration,
    /// Upper end of any delay.
    pub max: Duration,
    attempt: u32,
}

impl Backoff {
    /// Starts at `base`.
    #[must_use]
    pub fn new(base: Duration, max: Duration) -> Backoff {
        Backoff { base, max, attempt: 0 }
    }

    /// The next delay; `random` is any uniformly distributed number.
    pub fn next(&mut self, random: u64) -> Duration {
        let ceiling = self
            .base
            .saturating_mul(1u32.checked_shl(self.attempt).unwrap_or(u32::MAX))
            .min(self.max);
        self.attempt = self.attempt.saturating_add(1);
        let half = u64::try_from(ceiling.as_nanos() / 2).unwrap_or(u64::MAX / 2);
        let jitter = (u128::from(random) * u128::from(half)) >> 64;
        Duration::from_nanos(half.saturating_add(jitter as u64))
    }

    /// Resets after a success: the next delay starts from `base` again.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }
}

/// Assumed state of a node.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Status {
    /// The proxy may open a link.
    Usable,
    /// The last connection attempt failed or the last link broke; no retry before this time.
    Waiting {
        /// Nanoseconds of the loop's clock.
        until_ns: u64,
    },
}

/// One core's view of all nodes. Grows with the highest node number seen, never with load.
#[derive(Debug)]
pub struct Health {
    backoff: Backoff,
    nodes: Vec<NodeHealth>,
}

#[derive(Copy, Clone, Debug)]
struct NodeHealth {
    backoff: Backoff,
    waiting_until_ns: Option<u64>,
}

impl Health {
    /// Every node is usable until it fails; delays run from `base` to `max`.
    #[must_use]
    pub fn new(base: Duration, max: Duration) -> Health {
        Health { backoff: Backoff::new(base, max), nodes: Vec::new() }
    }

    /// Current assumed state of a node.
    #[must_use]
    pub fn status(&self, node: NodeId) -> Status {
        match self.nodes.get(usize::from(node.0)).and_then(|health| health.waiting_until_ns) {
            Some(until_ns) => Status::Waiting { until_ns },
            None => Status::Usable,
        }
    }

    /// True if the proxy may open a link to the node now.
    #[must_use]
    pub fn is_usable(&self, node: NodeId, now_ns: u64) -> bool {
        match self.status(node) {
            Status::Usable => true,
            Status::Waiting { until_ns } => now_ns >= until_ns,
        }
    }

    /// Records that a link finished its handshake. The next failure still waits longer than the
    /// last: a link that breaks as soon as it carries a query proves nothing.
    pub fn link_opened(&mut self, node: NodeId) {
        self.entry(node).waiting_until_ns = None;
    }

    /// Records that a link has lasted for the longest delay.
    pub fn link_lasted(&mut self, node: NodeId) {
        self.entry(node).backoff.reset();
    }

    /// Records that a connection attempt failed, or a link broke. Returns the time of the next
    /// attempt.
    ///
    /// The wait holds although other links may still work: a node that shuts down refuses new
    /// connections long before it closes the old ones. Failures during a wait do not lengthen it;
    /// otherwise links that break together would count as many attempts.
    pub fn failed(&mut self, node: NodeId, now_ns: u64, random: u64) -> u64 {
        let health = self.entry(node);
        if let Some(until_ns) = health.waiting_until_ns.filter(|until_ns| now_ns < *until_ns) {
            return until_ns;
        }
        let delay_ns = u64::try_from(health.backoff.next(random).as_nanos()).unwrap_or(u64::MAX);
        let until_ns = now_ns.saturating_add(delay_ns);
        health.waiting_until_ns = Some(until_ns);
        until_ns
    }

    /// Records that the ring reports the node as up again: the proxy may retry immediately.
    pub fn event_up(&mut self, node: NodeId) {
        let health = self.entry(node);
        health.waiting_until_ns = None;
        health.backoff.reset();
    }

    fn fresh(&self) -> NodeHealth {
        NodeHealth { backoff: self.backoff, waiting_until_ns: None }
    }

    fn entry(&mut self, node: NodeId) -> &mut NodeHealth {
        let position = usize::from(node.0);
        if position >= self.nodes.len() {
            let fresh = self.fresh();
            self.nodes.resize(position + 1, fresh);
        }
        &mut self.nodes[position]
    }
}
