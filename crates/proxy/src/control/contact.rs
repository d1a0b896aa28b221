//! Contact points: the addresses of their names, and those that are addresses of this proxy.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use tokio::time::timeout;

use super::datacentre::Resolved;
use super::error::ControlError;
use crate::config::{CQL_PORT, Config, reaches, split_host_port};

/// Longest time to look up a name: resolvers give up earlier, unless a part of them hangs.
const LOOK_UP_MAX: Duration = Duration::from_secs(30);

/// A contact point whose look-up never ends.
#[cfg(test)]
pub(super) const HANGING: &str = "hangs.invalid";

/// Looks up the addresses of each contact point that is not `known` already, all at the same time:
/// a second answer takes time, and may differ from the one that the proxy has connected by.
pub(super) async fn resolve_all(config: &Config, mut known: Vec<Resolved>) -> Vec<Resolved> {
    let default_port = config.node_port.unwrap_or(CQL_PORT);
    let started = config.contact_points.iter().map(|name| {
        let place = known.iter().position(|(one, found)| one == name && found.is_ok());
        place.map(|place| known.swap_remove(place)).ok_or_else(|| {
            let name = name.clone();
            tokio::spawn(async move {
                let found = resolve(&name, default_port).await;
                (name, found)
            })
        })
    });
    let mut all = Vec::new();
    for lookup in started.collect::<Vec<_>>() {
        match lookup {
            Ok(known) => all.push(known),
            // A task of this function ends early only with the process.
            Err(task) => all.extend(task.await),
        }
    }
    all
}

/// Looks up the addresses of one contact point.
pub(super) async fn resolve(
    contact_point: &str,
    default_port: u16,
) -> Result<Vec<SocketAddr>, String> {
    #[cfg(test)]
    if contact_point == HANGING {
        return std::future::pending().await;
    }
    let (host, port) = split_host_port(contact_point)?;
    let lookup = tokio::net::lookup_host((host, port.unwrap_or(default_port)));
    let found = timeout(LOOK_UP_MAX, lookup).await.map_err(|_| {
        format!("the name was not looked up within {} seconds", LOOK_UP_MAX.as_secs())
    })?;
    found.map(Iterator::collect).map_err(|error| format!("the name cannot be looked up: {error}"))
}

/// Checks that no contact point is this proxy: it would wait for itself, or take itself for a node.
///
/// # Errors
/// A contact point is this proxy; the text names it.
pub(super) fn refuse_own(config: &Config, resolved: &[Resolved]) -> Result<(), ControlError> {
    let all = resolved
        .iter()
        .flat_map(|(name, addresses)| addresses.iter().flatten().map(move |one| (name, *one)));
    match all.into_iter().find(|(_, address)| is_own(config, *address)) {
        Some((name, address)) => Err(ControlError::Unfit(refusal(name, address))),
        None => Ok(()),
    }
}

/// The error of a contact point that is this proxy.
pub(super) fn refusal(name: &str, address: SocketAddr) -> String {
    format!(
        "the contact point {name} is {address}, where this proxy listens itself (--listen): --contact-points has to name nodes of \
         the ring"
    )
}

/// True if a connection to this address certainly reaches this proxy. The check of the
/// configuration covers literal addresses; this one covers addresses behind names too, and all
/// addresses of this host if the proxy listens on all.
pub(super) fn is_own(config: &Config, address: SocketAddr) -> bool {
    config.listen.tcp.iter().any(|listen| {
        // The system's settings decide whether an IPv6 listener takes IPv4 connections.
        let is_any = listen.ip().is_unspecified() && listen.is_ipv4() == address.is_ipv4();
        let target =
            if is_any && is_of_this_host(address.ip()) { listen.ip() } else { address.ip() };
        listen.ip() == target && reaches(*listen, SocketAddr::new(target, address.port()))
    })
}

/// True if the address is this host's: the kernel then uses the same address as the source. The
/// check sends no packet.
fn is_of_this_host(ip: IpAddr) -> bool {
    let any: IpAddr = if ip.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((ip, 1))?;
        socket.local_addr()
    });
    ip.is_loopback() || ip.is_unspecified() || source.is_ok_and(|source| source.ip() == ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_contact_point_is_looked_up_once() {
        let address: SocketAddr = "192.0.2.7:9042".parse().expect("an address");
        let other: SocketAddr = "192.0.2.8:9042".parse().expect("an address");
        let names = ["no name", "192.0.2.8:9042", "192.0.2.9"].map(str::to_owned);
        let config = Config { contact_points: names.to_vec(), ..Config::default() };
        let known = vec![
            (names[2].clone(), Err("no answer".to_owned())),
            (names[0].clone(), Ok(vec![address])),
        ];
        let found: Vec<_> =
            resolve_all(&config, known).await.into_iter().map(|(_, found)| found).collect();
        let last = "192.0.2.9:9042".parse().expect("an address");
        assert_eq!(found, [Ok(vec![address]), Ok(vec![other]), Ok(vec![last])]);
    }

    #[test]
    fn an_address_is_the_proxys_own_where_it_listens() {
        let is_own = |listen: &str, address: &str| {
            let listen = vec![listen.parse::<SocketAddr>().expect("an address")];
            is_own(
                &Config { listen: listen.into(), ..Config::default() },
                address.parse().expect("an address"),
            )
        };
        for (listen, address, expected) in [
            ("10.0.0.1:9042", "10.0.0.1:9042", true),
            ("10.0.0.1:9042", "10.0.0.1:9043", false),
            ("10.0.0.1:9042", "10.0.0.2:9042", false),
            ("127.0.0.1:9042", "127.0.0.2:9042", false),
            ("0.0.0.0:9042", "127.0.0.2:9042", true),
            ("0.0.0.0:9042", "192.0.2.7:9042", false),
            ("0.0.0.0:9042", "127.0.0.1:9043", false),
            ("[::]:9042", "[::1]:9042", true),
            ("[::]:9042", "127.0.0.1:9042", false),
        ] {
            assert_eq!(is_own(listen, address), expected, "{listen} {address}");
        }
    }
}
