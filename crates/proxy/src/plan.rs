//! The plan of a request: what is known of it from its text or its prepared statement.

use shunt_topology::{KeyspaceIndex, NodeId, Token};
use shunt_wire::cql::statement::{Identifier, Kind, Statement};

use shunt_admin::RequestKind as QueryKind;

/// No prepared statement.
pub(crate) const NO_STATEMENT: u32 = u32::MAX;

/// The kind of work that a request asks for; it decides the error when the request's fate is
/// unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Read,
    Write,
    /// A schema change or TRUNCATE, which every node has a part in.
    Schema,
    Other,
}

/// The proxy's own work for a request, besides passing it and its answer on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Deliver,
    /// PREPARE: remember the statement.
    Learn,
    /// A read of `system.local` or `system.peers`: show the proxy instead of the node.
    Rewrite(SystemTable),
    /// A read of rows that are each node's own: its pages stay with one node.
    Local,
    /// Schema change: wait until the nodes agree.
    Agree,
    /// Not understood: see that it did not change the shared connection's keyspace.
    Inspect,
    /// USE: changes the client's pool and is never sent on a shared link.
    Use,
    /// About locks, or perhaps: read by itself, and answered by the proxy.
    Lock,
    /// A transaction: carried out by the proxies.
    Transaction,
    /// A read of several partitions: asked in parts, if that is the same.
    Multiget,
    /// It names a statement that nobody prepared here: not sent, the client is asked to prepare it.
    Unprepared,
}

impl After {
    /// True if the request is not simply sent to the node that it is for.
    #[inline]
    pub(crate) fn is_for_the_proxy(self) -> bool {
        matches!(
            self,
            After::Use
                | After::Unprepared
                | After::Local
                | After::Lock
                | After::Transaction
                | After::Multiget
        )
    }
}

/// The facts about one request; small, because they lie in the stream table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) placement: Option<(KeyspaceIndex, Token)>,
    /// Generation of the routing table `placement` belongs to.
    pub(crate) generation: u32,
    /// The only node it may go to.
    pub(crate) node: Option<NodeId>,
    pub(crate) work: Work,
    pub(crate) kind: QueryKind,
    /// A lightweight transaction (IF).
    pub(crate) conditional: bool,
    /// Not put into one frame or segment with others: conditional or a range read, which would hold
    /// them up; or one that a node may be unable to read, two of which in one segment would end the
    /// connection.
    pub(crate) alone: bool,
    pub(crate) after: After,
    /// The prepared statement executed, in the core's table.
    pub(crate) statement: u32,
    pub(crate) consistency: u16,
}

impl Plan {
    /// The plan of a request nothing is known about.
    pub(crate) fn anywhere() -> Self {
        Self {
            placement: None,
            generation: 0,
            node: None,
            work: Work::Other,
            kind: QueryKind::Other,
            conditional: false,
            alone: true,
            after: After::Deliver,
            statement: NO_STATEMENT,
            consistency: 0,
        }
    }
}

/// The kind of work that a kind of statement asks for.
pub(crate) fn work_of(kind: Kind) -> Work {
    match kind {
        Kind::Select => Work::Read,
        Kind::Insert | Kind::Update | Kind::Delete | Kind::Batch => Work::Write,
        Kind::Ddl | Kind::Truncate => Work::Schema,
        Kind::Use | Kind::Transaction | Kind::Other => Work::Other,
    }
}

/// The proxy's own work for a statement; `keyspace` is that of its unqualified names.
pub(crate) fn after_of(parsed: &Statement<'_>, keyspace: Option<&str>) -> After {
    match parsed.kind {
        Kind::Use => After::Use,
        Kind::Ddl => After::Agree,
        Kind::Select => match SystemTable::of(parsed, keyspace) {
            Some(table) => After::Rewrite(table),
            None if reads_local_rows(parsed, keyspace) => After::Local,
            None => After::Deliver,
        },
        Kind::Insert | Kind::Update | Kind::Delete | Kind::Batch | Kind::Truncate => After::Deliver,
        Kind::Transaction | Kind::Other => After::Inspect,
    }
}

/// A table whose rows are rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SystemTable {
    Local,
    /// Without ports.
    Peers,
    /// With ports; since Cassandra 4.0.
    PeersV2,
}

impl SystemTable {
    /// The table a SELECT reads, if it is one of these; `session` is the keyspace of unqualified
    /// names.
    pub(crate) fn of(parsed: &Statement<'_>, session: Option<&str>) -> Option<SystemTable> {
        let (keyspace, table) = parsed.selected_table()?;
        if !keyspace.or(session.map(Identifier::exact))?.matches("system") {
            return None;
        }
        if table.matches("local") {
            Some(SystemTable::Local)
        } else if table.matches("peers") {
            Some(SystemTable::Peers)
        } else if table.matches("peers_v2") {
            Some(SystemTable::PeersV2)
        } else {
            None
        }
    }
}

/// Keyspaces whose tables are each node's own, as `LocalStrategy` and virtual tables are.
const LOCAL_KEYSPACES: [&str; 5] =
    ["system", "system_schema", "system_views", "system_virtual_schema", "system_metrics"];

/// True if a SELECT reads rows that are each node's own; `session` is the keyspace of unqualified
/// names.
pub(crate) fn reads_local_rows(parsed: &Statement<'_>, session: Option<&str>) -> bool {
    let Some((keyspace, _)) = parsed.selected_table() else { return false };
    let keyspace = keyspace.or(session.map(Identifier::exact));
    keyspace.is_some_and(|keyspace| LOCAL_KEYSPACES.iter().any(|local| keyspace.matches(local)))
}
