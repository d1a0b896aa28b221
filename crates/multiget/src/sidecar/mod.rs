//! The client as a process: applications speak RESP to it. GET and MGET are multigets; commands
//! with keys on one server are passed on to that server over TCP; DEL, MSET and the like are split;
//! a few are answered here; all others are refused by name.
//!
//! ```text
//! application ── command ──> intake ── GET, MGET ───> client ── datagrams ──> shims
//!             <── answer ── apps    ├─ DEL, MSET ───> parts ──┐
//!                                   └─ others ─────> links ───┴── TCP ─────> servers
//! ```
//! Answers are in the order of their commands. Reads in datagrams and commands over TCP of one
//! application never overtake one another: a command of one kind waits until those of the other are
//! answered, so that reads see earlier writes.
//!
//! | file | content |
//! |---|---|
//! | `service.rs` | events of the loop, deadlines |
//! | `intake.rs` | commands: read, and sent on their way |
//! | `route.rs` | routes of commands |
//! | `local.rs` | commands answered here |
//! | `multigets.rs` | requests and results of the client |
//! | `parts.rs`, `split.rs` | commands that several servers carry out in parts |
//! | `cluster.rs` | placement of a cluster's slots, and redirected commands |
//! | `links.rs` | connections to servers |
//! | `encryption.rs` | TLS of these |
//! | `health.rs` | servers that have failed |
//! | `apps.rs` | applications, and their answers in order |
//! | `lines.rs` | waiting lines of applications |
//! | `turns.rs` | turns while the limits are reached |
//! | `weight.rs` | memory of all applications together |
//! | `log_limit.rs` | limit on log lines |

mod apps;
mod cluster;
mod encryption;
mod health;
mod intake;
mod lines;
mod links;
mod local;
mod log_limit;
mod multigets;
mod parts;
mod route;
mod service;
mod split;
mod turns;
mod weight;

use std::net::SocketAddr;
use std::sync::Arc;

use shunt_reactor::{ConnId, Io};
use slab::Slab;

use crate::client::{Client, ClientOptions};
use crate::limits;
use crate::login::Login;
use crate::metrics::SidecarMetrics;
use crate::mode::Mode;
use crate::place::{Places, SLOTS};
use crate::server_tls::ServerTls;
use apps::App;
use cluster::Cluster;
use health::HealthTable;
use lines::Turns;
use links::Link;
use log_limit::LogLimit;
use split::{KeyPlace, Split};

/// Key of the client's timer.
const DUE: u64 = 2;

/// Options of a sidecar.
#[derive(Clone, Debug)]
pub struct SidecarOptions {
    /// Servers with their shims, in the order that determines the placement of keys.
    pub servers: Vec<(SocketAddr, SocketAddr)>,
    /// Place at which requests are split.
    pub mode: Mode,
    /// Port of the shims if the servers are nodes of a Redis Cluster, which know the placement of
    /// keys and all other nodes.
    pub cluster: Option<u16>,
    /// Login for connections to servers.
    pub login: Login,
    /// TLS of connections to servers; `None`: clear text.
    pub server_tls: Option<Arc<dyn ServerTls>>,
    /// Time limit of a multiget, and of any other command's answer.
    pub timeout_ns: u64,
    /// Time without an answer after which keys are repeated.
    pub resend_ns: u64,
    /// Seed of the ids of requests.
    pub seed: u64,
}

/// Other end of a connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Peer {
    #[default]
    Nobody,
    App(usize),
    Link(usize),
}

/// A multiget of an application.
#[derive(Clone, Copy, Debug)]
struct Asker {
    app: ConnId,
    sequence: u64,
    at_ns: u64,
}

/// The sidecar of one event loop.
#[derive(Debug)]
pub struct Sidecar {
    options: SidecarOptions,
    client: Client,
    apps: Slab<App>,
    peers: Vec<Peer>,
    /// For each server one link per version of RESP, because answers have the form of their
    /// version.
    links: Vec<Link>,
    askers: Slab<Asker>,
    splits: Slab<Split>,
    /// Keys of a command while it is split.
    key_places: Vec<KeyPlace>,
    /// Applications that wait until others have less under way.
    turns: Turns,
    /// A link was full at the last check, or has become so since.
    has_full_link: bool,
    /// Bytes of all applications (the last weighing, plus later additions), and their limit.
    apps_bytes: usize,
    apps_bytes_max: usize,
    /// The limit on log lines about applications that are closed.
    closings: LogLimit,
    cluster: Option<Cluster>,
    health: HealthTable,
    metrics: Arc<SidecarMetrics>,
    command: shunt_wire::resp::Command,
    /// A command to a server while it is written.
    written: Vec<u8>,
    /// Time for which the timer is set.
    armed_ns: Option<u64>,
    is_draining: bool,
}

impl Sidecar {
    /// Creates a sidecar without applications.
    pub fn new(options: SidecarOptions) -> Self {
        let mut client = Client::new(ClientOptions {
            shims: options.servers.iter().map(|(_, shim)| *shim).collect(),
            mode: options.mode,
            deadline_ns: options.timeout_ns,
            resend_ns: options.resend_ns,
            seed: options.seed,
        });
        if options.cluster.is_some() {
            client.set_places(Places::Slots(vec![0; SLOTS]));
        }
        let metrics = Arc::<SidecarMetrics>::default();
        Self {
            client,
            apps: Slab::new(),
            peers: Vec::new(),
            links: links::all(&options.servers),
            askers: Slab::new(),
            splits: Slab::new(),
            key_places: Vec::new(),
            turns: Turns::default(),
            has_full_link: false,
            apps_bytes: 0,
            apps_bytes_max: limits::APPS_BYTES_MAX,
            closings: LogLimit::default(),
            cluster: options.cluster.map(Cluster::new),
            health: HealthTable::new(Arc::clone(&metrics)),
            metrics,
            command: shunt_wire::resp::Command::default(),
            written: Vec::new(),
            armed_ns: None,
            is_draining: false,
            options,
        }
    }

    /// The sidecar's metrics.
    pub fn metrics(&self) -> Arc<SidecarMetrics> {
        self.metrics.clone()
    }

    fn peer(&self, conn: ConnId) -> Peer {
        match self.peers.get(conn.index as usize).copied().unwrap_or_default() {
            Peer::App(app) if self.apps.get(app).is_some_and(|app| app.conn == conn) => {
                Peer::App(app)
            }
            Peer::Link(link) if self.links[link].conn == Some(conn) => Peer::Link(link),
            _ => Peer::Nobody,
        }
    }

    fn set_peer(&mut self, conn: ConnId, peer: Peer) {
        let index = conn.index as usize;
        if self.peers.len() <= index {
            self.peers.resize(index + 1, Peer::Nobody);
        }
        self.peers[index] = peer;
    }

    /// Application of a connection, if it still exists.
    fn app_of(&self, conn: ConnId) -> Option<usize> {
        match self.peer(conn) {
            Peer::App(app) => Some(app),
            _ => None,
        }
    }

    /// Sets the timer for the client's next work.
    fn arm(&mut self, io: &mut Io) {
        let Some(due_ns) = self.client.due_at_ns() else { return };
        if self.armed_ns.is_none_or(|armed_ns| due_ns < armed_ns) {
            self.armed_ns = Some(due_ns);
            io.set_timer(due_ns, DUE);
        }
    }
}
