//! `shunt bench multiget`: multigets over several Redis servers, through the library of `shunt
//! multiget` or over TCP, and their cost.
//!
//! ```text
//! connect -> [populate] -> warm up -> round, round, ..
//!                                    |  draw.rs: which keys, how many, or a write
//!                                    |  load.rs: by the library's client, or an MGET to each server (links.rs)
//!                                    '  report.rs: counted, timed, and what processes, processors and the interface say
//! ```
//! The load is one [`Service`](shunt_reactor::Service) on one loop. No process lies between it and
//! the network, so its cost is the cost of a multiget's client.

mod args;
mod draw;
mod links;
mod load;
mod report;

use std::{
    io::{self, Write},
    process::ExitCode,
    sync::Arc,
};

use shunt_reactor::{IoChoice, LoopOptions, bind_datagrams, mailbox, run as run_loop};

pub use self::args::MultigetArgs;
use self::{load::Load, report::Round};
use crate::measure::cpu;

/// Runs the load and prints a line of JSON for each round. The exit code is 2 if an answer was
/// wrong.
///
/// # Errors
/// Wrong arguments, or the load could not run to its end.
pub fn run(args: &MultigetArgs) -> io::Result<ExitCode> {
    args.check().map_err(|problem| io::Error::new(io::ErrorKind::InvalidInput, problem))?;
    if let Some(cpu) = args.cpu {
        cpu::pin(&[cpu])?;
    }
    let socket = if args.is_by_datagrams() {
        bind_datagrams(args.from, 1)?.pop().map(Arc::new)
    } else {
        None
    };
    let options = LoopOptions {
        datagrams: socket,
        datagrams_at_once: args.datagrams_at_once,
        datagrams_in_groups: args.gso,
        ..LoopOptions::default()
    };
    let mut load = Load::new(args.clone(), Box::new(print));
    let (_mailer, inbox) = mailbox(1)?;
    run_loop(IoChoice::Epoll, options, &mut load, inbox)?;
    if let Some(failure) = load.failure() {
        return Err(io::Error::other(failure.to_owned()));
    }
    Ok(if load.is_sound() { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

/// Prints a round at once, so that a plot can follow the run.
fn print(round: &Round) {
    let mut out = io::stdout().lock();
    // A closed output does not end the run; only its exit code is left then.
    let _ = serde_json::to_string(round)
        .map_err(io::Error::from)
        .and_then(|line| writeln!(out, "{line}"))
        .and_then(|()| out.flush());
}
