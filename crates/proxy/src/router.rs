//! The state that requests are routed by: the ring, the pools of links, the statements that were
//! prepared.

use std::sync::Arc;

use shunt_fleet::schema::META_KEYSPACE;
use shunt_reactor::Io;
use shunt_topology::NodeId;

use crate::client::Client;
use crate::client::who::Who;
use crate::control::state::ClusterState;
use crate::fleet::roster::Fleet;
use crate::ids::PoolId;
use crate::link::Pools;
use crate::link::links::Links;
use crate::prepared::{PreparedCache, PreparedStore};
use shunt_transactions::catalogue::modes::TableModes;

/// The owner of all that tells a request its way.
pub(crate) struct Router {
    /// The ring as the control plane saw it last.
    pub(crate) cluster: Option<Arc<ClusterState>>,
    /// The fleet as this core was told of it last; `None`: drivers see one host.
    pub(crate) fleet: Option<Arc<Fleet>>,
    /// Counts the routing tables seen, so that a placement of an old one is recognised.
    pub(crate) generation: u32,
    /// Class of the authenticator that every node asks for a login with, while the cluster's state
    /// has none.
    pub(crate) login_asked: Option<String>,
    pub(crate) pools: Pools,
    pub(crate) prepared: PreparedCache,
    /// Statements on the tables of locks are answered by this proxy, not by nodes.
    pub(crate) serves_locks: bool,
    /// Statements on the tables of locks are refused: a fleet of other proxies answers them.
    pub(crate) refuses_locks: bool,
    /// Tables of which statements are transactions, as they were read last: before any client is
    /// served.
    pub(crate) modes: TableModes,
    /// Where the search for any node starts.
    pub(crate) cursor: usize,
    /// Holds a partition key while its token is computed.
    pub(crate) key_scratch: Vec<u8>,
}

impl Router {
    /// A router that knows no ring yet. `cursor`: where the search for any node starts.
    pub(crate) fn new(prepared: Arc<PreparedStore>, cursor: usize, serves_locks: bool) -> Self {
        Self {
            cluster: None,
            fleet: None,
            generation: 0,
            login_asked: None,
            pools: Pools::default(),
            prepared: PreparedCache::new(prepared),
            serves_locks,
            refuses_locks: false,
            modes: TableModes::default(),
            cursor,
            key_scratch: Vec::new(),
        }
    }

    /// Routes by this ring from now on.
    pub(crate) fn set_cluster(&mut self, cluster: Arc<ClusterState>) {
        // Where a fleet has its tables, its proxies answer for the tables of locks.
        self.refuses_locks =
            !self.serves_locks && cluster.routing.keyspace(META_KEYSPACE).is_some();
        self.cluster = Some(cluster);
    }

    /// True if statements on the tables of locks do not go to nodes. A node would say that a lock
    /// is granted which the fleet has granted to somebody else.
    pub(crate) fn takes_locks(&self) -> bool {
        self.serves_locks || self.refuses_locks
    }

    /// A node as logs name it: by its address, or by its number once it has left the ring.
    pub(crate) fn node_named(&self, node: NodeId) -> String {
        let found = self.cluster.as_ref().and_then(|cluster| cluster.routing.node(node));
        found.map_or_else(|| format!("number {}", node.0), |node| node.address.to_string())
    }

    /// A client as logs name it; one that is logging in, by who it says it is.
    pub(crate) fn who(&self, client: &Client) -> Who {
        let login = client.switch.filter(|switch| switch.login).map(|switch| switch.pool);
        let names =
            login.or(client.pool).and_then(|pool| self.pools.get(pool)).map(|pool| &pool.names);
        Who::new(client.peer, names, client.driver.clone())
    }

    /// A client no longer uses a pool; nodes that keep state per client are told.
    pub(crate) fn leave_pool(
        &mut self,
        links: &mut Links,
        io: &mut Io,
        id: PoolId,
        client_id: u32,
    ) {
        let Some(pool) = self.pools.get_mut(id) else { return };
        pool.clients = pool.clients.saturating_sub(1);
        if pool.clients == 0 {
            pool.idle_since_ns = io.now_ns();
        }
        for key in pool.links() {
            links.client_gone(io, key, client_id);
        }
    }
}
