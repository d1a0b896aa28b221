//! `shunt node` and `shunt up` in a build without the embedded node: they are not listed, and say
//! how to get them.

use std::ffi::OsString;

use clap::Args;

use crate::exit::Exit;

/// Whatever is given to a command that is not there.
#[derive(Args, Debug)]
pub(crate) struct Ignored {
    /// Options and values of the command in a build that has it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub(crate) _arguments: Vec<OsString>,
}

/// Says why the command is not there and what to do.
pub(crate) fn refuse(command: &str) -> Exit {
    eprintln!(
        "error: `shunt {command}` needs the embedded node, which this build does not have; build Shunt with its default \
         features (`cargo build --release -p shunt`), or run `shunt proxy` in front of Apache Cassandra"
    );
    Exit::Configuration
}
