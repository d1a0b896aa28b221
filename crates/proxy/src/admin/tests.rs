//! The pages over real connections, with invented counters and an invented ring.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use shunt_admin::Pages;
use shunt_topology::{Node, NodeId, RoutingTable};
use shunt_wire::cql::statement::classify;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::client::account::Account;
use crate::control::{ClusterState, ClusterView};
use crate::metrics::{ControlMetrics, CoreMetrics, GivenUp, Outcome, QueryKind, StallReason};
use crate::prepared::{PreparedCache, PreparedStatement, PreparedStore};

struct Bench {
    admin: Arc<Admin>,
    address: SocketAddr,
    cores: Vec<Arc<CoreMetrics>>,
    control: Arc<ControlMetrics>,
    prepared: Arc<PreparedStore>,
    ring: watch::Sender<Option<Arc<ClusterState>>>,
    config: watch::Sender<Arc<Config>>,
}

impl Bench {
    async fn start() -> Self {
        let cores: Vec<_> = (0..2).map(|core| Arc::new(CoreMetrics::new(core))).collect();
        let (ring, cluster) = ClusterView::new();
        let (config_sender, config) = watch::channel(Arc::new(Config::default()));
        let control = Arc::<ControlMetrics>::default();
        let prepared = Arc::<PreparedStore>::default();
        let sources = Sources {
            cores: cores.clone().into(),
            control: Arc::clone(&control),
            cluster,
            prepared: Arc::clone(&prepared),
            tls: Arc::default(),
            traces: Arc::default(),
        };
        let listening = vec!["127.0.0.1:9042".parse().expect("address")];
        let admin = Admin::new(sources, config, listening, Vec::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let pages = Pages::new("1.2.3", vec![Arc::clone(&admin) as Arc<dyn Part>]);
        tokio::spawn(pages.serve(listener));
        Self { admin, address, cores, control, prepared, ring, config: config_sender }
    }

    /// Sets a ring of two nodes, the second down, as a live control connection reports it.
    fn know_ring(&self) {
        self.know_ring_from(None);
    }

    /// Sets that ring as seen from a datacentre: the first node is in `dc "1"`, the second in `dc
    /// "2"` if one is named.
    fn know_ring_from(&self, local: Option<&str>) {
        let node = |number: u16| Node {
            id: NodeId(number),
            host_id: u128::from(number) + 0xABC0,
            address: SocketAddr::from(([10, 0, 0, number as u8], 9042)),
            datacentre: format!("dc \"{}\"", if local.is_some() { number + 1 } else { 1 }),
            rack: "r".to_owned(),
            tokens: vec![i64::from(number), 7],
            up: number == 0,
            release_version: "5.0.9".to_owned(),
        };
        let routing = RoutingTable::build(vec![node(0), node(1)], vec![], vec![], local);
        let state = ClusterState { generation: 3, ..ClusterState::of_test(routing) };
        self.ring.send_replace(Some(Arc::new(state)));
        self.control.connected.set(1);
    }

    /// Status code, headers and body.
    async fn ask(&self, method: &str, path: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.address).await.expect("connect");
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("write");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("read");
        let (head, body) = answer.split_once("\r\n\r\n").expect("head");
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("code");
        (code, head.to_lowercase(), body.to_owned())
    }

    async fn json(&self, path: &str) -> (u16, Value) {
        let (code, head, body) = self.ask("GET", path).await;
        assert!(head.contains("content-type: application/json"), "{head}");
        (code, serde_json::from_str(&body).expect("JSON"))
    }
}

/// A metric family as its text describes it.
#[derive(Default)]
struct Family {
    kind: String,
    help: bool,
    /// Value by name with labels.
    samples: BTreeMap<String, f64>,
}

/// Reads OpenMetrics text and checks its form: HELP and TYPE before samples, families contiguous,
/// numbers valid.
fn parse(text: &str) -> BTreeMap<String, Family> {
    let mut families = BTreeMap::<String, Family>::new();
    let mut current = String::new();
    assert!(text.ends_with("# EOF\n"));
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("help");
            assert!(help.ends_with('.') && !families.contains_key(name), "{line}");
            current = name.to_owned();
            families.entry(current.clone()).or_default().help = true;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("type");
            assert_eq!(name, current);
            families.entry(current.clone()).or_default().kind = kind.to_owned();
        } else if let Some(rest) = line.strip_prefix("# UNIT ") {
            let (name, unit) = rest.split_once(' ').expect("unit");
            assert!(name == current && name.ends_with(unit), "{line}");
        } else {
            let (name, value) = line.rsplit_once(' ').expect("sample");
            assert!(name.starts_with(&current), "{line} is not of {current}");
            let samples = &mut families.get_mut(&current).expect("family").samples;
            let twice = samples.insert(name.to_owned(), value.parse().expect("number"));
            assert_eq!(twice, None, "{line}");
        }
    }
    families
}

#[tokio::test]
async fn metrics_can_be_parsed_and_are_right() {
    let bench = Bench::start().await;
    bench.know_ring();
    for core in &bench.cores {
        core.queries.of(QueryKind::Execute).add(5);
        core.outcomes.of(Outcome::Ok).add(4);
        core.in_flight.add(1);
        core.own_statements.sent.add(9);
        core.own_statements.outcomes.of(Outcome::Ok).add(7);
        core.own_statements.in_flight.add(2);
        core.latency_ns.record(1 << 20);
        core.latency_ns.record(1 << 36);
        core.queries_per_write.record(10);
        let node = core.nodes.node(NodeId(0));
        node.queries.add(21);
        node.links.add(1);
    }
    bench.cores[1].clients.add(3);
    bench.cores[0].clients_stalled.of(StallReason::NoLink).add(2);
    bench.cores[1].clients_stalled.of(StallReason::NoLink).add(1);
    bench.cores[1].nodes.node(NodeId(0)).links_given_up.of(GivenUp::Silent).add(6);
    let text = "SELECT a";
    let statement = PreparedStatement::opaque(&[7; 16], text, &classify(text), None);
    assert!(PreparedCache::new(Arc::clone(&bench.prepared)).learn(Account::default(), statement));
    let (code, head, body) = bench.ask("GET", "/metrics").await;
    assert_eq!(code, 200);
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    let families = parse(&body);
    let value = |family: &str, sample: &str| {
        let family = families.get(family).unwrap_or_else(|| panic!("no family {family}"));
        assert!(family.help && !family.kind.is_empty());
        *family.samples.get(sample).unwrap_or_else(|| panic!("no {sample} in {:?}", family.samples))
    };
    assert_eq!(value("shunt_queries", "shunt_queries_total{kind=\"execute\"}"), 10.0);
    assert_eq!(value("shunt_query_outcomes", "shunt_query_outcomes_total{outcome=\"ok\"}"), 8.0);
    assert_eq!(value("shunt_in_flight", "shunt_in_flight{core=\"1\"}"), 1.0);
    assert_eq!(value("shunt_own_statements", "shunt_own_statements_total"), 18.0);
    let own = "shunt_own_statement_outcomes";
    assert_eq!(value(own, &format!("{own}_total{{outcome=\"ok\"}}")), 14.0);
    let own = "shunt_own_statements_in_flight";
    assert_eq!(value(own, &format!("{own}{{core=\"1\"}}")), 2.0);
    assert_eq!(value("shunt_clients", "shunt_clients{core=\"1\"}"), 3.0);
    let labels = "node=\"10.0.0.0:9042\",datacentre=\"dc \\\"1\\\"\"";
    assert_eq!(value("shunt_node_queries", &format!("shunt_node_queries_total{{{labels}}}")), 42.0);
    assert_eq!(value("shunt_node_up", &format!("shunt_node_up{{{labels}}}")), 1.0);
    assert_eq!(value("shunt_clients_stalled", "shunt_clients_stalled{reason=\"no_link\"}"), 3.0);
    let given_up = format!("shunt_node_links_given_up_total{{{labels},reason=\"silent\"}}");
    assert_eq!(value("shunt_node_links_given_up", &given_up), 6.0);
    assert_eq!(value("shunt_prepared_statements", "shunt_prepared_statements"), 1.0);
    assert!(value("shunt_prepared_bytes", "shunt_prepared_bytes") > text.len() as f64);
    assert_eq!(value("shunt_prepared_evictions", "shunt_prepared_evictions_total"), 0.0);
    let family = "shunt_query_duration_seconds";
    let bucket = |le: &str| value(family, &format!("{family}_bucket{{le=\"{le}\"}}"));
    assert_eq!((bucket("0.000524288"), bucket("0.001048576"), bucket("+Inf")), (0.0, 2.0, 4.0));
    assert_eq!(value(family, &format!("{family}_count")), 4.0);
    assert_eq!(value("shunt_queries_per_write", "shunt_queries_per_write_sum"), 20.0);
    assert!(families.keys().all(|name| name.starts_with("shunt_") || name.starts_with("process_")));
}

#[tokio::test]
async fn readiness_follows_the_ring_and_the_drain() {
    let bench = Bench::start().await;
    let (code, body) = bench.json("/readyz").await;
    assert_eq!((code, &body["reason"]), (503, &"the ring is not known yet".into()));
    bench.know_ring();
    assert_eq!(bench.json("/readyz").await.0, 200);
    // Queries do not leave the local datacentre.
    bench.know_ring_from(Some("dc \"2\""));
    let (code, body) = bench.json("/readyz").await;
    assert_eq!((code, &body["reason"]), (503, &"no node of the local datacentre is up".into()));
    bench.know_ring_from(Some("dc \"1\""));
    assert_eq!(bench.json("/readyz").await.0, 200);
    // The last report of who was up is all the proxy knows when nobody is left to ask; a link shows
    // that a node is up.
    bench.control.connected.set(0);
    let (code, body) = bench.json("/readyz").await;
    assert_eq!((code, &body["reason"]), (503, &"no node can be reached".into()));
    bench.cores[1].nodes.node(NodeId(0)).links.add(1);
    assert_eq!(bench.json("/readyz").await.0, 200);
    // Other proxies serve tables meanwhile.
    bench.cores[1].modes_in_doubt.set(1);
    let (code, body) = bench.json("/readyz").await;
    assert_eq!(
        (code, &body["reason"]),
        (503, &"no quorum of shunt_meta has told the tables' modes and rules".into())
    );
    bench.cores[1].modes_in_doubt.set(0);
    assert_eq!(bench.json("/readyz").await.0, 200);
    bench.know_ring_from(Some("nowhere"));
    let (code, body) = bench.json("/readyz").await;
    let reason = body["reason"].as_str().expect("a reason");
    assert!(
        code == 503 && reason.contains("no node is in the local datacentre"),
        "{code} {reason}"
    );
    assert!(reason.contains("dc \"1\" (1 node)"), "{reason}");
    bench.know_ring();
    bench.admin.set_draining(true);
    let (code, body) = bench.json("/readyz").await;
    assert_eq!((code, &body["reason"]), (503, &"draining".into()));
    bench.admin.set_draining(false);
    assert_eq!(bench.json("/readyz").await.0, 200);
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let bench = Bench::start().await;
    let mut stream = TcpStream::connect(bench.address).await.expect("connect");
    stream.write_all(b"GET /status HTTP/1.1\r\nX: ").await.expect("write");
    // The server may refuse it and close the connection before all is written.
    let _ = stream.write_all("x".repeat(64 << 10).as_bytes()).await;
    let mut answer = Vec::new();
    let end = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut answer)).await;
    assert!(end.is_ok(), "the connection still stands");
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{answer:?}");
}

#[tokio::test]
async fn health_is_about_turning_loops() {
    let bench = Bench::start().await;
    assert_eq!(bench.json("/healthz").await.0, 200);
    bench.cores[1].turns.add(1);
    let late = Instant::now() + Duration::from_secs(3600);
    assert_eq!(bench.admin.stuck(late)["cores"], serde_json::json!([0]));
    let (code, body) = bench.json("/healthz").await;
    assert_eq!((code, &body["status"]), (200, &"ok".into()), "only an hour on are they stuck");
}

#[tokio::test]
async fn status_shows_cores_and_nodes() {
    let bench = Bench::start().await;
    let (_, before) = bench.json("/status").await;
    assert_eq!((&before["ring"], &before["ready"]), (&Value::Null, &false.into()));
    bench.know_ring();
    bench.cores[0].driver.set("epoll".to_owned()).expect("first");
    bench.cores[0].clients.add(2);
    bench.cores[1].nodes.node(NodeId(1)).links.add(4);
    let (first, second) = (bench.cores[0].nodes.node(NodeId(1)), &bench.cores[1].nodes);
    first.withheld_percent.set(100);
    first.ejected.set(1);
    second.node(NodeId(1)).ejections.add(3);
    let (code, status) = bench.json("/status").await;
    assert_eq!((code, &status["version"], &status["clients"]), (200, &"1.2.3".into(), &2.into()));
    assert_eq!(status["cores"][0]["driver"], "epoll");
    assert_eq!(status["listen"][0], "127.0.0.1:9042");
    assert_eq!(status["client_groups"]["total"]["clients"], 0);
    let node = &status["ring"]["nodes"][1];
    assert_eq!(
        (&node["links"], &node["up"], &node["tokens"]),
        (&4.into(), &false.into(), &2.into())
    );
    assert_eq!(node["host_id"], "00000000-0000-0000-0000-00000000abc1");
    assert_eq!(
        (&node["ejected"], &node["ejections"], &node["share_percent"]),
        (&1.into(), &3.into(), &50.into())
    );
    assert_eq!(status["ring"]["nodes"][0]["share_percent"], 100);
    assert_eq!(status["limits"]["clients_max"], 60_000);
}

#[tokio::test]
async fn status_says_what_is_wrong_and_since_when() {
    let bench = Bench::start().await;
    let alerts = async || {
        let (_, status) = bench.json("/status").await;
        let alerts = status["alerts"].as_array().expect("a list").clone();
        alerts
            .into_iter()
            .map(|alert| (alert["name"].as_str().expect("a name").to_owned(), alert))
            .collect::<Vec<_>>()
    };
    let first = alerts().await;
    assert_eq!(first.len(), 1, "{first:?}");
    assert_eq!((&*first[0].0, &first[0].1["severity"]), ("ShuntNotReady", &"page".into()));
    let text = first[0].1["text"].as_str().expect("a text");
    assert!(text.contains("the ring is not known"), "{text}");
    bench.know_ring();
    bench.control.connected.set(0);
    bench.cores[0].nodes.node(NodeId(0)).links.add(1);
    bench.admin.refuse_settings(vec!["shunt.toml:1:1: no".to_owned()]);
    let wanted = Config { cores: 77, ..Config::default() };
    let names: Vec<String> = alerts().await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["ShuntNodeDown", "ShuntRingViewOld", "ShuntConfigurationRefused"]);
    bench.admin.set_settings(Arc::new(wanted), SourceMap::new());
    let second = alerts().await;
    let names: Vec<&str> = second.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["ShuntNodeDown", "ShuntRingViewOld", "ShuntRestartNeeded"]);
    assert!(second[0].1["text"].as_str().is_some_and(|text| text.contains("10.0.0.1:9042")));
    assert!(second[2].1["text"].as_str().is_some_and(|text| text.ends_with(": cores")));
    let third = alerts().await;
    assert_eq!(second, third, "they last since then");
    bench.cores[1].nodes.node(NodeId(0)).ejected.set(1);
    let slow = alerts().await;
    let found = slow.iter().find(|(name, _)| name == "ShuntNodeEjected").expect("an alert");
    let text = found.1["text"].as_str().expect("a text");
    assert!(text.contains("10.0.0.0:9042") && text.ends_with("1 of 2 event loops have ejected it"));
    bench.cores[1].nodes.node(NodeId(0)).ejected.set(0);
    assert_eq!(alerts().await.len(), second.len());
    assert!(second[0].1["since_unix_ms"].as_u64() >= first[0].1["since_unix_ms"].as_u64());
    // An operator drains on purpose, and wakes nobody by it.
    bench.admin.set_draining(true);
    let draining = alerts().await;
    let found = draining.iter().find(|(name, _)| name == "ShuntDraining").expect("a note");
    assert_eq!(found.1["severity"], "note");
    assert!(draining.iter().all(|(name, _)| name != "ShuntNotReady"), "{draining:?}");
}

#[tokio::test]
async fn status_shows_the_fleet_and_what_is_to_be_looked_at() {
    let bench = Bench::start().await;
    assert_eq!(bench.json("/status").await.1["fleet"], Value::Null, "it belongs to none");
    let config = Config { fleet: Some("main".to_owned()), ..Config::default() };
    bench.config.send_replace(Arc::new(config));
    let alerts = |status: &Value| status["fleet"]["alerts"].as_array().expect("a list").len();
    let (_, status) = bench.json("/status").await;
    assert!(
        alerts(&status) == 1
            && status["fleet"]["alerts"][0].as_str().is_some_and(|text| text.contains("lease"))
    );
    bench.cores[0].locks.lease.set(1);
    bench.cores[0].locks.shards.set(21);
    bench.cores.iter().for_each(|core| core.locks.held.set(5));
    bench.cores[1].locks.waiting.set(3);
    let (_, status) = bench.json("/status").await;
    let expected = serde_json::json!({
        "name": "main", "lease": true, "shards": 21, "held": 10, "waiting": 3, "alerts": [], "epoch": null,
        "lease_left_ms": null, "members": [], "members_not_shown": 0, "not_a_member": null, "rival": null, "shared_addresses": [],
        "unreadable": [], "unmade": [], "queues": [], "cores_missing": [], "clock_behind_ms": 0,
    });
    assert_eq!(status["fleet"], expected);
    bench.cores[0].locks.told_to_leave.set(1);
    bench.cores[0].locks.unsealed.set(2);
    let (_, status) = bench.json("/status").await;
    assert_eq!(alerts(&status), 2);
    bench.cores[1].clock_behind_us.set(999_999);
    let (_, status) = bench.json("/status").await;
    assert_eq!((alerts(&status), &status["fleet"]["clock_behind_ms"]), (2, &999.into()));
    bench.cores[1].clock_behind_us.set(120_000_000);
    let (_, status) = bench.json("/status").await;
    assert!(alerts(&status) == 3 && status["fleet"]["alerts"].to_string().contains("120000 ms"));
    bench.cores[1].clock_behind_us.set(0);
    bench.cores[1].clock_unmeasured.set(1);
    let (_, status) = bench.json("/status").await;
    assert!(alerts(&status) == 3 && status["fleet"]["alerts"].to_string().contains("its time"));
    bench.cores[1].clock_unmeasured.set(0);
    bench.cores[0].locks.unknown_format.set(9);
    let (_, status) = bench.json("/status").await;
    assert!(
        alerts(&status) == 3
            && status["fleet"]["alerts"][0].as_str().is_some_and(|text| text.contains("format 9"))
    );
}

/// A core that does not take its mail, or drops it, holds no page up: it is named in each.
#[tokio::test]
async fn every_page_answers_while_cores_are_away() {
    let sources = Sources {
        cores: (0..2).map(|core| Arc::new(CoreMetrics::new(core))).collect(),
        control: Arc::default(),
        cluster: ClusterView::new().1,
        prepared: Arc::default(),
        tls: Arc::default(),
        traces: Arc::default(),
    };
    let of_fleet = Config { fleet: Some("main".to_owned()), ..Config::default() };
    let (_sender, config) = watch::channel(Arc::new(of_fleet));
    let cores: Vec<Mailbox> = vec![Box::new(Err), Box::new(|_| Ok(()))];
    let admin = Admin::new(sources, config, Vec::new(), cores);
    let away = serde_json::json!([0, 1]);
    // These two ask no core.
    let asked = admin
        .pages()
        .iter()
        .filter(|name| ![settings::PAGE, tenants::PAGE, rules::PAGE].contains(name));
    for name in asked {
        let page = admin.page(name).expect("a page").await;
        assert_eq!(page["cores_missing"], away, "{name}");
    }
    let status = admin.status().await;
    assert_eq!(status["client_groups"]["cores_missing"], away);
    assert_eq!(status["fleet"]["cores_missing"], away);
    let here = IpAddr::from([127, 0, 0, 1]);
    let kick = admin.change("kick", &serde_json::json!({ "all": true }), here).expect("a change");
    let outcome = kick.await.expect("an outcome");
    assert_eq!((&outcome["closed"], &outcome["cores_missing"]), (&0.into(), &away));
}

#[tokio::test]
async fn head_has_no_body_and_unknown_pages_and_methods_are_told_as_json() {
    let bench = Bench::start().await;
    let (code, head, body) = bench.ask("HEAD", "/metrics").await;
    assert_eq!((code, body.as_str()), (200, ""));
    assert!(head.contains("content-length: ") && !head.contains("content-length: 0"), "{head}");
    let (code, body) = bench.json("/nowhere").await;
    assert_eq!(code, 404);
    assert!(body["error"].as_str().expect("text").contains("/nowhere"));
    let (code, _, body) = bench.ask("POST", "/metrics").await;
    assert_eq!(code, 405);
    assert!(serde_json::from_str::<Value>(&body).expect("JSON")["error"].is_string());
}
