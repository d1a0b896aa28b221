//! Changes of the ring or its schema that the control plane sends to a core.

use std::net::SocketAddr;
use std::sync::Arc;

use shunt_reactor::Io;
use shunt_topology::{Node, NodeId};

use crate::client::Stall;
use crate::control::state::ClusterState;
use crate::core::Core;
use crate::ids::LinkKey;
use crate::link::{NodeState, Renewal, Upgrade, lifecycle, open};
use crate::transactions::pause;

/// Routes by the new table, drops nodes that left, connects to new ones.
pub(crate) fn changed(core: &mut Core, io: &mut Io, cluster: Arc<ClusterState>) {
    let routing = Arc::clone(&cluster.routing);
    let first = core.router.cluster.is_none();
    core.router.generation = core.router.generation.wrapping_add(1);
    let count = routing.nodes().iter().map(|node| usize::from(node.id.0) + 1).max().unwrap_or(0);
    for index in core.links.nodes_mut().len()..count {
        let metrics = core.context.metrics.nodes.node(NodeId(index as u16));
        core.links.nodes_mut().push(NodeState::new(metrics));
    }
    core.links.set_drained(&cluster.drained);
    for node in routing.nodes() {
        let old = core.router.cluster.as_ref().and_then(|old| old.routing.node(node.id));
        if old.is_none_or(|old| old.host_id != node.host_id)
            && let Some(state) = core.links.node_mut(node.id)
        {
            // The number may have been another node's.
            (state.silent, state.upgrade) = (false, Upgrade::default());
            state.renewal = Renewal::default();
            core.links.outliers.forget(node.id, !first);
        }
        // The health of another address, or of its owner, says nothing about this one.
        if old.is_none_or(|old| node.up && !old.up || leads_to(node) != leads_to(old)) {
            core.links.health.event_up(node.id);
            core.fleet.transactions.hurry();
        }
    }
    // Nodes that get links, in order of their numbers.
    let local = routing.local_nodes();
    let gone: Vec<LinkKey> = core
        .links
        .iter()
        .filter(|(_, link)| {
            let before = core
                .router
                .cluster
                .as_ref()
                .and_then(|old| old.routing.node(link.node))
                .map(leads_to);
            let now = routing
                .node(link.node)
                .filter(|node| local.binary_search(&node.id).is_ok())
                .map(leads_to);
            now.is_none() || (before.is_some() && before != now)
        })
        .map(|(key, _)| key)
        .collect();
    core.router.prepared.resolve(&routing);
    core.router.login_asked = None;
    // Later ones come from the core's own reads, which are more frequent.
    if first {
        pause::begin(core, io, cluster.modes.as_ref());
    }
    if core.router.cluster.as_ref().is_some_and(|old| old.schema_version != cluster.schema_version)
    {
        core.fleet.transactions.schema_changed();
    }
    core.router.set_cluster(cluster);
    for link in gone {
        lifecycle::retire(core, io, link);
    }
    for pool in core.router.pools.ids() {
        open::ensure_links(core, io, pool);
    }
    if first {
        for slot in core.clients.slots() {
            core.clients.unstall(&core.context.metrics, slot, Stall::CLUSTER);
        }
    }
}

/// The address and the host id that links to a node lead to.
fn leads_to(node: &Node) -> (SocketAddr, u128) {
    (node.address, node.host_id)
}
