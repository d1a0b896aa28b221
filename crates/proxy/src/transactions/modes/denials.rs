//! Nodes' denials of a table of the fleet: the table does not exist (yet), or the proxy's role may
//! not read it.
//!
//! A denial can be wrong. A node that missed the schema denies a table that exists and has rows. A
//! node that missed a GRANT, or caches old permissions, denies a right that the role has. So no
//! single denial counts as an answer, and rows from a quorum refute every denial. After a denial,
//! the core asks the nodes of the local datacentre one after another.
//!
//! The core takes the table as absent once every node of every datacentre has denied it: the table
//! may have one replica, and a quorum may lie in other datacentres alone. The core has no links to
//! those, so on a ring of several datacentres only rows end its doubt. It takes the right as
//! missing once every node of the local datacentre has denied it, as it can ask no other node.

use std::collections::BTreeMap;

use shunt_topology::NodeId;
use shunt_transactions::catalogue::switching::MODES_TRUSTED_NS;
use shunt_wire::cql::message::{ErrorMessage, error_code};

use crate::fault::is_right_missing;
use crate::fleet::statements::Heard;
use crate::transactions::part::Poll;

/// A node's reason not to read a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denial {
    /// The table does not exist.
    Absent,
    /// The proxy's role may not read it.
    Forbidden,
}

impl Denial {
    /// Reads the denial in a node's answer, if it is one.
    pub(super) fn of(heard: &Heard<'_>) -> Option<Denial> {
        let Heard::Error(error) = heard else { return None };
        if denies_table(error) {
            return Some(Denial::Absent);
        }
        is_right_missing(error.code, error.message).then_some(Denial::Forbidden)
    }
}

/// Denials of one table.
#[derive(Debug, Default)]
pub(crate) struct Denials {
    /// The last denial of each node, with the time of the question that it answers.
    denials: BTreeMap<NodeId, (Denial, u64)>,
    /// The time at which each node was last asked by itself.
    questions: BTreeMap<NodeId, u64>,
    /// True after a denial: the next question goes to one node.
    pub(super) is_suspected: bool,
    /// True once rows were read: the table exists.
    pub(crate) has_rows: bool,
}

impl Denials {
    /// Forgets all denials, after the table was read or the process was paused.
    pub(crate) fn clear(&mut self) {
        self.is_suspected = false;
        self.denials.clear();
        self.questions.clear();
    }

    /// Notes a question that goes to this node alone.
    pub(super) fn note(&mut self, node: NodeId, now_ns: u64) {
        self.questions.insert(node, now_ns);
    }

    /// Notes a denial. Returns true if the node's last denial no longer held, or if the node is
    /// unknown. The caller then asks another node at once, so that all denials hold at one time.
    pub(super) fn deny(&mut self, Poll { asked_ns, node }: Poll, denial: Denial) -> bool {
        let is_first = !std::mem::replace(&mut self.is_suspected, true);
        match node {
            Some(node) => {
                let is_news = self.denial(node, asked_ns).is_none();
                self.denials.insert(node, (denial, asked_ns));
                is_news
            }
            None => is_first,
        }
    }

    /// Returns the node's last denial while it holds.
    fn denial(&self, node: NodeId, now_ns: u64) -> Option<Denial> {
        let (denial, denied_ns) = self.denials.get(&node)?;
        (now_ns.saturating_sub(*denied_ns) <= MODES_TRUSTED_NS).then_some(*denial)
    }

    /// Returns true if each of these nodes has made this denial, and all of them still hold.
    pub(super) fn is_certain(
        &self,
        denial: Denial,
        nodes: impl Iterator<Item = NodeId>,
        now_ns: u64,
    ) -> bool {
        let mut nodes = nodes.peekable();
        nodes.peek().is_some() && nodes.all(|node| self.denial(node, now_ns) == Some(denial))
    }

    /// Returns these nodes in the order in which to ask them: nodes without a denial first, and
    /// among those the one that was asked longest ago, so that a silent node delays no other.
    pub(super) fn order(&self, nodes: &[NodeId], now_ns: u64) -> Vec<NodeId> {
        let mut nodes = nodes.to_vec();
        let turn = |node: &NodeId| {
            (self.denial(*node, now_ns).is_some(), self.questions.get(node).copied())
        };
        nodes.sort_by_key(turn);
        nodes
    }
}

/// Returns true if the error says that the table does not exist.
///
/// Nodes send the same code for a table with other columns, and Cassandra before 3.0 sends it for a
/// level that it does not know. Neither error means that no table has a mode.
fn denies_table(error: &ErrorMessage<'_>) -> bool {
    let denies = |words: &str| error.message.contains(words);
    error.code == error_code::INVALID && (denies("unconfigured") || denies("does not exist"))
}

/// Returns true if the error says that the table of modes or rules has a layout that this version
/// does not know.
pub(super) fn denies_layout(error: &ErrorMessage<'_>) -> bool {
    error.code == error_code::INVALID
        && !denies_table(error)
        && !error.message.contains("EACH_QUORUM")
}

#[cfg(test)]
mod tests {
    use shunt_wire::cql::message::ErrorDetails;

    use super::*;

    #[test]
    fn a_denial_counts_once_all_nodes_agree_in_it() {
        use Denial::{Absent, Forbidden};
        for (denial, other) in [(Absent, Forbidden), (Forbidden, Absent)] {
            for count in [1, 2, 3, 5] {
                let nodes: Vec<NodeId> = (0..count).map(NodeId).collect();
                let is_certain = |denials: &Denials, now_ns: u64| {
                    denials.is_certain(denial, nodes.iter().copied(), now_ns)
                };
                let mut denials = Denials::default();
                let of_any = Poll { asked_ns: 1, node: None };
                assert!(
                    denials.deny(of_any, denial) && !denials.deny(of_any, denial),
                    "nobody knows which node"
                );
                let of = |node, asked_ns| Poll { asked_ns, node: Some(node) };
                for _ in 0..count {
                    assert!(!is_certain(&denials, 5));
                    let node = denials.order(&nodes, 5)[0];
                    denials.note(node, 5);
                    assert!(denials.deny(of(node, 5), denial));
                }
                assert!(is_certain(&denials, 5 + MODES_TRUSTED_NS));
                assert!(!is_certain(&denials, 6 + MODES_TRUSTED_NS), "a denial holds for a while");
                let elsewhere = nodes.iter().copied().chain([NodeId(count)]);
                assert!(!denials.is_certain(denial, elsewhere, 5), "another node may read it");
                assert!(!denials.deny(of(nodes[0], 6), other), "it has denied the table before");
                assert!(!is_certain(&denials, 6), "the nodes contradict one another");
                let later = 7 + MODES_TRUSTED_NS;
                assert!(denials.deny(of(nodes[0], later), denial), "its denial no longer held");
                denials.clear();
                assert!(!is_certain(&denials, 5));
            }
            assert!(!Denials::default().is_certain(denial, std::iter::empty(), 0));
        }
    }

    #[test]
    fn a_table_with_other_columns_is_not_absent() {
        let read = |code, message| {
            let error = ErrorMessage { code, message, details: ErrorDetails::None };
            (denies_table(&error), denies_layout(&error))
        };
        for absent in [
            "unconfigured table transactional",
            "unconfigured table in: SELECT mode FROM shunt_meta.transactional WHERE enabled = true",
            "unconfigured columnfamily transactional",
            "table transactional does not exist",
            "Keyspace 'shunt_meta' does not exist",
        ] {
            assert_eq!(read(error_code::INVALID, absent), (true, false), "{absent}");
        }
        for other in [
            "Undefined column name enabled in table shunt_meta.transactional",
            "Undefined name enabled in where clause ('enabled = true')",
            "Cannot execute this query as it might involve data filtering, use ALLOW FILTERING",
        ] {
            assert_eq!(read(error_code::INVALID, other), (false, true), "{other}");
        }
        let level = "EACH_QUORUM ConsistencyLevel is only supported for writes";
        assert_eq!(read(error_code::INVALID, level), (false, false));
        assert_eq!(read(error_code::UNAVAILABLE, "enabled"), (false, false));
    }
}
