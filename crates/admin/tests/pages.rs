//! Access to the pages: they answer clients that use an address or a known name, even while many
//! silent connections are open.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shunt_admin::Pages;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Serves empty pages on a port of this machine.
async fn serve(connections_max: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    let pages = Pages::with_names("1", Vec::new(), vec!["metrics.example".to_owned()]);
    tokio::spawn(Arc::clone(&pages).serve_at_most(listener, connections_max));
    address
}

/// Returns the status line of the answer to a request.
async fn answer(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(request.as_bytes()).await.expect("it is read");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("it is answered, and ends");
    text.lines().next().unwrap_or_default().to_owned()
}

/// Otherwise an attacker's page in a browser could read everything that the pages show, once its
/// name points at this address.
#[tokio::test]
async fn a_request_to_another_host_name_gets_nothing() {
    let address = serve(8).await;
    for host in [
        "127.0.0.1",
        "127.0.0.1:9180",
        "[::1]:9180",
        "[::1]",
        "localhost",
        "LocalHost:1",
        "Metrics.Example:9180",
    ] {
        let line = answer(address, &format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        assert_eq!(line, "HTTP/1.1 200 OK", "{host}");
    }
    for host in [
        "attacker.example",
        "attacker.example:9180",
        "127.0.0.1.attacker.example",
        "localhost.example",
        "xlocalhost",
        "a b",
        "",
    ] {
        let line = answer(address, &format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        assert_eq!(line, "HTTP/1.1 421 Misdirected Request", "{host}");
    }
    for (request, expected) in [
        (
            "GET http://attacker.example/status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
            "HTTP/1.1 421 Misdirected Request",
        ),
        (
            "GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: a.example\r\n\r\n",
            "HTTP/1.1 421 Misdirected Request",
        ),
        ("GET /nothing HTTP/1.1\r\nHost: a.example\r\n\r\n", "HTTP/1.1 421 Misdirected Request"),
        // Browsers always send a Host header; health checks of load balancers may leave it out.
        ("GET /readyz HTTP/1.0\r\n\r\n", "HTTP/1.0 200 OK"),
    ] {
        assert_eq!(answer(address, request).await, expected, "{request}");
    }
}

/// The head of a request has five seconds. The test takes less, so no connection closes for that
/// reason.
#[tokio::test]
async fn silent_connections_delay_nobody() {
    for _ in 0..20 {
        let begun = Instant::now();
        let are_open = are_last_ones_open().await;
        if begun.elapsed() < Duration::from_secs(5) {
            return assert!(are_open, "they are closed");
        }
    }
    panic!("the machine stood still each time");
}

/// Opens more silent connections than the limit, sends a request beside them, and returns whether
/// the last ones are still open.
async fn are_last_ones_open() -> bool {
    const MOST: usize = 16;
    let address = serve(MOST).await;
    let mut silent = Vec::new();
    for number in 0..2 * MOST {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        // Some have begun a request.
        stream.write_all(&b"GET /readyz"[..number % 11]).await.expect("it is read");
        silent.push(stream);
    }
    assert_eq!(answer(address, "GET /readyz HTTP/1.0\r\n\r\n").await, "HTTP/1.0 200 OK");
    let is_open = |stream: &TcpStream| {
        let read = stream.try_read(&mut [0; 64]);
        read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    silent[2 * MOST - MOST / 2..].iter().all(is_open)
}
