//! The proxy's knowledge of the ring: its nodes, the owner of each token, the replicas of a
//! keyspace, and the partition key of each table.
//!
//! ```text
//! partition key bytes -> token -> ring -> replicas -> nodes in order of preference
//! ```
//!
//! The control plane reads the ring's system tables, builds one [`RoutingTable`] from them and
//! passes it to every core; a snapshot never changes. The crate consists of plain data and pure
//! functions: no sockets, clocks or threads.

mod budget;
pub mod health;
mod node;
mod places;
mod replicas;
mod ring;
mod routing;
pub mod schema;
mod sweep;
pub mod token;
#[cfg(test)]
mod walk;

pub use health::{Backoff, Health};
pub use node::{Node, NodeId};
pub use replicas::Replicas;
pub use routing::{KeyspaceIndex, RoutingTable};
pub use schema::{Column, Keyspace, Replication, Table};
pub use token::Token;
