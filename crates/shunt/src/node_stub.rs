//! `shunt node` and `shunt up` in a build without the embedded node. They become the program
//! `shunt-node` of the package of that name, where it lies beside this one. Otherwise they print
//! how to get it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use clap::Args;

use crate::exit::Exit;

/// A build of Shunt with the embedded node, in the directory of this one.
const WITH_NODE: &str = "shunt-node";

/// The arguments of a command that this build lacks, for the build that has it.
#[derive(Args, Debug)]
pub(crate) struct Ignored {
    /// Options and values of the command in a build that has it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub(crate) arguments: Vec<OsString>,
}

/// Becomes the program that has the command. Returns only if there is none.
pub(crate) fn run(command: &str, ignored: &Ignored) -> Exit {
    let path = std::env::current_exe().map(|own| own.with_file_name(WITH_NODE));
    if let Ok(path) = path
        && path.is_file()
    {
        let error = Command::new(&path).arg(command).args(&ignored.arguments).exec();
        eprintln!("error: {} cannot be run: {error}", path.display());
        return Exit::Configuration;
    }
    eprintln!(
        "error: `shunt {command}` needs the embedded node, which this build does not have; install the package \
         `shunt-node`, build Shunt with its default features (`cargo build --release -p shunt`), or run `shunt proxy` \
         in front of Apache Cassandra"
    );
    Exit::Configuration
}
