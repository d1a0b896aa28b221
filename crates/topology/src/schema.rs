//! The parts of the ring's schema that routing and retries need: replication of keyspaces,
//! partition keys and kinds of columns of tables.

pub use shunt_wire::cql::statement::{Cells, ColumnKind};
pub use shunt_wire::cql::types::Column;

/// A keyspace and its replication.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Keyspace {
    /// Name as stored (case-sensitive).
    pub name: String,
    /// Replication setting from `system_schema.keyspaces.replication`.
    pub replication: Replication,
}

/// A table, its partition key and its columns.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Table {
    /// Keyspace name as stored.
    pub keyspace: String,
    /// Table name as stored.
    pub name: String,
    /// Partition key columns in order of `system_schema.columns.position`.
    pub partition_key: Vec<Column>,
    /// Properties that decide which writes may be repeated.
    pub cells: Cells,
}

/// Number of replicas; `transient` of them keep data only until it is repaired (`'3/1'`). A
/// transient replica cannot answer a read alone, so it gets no queries.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct Factor {
    /// Total number of replicas.
    pub all: u16,
    /// Number of transient replicas.
    pub transient: u16,
}

impl Factor {
    /// Parses `"3"` or `"3/1"` (all / transient).
    #[must_use]
    pub fn parse(text: &str) -> Option<Factor> {
        let (all, transient) = match text.split_once('/') {
            Some((all, transient)) => (all, transient.trim().parse().ok()?),
            None => (text, 0),
        };
        let all = all.trim().parse().ok()?;
        (transient <= all).then_some(Factor { all, transient })
    }
}

/// Replication strategy of a keyspace.
#[derive(Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Replication {
    /// `SimpleStrategy`: the next nodes on the ring, whatever their datacentre.
    Simple(Factor),
    /// `NetworkTopologyStrategy`: a factor per datacentre, spread over its racks. Sorted by
    /// datacentre name.
    NetworkTopology(Vec<(String, Factor)>),
    /// `EverywhereStrategy`: every node is a replica.
    Everywhere,
    /// `LocalStrategy`: every node has its own rows; no token routing.
    Local,
    /// An unknown strategy: no token routing.
    Unknown,
}

impl Replication {
    /// Reads the replication map: `class` (with or without its Java package) and the strategy's
    /// options. Unreadable options give [`Replication::Unknown`], never wrong replicas.
    pub fn parse<'a>(options: impl IntoIterator<Item = (&'a str, &'a str)>) -> Replication {
        let mut class = "";
        let mut factors = Vec::new();
        let mut readable = true;
        for (key, value) in options {
            match (key, Factor::parse(value)) {
                ("class", _) => class = value.rsplit('.').next().unwrap_or(value),
                (_, Some(factor)) => factors.push((key.to_owned(), factor)),
                _ => readable = false,
            }
        }
        factors.sort();
        match (class, &factors[..]) {
            ("LocalStrategy", _) => Replication::Local,
            ("EverywhereStrategy", _) => Replication::Everywhere,
            ("SimpleStrategy", [(name, factor)]) if readable && name == "replication_factor" => {
                Replication::Simple(*factor)
            }
            ("NetworkTopologyStrategy", _) if readable => Replication::NetworkTopology(factors),
            _ => Replication::Unknown,
        }
    }
}
