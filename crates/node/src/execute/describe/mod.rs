//! DESCRIBE, as Cassandra's server answers it: names of objects, or the statements that create
//! them.
//!
//! A row describes one keyspace, type, table or index. The node has no functions, aggregates and
//! materialized views: lists of them are empty, and none is ever found.

mod create;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use shunt_language::ast::{Describe, DescribeTarget, QualifiedName, quoted_name};
use shunt_language::types::{CqlType, UserType};
use shunt_language::values::split;
use shunt_wire::cql::message::encode_result::{RowsWriter, native};

use crate::cluster::ClusterInfo;
use crate::error::CqlError;
use crate::schema::change::SYSTEM_KEYSPACES;
use crate::schema::{Index, Keyspace, Schema, Table};

/// Keyspace and table in the metadata of the results.
const RESULT: (&str, &str) = ("system", "describe");

/// `map<text, list<text>>` as a type `[option]`.
const MAP_OF_TEXT_TO_LIST: &[u8] = &[0, 0x21, 0, 0x0D, 0, 0x20, 0, 0x0D];

/// A named object that can be created.
#[derive(Clone, Copy)]
enum Object<'s> {
    Keyspace(&'s Keyspace),
    Type(&'s UserType),
    Table(&'s Table),
    Index(&'s Table, &'s Index),
}

impl<'s> Object<'s> {
    /// Keyspace and name of the object.
    fn names(self) -> (&'s str, &'s str) {
        match self {
            Object::Keyspace(keyspace) => (&keyspace.name, &keyspace.name),
            Object::Type(definition) => (&definition.keyspace, &definition.name),
            Object::Table(table) => (&table.keyspace, &table.name),
            Object::Index(table, index) => (&table.keyspace, &index.name),
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Object::Keyspace(_) => "keyspace",
            Object::Type(_) => "type",
            Object::Table(_) => "table",
            Object::Index(..) => "index",
        }
    }

    fn create_statement(self, with_internals: bool) -> String {
        match self {
            Object::Keyspace(keyspace) => create::keyspace(keyspace),
            Object::Type(definition) => create::user_type(definition),
            Object::Table(table) => create::table(table, with_internals),
            Object::Index(table, index) => create::index(table, index),
        }
    }
}

/// Subject of a DESCRIBE.
enum Described<'s> {
    /// Only names.
    Names(Vec<Object<'s>>),
    /// Names and the statements that create them.
    Statements(Vec<Object<'s>>),
    /// The cluster and, for a client that uses a keyspace, the owners of its parts.
    Cluster { ranges: bool },
}

/// Appends the answer to DESCRIBE for a client that uses the keyspace `session`.
///
/// # Errors
/// The object does not exist.
pub(super) fn run(
    describe: &Describe,
    session: Option<&str>,
    schema: &Schema,
    cluster: &ClusterInfo,
    out: &mut Vec<u8>,
) -> Result<(), CqlError> {
    match find(&describe.target, session, schema)? {
        Described::Names(objects) => put_objects(&objects, None, out),
        Described::Statements(objects) => put_objects(&objects, Some(describe.with_internals), out),
        Described::Cluster { ranges } => put_cluster(cluster, ranges, out),
    }
    Ok(())
}

/// Rows of objects; with their statements if `with_internals` is given.
fn put_objects(objects: &[Object<'_>], with_internals: Option<bool>, out: &mut Vec<u8>) {
    let columns =
        ["keyspace_name", "type", "name", "create_statement"].map(|name| (name, native::TEXT));
    let columns = if with_internals.is_some() { &columns[..] } else { &columns[..3] };
    let mut rows = RowsWriter::new(out, RESULT.0, RESULT.1, columns);
    for object in objects {
        let (keyspace, name) = object.names();
        for value in [&quoted_name(keyspace), object.kind(), &quoted_name(name)] {
            rows.value(Some(value.as_bytes()));
        }
        if let Some(with_internals) = with_internals {
            rows.value(Some(object.create_statement(with_internals).as_bytes()));
        }
    }
    rows.finish();
}

fn put_cluster(cluster: &ClusterInfo, ranges: bool, out: &mut Vec<u8>) {
    let text = |name| (name, native::TEXT);
    let columns = [
        text("cluster"),
        text("partitioner"),
        text("snitch"),
        ("range_ownership", MAP_OF_TEXT_TO_LIST),
    ];
    let columns = if ranges { &columns[..] } else { &columns[..3] };
    let mut rows = RowsWriter::new(out, RESULT.0, RESULT.1, columns);
    // All nodes are in one rack of one datacentre, as with the simple snitch.
    for value in [cluster.name.as_str(), "Murmur3Partitioner", "SimpleSnitch"] {
        rows.value(Some(value.as_bytes()));
    }
    if ranges {
        let owners = owners(cluster);
        let parts = owners.iter().flat_map(|(end, owner)| {
            let owner = split::join_collection(1, [owner_text(*owner)]);
            [end.as_bytes().to_vec(), owner]
        });
        rows.value(Some(&split::join_collection(owners.len(), parts)));
    }
    rows.finish();
}

/// Ends of token ranges as texts, and the address of their one owner.
fn owners(cluster: &ClusterInfo) -> BTreeMap<String, SocketAddr> {
    let ends = cluster
        .nodes
        .iter()
        .flat_map(|node| node.tokens.iter().map(|end| (end.to_string(), node.address)));
    ends.collect()
}

/// Formats an address without a host name like Java. The port is the clients' port: nodes have no
/// other, and it distinguishes nodes with one address.
fn owner_text(address: SocketAddr) -> String {
    format!("/{address}")
}

fn find<'s>(
    target: &DescribeTarget,
    session: Option<&str>,
    schema: &'s Schema,
) -> Result<Described<'s>, CqlError> {
    let in_keyspace = |name: &QualifiedName| keyspace_of(name.keyspace.as_deref(), session, schema);
    let absent = |name: &QualifiedName, kind: &str| {
        let keyspace = in_keyspace(name)?;
        Err(CqlError::Invalid(format!("{kind} '{}' not found in '{}'", name.name, keyspace.name)))
    };
    match target {
        DescribeTarget::Cluster => {
            let used = session.filter(|name| !SYSTEM_KEYSPACES.contains(name));
            let ranges = used.map(|name| keyspace(name, schema)).transpose()?.is_some();
            Ok(Described::Cluster { ranges })
        }
        DescribeTarget::Keyspaces => {
            Ok(Described::Names(keyspaces(schema).map(Object::Keyspace).collect()))
        }
        DescribeTarget::Schema { full } => {
            let shown =
                |keyspace: &&Keyspace| *full || !SYSTEM_KEYSPACES.contains(&keyspace.name.as_str());
            Ok(Described::Statements(keyspaces(schema).filter(shown).flat_map(all_of).collect()))
        }
        DescribeTarget::Keyspace { name, only } => {
            let found = keyspace_of(name.as_deref(), session, schema)?;
            Ok(Described::Statements(if *only {
                vec![Object::Keyspace(found)]
            } else {
                all_of(found)
            }))
        }
        DescribeTarget::Tables => names(session, schema, |keyspace| tables(keyspace).collect()),
        DescribeTarget::Types => names(session, schema, |keyspace| {
            by_name(keyspace.types.values().map(|definition| Object::Type(definition)))
        }),
        DescribeTarget::Functions | DescribeTarget::Aggregates => {
            names(session, schema, |_| Vec::new())
        }
        DescribeTarget::Table(name) => {
            let message = |keyspace: &Keyspace| {
                format!("Table '{}' not found in keyspace '{}'", name.name, keyspace.name)
            };
            table(in_keyspace(name)?, &name.name, message)
        }
        DescribeTarget::Type(name) => match in_keyspace(name)?.types.get(&name.name) {
            Some(definition) => Ok(Described::Statements(vec![Object::Type(definition)])),
            None => absent(name, "User defined type"),
        },
        DescribeTarget::Index(name) => match index(in_keyspace(name)?, &name.name) {
            Some(found) => Ok(Described::Statements(vec![found])),
            None => absent(name, "Table for existing index"),
        },
        DescribeTarget::View(name) => absent(name, "Materialized view"),
        DescribeTarget::Function(name) => absent(name, "User defined function"),
        DescribeTarget::Aggregate(name) => absent(name, "User defined aggregate"),
        DescribeTarget::Any(name) => any(name, session, schema),
    }
}

/// Finds the object of a bare name: a keyspace, else a table of the keyspace in use, else an index.
fn any<'s>(
    name: &QualifiedName,
    session: Option<&str>,
    schema: &'s Schema,
) -> Result<Described<'s>, CqlError> {
    if let (None, Some(found)) = (&name.keyspace, schema.keyspace(&name.name)) {
        return Ok(Described::Statements(all_of(found)));
    }
    let in_keyspace = name.keyspace.as_deref().or(session).unwrap_or(&name.name);
    let message =
        |keyspace: &Keyspace| format!("'{}' not found in keyspace '{}'", name.name, keyspace.name);
    let found = keyspace(in_keyspace, schema)?;
    match index(found, &name.name).filter(|_| !found.tables.contains_key(&name.name)) {
        Some(index) => Ok(Described::Statements(vec![index])),
        None => table(found, &name.name, message),
    }
}

fn index<'s>(keyspace: &'s Keyspace, name: &str) -> Option<Object<'s>> {
    let table = keyspace.table_of_index(name)?;
    table.indexes.iter().find(|index| index.name == name).map(|index| Object::Index(table, index))
}

fn table<'s>(
    keyspace: &'s Keyspace,
    name: &str,
    message: impl Fn(&Keyspace) -> String,
) -> Result<Described<'s>, CqlError> {
    let found = keyspace.tables.get(name).ok_or_else(|| CqlError::Invalid(message(keyspace)))?;
    Ok(Described::Statements(with_indexes(found)))
}

fn keyspace<'s>(name: &str, schema: &'s Schema) -> Result<&'s Keyspace, CqlError> {
    let found = schema.keyspace(name).map(AsRef::as_ref);
    found.ok_or_else(|| CqlError::Invalid(format!("'{name}' not found in keyspaces")))
}

/// The keyspace that a statement names, or the one in use.
fn keyspace_of<'s>(
    name: Option<&str>,
    session: Option<&str>,
    schema: &'s Schema,
) -> Result<&'s Keyspace, CqlError> {
    let name = name.or(session);
    keyspace(
        name.ok_or_else(|| CqlError::invalid("No keyspace specified and no current keyspace"))?,
        schema,
    )
}

/// Lists the names that `of` finds in the keyspace in use, or in all keyspaces.
fn names<'s>(
    session: Option<&str>,
    schema: &'s Schema,
    of: impl Fn(&'s Keyspace) -> Vec<Object<'s>>,
) -> Result<Described<'s>, CqlError> {
    Ok(Described::Names(match session {
        Some(name) => of(keyspace(name, schema)?),
        None => keyspaces(schema).flat_map(of).collect(),
    }))
}

fn keyspaces(schema: &Schema) -> impl Iterator<Item = &Keyspace> {
    let sorted = by_name(schema.keyspaces.values().map(|keyspace| Object::Keyspace(keyspace)));
    sorted.into_iter().filter_map(|object| match object {
        Object::Keyspace(keyspace) => Some(keyspace),
        _ => None,
    })
}

fn tables(keyspace: &Keyspace) -> impl Iterator<Item = Object<'_>> {
    by_name(keyspace.tables.values().map(|table| Object::Table(table))).into_iter()
}

/// A table and its indexes.
fn with_indexes(table: &Table) -> Vec<Object<'_>> {
    let mut objects = vec![Object::Table(table)];
    objects.extend(by_name(table.indexes.iter().map(|index| Object::Index(table, index))));
    objects
}

/// Sorts by name without regard to case.
fn by_name<'s>(objects: impl Iterator<Item = Object<'s>>) -> Vec<Object<'s>> {
    let mut objects: Vec<_> = objects.collect();
    objects.sort_by_cached_key(|object| object.names().1.to_lowercase());
    objects
}

/// A keyspace and its content, in an order in which it can be created.
fn all_of(keyspace: &Keyspace) -> Vec<Object<'_>> {
    let mut objects = vec![Object::Keyspace(keyspace)];
    let mut types: Vec<&UserType> = Vec::new();
    keyspace.types.values().for_each(|definition| add_type(definition, keyspace, &mut types));
    objects.extend(types.into_iter().map(Object::Type));
    for object in tables(keyspace) {
        match object {
            Object::Table(table) => objects.extend(with_indexes(table)),
            other => objects.push(other),
        }
    }
    objects
}

/// Appends a type after the types that it uses. Terminates because no statement can create circular
/// types.
fn add_type<'s>(definition: &'s UserType, keyspace: &'s Keyspace, types: &mut Vec<&'s UserType>) {
    if types.iter().any(|known| known.name == definition.name) {
        return;
    }
    definition.fields.iter().for_each(|(_, field)| add_types_in(field, keyspace, types));
    types.push(definition);
}

fn add_types_in<'s>(cql_type: &CqlType, keyspace: &'s Keyspace, types: &mut Vec<&'s UserType>) {
    match cql_type {
        CqlType::List { element, .. }
        | CqlType::Set { element, .. }
        | CqlType::Vector { element, .. } => {
            add_types_in(element, keyspace, types);
        }
        CqlType::Map { key, value, .. } => {
            [key, value].iter().for_each(|inner| add_types_in(inner, keyspace, types))
        }
        CqlType::Tuple(elements) => {
            elements.iter().for_each(|element| add_types_in(element, keyspace, types))
        }
        CqlType::Udt { definition, .. } => {
            // Uses the keyspace's definition: the one in the field is frozen at every level.
            if let Some(own) = keyspace.types.get(&definition.name) {
                add_type(own, keyspace, types);
            }
        }
        CqlType::Native(_) | CqlType::Custom(_) => {}
    }
}
