//! EVENT, and the schema change, which is also a result (v5, sections 4.2.6 and 4.2.5.5).

use std::net::SocketAddr;

use super::collections::StringList;
use super::primitive::Reader;
use super::put;
use crate::error::DecodeError;

/// A view of an EVENT body; also the input of its encoder.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event<'a> {
    /// A node joined or left.
    TopologyChange {
        /// `NEW_NODE` or `REMOVED_NODE`; some servers send `MOVED_NODE` too.
        change: &'a str,
        /// Address of the node.
        address: SocketAddr,
    },
    /// A node came up or went down.
    StatusChange {
        /// `UP` or `DOWN`.
        change: &'a str,
        /// Address of the node.
        address: SocketAddr,
    },
    /// The schema changed.
    SchemaChange(SchemaChange<'a>),
    /// An event of a kind that no specification lists.
    Other {
        /// The kind.
        kind: &'a str,
        /// The bytes that follow the kind.
        rest: &'a [u8],
    },
}

/// A change of the schema.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SchemaChange<'a> {
    /// `CREATED`, `UPDATED` or `DROPPED`.
    pub change: &'a str,
    /// `KEYSPACE`, `TABLE`, `TYPE`, `FUNCTION` or `AGGREGATE`.
    pub target: &'a str,
    /// The keyspace.
    pub keyspace: &'a str,
    /// Name of the changed item in the keyspace; `None` for `KEYSPACE`.
    pub name: Option<&'a str>,
    /// CQL types of the arguments, for `FUNCTION` and `AGGREGATE`.
    pub arguments: Option<StringList<'a>>,
}

/// Event kind of nodes that join and leave, as REGISTER and EVENT write it.
pub const TOPOLOGY_CHANGE: &str = "TOPOLOGY_CHANGE";
/// Event kind of nodes that go up and down.
pub const STATUS_CHANGE: &str = "STATUS_CHANGE";
/// Event kind of schema changes.
pub const SCHEMA_CHANGE: &str = "SCHEMA_CHANGE";

impl<'a> Event<'a> {
    /// Reads an EVENT body.
    ///
    /// # Errors
    /// If a part of a known kind of event is missing or invalid.
    pub fn decode(body: &'a [u8]) -> Result<Event<'a>, DecodeError> {
        let mut reader = Reader::new(body);
        Ok(match reader.string("event kind")? {
            TOPOLOGY_CHANGE => Event::TopologyChange {
                change: reader.string("change")?,
                address: reader.inet("node address")?,
            },
            STATUS_CHANGE => Event::StatusChange {
                change: reader.string("change")?,
                address: reader.inet("node address")?,
            },
            SCHEMA_CHANGE => Event::SchemaChange(SchemaChange::read(&mut reader)?),
            kind => Event::Other { kind, rest: reader.rest() },
        })
    }

    /// The kind under which clients register for the event.
    pub fn kind(&self) -> &'a str {
        match *self {
            Event::TopologyChange { .. } => TOPOLOGY_CHANGE,
            Event::StatusChange { .. } => STATUS_CHANGE,
            Event::SchemaChange(_) => SCHEMA_CHANGE,
            Event::Other { kind, .. } => kind,
        }
    }

    /// Appends the body of the event.
    pub fn put(&self, out: &mut Vec<u8>) {
        put::string(out, self.kind());
        match *self {
            Event::TopologyChange { change, address } | Event::StatusChange { change, address } => {
                put::string(out, change);
                put::inet(out, address);
            }
            Event::SchemaChange(change) => change.put(out),
            Event::Other { rest, .. } => out.extend_from_slice(rest),
        }
    }
}

impl<'a> SchemaChange<'a> {
    /// Reads the parts after the event kind, or after the result kind.
    ///
    /// # Errors
    /// If a part is missing or invalid. A target that no specification lists is read like a table.
    pub fn read(reader: &mut Reader<'a>) -> Result<SchemaChange<'a>, DecodeError> {
        let change = reader.string("change")?;
        let target = reader.string("target")?;
        let keyspace = reader.string("keyspace")?;
        let name = if target == "KEYSPACE" { None } else { Some(reader.string("name")?) };
        let arguments = match target {
            "FUNCTION" | "AGGREGATE" => Some(reader.string_list("argument types")?),
            _ => None,
        };
        Ok(SchemaChange { change, target, keyspace, name, arguments })
    }

    /// Appends the parts. The parts present must match the target.
    pub fn put(&self, out: &mut Vec<u8>) {
        put::string(out, self.change);
        put::string(out, self.target);
        put::string(out, self.keyspace);
        if let Some(name) = self.name {
            put::string(out, name);
        }
        if let Some(arguments) = self.arguments {
            put::string_list(out, arguments.iter());
        }
    }
}
