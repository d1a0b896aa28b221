//! TLS to servers: sessions for connections to nodes, to agents and to the other proxies of the
//! fleet, and the certificates behind them.
//!
//! ```text
//! cores, control plane -- a session for each connection --> OutgoingTls <- reload - main thread
//! ```
//! The handshakes of links run in the cores' loops: a core opens few links, and all its clients
//! share them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use shunt_reactor::{ConnId, Io, Session, SessionInfo};
use shunt_tls::{Client, ClientOptions, OptionNames, TlsError, Verify};
use shunt_tls_upkeep::{HandshakeResult, Prepared, Reloader, Servers, TlsMetrics, expires_soon};

use crate::config::{Config, Switch};

/// The servers of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Nodes,
    Fleet,
    Agents,
}

impl Side {
    /// The options; `None` if TLS to these servers is off.
    fn options(self, config: &Config) -> Option<ClientOptions> {
        match self {
            Self::Nodes => (config.node_tls == Switch::On).then(|| ClientOptions {
                names: OptionNames::NODES,
                ca: config.node_tls_ca.clone(),
                certificate: config.node_tls_certificate.clone(),
                key: config.node_tls_key.clone(),
                verify: config.node_tls_verify,
                name: config.node_tls_name.clone(),
            }),
            Self::Fleet => (config.fleet_tls == Switch::On).then(|| ClientOptions {
                names: OptionNames::FLEET,
                ca: config.fleet_tls_ca.clone(),
                certificate: config.tls_certificate.clone(),
                key: config.tls_key.clone(),
                verify: Verify::Full,
                name: config.fleet_tls_name.clone(),
            }),
            Self::Agents => (config.handover_tls == Switch::On).then(|| ClientOptions {
                names: OptionNames::AGENTS,
                ca: config.handover_tls_ca.clone(),
                certificate: config.handover_tls_certificate.clone(),
                key: config.handover_tls_key.clone(),
                verify: Verify::Full,
                name: config.handover_tls_name.clone(),
            }),
        }
    }
}

/// Number of changes of what TLS to some servers proves and verifies. Connections from before a
/// change are renewed.
#[derive(Clone, Debug, Default)]
pub struct Generation(Arc<AtomicU64>);

impl Generation {
    /// The present number.
    pub fn current(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Notes a change. New sessions must have the new content by now.
    pub fn advance(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// TLS to servers of one kind.
#[derive(Debug)]
pub struct OutgoingTls {
    side: Side,
    reloader: Reloader<Client>,
    generation: Generation,
}

impl OutgoingTls {
    fn open(
        side: Side,
        config: &Config,
        metrics: &Arc<TlsMetrics>,
        generation: Generation,
    ) -> Result<Option<Arc<Self>>, TlsError> {
        let Some(options) = side.options(config) else { return Ok(None) };
        let reloader = Reloader::open(options, Arc::clone(metrics))?;
        Ok(Some(Arc::new(Self { side, reloader, generation })))
    }

    /// The present maker of sessions.
    pub fn client(&self) -> Arc<Client> {
        self.reloader.current()
    }

    /// A session with the server at this address, at the start of its handshake.
    pub(crate) fn session(&self, server: IpAddr) -> Box<dyn Session> {
        self.client().session(&server.to_canonical().to_string())
    }

    /// Counts a handshake with a server that has answered since: a server of TLS 1.3 verifies a
    /// certificate after the client has ended its part.
    pub(crate) fn count_session(&self, session: &SessionInfo) {
        let result = if session.resumed { HandshakeResult::Resumed } else { HandshakeResult::Ok };
        self.count_handshake(result);
    }

    /// Counts the end of a handshake with a server.
    pub(crate) fn count_handshake(&self, result: HandshakeResult) {
        let servers = match self.side {
            Side::Nodes => Servers::Nodes,
            Side::Fleet => Servers::Fleet,
            Side::Agents => Servers::Agents,
        };
        self.reloader.metrics().handshakes_with(servers).count(result);
    }

    /// Uses the files and rules of a new configuration for new connections. Those that exist are
    /// from a former generation if the new files have other content.
    fn apply(&self, prepared: Prepared<Client>) {
        let former = self.client();
        self.reloader.apply(prepared);
        if !former.is_alike(&self.client()) {
            self.generation.advance();
        }
    }

    /// Reads the files again because an operator asks for it.
    fn reload(&self) -> Result<(), TlsError> {
        if self.reloader.reload()? {
            self.generation.advance();
        }
        Ok(())
    }

    /// Reads the files again if that is due. Called about once a second.
    fn tick(&self, now: Instant) {
        if self.reloader.tick(now) {
            self.generation.advance();
        }
    }
}

/// TLS to all servers.
#[derive(Clone, Default)]
pub struct Outgoing {
    /// To nodes; `None`: clear text.
    pub nodes: Option<Arc<OutgoingTls>>,
    /// To the other proxies of the fleet; `None`: clear text.
    pub fleet: Option<Arc<OutgoingTls>>,
    /// To the agents; `None`: clear text.
    pub agents: Option<Arc<OutgoingTls>>,
    /// Generation of links to nodes.
    pub links: Generation,
}

impl Outgoing {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be used; the text names it, its option and the remedy.
    pub fn open(config: &Config, metrics: &Arc<TlsMetrics>) -> Result<Self, TlsError> {
        let (links, others) = (Generation::default(), Generation::default());
        Ok(Self {
            nodes: OutgoingTls::open(Side::Nodes, config, metrics, links.clone())?,
            fleet: OutgoingTls::open(Side::Fleet, config, metrics, others.clone())?,
            agents: OutgoingTls::open(Side::Agents, config, metrics, others)?,
            links,
        })
    }

    /// Opens a connection to an agent, with TLS if that is on.
    pub(crate) fn connect_to_agent(&self, io: &mut Io, agent: SocketAddr, limit_ns: u64) -> ConnId {
        match &self.agents {
            Some(tls) => io.connect_with(agent, limit_ns, tls.session(agent.ip())),
            None => io.connect(agent, limit_ns),
        }
    }

    /// TLS with the other end of a link: the agent that it goes through, or its node.
    pub(crate) fn of_link(&self, is_through_agent: bool) -> Option<&OutgoingTls> {
        if is_through_agent { self.agents.as_deref() } else { self.nodes.as_deref() }
    }

    fn sides(&self) -> impl Iterator<Item = &Arc<OutgoingTls>> {
        self.nodes.iter().chain(&self.fleet).chain(&self.agents)
    }

    /// Reads the files that a new configuration names, if it names others or has other rules.
    ///
    /// # Errors
    /// A file cannot be used. The former ones stay in use.
    pub fn prepare(&self, config: &Config) -> Result<PreparedOutgoing, TlsError> {
        let sides = self.sides().map(|tls| tls.reloader.prepare(tls.side.options(config)));
        sides.collect::<Result<_, _>>().map(PreparedOutgoing)
    }

    /// Uses the files and rules of a new configuration for new connections.
    pub fn apply(&self, prepared: PreparedOutgoing) {
        self.sides().zip(prepared.0).for_each(|(tls, prepared)| tls.apply(prepared));
    }

    /// Reads the files again because an operator asks for it. Returns the faults of those that
    /// cannot be used, which the log has too.
    pub fn reload(&self) -> Vec<TlsError> {
        self.sides().filter_map(|tls| tls.reload().err()).collect()
    }

    /// Reads the files again if that is due. Called about once a second.
    pub fn tick(&self, now: Instant) {
        self.sides().for_each(|tls| tls.tick(now));
    }
}

/// The result of [`Outgoing::prepare`].
pub struct PreparedOutgoing(Vec<Prepared<Client>>);

/// Checks the files of TLS to servers. Returns warnings.
///
/// # Errors
/// A file cannot be used.
pub fn check_outgoing(config: &Config) -> Result<Vec<String>, TlsError> {
    let mut warnings = Vec::new();
    let idle = config.idle_node_tls();
    if !idle.is_empty() {
        let idle = idle.join(", ");
        warnings.push(format!("node_tls is off, so these have no effect: {idle}"));
    }
    let idle = config.idle_handover_tls();
    if !idle.is_empty() {
        let idle = idle.join(", ");
        warnings.push(format!("handover_tls is off, so these have no effect: {idle}"));
    }
    let idle = config.idle_fleet_tls();
    if !idle.is_empty() {
        let idle = idle.join(", ");
        warnings.push(format!("fleet_tls is off, so these have no effect: {idle}"));
    }
    for side in [Side::Nodes, Side::Fleet, Side::Agents] {
        let Some(options) = side.options(config) else { continue };
        let client = Client::open(options)?;
        // The certificate of this proxy itself is checked with the options of clients, as its key.
        let is_own = |option: &str| side == Side::Fleet && option == "tls_certificate";
        let files = client.files();
        let files = files.iter().filter(|file| !is_own(file.option));
        warnings.extend(files.filter_map(expires_soon));
        if side != Side::Fleet {
            warnings.extend(client.warnings());
        }
    }
    warnings.extend(config.identity.certificate_files().iter().filter_map(expires_soon));
    for warning in config.identity.certificate_warnings() {
        // Those about the CAs are the same for all.
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    Ok(warnings)
}
