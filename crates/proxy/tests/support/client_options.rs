//! The options of a simulated client.

use std::net::SocketAddr;

use shunt_reactor::sim::{MILLISECOND, SECOND};
use shunt_wire::cql::compression::Algorithm;

/// The version, login and habits of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Number of the client, which is in all its keys.
    pub number: u16,
    /// The address of the proxy.
    pub proxy: SocketAddr,
    pub version: u8,
    pub compression: Option<Algorithm>,
    pub login: Option<(&'static str, &'static str)>,
    /// True if it sends USE before anything else, and names no keyspace afterwards.
    pub uses_keyspace: bool,
    /// True if it sends REGISTER for changes of the schema.
    pub registers: bool,
    /// Probability that it stops reading for a while after an answer.
    pub dawdles: f64,
    /// Most requests in flight.
    pub outstanding: usize,
    /// Longest pause between an answer and the next request.
    pub think_ns: u64,
    /// Largest value, beside its key.
    pub value_bytes: u64,
    /// True if it sends only requests that go to a replica by their key.
    pub keyed_only: bool,
    /// True if it sends a timestamp with each request, as drivers do by default.
    pub timestamps: bool,
    /// Number of registers, shared by all clients, that all its requests read and write; 0: none.
    pub registers_shared: u32,
    /// Time without an answer after which it gives up the connection.
    pub patience_ns: u64,
    pub seed: u64,
}

impl ClientOptions {
    pub fn new(number: u16, proxy: SocketAddr, seed: u64) -> ClientOptions {
        ClientOptions {
            number,
            proxy,
            version: 4,
            compression: None,
            login: None,
            uses_keyspace: false,
            registers: false,
            dawdles: 0.0,
            outstanding: 4,
            think_ns: 5 * MILLISECOND,
            value_bytes: 300,
            keyed_only: false,
            timestamps: true,
            registers_shared: 0,
            patience_ns: 20 * SECOND,
            seed: seed ^ u64::from(number) << 40,
        }
    }
}
