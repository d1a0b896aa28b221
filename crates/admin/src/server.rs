//! Metrics, health, readiness and status over HTTP. Pages only read; [`changes`] take POST.
//!
//! Anyone who can reach the port, under an address or a name of this machine, may read the pages,
//! unless TLS asks for a certificate, or the pages for a token. At a Unix socket, the permissions
//! of its file decide, and neither TLS nor a token is asked for. Time limits apply to each request
//! and connection, a size limit to the head, and a maximum to the number of connections. At the
//! maximum, a new connection replaces one of the host with the most, so that it never waits.
//! Answers that clients have not read have a maximum, too, beyond which some are cut off.

use std::sync::Arc;
use std::time::Duration;

use axum::body::HttpBody as _;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use shunt_tls::accept_http;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::connections::{Connection, Connections, Host};
use crate::host::is_meant;
use crate::listeners::{Accepted, Listeners, Peer};
use crate::liveness::LOOK_EVERY;
use crate::pages::{Pages, Refusal};
use crate::{authorization, browser, changes, runbook};

/// Connections at a time, one request each.
const CONNECTIONS_MAX: usize = 512;
/// Bytes of answers that clients have not read to the end.
const ANSWERS_BYTES_MAX: usize = 64 << 20;
/// Time limit for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for a whole connection, until the client has read the answer.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Pause after a failed accept, for example when the limit of open files is reached.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);

impl Pages {
    /// Serves until the task is dropped. Needs a tokio runtime with I/O and time.
    pub async fn serve(self: Arc<Self>, listeners: impl Into<Listeners>) {
        self.serve_at_most(listeners, CONNECTIONS_MAX).await;
    }

    /// The same with at most `connections_max` connections at a time.
    pub async fn serve_at_most(
        self: Arc<Self>,
        listeners: impl Into<Listeners>,
        connections_max: usize,
    ) {
        let listeners = listeners.into();
        let own = self
            .names()
            .fold(Router::new(), |router, name| router.route(&format!("/{name}"), get(own_page)));
        let own = self
            .metric_names()
            .fold(own, |router, name| router.route(&format!("/metrics/{name}"), get(own_metrics)));
        let own = self
            .changes()
            .fold(own, |router, name| router.route(&format!("/{name}"), post(changes::make)));
        let router = own
            .layer(DefaultBodyLimit::max(changes::BYTES_MAX))
            .route("/metrics", get(metrics))
            .route("/healthz", get(health))
            .route("/readyz", get(ready))
            .route("/status", get(status))
            .route("/history", get(history))
            .route("/runbook", get(async || Json(runbook::page())));
        let router = browser::route(router)
            .fallback(not_found)
            .method_not_allowed_fallback(not_allowed)
            .layer(from_fn_with_state(Arc::clone(&self), check))
            .with_state(Arc::clone(&self));
        let connections = Connections::new(connections_max, ANSWERS_BYTES_MAX);
        let mut next_look = Instant::now();
        loop {
            let accepted = timeout_at(next_look, listeners.accept()).await;
            if Instant::now() >= next_look {
                self.look();
                self.note();
                next_look = Instant::now() + LOOK_EVERY;
            }
            let Ok(accepted) = accepted else { continue };
            let Ok(stream) = accepted else {
                sleep(ACCEPT_RETRY).await;
                continue;
            };
            let peer = stream.peer();
            let connection = connections.add(peer);
            let router = router.clone().layer(Extension(Arc::clone(&connection)));
            let router = router.layer(Extension(Arc::clone(&connections)));
            let service = TowerToHyperService::new(router.layer(Extension(peer)));
            let tls = self.access.tls.clone();
            let task = tokio::spawn(async move {
                let served = async {
                    match (stream, tls) {
                        (Accepted::Unix(stream), _) => serve(stream, service).await,
                        (Accepted::Tcp(stream, _), None) => serve(stream, service).await,
                        (Accepted::Tcp(stream, peer), Some(tls)) => {
                            let secured = accept_http(stream, peer, &*tls, HEAD_TIMEOUT);
                            if let Some(stream) = secured.await {
                                serve(stream, service).await;
                            }
                        }
                    }
                };
                let _ = timeout(CONNECTION_TIMEOUT, served).await;
            });
            connection.is_served_by(task.abort_handle());
        }
    }
}

/// Serves one request.
async fn serve<T>(stream: T, service: TowerToHyperService<Router>)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // An error on a connection concerns only its peer.
    let _ = connection.await;
}

/// Passes on requests that are meant for this machine and have the token that their page needs, and
/// refuses all others.
async fn check(
    State(pages): State<Arc<Pages>>,
    Extension(connections): Extension<Arc<Connections>>,
    Extension(connection): Extension<Arc<Connection>>,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    connection.ask();
    connections.wait_for_room().await;
    let mut answer = admit(&pages, (peer, connection.host()), request, next).await;
    let bytes = answer.body().size_hint().upper().unwrap_or_default();
    connections.answers(&connection, usize::try_from(bytes).unwrap_or(usize::MAX));
    // A browser must not take a page for a script or for HTML, because clients' texts are in it.
    let nosniff = HeaderValue::from_static("nosniff");
    answer.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    answer
}

/// Answers a request, or refuses it.
async fn admit(
    pages: &Pages,
    (peer, host): (Peer, Host),
    request: Request,
    next: Next,
) -> Response {
    if !is_meant(&request, &pages.access.names) {
        pages.refusals.of(Refusal::Host).add(1);
        let error = "this server does not accept this host name: use an IP address, or add the name to --admin after a comma";
        return failure(StatusCode::MISDIRECTED_REQUEST, error);
    }
    if let Some(tokens) = &pages.access.tokens
        && !peer.is_owner
        && !authorization::is_open(request.uri().path())
        && let Err(refusal) = authorization::check(request.headers(), tokens)
    {
        pages.refusals.of(refusal).add(1);
        return unauthorized(refusal, tokens.option());
    }
    let is_quick = authorization::is_open(request.uri().path());
    // A change waits for others, and is short.
    let _turn = match is_quick || request.method() == Method::POST {
        true => None,
        false => Some(pages.turns.take(host).await),
    };
    next.run(request).await
}

/// The answer to a request without the token that its page needs. `option` names the file of
/// tokens.
fn unauthorized(refusal: Refusal, option: &str) -> Response {
    let error = match refusal {
        Refusal::NoToken => format!(
            "this page needs a token of {option}: send the header `Authorization: Bearer TOKEN`"
        ),
        _ => format!(
            "the header `Authorization` has no token of {option}: send `Bearer TOKEN` with a line \
            of that file"
        ),
    };
    let mut response = failure(StatusCode::UNAUTHORIZED, &error);
    let challenge = HeaderValue::from_static("Bearer realm=\"shunt\"");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    response
}

async fn metrics(State(pages): State<Arc<Pages>>, headers: HeaderMap) -> Response {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let takes_exemplars =
        accepted.into_iter().any(|value| value.contains("application/openmetrics-text"));
    let text = if takes_exemplars { pages.render_with_exemplars() } else { pages.render() };
    metrics_answer(text)
}

async fn own_metrics(state: State<Arc<Pages>>, request: Request) -> Response {
    let name = request.uri().path().trim_start_matches("/metrics/");
    match state.metric_page(name).await {
        Some(text) => metrics_answer(text),
        None => not_found(state, request).await,
    }
}

fn metrics_answer(text: Result<String, std::fmt::Error>) -> Response {
    match text {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => failure(
            StatusCode::INTERNAL_SERVER_ERROR,
            &format!("metrics could not be written: {error}"),
        ),
    }
}

async fn health(State(pages): State<Arc<Pages>>) -> Response {
    let mut stuck = pages.stuck();
    if stuck.is_empty() {
        return Json(json!({ "status": "ok" })).into_response();
    }
    stuck.insert("status".to_owned(), "stuck".into());
    (StatusCode::SERVICE_UNAVAILABLE, Json(stuck)).into_response()
}

async fn ready(
    State(pages): State<Arc<Pages>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Response {
    // Reasons may name datacentres, which are for those alone who have a token.
    let tokens = pages.access.tokens.as_ref().filter(|_| !peer.is_owner);
    let is_told = tokens.is_none_or(|tokens| authorization::check(&headers, tokens).is_ok());
    match pages.not_ready() {
        None => Json(json!({ "status": "ready" })).into_response(),
        Some(reason) => {
            let reason = if is_told { &*reason } else { "ask with a token for the reason" };
            let body = Json(json!({ "status": "not ready", "reason": reason }));
            (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
        }
    }
}

async fn status(State(pages): State<Arc<Pages>>) -> Response {
    Json(pages.status().await).into_response()
}

async fn history(State(pages): State<Arc<Pages>>) -> Response {
    Json(pages.history()).into_response()
}

async fn own_page(state: State<Arc<Pages>>, request: Request) -> Response {
    match state.page(request.uri().path().trim_start_matches('/')).await {
        Some(page) => Json(page).into_response(),
        None => not_found(state, request).await,
    }
}

async fn not_found(State(pages): State<Arc<Pages>>, request: Request) -> Response {
    let own = pages.names().map(|name| format!("/{name}, "));
    let own: String =
        own.chain(pages.metric_names().map(|name| format!("/metrics/{name}, "))).collect();
    let path = request.uri().path();
    let error = format!(
        "no page {path}; the paths are {own}/metrics, /history, /runbook, /healthz, /readyz and /status, and / for browsers"
    );
    failure(StatusCode::NOT_FOUND, &error)
}

async fn not_allowed(request: Request) -> Response {
    failure(
        StatusCode::METHOD_NOT_ALLOWED,
        &format!("{} is not allowed here: pages take GET and HEAD, changes POST", request.method()),
    )
}

pub(crate) fn failure(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({ "error": error }))).into_response()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::{Map, Value};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpSocket, TcpStream};
    use tokio::sync::Semaphore;

    use super::*;
    use crate::connections;
    use crate::history::Reading;
    use crate::page_turns::TURNS_OF_HOST_MAX;
    use crate::pages::{self, Part};

    /// Counts how often it is asked; stuck from the third time on.
    #[derive(Default)]
    struct Looks(AtomicUsize);

    impl Part for Looks {
        fn stuck(&self, _: std::time::Instant) -> Map<String, Value> {
            let is_stuck = self.0.fetch_add(1, Ordering::Relaxed) >= 2;
            is_stuck.then(|| ("loops".to_owned(), json!([0]))).into_iter().collect()
        }

        fn reading(&self) -> Option<Reading> {
            Some(Reading::default())
        }
    }

    /// Guards against a loop that turned and then stopped before the first request: without earlier
    /// looks, it would seem to turn. The history has points of the time before the first request.
    #[tokio::test]
    async fn loops_are_looked_at_and_counters_read_whether_anybody_asks_or_not() {
        let part = Arc::new(Looks::default());
        let pages = Pages::new("1", vec![Arc::clone(&part) as Arc<dyn Part>]);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let server = tokio::spawn(Arc::clone(&pages).serve(listener));
        let looks = async {
            while part.0.load(Ordering::Relaxed) < 3
                || pages.history()["answered_per_second"] != json!([0.0])
            {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(600), looks).await.expect("nobody looks");
        let reason = pages.not_ready().expect("ready");
        assert_eq!(reason, "event loops are stuck: loops [0]");
        server.abort();
    }

    /// Counts calls of `look`, which `/healthz` and `/readyz` must not make.
    #[derive(Default)]
    struct Costly(AtomicUsize);

    impl Part for Costly {
        fn look(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn health_and_readiness_look_at_loops_alone() {
        let part = Arc::new(Costly::default());
        let pages = Pages::new("1", vec![Arc::clone(&part) as Arc<dyn Part>]);
        assert_eq!(health(State(Arc::clone(&pages))).await.status(), StatusCode::OK);
        assert_eq!((pages.not_ready(), part.0.load(Ordering::Relaxed)), (None, 0));
        pages.look();
        assert_eq!(part.0.load(Ordering::Relaxed), 1);
    }

    /// A part with a page that takes many turns of the thread.
    #[derive(Default)]
    struct Slow {
        running: AtomicUsize,
        most: AtomicUsize,
    }

    impl Part for Slow {
        fn status(&self) -> pages::State<'_> {
            Box::pin(async move {
                let running = self.running.fetch_add(1, Ordering::Relaxed) + 1;
                self.most.fetch_max(running, Ordering::Relaxed);
                while self.most.load(Ordering::Relaxed) < TURNS_OF_HOST_MAX {
                    sleep(Duration::from_millis(1)).await;
                }
                for _ in 0..1_000 {
                    tokio::task::yield_now().await;
                }
                self.running.fetch_sub(1, Ordering::Relaxed);
                Value::Null
            })
        }
    }

    async fn answer(listener: std::net::SocketAddr, path: &str) -> String {
        let stream = TcpStream::connect(listener).await.expect("connect");
        answer_on(stream, path).await
    }

    async fn answer_on(mut stream: TcpStream, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("write");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("read");
        answer
    }

    /// All pages share a thread: those of health would wait until hundreds of large ones are there.
    #[tokio::test]
    async fn few_pages_are_made_at_a_time_and_those_of_health_do_not_wait() {
        let part = Arc::new(Slow::default());
        let pages = Pages::new("1", vec![Arc::clone(&part) as Arc<dyn Part>]);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let server = tokio::spawn(Arc::clone(&pages).serve(listener));
        let askers: Vec<_> =
            (0..10 * TURNS_OF_HOST_MAX).map(|_| tokio::spawn(answer(address, "/status"))).collect();
        for asker in askers {
            assert!(asker.await.expect("an answer").starts_with("HTTP/1.1 200"));
        }
        assert_eq!(part.most.load(Ordering::Relaxed), TURNS_OF_HOST_MAX);
        let here = connections::host(here());
        let mut taken = Vec::new();
        for _ in 0..TURNS_OF_HOST_MAX {
            taken.push(pages.turns.take(here).await);
        }
        for path in ["/readyz", "/healthz", "/"] {
            assert!(answer(address, path).await.starts_with("HTTP/1.1 200"), "{path}");
        }
        drop(taken);
        server.abort();
    }

    fn here() -> Peer {
        Peer { address: [127, 0, 0, 1].into(), is_owner: false }
    }

    /// A part with a page that is made once the gate is open, and one that is made at once.
    struct Gated {
        running: AtomicUsize,
        gate: Semaphore,
    }

    impl Part for Gated {
        fn status(&self) -> pages::State<'_> {
            Box::pin(async {
                self.running.fetch_add(1, Ordering::Relaxed);
                let open = self.gate.acquire().await;
                json!({ "open": open.is_ok() })
            })
        }

        fn pages(&self) -> &'static [&'static str] {
            &["quick"]
        }

        fn page(&self, _: &str) -> Option<pages::State<'_>> {
            Some(Box::pin(std::future::ready(Value::Null)))
        }
    }

    /// Programs of this machine that flood the port must keep nobody else from the pages.
    #[tokio::test]
    async fn a_host_that_asks_for_many_pages_leaves_turns_to_the_others() {
        let part = Arc::new(Gated { running: AtomicUsize::new(0), gate: Semaphore::new(0) });
        let pages = Pages::new("1", vec![Arc::clone(&part) as Arc<dyn Part>]);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let server = tokio::spawn(Arc::clone(&pages).serve(listener));
        let flood: Vec<_> = (0..50).map(|_| tokio::spawn(answer(address, "/status"))).collect();
        while part.running.load(Ordering::Relaxed) < TURNS_OF_HOST_MAX {
            sleep(Duration::from_millis(1)).await;
        }
        let other = TcpSocket::new_v4().expect("a socket");
        other.bind("127.0.0.2:0".parse().expect("an address")).expect("bind");
        let stream = other.connect(address).await.expect("connect");
        let quick = timeout(Duration::from_secs(20), answer_on(stream, "/quick")).await;
        assert!(quick.expect("it does not wait for the flood").starts_with("HTTP/1.1 200"));
        part.gate.add_permits(1);
        for asker in flood {
            assert!(asker.await.expect("an answer").contains("open"));
        }
        assert_eq!(pages.turns.hosts_count(), 0, "no host is kept");
        server.abort();
    }

    const LARGE_BYTES: usize = 8 << 20;

    /// A part with a large page.
    struct Large;

    impl Part for Large {
        fn pages(&self) -> &'static [&'static str] {
            &["large"]
        }

        fn page(&self, name: &str) -> Option<pages::State<'_>> {
            let page = || Value::String("x".repeat(LARGE_BYTES));
            (name == "large").then(|| Box::pin(async move { page() }) as pages::State<'_>)
        }
    }

    /// Asks for the large page, and reads the first byte of the answer.
    async fn asker(listener: std::net::SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(listener).await.expect("connect");
        let request = b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.expect("write");
        assert_eq!(stream.read_u8().await.expect("an answer"), b'H');
        stream
    }

    async fn rest_of(mut stream: TcpStream) -> usize {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        rest.len()
    }

    /// Without a bound, 512 clients that read nothing hold all that they have asked for.
    #[tokio::test]
    async fn clients_that_read_nothing_are_cut_off_before_those_that_come_later() {
        let pages = Pages::new("1", vec![Arc::new(Large) as Arc<dyn Part>]);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let server = tokio::spawn(pages.serve(listener));
        let mut silent = Vec::new();
        for _ in 0..2 * ANSWERS_BYTES_MAX / LARGE_BYTES {
            silent.push(asker(address).await);
        }
        assert!(rest_of(asker(address).await).await > LARGE_BYTES, "the last has a whole answer");
        let mut cut_off = 0;
        for stream in silent {
            cut_off += usize::from(rest_of(stream).await < LARGE_BYTES);
        }
        assert!(cut_off * LARGE_BYTES >= ANSWERS_BYTES_MAX, "{cut_off} are cut off");
        server.abort();
    }
}
