//! The command line of `shunt bench`: the arguments of its commands, and the function that runs
//! them.

use std::process::ExitCode;

use clap::Subcommand;

use crate::{
    load::LoadArgs,
    multiget::MultigetArgs,
    scenario::{CompareArgs, RunArgs},
    stub::StubArgs,
};

/// A command of `shunt bench`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Run CQL nodes that answer at memory speed
    Stub(StubArgs),
    /// Put load on a CQL endpoint, and report latency and CPU time
    Load(Box<LoadArgs>),
    /// Put multigets on several Redis servers, and report their cost
    Multiget(Box<MultigetArgs>),
    /// Run scenarios, compare their arms, and check their claims
    Run(RunArgs),
    /// Compare the cost of a query between two builds, side by side
    Compare(CompareArgs),
}

/// Runs one command to its end. Exit codes: 0 = done, 1 = failed (the reason is on standard error),
/// 2 = done, but some answers were wrong.
pub fn run(command: BenchCommand) -> ExitCode {
    let outcome = match command {
        BenchCommand::Stub(args) => crate::stub::serve::run(&args).map(|()| ExitCode::SUCCESS),
        BenchCommand::Load(args) => crate::load::command::run(&args),
        BenchCommand::Multiget(args) => crate::multiget::run(&args),
        BenchCommand::Run(args) => crate::scenario::run(&args),
        BenchCommand::Compare(args) => crate::scenario::run(&args.into()),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("shunt bench: {error}");
        ExitCode::FAILURE
    })
}
