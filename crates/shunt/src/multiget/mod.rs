//! `shunt multiget`: a sidecar that applications speak RESP to, and a shim beside each server that answers its datagrams.

mod serve;
mod shim;

use clap::{Args, Subcommand};

use crate::exit::{Exit, Failure};
use crate::relay::checked;

/// `shunt multiget`.
#[derive(Args, Debug)]
pub(crate) struct Multiget {
    /// What to run.
    #[command(subcommand)]
    command: MultigetCommand,
}

#[derive(Debug, Subcommand)]
enum MultigetCommand {
    /// Take commands of applications: GET and MGET are asked of all servers at once, others are passed on
    Serve(Box<serve::Serve>),
    /// Answer datagrams with the values of the server beside it
    Shim(Box<shim::Shim>),
}

/// Runs `shunt multiget`.
pub(crate) fn run(multiget: &Multiget) -> Exit {
    match &multiget.command {
        MultigetCommand::Serve(serve) => serve.run(),
        MultigetCommand::Shim(shim) => shim.run(),
    }
    .unwrap_or_else(Failure::report)
}

/// Runs `shunt check multiget`.
pub(crate) fn check(multiget: &Multiget) -> Exit {
    let outcome = match &multiget.command {
        MultigetCommand::Serve(serve) => serve.check(),
        MultigetCommand::Shim(shim) => shim.check(),
    };
    checked(outcome.map(|()| Vec::new()))
}

fn datagrams(flag: &str, address: std::net::SocketAddr, cores: usize) -> Result<Vec<std::net::UdpSocket>, Failure> {
    shunt_reactor::bind_datagrams(address, cores).map_err(|error| crate::admin::cannot_listen(flag, address, &error))
}
