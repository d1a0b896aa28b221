//! The plan of a request: the facts known from its text or its prepared statement.

use shunt_topology::{KeyspaceIndex, NodeId, Token};
use shunt_transactions::catalogue::mentions::Mentions;
use shunt_wire::cql::statement::{self, Identifier, Kind, Statement};

use shunt_admin::RequestKind as QueryKind;

use crate::digests::Digest;
use crate::ids::{Tag, TenantKey};

/// No prepared statement.
pub(crate) const NO_STATEMENT: u32 = u32::MAX;

/// The kind of work that a request asks for; it decides the error when the outcome of the request
/// is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Read,
    Write,
    /// A schema change or TRUNCATE, in which every node takes part.
    Schema,
    Other,
}

/// The proxy's own work for a request, besides forwarding it and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Deliver,
    /// PREPARE: remember the statement.
    Learn,
    /// A read of `system.local` or `system.peers`: show the proxy instead of the node.
    Rewrite(SystemTable),
    /// A read of node-local rows: its pages stay with one node.
    Local,
    /// A schema change: wait until the nodes agree.
    Agree,
    /// A statement that is not understood: check that it did not change the shared connection's
    /// keyspace.
    Inspect,
    /// USE: changes the client's pool and is never sent on a shared link.
    Use,
    /// A statement on locks, or perhaps one: it is read separately, and the proxy answers it.
    Lock,
    /// A transaction, which the proxies execute.
    Transaction,
    /// A read of several partitions: split into parts, if the result is the same.
    Multiget,
    /// A SELECT so long that its table is not read, and the table may show a node: refused.
    Refuse,
    /// A request that names a statement unknown to the proxy: not sent; the client is asked to
    /// prepare it.
    Unprepared,
}

impl After {
    /// True if the proxy does not simply send the request to a node.
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
                | After::Refuse
        )
    }
}

/// The facts about one request; small, because they lie in the stream table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) placement: Option<(KeyspaceIndex, Token)>,
    /// Generation of the routing table that `placement` belongs to.
    pub(crate) generation: u32,
    /// The only node the request may go to.
    pub(crate) node: Option<NodeId>,
    pub(crate) work: Work,
    pub(crate) kind: QueryKind,
    /// A lightweight transaction (IF).
    pub(crate) conditional: bool,
    /// True for a request that shares no frame or segment with others: it is conditional or a range
    /// read, which would hold them up; or a node may be unable to read it, and two of those in one
    /// segment would end the connection.
    pub(crate) alone: bool,
    pub(crate) after: After,
    /// The prepared statement executed, in the core's table.
    pub(crate) statement: u32,
    pub(crate) consistency: u16,
    /// The digest that it counts to.
    pub(crate) digest: Digest,
    /// The tenant at which it counts as in flight, whatever its client does meanwhile; set when it
    /// is sent.
    pub(crate) tenant: TenantKey,
    /// Deadline that a rule has set, milliseconds; 0: none has.
    pub(crate) timeout_ms: u16,
    /// True if a rule keeps it from going to a second replica.
    pub(crate) is_unhedged: bool,
    /// Mark that a rule has set.
    pub(crate) tag: Tag,
}

impl Plan {
    /// The plan of a request about which nothing is known.
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
            digest: Digest::NONE,
            tenant: TenantKey::NONE,
            timeout_ms: 0,
            is_unhedged: false,
            tag: Tag::NONE,
        }
    }
}

// One of them lies in the stream table for each query in flight.
const _: () = assert!(size_of::<Plan>() <= 48);

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
pub(crate) fn after_of(parsed: &Statement<'_>, keyspace: Option<&str>, text: &str) -> After {
    if is_on_admin_tables(parsed) {
        return After::Refuse;
    }
    match parsed.kind {
        Kind::Use => After::Use,
        Kind::Ddl => After::Agree,
        Kind::Select => match SystemTable::of(parsed, keyspace) {
            Some(table) => After::Rewrite(table),
            None if reads_local_rows(parsed, keyspace) => After::Local,
            None if hides_local_rows(parsed, keyspace, text) => After::Refuse,
            None => After::Deliver,
        },
        Kind::Insert | Kind::Update | Kind::Delete | Kind::Batch | Kind::Truncate => After::Deliver,
        Kind::Transaction | Kind::Other => After::Inspect,
    }
}

/// True of a statement on a table that only the address of `admin_cql` has.
pub(crate) fn is_on_admin_tables(parsed: &Statement<'_>) -> bool {
    parsed.keyspace.is_some_and(|keyspace| keyspace.matches("shunt_admin"))
}

/// A table whose rows the proxy rewrites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SystemTable {
    Local,
    /// The table without ports.
    Peers,
    /// The table with ports; since Cassandra 4.0.
    PeersV2,
}

impl SystemTable {
    /// The system table a SELECT reads, if it is one of these; `session` is the keyspace of
    /// unqualified names.
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

/// Keyspaces with node-local tables, such as `LocalStrategy` and virtual tables.
const LOCAL_KEYSPACES: [&str; 5] =
    ["system", "system_schema", "system_views", "system_virtual_schema", "system_metrics"];

/// True if a SELECT reads node-local rows; `session` is the keyspace of unqualified names.
pub(crate) fn reads_local_rows(parsed: &Statement<'_>, session: Option<&str>) -> bool {
    let Some((keyspace, _)) = parsed.selected_table() else { return false };
    let keyspace = keyspace.or(session.map(Identifier::exact));
    keyspace.is_some_and(|keyspace| LOCAL_KEYSPACES.iter().any(|local| keyspace.matches(local)))
}

/// True if a SELECT may read node-local rows, and its table comes so late that it is not read.
fn hides_local_rows(parsed: &Statement<'_>, session: Option<&str>, text: &str) -> bool {
    if parsed.table.is_some() || text.len() <= statement::TEXT_BYTES_MAX {
        return false;
    }
    let names: Mentions<'_> = LOCAL_KEYSPACES.into_iter().collect();
    session.is_some_and(|session| LOCAL_KEYSPACES.contains(&session)) || names.may_be_in(text)
}

#[cfg(test)]
mod tests {
    use shunt_wire::cql::statement::classify;

    use super::*;

    #[test]
    fn statements_on_admin_tables_are_refused() {
        for text in [
            "SELECT count(*) FROM \"shunt_admin\".nodes",
            "DELETE FROM shunt_admin.client_groups WHERE role = 'a'",
            "UPDATE Shunt_Admin.settings SET value = 'a' WHERE name = 'log'",
            "INSERT INTO shunt_admin.settings (name) VALUES ('a')",
            "TRUNCATE TABLE shunt_admin.nodes",
        ] {
            assert_eq!(after_of(&classify(text), None, text), After::Refuse, "{text}");
        }
        let own = "SELECT * FROM shop.shunt_admin";
        assert_eq!(after_of(&classify(own), None, own), After::Deliver);
    }
}
