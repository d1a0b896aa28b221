//! Errors of steering, with their remedies.

use std::fmt;
use std::path::PathBuf;

/// Reason why packets cannot be steered.
#[derive(Debug)]
pub enum Error {
    /// This build has no programs.
    NoPrograms,
    /// This directory is not in a BPF file system.
    NoPins(PathBuf),
    /// This directory has no pins.
    NotLoaded(PathBuf),
    /// This directory already has pins.
    Loaded(PathBuf),
    /// The kernel has no such interface.
    NoInterface(String),
    /// The kernel cannot attach such programs to interfaces.
    OldKernel(String),
    /// This process lacks the right to do this.
    NotAllowed(&'static str),
    /// The named table is full.
    Full(&'static str),
    /// Any other error of the kernel, with the action that failed.
    Kernel(&'static str, String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoPrograms => f.write_str(
                "this build has no programs for the kernel, because there was no clang when it was made: install clang \
                 (`scripts/prerequisites net`, or the package clang) and build Shunt again",
            ),
            Error::NoPins(path) => write!(
                f,
                "{} is not in a BPF file system: mount one (`mount -t bpf bpf /sys/fs/bpf`), or name a directory in one with --pins",
                path.display()
            ),
            Error::NotLoaded(path) => {
                write!(f, "nothing is loaded at {}: run `shunt switch load` as root first", path.display())
            }
            Error::Loaded(path) => {
                write!(
                    f,
                    "{} is in use already: `shunt switch status` shows by whom, `shunt switch clean` ends it",
                    path.display()
                )
            }
            Error::NoInterface(name) => {
                write!(f, "there is no interface {name}: `ip link` shows those of this host")
            }
            Error::OldKernel(why) => {
                write!(f, "this kernel cannot attach the programs (TCX, Linux 6.6 or newer, CONFIG_NET_XGRESS): {why}")
            }
            Error::NotAllowed(what) => write!(
                f,
                "not allowed to {what}: `shunt switch` needs root or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON; what runs afterwards needs the pins' files \
                 to be its own (--user)"
            ),
            Error::Full(what) => write!(f, "the kernel's table of {what} is full"),
            Error::Kernel(what, why) => write!(f, "cannot {what}: {why}"),
        }
    }
}

impl std::error::Error for Error {}
