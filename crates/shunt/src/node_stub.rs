//! `shunt node` and `shunt up` in a build without the embedded node: hidden from the help; running
//! them prints how to get a build that has them.

use std::ffi::OsString;

use clap::Args;

use crate::exit::Exit;

/// The ignored arguments of a command that this build lacks.
#[derive(Args, Debug)]
pub(crate) struct Ignored {
    /// Options and values of the command in a build that has it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub(crate) _arguments: Vec<OsString>,
}

/// Prints why the command is missing and what to do.
pub(crate) fn refuse(command: &str) -> Exit {
    eprintln!(
        "error: `shunt {command}` needs the embedded node, which this build does not have; build Shunt with its default \
         features (`cargo build --release -p shunt`), or run `shunt proxy` in front of Apache Cassandra"
    );
    Exit::Configuration
}
