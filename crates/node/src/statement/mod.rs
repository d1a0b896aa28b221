//! Statements, looked at once: names found in the schema, values checked against types, what they
//! read or write known.

pub(crate) mod mutation;
mod prepare;
pub(crate) mod restrictions;
pub(crate) mod select;

use shunt_language::ast::{Describe, QualifiedName, SchemaStatement};
use shunt_language::types::CqlType;

use crate::schema::Uuid;
use mutation::{BatchPlan, MutationPlan};
use select::SelectPlan;

/// A bind marker as metadata show it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Marker {
    /// Keyspace and table it is for.
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

/// The work of a statement.
pub(crate) enum Plan {
    Select(Box<SelectPlan>),
    Mutation(Box<MutationPlan>),
    Batch(Box<BatchPlan>),
    Truncate(QualifiedName),
    Use(String),
    Schema(Box<SchemaStatement>),
    Describe(Describe),
}

/// A statement that can be executed.
pub(crate) struct Statement {
    /// MD5 of the keyspace and the text.
    pub(crate) id: [u8; 16],
    pub(crate) text: String,
    /// Keyspace that unqualified names are in.
    pub(crate) keyspace: Option<String>,
    /// The schema it was prepared for ([`crate::schema::Schema::number`]).
    pub(crate) schema_number: u64,
    pub(crate) markers: Vec<Marker>,
    /// Which markers are the partition key, in its order; empty if they are not all markers.
    pub(crate) key_markers: Vec<u16>,
    /// Columns of its result, if it has rows.
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

    /// The name of a marker; values may come by it.
    pub(crate) fn marker_name(&self, index: u16) -> Option<&str> {
        self.markers.get(usize::from(index)).map(|marker| marker.name.as_str())
    }
}
