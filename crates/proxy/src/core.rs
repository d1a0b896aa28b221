//! One core: a single-threaded proxy. It owns its clients, its links and everything between them,
//! and shares none of these with other cores on the data path.
//!
//! The state is split among owners. A step of the data path is a function that takes only the
//! owners it needs, so that the compiler keeps it away from the others; cold steps take the whole
//! core. Events enter through [`crate::service`].

use std::sync::Arc;

use shunt_reactor::ConnId;
use tokio::sync::mpsc;

use crate::client::census::Census;
use crate::client::clients::Clients;
use crate::client::departed::DepartedGroups;
use crate::client::departure::Departure;
use crate::client::login_failures::LoginFailures;
use crate::client::refused_logins::RefusedLogins;
use crate::client::review::Review;
use crate::client::selection::Eviction;
use crate::config::Config;
use crate::connection_list::Collection;
use crate::context::{Context, slow_query_ns};
use crate::control::post::Mailbox;
use crate::control::state::ControlRequest;
use crate::digests::attribution;
use crate::digests::table::DigestTable;
use crate::fleet::clock::NodeClocks;
use crate::fleet::cores::Lanes;
use crate::fleet::forwarding::Peers;
use crate::fleet::membership::Membership;
use crate::fleet::membership::state_file::StateFile;
use crate::fleet::requests::Requests;
use crate::fleet::rights::Rights;
use crate::fleet::statements::Statements;
use crate::handover::{Handover, HandoverOptions};
use crate::ids::LinkKey;
use crate::link::links::Links;
use crate::locks::LockKeeper;
use crate::log_limits::LogLimits;
use crate::metrics::CoreMetrics;
use crate::prepared::PreparedStore;
use crate::retained::Retained;
use crate::retry::Retries;
use crate::router::Router;
use crate::slow_queries::records::SlowQueries;
use crate::tenants::Tenants;
use crate::tls::Outgoing;
use crate::traces::table::Traces;
use crate::transactions::TransactionKeeper;
use crate::window::WindowControl;

/// The parts that a core is made from.
pub struct CoreOptions {
    /// Number of this core, from 0.
    pub index: usize,
    /// Settings; replaced by [`crate::control::state::CoreMail::Reload`].
    pub config: Arc<Config>,
    /// Counters of this core.
    pub metrics: Arc<CoreMetrics>,
    /// Prepared statements of all cores.
    pub prepared: Arc<PreparedStore>,
    /// Limits on log lines that clients cause, shared by all cores.
    pub log_limits: Arc<LogLimits>,
    /// Requests to the control plane.
    pub control: mpsc::Sender<ControlRequest>,
    /// Mailboxes of all cores, by number; empty if there is only one core.
    pub cores: Vec<Mailbox>,
    /// Knowledge of former processes of this proxy, for the first core, which runs the membership.
    pub state_file: Option<StateFile>,
    /// Options of hand-over; `None` if it is off.
    pub handover: Option<HandoverOptions>,
    /// TLS to servers.
    pub outgoing: Outgoing,
    /// Seed of the core's random choices (jitter of reconnects).
    pub seed: u64,
}

/// One event loop's share of the proxy.
pub struct Core {
    pub(crate) context: Context,
    pub(crate) clients: Clients,
    pub(crate) router: Router,
    pub(crate) links: Links,
    pub(crate) retained: Retained,
    pub(crate) retries: Retries,
    pub(crate) fleet: FleetOwners,
    pub(crate) connections: Connections,
    /// Hand-over of large answers; `None` if it is off.
    pub(crate) handover: Option<Box<Handover>>,
    pub(crate) window: WindowControl,
    pub(crate) scratch: Scratch,
    pub(crate) reports: Reports,
}

/// State for the questions and orders of the admin pages.
#[derive(Default)]
pub(crate) struct Reports {
    /// The count of clients in progress, if any.
    pub(crate) census: Option<Census>,
    /// Clients that have left.
    pub(crate) departed: DepartedGroups,
    /// The closing of clients in progress, if any.
    pub(crate) eviction: Option<Eviction>,
    /// The review of clients in progress, if any.
    pub(crate) review: Option<Review>,
    /// The list of clients, links and pools in progress, if any.
    pub(crate) connection_list: Option<Collection>,
    /// The departure of clients in progress, if the proxy drains.
    pub(crate) departure: Option<Departure>,
    pub(crate) slow_queries: SlowQueries,
    pub(crate) digests: DigestTable,
    pub(crate) traces: Traces,
    pub(crate) login_failures: LoginFailures,
    pub(crate) refused_logins: RefusedLogins,
}

/// Owners of the state that this core shares with other proxies of a fleet and with the other
/// cores.
pub(crate) struct FleetOwners {
    /// Statements that the proxy itself sends to nodes.
    pub(crate) statements: Statements,
    /// Requests of clients on locks and transactions.
    pub(crate) requests: Requests,
    /// Rights of clients' roles.
    pub(crate) rights: Rights,
    /// Locks of this core.
    pub(crate) locks: LockKeeper,
    /// Membership of this proxy; core 0 runs it.
    pub(crate) membership: Membership,
    /// Channels to the other cores.
    pub(crate) lanes: Lanes,
    /// Connections to the other proxies.
    pub(crate) peers: Peers,
    /// The nodes' clocks, as this core knows them.
    pub(crate) clocks: NodeClocks,
    /// Transactions of this core.
    pub(crate) transactions: TransactionKeeper,
}

impl Core {
    /// Makes a core that knows no ring yet; it takes clients' queries once the control plane has
    /// sent it one.
    pub fn new(options: CoreOptions) -> Self {
        let serves_locks = options.config.fleet.is_some();
        let mut router = Router::new(options.prepared, options.index, serves_locks);
        router.hot_keys.set_sample(options.config.hot_keys_sample, 0);
        let mut reports = Reports::default();
        attribution::switch(&mut reports.digests, &mut router, &options.config);
        reports.traces.switch(options.config.otlp_endpoint.is_some());
        let cores = options.config.cores;
        router.rules.set(&options.config.rule, options.index, cores);
        let tenants = Tenants::new(options.index, cores, &options.config.tenant);
        let mut links = Links::new(options.outgoing.nodes.is_some());
        links.lateness.set(&options.config);
        Self {
            window: WindowControl::new(options.config.window_us),
            context: Context {
                index: options.index,
                slow_query_ns: slow_query_ns(&options.config),
                config: options.config,
                metrics: options.metrics,
                log_limits: options.log_limits,
                control: options.control,
                outgoing: options.outgoing,
                draining: false,
                seed: options.seed | 1,
                ticks: 0,
            },
            clients: Clients::new(tenants),
            router,
            links,
            retained: Retained::default(),
            retries: Retries::default(),
            fleet: FleetOwners {
                statements: Statements::default(),
                requests: Requests::default(),
                rights: Rights::default(),
                locks: LockKeeper::default(),
                membership: Membership::new(options.state_file),
                lanes: Lanes::new(options.cores),
                peers: Peers::default(),
                clocks: NodeClocks::default(),
                transactions: TransactionKeeper::default(),
            },
            connections: Connections::default(),
            handover: options.handover.map(|options| Box::new(Handover::new(options))),
            scratch: Scratch::default(),
            reports,
        }
    }
}

impl Core {
    /// True if no client's connection is with an agent or on its way, and no answer waits for one.
    pub fn has_handed_back(&self) -> bool {
        self.handover.as_deref().is_none_or(Handover::is_at_rest)
    }
}

/// Owner of a [`ConnId`].
#[derive(Clone, Copy)]
pub(crate) enum Peer {
    Nobody,
    /// The client in this slot.
    Client(u32),
    /// Another proxy of the fleet, by the key of its connection.
    Proxy(u32),
    /// A node, by this link.
    Link(LinkKey),
    /// The agent with this number.
    Agent(u32),
}

/// The peers of the core's connections.
#[derive(Default)]
pub(crate) struct Connections {
    /// Peer and generation, by the connection's index.
    peers: Vec<(u32, Peer)>,
}

impl Connections {
    #[inline]
    pub(crate) fn peer(&self, conn: ConnId) -> Peer {
        match self.peers.get(conn.index as usize) {
            Some((generation, peer)) if *generation == conn.generation => *peer,
            _ => Peer::Nobody,
        }
    }

    pub(crate) fn set(&mut self, conn: ConnId, peer: Peer) {
        let index = conn.index as usize;
        if self.peers.len() <= index {
            self.peers.resize(index + 1, (0, Peer::Nobody));
        }
        self.peers[index] = (conn.generation, peer);
    }

    /// Forgets the owner of a connection; later events from it are ignored.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        self.set(conn, Peer::Nobody);
    }
}

/// Buffers that keep their capacity between uses; a function takes one out while it uses it.
#[derive(Default)]
pub(crate) struct Scratch {
    /// A decompressed body.
    pub(crate) body: Vec<u8>,
    /// A decompressed segment.
    pub(crate) segment: Vec<u8>,
    /// A message that the proxy composes itself.
    pub(crate) message: Vec<u8>,
}
