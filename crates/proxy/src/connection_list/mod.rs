//! Lists a core's clients, links and pools one by one, when the admin pages ask for them.
//!
//! A collection does not hold the core up: it reads [`limits::CONNECTION_LIST_STEP`] places at a
//! time, and the core serves its connections in between. Connections that come or go meanwhile may
//! be listed or not. Lists have bounds. The clients that send the most stay in the list; the others
//! are only counted. [`collection`] makes the lists of [`rows`].

mod rows;
pub(crate) mod collection;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use shunt_reactor::ClientAddress;
use tokio::sync::mpsc;

use crate::client::identity::Driver;
use crate::limits;

/// A client's connection. All texts are printable and of bounded length.
#[derive(Debug)]
pub struct ClientRow {
    /// Address of the client.
    pub address: ClientAddress,
    /// Address that the client connected to.
    pub local: std::net::SocketAddr,
    /// Stage of the connection, in the words of Scylla's `system.clients`.
    pub stage: &'static str,
    /// Version of the protocol; 0 before STARTUP.
    pub version: u8,
    /// Compression of bodies or segments.
    pub compression: Option<&'static str>,
    /// Role; during the login, the role that the client claims.
    pub role: Option<Arc<str>>,
    /// Identity by certificate.
    pub identity: Option<Arc<str>>,
    /// Keyspace of USE.
    pub keyspace: Option<Arc<str>>,
    /// Driver and application.
    pub driver: Option<Arc<Driver>>,
    /// Version and cipher suite of TLS; `None`: clear text.
    pub tls: Option<(&'static str, &'static str)>,
    /// First name in the client's certificate.
    pub certificate: Option<Box<str>>,
    /// Number of its pool on this core.
    pub pool: Option<u32>,
    /// Reason for which the core does not read from it.
    pub paused: Option<&'static str>,
    /// Queries in flight.
    pub in_flight: u32,
    /// Queries since it connected.
    pub queries: u64,
    /// Queries per second, over the last two seconds or so.
    pub queries_per_second: u64,
    /// Queries that ended with an error.
    pub errors: u64,
    /// Bytes of requests and of answers, without headers.
    pub bytes: (u64, u64),
    /// Bytes that the client has not taken yet.
    pub backlog_bytes: usize,
    /// Median and 99th percentile of the times of its last queries, microseconds.
    pub percentiles_us: (Option<u64>, Option<u64>),
}

/// A link to a node.
#[derive(Debug)]
pub struct LinkRow {
    /// Address and port of the node.
    pub node: String,
    /// Number of the link on this core, which a later link may have again.
    pub number: u32,
    /// Number of its pool on this core.
    pub pool: u32,
    /// Step of opening the link; `ready` once it is open.
    pub state: &'static str,
    /// Purpose of the link.
    pub purpose: &'static str,
    /// Layout of requests: `envelopes`, `segments` or `aggregated`.
    pub layout: &'static str,
    /// Version of the protocol of its envelopes.
    pub version: u8,
    /// Version of TLS; `None`: clear text.
    pub tls: Option<&'static str>,
    /// True if the link goes through the agent on the node's host.
    pub is_through_agent: bool,
    /// Requests without an answer, and the limit on them.
    pub in_flight: (usize, usize),
    /// Requests among them that timed out.
    pub orphans: usize,
    /// Clients that wait for room on the link.
    pub waiting: usize,
    /// Bytes that the node has not taken yet.
    pub backlog_bytes: usize,
    /// Bytes kept for further attempts.
    pub retained_bytes: usize,
    /// Time since the node's last bytes, milliseconds; `None`: there were none yet.
    pub silent_ms: Option<u64>,
    /// Time since the link became ready, milliseconds; `None`: it is not ready yet.
    pub ready_ms: Option<u64>,
}

/// A pool: the links that clients with one login share.
#[derive(Debug)]
pub struct PoolRow {
    /// Number of the pool on this core, which a later pool may have again.
    pub number: u32,
    /// Role; `None`: the ring asks for no login.
    pub role: Option<Arc<str>>,
    /// Identity by certificate.
    pub identity: Option<Arc<str>>,
    /// Keyspace of USE.
    pub keyspace: Option<Arc<str>>,
    /// Version of the protocol.
    pub version: u8,
    /// Compression of bodies.
    pub compression: Option<&'static str>,
    /// True for the pool of the proxy's own statements.
    pub is_own: bool,
    /// Number of clients.
    pub clients: usize,
    /// Clients that wait for a link.
    pub waiting: usize,
    /// Number of links, and of those that take queries.
    pub links: (usize, usize),
    /// True if no node has accepted the login.
    pub is_unverified: bool,
    /// Time since the last client left, milliseconds; `None`: the pool has clients.
    pub idle_ms: Option<u64>,
}

/// The clients, links and pools of one core.
#[derive(Debug)]
pub struct CoreConnections {
    /// Number of the core.
    pub core: usize,
    /// The clients that send most, in no order.
    pub clients: Vec<ClientRow>,
    /// Clients that are not listed.
    pub clients_left_out: u64,
    /// Links.
    pub links: Vec<LinkRow>,
    /// Links that are not listed.
    pub links_left_out: u64,
    /// Pools.
    pub pools: Vec<PoolRow>,
}

/// A client, ordered by how much it sends.
struct Ranked(ClientRow);

impl Ranked {
    fn rank(&self) -> (u64, u32, u64) {
        (self.0.queries_per_second, self.0.in_flight, self.0.queries)
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

/// The clients that send most.
#[derive(Default)]
struct Busiest {
    least_first: BinaryHeap<Reverse<Ranked>>,
    left_out: u64,
}

impl Busiest {
    fn add(&mut self, client: ClientRow) {
        self.least_first.push(Reverse(Ranked(client)));
        if self.least_first.len() > limits::LISTED_CLIENTS_MAX {
            self.least_first.pop();
            self.left_out += 1;
        }
    }
}

/// A collection in progress.
pub(crate) struct Collection {
    answer: mpsc::Sender<CoreConnections>,
    /// The next place: of clients, then of links, then of pools.
    next: usize,
    clients: Busiest,
    links: Vec<LinkRow>,
    links_left_out: u64,
    pools: Vec<PoolRow>,
}

impl Collection {
    fn new(answer: mpsc::Sender<CoreConnections>) -> Self {
        Self {
            answer,
            next: 0,
            clients: Busiest::default(),
            links: Vec::new(),
            links_left_out: 0,
            pools: Vec::new(),
        }
    }

    /// Sends the answer of this core.
    fn finish(self, core: usize) {
        let clients = self.clients.least_first.into_iter().map(|Reverse(Ranked(client))| client);
        let collection = CoreConnections {
            core,
            clients: clients.collect(),
            clients_left_out: self.clients.left_out,
            links: self.links,
            links_left_out: self.links_left_out,
            pools: self.pools,
        };
        // The requester is gone, or has room for one answer of each core.
        let _ = self.answer.try_send(collection);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn row(queries_per_second: u64, in_flight: u32) -> ClientRow {
        let address = SocketAddr::from(([10, 0, 0, 1], 1));
        ClientRow {
            address: address.into(),
            local: address,
            stage: "READY",
            version: 5,
            compression: None,
            role: None,
            identity: None,
            keyspace: None,
            driver: None,
            tls: None,
            certificate: None,
            pool: None,
            paused: None,
            in_flight,
            queries: 0,
            queries_per_second,
            errors: 0,
            bytes: (0, 0),
            backlog_bytes: 0,
            percentiles_us: (None, None),
        }
    }

    #[test]
    fn the_clients_that_send_most_stay_in_a_list_of_bounded_length() {
        let mut busiest = Busiest::default();
        (0..100_000).for_each(|number| busiest.add(row(number % 7, 0)));
        busiest.add(row(9_000, 0));
        busiest.add(row(8, 5));
        assert_eq!(busiest.least_first.len(), limits::LISTED_CLIENTS_MAX);
        let kept: Vec<_> = busiest.least_first.iter().map(|Reverse(kept)| kept.rank()).collect();
        assert!(kept.contains(&(9_000, 0, 0)) && kept.contains(&(8, 5, 0)));
        let left_out = 100_002 - limits::LISTED_CLIENTS_MAX as u64;
        assert_eq!(busiest.left_out, left_out);
    }
}
