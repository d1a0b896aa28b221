//! The crate's functions, checked against Cassandra's results and against slow, simple versions.

mod cassandra;
mod cluster;
mod health;
mod placement;
mod routing_table;
mod schema;
mod whole_path;
