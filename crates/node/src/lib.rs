//! The embedded node: a small Cassandra for one machine.
//!
//! ```text
//! client or proxy -> serve -> statement (prepare) -> execute -> shunt-storage
//!                      '-- aggregated frames: entry by entry, one frame of answers
//! ```
//!
//! `schema` describes keyspaces and tables, `system` shows the schema to drivers, `cluster` assigns
//! tokens to the nodes of the process. `execute` records traced requests as a `trace`, which
//! `system` stores.

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
mod stop_outcome;
mod system;
mod trace;
mod upkeep;
