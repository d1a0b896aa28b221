//! Latencies of nodes since an earlier page. Quantiles since the start of the process would hide
//! the present ones.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use shunt_topology::{Node, RoutingTable};

use crate::metrics::Snapshot;

/// Shortest time between the starts of two windows.
const WINDOW_MIN: Duration = Duration::from_secs(10);
/// Most nodes with a window.
const NODES_MAX: usize = 1_024;

/// The counts at the start of each window, by host id.
#[derive(Debug, Default)]
pub(super) struct Windows(Mutex<HashMap<u128, Window>>);

/// The counts of a node at an earlier page, and at the first page at least [`WINDOW_MIN`] later.
#[derive(Debug)]
struct Window {
    from: (Instant, Snapshot),
    next: (Instant, Snapshot),
}

impl Windows {
    /// Forgets the nodes that have left the ring.
    pub(super) fn retain(&self, routing: &RoutingTable) {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let members = routing.nodes().iter().map(|node| node.host_id);
        let members: HashSet<u128> = members.collect();
        windows.retain(|host_id, _| members.contains(host_id));
    }

    /// The latencies of a node since an earlier page, and the time since then; `None`: there was no
    /// earlier page.
    pub(super) fn since_former(
        &self,
        node: &Node,
        counts: &Snapshot,
        now: Instant,
    ) -> Option<(Snapshot, Duration)> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(window) = windows.get_mut(&node.host_id) else {
            if windows.len() < NODES_MAX {
                let from = (now, counts.clone());
                windows.insert(node.host_id, Window { next: from.clone(), from });
            }
            return None;
        };
        if now.duration_since(window.next.0) >= WINDOW_MIN {
            window.from = std::mem::replace(&mut window.next, (now, counts.clone()));
        }
        let (since, from) = &window.from;
        Some((counts.since(from), now.duration_since(*since)))
    }
}

#[cfg(test)]
mod tests {
    use shunt_topology::NodeId;

    use super::*;
    use crate::metrics::Histogram;

    fn node(id: u16) -> Node {
        Node {
            id: NodeId(id),
            host_id: u128::from(id),
            address: ([127, 0, 0, 1], 9042).into(),
            datacentre: "a".to_owned(),
            rack: "r".to_owned(),
            tokens: Vec::new(),
            up: true,
            release_version: "5.0.9".to_owned(),
        }
    }

    #[test]
    fn a_page_shows_the_last_seconds() {
        let (windows, histogram, now) = (Windows::default(), Histogram::default(), Instant::now());
        let page = |seconds| {
            let now = now + Duration::from_secs(seconds);
            let found = windows.since_former(&node(1), &histogram.snapshot(), now);
            found.map(|(counts, time)| (counts.count(), counts.quantile(0.99), time.as_secs()))
        };
        (0..1_000).for_each(|_| histogram.record(1));
        assert_eq!(page(0), None);
        histogram.record(1 << 20);
        assert_eq!(page(1), Some((1, Some(1 << 20), 1)), "the present state");
        assert_eq!(page(10), Some((1, Some(1 << 20), 10)));
        histogram.record(1 << 10);
        assert_eq!(page(15), Some((2, Some(1 << 20), 15)), "ten seconds at least");
        assert_eq!(page(20), Some((1, Some(1 << 10), 10)), "since the page ten seconds ago");
        let empty = RoutingTable::build(vec![node(2)], Vec::new(), Vec::new(), None);
        windows.retain(&empty);
        assert_eq!(page(21), None);
    }
}
