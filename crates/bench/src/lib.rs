//! `shunt bench`: a CQL node that answers at memory speed (`stub`), a load generator that is
//! cheaper than what it measures (`load`; `multiget` for multigets over several Redis servers), and
//! experiments that are written down as files, measured with both, and checked against what they
//! claim (`run`); one of them, for whoever changes Shunt, has a command of its own: two binaries
//! side by side (`compare`).
//!
//! The stub and the load generator are [`shunt_reactor::Service`]s: no thread, socket or clock of
//! their own, so the deterministic simulation can run them as hosts exactly as they run here on
//! real sockets.

pub mod cli;
pub mod load;
pub mod measure;
pub mod multiget;
mod peers;
pub mod random;
pub mod scenario;
pub mod stub;
