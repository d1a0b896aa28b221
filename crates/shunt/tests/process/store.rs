//! `shunt up` and `shunt node`: persistent data, output, exit codes, and tasks on the data.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use shunt_testing::blocking::Client;

use crate::support::{
    Log, Proxy, eventually, in_time, output, page, repeat_until_it_ends, shunt, signal,
    signals_at_once,
};

/// A running `shunt up` or `shunt node`; ends with the test at the latest.
struct Running {
    child: Child,
    /// `None` once it has ended.
    log: Option<Log>,
    clients: SocketAddr,
    admin: SocketAddr,
}

impl Running {
    /// A new client in protocol v4.
    fn client(&self) -> Client {
        Client::connect(self.clients, 4)
    }

    /// Starts the command on free ports and waits until it is ready.
    fn start(arguments: &[&str]) -> Self {
        Self::launch(shunt(arguments))
    }

    fn launch(mut command: Command) -> Self {
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--reserve-bytes", "0"]);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
        let log = child.stderr.take().map(Log::of);
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let (mut clients, mut admin) = (None, None);
        while clients.is_none() || admin.is_none() {
            let line = lines.next().expect("it said nothing more").expect("read");
            let last = line.rsplit(' ').next().unwrap_or_default();
            if line.contains("clients connect to") || line.starts_with("listening for CQL") {
                clients = last.parse().ok();
            } else if let Some(page) = last.strip_prefix("http://") {
                admin = page.strip_suffix("/status").and_then(|address| address.parse().ok());
            }
        }
        let running =
            Self { child, log, clients: clients.expect("address"), admin: admin.expect("address") };
        eventually(|| page(running.admin, "/readyz").0 == 200);
        running
    }

    /// Ends it as an operator would; returns exit code and log.
    fn end(self, name: &str) -> (i32, String) {
        signal(&self.child, name);
        self.ended()
    }

    /// Returns exit code and log, after it was told to end.
    fn ended(mut self) -> (i32, String) {
        let code = self.child.wait().expect("wait").code().unwrap_or(-1);
        (code, self.log.take().expect("once").whole())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn fill(client: &mut Client) {
    client.run(
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    );
    client.run("CREATE TABLE k.t (a int PRIMARY KEY, b text)");
    (0..20).for_each(|key| client.run(&format!("INSERT INTO k.t (a, b) VALUES ({key}, 'x')")));
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// Log filters rely on the node's name.
#[test]
fn a_node_logs_under_its_own_name() {
    let directory = tempfile::tempdir().expect("directory");
    let (code, log) = Running::start(&["node", "--data", text(directory.path())]).end("TERM");
    let started =
        log.lines().find(|line| line.contains(" started ")).unwrap_or_else(|| panic!("{log}"));
    assert!(code == 0 && started.contains(" shunt::node: "), "{code} {started}");
    assert!(!log.contains("shunt::proxy") && !log.contains("shunt_proxy"), "{log}");
}

#[test]
fn up_keeps_its_data_however_it_ends() {
    let directory = tempfile::tempdir().expect("directory");
    let data = directory.path().join("data");
    let up = || Running::start(&["up", "--data", text(&data), "--node-port", "0"]);
    let running = up();
    let mut client = running.client();
    fill(&mut client);
    let (_, metrics) = page(running.admin, "/metrics");
    for family in [
        "shunt_queries_total{kind=\"query\"}",
        "shunt_store_requests_total{",
        "shunt_store_syncs_total{",
    ] {
        assert!(metrics.lines().any(|line| line.starts_with(family)), "{family}");
    }
    let status: serde_json::Value =
        serde_json::from_str(&page(running.admin, "/status").1).expect("JSON");
    assert_eq!(status["store"]["nodes"].as_array().map(Vec::len), Some(3));
    assert_eq!(status["ring"]["nodes"].as_array().map(Vec::len), Some(3));
    assert_eq!(running.end("KILL").0, -1);

    let running = up();
    let mut client = running.client();
    assert_eq!(client.rows("SELECT a FROM k.t").len(), 20);
    drop(client);
    let mut running = Some(running);
    in_time(|| {
        let (code, log) = running.take().unwrap_or_else(up).end("TERM");
        assert_eq!(code, 0, "{log}");
        if log.contains("did not close in time") { Err(log) } else { Ok(()) }
    });
    assert_eq!(
        output(&["node", "check", text(&data)]),
        (0, format!("{}: sound\n", data.display()), String::new())
    );

    let (code, _, log) = output(&["up", "--data", text(&data), "--nodes", "2", "--node-port", "0"]);
    assert!(code == 5 && log.contains("use --nodes 3"), "{code} {log}");
}

/// Answers that a client has not read yet; more than sockets can hold.
const UNTAKEN: usize = 16;

/// Runs `body` for a node, and then for a store behind its proxy. Each has a client that sent many
/// requests and read one answer. The last argument has the options for a restart.
fn with_slow_clients(mut body: impl FnMut(Running, Client, &[&str]) -> Result<(), String>) {
    for options in [
        &["node", "--drain-timeout-ms", "86400000"][..],
        &["up", "--node-port", "0", "--log", "info"],
    ] {
        in_time(|| {
            let directory = tempfile::tempdir().expect("directory");
            let data = directory.path().join("data");
            let options = [options, &["--data", text(&data)]].concat();
            let running = Running::start(&options);
            let mut client = running.client();
            fill(&mut client);
            client.run(&format!("INSERT INTO k.t (a, b) VALUES (0, '{}')", "x".repeat(2 << 20)));
            (0..=UNTAKEN).for_each(|_| client.send_query(1, "SELECT b FROM k.t WHERE a = 0"));
            client.receive().result();
            body(running, client, &options)
        });
    }
}

#[test]
fn a_drain_waits_for_a_slow_client_until_the_second_signal() {
    with_slow_clients(|mut running, client, options| {
        signal(&running.child, "TERM");
        eventually(|| page(running.admin, "/readyz").1.contains("draining"));
        repeat_until_it_ends(&mut running.child, "TERM");
        let (code, log) = running.ended();
        assert!(code == 130 && log.contains("second signal"), "{options:?}: {code} {log}");
        drop(client);
        let running = Running::start(options);
        assert_eq!(
            running.client().rows("SELECT a FROM k.t").len(),
            20,
            "{options:?}: what was acknowledged is there"
        );
        Ok(())
    });
}

#[test]
fn signals_that_arrive_together_cut_no_answer() {
    with_slow_clients(|running, mut client, options| {
        signals_at_once(&running.child, &["TERM", "INT"]);
        running.log.as_ref().expect("it runs").wait_for("one order");
        (0..UNTAKEN).for_each(|_| _ = client.receive().result());
        assert_eq!(client.try_receive(), None, "{options:?}");
        drop(client);
        let (code, log) = running.ended();
        let is_late = log.contains("did not close in time")
            || log.contains("did not read their answers in time");
        assert!(code == 0 && log.contains("stopped"), "{options:?}: {code} {log}");
        if is_late { Err(format!("{options:?}: {log}")) } else { Ok(()) }
    });
}

#[test]
fn closing_the_terminal_ends_up() {
    let directory = tempfile::tempdir().expect("directory");
    let running =
        Running::start(&["up", "--data", text(&directory.path().join("data")), "--node-port", "0"]);
    assert_eq!(running.end("HUP").0, 0);
}

#[test]
fn a_node_is_copied_while_it_runs_and_the_copy_opens() {
    let directory = tempfile::tempdir().expect("directory");
    let (data, copy) = (directory.path().join("data"), directory.path().join("copy"));
    let running = Running::start(&["node", "--cores", "2", "--data", text(&data)]);
    let mut client = running.client();
    fill(&mut client);
    let (code, said, log) = output(&["node", "snapshot", "--data", text(&data), text(&copy)]);
    assert_eq!(
        (code, said.as_str(), log.as_str()),
        (0, format!("copied to {}\n", copy.display()).as_str(), "")
    );
    client.run("INSERT INTO k.t (a, b) VALUES (100, 'later')");
    let (code, _, log) = output(&["node", "snapshot", "--data", text(&data), text(&copy)]);
    assert!(code == 5 && log.contains("copy") && log.contains("is there already"), "{code} {log}");
    let (code, _, log) = output(&["node", "check", text(&data)]);
    assert!(code == 5 && log.contains("in use"), "{code} {log}");

    let restored = Running::start(&["node", "--data", text(&copy)]);
    let mut other = restored.client();
    assert_eq!(other.rows("SELECT a FROM k.t").len(), 20);
    other.run("INSERT INTO k.t (a, b) VALUES (200, 'only here')");
    drop(other);
    assert_eq!(client.rows("SELECT a FROM k.t").len(), 21);
    drop(client);
    assert_eq!((running.end("TERM").0, restored.end("INT").0), (0, 0));
}

/// Service managers start it with 1,024 open files, and each client takes one.
#[test]
fn a_node_raises_the_limit_of_open_files_to_what_its_clients_need() {
    let directory = tempfile::tempdir().expect("directory");
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "ulimit -Sn 300; exec \"$@\"",
        "sh",
        env!("CARGO_BIN_EXE_shunt"),
        "node",
        "--clients-max",
        "500",
    ]);
    command.arg("--data").arg(directory.path().join("data"));
    let running = Running::launch(command);
    let limits =
        std::fs::read_to_string(format!("/proc/{}/limits", running.child.id())).expect("limits");
    let files =
        limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("open files");
    let [soft, hard] =
        [0, 1].map(|column| files.split_whitespace().nth(column).expect("a limit").parse::<u64>());
    let soft = soft.unwrap_or(u64::MAX);
    assert!(soft >= 500 + 4096 || Ok(soft) == hard, "{files}");
}

#[test]
fn damage_is_found_and_named() {
    let directory = tempfile::tempdir().expect("directory");
    let (data, copy) = (directory.path().join("data"), directory.path().join("copy"));
    let running = Running::start(&["node", "--data", text(&data)]);
    fill(&mut running.client());
    // A copy has all rows in files.
    assert_eq!(output(&["node", "snapshot", "--data", text(&data), text(&copy)]).0, 0);
    running.end("TERM");
    let files = std::fs::read_dir(copy.join("node-0/db"))
        .expect("directory")
        .flatten()
        .map(|entry| entry.path());
    let table = files
        .into_iter()
        .find(|path| path.extension().is_some_and(|kind| kind == "sst"))
        .expect("a file of rows");
    let mut bytes = std::fs::read(&table).expect("read");
    bytes[40] ^= 1;
    // The copy shares the file with the original.
    std::fs::remove_file(&table).expect("remove");
    std::fs::write(&table, bytes).expect("write");
    let (code, _, log) = output(&["node", "check", text(&copy)]);
    let name = table.file_name().and_then(|name| name.to_str()).expect("name");
    assert!(code == 5 && log.contains("damaged") && log.contains(name), "{code} {log}");
    assert_eq!(output(&["node", "check", text(&data)]).0, 0);
    let nothing = directory.path().join("nothing");
    let (code, _, log) = output(&["node", "check", text(&nothing)]);
    assert!(code == 5 && log.contains("no data"), "{code} {log}");
}

/// A node has no logins, so an address that other machines reach needs `--insecure`. Nothing is
/// opened before that check.
#[test]
fn an_address_that_others_reach_is_refused_unless_that_is_meant() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    for command in ["node", "up"] {
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9042", "[::ffff:192.0.2.1]:9042"] {
            let (code, said, log) = output(&[
                command,
                "--data",
                text(&data),
                "--listen",
                address,
                "--admin",
                "127.0.0.1:0",
            ]);
            assert_eq!((code, said.as_str()), (2, ""), "{command} {address}: {log}");
            let told = ["--listen", address, "no logins", "127.0.0.1", "--insecure"];
            assert!(told.iter().all(|part| log.contains(part)), "{command} {address}: {log}");
            assert!(!data.exists(), "{command} {address}: nothing is made");
        }
    }
    let mut command =
        shunt(&["node", "--data", text(&data), "--insecure", "--listen", "0.0.0.0:0"]);
    command
        .args(["--admin", "127.0.0.1:0", "--reserve-bytes", "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("start");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let first = lines.next().expect("it said nothing").expect("read");
    signal(&child, "TERM");
    let mut log = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut log).expect("read");
    let code = child.wait().expect("wait").code();
    assert!(first.contains("0.0.0.0:"), "{first}");
    assert!(code == Some(0) && log.contains("every client may do everything"), "{code:?} {log}");
}

/// A proxy must not switch between two stores: neither has the writes acknowledged by the other.
#[test]
fn contact_points_of_two_stores_end_the_start_of_a_proxy() {
    let directory = tempfile::tempdir().expect("directory");
    let start =
        |name: &str| Running::start(&["node", "--data", text(&directory.path().join(name))]);
    let (one, other) = (start("one"), start("other"));
    let contact_points = format!("{},{}", one.clients, other.clients);
    let mut proxy = Proxy::start(&["--contact-points", &contact_points]);
    proxy.wait_until_ended();
    let (code, log) = proxy.end();
    assert!(code == 6 && log.contains("are not of one ring"), "{code} {log}");

    let up =
        Running::start(&["up", "--data", text(&directory.path().join("up")), "--node-port", "0"]);
    let status: serde_json::Value =
        serde_json::from_str(&page(up.admin, "/status").1).expect("JSON");
    let node = status["store"]["nodes"][0]["address"].as_str().expect("address").to_owned();
    let mut proxy = Proxy::start(&["--contact-points", &format!("{},{node}", one.clients)]);
    proxy.wait_until_ended();
    let (code, log) = proxy.end();
    assert!(code == 6 && log.contains("are not of one ring"), "{code} {log}");

    // Each is a ring by itself, also after a restart.
    assert_eq!(one.end("TERM").0, 0);
    let one = start("one");
    for ring in [one.clients.to_string(), node] {
        Proxy::start(&["--contact-points", &ring]).wait_until_ready();
    }
}
