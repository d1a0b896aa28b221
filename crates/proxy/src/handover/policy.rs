//! The decision whether a link goes through the agent on its node's host.

use std::net::SocketAddr;

use shunt_topology::NodeId;

use crate::core::Core;
use crate::ids::{LinkKey, PoolId};
use crate::limits;
use crate::link::Step;

/// The agent for a new link of this pool, if there is one.
pub(crate) fn way(
    core: &Core,
    pool: PoolId,
    node: NodeId,
    now_ns: u64,
) -> Option<(u32, SocketAddr)> {
    let handover = core.handover.as_deref().filter(|handover| !handover.is_off)?;
    let is_of_clients = core.router.pools.get(pool).is_some_and(|pool| !pool.key.is_own);
    let ip = core.router.cluster.as_ref()?.routing.node(node)?.address.ip();
    let index = *handover.of_host.get(&ip)?;
    let agent = handover.agents.get(index as usize)?;
    (is_of_clients && agent.is_up() && agent.no_links_before_ns <= now_ns)
        .then_some((index, agent.address))
}

/// Starts the handshake on a connection to an agent, in which the agent speaks first. False if the
/// link goes to its node directly.
pub(crate) fn connected(core: &mut Core, key: LinkKey) -> bool {
    let (Some(link), Some(handover)) = (core.links.get_mut(key), core.handover.as_deref_mut())
    else {
        return false;
    };
    if link.via.is_none() {
        return false;
    }
    link.step = Step::Agent;
    link.agent = Some(handover.handshake());
    true
}

/// Notes a link that failed to open. If the agent was the cause, the next links bypass it for a
/// while.
pub(crate) fn failed(core: &mut Core, now_ns: u64, key: LinkKey) {
    let Some((via, step)) = core.links.get(key).and_then(|link| Some((link.via?, link.step)))
    else {
        return;
    };
    let agent =
        core.handover.as_deref_mut().and_then(|handover| handover.agents.get_mut(via as usize));
    if let Some(agent) = agent.filter(|_| step != Step::Ready) {
        agent.no_links_before_ns = now_ns + limits::AGENT_LINKS_RETRY_NS;
    }
}
