//! The state that routes requests: the ring, the pools of links, the prepared statements.

use std::sync::Arc;

use shunt_fleet::schema::META_KEYSPACE;
use shunt_reactor::Io;
use shunt_topology::NodeId;

use crate::client::Client;
use crate::client::identity::{PoolNames, Who};
use crate::control::state::ClusterState;
use crate::digests::texts::TextTable;
use crate::fleet::roster::Fleet;
use crate::hot_keys::HotKeys;
use crate::ids::PoolId;
use crate::link::Pools;
use crate::link::links::Links;
use crate::prepared::{PreparedCache, PreparedStore};
use crate::rules::Rules;
use shunt_transactions::catalogue::modes::TableModes;

/// The owner of the routing state.
pub(crate) struct Router {
    /// The ring as the control plane saw it last.
    pub(crate) cluster: Option<Arc<ClusterState>>,
    /// The fleet in the last mail to this core; `None`: drivers see one host.
    pub(crate) fleet: Option<Arc<Fleet>>,
    /// Number of routing tables seen so far, which identifies a placement of an old one.
    pub(crate) generation: u32,
    /// Class of the authenticator with which every node asks for a login, while the cluster's state
    /// has none.
    pub(crate) login_asked: Option<String>,
    pub(crate) pools: Pools,
    pub(crate) prepared: PreparedCache,
    /// Digests of texts.
    pub(crate) texts: TextTable,
    pub(crate) rules: Rules,
    pub(crate) hot_keys: HotKeys,
    /// True if this proxy, not a node, answers statements on the tables of locks.
    pub(crate) serves_locks: bool,
    /// True if this proxy refuses statements on the tables of locks: a fleet of other proxies
    /// answers them.
    pub(crate) refuses_locks: bool,
    /// Tables whose statements are transactions, as last read; they are read before any client is
    /// served.
    pub(crate) modes: TableModes,
    /// Start of the search for any node.
    pub(crate) cursor: usize,
    /// Buffer for a partition key while its token is computed.
    pub(crate) key_scratch: Vec<u8>,
}

impl Router {
    /// Makes a router that knows no ring yet. `cursor`: start of the search for any node.
    pub(crate) fn new(prepared: Arc<PreparedStore>, cursor: usize, serves_locks: bool) -> Self {
        Self {
            cluster: None,
            fleet: None,
            generation: 0,
            login_asked: None,
            pools: Pools::default(),
            prepared: PreparedCache::new(prepared),
            texts: TextTable::default(),
            rules: Rules::default(),
            hot_keys: HotKeys::new(0, cursor as u64),
            serves_locks,
            refuses_locks: false,
            modes: TableModes::default(),
            cursor,
            key_scratch: Vec::new(),
        }
    }

    /// Sets the ring to route by.
    pub(crate) fn set_cluster(&mut self, cluster: Arc<ClusterState>) {
        // If a fleet has its tables in this ring, its proxies answer for the tables of locks.
        self.refuses_locks =
            !self.serves_locks && cluster.routing.keyspace(META_KEYSPACE).is_some();
        // Tables may have other partition keys now.
        self.rules.forget();
        self.cluster = Some(cluster);
    }

    /// True if statements on the tables of locks must not go to nodes. A node would grant a lock
    /// that the fleet has granted to another owner.
    pub(crate) fn takes_locks(&self) -> bool {
        self.serves_locks || self.refuses_locks
    }

    /// A node's name in logs: its address, or its number once it has left the ring.
    pub(crate) fn node_named(&self, node: NodeId) -> String {
        let found = self.cluster.as_ref().and_then(|cluster| cluster.routing.node(node));
        found.map_or_else(|| format!("number {}", node.0), |node| node.address.to_string())
    }

    /// A client's name in logs; while it logs in, the role that it claims.
    pub(crate) fn who(&self, client: &Client) -> Who {
        let login = client.switch.filter(|switch| switch.login).map(|switch| switch.pool);
        let held = client.held_login.as_ref();
        let claimed = held.map(|held| PoolNames::new(held.key.token().as_deref(), None));
        let names =
            login.or(client.pool).and_then(|pool| self.pools.get(pool)).map(|pool| &pool.names);
        Who::new(client.peer, claimed.as_ref().or(names), client.driver.clone())
    }

    /// Removes a client from its pool and tells the nodes that keep state per client.
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
