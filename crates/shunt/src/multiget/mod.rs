//! `shunt multiget`: a sidecar to which applications speak RESP, and a shim beside each server that
//! answers the sidecar's datagrams.

mod login;
mod serve;
mod server_tls;
mod shim;

use clap::{Args, Subcommand, ValueEnum};

use crate::exit::{Exit, Failure};
use crate::faults::{Faults, Sources};
use crate::relay::checked;

/// `shunt multiget`.
#[derive(Args, Debug)]
pub(crate) struct Multiget {
    /// The program to run.
    #[command(subcommand)]
    command: MultigetCommand,
}

#[derive(Debug, Subcommand)]
enum MultigetCommand {
    /// Run a sidecar, which splits MGET, DEL, MSET and the like over servers, and relays the rest
    Serve(Box<serve::Serve>),
    /// Run a shim, which answers datagrams from the server beside it
    Shim(Box<shim::Shim>),
}

/// Use of messages that the kernel or the network card cuts into datagrams.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Gso {
    On,
    Off,
}

/// Runs `shunt multiget`.
pub(crate) fn run(multiget: &Multiget, sources: &Sources) -> Exit {
    match &multiget.command {
        MultigetCommand::Serve(serve) => serve.run(sources),
        MultigetCommand::Shim(shim) => shim.run(sources),
    }
    .unwrap_or_else(Failure::report)
}

/// Runs `shunt check multiget`.
pub(crate) fn check(multiget: &Multiget, sources: &Sources) -> Exit {
    let mut faults = Faults::default();
    let warnings = match &multiget.command {
        MultigetCommand::Serve(serve) => {
            drop(serve.read(&mut faults));
            [serve.common.warnings(), serve.tls_warnings()].concat()
        }
        MultigetCommand::Shim(shim) => {
            drop(shim.read(&mut faults));
            shim.common.warnings()
        }
    };
    checked(faults.finish(sources).map(|()| warnings))
}

fn datagrams(
    flag: &str,
    address: std::net::SocketAddr,
    cores: usize,
) -> Result<Vec<std::net::UdpSocket>, Failure> {
    if cores > 1 && address.port() != 0 {
        // Sockets of several loops share the address, and the kernel lets another process of the
        // same user join them. A bind without sharing detects such a process.
        std::net::UdpSocket::bind(address)
            .map_err(|error| crate::admin::cannot_listen(flag, address, &error))?;
    }
    shunt_reactor::bind_datagrams(address, cores)
        .map_err(|error| crate::admin::cannot_listen(flag, address, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_not_shared_with_another_process() {
        // The port is free again once the socket is closed.
        let free =
            || std::net::UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let address = free().expect("a port is free");
        let first = datagrams("--listen", address, 2).expect("nobody has it");
        for cores in [1, 2] {
            let failure = datagrams("--listen", address, cores).expect_err("it is taken");
            assert_eq!(failure.exit, Exit::CannotListen);
            assert!(failure.message.contains("another process has it"), "{}", failure.message);
        }
        assert_eq!(first.len(), 2);
    }
}
