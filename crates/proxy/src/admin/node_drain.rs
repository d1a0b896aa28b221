//! The changes that take a node out of routing, and back.
//!
//! A drain must never leave the proxy without a node that can take queries, so the module looks
//! for another one first. The control plane keeps the set of drained nodes and tells the cores;
//! the change is made when the state that the plane publishes says so.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use shunt_admin::Change;
use shunt_topology::{Node, NodeId};
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, timeout_at};
use tracing::info;

use super::config_changes::refused;
use crate::control::{ClusterState, ClusterView, ControlRequest};
use crate::limits;
use crate::metrics::CoreMetrics;

/// Names of the changes.
pub(super) const DRAIN: &str = "drain_node";
pub(super) const UNDRAIN: &str = "undrain_node";

/// Longest time that the control plane may take. It may be reading a large schema.
const PATIENCE: Duration = Duration::from_secs(8);

/// Sends requests to the control plane once it runs, and does not keep it alive.
#[derive(Default)]
pub(super) struct NodeDrain {
    control: OnceLock<mpsc::WeakSender<ControlRequest>>,
    /// Held by the change under way: two at once could drain the last two nodes.
    running: Mutex<()>,
}

impl fmt::Debug for NodeDrain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeDrain")
    }
}

impl NodeDrain {
    pub(super) fn connect(&self, control: mpsc::WeakSender<ControlRequest>) {
        let _ = self.control.set(control);
    }

    /// Drains a node, or takes it back; `drained` is the state to reach.
    pub(super) fn change<'a>(
        &'a self,
        parameters: &Value,
        drained: bool,
        (view, cores): (&'a ClusterView, &'a [Arc<CoreMetrics>]),
        from: IpAddr,
    ) -> Change<'a> {
        let Some(name) = parameters.get("node").and_then(Value::as_str).map(str::to_owned) else {
            return refused("`node` is missing: the address of a node, as `shunt nodes` shows it");
        };
        Box::pin(async move {
            let Ok(_running) = self.running.try_lock() else {
                return Err(error(
                    "another drain or undrain is running; try again when it has ended",
                ));
            };
            let Some(cluster) = view.get() else {
                return Err(error("the ring is not known yet"));
            };
            let node = find(&cluster, &name).map_err(error)?;
            let is_drained = cluster.drained.contains(&node.id);
            if drained && !is_drained {
                check(&cluster, cores, node).map_err(error)?;
            }
            if drained != is_drained {
                self.order(view, node, drained).await.map_err(error)?;
                info!(address = %node.address, drained, %from, "an operator has changed the routing");
            }
            let in_flight = cores.iter().filter_map(|core| core.nodes.get(node.id));
            let in_flight: u64 = in_flight.map(|node| node.in_flight.get()).sum();
            let address = node.address.to_string();
            Ok(json!({ "node": address, "drained": drained, "in_flight": in_flight }))
        })
    }

    /// Asks the control plane, and waits for the state that has the change.
    async fn order(&self, view: &ClusterView, node: &Node, drained: bool) -> Result<(), String> {
        let ending = || "the proxy is ending".to_owned();
        let until = Instant::now() + PATIENCE;
        let control = self.control.get().and_then(mpsc::WeakSender::upgrade).ok_or_else(ending)?;
        let request = ControlRequest::DrainNode { host_id: node.host_id, drained };
        let mut view = view.clone();
        let done = async {
            control.send(request).await.map_err(|_| ending())?;
            drop(control);
            let is_done = |state: &ClusterState| state.has_drained(node.host_id) == drained;
            if view.reached(is_done).await { Ok(()) } else { Err(ending()) }
        };
        let late = "the control plane has not answered in time: see `shunt nodes`, and ask again";
        timeout_at(until, done).await.unwrap_or_else(|_| Err(late.to_owned()))
    }
}

fn error(why: impl Into<String>) -> Value {
    json!({ "error": why.into() })
}

/// The node with this address, with or without its port.
fn find<'c>(cluster: &'c ClusterState, name: &str) -> Result<&'c Node, String> {
    let nodes = cluster.routing.nodes();
    if let Some(node) = nodes.iter().find(|node| node.address.to_string() == name) {
        return Ok(node);
    }
    let address: Option<IpAddr> = name.parse().ok();
    let mut at = nodes.iter().filter(|node| Some(node.address.ip()) == address);
    match (at.next(), at.next()) {
        (Some(node), None) => Ok(node),
        (Some(_), Some(_)) => Err("several nodes have this address: the port is needed".to_owned()),
        (None, _) => Err("the ring has no node with this address; see `shunt nodes`".to_owned()),
    }
}

/// Refuses to drain a node if no other node can take its queries.
fn check(cluster: &ClusterState, cores: &[Arc<CoreMetrics>], node: &Node) -> Result<(), String> {
    let local = cluster.routing.local_nodes();
    if !local.contains(&node.id) {
        let datacentre = &cluster.datacentre;
        return Err(format!("the node takes no queries: it is not in {datacentre:?}"));
    }
    if cluster.drained.len() >= limits::DRAINED_NODES_MAX {
        return Err(format!("{} nodes are drained: no more can be", cluster.drained.len()));
    }
    let is_candidate = |id: &&NodeId| {
        **id != node.id
            && !cluster.drained.contains(id)
            && cluster.routing.node(**id).is_some_and(|other| other.up)
    };
    let others: Vec<NodeId> = local.iter().filter(is_candidate).copied().collect();
    if others.is_empty() {
        let why = "all others in the local datacentre are down or drained";
        return Err(format!("this is the last node that takes queries: {why}"));
    }
    let has_link = |core: &CoreMetrics, id: NodeId| {
        core.nodes.get(id).is_some_and(|counters| counters.links.get() > 0)
    };
    let depends = |core: &&Arc<CoreMetrics>| {
        has_link(core, node.id) && !others.iter().any(|other| has_link(core, *other))
    };
    match cores.iter().find(depends) {
        Some(core) => Err(format!(
            "core {} has no link to another node that takes queries; try again later",
            core.core
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use shunt_topology::RoutingTable;
    use tokio::sync::watch;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    /// A ring, the cores that route by it, and the control plane's side of the channel.
    struct Bench {
        drain: NodeDrain,
        view: ClusterView,
        ring: watch::Sender<Option<Arc<ClusterState>>>,
        cores: Vec<Arc<CoreMetrics>>,
        requests: mpsc::Receiver<ControlRequest>,
        _cores_end: mpsc::Sender<ControlRequest>,
    }

    /// Nodes 10.0.0.0, 10.0.0.1 .. with these states; the last is in another datacentre.
    fn bench(up: &[bool], drained: &[u16]) -> Bench {
        let last = up.len() - 1;
        let node = |(number, up): (usize, &bool)| Node {
            id: NodeId(number as u16),
            host_id: number as u128 + 1,
            address: ([10, 0, 0, number as u8], 9042).into(),
            datacentre: if number == last { "dc2" } else { "dc1" }.to_owned(),
            rack: "r".to_owned(),
            tokens: vec![number as i64],
            up: *up,
            release_version: "5.0.9".to_owned(),
        };
        let nodes = up.iter().enumerate().map(node).collect();
        let state = ClusterState {
            drained: drained.iter().copied().map(NodeId).collect(),
            ..ClusterState::of_test(RoutingTable::build(nodes, vec![], vec![], Some("dc1")))
        };
        let (ring, view) = ClusterView::new();
        ring.send_replace(Some(Arc::new(state)));
        let (cores_end, requests) = mpsc::channel(4);
        let drain = NodeDrain::default();
        drain.connect(cores_end.downgrade());
        let cores = (0..2).map(|core| Arc::new(CoreMetrics::new(core))).collect();
        Bench { drain, view, ring, cores, requests, _cores_end: cores_end }
    }

    impl Bench {
        async fn refusal(&self, parameters: &Value) -> String {
            let ring = (&self.view, &self.cores[..]);
            let outcome = self.drain.change(parameters, true, ring, HERE).await;
            let refused = outcome.expect_err("it is refused");
            refused["error"].as_str().expect("a reason").to_owned()
        }

        fn has_been_asked(&mut self) -> bool {
            self.requests.try_recv().is_ok()
        }
    }

    fn node(address: &str) -> Value {
        json!({ "node": address })
    }

    #[tokio::test]
    async fn a_node_is_drained_once_the_published_state_says_so() {
        let mut bench = bench(&[true, true, true], &[]);
        let ring = (&bench.view, &bench.cores[..]);
        let plane = async {
            let asked = bench.requests.recv().await;
            assert_eq!(asked, Some(ControlRequest::DrainNode { host_id: 1, drained: true }));
            bench.ring.send_modify(|state| {
                let state = state.as_mut().map(Arc::make_mut).expect("a ring");
                state.drained = vec![NodeId(0)];
            });
        };
        let parameters = node("10.0.0.0:9042");
        let change = bench.drain.change(&parameters, true, ring, HERE);
        let (outcome, ()) = tokio::join!(change, plane);
        let expected = json!({ "node": "10.0.0.0:9042", "drained": true, "in_flight": 0 });
        assert_eq!(outcome, Ok(expected.clone()));
        // It is drained already.
        let again = bench.drain.change(&parameters, true, ring, HERE).await;
        assert_eq!((again, bench.requests.try_recv().is_err()), (Ok(expected), true));
    }

    #[tokio::test]
    async fn the_last_node_that_takes_queries_is_refused() {
        for (up, drained) in [(&[true, false, true][..], &[][..]), (&[true, true, true], &[1])] {
            let mut bench = bench(up, drained);
            let why = bench.refusal(&node("10.0.0.0")).await;
            assert!(why.starts_with("this is the last node"), "{why}");
            assert!(!bench.has_been_asked());
        }
        // A core without a link to another node would have nowhere to send queries.
        let mut bench = bench(&[true, true, true], &[]);
        bench.cores[0].nodes.node(NodeId(1)).links.set(1);
        bench.cores[1].nodes.node(NodeId(0)).links.set(1);
        let why = bench.refusal(&node("10.0.0.0")).await;
        assert!(why.starts_with("core 1 has no link"), "{why}");
        assert!(!bench.has_been_asked());
    }

    #[tokio::test]
    async fn other_names_than_those_of_local_nodes_are_refused() {
        let bench = bench(&[true, true, true], &[]);
        for (parameters, words) in [
            (json!({}), "`node` is missing"),
            (json!({ "node": 7 }), "`node` is missing"),
            (node("10.0.0.9"), "no node with this address"),
            (node(""), "no node with this address"),
            (node("10.0.0.0:1"), "no node with this address"),
            (node("10.0.0.2"), "not in \"dc1\""),
        ] {
            let why = bench.refusal(&parameters).await;
            assert!(why.contains(words), "{parameters}: {why}");
        }
    }
}
