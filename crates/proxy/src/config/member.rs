//! The address that identifies a member of a fleet.
//!
//! Without a fleet `advertise` may be missing: each client then sees the address that it connected
//! to. Members of a fleet need an address from the configuration alone, because the other members
//! and their clients have not connected to this proxy.

use std::net::SocketAddr;

use super::{Config, Problem};

impl Config {
    /// The address at which drivers reach this proxy, for the other members to show to their
    /// drivers: `advertise`, or else the only address to listen on. If `advertise` leaves the port
    /// open, it is the port of the addresses to listen on.
    ///
    /// # Errors
    /// The configuration leaves the address open: `advertise` must give it.
    pub fn member_address(&self) -> Result<SocketAddr, Problem> {
        let address = match (self.advertise, &self.listen.tcp[..]) {
            (Some(address), _) if address.port() != 0 => address,
            (Some(address), listen) => SocketAddr::new(address.ip(), only_port(listen)?),
            (None, [address]) => *address,
            (None, []) => return Err(problem("there is no address to listen on")),
            (None, _) => return Err(problem("there are several addresses to listen on")),
        };
        if address.ip().to_canonical().is_unspecified() {
            return Err(problem(format!("{} stands for all addresses of this host", address.ip())));
        }
        if address.port() == 0 {
            return Err(problem("port 0 stands for any that is free"));
        }
        Ok(address)
    }
}

/// The port common to all these addresses.
fn only_port(listen: &[SocketAddr]) -> Result<u16, Problem> {
    match listen {
        [] => Err(problem("there is no address to listen on")),
        [first, rest @ ..] if rest.iter().all(|address| address.port() == first.port()) => {
            Ok(first.port())
        }
        _ => Err(problem("it has no port, and the addresses to listen on have several")),
    }
}

fn problem(why: impl std::fmt::Display) -> Problem {
    let message = format!(
        "{why}; in a fleet other proxies tell drivers this one's address, so give the one that drivers reach it at, with its port"
    );
    Problem { key: "advertise", message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(listen: &[&str], advertise: Option<&str>) -> Result<String, String> {
        let parse = |text: &str| text.parse::<SocketAddr>().expect("address");
        let listen = listen.iter().copied().map(parse).collect::<Vec<_>>().into();
        let config = Config { listen, advertise: advertise.map(parse), ..Config::default() };
        let address = config.member_address().map(|address| address.to_string());
        address.map_err(|problem| {
            assert_eq!(problem.key, "advertise");
            problem.message
        })
    }

    #[test]
    fn a_configuration_that_says_the_address_gives_it() {
        let cases: [(&[&str], Option<&str>, &str); 8] = [
            (&["10.0.0.1:9042"], None, "10.0.0.1:9042"),
            (&["127.0.0.1:9142"], None, "127.0.0.1:9142"),
            (&["[2001:db8::1]:9042"], None, "[2001:db8::1]:9042"),
            (&["0.0.0.0:9042"], Some("192.0.2.1:9143"), "192.0.2.1:9143"),
            (&["0.0.0.0:9042"], Some("192.0.2.1:0"), "192.0.2.1:9042"),
            (&["10.0.0.1:9042", "127.0.0.1:9042"], Some("192.0.2.1:0"), "192.0.2.1:9042"),
            (&["10.0.0.1:9042", "127.0.0.1:9142"], Some("192.0.2.1:9042"), "192.0.2.1:9042"),
            (&["10.0.0.1:0"], Some("192.0.2.1:9042"), "192.0.2.1:9042"),
        ];
        for (listen, advertise, expected) in cases {
            assert_eq!(
                member(listen, advertise).as_deref(),
                Ok(expected),
                "{listen:?} {advertise:?}"
            );
        }
    }

    #[test]
    fn an_incomplete_address_names_the_missing_part() {
        let cases: [(&[&str], Option<&str>, &str); 10] = [
            (&["0.0.0.0:9042"], None, "0.0.0.0 stands for all"),
            (&["[::]:9042"], None, ":: stands for all"),
            (&["[::ffff:0.0.0.0]:9042"], None, "stands for all"),
            (&["10.0.0.1:9042", "10.0.0.2:9042"], None, "several addresses"),
            (&["10.0.0.1:0"], None, "port 0"),
            (&["10.0.0.1:0"], Some("192.0.2.1:0"), "port 0"),
            (&["10.0.0.1:9042", "10.0.0.1:9043"], Some("192.0.2.1:0"), "have several"),
            (&["10.0.0.1:9042"], Some("0.0.0.0:9042"), "stands for all"),
            (&[], None, "no address"),
            (&[], Some("192.0.2.1:0"), "no address"),
        ];
        for (listen, advertise, expected) in cases {
            let why = member(listen, advertise).expect_err("open");
            assert!(
                why.contains(expected) && why.contains("give the one"),
                "{listen:?} {advertise:?}: {why}"
            );
        }
    }

    #[test]
    fn the_default_is_good_for_a_fleet_on_one_host() {
        assert_eq!(
            Config::default().member_address().map(|address| address.port()),
            Ok(super::super::CQL_PORT)
        );
    }
}
