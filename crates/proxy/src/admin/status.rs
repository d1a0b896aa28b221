//! The proxy's part of `/status`: its present state.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Admin, alerts, rules};
use crate::config::{Config, Window};
use crate::control::ClusterState;
use crate::link::identity::uuid_text;
use crate::metrics::{CoreMetrics, Snapshot};

/// Builds the object.
pub(super) async fn status(admin: &Admin) -> Value {
    let cores = &admin.sources.cores;
    let config = admin.config.borrow().clone();
    let fleet = async {
        match config.fleet.as_deref() {
            Some(name) => Some(admin.locks.status(name, cores).await),
            None => None,
        }
    };
    // Both questions to the cores share one deadline.
    let (groups, fleet) = tokio::join!(admin.clients.groups(), fleet);
    let (fleet, of_fleet) = fleet.unzip();
    let missing = &groups["cores_missing"];
    let (alerts, omitted) = alerts::shown(admin, of_fleet.unwrap_or_default(), missing);
    let mut latency = Snapshot::default();
    cores.iter().for_each(|core| core.latency_ns.add_to(&mut latency));
    let sum =
        |number: fn(&CoreMetrics) -> u64| -> u64 { cores.iter().map(|core| number(core)).sum() };
    let paths = admin.config.borrow().listen.unix.clone();
    let paths = paths.iter().map(|path| format!("unix:{}", path.display()));
    json!({
        "listen": admin.listening.iter().map(ToString::to_string).chain(paths).collect::<Vec<_>>(),
        "alerts": alerts,
        "alerts_omitted": omitted,
        "draining": admin.draining.load(Ordering::Relaxed),
        "clients": sum(|core| core.clients.get()),
        "client_groups": groups,
        "in_flight": sum(|core| core.in_flight.get()),
        "queries": sum(|core| core.queries.total()),
        "latency_us": quantiles(&latency),
        "cores": cores.iter().map(core_status).collect::<Vec<_>>(),
        "ring": admin.sources.cluster.get().map(|cluster| ring_status(&cluster, admin)),
        "control_connected": admin.sources.control.connected.get() == 1,
        "window_us": match config.window_us {
            Window::Auto => json!("auto"),
            Window::Fixed { us } => json!(us),
        },
        "gather_us": config.gather_us,
        "fleet": fleet,
        "certificates": certificates(admin),
        "limits": limits(&config),
        "rules": rules::page(&config.rule)["rules"],
    })
}

/// The files of certificates in use, and by what.
fn certificates(admin: &Admin) -> Value {
    let cores = &admin.sources.cores;
    let links = admin.sources.cluster.get().map_or(0, |cluster| admin.links(&cluster.routing));
    let users = |usage: &str| match usage {
        "clients" => {
            let clients: u64 = cores.iter().map(|core| core.tls_clients.get()).sum();
            format!("{clients} connections of clients")
        }
        "nodes" => format!("{links} links to nodes, and the control connection"),
        "identities" => "links for clients of identities".to_owned(),
        "fleet" => "connections to other proxies of the fleet".to_owned(),
        "agents" => "connections to agents".to_owned(),
        "admin" => "the admin pages and tables".to_owned(),
        "locks_http" => "locks over HTTP".to_owned(),
        usage => format!("connections of {usage}"),
    };
    admin.sources.tls.certificates_shown(users)
}

fn quantiles(latency: &Snapshot) -> Value {
    let microseconds = |quantile| latency.quantile(quantile).map(|ns| ns as f64 / 1000.0);
    json!({ "p50": microseconds(0.5), "p99": microseconds(0.99), "p999": microseconds(0.999) })
}

/// The latencies of a node in the last seconds.
fn recent((latency, time): (Snapshot, Duration)) -> Value {
    json!({
        "seconds": time.as_secs(),
        "answers": latency.count(),
        "latency_us": quantiles(&latency),
    })
}

fn core_status(core: &Arc<CoreMetrics>) -> Value {
    json!({
        "core": core.core,
        "driver": core.driver.get(),
        "turns": core.turns.get(),
        "clients": core.clients.get(),
        "clients_paused": core.clients_paused.get(),
        "in_flight": core.in_flight.get(),
        "window_us": core.window_ns.get() as f64 / 1000.0,
    })
}

fn ring_status(cluster: &ClusterState, admin: &Admin) -> Value {
    let (cores, windows, now) = (&admin.sources.cores, &admin.windows, Instant::now());
    windows.retain(&cluster.routing);
    let node_status = |node: &shunt_topology::Node| {
        let metrics: Vec<_> = cores.iter().filter_map(|core| core.nodes.get(node.id)).collect();
        let mut latency = Snapshot::default();
        metrics.iter().for_each(|node| node.latency_ns.add_to(&mut latency));
        let withheld: u64 = metrics.iter().map(|node| node.withheld_percent.get()).sum();
        json!({
            "address": node.address.to_string(),
            "host_id": uuid_text(node.host_id),
            "datacentre": node.datacentre,
            "rack": node.rack,
            "release_version": node.release_version,
            "up": node.up,
            "drained": cluster.drained.contains(&node.id),
            "state": state(node.up, cluster.drained.contains(&node.id)),
            "tokens": node.tokens.len(),
            "links": metrics.iter().map(|node| node.links.get()).sum::<u64>(),
            "links_aggregated": metrics.iter().map(|node| node.aggregated_links.get()).sum::<u64>(),
            "in_flight": metrics.iter().map(|node| node.in_flight.get()).sum::<u64>(),
            "queries": metrics.iter().map(|node| node.queries.get()).sum::<u64>(),
            "timed_out": metrics.iter().map(|node| node.timed_out.get()).sum::<u64>(),
            "errors": metrics.iter().map(|node| node.errors.get()).sum::<u64>(),
            "ejected": metrics.iter().map(|node| node.ejected.get()).sum::<u64>(),
            "ejections": metrics.iter().map(|node| node.ejections.get()).sum::<u64>(),
            "share_percent": 100 - withheld.div_ceil(metrics.len().max(1) as u64),
            "latency_us": quantiles(&latency),
            "recent": windows.since_former(node, &latency, now).map(recent),
        })
    };
    json!({
        "cluster_name": cluster.cluster_name,
        "generation": cluster.generation,
        "datacentre": cluster.datacentre,
        "partitioner": cluster.partitioner,
        "protocol_version_max": cluster.protocol_version_max,
        "login_needed": cluster.authenticator.is_some(),
        "schema_version": uuid_text(cluster.schema_version),
        "nodes": cluster.routing.nodes().iter().map(node_status).collect::<Vec<_>>(),
    })
}

/// The state of a node in tables.
fn state(is_up: bool, is_drained: bool) -> &'static str {
    match (is_up, is_drained) {
        (true, false) => "up",
        (true, true) => "drained",
        (false, false) => "down",
        (false, true) => "down, drained",
    }
}

fn limits(config: &Config) -> Value {
    json!({
        "clients_max": config.clients_max,
        "links_per_node": config.links_per_node,
        "in_flight_max": config.in_flight_max,
        "frame_bytes_max": config.frame_bytes_max,
        "client_backlog_bytes": config.client_backlog_bytes,
        "clients_bytes_max": config.clients_bytes_max,
        "query_timeout_ms": config.query_timeout_ms,
        "connect_timeout_ms": config.connect_timeout_ms,
        "handshake_timeout_ms": config.handshake_timeout_ms,
        "drain_timeout_ms": config.drain_timeout_ms,
    })
}
