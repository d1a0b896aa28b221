//! Helpers for tests with nodes.

#![allow(dead_code, reason = "not every test uses all of it")]

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use shunt_node::run::{Nodes, NodesOptions};
use shunt_storage::StoreOptions;
use shunt_storage::row_cache::RowCacheOptions;
use shunt_testing::blocking::Client;

/// Longest time for nodes to end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) fn start(directory: &Path, nodes: usize) -> Nodes {
    Nodes::start(options(directory, nodes)).unwrap()
}

pub(crate) fn options(directory: &Path, nodes: usize) -> NodesOptions {
    let listen = vec![SocketAddr::from(([127, 0, 0, 1], 0)); nodes];
    NodesOptions {
        cluster_name: "loopback".to_owned(),
        loops_per_node: 2,
        ..NodesOptions::new(directory.to_owned(), listen)
    }
}

/// A node with a keyspace whose writes do not wait for the disk, and with a row cache of the given
/// size.
pub(crate) fn started(directory: &Path, row_cache_bytes: usize, tables: &[&str]) -> Nodes {
    let row_cache = (row_cache_bytes > 0)
        .then(|| RowCacheOptions { memory_bytes: row_cache_bytes, ..RowCacheOptions::default() });
    let store = StoreOptions { row_cache, ..StoreOptions::default() };
    let nodes = Nodes::start(NodesOptions { store, ..options(directory, 1) }).unwrap();
    let mut client = Client::connect(nodes.addresses()[0], 4);
    client.run(&KEYSPACE.replace("batch", "periodic"));
    tables.iter().for_each(|table| client.run(table));
    nodes
}

pub(crate) const KEYSPACE: &str = "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1} \
                            AND durability = 'batch'";
