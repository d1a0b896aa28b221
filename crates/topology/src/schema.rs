//! The part of the ring's schema that routing and repeating need: replication of keyspaces,
//! partition keys and kinds of columns of tables.

pub use shunt_wire::cql::statement::{Cells, ColumnKind};
pub use shunt_wire::cql::types::Column;

/// One keyspace and where it keeps its replicas.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Keyspace {
    /// Name as stored (case-sensitive).
    pub name: String,
    /// From `system_schema.keyspaces.replication`.
    pub replication: Replication,
}

/// One table, its partition key and its columns.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Table {
    /// Keyspace name as stored.
    pub keyspace: String,
    /// Table name as stored.
    pub name: String,
    /// Partition key columns in order of `system_schema.columns.position`.
    pub partition_key: Vec<Column>,
    /// The properties that decide which writes may be repeated.
    pub cells: Cells,
}

/// How many replicas, of which `transient` keep data only until it is repaired (`'3/1'`). A
/// transient replica cannot answer a read by itself, so queries are not sent there.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct Factor {
    /// Replicas in all.
    pub all: u16,
    /// The transient ones among them.
    pub transient: u16,
}

impl Factor {
    /// `"3"` or `"3/1"` (all / transient).
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
    /// `NetworkTopologyStrategy`: so many per datacentre, spread over its racks. Sorted by
    /// datacentre name.
    NetworkTopology(Vec<(String, Factor)>),
    /// `EverywhereStrategy`: every node is a replica.
    Everywhere,
    /// `LocalStrategy`: every node has its own rows; no token routing.
    Local,
    /// A strategy this proxy does not know: no token routing.
    Unknown,
}

impl Replication {
    /// Reads the replication map: `class` (with or without its Java package) and the strategy's
    /// options. What cannot be read gives [`Replication::Unknown`], never wrong replicas.
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
