//! The binary as an operator meets it: what it prints, how it ends, what signals do.

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
