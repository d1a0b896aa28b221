//! The deterministic driver: whole systems of services in one thread, without sockets, threads or a
//! clock.
//!
//! A [`World`] holds hosts, each a [`Service`](crate::Service) with its own [`Io`](crate::Io), and
//! a network between them that delays, cuts up, holds back and loses as its [`Options`] say. Every
//! draw comes from one seed, so a run that failed is replayed by its seed; [`for_seeds`] runs a
//! test over many and prints the one that failed. Set `SHUNT_SIM_TRACE=1` to see the events.
//!
//! The module `network` plays the sockets of a real host, `host` the loop; the engine in between is
//! the same code that the socket drivers use.
//!
//! ```text
//!  world (clock, queue) -> host (Service + Io) -> network (kernel, wires) -> queue -> world
//! ```

mod clock;
mod delivery;
mod host;
mod kernel;
mod moving;
mod network;
mod options;
mod queue;
mod random;
mod seeds;
mod session;
mod trace;
mod wire;
mod world;

pub use clock::Clock;
pub use options::{MICROSECOND, MILLISECOND, Options, SECOND};
pub use random::Random;
pub use seeds::for_seeds;
pub use session::TornSession;
pub use world::{Held, HostId, World};
