//! The nodes that are believed down, and the changes that the cores have not heard of yet.

use std::collections::{HashMap, HashSet};

/// Host ids of nodes believed down.
#[derive(Debug, Default)]
pub(super) struct DownNodes {
    now: HashSet<u128>,
    /// The ones that the cores know of.
    published: HashSet<u128>,
    /// The source of the last mark of each node marked since the cores heard.
    sources: HashMap<u128, &'static str>,
    /// Number of nodes about which the cores believe something else.
    differing: usize,
}

/// A node that went down or came up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) host_id: u128,
    pub(super) is_up: bool,
    /// The source of the knowledge.
    pub(super) by: &'static str,
}

impl DownNodes {
    /// The nodes that are believed down now.
    pub(super) fn now(&self) -> &HashSet<u128> {
        &self.now
    }

    pub(super) fn contains(&self, host_id: u128) -> bool {
        self.now.contains(&host_id)
    }

    /// Notes that a node is up or down, by this source. True if the cores have not heard of that.
    pub(super) fn mark(&mut self, host_id: u128, is_up: bool, by: &'static str) -> bool {
        let is_news = if is_up { self.now.remove(&host_id) } else { self.now.insert(host_id) };
        if is_news {
            self.sources.insert(host_id, by);
            if self.published.contains(&host_id) == is_up {
                self.differing += 1;
            } else {
                self.differing -= 1;
            }
        }
        self.has_news()
    }

    /// Forgets the nodes that have left the ring.
    pub(super) fn retain(&mut self, is_member: impl Fn(u128) -> bool) {
        self.now.retain(|host_id| is_member(*host_id));
        self.published.retain(|host_id| is_member(*host_id));
        self.sources.retain(|host_id, _| is_member(*host_id));
        self.differing = self.now.symmetric_difference(&self.published).count();
    }

    /// True if the cores believe something else.
    pub(super) fn has_news(&self) -> bool {
        self.differing > 0
    }

    /// Takes the present state as published; returns the differences from the last one.
    pub(super) fn publish(&mut self) -> Vec<Change> {
        let sources = std::mem::take(&mut self.sources);
        let changed = self.now.symmetric_difference(&self.published);
        let changes = changed.map(|host_id| Change {
            host_id: *host_id,
            is_up: !self.now.contains(host_id),
            by: sources.get(host_id).copied().unwrap_or("the control connection"),
        });
        let changes = changes.collect();
        self.published.clone_from(&self.now);
        self.differing = 0;
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_hear_of_what_is_different_and_not_of_what_was_undone() {
        let mut down = DownNodes::default();
        assert!(!down.mark(1, true, "an event"));
        assert!(down.mark(1, false, "a probe"));
        assert!(!down.mark(1, true, "an event"));
        assert!(down.mark(2, false, "an event"));
        assert_eq!(down.publish(), [Change { host_id: 2, is_up: false, by: "an event" }]);
        assert!(!down.has_news() && down.publish().is_empty());
        assert!(down.mark(2, true, "a probe"));
        assert_eq!(down.publish(), [Change { host_id: 2, is_up: true, by: "a probe" }]);
    }

    /// Each answer to a probe marks a node, so that a mark must not cost as much as all nodes.
    #[test]
    fn a_mark_knows_without_all_nodes_whether_it_is_news() {
        let mut down = DownNodes::default();
        let seed = |number: u128| number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 7;
        for number in 0..1_000 {
            let is_up = seed(number) % 3 == 0;
            assert_eq!(down.mark(seed(number) % 16, is_up, "a probe"), down.now != down.published);
            if number % 50 == 49 {
                down.retain(|host_id| host_id != seed(number) % 16);
                assert_eq!(down.has_news(), down.now != down.published);
            }
            if number % 20 == 19 {
                down.publish();
            }
        }
    }

    #[test]
    fn nodes_that_have_left_are_no_news() {
        let mut down = DownNodes::default();
        down.mark(1, false, "an event");
        down.publish();
        down.mark(2, false, "an event");
        down.retain(|host_id| host_id > 2);
        assert!(!down.has_news() && down.sources.is_empty());
    }
}
