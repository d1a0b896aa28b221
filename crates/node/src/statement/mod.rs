//! Prepared statements: names resolved in the schema, values checked against types, reads and
//! writes determined.

pub(crate) mod mutation;
mod prepare;
pub(crate) mod restrictions;
pub(crate) mod select;

use shunt_language::ast::{Describe, QualifiedName, SchemaStatement};
use shunt_language::types::CqlType;

use crate::schema::Uuid;
use mutation::{BatchPlan, MutationPlan};
use select::SelectPlan;

/// A bind marker as shown in metadata.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Marker {
    /// Keyspace and table of the marker.
    pub(crate) table: (String, String),
    pub(crate) name: String,
    pub(crate) cql_type: CqlType,
}

/// A column of a result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ResultColumn {
    pub(crate) keyspace: String,
    pub(crate) table: String,
    pub(crate) name: String,
    pub(crate) cql_type: CqlType,
}

/// Work of a statement.
pub(crate) enum Plan {
    Select(Box<SelectPlan>),
    Mutation(Box<MutationPlan>),
    Batch(Box<BatchPlan>),
    Truncate(QualifiedName),
    Use(String),
    Schema(Box<SchemaStatement>),
    Describe(Describe),
}

/// An executable statement.
pub(crate) struct Statement {
    /// MD5 of the keyspace and the text.
    pub(crate) id: [u8; 16],
    pub(crate) text: String,
    /// Keyspace of unqualified names.
    pub(crate) keyspace: Option<String>,
    /// Number of the schema it was prepared for ([`crate::schema::Schema::number`]).
    pub(crate) schema_number: u64,
    pub(crate) markers: Vec<Marker>,
    /// Indexes of the markers of the partition key, in key order; empty if the key has other terms.
    pub(crate) key_markers: Vec<u16>,
    /// Columns of the result; empty if it has no rows.
    pub(crate) result: Vec<ResultColumn>,
    /// Changes when `result` does.
    pub(crate) result_id: Uuid,
    pub(crate) plan: Plan,
}

impl Statement {
    /// True if a client sees no difference between two preparations of a text.
    pub(crate) fn looks_as(&self, other: &Statement) -> bool {
        self.result == other.result
            && self.key_markers == other.key_markers
            && self.markers == other.markers
    }

    /// The name of a marker, for values by name.
    pub(crate) fn marker_name(&self, index: u16) -> Option<&str> {
        self.markers.get(usize::from(index)).map(|marker| marker.name.as_str())
    }
}
