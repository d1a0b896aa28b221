//! The judgement of nodes: once a tick, a core moves their standings on. At the end of an interval,
//! the core looks for [`crate::link::outliers`] by its own counters.

use shunt_topology::health::Status;
use shunt_topology::{NodeId, RoutingTable};

use crate::core::Core;
use crate::link::links::Links;
use crate::link::outliers::{Outliers, Rules, SHARE_FULL};

/// Moves standings on, and judges the nodes at the end of an interval; once a tick.
pub(crate) fn tick(core: &mut Core, now_ns: u64) {
    let Some(cluster) = core.router.cluster.clone() else { return };
    let rules = Rules::of(&core.context.config);
    let mut outliers = std::mem::take(&mut core.links.outliers);
    let usable = look(&mut outliers, &core.links, &cluster.routing, now_ns);
    for node in outliers.release(now_ns, &rules, &usable) {
        tracing::info!(
            core = core.context.index,
            node = %core.router.node_named(node),
            slow_start_ms = core.context.config.slow_start_ms,
            "a node gets queries again after its ejection"
        );
    }
    if now_ns.saturating_sub(outliers.interval_began_ns) >= rules.interval_ns {
        outliers.interval_began_ns = now_ns;
        let of_node = |node: &NodeId| {
            let metrics = core.links.node(*node).map(|state| &state.metrics);
            (*node, metrics.and_then(|metrics| outliers.end_interval(*node, metrics)))
        };
        let intervals: Vec<_> = usable.iter().map(of_node).collect();
        for (node, cause, hold_ns) in outliers.judge(now_ns, &rules, &intervals) {
            if let Some(state) = core.links.node(node) {
                state.metrics.ejections.add(1);
            }
            tracing::warn!(
                core = core.context.index,
                node = %core.router.node_named(node),
                why = cause.text(),
                hold_ms = hold_ns / 1_000_000,
                "a node is ejected: it gets only queries that no other node can take"
            );
        }
    }
    publish(&outliers, &mut core.links, &rules, now_ns);
    core.links.outliers = outliers;
}

/// Looks at the links of the local nodes; returns the nodes that take queries.
fn look(
    outliers: &mut Outliers,
    links: &Links,
    routing: &RoutingTable,
    now_ns: u64,
) -> Vec<NodeId> {
    let mut usable = Vec::new();
    for node in routing.local_nodes() {
        let Some(state) = links.node(*node) else { continue };
        let has_links = state.metrics.links.get() > 0;
        let fails = links.health.status(*node) != Status::Usable;
        outliers.note_links(*node, has_links, fails, now_ns);
        match has_links && !state.silent && !state.drained {
            true => usable.push(*node),
            false => outliers.skip(*node),
        }
    }
    usable
}

/// Puts the shares where choices read them, and into the metrics.
fn publish(outliers: &Outliers, links: &mut Links, rules: &Rules, now_ns: u64) {
    let mut has_reduced = false;
    let shares = outliers.shares(now_ns, rules);
    for (state, (share, is_ejected)) in links.nodes_mut().iter_mut().zip(shares) {
        state.share = share;
        has_reduced |= share != SHARE_FULL;
        let withheld = u64::from(SHARE_FULL - share);
        state.metrics.withheld_percent.set(withheld * 100 / u64::from(SHARE_FULL));
        state.metrics.ejected.set(u64::from(is_ejected));
    }
    links.has_reduced = has_reduced;
}
