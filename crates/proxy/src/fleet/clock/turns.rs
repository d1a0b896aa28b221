//! The order in which nodes are asked for their time. Without I/O.
//!
//! A node is asked once within [`CLOCK_ASK_NS`]. If its last question is still open then, the next
//! pause is twice as long: however long `query_timeout_ms` is, few questions to a node that does
//! not answer are in flight. An open question counts to the limit of all nodes for
//! [`CLOCK_ASK_NS`] only, so nodes that do not answer keep no others from being asked.

use shunt_topology::NodeId;

use crate::limits::{CLOCK_ASK_NS, CLOCK_ASKED_MAX, CLOCK_PAUSE_MAX_NS};

/// A node's last question.
struct Turn {
    node: NodeId,
    sent_ns: u64,
    /// Time from this question to the next.
    pause_ns: u64,
    /// The question has no outcome yet.
    is_open: bool,
}

/// The last questions to nodes that are not due again, or have not answered.
#[derive(Default)]
pub(super) struct Turns {
    all: Vec<Turn>,
    /// The place of the node that is asked next.
    cursor: usize,
}

impl Turns {
    /// The number of nodes that may be asked now.
    pub(super) fn room(&self, now_ns: u64) -> usize {
        let is_recent = |turn: &&Turn| now_ns.saturating_sub(turn.sent_ns) < CLOCK_ASK_NS;
        CLOCK_ASKED_MAX.saturating_sub(self.all.iter().filter(is_recent).count())
    }

    /// The next of these nodes that may be asked now.
    pub(super) fn choose(&mut self, nodes: &[NodeId], now_ns: u64) -> Option<NodeId> {
        let first = self.cursor;
        let (at, node) = (0..nodes.len())
            .map(|offset| first.wrapping_add(offset))
            .map(|at| (at, nodes[at % nodes.len()]))
            .find(|(_, node)| self.is_due(*node, now_ns))?;
        self.cursor = at.wrapping_add(1);
        Some(node)
    }

    fn is_due(&self, node: NodeId, now_ns: u64) -> bool {
        let last = self.all.iter().find(|turn| turn.node == node);
        last.is_none_or(|turn| now_ns.saturating_sub(turn.sent_ns) >= turn.pause_ns)
    }

    /// A node was asked.
    pub(super) fn add(&mut self, node: NodeId, now_ns: u64) {
        let mut pause_ns = CLOCK_ASK_NS;
        self.all.retain(|turn| {
            if turn.node == node && turn.is_open {
                pause_ns = turn.pause_ns.saturating_mul(2).min(CLOCK_PAUSE_MAX_NS);
            }
            let is_recent = now_ns.saturating_sub(turn.sent_ns) < CLOCK_ASK_NS;
            turn.node != node && (turn.is_open || is_recent)
        });
        self.all.push(Turn { node, sent_ns: now_ns, pause_ns, is_open: true });
    }

    /// The question that a node was asked at this time has an outcome.
    pub(super) fn close(&mut self, node: NodeId, sent_ns: u64) {
        let mut turns = self.all.iter_mut();
        if let Some(turn) = turns.find(|turn| turn.node == node && turn.sent_ns == sent_ns) {
            (turn.is_open, turn.pause_ns) = (false, CLOCK_ASK_NS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SECOND_NS;

    const STUCK: NodeId = NodeId(0);

    /// Seconds at which each of so many nodes is asked within so many. All but [`STUCK`] answer at
    /// once.
    fn run(nodes: u16, seconds: u64) -> Vec<Vec<u64>> {
        let (mut turns, mut asked) = (Turns::default(), vec![Vec::new(); usize::from(nodes)]);
        let nodes: Vec<NodeId> = (0..nodes).map(NodeId).collect();
        for second in 0..seconds {
            let now_ns = second * SECOND_NS;
            for _ in 0..turns.room(now_ns) {
                let Some(node) = turns.choose(&nodes, now_ns) else { break };
                turns.add(node, now_ns);
                asked[usize::from(node.0)].push(second);
                if node != STUCK {
                    turns.close(node, now_ns);
                }
            }
        }
        asked
    }

    #[test]
    fn a_node_that_does_not_answer_keeps_no_other_from_being_asked() {
        let asked = run(3, 3_600);
        let pauses = (0..10).map(|turn| 615 + 300 * turn);
        let expected: Vec<u64> = [0, 5, 15, 35, 75, 155, 315].into_iter().chain(pauses).collect();
        assert_eq!(asked[0], expected);
        let others: Vec<u64> = (0..720).map(|turn| turn * 5).collect();
        assert_eq!((&asked[1], &asked[2]), (&others, &others));
    }

    #[test]
    fn no_more_nodes_are_asked_at_once_than_may_be_and_all_in_turn() {
        let asked = run(20, 60);
        for second in 0..60 {
            let count = asked.iter().flatten().filter(|at| (second..second + 5).contains(*at));
            assert!(count.count() <= CLOCK_ASKED_MAX, "from {second} s");
        }
        assert!(asked[1..].iter().all(|times| times.len() == 3), "{asked:?}");
    }

    #[test]
    fn an_answer_ends_the_longer_pauses_and_one_to_an_earlier_question_does_not() {
        let mut turns = Turns::default();
        turns.add(STUCK, 0);
        turns.add(STUCK, CLOCK_ASK_NS);
        turns.close(STUCK, 0);
        assert!(!turns.is_due(STUCK, 2 * CLOCK_ASK_NS));
        turns.close(STUCK, CLOCK_ASK_NS);
        assert!(turns.is_due(STUCK, 2 * CLOCK_ASK_NS));
        turns.add(STUCK, 2 * CLOCK_ASK_NS);
        assert!(turns.is_due(STUCK, 3 * CLOCK_ASK_NS) && turns.all.len() == 1);
    }

    #[test]
    fn a_node_that_had_no_link_waits_for_no_other() {
        let nodes: Vec<NodeId> = (1..=3).map(NodeId).collect();
        let mut turns = Turns::default();
        turns.add(NodeId(2), 0);
        assert_eq!(turns.room(1), CLOCK_ASKED_MAX - 1);
        let mut choose = |now_ns| turns.choose(&nodes, now_ns).map(|node| node.0);
        assert_eq!([choose(0), choose(0), choose(0)], [Some(1), Some(3), Some(1)]);
        assert_eq!(choose(CLOCK_ASK_NS), Some(2));
        assert_eq!(turns.choose(&[], 0), None);
    }
}
