//! The groups of clients as metrics, on a page of their own: a monitor that wants none of these
//! series, of which there may be thousands, does not ask for it.
//!
//! A series is a role, an application and an address; groups that are alike in these count as one.
//! The groups are those of `/status`, so their number has its bound. The rest is one more series.

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

/// A family: its name, help and unit, whether it counts, and the place of its value in a group.
type Family = (&'static str, &'static str, Option<Unit>, MetricKind, &'static str);

/// The families with one value for each series.
const FAMILIES: [Family; 5] = [
    ("shunt_group_clients", "Clients connected.", None, MetricKind::Gauge, "clients"),
    ("shunt_group_in_flight", "Queries in flight.", None, MetricKind::Gauge, "in_flight"),
    ("shunt_group_queries", "Queries.", None, MetricKind::Counter, "queries"),
    ("shunt_group_in", "Bytes of requests.", Some(Unit::Bytes), MetricKind::Counter, "bytes_in"),
    ("shunt_group_out", "Bytes of answers.", Some(Unit::Bytes), MetricKind::Counter, "bytes_out"),
];

/// The families of groups as `/status` shows them.
pub(super) fn families(groups: &Value) -> Vec<MetricFamily> {
    let mut sums = BTreeMap::<Key, Vec<&Value>>::new();
    let text = |group: &Value, field: &str| group[field].as_str().unwrap_or_default().to_owned();
    for group in groups["groups"].as_array().into_iter().flatten() {
        let key = ["role", "application", "address"].map(|field| text(group, field));
        sums.entry(key).or_default().push(group);
    }
    let others = &groups["others"];
    if number(&others["clients"]) + number(&others["queries"]) > 0.0 {
        sums.insert([OTHERS.to_owned(), String::new(), String::new()], vec![others]);
    }
    let mut families: Vec<MetricFamily> = FAMILIES
        .into_iter()
        .map(|(name, help, unit, kind, field)| {
            let values = sums.iter().map(|(key, groups)| (labels(key), sum(groups, &[field])));
            MetricFamily { name, help, unit, kind, values: values.collect() }
        })
        .collect();
    let by_kind = sums.iter().flat_map(|(key, groups)| {
        ErrorKind::ALL.iter().map(|kind| {
            let mut labels = labels(key);
            labels.push((ErrorKind::NAME, kind.text().to_owned()));
            (labels, sum(groups, &["errors_by_kind", kind.text()]))
        })
    });
    families.push(MetricFamily {
        name: "shunt_group_errors",
        help: "Queries that ended with an error, by its kind.",
        unit: None,
        kind: MetricKind::Counter,
        values: by_kind.collect(),
    });
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
            "others": { "clients": 0, "queries": 3 },
        });
        let families = families(&groups);
        let shown = |name, role, error| value(&families, name, role, error);
        assert_eq!(shown("shunt_group_queries", "shop", ""), Some(12.0));
        assert_eq!(shown("shunt_group_errors", "shop", "timed_out"), Some(12.0));
        assert_eq!(shown("shunt_group_errors", "", "unauthorized"), Some(1.0), "without a login");
        assert_eq!(shown("shunt_group_in", "", ""), Some(10.0));
        assert_eq!(shown("shunt_group_queries", OTHERS, ""), Some(3.0));
        assert_eq!(families[0].values.len(), 3);
    }

    #[test]
    fn a_role_called_like_the_others_is_another_series() {
        let group = json!({ "role": OTHERS, "application": null, "address": "10.0.0.1" });
        let groups = json!({ "groups": [group], "others": { "clients": 1, "queries": 0 } });
        let families = families(&groups);
        let keys: std::collections::BTreeSet<_> =
            families[0].values.iter().map(|(labels, _)| labels.clone()).collect();
        assert_eq!(keys.len(), 2);
        let nobody = json!({ "groups": [], "others": { "clients": 0, "queries": 0 } });
        assert!(super::families(&nobody).iter().all(|family| family.values.is_empty()));
    }
}
