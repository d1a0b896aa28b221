//! End-to-end scenarios with the Rust driver, unmodified. One scenario per test, each in every
//! setup.

mod batch;
mod concurrency;
mod connect;
mod errors;
mod keyspace;
mod paging;
mod schema;
mod sockets;
mod statements;
mod transaction;
mod values;
