//! Whether one of the fleet's own tables does not exist at all, as before `shunt fleet init`.
//!
//! A node that has missed the schema denies a table that exists and has rows. Rows of a quorum
//! refute the denial, and no single denial counts as an answer. The next questions go to one node
//! of the local datacentre after another. The table is absent once every node of every datacentre
//! has denied it: a table may have one replica, and a quorum may be of other datacentres alone. A
//! core has no links to those, so on a ring of several datacentres only rows end its doubt.

use std::collections::BTreeMap;

use shunt_topology::NodeId;
use shunt_transactions::catalogue::switching::MODES_TRUSTED_NS;
use shunt_wire::cql::message::{ErrorMessage, error_code};

use crate::transactions::part::Poll;

/// Denials of one table.
#[derive(Debug, Default)]
pub(crate) struct Absence {
    /// Time of the question to which each node last answered that there is no such table.
    denials: BTreeMap<NodeId, u64>,
    /// Time of the last question that went to each node alone.
    questions: BTreeMap<NodeId, u64>,
    /// The next question goes to one node, because some node has denied the table.
    pub(super) is_suspected: bool,
    /// Rows of the table were read: it exists.
    pub(crate) has_rows: bool,
}

impl Absence {
    /// Forgets all denials: the table exists, or the process was paused.
    pub(crate) fn clear(&mut self) {
        self.is_suspected = false;
        self.denials.clear();
        self.questions.clear();
    }

    /// Notes that a question goes to this node alone.
    pub(super) fn note(&mut self, node: NodeId, now_ns: u64) {
        self.questions.insert(node, now_ns);
    }

    /// Notes that a question was answered by a denial. True if the node's last denial no longer
    /// held, or if the node is unknown: another node should be asked at once, so that the denials
    /// of all hold at one time.
    pub(super) fn deny(&mut self, Poll { asked_ns, node }: Poll) -> bool {
        let is_first = !std::mem::replace(&mut self.is_suspected, true);
        match node {
            Some(node) => {
                let is_news = !self.denies(node, asked_ns);
                self.denials.insert(node, asked_ns);
                is_news
            }
            None => is_first,
        }
    }

    /// True if the node has denied the table so lately that this still holds.
    fn denies(&self, node: NodeId, now_ns: u64) -> bool {
        let denied_ns = self.denials.get(&node);
        denied_ns.is_some_and(|denied_ns| now_ns.saturating_sub(*denied_ns) <= MODES_TRUSTED_NS)
    }

    /// True if all nodes of the ring deny the table.
    pub(super) fn is_certain(&self, ring: impl Iterator<Item = NodeId>, now_ns: u64) -> bool {
        let mut ring = ring.peekable();
        ring.peek().is_some() && ring.all(|node| self.denies(node, now_ns))
    }

    /// These nodes, in the order in which to ask them: first those whose answer is unknown. A
    /// silent one does not keep its turn among them.
    pub(super) fn order(&self, nodes: &[NodeId], now_ns: u64) -> Vec<NodeId> {
        let mut nodes = nodes.to_vec();
        let turn = |node: &NodeId| (self.denies(*node, now_ns), self.questions.get(node).copied());
        nodes.sort_by_key(turn);
        nodes
    }
}

/// True of an error that says that there is no such table.
///
/// Nodes use the same code for a table with other columns, and Cassandra before 3.0 for a level
/// that it does not know. Neither means that no table has a mode.
pub(super) fn denies_table(error: &ErrorMessage<'_>) -> bool {
    let denies = |words: &str| error.message.contains(words);
    error.code == error_code::INVALID && (denies("unconfigured") || denies("does not exist"))
}

/// True of an error that says that the table of modes or of rules has another layout than this
/// version's.
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
    fn a_table_is_absent_once_all_nodes_of_all_datacentres_deny_it() {
        for count in [1, 2, 3, 5] {
            let nodes: Vec<NodeId> = (0..count).map(NodeId).collect();
            let is_certain =
                |absence: &Absence, now_ns: u64| absence.is_certain(nodes.iter().copied(), now_ns);
            let mut absence = Absence::default();
            let of_any = Poll { asked_ns: 1, node: None };
            assert!(absence.deny(of_any) && !absence.deny(of_any), "nobody knows which node");
            let of = |node, asked_ns| Poll { asked_ns, node: Some(node) };
            for _ in 0..count {
                assert!(!is_certain(&absence, 5));
                let node = absence.order(&nodes, 5)[0];
                absence.note(node, 5);
                assert!(absence.deny(of(node, 5)));
            }
            assert!(is_certain(&absence, 5 + MODES_TRUSTED_NS));
            assert!(!is_certain(&absence, 6 + MODES_TRUSTED_NS), "a denial holds for a while");
            let elsewhere = nodes.iter().copied().chain([NodeId(count)]);
            assert!(!absence.is_certain(elsewhere, 5), "another datacentre may have the table");
            assert!(!absence.deny(of(nodes[0], 6)), "it has said so before");
            let later = 7 + MODES_TRUSTED_NS;
            assert!(absence.deny(of(nodes[0], later)), "its denial no longer held");
            absence.clear();
            assert!(!is_certain(&absence, 5));
        }
        assert!(!Absence::default().is_certain(std::iter::empty(), 0));
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
