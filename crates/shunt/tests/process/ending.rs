//! Readiness, draining, reloading, and every way to end.

use std::net::TcpStream;

use crate::support::{Proxy, READ, Stub, eventually, output};

#[test]
fn a_proxy_becomes_ready_serves_and_drains() {
    let stub = Stub::start();
    let proxy = Proxy::start(&["--contact-points", &stub.address.to_string()]);
    proxy.wait_until_ready();
    assert_eq!(proxy.page("/healthz").0, 200);
    let mut busy = proxy.client();
    let mut idle = proxy.client();
    busy.run(READ);
    stub.freeze();
    busy.send_query(1, READ);
    proxy.wait_in_flight(1);
    proxy.signal("TERM");
    assert_eq!(idle.try_receive(), None);
    stub.thaw();
    busy.receive().result();
    assert_eq!(busy.try_receive(), None);
    assert!(TcpStream::connect(proxy.clients).is_err());
    let (code, log) = proxy.end();
    assert!(code == 0 && log.contains("draining") && log.contains("stopped"), "{code} {log}");
}

/// Balancers notice late: the proxy serves them and says 503 meanwhile.
#[test]
fn a_draining_proxy_takes_clients_until_its_delay_is_over() {
    let stub = Stub::start();
    let contact = stub.address.to_string();
    let proxy = Proxy::start(&["--contact-points", &contact, "--drain-delay-ms", "86400000"]);
    proxy.wait_until_ready();
    let mut early = proxy.client();
    proxy.signal("TERM");
    eventually(|| proxy.page("/readyz").0 == 503);
    let mut late = proxy.client();
    late.run(READ);
    early.run(READ);
    let (code, _, error) = output(&["undrain", "--admin", &proxy.admin.to_string()]);
    assert!(code == 2 && error.contains("cannot be taken back"), "{code} {error}");
    assert_eq!(proxy.end_by_repeating("TERM").0, 130);
}

#[test]
fn an_operator_drains_a_proxy_and_takes_it_back() {
    let stub = Stub::start();
    let proxy = Proxy::start(&["--contact-points", &stub.address.to_string()]);
    proxy.wait_until_ready();
    let admin = proxy.admin.to_string();
    let mut idle = proxy.client();
    idle.run(READ);
    assert_eq!(output(&["drain", "--admin", &admin]).0, 0);
    assert_eq!(proxy.page("/readyz").0, 503);
    assert_eq!(idle.try_receive(), None, "it is closed");
    let mut late = proxy.client();
    late.run(READ);
    assert_eq!(output(&["undrain", "--admin", &admin]).0, 0);
    assert_eq!(proxy.page("/readyz").0, 200);
    late.run(READ);
    proxy.signal("TERM");
    let (code, log) = proxy.end();
    assert!(code == 0 && log.contains("taken back"), "{code} {log}");
}

#[test]
fn a_drain_that_takes_too_long_cuts_clients_off() {
    let stub = Stub::start();
    let proxy =
        Proxy::start(&["--contact-points", &stub.address.to_string(), "--drain-timeout-ms", "50"]);
    proxy.wait_until_ready();
    let mut client = proxy.client();
    client.run(READ);
    stub.freeze();
    client.send_query(1, READ);
    proxy.wait_in_flight(1);
    proxy.signal("TERM");
    client.try_receive();
    let (code, log) = proxy.end();
    assert!(code == 0 && log.contains("remaining clients are cut off"), "{code} {log}");
}

/// An orchestrator and a terminal both send a signal: they count as one order and cut no drain
/// short.
#[test]
fn signals_that_arrive_together_drain() {
    for names in [["TERM", "INT"], ["INT", "TERM"]] {
        let stub = Stub::start();
        let proxy = Proxy::start(&["--contact-points", &stub.address.to_string()]);
        proxy.wait_until_ready();
        let mut client = proxy.client();
        client.run(READ);
        stub.freeze();
        client.send_query(1, READ);
        proxy.wait_in_flight(1);
        proxy.signals_at_once(&names);
        proxy.wait_logged("one order");
        stub.thaw();
        client.receive().result();
        assert_eq!(client.try_receive(), None);
        drop(client);
        let (code, log) = proxy.end();
        assert!(code == 0 && log.contains("stopped") && !log.contains("cut off"), "{code} {log}");
    }
}

#[test]
fn a_second_signal_ends_at_once() {
    let stub = Stub::start();
    let proxy = Proxy::start(&["--contact-points", &stub.address.to_string()]);
    proxy.wait_until_ready();
    let mut client = proxy.client();
    client.run(READ);
    stub.freeze();
    client.send_query(1, READ);
    proxy.wait_in_flight(1);
    proxy.signal("INT");
    eventually(|| proxy.page("/readyz").1.contains("draining"));
    let (code, log) = proxy.end_by_repeating("INT");
    assert!(code == 130 && log.contains("second signal"), "{code} {log}");
}

#[test]
fn without_a_ring_it_waits_or_ends_as_told() {
    let proxy = Proxy::start(&["--contact-points", "127.0.0.1:1"]);
    assert_eq!(proxy.page("/readyz").0, 503);
    proxy.signal("TERM");
    assert_eq!(proxy.end().0, 0);

    let proxy = Proxy::start(&["--contact-points", "127.0.0.1:1", "--require-ring-ms", "100"]);
    let (code, log) = proxy.end();
    assert!(code == 4 && log.contains("no contact point"), "{code} {log}");
}

#[test]
fn a_datacentre_that_the_ring_does_not_have_ends_the_start() {
    let stub = Stub::start();
    let contact_point = stub.address.to_string();
    let proxy =
        Proxy::start(&["--contact-points", &contact_point, "--local-datacentre", "nowhere"]);
    let (code, log) = proxy.end();
    assert!(
        code == 6 && log.contains("nowhere") && log.contains("datacenter1 (1 node)"),
        "{code} {log}"
    );
}

#[test]
fn hangup_applies_what_can_change_and_names_what_cannot() {
    let stub = Stub::start();
    let path = std::env::temp_dir().join(format!("shunt-reload-{}.toml", std::process::id()));
    let write = |text: &str| {
        let contact_points = format!("contact_points = [\"{}\"]\n", stub.address);
        std::fs::write(&path, contact_points + text).expect("write");
    };
    write("clients_max = 100\n");
    let proxy = Proxy::start(&["--config", path.to_str().expect("text")]);
    proxy.wait_until_ready();
    let mut client = proxy.client();
    write("clients_max = 200\nlinks_per_node = 2\nio = \"epoll\"\n");
    proxy.signal("HUP");
    eventually(|| proxy.page("/status").1.contains("\"clients_max\":200"));
    write("clients_max = 0\n");
    proxy.signal("HUP");
    proxy.wait_logged("0 is out of range");
    client.run(READ);
    write("clients_max = 200\nlocal_datacentre = \"nowhere\"\n");
    proxy.signal("HUP");
    proxy.wait_logged("nowhere");
    client.run(READ);
    assert_eq!(proxy.page("/readyz").0, 200);
    proxy.signal("TERM");
    let (code, log) = proxy.end();
    let _ = std::fs::remove_file(&path);
    assert_eq!(code, 0);
    assert!(log.contains("need a restart") && log.contains("\"links_per_node\""), "{log}");
    assert!(log.contains("configuration applied keys=[\"clients_max\"]"), "{log}");
    assert!(log.contains("stays as it is") && log.contains("0 is out of range"), "{log}");
    assert!(log.contains("nowhere") && log.contains("datacenter1 (1 node)"), "{log}");
}

#[test]
fn each_fault_of_a_new_configuration_is_an_event_of_its_own() {
    let file = tempfile::NamedTempFile::new().expect("file");
    std::fs::write(file.path(), "contact_points = [\"127.0.0.1:1\"]\n").expect("write");
    let proxy =
        Proxy::start(&["--log-format", "json", "--config", file.path().to_str().expect("text")]);
    std::fs::write(file.path(), "clients_max = 0\nfrobnicate = 1\nlisten = [\n").expect("write");
    proxy.signal("HUP");
    proxy.wait_logged("frobnicate");
    std::fs::write(file.path(), "contact_points = [\"127.0.0.1:2\"]\nauth_cache_ms = 9000\n")
        .expect("write");
    proxy.signal("HUP");
    proxy.wait_logged("configuration applied");
    proxy.signal("TERM");
    let (code, log) = proxy.end();
    assert_eq!(code, 0);
    let events =
        log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let events: Vec<_> = events.collect();
    let text =
        |event: &serde_json::Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    assert!(events.iter().all(|event| !text(event, "message").contains('\n')), "{log}");
    for part in [":1:1: `clients_max`: 0 is out of range", ":2:1: unknown key `frobnicate`", ":3:"]
    {
        assert_eq!(
            events.iter().filter(|event| text(event, "problem").contains(part)).count(),
            1,
            "{part}: {log}"
        );
    }
    let applied = events
        .iter()
        .find(|event| text(event, "message") == "configuration applied")
        .expect("it is there");
    assert_eq!(applied["keys"], serde_json::json!(["contact_points", "auth_cache_ms"]));
}
