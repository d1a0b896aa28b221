//! `shunt up`: nodes and a proxy, or a fleet of proxies, in one process, for a first look and for
//! development.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use shunt_node::layout;
use shunt_node::run::NodesOptions;
use shunt_proxy::config::{Config, Problem};

use crate::exit::{Exit, Failure};
use crate::open_files;
use crate::proxy::{self, Bound, Proxies, Started, reachable};
use crate::relay::RelayTls;
use crate::settings::{
    AdminAddress, Checked, Given, HttpAddress, Listen, LocksHttp, SettingsError,
};
use crate::supervise::{Events, Hangup, Part, Supervisor};

use super::options::{CommonOptions, CommonSettings, begin};
use super::part::{CLOSE_LIMIT, Manner, NodesPart, Telling};

/// Number of nodes if neither the command line nor the data sets one.
const NODES_DEFAULT: usize = 3;
/// Number of available loopback addresses: 127.0.0.1 to 127.0.0.254.
const NODES_MAX: u8 = 254;
/// Enough to watch a fleet's shards move. Each proxy uses a core, and the nodes need CPUs as well.
const PROXIES_MAX: u8 = 16;
/// Name of the proxies' fleet.
const FLEET: &str = "main";
/// Most clients of all proxies: few enough for the usual limit of open files.
const CLIENTS_MAX: usize = 10_000;

/// `shunt up`.
#[derive(Args, Clone, Debug)]
pub(crate) struct UpOptions {
    /// Number of nodes, each with a part of the data; fixed once there is data [default: 3, or the
    /// number that the data has]
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<Given<u8>>,
    /// Directory of the data, kept between runs; created if missing
    #[arg(long, value_name = "DIR", default_value = "shunt-data", help_heading = "Data")]
    pub(crate) data: PathBuf,
    /// Number of proxies, which form one fleet. Each has the next address of --listen, --admin and
    /// --locks-http: 127.0.0.1, 127.0.0.2, ...
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) proxies: Given<u8>,
    /// Address of the first proxy for clients
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9042", help_heading = "Addresses")]
    pub(crate) listen: Given<Listen>,
    /// Address of locks over HTTP, or `off`
    #[arg(long, value_name = "ADDR", default_value = "off", help_heading = "Addresses")]
    pub(crate) locks_http: Given<LocksHttp>,
    /// Port of the nodes, which listen on the address of --listen and the next ones: 127.0.0.1,
    /// 127.0.0.2, ... [default: the next port after --listen that is free of --admin and
    /// --locks-http]
    #[arg(long, value_name = "PORT", help_heading = "Addresses")]
    pub(crate) node_port: Option<Given<u16>>,
    /// Options shared with `shunt node`.
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

/// The settings of `shunt up`: its options, read and checked.
struct UpSettings {
    nodes: Option<u8>,
    proxies: u8,
    node_port: u16,
    locks_http: Option<HttpAddress>,
    common: CommonSettings,
}

impl UpOptions {
    /// Reads all of them.
    ///
    /// # Errors
    /// Every fault.
    fn check(&self) -> Result<UpSettings, SettingsError> {
        let mut checked = Checked::default();
        let nodes = self.nodes.as_ref().map(|given| checked.take("nodes", given, 1));
        let proxies = checked.take("proxies", &self.proxies, 1);
        let common = self.common.check(&self.listen, "warn", first_host, &mut checked);
        let locks_http = checked.take("locks-http", &self.locks_http, LocksHttp(None)).0;
        let first = first_host(common.listen);
        let admin = common.admin.as_ref().and_then(AdminAddress::tcp);
        let others = [admin, locks_http.as_ref().map(|http| http.listen)];
        let others = others
            .into_iter()
            .flatten()
            .filter(|one| one.ip().is_unspecified() || one.ip() == first);
        let beside =
            port_beside(common.listen.port(), &others.map(|one| one.port()).collect::<Vec<_>>());
        let settings = UpSettings {
            proxies: checked.within("proxies", proxies, 1..=PROXIES_MAX),
            nodes: nodes.map(|nodes| checked.within("nodes", nodes, 1..=NODES_MAX)),
            node_port: self
                .node_port
                .as_ref()
                .map_or(beside, |given| checked.take("node-port", given, 0)),
            locks_http,
            common,
        };
        checked.finish(settings)
    }
}

/// First host address of the nodes and the admin page: that of `--listen` if it is an IPv4
/// loopback address, so that each user of a machine needs only one separate address.
fn first_host(listen: SocketAddr) -> IpAddr {
    match listen.ip().to_canonical() {
        IpAddr::V4(ip) if ip.is_loopback() => ip.into(),
        // IPv6 has a single loopback address; all others are reachable from other machines.
        _ => Ipv4Addr::LOCALHOST.into(),
    }
}

/// Returns a port for the nodes: the next one after the proxy's that is not in `taken`.
fn port_beside(port: u16, taken: &[u16]) -> u16 {
    if port == 0 {
        return 0;
    }
    let (above, below) = ((port..=u16::MAX).skip(1), (1..port).rev());
    above.chain(below).find(|port| !taken.contains(port)).unwrap_or(port)
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

/// Starts the nodes, then the proxies; they end in the reverse order.
fn start(
    options: &UpOptions,
    settings: &UpSettings,
    events: &Events,
) -> Result<Vec<Box<dyn Part>>, Failure> {
    let telling = Telling::new(events);
    let listeners = listeners(settings)?;
    let mut parts = NodesOptions::new(options.data.clone(), addresses(&options.data, settings)?);
    parts.store = settings.common.store.clone();
    parts.ended = telling.loops();
    let nodes = super::start(parts, "--node-port")?;
    events.catch_signals()?;
    let fleet = found_fleet(nodes.addresses(), settings)?;
    open_files::allow_clients(CLIENTS_MAX, 0);
    let mut bound = Vec::new();
    for listeners in listeners {
        let contact_points = nodes.addresses().iter().map(ToString::to_string).collect();
        bound.push(bind(&listeners, contact_points, fleet.clone(), settings)?);
    }
    let mut started = Vec::new();
    for bound in bound {
        // Only the first proxy's pages show the nodes.
        let others = started.is_empty().then(|| nodes.admin() as Arc<dyn shunt_admin::Part>);
        // With several proxies in one log, each line names its proxy, at any level.
        let address = bound.listening().map(tracing::field::display);
        let _entered =
            (settings.proxies > 1).then(|| tracing::error_span!("proxy", address).entered());
        started.push(proxy::start(bound, others.into_iter().collect(), None, events)?);
    }
    announce(&options.data, &settings.common, nodes.addresses(), &started, fleet.is_some());
    let manner = Manner {
        drain_limit: CLOSE_LIMIT,
        late: "the nodes did not close in time; acknowledged writes are on disk",
        died: "a node has died, so the proxy ends",
    };
    let listen = settings.common.listen;
    let proxies =
        started.into_iter().map(|one| (one.listening.first().copied().unwrap_or(listen), one.part));
    Ok(vec![
        Box::new(Proxies::new(proxies)),
        Box::new(NodesPart::new(nodes, telling, manner, RelayTls::default())),
    ])
}

/// Binds the addresses of a proxy.
fn bind(
    listeners: &Listeners,
    contact_points: Vec<String>,
    fleet: Option<String>,
    settings: &UpSettings,
) -> Result<Bound, Failure> {
    let default = Config::default();
    let mut config = Config {
        fleet_replicas_min: if fleet.is_some() { 1 } else { default.fleet_replicas_min },
        fleet,
        listen: vec![listeners.clients].into(),
        admin: listeners.admin.clone(),
        locks_http: listeners.locks_http.clone(),
        contact_points,
        clients_max: CLIENTS_MAX / usize::from(settings.proxies),
        // The nodes need CPUs as well.
        cores: 1,
        ..default
    };
    settings.common.admin_tls.configure(&mut config);
    let problems = config.problems();
    if !problems.is_empty() {
        let line =
            |problem: &Problem| format!("--{}: {}", problem.key.replace('_', "-"), problem.message);
        let message = problems.iter().map(line).collect::<Vec<_>>().join("\nerror: ");
        return Err(Failure { exit: Exit::Configuration, message });
    }
    proxy::bind(config)
}

/// The addresses of a proxy.
struct Listeners {
    clients: SocketAddr,
    admin: Option<AdminAddress>,
    locks_http: Option<HttpAddress>,
}

/// Returns the addresses of each proxy: the given ones, and the next ones for each further proxy.
fn listeners(settings: &UpSettings) -> Result<Vec<Listeners>, Failure> {
    let CommonSettings { listen, ref admin, .. } = settings.common;
    let proxies = settings.proxies;
    let refuse = |message| Failure { exit: Exit::Configuration, message };
    if proxies > 1 && listen.port() == 0 {
        return Err(refuse(format!(
            "--listen {listen}: the proxies of a fleet need a port, all of them the same"
        )));
    }
    let of = |number: u8, flag: &str, first: SocketAddr| {
        next(first, number).ok_or_else(|| {
            let why = "each proxy has the next address of this machine, so the first one has to be like 127.0.0.1";
            refuse(format!("{flag} {first} with --proxies {proxies}: {why}"))
        })
    };
    let http_of = |number, flag: &str, first: &Option<HttpAddress>| {
        let Some(HttpAddress { listen, names }) = first else { return Ok::<_, Failure>(None) };
        Ok(Some(HttpAddress { listen: of(number, flag, *listen)?, names: names.clone() }))
    };
    if proxies > 1 && admin.as_ref().is_some_and(|admin| admin.unix.is_some()) {
        let why = "each proxy needs a path of its own: give --admin an address";
        return Err(refuse(format!("--admin with a Unix socket and --proxies {proxies}: {why}")));
    }
    let admin_of = |number| {
        let Some(AdminAddress { http, unix }) = admin else { return Ok::<_, Failure>(None) };
        let http = http_of(number, "--admin", http)?;
        Ok(Some(AdminAddress { http, unix: unix.clone() }))
    };
    let all = |number| {
        Ok(Listeners {
            clients: of(number, "--listen", listen)?,
            admin: admin_of(number)?,
            locks_http: http_of(number, "--locks-http", &settings.locks_http)?,
        })
    };
    (0..proxies).map(all).collect()
}

/// Returns the loopback address `number` places after `first`, which may be any address.
fn next(first: SocketAddr, number: u8) -> Option<SocketAddr> {
    match first.ip() {
        _ if number == 0 => Some(first),
        IpAddr::V4(ip) if ip.is_loopback() => {
            let ip = Ipv4Addr::from_bits(ip.to_bits().checked_add(number.into())?);
            // The last address is the broadcast address.
            let is_host = ip.is_loopback() && ip.octets() != [127, 255, 255, 255];
            is_host.then(|| SocketAddr::new(ip.into(), first.port()))
        }
        _ => None,
    }
}

/// Creates the proxies' fleet, so that locks exist. Without it, a single proxy does everything
/// else.
fn found_fleet(nodes: &[SocketAddr], settings: &UpSettings) -> Result<Option<String>, Failure> {
    let config = Config { listen: vec![settings.common.listen].into(), ..Config::default() };
    if let Err(problem) = config.member_address() {
        // The user asked for it, with a wildcard address or port 0. The announcement says so as
        // well.
        tracing::info!(
            "this proxy has no locks, and statements on the tables of shunt only write rows: {}",
            problem.message
        );
        return Ok(None);
    }
    let contacts: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    // Nodes in one process are no replicas of each other.
    match crate::fleet::make(&contacts, FLEET, 1) {
        Ok(()) => Ok(Some(FLEET.to_owned())),
        Err(failed) if settings.proxies > 1 => {
            Err(Failure::internal("the fleet could not be created", failed.message))
        }
        Err(failed) => {
            tracing::warn!("there are no locks: {}", failed.message);
            Ok(None)
        }
    }
}

/// Returns one loopback address per node, as if each were a separate machine.
fn addresses(data: &Path, settings: &UpSettings) -> Result<Vec<SocketAddr>, Failure> {
    let failed = |message| Failure { exit: Exit::Data, message };
    let nodes = match settings.nodes {
        Some(nodes) => usize::from(nodes),
        None => layout::nodes_of(data).map_err(failed)?.unwrap_or(NODES_DEFAULT),
    };
    let last = u8::try_from(nodes).ok().filter(|nodes| *nodes <= NODES_MAX);
    let last =
        last.ok_or_else(|| failed(format!("{} has the data of {nodes} nodes", data.display())))?;
    let listen = settings.common.listen;
    let first = SocketAddr::new(first_host(listen), settings.node_port);
    let found: Option<Vec<SocketAddr>> = (0..last).map(|number| next(first, number)).collect();
    found.ok_or_else(|| Failure {
        exit: Exit::Configuration,
        message: format!(
            "--listen {listen}: the nodes have that address and the next ones, but fewer than {nodes} of these exist; \
             give one like 127.0.0.1"
        ),
    })
}

/// Prints all addresses and the first commands to try. A closed standard output does not end the
/// process.
fn announce(
    data: &Path,
    given: &CommonSettings,
    nodes: &[SocketAddr],
    started: &[Started],
    has_locks: bool,
) {
    let listen = given.listen;
    let proxies: Vec<SocketAddr> = started
        .iter()
        .map(|one| reachable(one.listening.first().copied().unwrap_or(listen)))
        .collect();
    let proxy = proxies.first().copied().unwrap_or(listen);
    let what = if proxies.len() == 1 {
        "the proxy".to_owned()
    } else {
        format!("a fleet of {} proxies", proxies.len())
    };
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "Shunt is up: {} and {what} in one process.\n", count(nodes.len()));
    let _ = writeln!(out, "  clients connect to  {}", list(&proxies));
    let _ = writeln!(out, "  nodes               {}", list(nodes));
    let _ = writeln!(out, "  data                {}", shown(data));
    for (one, admin) in started.iter().filter_map(|one| Some((one, reachable(one.admin?)))) {
        let pages = format!("{}://{admin}", one.schemes.admin);
        let _ = writeln!(out, "  metrics, status     {pages}/metrics {pages}/status");
    }
    if let Some(path) = given.admin.as_ref().and_then(|admin| admin.unix.as_ref()) {
        let _ = writeln!(out, "  pages for commands  unix:{}", path.display());
    }
    if !has_locks {
        let _ = writeln!(
            out,
            "  locks               none, because --listen has no fixed address and port"
        );
    }
    for http in started.iter().filter_map(|one| one.locks_http) {
        let _ = writeln!(out, "  locks over HTTP     http://{}/v1/locks/NAME", reachable(http));
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
"
    );
    if let ([_, second, ..], Some(last), Some(node)) = (&proxies[..], proxies.last(), nodes.first())
    {
        let _ = writeln!(
            out,
            "A lock that is taken through one proxy, seen through another, and kept when one leaves:

  shunt lock --contact-points {proxy} demo -- sleep 60 &
  shunt locks --contact-points {second} demo
  shunt fleet drain --contact-points {node} {last}
"
        );
    }
    let _ = writeln!(out, "Ctrl-C stops it; the data stays.");
    let _ = out.flush();
}

fn list(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn count(nodes: usize) -> String {
    if nodes == 1 { "a node".to_owned() } else { format!("{nodes} nodes") }
}

fn shown(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: UpOptions,
    }

    /// Returns the addresses of the nodes and of the admin page.
    fn places(options: &[&str]) -> Result<(Vec<String>, Option<String>), String> {
        let line = Line::parse_from(["up", "--data", "/nowhere/at/all"].iter().chain(options));
        let settings = line.options.check().map_err(|error| error.to_string())?;
        let nodes = addresses(&line.options.data, &settings).map_err(|failure| failure.message)?;
        let admin = settings.common.admin.and_then(|admin| admin.tcp()).map(|tcp| tcp.to_string());
        Ok((nodes.iter().map(ToString::to_string).collect(), admin))
    }

    #[test]
    fn one_option_moves_all_that_listens() {
        for (options, nodes, admin) in [
            (&[][..], ["127.0.0.1:9043", "127.0.0.2:9043", "127.0.0.3:9043"], "127.0.0.1:9180"),
            (
                &["--listen", "127.0.5.254:9042"],
                ["127.0.5.254:9043", "127.0.5.255:9043", "127.0.6.0:9043"],
                "127.0.5.254:9180",
            ),
            (
                &["--listen", "127.0.0.1:9999"],
                ["127.0.0.1:10000", "127.0.0.2:10000", "127.0.0.3:10000"],
                "127.0.0.1:9180",
            ),
            (
                &["--listen", "127.0.0.1:9179"],
                ["127.0.0.1:9181", "127.0.0.2:9181", "127.0.0.3:9181"],
                "127.0.0.1:9180",
            ),
            (
                &[
                    "--listen",
                    "127.0.0.1:9041",
                    "--admin",
                    "0.0.0.0:9042",
                    "--locks-http",
                    "127.0.0.1:9043",
                ],
                ["127.0.0.1:9044", "127.0.0.2:9044", "127.0.0.3:9044"],
                "0.0.0.0:9042",
            ),
            (
                &["--listen", "127.0.0.1:65535"],
                ["127.0.0.1:65534", "127.0.0.2:65534", "127.0.0.3:65534"],
                "127.0.0.1:9180",
            ),
            (
                &["--listen", "[::1]:0"],
                ["127.0.0.1:0", "127.0.0.2:0", "127.0.0.3:0"],
                "127.0.0.1:9180",
            ),
            (
                &["--listen", "127.0.5.1:9042", "--node-port", "7", "--admin", "127.0.0.9:8"],
                ["127.0.5.1:7", "127.0.5.2:7", "127.0.5.3:7"],
                "127.0.0.9:8",
            ),
        ] {
            assert_eq!(
                places(options),
                Ok((nodes.map(str::to_owned).to_vec(), Some(admin.to_owned()))),
                "{options:?}"
            );
        }
        assert_eq!(places(&["--admin", "off"]).unwrap().1, None);
        let lonely = places(&["--admin-tls-key", "tls.key"]).unwrap_err();
        assert!(lonely.contains("--admin-tls-key: needs its certificate"), "{lonely}");
        let idle = places(&["--admin", "off", "--admin-token-file", "token"]).unwrap_err();
        assert!(idle.contains("--admin-token-file: has no effect without --admin"), "{idle}");
        let idle = places(&["--admin", "unix:/run/a", "--admin-token-file", "token"]).unwrap_err();
        assert!(idle.contains("-file: has no effect without an address in --admin"), "{idle}");
        let refused = places(&["--listen", "127.255.255.253:9042"]).unwrap_err();
        assert!(refused.contains("the nodes have that address and the next ones"), "{refused}");
    }
}
