//! The question for all modes, or all rules: to any node, or to one after another once a node has
//! denied the table, or has not answered well.

use shunt_reactor::Io;

use crate::core::Core;
use crate::fleet::statements::{self, Whose};
use crate::transactions::levels;
use crate::transactions::modes::denials::Denial;
use crate::transactions::modes::polling::{AGAIN_NS, Polling, RETRY_NS};
use crate::transactions::part::{Part, Poll};
use crate::transactions::pause;

/// The question for all rows of one of the fleet's own tables.
pub(super) struct TablePoll {
    /// The table, with its keyspace.
    pub(super) table: &'static str,
    pub(super) text: &'static str,
    pub(super) part: fn(Poll) -> Part,
    /// The state of its polling.
    pub(super) polling: fn(&mut Core) -> &mut Polling,
}

impl TablePoll {
    /// Asks for all rows.
    pub(super) fn start(&self, core: &mut Core, io: &mut Io) {
        let now_ns = io.read_clock_ns();
        let is_sent = self.send(core, io, now_ns);
        let polling = (self.polling)(core);
        if is_sent {
            polling.asked_ns = now_ns;
        }
        polling.next_ns = now_ns + if is_sent { RETRY_NS } else { AGAIN_NS };
    }

    /// Sends the question; `false` if no node can be asked.
    fn send(&self, core: &mut Core, io: &mut Io, now_ns: u64) -> bool {
        let Some(pool) = statements::ask::pool(core, io) else { return false };
        let quorum = levels::last_quorum(core);
        let polling = (self.polling)(core);
        let has_failed = polling.asked_ns > 0 && polling.known_ns != Some(polling.asked_ns);
        let is_alone = polling.denials.is_suspected || has_failed;
        let Some(cluster) = core.router.cluster.clone().filter(|_| is_alone) else {
            let whose = Whose::Transaction((self.part)(Poll { asked_ns: now_ns, node: None }));
            return statements::ask::ask_in(core, io, pool, whose, self.text, quorum);
        };
        let nodes = (self.polling)(core).denials.order(cluster.routing.local_nodes(), now_ns);
        let asked = nodes.into_iter().find(|node| {
            let poll = Poll { asked_ns: now_ns, node: Some(*node) };
            let whose = Whose::Transaction((self.part)(poll));
            statements::ask::ask_node(core, io, (pool, *node), whose, self.text, quorum)
        });
        asked.map(|node| (self.polling)(core).denials.note(node, now_ns)).is_some()
    }

    /// Takes in a node's denial of the table, which counts once all nodes agree in it.
    /// `may_be_absent` is false if the fleet is known to have the table.
    pub(super) fn deny(
        &self,
        core: &mut Core,
        io: &mut Io,
        (poll, denial): (Poll, Denial),
        may_be_absent: bool,
        now_ns: u64,
    ) {
        let Some(cluster) = core.router.cluster.clone() else { return };
        let woke_ns = core.fleet.transactions.modes.woke_ns;
        let (is_in_doubt, is_settled) = (core.router.modes.are_in_doubt(), pause::is_settled(core));
        let polling = (self.polling)(core);
        polling.note_failure(now_ns);
        if poll.asked_ns < woke_ns {
            return;
        }
        let is_news = polling.denials.deny(poll, denial);
        let ring = cluster.routing.nodes().iter().map(|node| node.id);
        let local = cluster.routing.local_nodes().iter().copied();
        let is_counted = match denial {
            Denial::Absent => {
                may_be_absent && polling.denials.is_certain(denial, ring, now_ns)
                    || is_settled && !polling.denials.has_rows
            }
            Denial::Forbidden => polling.denials.is_certain(denial, local, now_ns),
        };
        match denial {
            _ if !is_counted => {
                if is_news && is_in_doubt {
                    self.start(core, io);
                }
            }
            Denial::Absent => polling.note_absence(poll, now_ns),
            Denial::Forbidden => {
                if polling.note_missing_right() {
                    tracing::warn!(
                        core = core.context.index,
                        "no node lets this proxy's role read {}: statements on tables with a mode or a rule bypass transactions here",
                        self.table
                    );
                }
            }
        }
    }
}
