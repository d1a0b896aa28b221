//! The messages between the control plane and the cores, and the state of the ring that they carry.
//!
//! The control plane builds a [`ClusterState`] whenever the ring or its schema changes and posts it
//! whole to every core as [`CoreMail::Cluster`]; a core swaps its `Arc` and never sees half a
//! change. Cores send a [`ControlRequest`] over a bounded channel. No query touches any of this.

use std::sync::Arc;

use shunt_topology::{NodeId, RoutingTable};
use tokio::sync::mpsc;

use crate::client::census::CoreCensus;
use crate::client::refused_logins::CoreRefusedLogins;
use crate::client::selection::{CoreEviction, Selection};
use crate::config::Config;
use crate::connection_list::CoreConnections;
use crate::digests::table::CoreDigests;
use crate::fleet::cores::Batch;
use crate::fleet::roster::Fleet;
use crate::hot_keys::CoreHotKeys;
use crate::limits;
use crate::locks::status::{CoreLockList, CoreLocks};
use crate::slow_queries::records::CoreSlowQueries;
use crate::traces::table::CoreSpans;
use shunt_transactions::catalogue::modes::InitialModes;

/// A core's whole knowledge of the ring; immutable, replaced as a whole.
#[derive(Clone, Debug)]
pub struct ClusterState {
    /// Number of this state in the process, so that logs of several cores can be compared.
    pub generation: u64,
    /// Nodes, tokens, replicas and schema.
    pub routing: Arc<RoutingTable>,
    /// Highest native protocol version that every node of the ring speaks, 3 to 5.
    pub protocol_version_max: u8,
    /// Class name of the ring's authenticator; `None` when the ring needs no login.
    pub authenticator: Option<String>,
    /// `system.local.cluster_name`.
    pub cluster_name: String,
    /// `system.local.release_version` of the control node.
    pub release_version: String,
    /// `system.local.cql_version`.
    pub cql_version: String,
    /// `system.local.partitioner`, a class name.
    pub partitioner: String,
    /// COMPRESSION values of the control node's SUPPORTED (`lz4`, `snappy`).
    pub compressions: Vec<String>,
    /// The datacentre in which drivers see the proxy: the configured one, else the control node's.
    pub datacentre: String,
    /// Rack of the control node.
    pub rack: String,
    /// Schema version that the nodes that are up agreed on when this state was read (else the
    /// control node's); 0 = unknown.
    pub schema_version: u128,
    /// Nodes that an operator has taken out of routing, sorted; each is in `routing`.
    pub drained: Vec<NodeId>,
    /// Tables whose statements are transactions. Only the first state of a proxy of a fleet has
    /// them: later the cores read them themselves, and at first too if the connection was lost over
    /// the question.
    pub modes: Option<InitialModes>,
}

impl ClusterState {
    /// True if an operator has taken the node with this host id out of routing.
    pub(crate) fn has_drained(&self, host_id: u128) -> bool {
        self.drained
            .iter()
            .any(|id| self.routing.node(*id).is_some_and(|node| node.host_id == host_id))
    }

    /// The first state of a ring without logins, for tests.
    #[cfg(test)]
    pub(crate) fn of_test(routing: RoutingTable) -> Self {
        Self {
            generation: 1,
            routing: Arc::new(routing),
            protocol_version_max: 5,
            authenticator: None,
            cluster_name: "test".to_owned(),
            release_version: "5.0.9".to_owned(),
            cql_version: "3.4.7".to_owned(),
            partitioner: "Murmur3Partitioner".to_owned(),
            compressions: vec![],
            datacentre: "dc1".to_owned(),
            rack: "r".to_owned(),
            schema_version: 1,
            drained: vec![],
            modes: None,
        }
    }
}

/// A message of the control plane or the binary to a core's loop.
#[derive(Clone, Debug)]
pub enum CoreMail {
    /// The ring or its schema changed, or is known for the first time.
    Cluster(Arc<ClusterState>),
    /// Body of a SCHEMA_CHANGE EVENT message as the node sent it (not compressed), for the clients
    /// that registered.
    SchemaEvent(Arc<[u8]>),
    /// Answer to [`ControlRequest::AwaitSchemaAgreement`].
    SchemaAgreed {
        /// The core's number for the request, echoed.
        ticket: u64,
        /// True if all nodes that are up had one schema version before the deadline.
        agreed: bool,
    },
    /// Messages of another core of the process.
    FromCore(Box<Batch>),
    /// Close the clients evenly over `drain_close_ms`, each when nothing of it is in flight;
    /// `false`: close no more of them.
    CloseIdle(bool),
    /// Take no new clients or queries, finish those in flight, then close the clients and stop the
    /// loop.
    Drain,
    /// While draining: leave the fleet without notice, because no node is reachable and no lock is
    /// held.
    LeaveSilently,
    /// Close every client and stop the loop now.
    CloseAll,
    /// Count the clients by identity; the answer goes to this sender, if it has room.
    Census(mpsc::Sender<CoreCensus>),
    /// List clients, links and pools; the answer goes to this sender, if it has room.
    Connections(mpsc::Sender<CoreConnections>),
    /// Close the clients of a selection; the number of them goes to this sender, if it has room.
    Kick(Arc<Selection>, mpsc::Sender<CoreEviction>),
    /// Report the failed logins; the answer goes to this sender, if it has room.
    RefusedLogins(mpsc::Sender<CoreRefusedLogins>),
    /// List the locks; the answer goes to this sender, if it has room.
    LockList(mpsc::Sender<CoreLockList>),
    /// Report the last slow queries; the answer goes to this sender, if it has room.
    SlowQueries(mpsc::Sender<CoreSlowQueries>),
    /// Report the digests; the answer goes to this sender, if it has room.
    Digests(mpsc::Sender<CoreDigests>),
    /// Hand over the oldest spans; the answer goes to this sender, if it has room.
    Spans(mpsc::Sender<CoreSpans>),
    /// Report the hot keys; the answer goes to this sender, if it has room.
    HotKeys(mpsc::Sender<CoreHotKeys>),
    /// Report the longest queues for locks, and the fleet; the answer goes to this sender, if it
    /// has room.
    Locks(mpsc::Sender<CoreLocks>),
    /// The live members of this proxy's fleet, after each change. Without this mail drivers see one
    /// host.
    Fleet(Arc<Fleet>),
    /// A new configuration; keys that need a restart still have their old values.
    Reload(Arc<Config>),
}

impl CoreMail {
    /// True of a question whose answer nobody waits for. An answer may be large, and a client of
    /// the admin pages may give up as many requests as it likes.
    pub(crate) fn is_abandoned(&self) -> bool {
        match self {
            CoreMail::Census(answer) => answer.is_closed(),
            CoreMail::Connections(answer) => answer.is_closed(),
            CoreMail::Kick(_, answer) => answer.is_closed(),
            CoreMail::Locks(answer) => answer.is_closed(),
            CoreMail::LockList(answer) => answer.is_closed(),
            CoreMail::RefusedLogins(answer) => answer.is_closed(),
            CoreMail::SlowQueries(answer) => answer.is_closed(),
            CoreMail::Digests(answer) => answer.is_closed(),
            CoreMail::Spans(answer) => answer.is_closed(),
            CoreMail::HotKeys(answer) => answer.is_closed(),
            _ => false,
        }
    }
}

/// The name of a table, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableName {
    /// The table's keyspace.
    pub keyspace: String,
    /// The name within the keyspace.
    pub table: String,
}

impl TableName {
    /// The name of a table, if Cassandra's names can be so long.
    pub(crate) fn new(keyspace: &str, table: &str) -> Option<Self> {
        let is_name = |name: &str| name.len() <= limits::KEYSPACE_NAME_BYTES_MAX;
        let names = is_name(keyspace) && is_name(table);
        names.then(|| Self { keyspace: keyspace.to_owned(), table: table.to_owned() })
    }
}

/// A request of a core to the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlRequest {
    /// Poll schema versions until they are equal (at most 10 s), then post
    /// [`CoreMail::SchemaAgreed`] to this core.
    AwaitSchemaAgreement {
        /// The node that changed the schema: the only one sure to have the new version from the
        /// first poll on.
        node: NodeId,
        /// Index of the asking core.
        core: usize,
        /// Any number; the answer repeats it.
        ticket: u64,
        /// The table that the change made: cores know it before the answer comes.
        table: Option<Box<TableName>>,
    },
    /// Links to this node keep failing: read the ring soon.
    NodeUnreachable(NodeId),
    /// Read topology and schema again soon.
    Refresh,
    /// Take a node out of routing, or back: an operator asks. The next state that is published says
    /// that it is done; without a control connection nothing happens.
    DrainNode {
        /// Host id of the node.
        host_id: u128,
        /// False: take it back.
        drained: bool,
    },
}
