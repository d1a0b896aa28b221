//! The tables of a running proxy: the page that each shows, its columns, and its orders.

use serde_json::Value;

use super::table::{self, Column, Form};

/// A page of the proxy as a table.
pub(super) struct View {
    /// Path of the page.
    pub(super) page: &'static str,
    /// The subject of the rows, in the plural.
    pub(super) subject: &'static str,
    /// Place of the array of rows in the page.
    pub(super) rows: &'static str,
    /// Place of the numbers of cores that have not answered.
    pub(super) missing: &'static str,
    /// The columns.
    pub(super) columns: &'static [Column],
    /// The orders; the first is the default one.
    pub(super) orders: &'static [Order],
}

/// An order of rows: its name, the place of the value in a row, and the direction.
pub(super) struct Order(pub(super) &'static str, pub(super) &'static str, pub(super) Direction);

/// The end of an order at which a table begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// The largest first.
    Falling,
    /// The smallest, or the first of the alphabet, first.
    Rising,
}

use Direction::{Falling, Rising};
use Form::{Clock, Either, Microseconds, Milliseconds, Number, Text, Word};

/// The clients in groups.
pub(super) const CLIENTS: View = View {
    page: "/status",
    subject: "clients",
    rows: "/client_groups/groups",
    missing: "/client_groups/cores_missing",
    columns: &[
        Column("role", "/role", Text),
        Column("identity", "/identity", Text),
        Column("application", "/application", Text),
        Column("address", "/address", Word),
        Column("driver", "/driver", Text),
        Column("keyspace", "/keyspace", Text),
        Column("clients", "/clients", Number),
        Column("paused", "/paused", Number),
        Column("in flight", "/in_flight", Number),
        Column("queries", "/queries", Number),
        Column("per s", "/queries_per_second", Number),
        Column("errors", "/errors", Number),
        Column("bytes in", "/bytes_in", Number),
        Column("bytes out", "/bytes_out", Number),
        Column("p50 ms", "/p50_us", Microseconds),
        Column("p99 ms", "/p99_us", Microseconds),
        Column("TLS", "/tls", Word),
    ],
    orders: &[
        Order("rate", "/queries_per_second", Falling),
        Order("queries", "/queries", Falling),
        Order("clients", "/clients", Falling),
        Order("in-flight", "/in_flight", Falling),
        Order("paused", "/paused", Falling),
        Order("role", "/role", Rising),
        Order("errors", "/errors", Falling),
        Order("p99", "/p99_us", Falling),
        Order("address", "/address", Rising),
        Order("application", "/application", Rising),
    ],
};

/// The nodes of the ring.
pub(super) const NODES: View = View {
    page: "/status",
    subject: "nodes",
    rows: "/ring/nodes",
    missing: "",
    columns: &[
        Column("node", "/address", Word),
        Column("datacentre", "/datacentre", Text),
        Column("rack", "/rack", Text),
        Column("state", "/up", Either("up", "down")),
        Column("version", "/release_version", Word),
        Column("links", "/links", Number),
        Column("aggregated", "/links_aggregated", Number),
        Column("in flight", "/in_flight", Number),
        Column("queries", "/queries", Number),
        Column("p50 ms", "/latency_us/p50", Microseconds),
        Column("p99 ms", "/latency_us/p99", Microseconds),
    ],
    orders: &[
        Order("p99", "/latency_us/p99", Falling),
        Order("in-flight", "/in_flight", Falling),
        Order("queries", "/queries", Falling),
        Order("address", "/address", Rising),
        Order("state", "/up", Rising),
    ],
};

/// The last slow queries.
pub(super) const SLOW: View = View {
    page: "/slow_queries",
    subject: "slow queries",
    rows: "/slow_queries",
    missing: "/cores_missing",
    columns: &[
        Column("ended UTC", "/ended_unix_ms", Clock),
        Column("ms", "/total_ms", Milliseconds),
        Column("at node", "/node_ms", Milliseconds),
        Column("waited", "/wait_ms", Milliseconds),
        Column("outcome", "/outcome", Word),
        Column("error", "/error", Word),
        Column("node", "/node", Word),
        Column("role", "/role", Text),
        Column("application", "/application", Text),
        Column("client", "/client", Word),
        Column("table", "/table", Text),
        Column("text", "/text", Text),
    ],
    orders: &[
        Order("latest", "/ended_unix_ms", Falling),
        Order("total", "/total_ms", Falling),
        Order("node", "/node_ms", Falling),
        Order("wait", "/wait_ms", Falling),
    ],
};

/// The queries by digest.
pub(super) const QUERIES: View = View {
    page: "/digests",
    subject: "queries",
    rows: "/digests",
    missing: "/cores_missing",
    columns: &[
        Column("count", "/count", Number),
        Column("errors", "/errors", Number),
        Column("sum ms", "/total_ms", Milliseconds),
        Column("p50 ms", "/p50_us", Microseconds),
        Column("p99 ms", "/p99_us", Microseconds),
        Column("bytes in", "/bytes_in", Number),
        Column("bytes out", "/bytes_out", Number),
        Column("role", "/role", Text),
        Column("kind", "/kind", Word),
        Column("table", "/table", Text),
        Column("text", "/text", Text),
    ],
    orders: &[
        Order("time", "/total_ms", Falling),
        Order("count", "/count", Falling),
        Order("errors", "/errors", Falling),
        Order("p99", "/p99_us", Falling),
    ],
};

/// The keys with most queries.
pub(super) const HOT: View = View {
    page: "/hot_keys",
    subject: "hot keys",
    rows: "/hot_keys",
    missing: "/cores_missing",
    columns: &[
        Column("table", "/table", Text),
        Column("key", "/key", Text),
        Column("reads/s", "/reads_per_s", Number),
        Column("writes/s", "/writes_per_s", Number),
        Column("error", "/error", Number),
    ],
    orders: &[
        Order("reads", "/reads_per_s", Falling),
        Order("writes", "/writes_per_s", Falling),
        Order("table", "/table", Rising),
    ],
};

/// The rows at a place of a page.
pub(super) fn rows<'p>(page: &'p Value, place: &str) -> Vec<&'p Value> {
    page.pointer(place).and_then(Value::as_array).into_iter().flatten().collect()
}

/// Sorts the rows. Rows without the value come last; equal ones keep their order.
pub(super) fn sort(rows: &mut [&Value], order: &Order) {
    let Order(_, place, direction) = order;
    rows.sort_by(|one, other| {
        let (one, other) = (one.pointer(place), other.pointer(place));
        let is_absent = |value: Option<&Value>| value.is_none_or(Value::is_null);
        is_absent(one).cmp(&is_absent(other)).then_with(|| match direction {
            Direction::Rising => compare(one, other),
            Direction::Falling => compare(other, one),
        })
    });
}

fn compare(one: Option<&Value>, other: Option<&Value>) -> std::cmp::Ordering {
    let number = |value: Option<&Value>| match value {
        Some(Value::Bool(is)) => Some(f64::from(u8::from(*is))),
        Some(value @ Value::Object(_)) => table::sum(value).map(|sum| sum as f64),
        value => value.and_then(Value::as_f64),
    };
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        _ => one.and_then(Value::as_str).cmp(&other.and_then(Value::as_str)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_without_a_value_come_last_in_either_direction() {
        let failed = json!([{ "n": { "other": 1 } }, { "n": { "other": 0, "timed_out": 2 } }]);
        let mut sums = rows(&failed, "");
        sort(&mut sums, &Order("", "/n", Falling));
        assert_eq!(sums[0]["n"]["timed_out"], 2);
        let rows = json!([{ "n": 2, "s": "b" }, { "n": null }, { "n": 10.5, "s": "a" }, {}]);
        let sorted = |place, direction| {
            let mut rows: Vec<&Value> = rows.as_array().into_iter().flatten().collect();
            sort(&mut rows, &Order("", place, direction));
            rows.into_iter()
                .map(|row| row.pointer(place).cloned().unwrap_or_default())
                .collect::<Vec<_>>()
        };
        assert_eq!(sorted("/n", Falling), [json!(10.5), json!(2), Value::Null, Value::Null]);
        assert_eq!(sorted("/n", Rising), [json!(2), json!(10.5), Value::Null, Value::Null]);
        assert_eq!(sorted("/s", Rising), [json!("a"), json!("b"), Value::Null, Value::Null]);
    }

    #[test]
    fn each_order_belongs_to_a_column() {
        for view in [CLIENTS, NODES, SLOW, QUERIES, HOT] {
            for Order(name, place, _) in view.orders {
                assert!(view.columns.iter().any(|column| column.1 == *place), "{name}");
            }
        }
    }
}
