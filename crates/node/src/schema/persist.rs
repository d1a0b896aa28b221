//! The schema on disk: one JSON file, replaced as a whole. A change is answered after its file is
//! durable, so an acknowledged schema survives a crash, and an unacknowledged one is whole or
//! absent.
//!
//! The first line has a checksum of the rest: a corrupted name or number would show the data of one
//! table as that of another. Files of format 1 have none.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shunt_language::ast::IndexTarget;
use shunt_language::types::{CqlType, UserType};
use shunt_storage::files::{self, ReplaceError};
use shunt_storage::row::{ColumnId, TableId};

use super::change::SYSTEM_KEYSPACES;
use super::resolve::Types;
use super::{
    Column, ColumnKind, DroppedColumn, Durability, Index, Keyspace, Schema, Table, TableOptions,
    Uuid,
};

/// Format version of a file with indexes. A file without indexes has the previous version, so that
/// a program without support for indexes reads it. Such a program refuses a file whose indexes it
/// would lose.
const FORMAT: u32 = 3;
/// The version before indexes.
const FORMAT_UNINDEXED: u32 = 2;
/// The version before checksums.
const FORMAT_UNCHECKED: u32 = 1;
/// File name in the data directory.
pub(crate) const FILE: &str = "schema.json";

/// Fields of every version.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

#[derive(Serialize, Deserialize)]
struct SchemaFile {
    format: u32,
    version: Uuid,
    number: u64,
    next_table: u32,
    keyspaces: Vec<KeyspaceRecord>,
}

#[derive(Serialize, Deserialize)]
struct KeyspaceRecord {
    name: String,
    durable_writes: bool,
    replication: BTreeMap<String, String>,
    batch_durability: bool,
    /// Ordered so that each uses only earlier ones.
    types: Vec<(String, Vec<(String, String)>)>,
    tables: Vec<TableRecord>,
}

#[derive(Serialize, Deserialize)]
struct TableRecord {
    name: String,
    id: Uuid,
    number: u32,
    next_column: u32,
    counters: bool,
    columns: Vec<ColumnRecord>,
    dropped: Vec<(ColumnRecord, i64)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    indexes: Vec<IndexRecord>,
    options: OptionsRecord,
}

#[derive(Serialize, Deserialize)]
struct ColumnRecord {
    name: String,
    kind: u8,
    position: usize,
    descending: bool,
    cql_type: String,
    id: u32,
}

#[derive(Serialize, Deserialize)]
struct IndexRecord {
    name: String,
    column: String,
    target: u8,
    class: Option<String>,
    options: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
struct OptionsRecord {
    comment: String,
    default_time_to_live: u32,
    gc_grace_seconds: u32,
    numbers: BTreeMap<String, f64>,
    texts: BTreeMap<String, String>,
    maps: BTreeMap<String, BTreeMap<String, String>>,
    flags: BTreeMap<String, bool>,
}

const KINDS: [ColumnKind; 4] =
    [ColumnKind::PartitionKey, ColumnKind::Clustering, ColumnKind::Static, ColumnKind::Regular];

const TARGETS: [IndexTarget; 5] = [
    IndexTarget::Simple,
    IndexTarget::Values,
    IndexTarget::Keys,
    IndexTarget::Entries,
    IndexTarget::Full,
];

/// Writes the schema into a directory; durable on return.
///
/// # Errors
/// The error of the file system, and whether the file is unchanged.
pub(crate) fn save(schema: &Schema, directory: &Path) -> Result<(), ReplaceError> {
    let own = schema
        .keyspaces
        .values()
        .filter(|keyspace| !SYSTEM_KEYSPACES.contains(&keyspace.name.as_str()));
    let tables = own.clone().flat_map(|keyspace| keyspace.tables.values());
    let is_indexed = tables.into_iter().any(|table| !table.indexes.is_empty());
    let record = SchemaFile {
        format: if is_indexed { FORMAT } else { FORMAT_UNINDEXED },
        version: schema.version,
        number: schema.number,
        next_table: schema.next_table,
        keyspaces: own.map(|keyspace| keyspace_record(keyspace)).collect(),
    };
    let path = directory.join(FILE);
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let text = serde_json::to_string_pretty(&record)
        .map_err(|error| ReplaceError::Unchanged(error.into()))?;
    files::replace(&path, &sealed(&text)).map_err(|error| match error {
        ReplaceError::Unchanged(error) => ReplaceError::Unchanged(named(error)),
        ReplaceError::Undurable(error) => ReplaceError::Undurable(named(error)),
    })
}

/// An object as JSON, with the checksum of its lines as its first member.
pub(crate) fn sealed(text: &str) -> Vec<u8> {
    let members = text.strip_prefix("{\n").unwrap_or(text);
    format!("{}{members}", seal(members.as_bytes())).into_bytes()
}

/// The first line of a file with these members.
fn seal(members: &[u8]) -> String {
    format!("{{ \"crc32\": \"{:08x}\",\n", crc32fast::hash(members))
}

/// True if the checksum in the first line is correct.
fn is_intact(text: &[u8]) -> bool {
    let line = text.iter().position(|byte| *byte == b'\n').map_or(text.len(), |end| end + 1);
    let (line, members) = text.split_at(line);
    line == seal(members).as_bytes()
}

/// Reads the schema of a directory; `None` if none was ever written there.
///
/// # Errors
/// An unreadable or invalid file; the message describes the fault.
pub(crate) fn load(directory: &Path) -> io::Result<Option<Schema>> {
    let path = directory.join(FILE);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(io::Error::new(error.kind(), format!("{}: {error}", path.display())));
        }
    };
    let broken = |what: String| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", path.display()))
    };
    let damaged = |error: serde_json::Error| broken(format!("damaged: {error}"));
    match serde_json::from_slice(&text).map_err(damaged)? {
        Head { format: FORMAT | FORMAT_UNINDEXED } if !is_intact(&text) => {
            return Err(broken("damaged: its checksum is wrong".to_owned()));
        }
        Head { format: FORMAT | FORMAT_UNINDEXED | FORMAT_UNCHECKED } => {}
        Head { format } => {
            return Err(broken(format!("its format is {format}, this program knows {FORMAT}")));
        }
    }
    let record: SchemaFile = serde_json::from_slice(&text).map_err(damaged)?;
    let mut schema = Schema {
        version: record.version,
        number: record.number,
        keyspaces: BTreeMap::new(),
        next_table: record.next_table,
    };
    for keyspace in record.keyspaces {
        let name = keyspace.name.clone();
        add_keyspace(&mut schema, keyspace)
            .map_err(|what| broken(format!("keyspace {name}: {what}")))?;
    }
    Ok(Some(schema))
}

fn keyspace_record(keyspace: &Keyspace) -> KeyspaceRecord {
    let fields = |definition: &UserType| {
        definition.fields.iter().map(|(name, field)| (name.clone(), field.to_string())).collect()
    };
    KeyspaceRecord {
        name: keyspace.name.clone(),
        durable_writes: keyspace.durable_writes,
        replication: keyspace.replication.clone(),
        batch_durability: keyspace.durability == Durability::Batch,
        types: types_in_order(keyspace)
            .iter()
            .map(|definition| (definition.name.clone(), fields(definition)))
            .collect(),
        tables: keyspace.tables.values().map(|table| table_record(table)).collect(),
    }
}

/// The user-defined types of a keyspace in order of dependence.
pub(crate) fn types_in_order(keyspace: &Keyspace) -> Vec<&Arc<UserType>> {
    let mut ordered: Vec<&Arc<UserType>> = Vec::new();
    while ordered.len() < keyspace.types.len() {
        let before = ordered.len();
        for definition in keyspace.types.values() {
            let known = |definition: &UserType| {
                ordered.iter().any(|earlier| earlier.name == definition.name)
            };
            let uses = |other: &UserType| {
                other.name != definition.name
                    && definition.fields.iter().any(|(_, field)| {
                        super::resolve::mentions(field, &other.keyspace, &other.name)
                    })
            };
            if !known(definition)
                && keyspace.types.values().all(|other| !uses(other) || known(other))
            {
                ordered.push(definition);
            }
        }
        if ordered.len() == before {
            break; // Circular types, which no statement can create.
        }
    }
    ordered
}

fn table_record(table: &Table) -> TableRecord {
    let options = &table.options;
    TableRecord {
        name: table.name.clone(),
        id: table.id,
        number: table.number.map_or(0, |number| number.0),
        next_column: table.next_column,
        counters: table.is_counter,
        columns: table.columns.iter().map(column_record).collect(),
        dropped: table
            .dropped
            .iter()
            .map(|dropped| (column_record(&dropped.column), dropped.dropped_us))
            .collect(),
        indexes: table.indexes.iter().map(index_record).collect(),
        options: OptionsRecord {
            comment: options.comment.clone(),
            default_time_to_live: options.default_time_to_live,
            gc_grace_seconds: options.gc_grace_seconds,
            numbers: options
                .numbers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), *value))
                .collect(),
            texts: options
                .texts
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
            maps: options
                .maps
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
            flags: options.flags.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        },
    }
}

fn column_record(column: &Column) -> ColumnRecord {
    ColumnRecord {
        name: column.name.clone(),
        kind: KINDS.iter().position(|kind| *kind == column.kind).unwrap_or_default() as u8,
        position: column.position,
        descending: column.descending,
        cql_type: column.cql_type.to_string(),
        id: column.id.0,
    }
}

fn index_record(index: &Index) -> IndexRecord {
    IndexRecord {
        name: index.name.clone(),
        column: index.column.clone(),
        target: TARGETS.iter().position(|target| *target == index.target).unwrap_or_default() as u8,
        class: index.class.clone(),
        options: index.options.clone(),
    }
}

fn index(record: IndexRecord, columns: &[Column]) -> Result<Index, String> {
    let IndexRecord { name, column, target, class, options } = record;
    let target = TARGETS.get(usize::from(target)).copied();
    let target = target.ok_or_else(|| format!("index {name} is on no known part of a column"))?;
    if !columns.iter().any(|known| known.name == column) {
        return Err(format!("index {name} is on column {column}, which its table does not have"));
    }
    Ok(Index { name, column, target, class, options })
}

fn add_keyspace(schema: &mut Schema, record: KeyspaceRecord) -> Result<(), String> {
    let name = record.name;
    let mut keyspace = Keyspace {
        name: name.clone(),
        durable_writes: record.durable_writes,
        replication: record.replication,
        durability: if record.batch_durability { Durability::Batch } else { Durability::Periodic },
        tables: BTreeMap::new(),
        types: BTreeMap::new(),
    };
    for (type_name, fields) in record.types {
        schema.keyspaces.insert(name.clone(), Arc::new(keyspace.clone()));
        let fields =
            fields.into_iter().map(|(field, text)| Ok((field, parse_type(schema, &name, &text)?)));
        let fields = fields.collect::<Result<_, String>>()?;
        let definition = UserType { keyspace: name.clone(), name: type_name.clone(), fields };
        keyspace.types.insert(type_name, Arc::new(definition));
    }
    schema.keyspaces.insert(name.clone(), Arc::new(keyspace.clone()));
    for record in record.tables {
        let table = table(schema, &name, record)?;
        keyspace.tables.insert(table.name.clone(), Arc::new(table));
    }
    schema.keyspaces.insert(name, Arc::new(keyspace));
    Ok(())
}

fn parse_type(schema: &Schema, keyspace: &str, text: &str) -> Result<CqlType, String> {
    CqlType::parse(text, &Types { schema, keyspace: Some(keyspace) }).map_err(|error| error.message)
}

fn table(schema: &Schema, keyspace: &str, record: TableRecord) -> Result<Table, String> {
    let column = |record: ColumnRecord| -> Result<Column, String> {
        let kind = KINDS.get(usize::from(record.kind)).copied();
        Ok(Column {
            dropped_us: None,
            kind: kind.ok_or_else(|| format!("column {} is of no known kind", record.name))?,
            cql_type: parse_type(schema, keyspace, &record.cql_type)?,
            name: record.name,
            position: record.position,
            descending: record.descending,
            id: ColumnId(record.id),
        })
    };
    let dropped = record.dropped.into_iter();
    let dropped = dropped
        .map(|(record, dropped_us)| Ok(DroppedColumn { column: column(record)?, dropped_us }));
    let columns = record.columns.into_iter().map(column).collect::<Result<Vec<Column>, _>>()?;
    let mut table = Table {
        keyspace: keyspace.to_owned(),
        name: record.name,
        id: record.id,
        number: Some(TableId(record.number)),
        dropped: dropped.collect::<Result<_, String>>()?,
        indexes: record
            .indexes
            .into_iter()
            .map(|record| index(record, &columns))
            .collect::<Result<_, _>>()?,
        columns,
        partition_key_len: 0,
        clustering_len: 0,
        has_static: false,
        is_counter: record.counters,
        keeps_written_keys: false,
        next_column: record.next_column,
        options: options(record.options),
    };
    table.arrange();
    Ok(table)
}

/// Options by name; options missing in the file keep their defaults.
fn options(record: OptionsRecord) -> TableOptions {
    fn fill<V>(into: &mut BTreeMap<&'static str, V>, mut from: BTreeMap<String, V>) {
        for (name, value) in into {
            if let Some(kept) = from.remove(*name) {
                *value = kept;
            }
        }
    }
    let mut options = TableOptions {
        comment: record.comment,
        default_time_to_live: record.default_time_to_live,
        gc_grace_seconds: record.gc_grace_seconds,
        ..TableOptions::default()
    };
    fill(&mut options.numbers, record.numbers);
    fill(&mut options.texts, record.texts);
    fill(&mut options.maps, record.maps);
    fill(&mut options.flags, record.flags);
    options
}
