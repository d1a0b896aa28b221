//! The tables of a running proxy: the page that each shows, its columns, and its orders.

use std::cmp::Ordering;

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
    /// The sort orders; the first is the default.
    pub(super) orders: &'static [Order],
    /// The sums over rows that the page leaves out.
    pub(super) others: Option<Others>,
    /// Reason why there are no rows, if the page says so.
    pub(super) absence: fn(&Value) -> Option<&'static str>,
}

/// An order of rows: its name, the places of the values in a row that decide one after another, and
/// the direction. Without a place the order is the page's own.
pub(super) struct Order(
    pub(super) &'static str,
    pub(super) &'static [&'static str],
    pub(super) Direction,
);

/// Sums over rows that a page leaves out: their place, an object or an array of objects, and the
/// field of a row that names them in the table.
#[derive(Clone, Copy)]
pub(super) struct Others(&'static str, &'static str);

/// Name of such sums in a table, and their mark for programs.
const OTHERS: (&str, &str) = ("(others)", "others");

/// The end of an order at which a table begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// The largest first.
    Falling,
    /// The smallest, or the first of the alphabet, first.
    Rising,
}

use Direction::{Falling, Rising};
use Form::{Kinds, Microseconds, Milliseconds, Number, Text, Time, Word};

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
        Column("rate", "/queries_per_second", Number),
        Column("errors", "/errors", Number),
        Column("by kind", "/errors_by_kind", Kinds),
        Column("bytes in", "/bytes_in", Number),
        Column("bytes out", "/bytes_out", Number),
        Column("p50 ms", "/p50_us", Microseconds),
        Column("p99 ms", "/p99_us", Microseconds),
        Column("wait p50 ms", "/wait_p50_us", Microseconds),
        Column("wait p99 ms", "/wait_p99_us", Microseconds),
        Column("node p50 ms", "/node_p50_us", Microseconds),
        Column("node p99 ms", "/node_p99_us", Microseconds),
        Column("TLS", "/tls", Word),
        Column("left", "/left_unix_ms", Time),
    ],
    orders: &[
        Order("rate", &["/queries_per_second"], Falling),
        Order("queries", &["/queries"], Falling),
        Order("clients", &["/clients"], Falling),
        Order("in-flight", &["/in_flight"], Falling),
        Order("paused", &["/paused"], Falling),
        Order("role", &["/role"], Rising),
        Order("errors", &["/errors"], Falling),
        Order("p99", &["/p99_us"], Falling),
        Order("wait-p99", &["/wait_p99_us"], Falling),
        Order("node-p99", &["/node_p99_us"], Falling),
        Order("left", &["/left_unix_ms"], Falling),
        Order("address", &["/address"], Rising),
        Order("application", &["/application"], Rising),
    ],
    others: Some(Others("/client_groups/others", "role")),
    absence: |_| None,
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
        Column("state", "/state", Word),
        Column("version", "/release_version", Word),
        Column("links", "/links", Number),
        Column("aggregated", "/links_aggregated", Number),
        Column("in flight", "/in_flight", Number),
        Column("queries", "/queries", Number),
        Column("timed out", "/timed_out", Number),
        Column("share %", "/share_percent", Number),
        Column("recent p99 ms", "/recent/latency_us/p99", Microseconds),
        Column("p50 ms", "/latency_us/p50", Microseconds),
        Column("p99 ms", "/latency_us/p99", Microseconds),
    ],
    orders: &[
        Order("recent-p99", &["/recent/latency_us/p99", "/latency_us/p99"], Falling),
        Order("p99", &["/latency_us/p99"], Falling),
        Order("in-flight", &["/in_flight"], Falling),
        Order("queries", &["/queries"], Falling),
        Order("timed-out", &["/timed_out"], Falling),
        Order("node", &["/address"], Rising),
        Order("state", &["/state"], Rising),
    ],
    others: None,
    absence: |page| match page.get("ring") {
        Some(Value::Null) => Some("the proxy does not know the ring yet"),
        _ => None,
    },
};

/// The connections of clients, one by one.
pub(super) const CONNECTIONS: View = View {
    page: "/clients",
    subject: "connections of clients",
    rows: "/clients",
    missing: "/cores_missing",
    columns: &[
        Column("id", "/id", Word),
        Column("role", "/role", Text),
        Column("identity", "/identity", Text),
        Column("application", "/application", Text),
        Column("driver", "/driver", Text),
        Column("keyspace", "/keyspace", Text),
        Column("stage", "/stage", Word),
        Column("paused", "/paused", Word),
        Column("core", "/core", Number),
        Column("in flight", "/in_flight", Number),
        Column("queries", "/queries", Number),
        Column("rate", "/queries_per_second", Number),
        Column("errors", "/errors", Number),
        Column("bytes in", "/bytes_in", Number),
        Column("bytes out", "/bytes_out", Number),
        Column("p99 ms", "/p99_us", Microseconds),
        Column("TLS", "/tls", Word),
    ],
    orders: &[
        Order("rate", &["/queries_per_second"], Falling),
        Order("queries", &["/queries"], Falling),
        Order("in-flight", &["/in_flight"], Falling),
        Order("errors", &["/errors"], Falling),
        Order("bytes-out", &["/bytes_out"], Falling),
        Order("p99", &["/p99_us"], Falling),
        Order("role", &["/role"], Rising),
        Order("id", &["/id"], Rising),
    ],
    others: None,
    absence: |_| None,
};

/// The logins that have failed lately.
pub(super) const LOGINS: View = View {
    page: "/failed_logins",
    subject: "failed logins",
    rows: "/failed_logins",
    missing: "/cores_missing",
    columns: &[
        Column("last", "/last_unix_ms", Time),
        Column("role", "/role", Text),
        Column("address", "/address", Word),
        Column("count", "/count", Number),
        Column("reason", "/reason", Word),
        Column("first", "/first_unix_ms", Time),
        Column("identity", "/identity", Text),
        Column("application", "/application", Text),
        Column("driver", "/driver", Text),
        Column("why", "/why", Text),
    ],
    orders: &[
        Order("last", &["/last_unix_ms"], Falling),
        Order("count", &["/count"], Falling),
        Order("role", &["/role"], Rising),
        Order("address", &["/address"], Rising),
    ],
    others: None,
    absence: |_| None,
};

/// The last slow queries.
pub(super) const SLOW: View = View {
    page: "/slow_queries",
    subject: "slow queries",
    rows: "/slow_queries",
    missing: "/cores_missing",
    columns: &[
        Column("ended", "/ended_unix_ms", Time),
        Column("total ms", "/total_ms", Milliseconds),
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
        Order("ended", &["/ended_unix_ms"], Falling),
        Order("total", &["/total_ms"], Falling),
        Order("at-node", &["/node_ms"], Falling),
        Order("waited", &["/wait_ms"], Falling),
    ],
    others: None,
    absence: |_| None,
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
        Column("by kind", "/errors_by_kind", Kinds),
        Column("sum ms", "/sum_us", Microseconds),
        Column("p50 ms", "/p50_us", Microseconds),
        Column("p99 ms", "/p99_us", Microseconds),
        Column("wait p50 ms", "/wait_p50_us", Microseconds),
        Column("wait p99 ms", "/wait_p99_us", Microseconds),
        Column("node p50 ms", "/node_p50_us", Microseconds),
        Column("node p99 ms", "/node_p99_us", Microseconds),
        Column("bytes in", "/bytes_in", Number),
        Column("bytes out", "/bytes_out", Number),
        Column("rows", "/rows", Number),
        Column("role", "/role", Text),
        Column("kind", "/kind", Word),
        Column("table", "/table", Text),
        Column("text", "/text", Text),
    ],
    orders: &[
        Order("sum", &["/sum_us"], Falling),
        Order("count", &["/count"], Falling),
        Order("errors", &["/errors"], Falling),
        Order("p99", &["/p99_us"], Falling),
        Order("wait-p99", &["/wait_p99_us"], Falling),
        Order("node-p99", &["/node_p99_us"], Falling),
    ],
    others: Some(Others("/others", "text")),
    absence: |page| (page["on"] == false).then_some("digests are switched off: digests is \"off\""),
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
        Column("±/s", "/error", Number),
        Column("window ms", "/window_ms", Number),
    ],
    orders: &[
        // The page has the keys by the sum of reads and writes.
        Order("rate", &[], Falling),
        Order("reads", &["/reads_per_s"], Falling),
        Order("writes", &["/writes_per_s"], Falling),
        Order("table", &["/table"], Rising),
    ],
    others: None,
    absence: |page| {
        // Without an answer of any core, the page has a sample of 0 too.
        let has_answers = rows(page, "/cores_missing").is_empty();
        let is_off = has_answers && page["sample"] == 0;
        is_off.then_some("hot keys are switched off: hot_keys_sample is 0")
    },
};

/// The rules, with their hits.
pub(super) const RULES: View = View {
    page: "/rules",
    subject: "rules",
    rows: "/rules",
    missing: "",
    columns: &[
        Column("place", "/place", Number),
        Column("name", "/name", Text),
        Column("hits", "/hits", Number),
        Column("would hit", "/would_hit", Number),
        Column("by action", "/hits_by_action", Kinds),
    ],
    orders: &[
        Order("place", &[], Falling),
        Order("hits", &["/hits"], Falling),
        Order("would-hit", &["/would_hit"], Falling),
        Order("name", &["/name"], Rising),
    ],
    others: None,
    absence: |_| None,
};

/// The tenants, with their numbers and limits.
pub(super) const TENANTS: View = View {
    page: "/tenants",
    subject: "tenants",
    rows: "/tenants",
    missing: "",
    columns: &[
        Column("place", "/place", Number),
        Column("name", "/name", Text),
        Column("clients", "/clients", Number),
        Column("waiting", "/waiting", Number),
        Column("in flight", "/in_flight", Number),
        Column("queries", "/queries", Number),
        Column("limited", "/limited", Number),
        Column("would limit", "/would_limit", Number),
    ],
    orders: &[
        Order("place", &[], Falling),
        Order("clients", &["/clients"], Falling),
        Order("in-flight", &["/in_flight"], Falling),
        Order("queries", &["/queries"], Falling),
        Order("limited", &["/limited"], Falling),
        Order("would-limit", &["/would_limit"], Falling),
        Order("name", &["/name"], Rising),
    ],
    others: None,
    absence: |_| None,
};

/// The conditions to look at.
pub(super) const ALERTS: View = View {
    page: "/status",
    subject: "alerts",
    rows: "/alerts",
    missing: "",
    columns: &[
        Column("severity", "/severity", Word),
        Column("since", "/since_unix_ms", Time),
        Column("name", "/name", Word),
        Column("alert", "/text", Text),
        Column("remedy", "/remedy", Text),
    ],
    orders: &[
        // The page has the most severe first.
        Order("severity", &[], Falling),
        Order("since", &["/since_unix_ms"], Falling),
        Order("name", &["/name"], Rising),
    ],
    others: None,
    absence: |_| None,
};

/// The rows at a place of a page.
pub(super) fn rows<'p>(page: &'p Value, place: &str) -> Vec<&'p Value> {
    page.pointer(place).and_then(Value::as_array).into_iter().flatten().collect()
}

/// The sums over rows that the page leaves out, without empty sums. Each has the mark for
/// programs, and with `is_named` its name in a table.
pub(super) fn others(page: &Value, view: &View, is_named: bool) -> Vec<Value> {
    let Some(Others(place, field)) = view.others else { return Vec::new() };
    let mut sums: Vec<Value> = match page.pointer(place) {
        Some(Value::Array(sums)) => sums.clone(),
        Some(sums) => vec![sums.clone()],
        None => Vec::new(),
    };
    let is_positive = |value: &Value| value.as_f64().is_some_and(|number| number > 0.0);
    sums.retain(|sums| sums.as_object().is_some_and(|sums| sums.values().any(is_positive)));
    for sums in sums.iter_mut().filter_map(Value::as_object_mut) {
        let (name, mark) = OTHERS;
        sums.insert(mark.to_owned(), true.into());
        if is_named {
            sums.insert(field.to_owned(), name.into());
        }
    }
    sums
}

/// Sorts the rows. Rows without a value come last; equal ones keep their order.
pub(super) fn sort(rows: &mut [&Value], order: &Order) {
    let Order(_, places, direction) = order;
    rows.sort_by(|one, other| {
        let by_place = |place: &&str| compare_at(place, one, other, *direction);
        places.iter().map(by_place).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    });
}

/// Compares the values of two rows at a place.
fn compare_at(place: &str, one: &Value, other: &Value, direction: Direction) -> Ordering {
    let (one, other) = (one.pointer(place), other.pointer(place));
    let is_absent = |value: Option<&Value>| value.is_none_or(Value::is_null);
    is_absent(one).cmp(&is_absent(other)).then_with(|| match direction {
        Direction::Rising => compare(one, other),
        Direction::Falling => compare(other, one),
    })
}

fn compare(one: Option<&Value>, other: Option<&Value>) -> Ordering {
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
        sort(&mut sums, &Order("", &["/n"], Falling));
        assert_eq!(sums[0]["n"]["timed_out"], 2);
        let rows = json!([{ "n": 2, "s": "b" }, { "n": null }, { "n": 10.5, "s": "a" }, {}]);
        let sorted = |places: &'static [&'static str], direction| {
            let mut rows: Vec<&Value> = rows.as_array().into_iter().flatten().collect();
            sort(&mut rows, &Order("", places, direction));
            rows.into_iter()
                .map(|row| row.pointer(places[0]).cloned().unwrap_or_default())
                .collect::<Vec<_>>()
        };
        assert_eq!(sorted(&["/n"], Falling), [json!(10.5), json!(2), Value::Null, Value::Null]);
        assert_eq!(sorted(&["/n"], Rising), [json!(2), json!(10.5), Value::Null, Value::Null]);
        assert_eq!(sorted(&["/s"], Rising), [json!("a"), json!("b"), Value::Null, Value::Null]);
    }

    #[test]
    fn nodes_without_recent_answers_are_sorted_by_all_their_answers() {
        let page = json!([
            { "address": "fast", "recent": null, "latency_us": { "p99": 1.0 } },
            { "address": "slow", "recent": null, "latency_us": { "p99": 9.0 } },
            { "address": "slow now", "recent": { "latency_us": { "p99": 2.0 } }, "latency_us": { "p99": 0.5 } },
        ]);
        let mut nodes = rows(&page, "");
        sort(&mut nodes, &NODES.orders[0]);
        let sorted: Vec<_> = nodes.iter().map(|node| node["address"].as_str()).collect();
        assert_eq!(sorted, [Some("slow now"), Some("slow"), Some("fast")]);
    }

    #[test]
    fn each_order_has_the_name_of_its_column() {
        for view in
            [CLIENTS, CONNECTIONS, LOGINS, NODES, SLOW, QUERIES, HOT, RULES, TENANTS, ALERTS]
        {
            for Order(name, places, _) in view.orders {
                let Some(place) = places.first() else { continue };
                let column = view.columns.iter().find(|column| column.1 == *place).expect(name);
                let heading = column.0.trim_end_matches(" ms").trim_end_matches("/s");
                assert_eq!(heading.replace(' ', "-"), *name, "{}", view.page);
            }
        }
    }

    /// A column without values is left out, so a table of the page may have fewer than the command.
    #[test]
    fn tables_of_the_ten_questions_have_the_columns_of_their_commands() {
        let page = include_str!("../../../../docs/questions.md");
        let mut lines = page.lines();
        let mut seen = 0;
        while let Some(line) = lines.next() {
            let Some(command) = line.strip_prefix("$ shunt ") else { continue };
            let view = match command.split(' ').next().unwrap_or_default() {
                "clients" => CLIENTS,
                "connections" => CONNECTIONS,
                "failed-logins" => LOGINS,
                "nodes" => NODES,
                "slow" => SLOW,
                "queries" => QUERIES,
                "hot" => HOT,
                _ => continue,
            };
            let heading = lines.next().expect("an output");
            let shown = heading.split("  ").map(str::trim).filter(|title| !title.is_empty());
            let mut columns = view.columns.iter();
            for title in shown {
                let place = columns.find(|column| column.0 == title);
                assert!(place.is_some(), "{command}: no column `{title}` there");
            }
            seen += 1;
        }
        assert_eq!(seen, 7);
    }

    #[test]
    fn sums_of_rows_that_are_left_out_are_named_and_marked() {
        let page = json!({
            "client_groups": { "groups": [], "others": { "clients": 3, "p50_us": null } },
            "others": [{ "kind": "query", "count": 2 }, { "kind": "batch", "count": 0 }],
        });
        let clients = json!({ "clients": 3, "p50_us": null, "others": true, "role": "(others)" });
        assert_eq!(others(&page, &CLIENTS, true), [clients]);
        let queries = json!({ "kind": "query", "count": 2, "others": true });
        assert_eq!(others(&page, &QUERIES, false), [queries]);
        let nobody = json!({ "client_groups": { "others": { "clients": 0, "p50_us": null } } });
        assert_eq!(others(&nobody, &CLIENTS, true), [] as [Value; 0]);
        assert_eq!(others(&page, &NODES, true), [] as [Value; 0]);
    }

    #[test]
    fn a_page_says_why_it_has_no_rows() {
        let off = json!({ "hot_keys": [], "sample": 0, "cores_missing": [] });
        assert!((HOT.absence)(&off).is_some_and(|reason| reason.contains("switched off")));
        let silent = json!({ "hot_keys": [], "sample": 0, "cores_missing": [0] });
        assert_eq!((HOT.absence)(&silent), None);
        assert!((NODES.absence)(&json!({ "ring": null })).is_some());
        assert_eq!((NODES.absence)(&json!({ "ring": { "nodes": [] } })), None);
    }
}
