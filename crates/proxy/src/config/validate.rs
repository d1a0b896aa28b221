//! Checks of a configuration before a start: the ranges that the options declare, and the rules
//! between options.

use std::net::{IpAddr, SocketAddr};

use shunt_tls::{ClientAuth, Verify};

use super::address::{AdminAddress, CQL_PORT, split_host_port};
use super::option::Allowed;
use super::options::{Config, OPTIONS};
use super::unix::ListenAddress;
use super::values::{Handover, Multiget, Switch, Tls};

/// One thing wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key at fault, as written in the file.
    pub key: &'static str,
    /// The fault and its remedy.
    pub message: String,
}

impl Config {
    /// Checks the configuration and returns its faults; empty if the proxy can start with it.
    pub fn problems(&self) -> Vec<Problem> {
        let mut found = Findings(Vec::new());
        self.check_addresses(&mut found);
        self.check_admin_cql(&mut found);
        self.check_unix(&mut found);
        self.check_contact_points(&mut found);
        self.check_ranges(&mut found);
        self.check_fleet(&mut found);
        self.check_tls(&mut found);
        self.check_node_tls(&mut found);
        self.check_identities(&mut found);
        self.tenant.faults().into_iter().for_each(|why| found.add("tenant", why));
        self.rule.faults().into_iter().for_each(|why| found.add("rule", why));
        self.check_https(&mut found);
        self.check_idle(&mut found);
        if self.clients_bytes_max < self.client_backlog_bytes {
            let (all, one) = (self.clients_bytes_max, self.client_backlog_bytes);
            let why = format!(
                "one client may leave {one} bytes unread, but all together only {all}: raise it, \
                or lower client_backlog_bytes"
            );
            found.add("clients_bytes_max", why);
        }
        self.check_handover(&mut found);
        self.check_traces(&mut found);
        if let Some(login) = self.credentials()
            && (login.username.is_empty()
                || login.username.contains('\0')
                || login.password.reveal().contains('\0'))
        {
            found
                .add("username", "a role name must not be empty, and neither it nor the password may hold a zero byte");
        }
        if self.local_datacentre.as_deref() == Some("") {
            found.add("local_datacentre", "is empty; set it to a datacentre's name, or remove it");
        }
        found.0
    }

    fn check_addresses(&self, found: &mut Findings) {
        if self.listen.tcp.is_empty() {
            found.add(
                "listen",
                "needs a TCP address, such as 127.0.0.1:9042; a Unix socket alone is not enough",
            );
        }
        for (index, address) in self.listen.tcp.iter().enumerate() {
            if address.port() != 0 && self.listen.tcp[..index].contains(address) {
                found.add("listen", format!("{address} is given twice"));
            }
        }
        let admin = self.admin.as_ref().and_then(AdminAddress::tcp);
        if let Some(admin) = admin
            && self.listen.tcp.iter().any(|listen| reaches(*listen, admin))
        {
            found.add(
                "admin",
                format!("{admin} is also an address for clients; give it a port of its own"),
            );
        }
        if let Some(path) = self.admin.as_ref().and_then(|admin| admin.unix.as_ref()) {
            let tables = Some(ListenAddress::Unix(path.clone()));
            if self.listen.unix.contains(path) || self.admin_cql == tables {
                let why = "has another use in listen or admin_cql; choose another path";
                found.add("admin", format!("unix:{} {why}", path.display()));
            }
        }
        if let Some(http) = self.locks_http.as_ref().map(|http| http.listen) {
            if self.listen.tcp.iter().any(|listen| reaches(*listen, http)) {
                found.add(
                    "locks_http",
                    format!("{http} is also an address for clients; give it a port of its own"),
                );
            }
            if admin.is_some_and(|admin| reaches(admin, http) || reaches(http, admin)) {
                found.add(
                    "locks_http",
                    format!("{http} is also the address of admin; give it a port of its own"),
                );
            }
        }
        if let Some(advertise) = self.advertise
            && advertise.ip().is_unspecified()
        {
            found.add(
                "advertise",
                format!("drivers cannot connect to {advertise}; set the address at which they reach this proxy"),
            );
        }
    }

    fn check_unix(&self, found: &mut Findings) {
        let paths = &self.listen.unix;
        for (index, path) in paths.iter().enumerate() {
            if paths[..index].contains(path) {
                found.add("listen", format!("unix:{} is given twice", path.display()));
            }
        }
        let default = Config::default();
        for (key, differs) in [
            ("unix_mode", self.unix_mode != default.unix_mode),
            ("unix_owner", self.unix_owner != default.unix_owner),
        ] {
            if differs && paths.is_empty() {
                found.add(
                    key,
                    format!(
                        "has no effect, because listen has no Unix socket: add one, or remove {key}"
                    ),
                );
            }
        }
    }

    fn check_contact_points(&self, found: &mut Findings) {
        if self.contact_points.is_empty() {
            found.add("contact_points", "no contact point; give the address of at least one node");
        }
        for point in &self.contact_points {
            match split_host_port(point) {
                Err(why) => found.add("contact_points", format!("`{point}` {why}")),
                Ok((host, port)) => {
                    let port = port.or(self.node_port).unwrap_or(CQL_PORT);
                    if let Ok(ip) = host.parse::<IpAddr>()
                        && self
                            .listen
                            .tcp
                            .iter()
                            .any(|listen| reaches(*listen, SocketAddr::new(ip, port)))
                    {
                        let message = format!(
                            "{ip}:{port} is this proxy itself; give a node's address, or listen elsewhere"
                        );
                        found.add("contact_points", message);
                    }
                }
            }
        }
        if self.node_port == Some(0) {
            found.add("node_port", "nodes cannot listen on port 0");
        }
    }

    fn check_ranges(&self, found: &mut Findings) {
        for option in OPTIONS {
            let (Allowed::Numbers(from, to) | Allowed::WordOr(_, from, to)) = option.allowed else {
                continue;
            };
            if let Some(number) = (option.number)(self)
                && !(from..=to).contains(&number)
            {
                found.add(
                    option.key,
                    format!("{number} is out of range; allowed are {from} to {to}"),
                );
            }
        }
    }

    /// Reports options without effect: a user who says how something works believes that it is on.
    /// Defaults do not count, because a file may list them all.
    fn check_idle(&self, found: &mut Findings) {
        let default = Config::default();
        for option in OPTIONS {
            let without = match option.section {
                HANDOVER_SECTION if self.handover == Handover::Off => "handover = auto",
                _ if option.key == "multiget_keys_max" && self.multiget == Multiget::Off => {
                    "multiget = split"
                }
                _ => continue,
            };
            if (option.differs)(self, &default) {
                let key = option.key;
                found.add(
                    key,
                    format!("has no effect without {without}: set {without}, or remove {key}"),
                );
            }
        }
    }

    /// Checks that TLS has what it needs. With `tls = "off"` the other options may stand, so that
    /// an operator can switch TLS off by one word; [`Config::idle_tls`] tells of them.
    fn check_tls(&self, found: &mut Findings) {
        if self.tls == Tls::Off {
            if self.fleet_tls == Switch::On {
                found.add(
                    "fleet_tls",
                    "the other proxies of the fleet would connect with TLS, which is off here: \
                    set tls = optional or required",
                );
            }
            return;
        }
        if self.tls_certificate.is_none() {
            found.add(
                "tls_certificate",
                "TLS needs a certificate; set tls_certificate, or set tls = off",
            );
        }
        if self.tls_key.is_none() {
            found.add("tls_key", "TLS needs the certificate's private key; set tls_key");
        }
        match (self.tls_client_auth, &self.tls_client_ca) {
            (ClientAuth::None, Some(_)) => found.add(
                "tls_client_ca",
                "clients are not asked for a certificate: set tls_client_auth = required or \
                optional, or remove tls_client_ca",
            ),
            (ClientAuth::Optional | ClientAuth::Required, None) => found.add(
                "tls_client_auth",
                "clients' certificates need an authority that verifies them; set tls_client_ca",
            ),
            _ => {}
        }
        if self.tls == Tls::Required {
            self.check_clear_text(found);
        }
    }

    /// Reports parts of the proxy that need clients without TLS.
    fn check_clear_text(&self, found: &mut Findings) {
        if self.handover == Handover::Auto {
            found.add(
                "handover",
                "a connection with TLS is never handed over, and tls = required admits no other: \
                set tls = optional, or remove handover",
            );
        }
        if self.fleet.is_some() && self.fleet_tls == Switch::Off {
            found.add(
                "fleet_tls",
                "the proxies of a fleet connect to each other without TLS, which tls = required \
                refuses: set fleet_tls = on, or tls = optional",
            );
        }
    }

    /// Checks that TLS to nodes has what it needs. As with clients, the other options may stand
    /// while `node_tls` is off.
    fn check_node_tls(&self, found: &mut Findings) {
        if self.node_tls == Switch::Off {
            return;
        }
        match (&self.node_tls_certificate, &self.node_tls_key) {
            (Some(_), None) => {
                found.add("node_tls_certificate", "needs its private key; set node_tls_key")
            }
            (None, Some(_)) => {
                found.add("node_tls_key", "needs its certificate; set node_tls_certificate")
            }
            _ => {}
        }
        if self.node_tls_name.is_some() && self.node_tls_verify != Verify::Full {
            found.add(
                "node_tls_name",
                "no name is verified: set node_tls_verify = full, or remove node_tls_name",
            );
        }
        if self.node_tls_ca.is_some() && self.node_tls_verify == Verify::None {
            found.add(
                "node_tls_ca",
                "no authority is verified: set node_tls_verify = full, or remove node_tls_ca",
            );
        }
        if self.handover == Handover::Auto {
            found.add(
                "handover",
                "agents forward links to nodes in clear text, which node_tls = on excludes: set \
                node_tls = off, or remove handover",
            );
        }
    }

    /// Checks that hand-over has what it needs.
    fn check_handover(&self, found: &mut Findings) {
        if self.handover == Handover::Auto && self.handover_key_file.is_none() {
            found.add("handover", "hand-over needs the agents' key; set handover_key_file");
        }
        match (&self.handover_tls_certificate, &self.handover_tls_key) {
            _ if self.handover_tls == Switch::Off => {}
            (Some(_), None) => {
                found.add("handover_tls_certificate", "needs its private key; set handover_tls_key")
            }
            (None, Some(_)) => {
                found.add("handover_tls_key", "needs its certificate; set handover_tls_certificate")
            }
            _ => {}
        }
    }

    /// Options of TLS with clients that are given but have no effect, because it is off.
    pub fn idle_tls(&self) -> Vec<&'static str> {
        if self.tls != Tls::Off {
            return Vec::new();
        }
        [self.given_in(TLS_SECTION), self.given_in(IDENTITY_SECTION)].concat()
    }

    /// Options of TLS to nodes that are given but have no effect, because it is off.
    pub fn idle_node_tls(&self) -> Vec<&'static str> {
        if self.node_tls == Switch::Off { self.given_in(NODE_TLS_SECTION) } else { Vec::new() }
    }

    /// Options of TLS to agents that are given but have no effect, because it is off.
    pub fn idle_handover_tls(&self) -> Vec<&'static str> {
        let mut idle = self.given_in(HANDOVER_SECTION);
        idle.retain(|key| self.handover_tls == Switch::Off && key.starts_with("handover_tls_"));
        idle
    }

    /// Options of TLS to the other proxies of the fleet that are given but have no effect, because
    /// it is off.
    pub fn idle_fleet_tls(&self) -> Vec<&'static str> {
        let mut idle = self.given_in(FLEET_SECTION);
        idle.retain(|key| self.fleet_tls == Switch::Off && key.starts_with("fleet_tls_"));
        idle
    }

    /// Options of a section that differ from their defaults.
    fn given_in(&self, section: &str) -> Vec<&'static str> {
        let default = Config::default();
        let options = OPTIONS.iter().filter(|option| option.section == section);
        options.filter(|option| (option.differs)(self, &default)).map(|option| option.key).collect()
    }

    /// Reports lock options without a fleet: a user who says how to keep locks believes that there
    /// are some. Defaults do not count, because a file may list them all.
    fn check_fleet(&self, found: &mut Findings) {
        if self.fleet.is_some() {
            return;
        }
        let default = Config::default();
        for option in OPTIONS.iter().filter(|option| option.section == FLEET_SECTION) {
            if (option.differs)(self, &default) {
                let key = option.key;
                found.add(
                    key,
                    format!(
                        "only a proxy of a fleet has locks and transactions: set fleet to the \
                        fleet's name, or remove {key}"
                    ),
                );
            }
        }
    }
}

/// Section of the hand-over options, which `handover` itself belongs to.
const HANDOVER_SECTION: &str = "Hand-over";
/// Section of the options of TLS, which `tls` itself belongs to.
const TLS_SECTION: &str = "TLS";
/// Section of the identities of clients with TLS.
const IDENTITY_SECTION: &str = "Identities";
/// Section of the options of TLS to nodes, which `node_tls` itself belongs to.
const NODE_TLS_SECTION: &str = "TLS to nodes";
/// Section of the options of fleets and locks, which `fleet` itself belongs to.
const FLEET_SECTION: &str = "Locks and fleet";

/// Faults found so far.
pub(super) struct Findings(Vec<Problem>);

impl Findings {
    pub(super) fn add(&mut self, key: &'static str, message: impl Into<String>) {
        self.0.push(Problem { key, message: message.into() });
    }
}

/// True if a connection to `target` on this machine would arrive at a listener on `listen`.
pub(crate) fn reaches(listen: SocketAddr, target: SocketAddr) -> bool {
    let same_host = listen.ip() == target.ip()
        || (listen.ip().is_unspecified()
            && (target.ip().is_loopback() || target.ip().is_unspecified()));
    listen.port() != 0 && listen.port() == target.port() && same_host
}

#[cfg(test)]
mod tests;
