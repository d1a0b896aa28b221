//! The crate's duties, checked against Cassandra's own answers and against slow, simple versions of
//! itself.

mod cassandra;
mod cluster;
mod health;
mod placement;
mod routing_table;
mod schema;
mod whole_path;
