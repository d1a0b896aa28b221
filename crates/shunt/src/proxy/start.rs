//! Binds the addresses and starts the threads.

use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use shunt_admin::{Access, Pages, Part};
use shunt_handover::limits::OWNER_RECEIVE_BYTES;
use shunt_otlp::Exporter;
use shunt_proxy::admin::Admin;
use shunt_proxy::admission::{self, AdmissionRules};
use shunt_proxy::config::{Config, Handover};
use shunt_proxy::control::{ClusterView, ControlOptions, ControlRequest, CoreMail, Mailbox};
use shunt_proxy::core::{Core, CoreOptions};
use shunt_proxy::fleet::membership::state_file::StateFile;
use shunt_proxy::log_limits::LogLimits;
use shunt_proxy::metrics::exposition::Sources;
use shunt_proxy::metrics::{ControlMetrics, CoreMetrics, TlsMetrics};
use shunt_proxy::prepared::PreparedStore;
use shunt_proxy::tls::{self, IdentityFiles, Outgoing};
use shunt_proxy::traces::export::TraceExport;
use shunt_reactor::moving::{Intake, Mover};
use shunt_reactor::{
    Acceptor, CoreSlot, Inbox, IoChoice, Listener, LoopOptions, Mailer, Security, UnixAccess,
    UnixListener, limit_receive, listen_unix, mailbox, probe_uring, run,
};
use shunt_tls::Sessions;
use shunt_tls_upkeep::Listeners;
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use super::control::{self, ControlThread};
use super::http;
use super::part::{Notice, ProxyPart, Reload, Running};
use super::{Schemes, admin_cql};
use crate::admin;
use crate::exit::{Exit, Failure};
use crate::open_files;
use crate::relay::cql::HandsOver;
use crate::supervise::{Events, Teller, threads};
use crate::systemd::sockets;

/// Waiting mail and new connections of one core; the accepting thread waits when the mailbox is
/// full.
const MAILBOX_CAPACITY: usize = 4096;
/// Requests of all cores that may wait for the control plane.
const REQUESTS_CAPACITY: usize = 1024;

/// A running proxy.
pub(crate) struct Started {
    /// Addresses clients connect to, as bound.
    pub(crate) listening: Vec<SocketAddr>,
    /// Paths of Unix sockets.
    pub(crate) unix: Vec<PathBuf>,
    /// Address of the admin interface, as bound.
    pub(crate) admin: Option<SocketAddr>,
    /// Address of the admin tables, as bound.
    pub(crate) admin_cql: Option<String>,
    /// Address of locks over HTTP, as bound.
    pub(crate) locks_http: Option<SocketAddr>,
    /// Schemes of the two.
    pub(crate) schemes: Schemes,
    /// The proxy as the supervisor sees it.
    pub(crate) part: ProxyPart,
}

/// A proxy with bound addresses that is not started yet.
pub(crate) struct Bound {
    config: Config,
    sockets: Vec<TcpListener>,
    unix: Vec<UnixListener>,
    admin: Option<admin::Bound>,
    admin_cql: Option<admin_cql::Bound>,
    locks_http: Option<TcpListener>,
}

impl Bound {
    /// The first address that clients connect to.
    #[cfg(feature = "node")]
    pub(crate) fn listening(&self) -> Option<SocketAddr> {
        self.sockets.first()?.local_addr().ok()
    }
}

/// Binds the addresses before anything starts, so that a taken port leaves nothing half started.
pub(crate) fn bind(config: Config) -> Result<Bound, Failure> {
    let sockets = listen(&config)?;
    let unix = listen_on_paths(&config, &sockets)?;
    let admin = config.admin.clone().map(admin::bind).transpose()?;
    let locks_http = config
        .locks_http
        .as_ref()
        .map(|http| admin::listen("--locks-http", http.listen))
        .transpose()?;
    let admin_cql = admin_cql::bind(&config)?;
    sockets::refuse_others()?;
    Ok(Bound { config, sockets, unix, admin, admin_cql, locks_http })
}

/// Starts the proxy. The admin pages also show `others`. Without `reload`, a reload does nothing.
pub(crate) fn start(
    bound: Bound,
    others: Vec<Arc<dyn Part>>,
    reload: Option<Reload>,
    events: &Events,
) -> Result<Started, Failure> {
    let Bound { config, sockets, unix, admin: pages_at, admin_cql, locks_http: http_at } = bound;
    let tables_at = admin_cql.as_ref().and_then(|bound| bound.shown(&config));
    let paths = config.listen.unix.clone();
    let admin = pages_at.as_ref().and_then(|(own, _)| own.local_addr());
    let locks_http = http_at.as_ref().and_then(|own| own.local_addr().ok());
    let listening: Vec<SocketAddr> =
        sockets.iter().filter_map(|socket| socket.local_addr().ok()).collect();
    let state_file = open_state(&config)?;
    let tls_metrics = Arc::<TlsMetrics>::default();
    let listeners = open_listeners(&config, &tls_metrics)?;
    let security = open_admission(&config, &listeners, &tls_metrics);
    let outgoing = open_outgoing(&config, &tls_metrics)?;
    let identity_files = IdentityFiles::new(&config, Arc::clone(&tls_metrics));
    let (teller, notices) = events.teller();
    let (requests, request_receiver) = mpsc::channel(REQUESTS_CAPACITY);
    let config = Arc::new(config);
    let (config_sender, config_receiver) = watch::channel(Arc::clone(&config));
    let prepared = Arc::<PreparedStore>::default();
    let common = Common { config: &config, prepared: &prepared, outgoing: &outgoing };
    let cores = start_cores(common, usable_driver(config.io), &requests, &teller, state_file)?;

    let (view_sender, view) = ClusterView::new();
    let metrics = Arc::<ControlMetrics>::default();
    let sources = Sources {
        cores: cores.iter().map(|core| Arc::clone(&core.metrics)).collect(),
        control: Arc::clone(&metrics),
        cluster: view.clone(),
        prepared,
        tls: tls_metrics,
        traces: Arc::default(),
    };
    let mailboxes = || cores.iter().map(|core| mailbox_of(core.mailer.clone())).collect();
    let traces = export_traces(mailboxes(), &config_receiver, &sources);
    let pages = Admin::new(sources, config_receiver.clone(), listening.clone(), mailboxes());
    connect_admin(&pages, teller.clone(), requests);
    let http = http_at.zip(listening.first().copied().map(super::reachable));
    let http = http.map(|(listener, proxy)| {
        let proxy = (proxy, outgoing.fleet.clone());
        let listener = (listener, listeners.locks_http.clone());
        http::start(listener, proxy, config_receiver.clone(), http_ended(teller.clone()))
    });
    let (http, http_part) = http.transpose()?.unzip();
    let plane = ControlOptions {
        config: config_receiver,
        mailboxes: mailboxes(),
        requests: request_receiver,
        view: view_sender,
        metrics,
        tls: outgoing.nodes.clone(),
        seed: random_seed(),
    };
    let proxy = [Arc::clone(&pages) as Arc<dyn Part>];
    let all_parts = proxy.into_iter().chain(http_part).chain(others);
    let (pages_at, access) = guarded(pages_at, &listeners);
    let all_pages = Pages::with_access(env!("CARGO_PKG_VERSION"), all_parts.collect(), access);
    control::start(ControlThread {
        plane,
        admin: pages_at.map(|listener| (listener, Arc::clone(&all_pages))),
        admin_cql: admin_cql.map(|bound| (bound, all_pages)),
        traces,
        view,
        require_ring_ms: config.require_ring_ms,
        teller,
    })?;

    let acceptor = start_accepting(&config, (sockets, unix), &cores, security)?;
    let metrics = cores.first().map(|core| Arc::clone(&core.metrics)).unwrap_or_default();
    let mailers = cores.into_iter().map(|core| core.mailer).collect();
    let (config, schemes) = (config_sender, Schemes::of(&listeners));
    let running =
        Running { config, pages, acceptor, listeners, outgoing, mailers, metrics, http, notices };
    let part = ProxyPart::new(running, identity_files, reload);
    Ok(Started { listening, unix: paths, admin, admin_cql: tables_at, locks_http, schemes, part })
}

/// Makes the tasks that export traces.
fn export_traces(
    mailboxes: Vec<Mailbox>,
    config: &watch::Receiver<Arc<Config>>,
    sources: &Sources,
) -> (TraceExport, Exporter) {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let (config, report) = (config.clone(), Arc::clone(&sources.traces));
    TraceExport::new(mailboxes, config, report, host, random_seed())
}

/// Reports the end of the thread of locks over HTTP to the part.
fn http_ended(teller: Teller<Notice>) -> impl FnOnce(Option<String>) + Send + 'static {
    move |failure| teller.tell(Notice::HttpEnded { failure })
}

/// Connects the admin pages with the part, which changes the configuration, and with the control
/// plane. The plane ends with the cores, so nothing else may keep `requests`.
fn connect_admin(pages: &Admin, teller: Teller<Notice>, requests: mpsc::Sender<ControlRequest>) {
    pages.take_control(requests.downgrade());
    drop(requests);
    pages.take_config_changes(move |change| teller.tell(Notice::ConfigChange(change)));
}

/// The admin pages' listener, and their access with TLS and tokens.
fn guarded(
    pages_at: Option<admin::Bound>,
    listeners: &Listeners,
) -> (Option<admin::Sockets>, Access) {
    let (listener, access) = pages_at.unzip();
    let tls = listeners.admin.clone().map(|tls| tls as Arc<dyn Sessions>);
    (listener, Access { tls, tokens: listeners.tokens(), ..access.unwrap_or_default() })
}

/// Opens the file with the state of earlier processes of this proxy.
fn open_state(config: &Config) -> Result<Option<StateFile>, Failure> {
    config.fleet_state.as_deref().map(StateFile::open).transpose().map_err(unusable)
}

/// Makes the rules for new connections, and warns of balancers that are not narrowed down.
fn open_admission(
    config: &Config,
    listeners: &Listeners,
    metrics: &Arc<TlsMetrics>,
) -> Option<Arc<dyn Security>> {
    admission::check(config).iter().for_each(|warning| warn!("{warning}"));
    let security = AdmissionRules::of_config(config, listeners, Arc::clone(metrics));
    allow_files(config, security.is_some());
    security
}

/// Raises the limit on open files as far as clients and their handshakes need it.
fn allow_files(config: &Config, has_security: bool) {
    let handshakes_max = if has_security { tls::handshake_limits(config).sockets_max() } else { 0 };
    open_files::allow_clients(config.clients_max, handshakes_max);
}

/// Reads the certificates and tokens of listeners, and warns of certificates that expire soon and
/// of pages that others can read.
fn open_listeners(config: &Config, metrics: &Arc<TlsMetrics>) -> Result<Listeners, Failure> {
    tls::check(config).map_err(unusable)?.iter().for_each(|warning| warn!("{warning}"));
    tls::open_listeners(config, metrics).map_err(unusable)
}

/// Reads the files of TLS to servers, and warns of certificates that expire soon.
fn open_outgoing(config: &Config, metrics: &Arc<TlsMetrics>) -> Result<Outgoing, Failure> {
    let warnings = tls::check_outgoing(config).map_err(unusable)?;
    warnings.iter().for_each(|warning| warn!("{warning}"));
    TraceExport::check(config).map_err(unusable)?;
    Outgoing::open(config, metrics).map_err(unusable)
}

/// The failure of a file that the configuration names.
fn unusable(error: impl Display) -> Failure {
    Failure { exit: Exit::Configuration, message: error.to_string() }
}

/// Starts the thread that accepts clients, and the threads of their handshakes.
fn start_accepting(
    config: &Config,
    (listeners, unix): (Vec<TcpListener>, Vec<UnixListener>),
    cores: &[StartedCore],
    security: Option<Arc<dyn Security>>,
) -> Result<Acceptor, Failure> {
    let slot = |core: &StartedCore| CoreSlot {
        mailer: core.mailer.clone(),
        load: Arc::clone(&core.metrics.load),
    };
    let security = security.map(|security| (security, tls::handshake_limits(config)));
    let listeners = listeners.into_iter().map(Listener::Tcp);
    let listeners = listeners.chain(unix.into_iter().map(Listener::Unix)).collect();
    Acceptor::start_with(listeners, cores.iter().map(slot).collect(), security)
        .map_err(|error| Failure::internal("the accepting thread could not be started", error))
}

fn listen(config: &Config) -> Result<Vec<TcpListener>, Failure> {
    let bind = |address: &SocketAddr| {
        let listener = match sockets::take(*address) {
            Some(socket) => socket,
            None => shunt_reactor::listen(*address)?,
        };
        if config.handover == Handover::Auto {
            limit_receive(&listener, OWNER_RECEIVE_BYTES)?;
        }
        Ok(listener)
    };
    let bind = |address| {
        bind(address).map_err(|error: io::Error| admin::cannot_listen("--listen", *address, &error))
    };
    config.listen.tcp.iter().map(bind).collect()
}

/// Opens the Unix sockets. Their clients see the first address of `listeners` as the proxy's.
fn listen_on_paths(
    config: &Config,
    listeners: &[TcpListener],
) -> Result<Vec<UnixListener>, Failure> {
    let first = listeners.first().and_then(|listener| listener.local_addr().ok());
    let Some(first) = first.filter(|_| !config.listen.unix.is_empty()) else {
        return Ok(Vec::new());
    };
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let (user, group) = config
        .unix_owner
        .numbers(&read("/etc/passwd"), &read("/etc/group"))
        .map_err(|why| unusable(format!("unix_owner: {why}")))?;
    let access = UnixAccess { mode: config.unix_mode.0, user, group };
    let open = |path: &PathBuf| {
        listen_unix(path, access, super::reachable(first)).map_err(|error| Failure {
            exit: Exit::CannotListen,
            message: format!("cannot listen on unix:{} (--listen): {error}", path.display()),
        })
    };
    config.listen.unix.iter().map(open).collect()
}

/// Returns io_uring if it was chosen and the kernel offers it.
fn usable_driver(choice: IoChoice) -> IoChoice {
    match choice {
        IoChoice::Uring => match probe_uring() {
            Ok(()) => IoChoice::Uring,
            Err(why) => {
                info!(%why, "io_uring is not available here, epoll is used");
                IoChoice::Epoll
            }
        },
        other => other,
    }
}

/// A core with a running thread.
struct StartedCore {
    mailer: Mailer<CoreMail>,
    metrics: Arc<CoreMetrics>,
}

/// Parts that all cores share.
#[derive(Clone, Copy)]
struct Common<'a> {
    config: &'a Arc<Config>,
    prepared: &'a Arc<PreparedStore>,
    outgoing: &'a Outgoing,
}

fn start_cores(
    common: Common<'_>,
    driver: IoChoice,
    requests: &mpsc::Sender<ControlRequest>,
    teller: &Teller<Notice>,
    mut state_file: Option<StateFile>,
) -> Result<Vec<StartedCore>, Failure> {
    let Common { config, prepared, outgoing } = common;
    let log_limits = Arc::<LogLimits>::default();
    let hands_over = HandsOver::new(config)?;
    let make = |_| {
        mailbox(MAILBOX_CAPACITY)
            .map_err(|error| Failure::internal("a core's mailbox could not be created", error))
    };
    let boxes = (0..config.cores).map(make).collect::<Result<Vec<_>, _>>()?;
    let mailers: Vec<Mailer<CoreMail>> = boxes.iter().map(|(mailer, _)| mailer.clone()).collect();
    let start = |(index, (mailer, inbox))| {
        let metrics = Arc::new(CoreMetrics::new(index));
        let _ = metrics.driver.set(driver.driver_name().to_owned());
        let handover = hands_over.as_ref().and_then(|hands_over| hands_over.of_core(config, index));
        let mover = if handover.is_some() { Mover::Kernel } else { Mover::None };
        let core = Core::new(CoreOptions {
            index,
            config: Arc::clone(config),
            metrics: Arc::clone(&metrics),
            prepared: Arc::clone(prepared),
            log_limits: Arc::clone(&log_limits),
            control: requests.clone(),
            cores: mailers.iter().cloned().map(mailbox_of).collect(),
            state_file: state_file.take(), // the first core's
            handover,
            outgoing: outgoing.clone(),
            seed: random_seed(),
        });
        let load = Some(Arc::clone(&metrics.load));
        let connections_max =
            (config.clients_max + open_files::CLOSING_MAX as usize).div_ceil(config.cores);
        // Clients that have not logged in have such a share of the memory, too.
        let closing_bytes_max = (config.clients_bytes_max / 16 / config.cores).max(1 << 20);
        let restored_intake =
            Intake { bytes: hands_over.as_ref().map(|_| OWNER_RECEIVE_BYTES), ..Intake::default() };
        let options = LoopOptions {
            load,
            connections_max,
            closing_bytes_max,
            mover,
            restored_intake,
            ..LoopOptions::default()
        };
        spawn_core(index, core, driver, options, inbox, teller.clone())
            .map_err(|error| Failure::internal("a core's thread could not be started", error))?;
        Ok(StartedCore { mailer, metrics })
    };
    boxes.into_iter().enumerate().map(start).collect()
}

/// Runs a core on a thread, and reports its end whatever the cause.
fn spawn_core(
    index: usize,
    core: Core,
    driver: IoChoice,
    options: LoopOptions,
    inbox: Inbox<CoreMail>,
    teller: Teller<Notice>,
) -> std::io::Result<()> {
    let serve = move || {
        // Dropped at the end of the thread: the core holds a sender of the control plane's
        // requests, and the control plane ends with the last sender.
        let mut core = core;
        run(driver, options, &mut core, inbox).map_err(|error| error.to_string())
    };
    threads::spawn(&format!("core-{index}"), serve, move |failure| {
        teller.tell(Notice::CoreEnded { index, failure })
    })
}

fn mailbox_of(mailer: Mailer<CoreMail>) -> Mailbox {
    Box::new(move |mail| mailer.post(mail))
}

/// A seed for jitter; the standard library's hash keys are random per process.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
