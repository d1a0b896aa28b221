//! The proxy's knowledge of the ring behind it: who is there, who owns which token, where a
//! keyspace keeps its replicas, and which columns make up a table's partition key.
//!
//! ```text
//! partition key bytes -> token -> ring -> replicas -> nodes in order of preference
//! ```
//!
//! The control plane reads the ring's system tables, builds one [`RoutingTable`] from them and
//! hands it to every core; a snapshot is never changed. Everything here is plain data and pure
//! functions: no sockets, clocks or threads.

pub mod health;
mod node;
mod replicas;
mod ring;
mod routing;
pub mod schema;
pub mod token;

pub use health::{Backoff, Health};
pub use node::{Node, NodeId};
pub use replicas::Replicas;
pub use routing::{KeyspaceIndex, RoutingTable};
pub use schema::{Column, Keyspace, Replication, Table};
pub use token::Token;
