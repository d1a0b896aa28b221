//! The control plane: follows the ring and keeps the cores informed. One thread with a small tokio
//! runtime.
//!
//! ```text
//! plane: connect (handshake) -> follow: events, requests
//!        -> read (ring, schema by tables) -> publish -> post -> cores
//! ```
//!
//! It never touches the data path: cores get whole new states by mail and send requests over a
//! bounded channel.

mod access;
mod agreement;
mod channel;
pub mod client;
mod connection;
mod contact;
pub(crate) mod datacentre;
mod departure;
mod down_nodes;
mod drained_nodes;
mod error;
mod event_queue;
mod follow;
mod handshake;
mod log_budget;
mod ring_identity;
mod initial_modes;
mod inventory;
mod plane;
pub mod post;
mod probes;
mod requests;
mod ring;
mod ring_bounds;
mod round;
mod schema;
pub mod state;
mod tables;
#[cfg(test)]
mod tests;
pub(crate) mod view;

pub use access::Access;
pub use plane::{ControlOptions, ControlPlane, Unfit};
pub use post::Mailbox;
pub use state::{ClusterState, ControlRequest, CoreMail, TableName};
pub use view::ClusterView;
