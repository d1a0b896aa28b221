// The tables of the page for browsers: the JSON page of each, its rows and its columns; and the
// forms of texts and numbers.
"use strict";

const nothing = "–";
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1, minimumFractionDigits: 1 });
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const number = (value) => isNumber(value) ? whole.format(value) : nothing;
const decimal = (value) => isNumber(value) ? tenths.format(value) : nothing;
const milliseconds = (value) => decimal(value);
const microseconds = (value) => isNumber(value) ? tenths.format(value / 1000) : nothing;
const text = (value) => value === null || value === undefined || value === "" ? nothing : String(value);
const time = (value) => isNumber(value) ? new Date(value).toISOString().replace("T", " ") : nothing;
const sum = (value) => value && typeof value === "object" ? Object.values(value).reduce((a, b) => a + b, 0) : value;
// The kinds of errors that there are, with their numbers.
const kinds = (errors) => Object.entries(errors || {}).filter(([, count]) => count > 0)
  .map(([kind, count]) => `${kind} ${number(count)}`).join(", ");

// ---- the tables: the page of each, its rows, and its columns

const at = (path) => (row) => path.reduce((value, key) => value === null || value === undefined ? null : value[key], row);
const column = (title, path, form = text, more = {}) =>
  ({ title, value: at(path.split(".")), form, isNumber: form !== text && form !== time, ...more });

const errorKinds = { title: "errors by kind", value: (row) => kinds(row.errors_by_kind), form: text, isNumber: false };
const times = [
  column("p50 ms", "p50_us", microseconds), column("p99 ms", "p99_us", microseconds),
  column("wait p50 ms", "wait_p50_us", microseconds), column("wait p99 ms", "wait_p99_us", microseconds),
  column("node p50 ms", "node_p50_us", microseconds), column("node p99 ms", "node_p99_us", microseconds),
];

// The condition on a name that the clients of a row have, or lack.
const named = (key, name) => name === null || name === undefined ? { [`without_${key}`]: true } : { [key]: name };

const TABLES = {
  nodes: {
    title: "Nodes", page: "status", sort: ["recent p99 ms", -1], key: (row) => [row.host_id],
    rows: (page) => page.ring ? page.ring.nodes : [],
    absence: (page) => page.ring ? "" : "The proxy does not know the ring yet.",
    act: { title: "routing", label: (row) => row.drained ? "Take back…" : "Drain…", open: (row) => openDrain(row) },
    note: "“recent” covers the last seconds; the other times and “timed out” count since the proxy has started.",
    columns: [
      column("node", "address"), column("datacentre", "datacentre"), column("rack", "rack"),
      column("state", "state", text, { isBad: (row) => row.up === false }), column("version", "release_version"),
      column("links", "links", number, { isBad: (row) => row.up === true && row.links === 0 }),
      column("in flight", "in_flight", number), column("queries/s", "rate", number), column("queries", "queries", number),
      column("timed out", "timed_out", number), column("share %", "share_percent", number, { isBad: (row) => row.ejected > 0 }),
      column("recent p99 ms", "recent.latency_us.p99", microseconds),
      column("p50 ms", "latency_us.p50", microseconds), column("p99 ms", "latency_us.p99", microseconds),
    ],
  },
  clients: {
    title: "Clients", page: "status", sort: ["queries/s", -1],
    key: (row) => [row.role, row.identity, row.application, row.address, row.keyspace, row.driver, row.driver_version,
      row.protocol_version, row.tls],
    rows: (page) => page.client_groups.groups, missing: (page) => page.client_groups.cores_missing,
    others: (page) => page.client_groups.others.clients + page.client_groups.others.queries > 0 ? [{ role: "(others)", ...page.client_groups.others }] : [],
    act: {
      title: "close", label: () => "Close…",
      open: (row) => openKick({ ...named("role", row.role), ...named("application", row.application), address: row.address }),
    },
    columns: [
      column("role", "role"), column("identity", "identity"), column("application", "application"),
      column("address", "address"), column("driver", "driver"), column("keyspace", "keyspace"), column("TLS", "tls"),
      column("clients", "clients", number), column("paused", "paused", number), column("in flight", "in_flight", number),
      column("queries/s", "queries_per_second", number), column("queries", "queries", number), column("errors", "errors", number),
      errorKinds, column("bytes in", "bytes_in", number), column("bytes out", "bytes_out", number), ...times,
      column("left", "left_unix_ms", time),
    ],
  },
  connections: {
    title: "Connections", page: "clients", sort: ["queries/s", -1], key: (row) => [row.id, row.core],
    rows: (page) => page.clients, missing: (page) => page.cores_missing, absence: (page) => page.warnings.join(" "),
    act: { title: "close", label: () => "Close…", open: (row) => openKick({ id: row.id }) },
    columns: [
      column("id", "id"), column("role", "role"), column("identity", "identity"), column("application", "application"),
      column("driver", "driver"), column("keyspace", "keyspace"), column("TLS", "tls"), column("stage", "stage"),
      column("paused", "paused", text, { isBad: (row) => row.paused !== null }), column("core", "core", number),
      column("in flight", "in_flight", number), column("queries/s", "queries_per_second", number),
      column("queries", "queries", number), column("errors", "errors", number), column("bytes in", "bytes_in", number),
      column("bytes out", "bytes_out", number), column("p50 ms", "p50_us", microseconds), column("p99 ms", "p99_us", microseconds),
    ],
  },
  links: {
    title: "Links", page: "links", sort: ["in flight", -1], key: (row) => [row.core, row.link, row.node],
    rows: (page) => page.links, missing: (page) => page.cores_missing, absence: (page) => page.warnings.join(" "),
    columns: [
      column("node", "node"), column("core", "core", number), column("link", "link", number), column("pool", "pool", number),
      column("state", "state", text, { isBad: (row) => row.state === "full" }), column("purpose", "purpose"),
      column("layout", "layout"), column("version", "protocol_version", number), column("TLS", "tls"),
      column("in flight", "in_flight", number), column("timed out", "timed_out", number),
      column("clients waiting", "clients_waiting", number), column("backlog bytes", "backlog_bytes", number),
      column("silent ms", "silent_ms", number), column("ready ms", "ready_ms", number),
    ],
  },
  logins: {
    title: "Failed logins", page: "failed_logins", sort: ["last", -1], key: (row) => [row.role, row.address, row.reason],
    rows: (page) => page.failed_logins, missing: (page) => page.cores_missing,
    columns: [
      column("last", "last_unix_ms", time), column("role", "role"), column("address", "address"), column("count", "count", number),
      column("reason", "reason"), column("first", "first_unix_ms", time), column("identity", "identity"),
      column("application", "application"), column("driver", "driver"), column("text", "why"),
    ],
  },
  certificates: {
    title: "Certificates", page: "status", sort: ["not after", 1], key: (row) => [row.path, row.use, row.option],
    rows: (page) => page.certificates, note: "“not after” is the earliest end of a certificate in the file.",
    columns: [
      column("path", "path"), column("use", "use"), column("option", "option"), column("subject", "subject"), column("names", "san", text, { value: (row) => row.san.join(", ") }),
      column("serial", "serial"), column("not after", "not_after_unix_ms", time, { isBad: (row) => row.not_after_unix_ms < Date.now() }),
      column("loaded", "loaded_unix_ms", time), column("in use by", "in_use_by"),
    ],
  },
  queries: {
    title: "Queries", page: "digests", sort: ["sum ms", -1], key: (row) => [row.kind, row.keyspace, row.text],
    rows: (page) => page.digests, missing: (page) => page.cores_missing,
    others: (page) => page.others.map((row) => ({ text: "(others)", ...row })),
    absence: (page) => page.on === false ? "Digests are switched off: the figures are those up to then." : "",
    columns: [
      column("text", "text"), column("table", "table"), column("role", "role"), column("kind", "kind"),
      column("count", "count", number), column("errors", "errors", number), errorKinds,
      column("sum ms", "sum_us", microseconds), ...times,
      column("bytes in", "bytes_in", number), column("bytes out", "bytes_out", number), column("rows", "rows", number),
    ],
  },
  slow: {
    title: "Slow queries", page: "slow_queries", sort: ["ended", -1],
    key: (row) => [row.core, row.stream, row.client, row.total_ms, row.text],
    rows: (page) => page.slow_queries, missing: (page) => page.cores_missing,
    act: { title: "close", label: () => "Close…", open: (row) => openKick(row.client ? { id: row.client } : null) },
    columns: [
      column("ended", "ended_unix_ms", time), column("total ms", "total_ms", milliseconds),
      column("at node", "node_ms", milliseconds), column("waited", "wait_ms", milliseconds), column("outcome", "outcome"),
      column("node", "node"), column("role", "role"),
      column("application", "application"), column("client", "client"), column("table", "table"), column("text", "text"),
    ],
  },
  hot: {
    title: "Hot keys", page: "hot_keys", sort: ["reads/s", -1], key: (row) => [row.table, row.key],
    rows: (page) => page.hot_keys, missing: (page) => page.cores_missing,
    absence: (page) => page.sample === 0 && page.cores_missing.length === 0
      ? "Hot keys are switched off: hot_keys_sample is 0." : "",
    columns: [
      column("table", "table"), column("key", "key"), column("reads/s", "reads_per_s", decimal),
      column("writes/s", "writes_per_s", decimal), column("±/s", "error", decimal),
      column("window ms", "window_ms", number),
    ],
  },
  runbook: {
    title: "Runbook", page: "runbook", sort: ["alert", 1], key: (row) => [row.alert], rows: (page) => page.alerts,
    note: "docs/alerts.md has the same text, with links.",
    columns: [column("alert", "alert"), column("look first", "look_first"), column("then", "then")],
  },
  options: {
    title: "Options", page: "config", sort: ["source", -1], key: (row) => [row.key], rows: (page) => page.options,
    columns: [
      column("option", "key"), column("value", "value"), column("source", "source"), column("default", "default"),
      column("after a restart", "value_after_restart"),
    ],
  },
};
