//! The listener: limits on connections, deadlines, and the life of a request.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, ORIGIN};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use shunt_admin::{Counter, Family, is_meant};
use shunt_proxy::config::{Config, Credentials};
use shunt_proxy::control::Access;
use shunt_proxy::control::client::{AsyncClient, Failed};
use shunt_proxy::tls::OutgoingTls;
use shunt_reactor::Full as NoRoom;
use shunt_tls::{Sessions, accept_http};
use shunt_wire::cql::message::error_code;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::{error, warn};

use crate::concurrency_limit::{ConcurrencyLimit, Place};
use crate::limits::{
    ACCEPT_RETRY, ANSWER_TIMEOUT, BODY_BYTES_MAX, BODY_TIMEOUT, CONNECT_STEP_TIMEOUT,
    CONNECTION_TIMEOUT, CONNECTIONS_MAX, HEAD_BYTES_MAX, HEAD_TIMEOUT, LOGIN_PAUSE, LOGINS_MAX,
    QUEUES_MAX, REQUEST_TIMEOUT, REQUESTS_MAX, SEND_BUFFER_BYTES, STOP_GRACE, SWEEP_EVERY,
    WAITS_MAX,
};
use crate::locks::{Waiting, carry_out};
use crate::login::Login;
use crate::pool::{LoggedIn, Pool};
use crate::reply::{Reply, Status};
use crate::request::{LockRequest, Operation};
use crate::stream::{Stream, gone};

/// Order to the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Serve.
    Serve,
    /// Take nothing new, and end when all current requests are answered.
    Drain,
    /// End now.
    End,
}

/// Locks over HTTP.
#[derive(Debug)]
pub struct LocksHttp {
    /// A listener of the proxy itself.
    proxy: SocketAddr,
    /// TLS of the fleet; `None`: the proxy is reached in clear text.
    tls: Option<Arc<OutgoingTls>>,
    /// TLS of clients; `None`: clear text.
    served_tls: Option<Arc<dyn Sessions>>,
    config: watch::Receiver<Arc<Config>>,
    order: watch::Receiver<Order>,
    connections: Arc<ConcurrencyLimit>,
    requests: Arc<ConcurrencyLimit>,
    waits: Arc<ConcurrencyLimit>,
    logins: Arc<ConcurrencyLimit>,
    queues: Arc<ConcurrencyLimit>,
    idle: Mutex<Pool<AsyncClient>>,
    pub(crate) metrics: Metrics,
}

/// Counts, written only by the serving thread.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) answers: Family<Status, { Status::COUNT }>,
    pub(crate) connections_refused: Counter,
    pub(crate) accepts_failed: Counter,
}

impl LocksHttp {
    /// Creates a server that carries requests out at `proxy`, which must speak CQL and keep a
    /// fleet's locks. `served_tls` is the TLS of the server's own clients.
    pub fn new(
        (proxy, tls): (SocketAddr, Option<Arc<OutgoingTls>>),
        served_tls: Option<Arc<dyn Sessions>>,
        config: watch::Receiver<Arc<Config>>,
        order: watch::Receiver<Order>,
    ) -> Arc<Self> {
        Arc::new(Self {
            proxy,
            tls,
            served_tls,
            config,
            order,
            connections: ConcurrencyLimit::new(CONNECTIONS_MAX),
            requests: ConcurrencyLimit::new(REQUESTS_MAX),
            waits: ConcurrencyLimit::new(WAITS_MAX),
            logins: ConcurrencyLimit::new(LOGINS_MAX),
            queues: ConcurrencyLimit::new(QUEUES_MAX),
            idle: Mutex::default(),
            metrics: Metrics::default(),
        })
    }

    /// Serves until an order to end, or to drain once drained. Needs a tokio runtime of one thread,
    /// with I/O and time.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) {
        let mut serving = JoinSet::new();
        let mut order = self.order.clone();
        let mut sweep = interval(SWEEP_EVERY);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // A dropped sender counts as an order to end.
                _ = order.wait_for(|order| *order != Order::Serve) => break,
                _ = sweep.tick() => {
                    let age_max = self.age_max();
                    self.idle().sweep(Instant::now(), age_max);
                }
                Some(ended) = serving.join_next(), if !serving.is_empty() => note(ended),
                accepted = listener.accept(), if self.connections.has_room() => match accepted {
                    Ok((stream, peer)) => match self.connections.enter(peer.ip()) {
                        Ok(place) => drop(serving.spawn(Arc::clone(&self).connection(stream, peer, place))),
                        Err(_) => self.metrics.connections_refused.add(1),
                    },
                    Err(error) => {
                        // Most likely out of files. The pause limits the log to one line each.
                        self.metrics.accepts_failed.add(1);
                        warn!(%error, "cannot accept connections for locks over HTTP for now");
                        sleep(ACCEPT_RETRY).await;
                    }
                },
            }
        }
        drop(listener);
        self.idle().close();
        let end = order.wait_for(|order| *order == Order::End);
        let answered = async {
            while let Some(ended) = serving.join_next().await {
                note(ended)
            }
        };
        tokio::select! {
            _ = end => {}
            () = answered => {}
        }
    }

    /// Serves one request.
    async fn connection(self: Arc<Self>, stream: TcpStream, address: SocketAddr, place: Place) {
        let peer = address.ip();
        let mut order = self.order.clone();
        // A small buffer keeps output that the client does not take in this process, where it is
        // counted.
        let _ = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER_BYTES as usize);
        let Some(stream) = self.secured(stream, address).await else { return };
        let sending = Arc::new(Sending::default());
        let service = service_fn(|request| {
            Arc::clone(&self).request(request, peer, stream.clone(), Arc::clone(&sending))
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(HEAD_BYTES_MAX)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream.clone()), service);
        let mut connection = pin!(connection);
        let served = async {
            tokio::select! {
                _ = order.wait_for(|order| *order != Order::Serve) => {}
                // Errors of a connection concern its client only.
                _ = connection.as_mut() => return,
            }
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        };
        let untaken = async {
            sending.begun.notified().await;
            sleep(ANSWER_TIMEOUT).await;
        };
        tokio::select! {
            _ = timeout(CONNECTION_TIMEOUT, served) => {}
            () = untaken => {}
        }
        drop(place);
    }

    /// Does a client's handshake, if clients have TLS.
    async fn secured(&self, stream: TcpStream, peer: SocketAddr) -> Option<Stream> {
        let Some(tls) = &self.served_tls else { return Some(Stream::plain(stream)) };
        let mut order = self.order.clone();
        tokio::select! {
            _ = order.wait_for(|order| *order != Order::Serve) => None,
            stream = accept_http(stream, peer, &**tls, HEAD_TIMEOUT) => stream.map(Stream::secured),
        }
    }

    async fn request(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: IpAddr,
        stream: Stream,
        sending: Arc<Sending>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let reply = self.answer(request, peer, &stream, &sending).await;
        sending.begun.notify_one();
        self.metrics.answers.of(reply.counted()).add(1);
        Ok(reply.response())
    }

    /// Carries a request out. If the client leaves, this future is dropped, and with it the
    /// connection to the proxy and any wait there.
    async fn answer(
        &self,
        request: Request<Incoming>,
        peer: IpAddr,
        stream: &Stream,
        sending: &Sending,
    ) -> Reply {
        if self.is_stopping() {
            return Reply::unavailable("the proxy is shutting down");
        }
        let config = Arc::clone(&self.config.borrow());
        let names = config.locks_http.as_ref().map_or(&[][..], |http| &http.names);
        if !is_meant(&request, names) {
            let message = "this server does not accept this host name: use an IP address, or add \
                the name to --locks-http after a comma";
            return Reply::error(StatusCode::MISDIRECTED_REQUEST, message);
        }
        let (head, body) = request.into_parts();
        if head.headers.contains_key(ORIGIN) {
            let message = "this is not for scripts of web pages, which could be anybody's: `Origin` is refused";
            return Reply::error(StatusCode::FORBIDDEN, message);
        }
        // The body is read before a place among the requests is taken: slow senders hold none.
        if let Err(reply) = refuse_body(body).await {
            return reply;
        }
        let request = match LockRequest::read(&head.method, head.uri.path(), head.uri.query()) {
            Ok(request) => request,
            Err(reply) => return reply,
        };
        let _place =
            match enter(&self.requests, peer, REQUESTS_MAX, "requests that are carried out") {
                Ok(place) => place,
                Err(reply) => return reply,
            };
        let _wait = match (request.wait_s() > 0)
            .then(|| enter(&self.waits, peer, WAITS_MAX, "requests that wait"))
        {
            Some(Err(reply)) => return reply,
            wait => wait,
        };
        if request.operation == Operation::Queue {
            match enter(&self.queues, peer, QUEUES_MAX, "queues that are shown") {
                Ok(place) => sending.keep(place),
                Err(reply) => return reply,
            }
        }
        if head.headers.get_all(AUTHORIZATION).iter().nth(1).is_some() {
            return Reply::error(StatusCode::BAD_REQUEST, "there are two headers `Authorization`");
        }
        let login = head
            .headers
            .get(AUTHORIZATION)
            .map(|header| Login::read(header.as_bytes()))
            .transpose();
        let login = match login {
            Ok(login) => login,
            Err(why) => return Reply::error(StatusCode::UNAUTHORIZED, why),
        };
        let limit = REQUEST_TIMEOUT + Duration::from_secs(u64::from(request.wait_s()));
        let given_up = |message: String| {
            Reply::of_statement(&Failed { code: None, message }, request.changes_something())
        };
        tokio::select! {
            done = timeout(limit, self.carried_out(&request, &login, peer)) => {
                done.unwrap_or_else(|_| given_up(format!("the proxy did not answer within {} s", limit.as_secs())))
            }
            () = gone(stream) => given_up("the client has gone".to_owned()),
            () = self.stopped(), if request.wait_s() > 0 => given_up("the proxy is shutting down".to_owned()),
        }
    }

    /// Resolves once waiting requests should end because the proxy stops.
    async fn stopped(&self) {
        let mut order = self.order.clone();
        let _ = order.wait_for(|order| *order != Order::Serve).await;
        sleep(STOP_GRACE).await;
    }

    async fn carried_out(
        &self,
        request: &LockRequest,
        login: &Option<Login>,
        peer: IpAddr,
    ) -> Reply {
        let mut logged_in = match self.logged_in(login, peer).await {
            Ok(logged_in) => logged_in,
            Err(failed) => return Reply::of_connecting(&failed, login.is_some()),
        };
        let is_stopping = || self.is_stopping();
        let round_max = Duration::from_millis(self.config.borrow().lock_wait_max_ms);
        let waiting = Waiting { round_max, is_stopping: &is_stopping };
        let done = carry_out(&mut logged_in.client, request, &waiting).await;
        if done.as_ref().err().is_none_or(|failed| failed.code.is_some()) {
            self.idle().put(login, logged_in);
        }
        done.unwrap_or_else(|failed| Reply::of_statement(&failed, request.changes_something()))
    }

    /// The way to the proxy. The proxy's certificate must be for the address by which the other
    /// proxies know it.
    fn access(&self, credentials: Option<Credentials>) -> Access {
        let address = self.config.borrow().member_address().ok();
        Access {
            credentials,
            by_password: true,
            tls: self.tls.as_ref().map(|tls| tls.client()),
            counts: self.tls.clone(),
            name: address.map(|address| address.ip().to_canonical().to_string().into()),
            limit: CONNECT_STEP_TIMEOUT,
        }
    }

    /// Gets a connection to the proxy with this login.
    async fn logged_in(
        &self,
        login: &Option<Login>,
        peer: IpAddr,
    ) -> Result<LoggedIn<AsyncClient>, Failed> {
        let _place = match login {
            Some(_) => Some(self.login_place(login, peer).await?),
            None => None,
        };
        let (since, age_max) = (Instant::now(), self.age_max());
        let found = self.idle().take(login, since, age_max);
        if let Some(found) = found {
            return Ok(found);
        }
        let client =
            AsyncClient::connect(self.proxy, &self.access(login.as_ref().map(Login::credentials)))
                .await?;
        if !client.keeps_locks() {
            // Without locks, the proxy would write lock statements as plain rows.
            let message = format!("{} keeps no locks: it is no proxy of a fleet", self.proxy);
            return Err(Failed { code: None, message });
        }
        Ok(LoggedIn { client, since })
    }

    /// Waits for a place among the logins being checked, unless an idle connection makes it
    /// unnecessary.
    async fn login_place(
        &self,
        login: &Option<Login>,
        peer: IpAddr,
    ) -> Result<Option<Place>, Failed> {
        let until = Instant::now() + CONNECT_STEP_TIMEOUT;
        loop {
            if self.idle().has(login, Instant::now(), self.age_max()) {
                return Ok(None);
            }
            match self.logins.enter(peer) {
                Ok(place) => return Ok(Some(place)),
                Err(_) if Instant::now() < until => sleep(LOGIN_PAUSE).await,
                Err(_) => {
                    let message = format!(
                        "{LOGINS_MAX} logins are being checked, or half of that for this address"
                    );
                    return Err(Failed { code: Some(error_code::OVERLOADED), message });
                }
            }
        }
    }

    /// A login is trusted for as long as the proxy trusts one; after that it is checked again.
    fn age_max(&self) -> Duration {
        Duration::from_millis(self.config.borrow().auth_cache_ms)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Pool<AsyncClient>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopping(&self) -> bool {
        *self.order.borrow() != Order::Serve
    }

    /// Numbers of connections, and of requests being carried out.
    pub(crate) fn taken(&self) -> (f64, f64) {
        (self.connections.taken() as f64, self.requests.taken() as f64)
    }
}

/// Takes a place, or returns the answer that there is none.
fn enter(
    limit: &Arc<ConcurrencyLimit>,
    peer: IpAddr,
    max: usize,
    what: &str,
) -> Result<Place, Reply> {
    limit.enter(peer).map_err(|full| match full {
        NoRoom::All => Reply::unavailable(&format!("there are {max} {what}, which is the limit")),
        NoRoom::Host => {
            let message =
                format!("this address has its part of the {what} at a time; ask again later");
            Reply::error(StatusCode::TOO_MANY_REQUESTS, message)
        }
    })
}

/// A connection's answer while it is being sent.
#[derive(Default)]
struct Sending {
    begun: Notify,
    /// Place held until the answer was taken.
    place: Mutex<Option<Place>>,
}

impl Sending {
    fn keep(&self, place: Place) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Some(place);
    }
}

/// Refuses a body. One that is not too long is read first: only then does its sender read the
/// answer.
async fn refuse_body(body: Incoming) -> Result<(), Reply> {
    let read = timeout(BODY_TIMEOUT, Limited::new(body, BODY_BYTES_MAX).collect()).await;
    let is_empty = read.is_ok_and(|read| read.is_ok_and(|read| read.to_bytes().is_empty()));
    let message = "a body is not read: parameters are a part of the address, behind a `?`";
    is_empty.then_some(()).ok_or_else(|| Reply::error(StatusCode::PAYLOAD_TOO_LARGE, message))
}

/// A panic in a connection is a bug, and ends that connection only.
fn note(ended: Result<(), tokio::task::JoinError>) {
    if let Err(died) = ended
        && died.is_panic()
    {
        error!("a connection for locks over HTTP has panicked; the log says where");
    }
}
