//! Checks that a configuration makes sense before anything is started with it.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use super::{Config, FRAME_BYTES_LIMIT, STREAMS_MAX, Window};

/// Longest time that makes sense anywhere in the configuration: a day.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// One thing wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key it is about, as written in the file.
    pub key: &'static str,
    /// The fault, and what to do about it.
    pub message: String,
}

impl Config {
    /// Everything wrong with this configuration; empty when it can be started.
    pub fn problems(&self) -> Vec<Problem> {
        let mut found = Findings(Vec::new());
        self.check_addresses(&mut found);
        self.check_contact_points(&mut found);
        self.check_times(&mut found);
        self.check_sizes(&mut found);
        if let Some(login) = &self.credentials
            && (login.username.is_empty() || login.username.contains('\0') || login.password.reveal().contains('\0'))
        {
            found
                .add("username", "a role name must not be empty, and neither it nor the password may hold a zero byte");
        }
        if self.local_datacentre.as_deref() == Some("") {
            found.add("local_datacentre", "is empty; give a datacentre's name or leave the key out");
        }
        found.0
    }

    fn check_addresses(&self, found: &mut Findings) {
        if self.listen.is_empty() {
            found.add("listen", "no address to listen on; give at least one, such as 127.0.0.1:9042");
        }
        for (index, address) in self.listen.iter().enumerate() {
            if address.port() != 0 && self.listen[..index].contains(address) {
                found.add("listen", format!("{address} is given twice"));
            }
        }
        if let Some(admin) = self.admin
            && self.listen.iter().any(|listen| reaches(*listen, admin))
        {
            found.add("admin", format!("{admin} is also an address for clients; give it a port of its own"));
        }
        if let Some(advertise) = self.advertise
            && advertise.ip().is_unspecified()
        {
            found.add(
                "advertise",
                format!("drivers cannot connect to {advertise}; give the address they reach this proxy at"),
            );
        }
    }

    fn check_contact_points(&self, found: &mut Findings) {
        if self.contact_points.is_empty() {
            found.add("contact_points", "no node to ask for the ring; give the address of at least one");
        }
        for point in &self.contact_points {
            match split_host_port(point) {
                Err(why) => found.add("contact_points", format!("`{point}` {why}")),
                Ok((host, port)) => {
                    let port = port.or(self.node_port).unwrap_or(super::CQL_PORT);
                    if let Ok(ip) = host.parse::<IpAddr>()
                        && self.listen.iter().any(|listen| reaches(*listen, SocketAddr::new(ip, port)))
                    {
                        let message =
                            format!("{ip}:{port} is this proxy itself; give a node's address, or listen elsewhere");
                        found.add("contact_points", message);
                    }
                }
            }
        }
        if self.node_port == Some(0) {
            found.add("node_port", "0 is not a port nodes can listen on");
        }
    }

    fn check_times(&self, found: &mut Findings) {
        found.range("query_timeout_ms", self.query_timeout_ms, 1..=DAY_MS);
        found.range("connect_timeout_ms", self.connect_timeout_ms, 1..=DAY_MS);
        found.range("drain_timeout_ms", self.drain_timeout_ms, 0..=DAY_MS);
        found.range("handshake_timeout_ms", self.handshake_timeout_ms, 1..=DAY_MS);
        found.range("heartbeat_interval_ms", self.heartbeat_interval_ms, 100..=DAY_MS);
        found.range("auth_cache_ms", self.auth_cache_ms, 0..=DAY_MS);
        found.range("refresh_interval_ms", self.refresh_interval_ms, 100..=DAY_MS);
        found.range("require_ring_ms", self.require_ring_ms, 0..=DAY_MS);
        if let Window::Fixed { us } = self.window {
            found.range("window_us", us, 0..=100_000);
        }
        found.range("gather_us", self.gather_us, 0..=100_000);
    }

    fn check_sizes(&self, found: &mut Findings) {
        found.range("cores", self.cores as u64, 1..=1024);
        found.range("clients_max", self.clients_max as u64, 1..=10_000_000);
        found.range("links_per_node", self.links_per_node as u64, 1..=64);
        found.range("in_flight_max", self.in_flight_max.into(), 1..=STREAMS_MAX.into());
        found.range("frame_bytes_max", self.frame_bytes_max.into(), 4096..=FRAME_BYTES_LIMIT.into());
        found.range("client_backlog_bytes", self.client_backlog_bytes as u64, 65_536..=1 << 32);
        found.range("clients_bytes_max", self.clients_bytes_max as u64, 1 << 20..=1 << 40);
    }
}

/// Problems found so far.
struct Findings(Vec<Problem>);

impl Findings {
    fn add(&mut self, key: &'static str, message: impl Into<String>) {
        self.0.push(Problem { key, message: message.into() });
    }

    fn range(&mut self, key: &'static str, value: u64, allowed: RangeInclusive<u64>) {
        if !allowed.contains(&value) {
            self.add(key, format!("{value} is out of range; allowed are {} to {}", allowed.start(), allowed.end()));
        }
    }
}

/// True if a connection to `target` on this machine would arrive at a listener on `listen`.
fn reaches(listen: SocketAddr, target: SocketAddr) -> bool {
    let same_host = listen.ip() == target.ip()
        || (listen.ip().is_unspecified() && (target.ip().is_loopback() || target.ip().is_unspecified()));
    listen.port() != 0 && listen.port() == target.port() && same_host
}

/// Splits `host`, `host:port`, `[v6]`, `[v6]:port` or a bare IPv6 address.
///
/// # Errors
/// Says what is wrong with the text, to be put behind it.
pub fn split_host_port(text: &str) -> Result<(&str, Option<u16>), String> {
    let port_of = |digits: &str| match digits.parse::<u16>() {
        Ok(port) if port > 0 => Ok(Some(port)),
        _ => Err(format!("has `{digits}` where a port from 1 to 65535 belongs")),
    };
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or("lacks the closing `]`")?;
        if host.parse::<std::net::Ipv6Addr>().is_err() {
            return Err("has no IPv6 address between the brackets".to_owned());
        }
        match after.strip_prefix(':') {
            Some(digits) => (host, port_of(digits)?),
            None if after.is_empty() => (host, None),
            None => return Err("has something other than `:PORT` behind the bracket".to_owned()),
        }
    } else if text.parse::<std::net::Ipv6Addr>().is_ok() {
        (text, None)
    } else {
        match text.split_once(':') {
            Some((host, digits)) => (host, port_of(digits)?),
            None => (text, None),
        }
    };
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == '/' || c == '@') {
        return Err("is not a host name or address".to_owned());
    }
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::super::{Credentials, Secret};
    use super::*;

    fn valid() -> Config {
        Config { contact_points: vec!["10.0.0.1".to_owned()], ..Config::default() }
    }

    fn keys(config: &Config) -> Vec<&'static str> {
        config.problems().iter().map(|problem| problem.key).collect()
    }

    #[test]
    fn the_defaults_need_only_a_contact_point() {
        assert_eq!(valid().problems(), []);
        assert_eq!(keys(&Config::default()), ["contact_points"]);
    }

    #[test]
    fn a_proxy_must_not_be_its_own_node() {
        let mut config = valid();
        config.contact_points = vec!["127.0.0.1".to_owned()];
        assert_eq!(keys(&config), ["contact_points"]);
        config.contact_points = vec!["127.0.0.1:9043".to_owned()];
        assert_eq!(config.problems(), []);
        config.listen = vec!["0.0.0.0:9043".parse().expect("address")];
        assert_eq!(keys(&config), ["contact_points"]);
    }

    #[test]
    fn every_bound_is_checked() {
        let mut config = valid();
        config.cores = 0;
        config.in_flight_max = STREAMS_MAX + 1;
        config.frame_bytes_max = 10;
        config.query_timeout_ms = 0;
        config.window = Window::Fixed { us: 1_000_000 };
        config.admin = config.listen.first().copied();
        config.advertise = Some("0.0.0.0:9042".parse().expect("address"));
        config.credentials = Some(Credentials { username: String::new(), password: Secret::new("x") });
        config.node_port = Some(0);
        config.local_datacentre = Some(String::new());
        let mut found = keys(&config);
        found.sort_unstable();
        let mut expected = [
            "admin",
            "advertise",
            "node_port",
            "query_timeout_ms",
            "window_us",
            "cores",
            "in_flight_max",
            "frame_bytes_max",
            "username",
            "local_datacentre",
        ];
        expected.sort_unstable();
        assert_eq!(found, expected);
    }

    #[test]
    fn contact_points_are_split_into_host_and_port() {
        assert_eq!(split_host_port("cassandra.example"), Ok(("cassandra.example", None)));
        assert_eq!(split_host_port("10.0.0.1:9043"), Ok(("10.0.0.1", Some(9043))));
        assert_eq!(split_host_port("[::1]:9043"), Ok(("::1", Some(9043))));
        assert_eq!(split_host_port("fe80::1"), Ok(("fe80::1", None)));
        for wrong in ["", ":9042", "host:", "host:0", "host:70000", "[::1", "[x]:1", "[::1]9042", "a b", "http://x"] {
            assert!(split_host_port(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_valid_only_after_a_restart_is_seen() {
        let old = valid();
        let contact_points = old.listen.iter().map(ToString::to_string).collect();
        let new = Config { listen: vec!["127.0.0.1:9999".parse().expect("address")], contact_points, ..valid() };
        assert_eq!(keys(&new), Vec::<&str>::new());
        assert_eq!(keys(&old.reloaded(&new).config), ["contact_points"]);
    }

    #[test]
    fn reload_keeps_what_needs_a_restart() {
        let old = valid();
        let new = Config { cores: 7, clients_max: 5, ..valid() };
        let reloaded = old.reloaded(&new);
        assert_eq!((reloaded.config.cores, reloaded.config.clients_max), (old.cores, 5));
        assert_eq!((reloaded.changed, reloaded.waiting), (vec!["clients_max"], vec!["cores"]));
    }
}
