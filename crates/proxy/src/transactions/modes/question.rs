//! The question for all modes, or all rules: to any node, or to one after another once a node has
//! denied the table.

use shunt_reactor::Io;

use crate::core::Core;
use crate::fleet::statements::{self, Whose};
use crate::transactions::levels;
use crate::transactions::modes::absence::Absence;
use crate::transactions::part::Part;

/// Asks for all modes or rules; `false` if no node can be asked.
pub(super) fn ask(
    core: &mut Core,
    io: &mut Io,
    part: Part,
    question: &str,
    of: fn(&mut Core) -> &mut Absence,
) -> bool {
    let Some(pool) = statements::ask::pool(core, io) else { return false };
    let (quorum, whose) = (levels::last_quorum(core), Whose::Transaction(part));
    of(core).asked = None;
    let Some(cluster) = core.router.cluster.clone().filter(|_| of(core).is_suspected) else {
        return statements::ask::ask_in(core, io, pool, whose, question, quorum);
    };
    let now_ns = io.now_ns();
    let nodes = of(core).order(cluster.routing.local_nodes(), now_ns);
    let asked = nodes
        .into_iter()
        .find(|node| statements::ask::ask_node(core, io, (pool, *node), whose, question, quorum));
    asked.map(|node| of(core).note(node, now_ns)).is_some()
}
