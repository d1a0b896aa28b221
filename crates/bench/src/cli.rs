//! The command line of `shunt bench`: the arguments of its commands and the one function that runs them.

use std::process::ExitCode;

use clap::Subcommand;

use crate::{load::LoadArgs, overhead::OverheadArgs, scenario::RunArgs, stub::StubArgs};

/// A command of `shunt bench`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Run CQL nodes that answer at memory speed.
    Stub(StubArgs),
    /// Put load on any CQL endpoint, and report latency and the CPU time of chosen processes.
    Load(LoadArgs),
    /// Compare what a query costs directly, through the proxy and through HAProxy on this machine.
    Overhead(OverheadArgs),
    /// Run experiments that are written down as scenarios, compare their arms, and check what they claim.
    Run(RunArgs),
}

/// Runs one command to its end. 0 = done, 1 = it failed (the reason is on standard error), 2 = it ran but the answers
/// it got were wrong.
pub fn run(command: BenchCommand) -> ExitCode {
    let outcome = match command {
        BenchCommand::Stub(args) => crate::stub::serve::run(&args).map(|()| ExitCode::SUCCESS),
        BenchCommand::Load(args) => crate::load::command::run(&args),
        BenchCommand::Overhead(args) => crate::overhead::run(&args),
        BenchCommand::Run(args) => crate::scenario::run(&args),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("shunt bench: {error}");
        ExitCode::FAILURE
    })
}
