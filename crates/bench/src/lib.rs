//! `shunt bench`: a CQL node that answers at memory speed (`stub`), a load generator that is cheaper than what it
//! measures (`load`), the comparison of ways through a machine built on both (`overhead`), and experiments that are written
//! down as files, measured, and checked against what they claim (`run`).
//!
//! The stub and the load generator are [`shunt_reactor::Service`]s: no thread, socket or clock of their own, so the
//! deterministic simulation can run them as hosts exactly as they run here on real sockets.

pub mod cli;
pub mod load;
pub mod measure;
pub mod overhead;
mod peers;
pub mod random;
pub mod scenario;
pub mod stub;
