//! The groups of clients as metrics, on a page of their own: a monitor that wants none of these
//! series, of which there may be thousands, does not ask for it.
//!
//! A series is a role, an application and an address; groups that are alike in these count as one.
//! The groups are those of `/status`, so their number has its bound. The other groups make one
//! more series. It has gauges alone, because groups enter and leave it with all their counts.
//!
//! The sums of a series fall when one of its groups is forgotten or a core does not answer. A
//! monitor takes a falling counter for one that has started again at 0, and adds all of it anew.
//! [`Counters`] therefore never falls while its series is shown.

use std::collections::BTreeMap;

use serde_json::Value;
use shunt_admin::{Label as _, Labels, MetricFamily, MetricKind, Unit};

use crate::query_end::ErrorKind;

/// Name of the page below `/metrics/`.
pub(super) const PAGE: &str = "groups";

/// Role in the series of all groups without a series of their own. No client has an empty address.
const OTHERS: &str = "(others)";

/// A role, an application and an address.
type Key = [String; 3];

/// A family: its name, help and unit, and the place of its value in a group.
type Family = (&'static str, &'static str, Option<Unit>, &'static str);

/// The families of gauges.
const GAUGES: [Family; 2] = [
    ("shunt_group_clients", "Clients connected.", None, "clients"),
    ("shunt_group_in_flight", "Queries in flight.", None, "in_flight"),
];

/// The families of counters without further labels.
const COUNTERS: [Family; 3] = [
    ("shunt_group_queries", "Queries.", None, "queries"),
    ("shunt_group_in", "Bytes of requests.", Some(Unit::Bytes), "bytes_in"),
    ("shunt_group_out", "Bytes of answers.", Some(Unit::Bytes), "bytes_out"),
];

/// Numbers of a series: those of [`COUNTERS`], then the errors by kind.
type Numbers = [f64; COUNTERS.len() + ErrorKind::COUNT];

/// The counters of a series.
#[derive(Debug)]
struct Counter {
    /// The sums of its groups when all cores answered last.
    seen: Numbers,
    shown: Numbers,
}

/// The counters of the series that are shown.
#[derive(Debug, Default)]
pub(super) struct Counters(BTreeMap<Key, Counter>);

impl Counters {
    /// Adds the growth of all sums. A sum that has fallen adds nothing, because the part of it that
    /// was counted later is not known. Series that are not among these are forgotten.
    fn grow(&mut self, sums: &BTreeMap<Key, Vec<&Value>>) {
        self.0.retain(|key, _| sums.contains_key(key));
        for (key, groups) in sums {
            let now = numbers(groups);
            let new = || Counter { seen: now, shown: now };
            let counter = self.0.entry(key.clone()).or_insert_with(new);
            for ((shown, seen), now) in counter.shown.iter_mut().zip(counter.seen).zip(now) {
                *shown += (now - seen).max(0.0);
            }
            counter.seen = now;
        }
    }
}

/// The sums of a series.
fn numbers(groups: &[&Value]) -> Numbers {
    let mut numbers = Numbers::default();
    let counters = COUNTERS.into_iter().map(|(.., field)| sum(groups, &[field]));
    let errors = ErrorKind::ALL.iter().map(|kind| sum(groups, &["errors_by_kind", kind.text()]));
    numbers.iter_mut().zip(counters.chain(errors)).for_each(|(place, number)| *place = number);
    numbers
}

/// The families of groups as `/status` shows them.
pub(super) fn families(groups: &Value, counters: &mut Counters) -> Vec<MetricFamily> {
    let mut sums = BTreeMap::<Key, Vec<&Value>>::new();
    let text = |group: &Value, field: &str| group[field].as_str().unwrap_or_default().to_owned();
    for group in groups["groups"].as_array().into_iter().flatten() {
        let mut key = ["role", "application", "address"].map(|field| text(group, field));
        // Before its login a client may claim any application, and each would be a new series.
        if group["role"].is_null() && number(&group["queries"]) == 0.0 {
            key = Key::default();
        }
        sums.entry(key).or_default().push(group);
    }
    if groups["cores_missing"].as_array().is_none_or(Vec::is_empty) {
        counters.grow(&sums);
    }
    let others = &groups["others"];
    if number(&others["clients"]) > 0.0 {
        sums.insert([OTHERS.to_owned(), String::new(), String::new()], vec![others]);
    }
    let gauges = GAUGES.into_iter().map(|(name, help, unit, field)| {
        let values = sums.iter().map(|(key, groups)| (labels(key), sum(groups, &[field])));
        MetricFamily { name, help, unit, kind: MetricKind::Gauge, values: values.collect() }
    });
    let kind = MetricKind::Counter;
    let counted = COUNTERS.into_iter().enumerate().map(|(place, (name, help, unit, _))| {
        let values = counters.0.iter().map(|(key, counter)| (labels(key), counter.shown[place]));
        MetricFamily { name, help, unit, kind, values: values.collect() }
    });
    let mut families: Vec<MetricFamily> = gauges.chain(counted).collect();
    let by_kind = counters.0.iter().flat_map(|(key, counter)| {
        let errors = ErrorKind::ALL.iter().zip(&counter.shown[COUNTERS.len()..]);
        errors.map(|(kind, number)| {
            let mut labels = labels(key);
            labels.push((ErrorKind::NAME, kind.text().to_owned()));
            (labels, *number)
        })
    });
    let help = "Queries that ended with an error, by kind.";
    let values = by_kind.collect();
    families.push(MetricFamily { name: "shunt_group_errors", help, unit: None, kind, values });
    families
}

fn labels([role, application, address]: &Key) -> Labels {
    vec![("role", role.clone()), ("application", application.clone()), ("address", address.clone())]
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

/// The sum of a field over groups.
fn sum(groups: &[&Value], path: &[&str]) -> f64 {
    let field = |group: &&Value| number(path.iter().fold(*group, |value, key| &value[*key]));
    groups.iter().map(field).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn value(families: &[MetricFamily], name: &str, role: &str, error: &str) -> Option<f64> {
        let family = families.iter().find(|family| family.name == name)?;
        let is_meant = |(labels, _): &&(Labels, f64)| {
            let has = |name, value: &str| labels.iter().any(|it| *it == (name, value.to_owned()));
            has("role", role) && (error.is_empty() || has("error", error))
        };
        family.values.iter().find(is_meant).map(|(_, value)| *value)
    }

    #[test]
    fn groups_of_a_role_application_and_address_are_one_series() {
        let group = |role: Option<&str>, keyspace: &str, queries: u64| {
            json!({
                "role": role, "application": "web", "address": "10.0.0.1", "keyspace": keyspace,
                "clients": 2, "in_flight": 1, "queries": queries, "bytes_in": 10, "bytes_out": 20,
                "errors_by_kind": { "timed_out": queries, "unauthorized": 1 },
            })
        };
        let groups = json!({
            "groups": [group(Some("shop"), "a", 5), group(Some("shop"), "b", 7), group(None, "a", 1)],
            "others": { "clients": 3, "queries": 3 },
        });
        let families = families(&groups, &mut Counters::default());
        let shown = |name, role, error| value(&families, name, role, error);
        assert_eq!(shown("shunt_group_queries", "shop", ""), Some(12.0));
        assert_eq!(shown("shunt_group_errors", "shop", "timed_out"), Some(12.0));
        assert_eq!(shown("shunt_group_errors", "", "unauthorized"), Some(1.0), "without a login");
        assert_eq!(shown("shunt_group_in", "", ""), Some(10.0));
        assert_eq!(shown("shunt_group_clients", OTHERS, ""), Some(3.0));
        assert_eq!(shown("shunt_group_queries", OTHERS, ""), None, "groups come and go");
        assert_eq!(families[0].values.len(), 3);
    }

    #[test]
    fn a_role_called_like_the_others_is_another_series() {
        let group = json!({ "role": OTHERS, "application": null, "address": "10.0.0.1" });
        let groups = json!({ "groups": [group], "others": { "clients": 1, "queries": 0 } });
        let families = families(&groups, &mut Counters::default());
        let keys: std::collections::BTreeSet<_> =
            families[0].values.iter().map(|(labels, _)| labels.clone()).collect();
        assert_eq!(keys.len(), 2);
        let nobody = json!({ "groups": [], "others": { "clients": 0, "queries": 0 } });
        let families = super::families(&nobody, &mut Counters::default());
        assert!(families.iter().all(|family| family.values.is_empty()));
    }

    #[test]
    fn clients_that_have_neither_a_role_nor_a_query_are_one_series() {
        let groups: Vec<Value> = (0..100)
            .map(|number| {
                let application = format!("flood {number}");
                json!({ "role": null, "application": application, "clients": 1, "queries": 0 })
            })
            .collect();
        let groups = json!({ "groups": groups, "others": { "clients": 0 } });
        let families = families(&groups, &mut Counters::default());
        assert_eq!(families[0].values.len(), 1);
        assert_eq!(value(&families, "shunt_group_clients", "", ""), Some(100.0));
    }

    /// A monitor takes a counter that falls for one that began again, and adds all of it once more.
    #[test]
    fn a_counter_never_falls_while_its_series_is_shown() {
        let mut counters = Counters::default();
        // Two groups of one series, as after a new version of its driver.
        let mut shown = |queries: &[u64], missing: &[usize]| {
            let group = |queries: &u64| {
                json!({
                    "role": "shop", "application": "web", "address": "10.0.0.1",
                    "clients": 1, "queries": queries, "errors_by_kind": { "other": queries },
                })
            };
            let groups: Vec<Value> = queries.iter().map(group).collect();
            let others = json!({ "clients": 0 });
            let groups = json!({ "groups": groups, "others": others, "cores_missing": missing });
            let families = families(&groups, &mut counters);
            let queries = value(&families, "shunt_group_queries", "shop", "");
            assert_eq!(value(&families, "shunt_group_errors", "shop", "other"), queries);
            queries
        };
        assert_eq!(shown(&[1_000, 5], &[]), Some(1_005.0));
        assert_eq!(shown(&[1_000, 15], &[]), Some(1_015.0));
        assert_eq!(shown(&[20], &[]), Some(1_015.0), "the former version is forgotten");
        assert_eq!(shown(&[30], &[]), Some(1_025.0));
        assert_eq!(shown(&[12], &[1]), Some(1_025.0), "a core did not answer");
        assert_eq!(shown(&[31], &[]), Some(1_026.0));
        assert_eq!(shown(&[], &[]), None);
        assert_eq!(shown(&[2], &[]), Some(2.0), "another series begins");
    }
}
