//! `shunt up`: nodes and the proxy in one process, for a first look and for development.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use shunt_node::layout;
use shunt_node::run::NodesOptions;
use shunt_proxy::config::{Config, Problem};

use crate::exit::{Exit, Failure};
use crate::proxy::{self, Started, reachable};
use crate::settings::{Checked, Given, Listen, SettingsError};
use crate::supervise::{Events, Hangup, Part, Supervisor};

use super::options::{CommonOptions, CommonSettings, begin};
use super::part::{CLOSE_LIMIT, Manner, NodesPart, Telling};

/// Nodes when neither the command line nor the data says how many.
const NODES_DEFAULT: usize = 3;
/// As many loopback addresses of one kind as there are: 127.0.0.1 to 127.0.0.254.
const NODES_MAX: u8 = 254;
/// The fleet of the one proxy.
const FLEET: &str = "main";
/// Clients of the proxy: few enough for the usual limit of open files.
const CLIENTS_MAX: usize = 10_000;

/// `shunt up`.
#[derive(Args, Clone, Debug)]
pub(crate) struct UpOptions {
    /// Nodes, each with its part of the data; cannot change once there is data [default: 3, or as many as the data has]
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<Given<u8>>,
    /// Where the data is kept between runs; made if it does not exist
    #[arg(long, value_name = "DIR", default_value = "shunt-data", help_heading = "Data")]
    pub(crate) data: PathBuf,
    /// Address of the proxy for clients
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9042", help_heading = "Addresses")]
    pub(crate) listen: Given<Listen>,
    /// Port of the nodes, which listen on 127.0.0.1, 127.0.0.2, ...
    #[arg(long, value_name = "PORT", default_value = "9043", help_heading = "Addresses")]
    pub(crate) node_port: Given<u16>,
    /// What `shunt node` has as well.
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

/// The settings of `shunt up`: its options, read and checked.
struct UpSettings {
    nodes: Option<u8>,
    node_port: u16,
    common: CommonSettings,
}

impl UpOptions {
    /// Reads all of them.
    ///
    /// # Errors
    /// Everything that is wrong.
    fn check(&self) -> Result<UpSettings, SettingsError> {
        let mut checked = Checked::default();
        let nodes = self.nodes.as_ref().map(|given| checked.take("nodes", given, 1));
        let settings = UpSettings {
            nodes: nodes.map(|nodes| checked.within("nodes", nodes, 1..=NODES_MAX)),
            node_port: checked.take("node-port", &self.node_port, 0),
            common: self.common.check(&self.listen, "warn", &mut checked),
        };
        checked.finish(settings)
    }
}

/// Runs nodes and proxy until a signal or a fatal error ends them.
pub(crate) fn run(options: &UpOptions) -> Exit {
    let settings = match begin(options.check(), |settings| &settings.common) {
        Ok(settings) => settings,
        Err(exit) => return exit,
    };
    let events = Events::new();
    match start(options, &settings, &events) {
        Ok(parts) => Supervisor::new(parts, Hangup::End).run(&events),
        Err(failure) => failure.report(),
    }
}

/// Starts the nodes, then the proxy; they end the other way round.
fn start(options: &UpOptions, settings: &UpSettings, events: &Events) -> Result<Vec<Box<dyn Part>>, Failure> {
    let telling = Telling::new(events);
    let mut parts = NodesOptions::new(options.data.clone(), addresses(&options.data, settings)?);
    parts.store = settings.common.store.clone();
    parts.ended = telling.loops();
    let nodes = super::start(parts, "--node-port")?;
    events.catch_signals()?;
    let fleet = found_fleet(nodes.addresses(), settings.common.listen);
    let config = Config {
        fleet,
        fleet_replicas_min: 1,
        listen: vec![settings.common.listen],
        admin: settings.common.admin,
        contact_points: nodes.addresses().iter().map(ToString::to_string).collect(),
        clients_max: CLIENTS_MAX,
        // The nodes need the CPUs as well.
        cores: 1,
        ..Config::default()
    };
    let problems = config.problems();
    if !problems.is_empty() {
        let line = |problem: &Problem| format!("--{}: {}", problem.key.replace('_', "-"), problem.message);
        let message = problems.iter().map(line).collect::<Vec<_>>().join("\nerror: ");
        return Err(Failure { exit: Exit::Configuration, message });
    }
    let others = vec![nodes.admin() as Arc<dyn shunt_admin::Part>];
    let started = proxy::start(config, others, None, events)?;
    announce(&options.data, settings.common.listen, nodes.addresses(), &started);
    let manner = Manner {
        drain_limit: CLOSE_LIMIT,
        late: "the nodes did not close in time; what was acknowledged is on disk",
        died: "a node has died, so the proxy ends",
    };
    Ok(vec![Box::new(started.part), Box::new(NodesPart::new(nodes, telling, manner))])
}

/// Makes a fleet of the one proxy, so that there are locks. Without one all else works.
fn found_fleet(nodes: &[SocketAddr], listen: SocketAddr) -> Option<String> {
    let config = Config { listen: vec![listen], ..Config::default() };
    if let Err(problem) = config.member_address() {
        // Asked for so: any address, or any port.
        tracing::info!("there are no locks: {}", problem.message);
        return None;
    }
    let contacts: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    // The nodes of one process have no replicas of each other.
    match crate::fleet::make(&contacts, FLEET, 1) {
        Ok(()) => Some(FLEET.to_owned()),
        Err(failed) => {
            tracing::warn!("there are no locks: {}", failed.message);
            None
        }
    }
}

/// One loopback address per node, as if each were a machine.
fn addresses(data: &Path, settings: &UpSettings) -> Result<Vec<SocketAddr>, Failure> {
    let failed = |message| Failure { exit: Exit::Data, message };
    let nodes = match settings.nodes {
        Some(nodes) => usize::from(nodes),
        None => layout::nodes_of(data).map_err(failed)?.unwrap_or(NODES_DEFAULT),
    };
    let last = u8::try_from(nodes).ok().filter(|nodes| *nodes <= NODES_MAX);
    let last = last.ok_or_else(|| failed(format!("{} has the data of {nodes} nodes", data.display())))?;
    let address = |host| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, host)), settings.node_port);
    Ok((1..=last).map(address).collect())
}

/// Says where everything is and what to type first. A closed standard output is no reason to end.
fn announce(data: &Path, listen: SocketAddr, nodes: &[SocketAddr], started: &Started) {
    let proxy = reachable(started.listening.first().copied().unwrap_or(listen));
    let list: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "Shunt is up: {} and the proxy in one process.\n", count(nodes.len()));
    let _ = writeln!(out, "  clients connect to  {proxy}");
    let _ = writeln!(out, "  nodes               {}", list.join(" "));
    let _ = writeln!(out, "  data                {}", shown(data));
    if let Some(admin) = started.admin {
        let admin = reachable(admin);
        let _ = writeln!(out, "  metrics, status     http://{admin}/metrics http://{admin}/status");
    }
    let (ip, port) = (proxy.ip(), proxy.port());
    let _ = writeln!(
        out,
        "
A first session, with any CQL client (`pip install cqlsh` in a virtual environment gives one):

  cqlsh {ip} {port}
  CREATE KEYSPACE demo WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}};
  CREATE TABLE demo.users (id int PRIMARY KEY, name text);
  INSERT INTO demo.users (id, name) VALUES (1, 'Ada');
  SELECT * FROM demo.users;

Ctrl-C stops it; the data stays."
    );
    let _ = out.flush();
}

fn count(nodes: usize) -> String {
    if nodes == 1 { "a node".to_owned() } else { format!("{nodes} nodes") }
}

fn shown(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}
