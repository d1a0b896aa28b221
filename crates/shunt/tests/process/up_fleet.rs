//! `shunt up --proxies N`: a fleet in one process; an operator drains one of its proxies.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};

use shunt_testing::blocking::Client;

use crate::support::{Log, eventually, in_time, output, page, shunt, signal};

/// The first address and the next. Other tests may use ports of 127.0.0.1 at random.
const HOSTS: [&str; 2] = ["127.0.32.1", "127.0.32.2"];

/// Returns a free port of the first address.
fn free_port() -> u16 {
    let listener = TcpListener::bind((HOSTS[0], 0)).expect("bind");
    listener.local_addr().expect("address").port()
}

/// A running fleet; ends with the test at the latest.
struct Fleet {
    child: Child,
    log: Option<Log>,
    proxies: Vec<SocketAddr>,
    node: SocketAddr,
    pages: Vec<SocketAddr>,
}

/// Creates the fleet before its proxies start, with a lease that survives a pause of ten seconds. A
/// longer lease would prolong the drains: a proxy learns of a drain when it renews its lease.
fn make_patient(data: &Path) {
    let mut command = shunt(&[
        "node",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "off",
        "--reserve-bytes",
        "0",
        "--data",
    ]);
    let mut node =
        command.arg(data).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("start");
    let mut lines =
        BufReader::new(node.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let line = lines.find(|line| line.starts_with("listening for CQL")).expect("it listens");
    let address = line.rsplit(' ').next().expect("an address");
    let (code, said, log) = output(&[
        "fleet",
        "init",
        "--contact-points",
        address,
        "--replicas",
        "1",
        "--lease-ms",
        "20000",
    ]);
    assert!(code == 0 && said.contains("was created"), "{code} {said} {log}");
    signal(&node, "TERM");
    assert!(node.wait().expect("it ends").success());
}

impl Fleet {
    fn start(data: &Path, proxies: usize) -> Self {
        make_patient(data);
        let (listen, admin) = (format!("{}:{}", HOSTS[0], free_port()), format!("{}:0", HOSTS[0]));
        let data = data.to_str().expect("text");
        let options = [
            "--nodes",
            "1",
            "--node-port",
            "0",
            "--reserve-bytes",
            "0",
            "--data",
            data,
            "--admin",
            &admin,
            "--log",
            "info",
        ];
        let mut command = shunt(&["up", "--proxies", &proxies.to_string(), "--listen", &listen]);
        let mut child = command
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start");
        let log = child.stderr.take().map(Log::of);
        let said: Vec<String> = BufReader::new(child.stdout.take().expect("piped"))
            .lines()
            .map_while(Result::ok)
            .take_while(|line| !line.contains("first session"))
            .collect();
        let of = |what: &str| {
            said.iter().filter_map(|line| line.trim().strip_prefix(what)).collect::<Vec<_>>()
        };
        let addresses = |line: &str| {
            line.split_whitespace().map(|one| one.parse().expect("address")).collect::<Vec<_>>()
        };
        let pages = of("metrics, status").into_iter().map(|line| {
            let page = line
                .rsplit(' ')
                .next()
                .and_then(|url| url.strip_prefix("http://")?.strip_suffix("/status"));
            page.and_then(|address| address.parse().ok()).expect("address")
        });
        assert!(said[0].contains(&format!("a fleet of {proxies} proxies")), "{said:?}");
        let (listening, nodes) =
            (addresses(of("clients connect to")[0]), addresses(of("nodes")[0]));
        Self { child, log, proxies: listening, node: nodes[0], pages: pages.collect() }
    }

    /// Returns the fleet's state on the page of a proxy.
    fn status(&self, proxy: usize) -> serde_json::Value {
        let status: serde_json::Value =
            serde_json::from_str(&page(self.pages[proxy], "/status").1).expect("JSON");
        status["fleet"].clone()
    }

    /// Waits until a proxy knows this many live members, which share all shards.
    fn wait_until_settled(&self, proxy: usize, members: usize) {
        eventually(|| {
            let status = self.status(proxy);
            let all = status["members"].as_array().expect("a list");
            let live = || all.iter().filter(|member| member["state"] == "live");
            let shards = || live().filter_map(|member| member["shards"].as_u64());
            live().count() == members
                && shards().sum::<u64>() == 64
                && shards().all(|shards| shards > 0)
        });
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn owner_seen_by(proxy: SocketAddr) -> Vec<Vec<u8>> {
    Client::connect(proxy, 4).column("SELECT owner FROM shunt.locks WHERE name = 'report'")
}

#[test]
fn a_lock_is_kept_when_one_proxy_of_the_process_leaves_and_the_others_go_on() {
    in_time(keep_a_lock_while_one_leaves);
}

fn keep_a_lock_while_one_leaves() -> Result<(), String> {
    let directory = tempfile::tempdir().expect("directory");
    let mut fleet = Fleet::start(&directory.path().join("data"), 3);
    let hosts: Vec<String> = fleet.proxies.iter().map(|proxy| proxy.ip().to_string()).collect();
    assert_eq!(
        (hosts, fleet.pages.len()),
        (vec!["127.0.32.1".to_owned(), "127.0.32.2".to_owned(), "127.0.32.3".to_owned()], 3)
    );
    assert!(
        fleet.proxies.iter().all(|proxy| proxy.port() == fleet.proxies[0].port()),
        "{:?}",
        fleet.proxies
    );
    (0..3).for_each(|proxy| fleet.wait_until_settled(proxy, 3));

    let take = |proxy, name: &str| {
        let text = format!(
            "INSERT INTO shunt.locks (name, owner) VALUES ('{name}', 'ann') IF NOT EXISTS USING TTL 600"
        );
        Client::connect(proxy, 4).column(&text)
    };
    assert_eq!(take(fleet.proxies[0], "report"), [[1]]);
    fleet.proxies.iter().for_each(|proxy| assert_eq!(owner_seen_by(*proxy), [b"ann"], "{proxy}"));

    let leaves = fleet.proxies[1].to_string();
    let (code, said, log) = output(&[
        "fleet",
        "drain",
        "--wait",
        "600",
        "--contact-points",
        &fleet.node.to_string(),
        &leaves,
    ]);
    assert!(code == 0 && said.contains("has left"), "{code} {said} {log}");
    // Its addresses are free again, and the other members have its shards.
    eventually(|| {
        TcpListener::bind(fleet.proxies[1]).is_ok() && TcpStream::connect(fleet.pages[1]).is_err()
    });
    for proxy in [0, 2] {
        fleet.wait_until_settled(proxy, 2);
        assert_eq!(page(fleet.pages[proxy], "/readyz").0, 200);
        assert_eq!(owner_seen_by(fleet.proxies[proxy]), [b"ann"], "{proxy}");
        assert_eq!(take(fleet.proxies[proxy], &format!("later-{proxy}")), [[1]]);
    }
    assert!(fleet.child.try_wait().expect("wait").is_none());
    let node = fleet.node.to_string();
    let of_node = ["--contact-points", node.as_str()];
    let (code, said, log) = output(&[&["fleet", "status", "--json"][..], &of_node].concat());
    assert_eq!(code, 0, "{log}");
    let status: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let state = |address: &str| {
        let mut all = status["members"].as_array().expect("a list").iter();
        all.find(|member| member["address"] == address).map(|member| member["state"].clone())
    };
    assert_eq!(
        (state(&leaves), state(&fleet.proxies[0].to_string())),
        (Some("left".into()), Some("live".into()))
    );

    // Missing tables are created again and listed.
    Client::connect(fleet.node, 4).run("DROP TABLE shunt.lock_queue");
    for made in [Some("tables made: shunt.lock_queue"), None] {
        let (code, said, log) =
            output(&[&["fleet", "init", "--replicas", "1"][..], &of_node].concat());
        assert!(code == 0 && said.starts_with("fleet main exists already"), "{said} {log}");
        assert_eq!(said.lines().find(|line| line.starts_with("tables made")), made, "{said}");
        let found = said.lines().find(|line| line.starts_with("tables found")).expect("a line");
        assert!(
            found.contains("shunt_meta.lock, ")
                && found.contains("shunt.lock_queue") == made.is_none(),
            "{said}"
        );
    }

    signal(&fleet.child, "TERM");
    let code = fleet.child.wait().expect("wait").code();
    let log = fleet.log.take().expect("once").whole();
    assert_eq!(code, Some(0), "{log}");
    // The origin of each line: the control thread, or a core.
    for proxy in &fleet.proxies {
        let own = format!("proxy{{address={proxy}}}: ");
        assert!(
            log.lines()
                .any(|line| line.contains(&own) && line.contains("control connection to the ring")),
            "{log}"
        );
    }
    // On a busy machine the parts may log that another one was late.
    let is_late = log.contains("the drain took too long") || log.contains("did not close in time");
    if is_late { Err(log) } else { Ok(()) }
}

#[test]
fn the_last_proxy_that_is_told_to_leave_ends_the_process() {
    let directory = tempfile::tempdir().expect("directory");
    let mut fleet = Fleet::start(&directory.path().join("data"), 2);
    (0..2).for_each(|proxy| fleet.wait_until_settled(proxy, 2));
    for proxy in [0, 1] {
        assert!(fleet.child.try_wait().expect("wait").is_none());
        let leaves = fleet.proxies[proxy].to_string();
        let (code, _, log) = output(&[
            "fleet",
            "drain",
            "--wait",
            "600",
            "--contact-points",
            &fleet.node.to_string(),
            &leaves,
        ]);
        // After the last proxy its nodes may end before the member is seen to have left.
        assert!(code == 0 || proxy == 1, "{code} {log}");
    }
    eventually(|| fleet.child.try_wait().expect("wait").is_some());
    assert_eq!(fleet.child.wait().expect("wait").code(), Some(0));
}

#[test]
fn an_address_that_is_taken_or_not_there_is_named() {
    let directory = tempfile::tempdir().expect("directory");
    let data = directory.path().join("data");
    let refused = |options: &[&str]| {
        let mut all = vec![
            "up",
            "--nodes",
            "1",
            "--node-port",
            "0",
            "--admin",
            "off",
            "--data",
            data.to_str().expect("text"),
        ];
        all.extend(options);
        let (code, said, log) = output(&all);
        assert_eq!(said, "", "{options:?}");
        (code, log)
    };
    for (options, told) in [
        (["--proxies", "0", "--listen", "127.0.32.1:9042"], "1 to 16"),
        (["--proxies", "17", "--listen", "127.0.32.1:9042"], "1 to 16"),
        (["--proxies", "2", "--listen", "127.0.32.1:0"], "need a port"),
        (["--proxies", "2", "--listen", "127.255.255.254:9042"], "the next address"),
        (["--proxies", "2", "--listen", "[::1]:9042"], "the next address"),
    ] {
        let (code, log) = refused(&options);
        assert!(code == 2 && log.contains(told), "{options:?}: {code} {log}");
        assert!(!data.exists(), "{options:?}: nothing is made");
    }
    let holder = TcpListener::bind((HOSTS[1], 0)).expect("bind");
    let taken = holder.local_addr().expect("address");
    let first = format!("{}:{}", HOSTS[0], taken.port());
    let (code, log) = refused(&["--proxies", "2", "--listen", &first]);
    assert!(
        code == 3 && log.contains(&format!("cannot listen on {taken} (--listen)")),
        "{code} {log}"
    );
    drop(holder);
}

/// The usual case in a container. On a proxy without locks, a statement on locks writes a row that
/// locks nothing.
#[test]
fn a_proxy_on_a_wildcard_address_warns_that_it_has_no_locks() {
    let directory = tempfile::tempdir().expect("directory");
    let data = directory.path().join("data");
    let options = [
        "--nodes",
        "1",
        "--node-port",
        "0",
        "--reserve-bytes",
        "0",
        "--admin",
        "off",
        "--insecure",
        "--data",
    ];
    let mut command = shunt(&["up", "--listen", "0.0.0.0:0"]);
    let mut child = command
        .args(options)
        .arg(&data)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let said: Vec<String> = lines.take_while(|line| !line.contains("first session")).collect();
    assert!(
        said.iter().any(|line| line.trim().starts_with("locks ") && line.contains("none")),
        "{said:?}"
    );
    signal(&child, "TERM");
    assert!(child.wait().expect("it ends").success());
}
