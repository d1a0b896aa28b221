//! `shunt bench` has a CQL node that answers at memory speed (`stub`), and a load generator that
//! costs less than what it measures (`load`; `multiget` for multigets over several Redis servers).
//! `run` measures experiments written as files, with both of these, and checks the claims that the
//! files make. `compare` runs one of the experiments for developers of Shunt: two binaries side by
//! side.
//!
//! The stub and the load generator are [`shunt_reactor::Service`]s without threads, sockets or
//! clocks, so the deterministic simulation runs them exactly as real sockets do.

pub mod cli;
pub mod load;
pub mod measure;
pub mod multiget;
mod peers;
pub mod random;
pub mod scenario;
pub mod stub;
