//! The groups of clients for `/status`. The module asks the cores, merges their answers, and leaves
//! out the groups that matter least.
//!
//! Each core counts at most once a second, because the page shows a younger answer again. The page
//! names a core that does not answer in time instead of waiting for it. `/metrics/groups` shows the
//! same groups.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use shunt_admin::MetricFamily;

use super::core_answers::{CachedAnswer, PATIENCE, ask_all};
use super::{errors, group_metrics};
use crate::client::census::{CoreCensus, Group, Tally};
use crate::control::{CoreMail, Mailbox};

/// Groups shown for their number of clients. With [`MOST_QUERIES`] these are as many rows as
/// `/digests` has: a browser sorts and filters them at once, and a scrape reads them.
const MOST_CLIENTS: usize = 256;
/// Other groups shown for their rate of queries, or because their clients left last.
const MOST_QUERIES: usize = 256;

/// The counts, asked from the cores.
#[derive(Debug)]
pub(super) struct Clients(CachedAnswer, Mutex<group_metrics::Counters>);

impl Clients {
    pub(super) fn new(mailboxes: Arc<[Mailbox]>) -> Self {
        Self(CachedAnswer::new(mailboxes), Mutex::default())
    }

    /// The clients by role, address, keyspace, driver, version and TLS.
    pub(super) async fn groups(&self) -> Value {
        self.0.recent(|mailboxes| async { shown(ask_cores(mailboxes, PATIENCE).await) }).await
    }

    /// The groups as metrics.
    pub(super) async fn metrics(&self) -> Vec<MetricFamily> {
        let groups = self.groups().await;
        let mut counters = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        group_metrics::families(&groups, &mut counters)
    }
}

/// The count of all cores together, and the cores that did not answer.
struct Counted {
    groups: HashMap<Group, Tally>,
    others: Tally,
    missing: Vec<usize>,
}

async fn ask_cores(mailboxes: &[Mailbox], patience: Duration) -> Counted {
    let (mut groups_of_all, mut others_of_all) = (HashMap::<Group, Tally>::new(), Tally::default());
    let take = |CoreCensus { core, groups, others }| {
        others_of_all.add(others);
        for (group, tally) in groups {
            groups_of_all.entry(group).or_default().add(tally);
        }
        core
    };
    let missing = ask_all(mailboxes, patience, CoreMail::Census, take).await;
    Counted { groups: groups_of_all, others: others_of_all, missing }
}

/// The groups with the most clients; of the others, those with the highest rate of queries, and
/// those whose clients left last; and the sum of the rest.
fn shown(counted: Counted) -> Value {
    let mut total = counted.others;
    counted.groups.values().for_each(|tally| total.add(*tally));
    let mut groups: Vec<(Group, Tally)> = counted.groups.into_iter().collect();
    groups.sort_unstable_by(|(a, of_a), (b, of_b)| {
        (of_b.clients, of_b.in_flight).cmp(&(of_a.clients, of_a.in_flight)).then_with(|| a.cmp(b))
    });
    let mut rest = groups.split_off(groups.len().min(MOST_CLIENTS));
    // The sort is stable, so that equal groups keep their order.
    rest.sort_by_key(|(_, tally)| {
        (Reverse((tally.queries_per_second, tally.in_flight)), tally.left_ago_ns)
    });
    let hidden = rest.split_off(rest.len().min(MOST_QUERIES));
    groups.append(&mut rest);
    let mut others = counted.others;
    hidden.iter().for_each(|(_, tally)| others.add(*tally));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let shown = groups.iter().map(|(group, tally)| group_shown(group, *tally, now));
    json!({
        "groups": shown.collect::<Vec<_>>(),
        "others": tally_shown(others),
        "total": tally_shown(total),
        "cores_missing": counted.missing,
    })
}

fn tally_shown(tally: Tally) -> Value {
    let times = tally.times;
    json!({
        "clients": tally.clients,
        "paused": tally.paused,
        "in_flight": tally.in_flight,
        "queries": tally.queries,
        "queries_per_second": tally.queries_per_second,
        "errors": tally.errors.total(),
        "errors_by_kind": errors::by_kind(&tally.errors.0),
        "bytes_in": tally.bytes_in,
        "bytes_out": tally.bytes_out,
        "p50_us": times.percentile_us(0.5),
        "p99_us": times.percentile_us(0.99),
        "wait_p50_us": times.wait_percentile_us(0.5),
        "wait_p99_us": times.wait_percentile_us(0.99),
        "node_p50_us": times.node_percentile_us(0.5),
        "node_p99_us": times.node_percentile_us(0.99),
    })
}

fn group_shown(group: &Group, tally: Tally, now: Duration) -> Value {
    let driver = group.driver.as_deref();
    let left = tally.left_ago_ns.map(|ago_ns| now.saturating_sub(Duration::from_nanos(ago_ns)));
    let mut shown = json!({
        "role": group.role.as_deref(),
        "identity": group.identity.as_deref(),
        "address": group.address.to_string(),
        "keyspace": group.keyspace.as_deref(),
        "driver": driver.map(|driver| &driver.name),
        "driver_version": driver.map(|driver| &driver.version),
        "application": driver.map(|driver| &driver.application).filter(|name| !name.is_empty()),
        "protocol_version": group.version,
        "tls": group.tls,
        "left_unix_ms": left.map(|left| left.as_millis() as u64),
    });
    if let (Value::Object(shown), Value::Object(tally)) = (&mut shown, tally_shown(tally)) {
        shown.extend(tally);
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use shunt_reactor::ClientHost;

    use super::*;
    use crate::client::traffic::Errors;
    use crate::limits;

    fn group(role: &str, host: u16) -> Group {
        let [high, low] = host.to_be_bytes();
        let driver = crate::client::identity::Driver {
            name: "D".into(),
            version: "1".into(),
            application: "".into(),
        };
        Group {
            role: Some(role.into()),
            identity: None,
            address: ClientHost::Network([10, 0, high, low].into()),
            keyspace: None,
            driver: Some(Arc::new(driver)),
            version: 5,
            tls: None,
        }
    }

    fn tally(clients: u64, in_flight: u64) -> Tally {
        Tally {
            clients,
            in_flight,
            queries: 10 * clients,
            queries_per_second: in_flight,
            errors: Errors([clients, 0, 0, 0, 0, 0]),
            bytes_in: 100 * clients,
            bytes_out: 200 * clients,
            ..Tally::default()
        }
    }

    /// A core that answers with these groups, and the number of questions it got.
    fn core(core: usize, groups: Vec<(Group, Tally)>) -> (Mailbox, Arc<AtomicU64>) {
        let asked = Arc::<AtomicU64>::default();
        let times = Arc::clone(&asked);
        let mailbox = move |mail| {
            let CoreMail::Census(answer) = mail else { panic!("{mail:?}") };
            times.fetch_add(1, Ordering::Relaxed);
            let groups = groups.iter().cloned().collect();
            answer
                .try_send(CoreCensus { core, groups, others: Tally::default() })
                .expect("room for every core");
            Ok(())
        };
        (Box::new(mailbox), asked)
    }

    fn by_kind(timed_out: u64) -> Value {
        json!({
            "timed_out": timed_out, "unavailable": 0, "overloaded": 0, "invalid": 0,
            "unauthorized": 0, "other": 0,
        })
    }

    #[tokio::test]
    async fn the_cores_groups_are_merged_and_kept_for_a_while() {
        let (one, asked) =
            core(0, vec![(group("app", 1), tally(3, 1)), (group("cron", 2), tally(1, 0))]);
        let (two, _) = core(1, vec![(group("app", 1), tally(4, 2))]);
        let clients = Clients::new([one, two].into());
        let value = clients.groups().await;
        let first = json!({
            "role": "app", "identity": null, "address": "10.0.0.1", "keyspace": null, "driver": "D", "driver_version": "1",
            "application": null,
            "protocol_version": 5, "tls": null, "clients": 7, "paused": 0, "in_flight": 3, "queries": 70,
            "queries_per_second": 3, "errors": 7, "errors_by_kind": by_kind(7), "bytes_in": 700,
            "bytes_out": 1_400, "p50_us": null, "p99_us": null, "wait_p50_us": null,
            "wait_p99_us": null, "node_p50_us": null, "node_p99_us": null, "left_unix_ms": null,
        });
        assert_eq!((&value["groups"][0], &value["groups"][1]["role"]), (&first, &json!("cron")));
        let total = json!({
            "clients": 8, "paused": 0, "in_flight": 3, "queries": 80, "queries_per_second": 3,
            "errors": 8, "errors_by_kind": by_kind(8), "bytes_in": 800, "bytes_out": 1_600,
            "p50_us": null, "p99_us": null, "wait_p50_us": null, "wait_p99_us": null,
            "node_p50_us": null, "node_p99_us": null,
        });
        assert_eq!(value["total"], total);
        assert_eq!((&value["others"]["clients"], &value["cores_missing"]), (&json!(0), &json!([])));
        assert_eq!((clients.groups().await, asked.load(Ordering::Relaxed)), (value, 1));
    }

    #[tokio::test]
    async fn a_group_shows_when_its_last_client_left() {
        let left =
            |seconds| Tally { left_ago_ns: Some(seconds * limits::SECOND_NS), ..tally(0, 0) };
        let groups = |ago| vec![(group("gone", 1), left(ago)), (group("there", 1), left(ago))];
        let mut of_one = groups(60);
        of_one[1].1 = tally(1, 0);
        let value = Clients::new([core(0, of_one).0, core(1, groups(5)).0].into()).groups().await;
        let shown = value["groups"].as_array().expect("list");
        let of = |role: &str| shown.iter().find(|group| group["role"] == role).expect("group");
        assert_eq!(
            (&of("there")["left_unix_ms"], &of("gone")["clients"]),
            (&json!(null), &json!(0))
        );
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
        let ago_ms = now as u64 - of("gone")["left_unix_ms"].as_u64().expect("a time");
        assert!(ago_ms >= 5_000, "{ago_ms}");
    }

    #[tokio::test]
    async fn a_core_that_does_not_answer_is_named() {
        let (one, _) = core(0, vec![(group("app", 1), tally(3, 1))]);
        let (kept, deaf) = (std::sync::Mutex::new(Vec::new()), 1);
        let deaf_mailbox: Mailbox = Box::new(move |mail| {
            kept.lock().expect("lock").push(mail);
            Ok(())
        });
        let full: Mailbox = Box::new(Err);
        let value = shown(ask_cores(&[one, deaf_mailbox, full], Duration::from_millis(20)).await);
        assert_eq!(
            (&value["cores_missing"], &value["total"]["clients"]),
            (&json!([deaf, 2]), &json!(3))
        );
    }

    #[tokio::test]
    async fn however_many_groups_there_are_those_that_matter_are_shown() {
        let mut groups: Vec<_> =
            (0..30_000).map(|host| (group("many", host), tally(1, 0))).collect();
        groups.push((group("busy", 0), tally(1, 9_000)));
        groups.push((group("large", 0), tally(700, 0)));
        let value = Clients::new([core(0, groups).0].into()).groups().await;
        let shown = value["groups"].as_array().expect("list");
        assert_eq!(shown.len(), MOST_CLIENTS + MOST_QUERIES);
        assert!(
            shown[0]["role"] == "large" && shown.iter().any(|group| group["role"] == "busy"),
            "{value}"
        );
        assert_eq!(value["total"]["clients"], 30_701);
        let sum: u64 = shown.iter().filter_map(|group| group["clients"].as_u64()).sum();
        assert_eq!(value["others"]["clients"], 30_701 - sum);
        let families = group_metrics::families(&value, &mut Default::default());
        let series = |name: &str| {
            let family = families.iter().find(|family| family.name == name).expect(name);
            family.values.len()
        };
        assert_eq!(
            series("shunt_group_clients"),
            MOST_CLIENTS + MOST_QUERIES + 1,
            "and the others"
        );
    }
}
