//! The binary as an operator meets it: what it prints, how it ends, what signals do.

mod bench;
mod ending;
mod hostile;
mod store;
mod support;
mod usage;
