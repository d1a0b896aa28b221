//! Addresses in options: with or without a port, and host names as well as numbers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use super::kinds::Kind;
use super::unix::ListenAddress;

/// Port of the CQL native protocol.
pub const CQL_PORT: u16 = 9042;
/// Port of the admin interface.
pub const ADMIN_PORT: u16 = 9180;
/// Port of the admin tables.
pub(super) const ADMIN_CQL_PORT: u16 = 9181;
/// Port of locks over HTTP.
pub const LOCKS_HTTP_PORT: u16 = 9190;

/// An address to listen on: an IP address or local host name, with or without a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen(pub SocketAddr);

impl Default for Listen {
    fn default() -> Self {
        Self(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), CQL_PORT))
    }
}

/// The listeners for clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listeners {
    /// Addresses and ports: at least one, from which drivers learn where the proxy is.
    pub tcp: Vec<SocketAddr>,
    /// Paths of Unix sockets.
    pub unix: Vec<PathBuf>,
}

impl From<Vec<SocketAddr>> for Listeners {
    fn from(tcp: Vec<SocketAddr>) -> Self {
        Self { tcp, unix: Vec::new() }
    }
}

impl Kind for Listen {
    const EXPECTED: &'static str = "an address such as \"127.0.0.1:9042\"";

    fn from_text(text: &str) -> Result<Self, String> {
        address(text, CQL_PORT).map(Self)
    }
}

/// Addresses of an HTTP listener: of the admin pages, or of locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAddress {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Host names accepted in requests, besides addresses.
    pub names: Vec<String>,
}

impl HttpAddress {
    /// Names and addresses by which clients reach the listener. None if it has no name, and listens
    /// on every address of its host.
    pub fn hosts(&self) -> Vec<String> {
        let address = self.listen.ip().to_canonical();
        let address = (!address.is_unspecified()).then_some(address);
        let local = address.filter(IpAddr::is_loopback).map(|_| "localhost".to_owned());
        let address = address.map(|address| address.to_string());
        self.names.iter().cloned().chain(address).chain(local).collect()
    }
}

impl From<SocketAddr> for HttpAddress {
    fn from(listen: SocketAddr) -> Self {
        Self { listen, names: Vec::new() }
    }
}

/// Addresses of the admin pages: at least one of the two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminAddress {
    /// An address with a port.
    pub http: Option<HttpAddress>,
    /// The path of a Unix socket.
    pub unix: Option<PathBuf>,
}

impl AdminAddress {
    /// The address with a port.
    pub fn tcp(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(|http| http.listen)
    }
}

impl From<HttpAddress> for AdminAddress {
    fn from(http: HttpAddress) -> Self {
        Self { http: Some(http), unix: None }
    }
}

impl From<SocketAddr> for AdminAddress {
    fn from(listen: SocketAddr) -> Self {
        HttpAddress::from(listen).into()
    }
}

/// The admin addresses, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin(pub Option<AdminAddress>);

impl Kind for Admin {
    const EXPECTED: &'static str = "an address such as \"127.0.0.1:9180\", \
        \"10.0.9.1:9180,proxy.example\" or \"unix:/run/shunt/admin.sock\", or \"off\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim);
        let (paths, rest): (Vec<_>, Vec<_>) = parts.partition(|part| part.starts_with("unix:"));
        let unix = match paths[..] {
            [] => return Ok(Self(http_address(text, ADMIN_PORT)?.map(AdminAddress::from))),
            [path] => Some(unix_path(path)?),
            _ => return Err("has more than one Unix socket; give one".to_owned()),
        };
        let http = match rest[..] {
            [] => None,
            _ => http_address(&rest.join(","), ADMIN_PORT)?,
        };
        if http.is_none() && !rest.is_empty() {
            return Err("has both `off` and a Unix socket; give one of them".to_owned());
        }
        Ok(Self(Some(AdminAddress { http, unix })))
    }
}

fn unix_path(text: &str) -> Result<PathBuf, String> {
    match ListenAddress::from_text(text)? {
        ListenAddress::Unix(path) => Ok(path),
        ListenAddress::Tcp(_) => Err("is no Unix socket".to_owned()),
    }
}

/// The address of locks over HTTP with names, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocksHttp(pub Option<HttpAddress>);

impl Kind for LocksHttp {
    const EXPECTED: &'static str =
        "an address such as \"127.0.0.1:9190\" or \"10.0.9.1:9190,proxy.example\", or \"off\"";

    fn from_text(text: &str) -> Result<Self, String> {
        http_address(text, LOCKS_HTTP_PORT).map(Self)
    }
}

/// Reads the address of an HTTP listener, followed by host names, or `off`.
fn http_address(text: &str, default_port: u16) -> Result<Option<HttpAddress>, String> {
    if text == "off" {
        return Ok(None);
    }
    let mut parts = text.split(',').map(str::trim);
    let first = parts.next().unwrap_or_default();
    let listen = address(first, default_port)?;
    let mut names: Vec<String> = Vec::new();
    for name in parts {
        match split_host_port(name) {
            Ok((host, None)) => names.push(host.to_owned()),
            Ok(_) => {
                return Err(format!("has a port after the name {name}; give names without ports"));
            }
            Err(why) => return Err(format!("has `{name}` behind the address, which {why}")),
        }
    }
    // A user who listens by a name also asks by it.
    let host = split_host_port(first).ok().map(|(host, _)| host.to_owned());
    names.extend(host.filter(|host| host.parse::<IpAddr>().is_err()));
    Ok(Some(HttpAddress { listen, names }))
}

/// The address that drivers see; port 0 stands for the port they connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertise(pub SocketAddr);

impl Kind for Advertise {
    const EXPECTED: &'static str = "an address such as \"192.0.2.1:9042\"";

    fn from_text(text: &str) -> Result<Self, String> {
        address(text, 0).map(Self)
    }
}

/// Reads `IP`, `IP:PORT`, `HOST` or `HOST:PORT`; a name is looked up at once.
///
/// # Errors
/// The fault; the caller puts it behind the text.
pub(super) fn address(text: &str, default_port: u16) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, default_port));
    }
    let (host, port) = split_host_port(text)?;
    let mut found = (host, port.unwrap_or(default_port))
        .to_socket_addrs()
        .map_err(|error| format!("is no IP address, and looking up the name failed: {error}"))?;
    found.next().ok_or_else(|| "has no address".to_owned())
}

impl From<Listen> for SocketAddr {
    fn from(listen: Listen) -> Self {
        listen.0
    }
}

impl From<Admin> for Option<AdminAddress> {
    fn from(admin: Admin) -> Self {
        admin.0
    }
}

impl From<LocksHttp> for Option<HttpAddress> {
    fn from(http: LocksHttp) -> Self {
        http.0
    }
}

impl From<Advertise> for Option<SocketAddr> {
    fn from(advertise: Advertise) -> Self {
        Some(advertise.0)
    }
}

/// Splits `host`, `host:port`, `[v6]`, `[v6]:port` or a bare IPv6 address.
///
/// # Errors
/// The fault; the caller puts it behind the text.
pub fn split_host_port(text: &str) -> Result<(&str, Option<u16>), String> {
    let port_of = |digits: &str| match digits.parse::<u16>() {
        Ok(port) if port > 0 => Ok(Some(port)),
        _ => Err(format!("has `{digits}` instead of a port from 1 to 65535")),
    };
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or("lacks the closing `]`")?;
        if host.parse::<std::net::Ipv6Addr>().is_err() {
            return Err("has no IPv6 address between the brackets".to_owned());
        }
        match after.strip_prefix(':') {
            Some(digits) => (host, port_of(digits)?),
            None if after.is_empty() => (host, None),
            None => return Err("has something other than `:PORT` after the bracket".to_owned()),
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
    use super::super::option::AsText;
    use super::*;

    #[test]
    fn names_of_an_http_listener_follow_its_address() {
        let locks = LocksHttp::from_text("10.0.0.5,locks.example");
        let expected = HttpAddress {
            listen: "10.0.0.5:9190".parse().expect("an address"),
            names: vec!["locks.example".into()],
        };
        assert_eq!(locks, Ok(LocksHttp(Some(expected))));
        let names = |text: &str| {
            let admin = Admin::from_text(text)?.0;
            Ok::<_, String>(admin.and_then(|admin| admin.http).map(|http| http.names))
        };
        assert_eq!(names("off"), Ok(None));
        assert_eq!(
            names("127.0.0.1:9180,a.example, b"),
            Ok(Some(vec!["a.example".into(), "b".into()]))
        );
        assert_eq!(names("localhost:1"), Ok(Some(vec!["localhost".into()])));
        for wrong in ["127.0.0.1,", "127.0.0.1,a:1", "127.0.0.1,http://a", "127.0.0.1,a b", ",a"] {
            assert!(names(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn admin_pages_have_an_address_a_unix_socket_or_both() {
        let admin = |text: &str| Admin::from_text(text).map(|admin| admin.0);
        let path = || Some(PathBuf::from("/run/shunt/admin.sock"));
        let alone = AdminAddress { http: None, unix: path() };
        assert_eq!(admin("unix:/run/shunt/admin.sock"), Ok(Some(alone)));
        let http = HttpAddress {
            listen: "10.0.9.1:9180".parse().expect("an address"),
            names: vec!["proxy.example".into()],
        };
        let both = Some(AdminAddress { http: Some(http), unix: path() });
        for text in [
            "10.0.9.1,proxy.example,unix:/run/shunt/admin.sock",
            "unix:/run/shunt/admin.sock, 10.0.9.1:9180, proxy.example",
        ] {
            assert_eq!(admin(text), Ok(both.clone()), "{text}");
        }
        let written = both.as_ref().and_then(AsText::as_text).expect("a text");
        assert_eq!(admin(&written), Ok(both), "{written}");
        for wrong in [
            "unix:admin.sock",
            "unix:",
            "off,unix:/run/a",
            "unix:/run/a,off",
            "unix:/run/a,unix:/run/b",
            "unix:/run/a,",
        ] {
            assert!(admin(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn contact_points_are_split_into_host_and_port() {
        assert_eq!(split_host_port("cassandra.example"), Ok(("cassandra.example", None)));
        assert_eq!(split_host_port("10.0.0.1:9043"), Ok(("10.0.0.1", Some(9043))));
        assert_eq!(split_host_port("[::1]:9043"), Ok(("::1", Some(9043))));
        assert_eq!(split_host_port("fe80::1"), Ok(("fe80::1", None)));
        for wrong in [
            "",
            ":9042",
            "host:",
            "host:0",
            "host:70000",
            "[::1",
            "[x]:1",
            "[::1]9042",
            "a b",
            "http://x",
        ] {
            assert!(split_host_port(wrong).is_err(), "{wrong}");
        }
    }
}
