//! The binary as an operator sees it: output, exit codes, signals.

mod bench;
mod ending;
mod hostile;
#[cfg(feature = "node")]
mod store;
mod support;
#[cfg(feature = "node")]
mod up_fleet;
mod usage;
#[cfg(not(feature = "node"))]
mod without_node;
