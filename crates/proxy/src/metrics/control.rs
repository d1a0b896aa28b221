//! The counters of the control plane, written by the control thread only.

use super::{Counter, Gauge};

/// Counters of the control plane.
#[derive(Debug, Default)]
pub struct ControlMetrics {
    /// 1 while the control connection stands.
    pub connected: Gauge,
    /// Attempts to get a control connection that failed.
    pub connect_failures: Counter,
    /// Nodes refused for the control connection because they belong to another ring.
    pub strangers: Counter,
    /// Control connections that were lost.
    pub connections_lost: Counter,
    /// Events received from the ring.
    pub events: Counter,
    /// Complete readings of topology and schema.
    pub refreshes: Counter,
    /// Readings that failed.
    pub refresh_failures: Counter,
    /// Seconds since the epoch of the last complete reading; 0 before the first.
    pub refreshed_at_seconds: Gauge,
    /// Keyspaces without token routing, because ring and schema are too large for all.
    pub keyspaces_unplaced: Gauge,
    /// Mail that a core's full mailbox did not take at first try.
    pub mail_delayed: Counter,
}
