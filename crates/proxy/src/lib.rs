//! The proxy: CQL clients in front, nodes behind.

pub mod config;
pub mod control;
pub mod metrics;
