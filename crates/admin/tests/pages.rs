//! Access to the pages: they answer clients that use an address or a known name, even while many
//! silent connections are open.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use shunt_admin::{Access, Change, Json, Listeners, Pages, Part};
use shunt_tls::Tokens;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

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

/// Returns the whole answer to a request.
async fn whole_answer(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(request.as_bytes()).await.expect("it is read");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("it is answered, and ends");
    text
}

#[tokio::test]
async fn a_browser_gets_a_page_that_may_use_nothing_but_its_own_files() {
    let address = serve(8).await;
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/page.css", "text/css; charset=utf-8"),
        ("/tables.js", "text/javascript; charset=utf-8"),
        ("/charts.js", "text/javascript; charset=utf-8"),
        ("/relays.js", "text/javascript; charset=utf-8"),
        ("/page.js", "text/javascript; charset=utf-8"),
    ] {
        let request = |method| format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let answer = whole_answer(address, &request("GET")).await;
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 OK") && !body.is_empty(), "{head}");
        for field in [
            &*format!("content-type: {kind}"),
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; ",
            "require-trusted-types-for 'script'; trusted-types 'none'",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "cache-control: no-store",
            "referrer-policy: no-referrer",
        ] {
            assert!(head.contains(field), "{path} {field}: {head}");
        }
        assert!(!head.contains("unsafe"), "{head}");
        let of_head = whole_answer(address, &request("HEAD")).await;
        let (same_head, nothing) = of_head.split_once("\r\n\r\n").expect("a head");
        let without_date = |head: &str| {
            let fields = head.lines().filter(|line| !line.starts_with("date:"));
            fields.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!((without_date(same_head), nothing), (without_date(head), ""));
        let line = whole_answer(address, &request("POST")).await;
        assert!(line.starts_with("HTTP/1.1 405 "), "{line}");
        let foreign = format!("GET {path} HTTP/1.1\r\nHost: attacker.example\r\n\r\n");
        assert_eq!(self::answer(address, &foreign).await, "HTTP/1.1 421 Misdirected Request");
    }
    let json = whole_answer(address, "GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(json.contains("x-content-type-options: nosniff"), "{json}");
}

const TOKEN: &str = "a-token-of-20-letters";

/// A part that no client should be sent to.
struct Unready;

impl Part for Unready {
    fn not_ready(&self) -> Option<String> {
        Some("no node is in dc1".to_owned())
    }

    fn changes(&self) -> &'static [&'static str] {
        &["paint"]
    }

    fn change(&self, name: &str, parameters: &Json, from: IpAddr) -> Option<Change<'_>> {
        let is_known = name == "paint" && parameters["colour"] == "red" && from.is_loopback();
        let outcome = if is_known { Ok(Json::Null) } else { Err(Json::Null) };
        Some(Box::pin(std::future::ready(outcome)))
    }
}

/// Otherwise any page that an operator reads could change the proxy, because the operator's browser
/// reaches the admin address.
#[tokio::test]
async fn only_this_machine_makes_changes_and_only_by_post() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    let pages = Pages::new("1", vec![Arc::new(Unready)]);
    tokio::spawn(Arc::clone(&pages).serve(listener));
    let json = "Content-Type: application/json\r\n";
    for (method, fields, colour, expected) in [
        ("POST", json.to_owned(), "red", "200 OK"),
        ("POST", json.to_owned(), "blue", "409 Conflict"),
        ("POST", format!("{json}Origin: http://attacker.example\r\n"), "red", "403 Forbidden"),
        ("POST", format!("{json}Sec-Fetch-Site: cross-site\r\n"), "red", "403 Forbidden"),
        // The page for browsers of this server.
        ("POST", format!("{json}Origin: http://localhost\r\n"), "red", "200 OK"),
        ("POST", format!("{json}Origin: http://localhost:3000\r\n"), "red", "403 Forbidden"),
        // Kinds of content that a browser sends to another site without asking.
        ("POST", "Content-Type: text/plain\r\n".to_owned(), "red", "415 Unsupported Media Type"),
        ("POST", String::new(), "red", "415 Unsupported Media Type"),
        ("GET", json.to_owned(), "red", "405 Method Not Allowed"),
        ("OPTIONS", "Origin: http://attacker.example\r\n".to_owned(), "", "405 Method Not Allowed"),
    ] {
        let body = format!("{{\"colour\":\"{colour}\"}}");
        let length = body.len();
        let request = format!(
            "{method} /paint HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
        );
        assert_eq!(answer(address, &request).await, format!("HTTP/1.1 {expected}"), "{request}");
    }
    let request = format!(
        "POST /paint HTTP/1.1\r\nHost: attacker.example\r\n{json}Content-Length: 2\r\n\r\n{{}}"
    );
    assert_eq!(answer(address, &request).await, "HTTP/1.1 421 Misdirected Request");
    let metrics = pages.render().expect("text");
    assert!(metrics.contains("shunt_admin_refusals_total{reason=\"cross_site\"} 3"), "{metrics}");
}

/// Serves empty pages that need a token.
async fn serve_with_token() -> (SocketAddr, Arc<Pages>) {
    serve_parts_with_token(Vec::new()).await
}

/// Pages that need a token.
fn pages_with_token(parts: Vec<Arc<dyn Part>>) -> Arc<Pages> {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("token");
    std::fs::write(&file, TOKEN).expect("written");
    let tokens = Tokens::open("admin_token_file", file).expect("a token");
    let access = Access { tokens: Some(Arc::new(tokens)), ..Access::default() };
    Pages::with_access("1", parts, access)
}

/// The permissions of the socket's file guard it, so whoever reaches it needs no token. The address
/// beside it does.
#[tokio::test]
async fn a_unix_socket_asks_for_no_token_and_its_neighbour_does() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("admin.sock");
    let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = tcp.local_addr().expect("it listens");
    let unix = UnixListener::bind(&path).expect("a path is free");
    let pages = pages_with_token(vec![Arc::new(Unready)]);
    tokio::spawn(pages.serve(Listeners { tcp: Some(tcp), unix: Some(unix) }));
    let ask = async |request: &str| {
        let mut stream = UnixStream::connect(&path).await.expect("it listens");
        stream.write_all(request.as_bytes()).await.expect("it is read");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("it is answered, and ends");
        text.lines().next().unwrap_or_default().to_owned()
    };
    let read = "GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let paint = "POST /paint HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                 Content-Length: 16\r\n\r\n{\"colour\":\"red\"}";
    for request in [read, paint] {
        assert_eq!(ask(request).await, "HTTP/1.1 200 OK", "{request}");
        assert_eq!(answer(address, request).await, "HTTP/1.1 401 Unauthorized", "{request}");
    }
    // Programs that a page of another site has made to write there get no further.
    let foreign = paint.replace("Host: localhost", "Host: localhost\r\nOrigin: http://a.example");
    assert_eq!(ask(&foreign).await, "HTTP/1.1 403 Forbidden");
}

async fn serve_parts_with_token(parts: Vec<Arc<dyn Part>>) -> (SocketAddr, Arc<Pages>) {
    let pages = pages_with_token(parts);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    tokio::spawn(Arc::clone(&pages).serve(listener));
    (address, pages)
}

#[tokio::test]
async fn a_token_opens_the_pages_that_orchestrators_do_not_ask_for() {
    let (address, pages) = serve_with_token().await;
    let ask = async |path: &str, fields: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        answer(address, &request).await
    };
    let right = format!("Authorization: Bearer {TOKEN}\r\n");
    for path in ["/metrics", "/status", "/history", "/runbook"] {
        assert_eq!(ask(path, &right).await, "HTTP/1.1 200 OK");
        assert_eq!(ask(path, "").await, "HTTP/1.1 401 Unauthorized");
        for wrong in [
            "Authorization: Bearer another-token-of-20\r\n".to_owned(),
            format!("Authorization: Basic {TOKEN}\r\n"),
            format!("Authorization: {TOKEN}\r\n"),
            "Authorization: Bearer\r\n".to_owned(),
            format!("{right}{right}"),
        ] {
            assert_eq!(ask(path, &wrong).await, "HTTP/1.1 401 Unauthorized", "{wrong}");
        }
    }
    assert_eq!(ask("/nothing", "").await, "HTTP/1.1 401 Unauthorized");
    assert_eq!(ask("/nothing", &right).await, "HTTP/1.1 404 Not Found");
    // The page for browsers has no data: the browser sends the token for what the page asks.
    let scripts = ["/tables.js", "/charts.js", "/relays.js", "/page.js"];
    for path in ["/healthz", "/readyz", "/", "/page.css"].into_iter().chain(scripts) {
        assert_eq!(ask(path, "").await, "HTTP/1.1 200 OK");
    }
    for other in [
        "/healthz/",
        "//healthz",
        "/healthz/../status",
        "/readyz%2f..%2fstatus",
        "//",
        "/page.js/../status",
    ] {
        assert_eq!(ask(other, "").await, "HTTP/1.1 401 Unauthorized", "{other}");
    }
    let metrics = pages.render().expect("text");
    for line in [
        "shunt_admin_refusals_total{reason=\"no_token\"} 11",
        "shunt_admin_refusals_total{reason=\"wrong_token\"} 20",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[tokio::test]
async fn an_answer_without_a_token_says_which_one_is_needed() {
    let (address, _) = serve_with_token().await;
    for (fields, words) in [
        ("", "send the header `Authorization: Bearer TOKEN`"),
        ("Authorization: Bearer x\r\n", "has no token of admin_token_file"),
    ] {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let request = format!("GET /status HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        stream.write_all(request.as_bytes()).await.expect("it is read");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("it is answered, and ends");
        assert!(text.contains("www-authenticate: Bearer") && text.contains(words), "{text}");
    }
}

#[tokio::test]
async fn readiness_gives_its_reason_to_those_with_a_token_alone() {
    let (address, _) = serve_parts_with_token(vec![Arc::new(Unready)]).await;
    for (fields, is_told) in
        [(String::new(), false), (format!("Authorization: Bearer {TOKEN}\r\n"), true)]
    {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let request = format!("GET /readyz HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        stream.write_all(request.as_bytes()).await.expect("it is read");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("it is answered, and ends");
        assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
        assert_eq!(text.contains("dc1"), is_told, "{text}");
    }
}
