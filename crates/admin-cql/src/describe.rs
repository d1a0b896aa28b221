//! DESCRIBE, which cqlsh sends to servers of this version: names of keyspaces and tables, or the
//! statements that would create them.

use shunt_language::ast::{Describe, DescribeTarget, QualifiedName};
use shunt_wire::cql::message::encode_result::{RowsWriter, native};

use crate::fault::Fault;
use crate::schema::{CLUSTER, create_keyspace, create_table, is_admin};
use crate::tables::{self, KEYSPACES, Table};

/// A keyspace or a table.
enum Object {
    Keyspace(&'static str),
    Table(&'static Table),
}

/// Appends the answer to a client that uses the keyspace `session`.
///
/// # Errors
/// The keyspace or table does not exist.
pub(crate) fn answer(
    describe: &Describe,
    session: Option<&str>,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    match &describe.target {
        DescribeTarget::Cluster => put_cluster(out),
        DescribeTarget::Keyspaces => put(KEYSPACES.into_iter().map(Object::Keyspace), false, out),
        DescribeTarget::Schema { full } => {
            let shown = KEYSPACES.into_iter().filter(|name| *full || is_admin(name));
            put(shown.flat_map(content), true, out);
        }
        DescribeTarget::Keyspace { name, only } => {
            let found = keyspace(name.as_deref().or(session))?;
            put(content(found).take(if *only { 1 } else { usize::MAX }), true, out);
        }
        DescribeTarget::Tables => {
            let used = session.map(|name| keyspace(Some(name))).transpose()?;
            let shown =
                tables::all().filter(|table| used.is_none_or(|name| table.keyspace == name));
            put(shown.map(Object::Table), false, out);
        }
        DescribeTarget::Table(name) => put([table(name, session)?].into_iter(), true, out),
        DescribeTarget::Any(name) => match keyspace(Some(&name.name)) {
            Ok(found) if name.keyspace.is_none() => put(content(found), true, out),
            _ => put([table(name, session)?].into_iter(), true, out),
        },
        DescribeTarget::Types | DescribeTarget::Functions | DescribeTarget::Aggregates => {
            put(std::iter::empty(), false, out);
        }
        DescribeTarget::Index(name)
        | DescribeTarget::View(name)
        | DescribeTarget::Type(name)
        | DescribeTarget::Function(name)
        | DescribeTarget::Aggregate(name) => {
            let name = &name.name;
            return Err(Fault::invalid(format!(
                "'{name}' not found: the admin address has only keyspaces and tables"
            )));
        }
    }
    Ok(())
}

/// A keyspace and its tables.
fn content(name: &'static str) -> impl Iterator<Item = Object> {
    let tables = tables::all().filter(move |table| table.keyspace == name);
    std::iter::once(Object::Keyspace(name)).chain(tables.map(Object::Table))
}

fn keyspace(name: Option<&str>) -> Result<&'static str, Fault> {
    let name =
        name.ok_or_else(|| Fault::invalid("No keyspace specified and no current keyspace"))?;
    let found = KEYSPACES.into_iter().find(|known| *known == name);
    found.ok_or_else(|| Fault::invalid(format!("'{name}' not found in keyspaces")))
}

fn table(name: &QualifiedName, session: Option<&str>) -> Result<Object, Fault> {
    let keyspace = keyspace(name.keyspace.as_deref().or(session))?;
    tables::find(keyspace, &name.name).map(Object::Table)
}

/// Rows of objects; with their statements if wanted.
fn put(objects: impl Iterator<Item = Object>, with_statements: bool, out: &mut Vec<u8>) {
    let columns =
        ["keyspace_name", "type", "name", "create_statement"].map(|name| (name, native::TEXT));
    let columns = if with_statements { &columns[..] } else { &columns[..3] };
    let mut rows = RowsWriter::new(out, "system", "describe", columns);
    for object in objects {
        let (keyspace, kind, name) = match object {
            Object::Keyspace(name) => (name, "keyspace", name),
            Object::Table(table) => (table.keyspace, "table", table.name),
        };
        for value in [keyspace, kind, name] {
            rows.value(Some(value.as_bytes()));
        }
        if with_statements {
            let statement = match object {
                Object::Keyspace(name) => create_keyspace(name),
                Object::Table(table) => create_table(table),
            };
            rows.value(Some(statement.as_bytes()));
        }
    }
    rows.finish();
}

fn put_cluster(out: &mut Vec<u8>) {
    let columns = ["cluster", "partitioner", "snitch"].map(|name| (name, native::TEXT));
    let mut rows = RowsWriter::new(out, "system", "describe", &columns);
    for value in [CLUSTER, "Murmur3Partitioner", "SimpleSnitch"] {
        rows.value(Some(value.as_bytes()));
    }
    rows.finish();
}
