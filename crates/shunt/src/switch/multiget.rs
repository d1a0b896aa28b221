//! The part of `shunt switch` that is about multigets: the servers, and the discovery of their
//! hosts.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use shunt_multiget::shim::Prefix;
use shunt_steering::{
    Mac, Parts, Rate, Role, SERVERS_MAX, Shim, Sources, Split, Splitter, find_hosts,
    interface_index, load_splitter,
};

/// Time limit for the discovery of hosts.
const FIND: Duration = Duration::from_secs(3);

/// Default of the requests a second from each address.
const RATE_MAX: u32 = 200_000;

/// Options of `shunt switch load` for the multiget roles.
#[derive(Args, Debug)]
pub(super) struct Servers {
    /// Multiget roles: addresses of the servers' shims, in the order of the sidecars. Add =MAC, the
    /// hardware address of the shim's host or of the router towards it, to skip its discovery
    #[arg(long = "server", value_name = "ADDR:PORT", num_args = 1.., value_delimiter = ',', required_if_eq_any([("role", "multiget-client"), ("role", "multiget-gateway")]))]
    servers: Vec<Server>,
    /// Multiget roles: interface towards the servers [default: --interface]
    #[arg(long, value_name = "NAME")]
    servers_interface: Option<String>,
    /// multiget-gateway: networks whose multigets are split; the program drops those of others
    #[arg(long, value_name = "PREFIX", num_args = 1.., value_delimiter = ',', required_if_eq("role", "multiget-gateway"))]
    allow: Vec<Prefix>,
    /// multiget-gateway: most requests a second from each address, or /64 of IPv6; the program
    /// drops more. 0 sets no bound
    #[arg(long, value_name = "N", default_value_t = RATE_MAX)]
    rate_max: u32,
    /// Multiget roles: the keys that each server gets
    #[arg(long, value_enum, default_value = "trimmed")]
    parts: PartsName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PartsName {
    /// Its own keys
    Trimmed,
    /// All keys, as in the paper: less work for the program, more for the network
    Full,
}

#[derive(Clone, Copy, Debug)]
struct Server {
    address: SocketAddr,
    mac: Option<Mac>,
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, mac) =
            text.split_once('=').map_or((text, None), |(address, mac)| (address, Some(mac)));
        let address =
            address.parse().map_err(|_| "give ADDR:PORT, such as 10.0.0.7:9700".to_owned())?;
        let mac = mac.map(Mac::from_str).transpose().map_err(|error| error.to_string())?;
        Ok(Self { address, mac })
    }
}

impl Servers {
    /// Returns the given options that have no effect in this role.
    pub(super) fn idle(&self, role: Role) -> Vec<&'static str> {
        let splits = matches!(role, Role::MultigetClient | Role::MultigetGateway);
        let bounds = role == Role::MultigetGateway;
        let given = [
            ("server", splits || self.servers.is_empty()),
            ("servers-interface", splits || self.servers_interface.is_none()),
            ("parts", splits || self.parts == PartsName::Trimmed),
            ("allow", bounds || self.allow.is_empty()),
            ("rate-max", bounds || self.rate_max == RATE_MAX),
        ];
        given.into_iter().filter(|(_, is_used)| !is_used).map(|(flag, _)| flag).collect()
    }

    /// Attaches the program and gives it the servers.
    pub(super) fn load(
        &self,
        interface: &str,
        role: Role,
        vips: &[SocketAddr],
        pins: &std::path::Path,
    ) -> Result<(), String> {
        let shims = self.shims(vips)?;
        let parts = match self.parts {
            PartsName::Trimmed => Parts::Trimmed,
            PartsName::Full => Parts::Full,
        };
        let allow: Vec<(IpAddr, u8)> = self.allow.iter().map(Prefix::bits).collect();
        let rate =
            if role == Role::MultigetGateway { Rate::new(self.rate_max) } else { Rate::default() };
        let sources = Sources { allow: &allow, rate };
        load_splitter(interface, role, vips, &shims, parts, sources, pins)
            .map_err(|error| error.to_string())
    }

    fn shims(&self, vips: &[SocketAddr]) -> Result<Vec<Shim>, String> {
        if self.servers.len() > SERVERS_MAX {
            return Err(format!(
                "--server: {} are named, at most {SERVERS_MAX} are possible",
                self.servers.len()
            ));
        }
        for (at, server) in self.servers.iter().enumerate() {
            let address = server.address;
            if self.servers[..at].iter().any(|other| other.address == address) {
                return Err(format!(
                    "--server {address} is named twice: give each once, in the sidecars' order"
                ));
            }
            if vips.contains(&address) {
                return Err(format!(
                    "--vip {address} is also the address of a server: give a different one"
                ));
            }
            if vips.iter().any(|vip| vip.is_ipv4() != address.is_ipv4()) {
                return Err(format!(
                    "--server {address} and --vip differ in kind: give both as IPv4, or both as \
                    IPv6"
                ));
            }
        }
        let interface = match &self.servers_interface {
            None => 0,
            Some(name) => interface_index(name).map_err(|error| error.to_string())?,
        };
        let unknown = self.servers.iter().filter(|server| server.mac.is_none());
        let hosts: Vec<IpAddr> = unknown.map(|server| server.address.ip()).collect();
        if let Some(own) = hosts.iter().find(|host| UdpSocket::bind((**host, 0)).is_ok()) {
            return Err(format!(
                "{own} is this host's own address: what is split here does not reach it. With any hardware address (--server {own}:PORT=02:00:00:00:00:01) the others \
                 are sent their parts, and sidecars find out that they have to ask this one themselves"
            ));
        }
        let known = find_hosts(&hosts, FIND).map_err(|host| {
            format!(
                "{host} has not said within {} s where it is in this host's network: is it up? If it is behind a router, give that one's hardware address \
                 (`ip neigh` has it) by --server {host}:PORT=MAC",
                FIND.as_secs()
            )
        })?;
        let shim = |server: &Server| {
            let mac = server.mac.or_else(|| known.get(&server.address.ip()).copied())?;
            Some(Shim { address: server.address, mac, interface })
        };
        Ok(self.servers.iter().filter_map(shim).collect())
    }
}

/// Formats the status of a program that splits.
pub(super) fn status(splitter: &Splitter) -> String {
    let shims = splitter.shims();
    let mut text = format!("pinned at {}\n{} servers\n", splitter.pins().display(), shims.len());
    for (number, shim) in shims {
        let _ = writeln!(text, "  {number:<10} {} at {}", shim.address, shim.mac);
    }
    if let Some(requests) = splitter.rate().requests() {
        let _ = writeln!(
            text,
            "{requests} requests a second from each address at most, of IPv6 from each /64"
        );
    }
    for (count, name) in Split::ALL {
        let name = if count.is_reason() { format!("rejected {name}") } else { name.to_owned() };
        let _ = writeln!(text, "{name:18} {}", splitter.count(count));
    }
    text
}
