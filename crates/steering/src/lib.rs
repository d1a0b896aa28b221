//! Steering: redirection of a moved connection's packets, by programs that the kernel runs for each
//! packet.
//!
//! ```text
//!                         dispatcher's host                             backend's host
//! client --> [dispatcher_in] -- in steered_flows --> L2 --> [backend_in] -- ready in owned_flows --> socket
//!                  '--> socket, if it is not                     '--> dropped: it is on its way here or back
//! client <-- [dispatcher_out]                    client <-- [backend_out] <-- socket
//!            drops resets of what is elsewhere              drops resets of what is not here
//! ```
//!
//! If one virtual address has several dispatchers, packets first reach a gateway ([`Gateway`],
//! [bpf/gateway.bpf.c](../../../bpf/gateway.bpf.c)), which sends all packets of a connection to one
//! of them.
//!
//! A multiget in one datagram is split into one datagram for each server on the way out of its
//! client's host, or at a gateway ([`Splitter`],
//! [bpf/multiget.bpf.c](../../../bpf/multiget.bpf.c)).
//!
//! [`load`] needs a privileged user once: it attaches the programs
//! ([bpf/handover.bpf.c](../../../bpf/handover.bpf.c)) to an interface and pins them and their
//! maps, so that they outlive every process. Afterwards [`Steering`] uses the maps and needs only
//! access to the pins' files. Entries have leases, so that those of a process that died end by
//! themselves.

mod check;
mod error;
mod flow;
mod gateway;
mod load;
mod maps;
mod multiget;
mod neighbours;
mod rate;

pub use check::{Problem, problems};
pub use error::Error;
pub use flow::{BadMac, Flow, Mac};
pub use gateway::{DISPATCHERS_MAX, Gateway, Placed, State, Target};
pub use load::{DEFAULT_PINS, Role, clean, give_to, interface_index, load, load_splitter};
pub use maps::{Count, Seen, Steering};
pub use multiget::{Parts, SERVERS_MAX, Shim, Sources, Split, Splitter, find_hosts};
pub use neighbours::neighbours;
pub use rate::Rate;

/// Comma-separated source files of programs that the build could not compile. If not empty, the
/// build can load no program.
pub const MISSING_PROGRAMS: &str = env!("SHUNT_MISSING_PROGRAMS");
