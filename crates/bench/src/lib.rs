//! `shunt bench`: a CQL node that answers at memory speed (`stub`), a load generator that is cheaper than what it
//! measures (`load`), and the comparison of ways through a machine built on both (`overhead`).
//!
//! The stub and the load generator are [`shunt_reactor::Service`]s: no thread, socket or clock of their own, so the
//! deterministic simulation can run them as hosts exactly as they run here on real sockets.

pub mod cli;
pub mod load;
pub mod measure;
pub mod overhead;
pub mod random;
pub mod stub;
