//! The question for all modes, or all rules: to any node, or to one after another once a node has
//! denied the table, or has not answered well.

use shunt_reactor::Io;

use crate::core::Core;
use crate::fleet::statements::{self, Whose};
use crate::transactions::levels;
use crate::transactions::modes::polling::{AGAIN_NS, Polling, RETRY_NS};
use crate::transactions::part::{Part, Poll};

/// Asks for all modes or rules.
pub(super) fn ask(
    core: &mut Core,
    io: &mut Io,
    part: fn(Poll) -> Part,
    question: &str,
    of: fn(&mut Core) -> &mut Polling,
) {
    let now_ns = io.read_clock_ns();
    let is_sent = send(core, io, part, question, of, now_ns);
    let polling = of(core);
    if is_sent {
        polling.asked_ns = now_ns;
    }
    polling.next_ns = now_ns + if is_sent { RETRY_NS } else { AGAIN_NS };
}

/// Sends the question; `false` if no node can be asked.
fn send(
    core: &mut Core,
    io: &mut Io,
    part: fn(Poll) -> Part,
    question: &str,
    of: fn(&mut Core) -> &mut Polling,
    now_ns: u64,
) -> bool {
    let Some(pool) = statements::ask::pool(core, io) else { return false };
    let quorum = levels::last_quorum(core);
    let polling = of(core);
    let has_failed = polling.asked_ns > 0 && polling.known_ns != Some(polling.asked_ns);
    let is_alone = polling.absence.is_suspected || has_failed;
    let Some(cluster) = core.router.cluster.clone().filter(|_| is_alone) else {
        let whose = Whose::Transaction(part(Poll { asked_ns: now_ns, node: None }));
        return statements::ask::ask_in(core, io, pool, whose, question, quorum);
    };
    let nodes = of(core).absence.order(cluster.routing.local_nodes(), now_ns);
    let asked = nodes.into_iter().find(|node| {
        let poll = Poll { asked_ns: now_ns, node: Some(*node) };
        let whose = Whose::Transaction(part(poll));
        statements::ask::ask_node(core, io, (pool, *node), whose, question, quorum)
    });
    asked.map(|node| of(core).absence.note(node, now_ns)).is_some()
}
