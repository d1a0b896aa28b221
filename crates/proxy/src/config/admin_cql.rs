//! Checks of the address of the admin tables.

use std::net::SocketAddr;

use super::Config;
use super::address::{AdminAddress, Listen};
use super::unix::ListenAddress;
use super::validate::{Findings, reaches};

/// Key of the option.
const KEY: &str = "admin_cql";

impl Config {
    /// Checks that the address is free, and that a login guards it if other machines reach it.
    pub(super) fn check_admin_cql(&self, found: &mut Findings) {
        match &self.admin_cql {
            None => {}
            Some(ListenAddress::Unix(path)) if self.listen.unix.contains(path) => {
                let path = path.display();
                found.add(KEY, format!("unix:{path} is also for clients; give it another path"));
            }
            Some(ListenAddress::Unix(_)) => {}
            Some(ListenAddress::Tcp(Listen(own))) => self.check_admin_cql_address(*own, found),
        }
    }

    fn check_admin_cql_address(&self, own: SocketAddr, found: &mut Findings) {
        let meets = |other: SocketAddr| reaches(other, own) || reaches(own, other);
        let others = [
            ("admin", self.admin.as_ref().and_then(AdminAddress::tcp)),
            ("locks_http", self.locks_http.as_ref().map(|http| http.listen)),
        ];
        let others = others.into_iter().filter_map(|(key, listen)| Some((key, listen?)));
        let clients = self.listen.tcp.iter().map(|address| ("listen", *address));
        for (key, _) in clients.chain(others).filter(|(_, other)| meets(*other)) {
            let why = format!("{own} is also an address of {key}; give it a port of its own");
            found.add(KEY, why);
        }
        if !own.ip().to_canonical().is_loopback() && self.admin_token_file.is_none() {
            let why = format!(
                "other machines may reach {own}, and there is no login: set admin_token_file, or \
                listen on 127.0.0.1 or unix:/run/shunt/admin-cql.sock"
            );
            found.add(KEY, why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AdminCql, HttpAddress, Kind as _};

    #[test]
    fn only_this_host_reaches_tables_without_a_login() {
        let none = Config { contact_points: vec!["10.0.0.1".to_owned()], ..Config::default() };
        let problems = |text: &str, config: &Config| {
            let admin_cql = AdminCql::from_text(text).expect(text).into();
            let config = Config { admin_cql, ..config.clone() };
            config.problems().into_iter().map(|problem| problem.message).collect::<Vec<_>>()
        };
        for text in ["off", "127.0.0.1", "127.0.0.9:9181", "[::1]:9181", "unix:/run/admin.sock"] {
            assert_eq!(problems(text, &none), [""; 0], "{text}");
        }
        let guarded = Config { admin_token_file: Some("tokens".into()), ..none.clone() };
        for text in ["10.0.0.5", "0.0.0.0:9181", "[::]:9181"] {
            let found = problems(text, &none);
            assert!(found.len() == 1 && found[0].contains("set admin_token_file"), "{found:?}");
            assert_eq!(problems(text, &guarded), [""; 0], "{text}");
        }
        let taken: [SocketAddr; 3] = [9042, 9180, 9190].map(|port| ([127, 0, 0, 1], port).into());
        let locks_http = Some(HttpAddress::from(taken[2]));
        let fleet = Some("main".to_owned());
        let with_locks = Config { locks_http, fleet, ..none.clone() };
        for address in taken {
            let found = problems(&address.to_string(), &with_locks);
            assert!(found[0].contains("is also an address of"), "{address}: {found:?}");
        }
        let path: std::path::PathBuf = "/run/cql.sock".into();
        let mut with_path = none;
        with_path.listen.unix.push(path);
        let found = problems("unix:/run/cql.sock", &with_path);
        assert!(found[0].contains("another path"), "{found:?}");
    }

    #[test]
    fn an_address_has_a_port_of_its_own_unless_one_is_given() {
        let text = |text: &str| AdminCql::from_text(text);
        let of = |address: &str| {
            let address = address.parse().expect("an address");
            Ok(AdminCql(Some(ListenAddress::Tcp(Listen(address)))))
        };
        assert_eq!(text("127.0.0.1"), of("127.0.0.1:9181"));
        assert_eq!(text("127.0.0.1:7"), of("127.0.0.1:7"));
        assert_eq!(text("off"), Ok(AdminCql(None)));
        for wrong in ["unix:admin.sock", "", "127.0.0.1:0x1"] {
            assert!(text(wrong).is_err(), "{wrong}");
        }
    }
}
