//! Whole-proxy simulation: cores, nodes and clients in one deterministic world.
//!
//! ```text
//!  Client (model: acknowledged writes)   -> Core(s) -> Stub node(s) with one shared memory
//!  Hostile (garbage, slow, deaf)         ->
//! ```
//!
//! [`scene`] puts a world together, [`client`] checks every answer as it arrives, [`chaos`] breaks
//! things by seed. [`registers`] are keys that all overwrite; their [`history`] must be that of
//! registers.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod chaos;
pub mod client;
pub mod client_options;
pub mod cluster;
pub mod history;
pub mod hostile;
pub mod journal;
pub mod liar;
pub mod model;
pub mod operation;
pub mod registers;
pub mod scene;
