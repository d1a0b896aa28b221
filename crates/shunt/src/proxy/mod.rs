//! `shunt proxy`: binds, wires the parts together, starts the threads, and hands over to the
//! supervisor.
//!
//! ```text
//! accept thread -> core threads (event loops) <- mail - control thread (ring, admin)
//!                        |  requests, metrics  ------------^        |
//!                        +---- notices -> supervisor (main thread) <+
//! ```
//! With `locks_http`, a further thread runs as a client of the proxy.

mod admin_cql;
mod control;
mod http;
mod part;
#[cfg(feature = "node")]
mod group;
mod start;

#[cfg(feature = "node")]
pub(crate) use group::Proxies;
use part::Reload;
#[cfg(feature = "node")]
pub(crate) use start::{Bound, Started};
pub(crate) use start::{bind, start};

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use shunt_proxy::config::AdminAddress;
use tracing::info;

use crate::exit::Exit;
use crate::settings::Settings;
use crate::supervise::{Events, Hangup, Supervisor};
use crate::systemd::sockets;
use crate::{admin, logging, print};

/// Runs the proxy until a signal or a fatal error ends it.
pub(crate) fn run(settings: Settings) -> Exit {
    let (config, sources) = match settings.load_with_sources() {
        Ok(config) => config,
        Err(problems) => {
            eprint!("{problems}");
            return Exit::Configuration;
        }
    };
    if let Err(failure) = sockets::adopt() {
        eprintln!("error: {}", failure.message);
        return failure.exit;
    }
    let filter = match logging::start(&config.log, config.log_format) {
        Ok(filter) => filter,
        Err(why) => {
            eprintln!("logging could not be started: {why}");
            return Exit::Internal;
        }
    };
    let events = Events::new();
    let load = Box::new(move || settings.load_with_sources());
    let reload = Reload { load, filter, sources };
    let admin_given = config.admin.clone();
    let bound = events.catch_signals().and_then(|()| bind(config));
    match bound.and_then(|bound| start(bound, Vec::new(), Some(reload), &events)) {
        Ok(started) => {
            announce(
                &started.listening,
                &started.unix,
                started.admin,
                started.locks_http,
                started.schemes,
            );
            admin::announce_unix(admin_given.as_ref());
            if let Some(address) = &started.admin_cql {
                print(&format!("admin tables for cqlsh on {address}\n"));
            }
            let admin = shown(started.admin, admin_given.as_ref());
            let listening = &started.listening;
            info!(?listening, unix = ?started.unix, %admin, version = env!("CARGO_PKG_VERSION"), "started");
            Supervisor::new(vec![Box::new(started.part)], Hangup::Reload).run(&events)
        }
        Err(failed) => failed.report(),
    }
}

/// The schemes of the addresses of pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schemes {
    pub(crate) admin: &'static str,
    pub(crate) locks_http: &'static str,
}

impl Schemes {
    /// The schemes of a process whose listeners have this TLS.
    pub(crate) fn of(listeners: &shunt_tls_upkeep::Listeners) -> Self {
        Self {
            admin: admin::scheme(listeners.admin.is_some()),
            locks_http: admin::scheme(listeners.locks_http.is_some()),
        }
    }
}

/// Prints the bound addresses and how to connect. A closed standard output does not end the
/// process.
pub(crate) fn announce(
    listening: &[SocketAddr],
    unix: &[PathBuf],
    admin: Option<SocketAddr>,
    locks_http: Option<SocketAddr>,
    schemes: Schemes,
) {
    let mut out = std::io::stdout().lock();
    for address in listening {
        let _ = writeln!(out, "listening for CQL clients on {address}");
    }
    for path in unix {
        let _ = writeln!(out, "listening for CQL clients on unix:{}", path.display());
    }
    if let Some(admin) = admin {
        let _ =
            writeln!(out, "metrics and status on {}://{}/status", schemes.admin, reachable(admin));
    }
    if let Some(http) = locks_http {
        let _ = writeln!(
            out,
            "locks over HTTP on {}://{}/v1/locks/NAME",
            schemes.locks_http,
            reachable(http)
        );
    }
    if let Some(first) = listening.first() {
        let first = reachable(*first);
        let _ = writeln!(out, "connect with: cqlsh {} {}", first.ip(), first.port());
    }
    let _ = out.flush();
}

/// Formats the addresses of an admin interface for the log: the one with a port as bound, and the
/// Unix socket as given.
pub(crate) fn shown(bound: Option<SocketAddr>, given: Option<&AdminAddress>) -> String {
    let unix = given.and_then(|given| given.unix.as_ref());
    let unix = unix.map(|path| format!("unix:{}", path.display()));
    let all: Vec<String> = bound.map(|bound| bound.to_string()).into_iter().chain(unix).collect();
    if all.is_empty() { "off".to_owned() } else { all.join(",") }
}

/// Returns an address at which this machine can reach one of its own listeners.
pub(crate) fn reachable(address: SocketAddr) -> SocketAddr {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
