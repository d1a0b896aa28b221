//! Alerts: the conditions of the proxy that an operator must look at, for `/status` and all that
//! shows it.
//!
//! Once a second, even if nobody asks, the module looks at the conditions that it knows without the
//! cores, so that an alert says since when it lasts. At conditions that only the cores know, it
//! looks with each `/status`.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use shunt_admin::Part as _;
use shunt_topology::Node;

use super::Admin;
use super::alert_kinds::{
    Alert, CERTIFICATE_EXPIRES, CONFIGURATION_REFUSED, DRAINING, LOOP_STANDS_STILL, NODE_DOWN,
    NODE_EJECTED, NODE_UNREACHABLE, NOT_READY, RESTART_NEEDED, RING_VIEW_OLD, WITHOUT_LINKS,
};
use crate::control::ClusterState;
use crate::metrics::{Gauge, NodeMetrics};

/// Alerts that a page shows.
const ALERTS_MAX: usize = 256;
/// Time before the end of a certificate from which there is an alert.
const EXPIRY_SECONDS: i64 = 14 * 24 * 3_600;

/// Alerts that are found together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Origin {
    /// The proxy's own counters.
    Known,
    /// Answers of the cores.
    Cores,
}

/// The begin of an alert, by its origin, kind and subject.
type Begins = HashMap<(Origin, &'static str, String), u64>;

/// The begins of the alerts that last.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<Begins>);

impl Seen {
    /// The begin of each alert; those of this origin that are not among them are over.
    fn since(&self, origin: Origin, alerts: &[Alert], now_ms: u64) -> Vec<u64> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let alerts = &alerts[..alerts.len().min(ALERTS_MAX)];
        let mut lasting = Begins::new();
        let begins = alerts.iter().map(|alert| {
            let (name, subject) = alert.key();
            let key = (origin, name, subject.to_owned());
            let since_ms = seen.get(&key).copied().unwrap_or(now_ms);
            lasting.insert(key, since_ms);
            since_ms
        });
        let begins = begins.collect();
        seen.retain(|(other, ..), _| *other != origin);
        seen.extend(lasting);
        begins
    }
}

/// Looks at the conditions that are known without the cores.
pub(super) fn look(admin: &Admin) {
    admin.alerts.since(Origin::Known, &known(admin), now_ms());
}

/// All alerts, the most severe first, and the number of those left out. `of_fleet`: alerts of the
/// fleet; `missing`: the cores that did not answer in time.
pub(super) fn shown(admin: &Admin, of_fleet: Vec<Alert>, missing: &Value) -> (Vec<Value>, usize) {
    let missing = missing.as_array().into_iter().flatten().map(|core| {
        Alert::about(
            &LOOP_STANDS_STILL,
            core.to_string(),
            format!("core {core} did not answer in time"),
        )
    });
    let of_cores: Vec<Alert> = missing.chain(of_fleet).collect();
    let now_ms = now_ms();
    let mut all: Vec<(Alert, u64)> = Vec::new();
    for (origin, alerts) in [(Origin::Known, known(admin)), (Origin::Cores, of_cores)] {
        let begins = admin.alerts.since(origin, &alerts, now_ms);
        let begins = begins.into_iter().chain(std::iter::repeat(now_ms));
        all.extend(alerts.into_iter().zip(begins));
    }
    all.sort_by_key(|(alert, _)| alert.rank());
    let omitted = all.len().saturating_sub(ALERTS_MAX);
    let shown = all.iter().take(ALERTS_MAX).map(|(alert, since_ms)| alert.shown(*since_ms));
    (shown.collect(), omitted)
}

/// The alerts that are known without the cores.
fn known(admin: &Admin) -> Vec<Alert> {
    let mut alerts = Vec::new();
    if admin.draining.load(Ordering::Relaxed) {
        let text = "the proxy drains: load balancers send clients elsewhere";
        alerts.push(Alert::new(&DRAINING, text.to_owned()));
    } else if let Some(reason) = admin.not_ready() {
        alerts.push(Alert::new(&NOT_READY, format!("not ready: {reason}")));
    }
    if let Some(cluster) = admin.sources.cluster.get() {
        alerts.extend(of_nodes(admin, &cluster));
        if admin.sources.control.connected.get() == 0 {
            let text = "the proxy has no control connection";
            alerts.push(Alert::new(&RING_VIEW_OLD, text.to_owned()));
        }
    }
    let (problems, at_ms) = admin.settings.problems();
    if !problems.is_empty() {
        let text = format!("the configuration was refused: {}", problems.join("; "));
        let alert = Alert::about(&CONFIGURATION_REFUSED, String::new(), text);
        alerts.push(alert.since(at_ms));
    }
    let waiting = admin.settings.waiting(&admin.config.borrow());
    if !waiting.is_empty() {
        let text = format!("new values wait for a restart: {}", waiting.join(", "));
        alerts.push(Alert::about(&RESTART_NEEDED, String::new(), text));
    }
    alerts.extend(of_certificates(admin));
    alerts
}

fn of_nodes(admin: &Admin, cluster: &ClusterState) -> Vec<Alert> {
    let cores = &admin.sources.cores;
    let sum = |node: &Node, gauge: fn(&NodeMetrics) -> &Gauge| -> u64 {
        let cores = cores.iter().filter_map(|core| core.nodes.get(node.id));
        cores.map(|of_core| gauge(&of_core).get()).sum()
    };
    let links = |node: &Node| sum(node, |metrics| &metrics.links);
    let nodes = cluster.routing.nodes();
    let has_links = nodes.iter().any(|node| links(node) > 0);
    let has_clients = cores.iter().any(|core| core.clients.get() > 0);
    let mut alerts = Vec::new();
    for node in nodes {
        let is_local = node.datacentre == cluster.datacentre;
        let kind = if !node.up {
            &NODE_DOWN
        } else if is_local && (has_links || has_clients) && links(node) == 0 {
            if has_links { &NODE_UNREACHABLE } else { &WITHOUT_LINKS }
        } else if sum(node, |metrics| &metrics.ejected) > 0 {
            &NODE_EJECTED
        } else {
            continue;
        };
        let text = if !node.up {
            format!("node {} is down", node.address)
        } else if links(node) == 0 {
            format!("node {} is up, and the proxy has no link to it", node.address)
        } else {
            format!(
                "node {} is slower or fails more often than the others, and gets fewer queries: \
                {} of {} event loops have ejected it",
                node.address,
                sum(node, |metrics| &metrics.ejected),
                cores.len()
            )
        };
        alerts.push(Alert::about(kind, node.address.to_string(), text));
    }
    alerts
}

fn of_certificates(admin: &Admin) -> impl Iterator<Item = Alert> {
    let now_s = (now_ms() / 1_000) as i64;
    admin.sources.tls.certificates().into_iter().filter_map(move |file| {
        let left_s = file.expires_s.saturating_sub(now_s);
        let when = match left_s {
            ..=0 => "has expired".to_owned(),
            1..EXPIRY_SECONDS => {
                format!("expires in {} days and {} hours", left_s / 86_400, left_s / 3_600 % 24)
            }
            _ => return None,
        };
        let path = file.path.display().to_string();
        let text = format!("the certificate of {} {when}: {path}", file.usage);
        Some(Alert::about(&CERTIFICATE_EXPIRES, format!("{} {path}", file.usage), text))
    })
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::super::alert_kinds::FLEET_UNSEALED;
    use super::*;

    #[test]
    fn an_alert_begins_when_it_is_first_seen_and_ends_when_it_is_gone() {
        let seen = Seen::default();
        let text = |figure: u32| format!("the work of {figure} dead members is not finished");
        let of = |figure| [Alert::new(&FLEET_UNSEALED, text(figure))];
        assert_eq!(seen.since(Origin::Cores, &of(2), 1_000), [1_000]);
        assert_eq!(seen.since(Origin::Known, &[], 2_000), [0; 0]);
        assert_eq!(seen.since(Origin::Cores, &of(1), 3_000), [1_000], "the figure changed");
        assert_eq!(seen.since(Origin::Cores, &[], 4_000), [0; 0]);
        assert_eq!(seen.since(Origin::Cores, &of(1), 5_000), [5_000]);
    }

    #[test]
    fn begins_are_bounded() {
        let seen = Seen::default();
        let many = |from: usize| -> Vec<Alert> {
            let one = |number: usize| {
                Alert::about(&NODE_DOWN, number.to_string(), "it is down".to_owned())
            };
            (from..from + 10_000).map(one).collect()
        };
        for from in [0, 5_000] {
            assert_eq!(seen.since(Origin::Known, &many(from), 7).len(), ALERTS_MAX);
            assert_eq!(seen.0.lock().expect("lock").len(), ALERTS_MAX);
        }
    }
}
