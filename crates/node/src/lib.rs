//! The embedded node: a small Cassandra for one machine.
//!
//! ```text
//! client or proxy -> serve -> statement (prepare) -> execute -> shunt-storage
//!                      '-- aggregated frames: entry by entry, one frame of answers
//! ```
//!
//! `schema` says what keyspaces and tables there are, `system` shows it to drivers, `cluster` says
//! which of the nodes of the process owns which tokens. What `execute` notes of a request that is
//! traced is a `trace`, which `system` keeps.

pub mod admin;
pub mod cluster;
mod control;
mod error;
mod execute;
pub mod layout;
mod limits;
pub mod mail;
pub mod maintenance;
pub mod metrics;
mod prepared;
pub mod run;
mod schema;
pub mod serve;
pub mod shared;
mod statement;
mod stopped;
mod system;
mod trace;
mod upkeep;
