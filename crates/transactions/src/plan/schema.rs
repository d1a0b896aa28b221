//! Tables as plans need them, read from `system_schema` when a transaction first names them.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use shunt_language::ast::{QualifiedName, TypeName};
use shunt_language::transaction::{TableKeys, Tables};
use shunt_language::types::{CqlType, TypeLookup, UserType};
use shunt_language::values::split;
use shunt_topology::schema::Replication;
use shunt_wire::cql::message::Rows;

use crate::catalogue::table_identity::{Identity, TableId};

/// Questions about a keyspace and its tables. They read one node's own rows, and all go to one node
/// as text.
pub const KEYSPACE: &str =
    "SELECT durable_writes, replication FROM system_schema.keyspaces WHERE keyspace_name = ";
/// Reads the user-defined types of a keyspace.
pub const TYPES: &str =
    "SELECT type_name, field_names, field_types FROM system_schema.types WHERE keyspace_name = ";
/// Reads the columns of a table.
pub const COLUMNS: &str =
    "SELECT column_name, kind, position, type FROM system_schema.columns WHERE keyspace_name = ";
/// Reads the masked columns of a table.
pub const MASKS: &str = "SELECT column_name FROM system_schema.column_masks WHERE keyspace_name = ";
/// Reads a table.
pub const TABLE: &str = "SELECT id, read_repair, default_time_to_live, gc_grace_seconds FROM system_schema.tables WHERE keyspace_name = ";

/// Reads the version of the schema at the node that is asked.
pub const VERSION: &str = "SELECT schema_version FROM system.local WHERE key = 'local'";

/// Modes of a keyspace's tables, from the fleet's own table.
pub const MODES: &str = "SELECT table_name, mode FROM shunt_meta.transactional WHERE enabled = true AND keyspace_name = ";

/// Reads the [`Retention`] of a table.
pub fn retention_question(keyspace: &str, table: &str) -> String {
    let (keyspace, table) = (literal(keyspace), literal(table));
    format!(
        "SELECT default_time_to_live, gc_grace_seconds FROM system_schema.tables WHERE keyspace_name = {keyspace} AND table_name = {table}"
    )
}

/// Least `gc_grace_seconds` of a table that proxies write to: Cassandra's default hint window. A
/// node that was away for less gets the writes that it missed before any node forgets a deletion.
const GC_GRACE_MIN_SECONDS: i32 = 3 * 60 * 60;

/// Time for which a table keeps writes and deletions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// `default_time_to_live`; 0 for ever.
    default_ttl_seconds: i32,
    /// `gc_grace_seconds`; long enough for a table that does not say so.
    gc_grace_seconds: i32,
}

impl Retention {
    /// Reads the values of a table's row.
    pub fn read(default_ttl_seconds: Option<&[u8]>, gc_grace_seconds: Option<&[u8]>) -> Retention {
        let int = |value: Option<&[u8]>| {
            value.and_then(|bytes| bytes.try_into().ok()).map(i32::from_be_bytes)
        };
        Retention {
            default_ttl_seconds: int(default_ttl_seconds).unwrap_or(0),
            gc_grace_seconds: int(gc_grace_seconds).unwrap_or(GC_GRACE_MIN_SECONDS),
        }
    }

    /// Explains why proxies may not write to the table, if so. Nodes expire a row by their own
    /// clocks, counted from its last write. A deletion hides a late write only while nodes remember
    /// the deletion.
    pub fn refusal(self) -> Option<String> {
        let Retention { default_ttl_seconds, gc_grace_seconds } = self;
        if default_ttl_seconds != 0 {
            return Some(format!(
                "it has default_time_to_live = {default_ttl_seconds}: each node expires rows by its own clock, and a write that is made again lives longer"
            ));
        }
        (gc_grace_seconds < GC_GRACE_MIN_SECONDS).then(|| {
            format!(
                "it has gc_grace_seconds = {gc_grace_seconds}: a late write could bring back what was deleted; ALTER TABLE .. WITH gc_grace_seconds = {GC_GRACE_MIN_SECONDS} or more"
            )
        })
    }
}

/// Explains why no transaction may use a table with this `read_repair`, if so. Without read repair,
/// one quorum may see a write that the next quorum does not.
pub fn unfit_read_repair(read_repair: Option<&str>) -> Option<String> {
    (read_repair == Some("NONE")).then(|| {
        "it has read_repair = 'NONE': what one transaction has read the next may not".to_owned()
    })
}

/// Explains from the texts of a table's columns why proxies cannot decide its statements by rows in
/// memory. Takes an answer to [`COLUMNS`]; [`Table::unfit_for_conditional`] checks the rest.
pub fn unfit_by_text(rows: &Rows<'_>) -> Option<String> {
    let columns = values(rows, &["column_name", "kind", "position", "type"]);
    let texts =
        columns.iter().filter_map(|row| Some((text(row[0])?, text(row[1])?, text(row[3])?)));
    let (mut key, mut regular, mut unfit) = (Vec::new(), Vec::new(), None);
    for (name, kind, type_text) in texts {
        match kind {
            "regular" => regular.push(name),
            "static" => {}
            _ => key.push(name),
        }
        let many_cells =
            CqlType::parse(type_text, &AnyType).is_ok_and(|cql_type| cql_type.is_multi_cell());
        unfit = unfit.or(match () {
            () if kind == "static" => Some("it has static columns".to_owned()),
            () if type_text == "counter" => Some("it has counters".to_owned()),
            () if many_cells => {
                Some(format!("its column {name} is a collection or type that is not frozen"))
            }
            () => None,
        });
    }
    unfit.or_else(|| unfit_by_names(&key, &regular))
}

/// True of a type whose values are several cells.
pub fn is_multi_cell(type_name: &TypeName) -> bool {
    match type_name {
        // A type with its keyspace is one of a user, too.
        TypeName::UserDefined(_) => true,
        TypeName::Custom(class) => is_multi_cell_class(class),
        _ => CqlType::resolve(type_name, &AnyType).is_ok_and(|cql_type| cql_type.is_multi_cell()),
    }
}

/// True of Cassandra's classes of collections and user-defined types; frozen ones are within
/// another.
fn is_multi_cell_class(class: &str) -> bool {
    let name = class.split('(').next().unwrap_or_default().trim();
    let short = name.rsplit('.').next().unwrap_or_default();
    matches!(short, "ListType" | "SetType" | "MapType" | "UserType")
}

/// Explains the same from the names of a table's columns: those of the key, and the others.
fn unfit_by_names(key: &[&str], regular: &[&str]) -> Option<String> {
    let columns = regular.len();
    let bytes =
        |names: &[&str]| names.iter().map(|name| 2 * name.len() + AROUND_BYTES).sum::<usize>();
    let values = columns * (key.len() + 3);
    match columns {
        0 => Some(
            "it has no column beside its key, so that nothing says for how long a row lives"
                .to_owned(),
        ),
        _ if columns > COLUMNS_MAX => {
            Some(format!("it has {columns} columns beside its key; {COLUMNS_MAX} are allowed"))
        }
        _ if values > VALUES_MAX || columns * bytes(key) + bytes(regular) > ANEW_BYTES_MAX => {
            Some(format!(
                "the statements that write a row of it anew are too long: {columns} columns, each with a key of {} columns",
                key.len()
            ))
        }
        _ => None,
    }
}

/// Pretends that every user-defined type exists, which is enough to tell whether a column is
/// frozen.
struct AnyType;

impl TypeLookup for AnyType {
    fn keyspace(&self) -> Option<&str> {
        Some("")
    }

    fn user_type(&self, keyspace: &str, name: &str) -> Option<Arc<UserType>> {
        Some(Arc::new(UserType {
            keyspace: keyspace.to_owned(),
            name: name.to_owned(),
            fields: Vec::new(),
        }))
    }
}

/// Reads the id of the table with this name.
pub fn id_question(keyspace: &str, table: &str) -> String {
    let (keyspace, table) = (literal(keyspace), literal(table));
    format!(
        "SELECT id FROM system_schema.tables WHERE keyspace_name = {keyspace} AND table_name = {table}"
    )
}

/// Reads the columns of the table with this name.
pub fn columns_question(keyspace: &str, table: &str) -> String {
    let (keyspace, table) = (literal(keyspace), literal(table));
    format!("{COLUMNS}{keyspace} AND table_name = {table}")
}

/// Reads an answer to [`id_question`].
pub fn found_id(rows: &Rows<'_>) -> Identity {
    found_uuid(rows, "id")
}

/// Reads an answer to [`VERSION`].
pub fn found_version(rows: &Rows<'_>) -> Identity {
    match found_uuid(rows, "schema_version") {
        // A node that names none has not answered.
        Identity::Nothing => Identity::Unknown,
        found => found,
    }
}

fn found_uuid(rows: &Rows<'_>, column: &str) -> Identity {
    match values(rows, &[column]).pop() {
        Some(row) => {
            row[0].and_then(|id| id.try_into().ok()).map_or(Identity::Unknown, Identity::Table)
        }
        None if rows.row_count == 0 => Identity::Nothing,
        None => Identity::Unknown,
    }
}

/// Hashes an answer to [`COLUMNS`].
pub fn found_columns(rows: &Rows<'_>) -> Identity {
    if rows.row_count == 0 { Identity::Nothing } else { Identity::Table(columns_id(rows)) }
}

fn columns_id(rows: &Rows<'_>) -> TableId {
    let columns = values(rows, &["column_name", "kind", "position", "type"]);
    let half = |first: u8| {
        let mut hasher = DefaultHasher::new();
        (first, &columns).hash(&mut hasher);
        hasher.finish()
    };
    (u128::from(half(0)) << 64 | u128::from(half(1))).to_be_bytes()
}

/// Regular columns of a table with the mode `conditional`: each is a statement with the whole key
/// in the batch that rewrites a row.
const COLUMNS_MAX: usize = 64;
/// Bytes of names in that batch. Every text planned on the table has it twice.
const ANEW_BYTES_MAX: usize = 64 << 10;
/// Values in that batch.
const VALUES_MAX: usize = 4_096;
/// Approximate bytes around a name.
const AROUND_BYTES: usize = 16;
/// Approximate size of a column in memory, without its name.
const COLUMN_BYTES: usize = 192;

/// A name as a string literal.
pub fn literal(name: &str) -> String {
    format!("'{}'", name.replace('\'', "''"))
}

/// Nesting depth of user-defined types.
const TYPE_DEPTH_MAX: u32 = 16;
/// Fields of nested user-defined types, each counted as often as its type occurs: sixteen nested
/// types of four fields each would have four billion.
const TYPE_FIELDS_MAX: usize = 16_384;

/// The user-defined types of a keyspace, as texts that are parsed where they are needed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Types {
    keyspace: String,
    /// Names and types of fields, by the type's name.
    types: HashMap<String, Vec<(String, String)>>,
}

/// Types as seen from the fields of a type at this depth, with so many fields left.
struct Within<'a> {
    types: &'a Types,
    depth: u32,
    left: &'a Cell<usize>,
}

/// A column.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The type.
    pub cql_type: CqlType,
    kind: Kind,
    position: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    PartitionKey,
    Clustering,
    Static,
    Regular,
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The keyspace.
    pub keyspace: String,
    /// The name.
    pub name: String,
    /// The id, which differs if the table was dropped and created again.
    pub id: TableId,
    /// The columns, by name.
    pub columns: HashMap<String, Column>,
    /// The result of [`found_columns`] for these columns.
    pub columns_id: TableId,
    /// The partition key's columns, in order.
    pub partition_key: Vec<String>,
    /// The clustering columns, in order.
    pub clustering: Vec<String>,
    /// User-defined types of the keyspace.
    pub types: Types,
    /// Why no transaction may use the table, whatever its mode.
    pub unfit: Option<String>,
    /// Time for which it keeps writes and deletions.
    pub retention: Retention,
}

fn text(value: Option<&[u8]>) -> Option<&str> {
    std::str::from_utf8(value?).ok()
}

/// The values of each row, in the order of these columns; none for null and for missing columns.
fn values<'a>(rows: &Rows<'a>, columns: &[&str]) -> Vec<Vec<Option<&'a [u8]>>> {
    let places: Vec<Option<usize>> =
        columns.iter().map(|name| rows.metadata.column_index(name)).collect();
    let read = rows.rows().map_while(Result::ok);
    read.map(|row| places.iter().map(|place| row.get((*place)?)).collect()).collect()
}

fn texts(value: Option<&[u8]>) -> Option<Vec<String>> {
    let parts = split::collection("list", value?).ok()?;
    parts.into_iter().map(|part| text(Some(part)).map(str::to_owned)).collect()
}

impl Types {
    /// Reads an answer to [`TYPES`].
    pub fn read(keyspace: &str, rows: &Rows<'_>) -> Types {
        let mut types = HashMap::new();
        for row in values(rows, &["type_name", "field_names", "field_types"]) {
            let (Some(name), Some(names), Some(field_types)) =
                (text(row[0]), texts(row[1]), texts(row[2]))
            else {
                continue;
            };
            types.insert(name.to_owned(), names.into_iter().zip(field_types).collect());
        }
        Types { keyspace: keyspace.to_owned(), types }
    }
}

impl TypeLookup for Types {
    fn keyspace(&self) -> Option<&str> {
        Some(&self.keyspace)
    }

    fn user_type(&self, keyspace: &str, name: &str) -> Option<Arc<UserType>> {
        Within { types: self, depth: 0, left: &Cell::new(TYPE_FIELDS_MAX) }
            .user_type(keyspace, name)
    }
}

impl TypeLookup for Within<'_> {
    fn keyspace(&self) -> Option<&str> {
        Some(&self.types.keyspace)
    }

    fn user_type(&self, keyspace: &str, name: &str) -> Option<Arc<UserType>> {
        let is_here = keyspace == self.types.keyspace && self.depth < TYPE_DEPTH_MAX;
        let fields = self.types.types.get(name).filter(|_| is_here)?;
        self.left.set(self.left.get().checked_sub(fields.len())?);
        let within = Within { depth: self.depth + 1, ..*self };
        let read = fields
            .iter()
            .map(|(field, text)| Some((field.clone(), CqlType::parse(text, &within).ok()?)));
        let fields: Vec<_> = read.collect::<Option<_>>()?;
        Some(Arc::new(UserType { keyspace: keyspace.to_owned(), name: name.to_owned(), fields }))
    }
}

/// Explains from an answer to [`KEYSPACE`] why the tables of a keyspace are unfit. The outer option
/// is none if there is no such keyspace.
pub fn keyspace_unfit(rows: &Rows<'_>) -> Option<Option<String>> {
    let row = values(rows, &["durable_writes", "replication"]).pop()?;
    if row[0] == Some(&[0]) {
        return Some(Some(
            "its keyspace has durable_writes = false: what a transaction has written may be lost"
                .to_owned(),
        ));
    }
    let replication = split::collection("map", row[1]?).ok()?;
    let transient = replication.chunks_exact(2).any(|entry| entry[1].contains(&b'/'));
    Some(
        transient.then(|| {
            "its keyspace has transient replicas, which transactions cannot read".to_owned()
        }),
    )
}

/// Reads a keyspace's replication from an answer to [`KEYSPACE`].
pub fn replication(rows: &Rows<'_>) -> Option<Replication> {
    let row = values(rows, &["replication"]).pop()?;
    let options = split::collection("map", row[0]?).ok()?;
    let options =
        options.chunks_exact(2).map(|entry| Some((text(Some(entry[0]))?, text(Some(entry[1]))?)));
    Some(Replication::parse(options.collect::<Option<Vec<_>>>()?))
}

/// Reads modes by table from an answer to [`MODES`].
pub fn modes(rows: &Rows<'_>) -> HashMap<String, String> {
    let read = values(rows, &["table_name", "mode"]).into_iter();
    read.filter_map(|row| Some((text(row[0])?.to_owned(), text(row[1])?.to_owned()))).collect()
}

impl Table {
    /// Reads a table without columns from an answer to [`TABLE`]. None if there is no such table; a
    /// materialized view is none.
    pub fn read(types: Types, name: &str, rows: &Rows<'_>) -> Option<Table> {
        let row = values(rows, &["id", "read_repair", "default_time_to_live", "gc_grace_seconds"])
            .pop()?;
        Some(Table {
            keyspace: types.keyspace.clone(),
            name: name.to_owned(),
            id: row[0]?.try_into().ok()?,
            columns: HashMap::new(),
            columns_id: TableId::default(),
            partition_key: Vec::new(),
            clustering: Vec::new(),
            types,
            unfit: unfit_read_repair(text(row[1])),
            retention: Retention::read(row[2], row[3]),
        })
    }

    /// Adds the columns of an answer to [`COLUMNS`].
    ///
    /// # Errors
    /// The column of which the type cannot be read.
    pub fn with_columns(mut self, rows: &Rows<'_>) -> Result<Table, String> {
        self.columns_id = columns_id(rows);
        let left = Cell::new(TYPE_FIELDS_MAX);
        for row in values(rows, &["column_name", "kind", "position", "type"]) {
            let (Some(name), Some(kind), Some(type_text)) =
                (text(row[0]), text(row[1]), text(row[3]))
            else {
                continue;
            };
            let kind = match kind {
                "partition_key" => Kind::PartitionKey,
                "clustering" => Kind::Clustering,
                "static" => Kind::Static,
                _ => Kind::Regular,
            };
            let types = Within { types: &self.types, depth: 0, left: &left };
            let cql_type = CqlType::parse(type_text, &types).map_err(|error| {
                format!(
                    "the type {type_text} of its column {name} cannot be read: {}",
                    error.message
                )
            })?;
            let position =
                row[2].and_then(|bytes| bytes.try_into().ok()).map_or(-1, i32::from_be_bytes);
            self.columns.insert(name.to_owned(), Column { cql_type, kind, position });
        }
        if self.columns.is_empty() {
            return Err(format!("table {}.{} has no columns any more", self.keyspace, self.name));
        }
        self.partition_key = self.in_order(Kind::PartitionKey);
        self.clustering = self.in_order(Kind::Clustering);
        Ok(self)
    }

    /// Approximate size in memory.
    pub fn bytes(&self) -> usize {
        let columns = self.columns.keys().map(|name| 2 * name.len() + COLUMN_BYTES).sum::<usize>();
        let of_type = |fields: &Vec<(String, String)>| -> usize {
            fields.iter().map(|(name, of)| name.len() + of.len() + COLUMN_BYTES).sum()
        };
        columns
            + self.types.types.values().map(|fields| of_type(fields) + COLUMN_BYTES).sum::<usize>()
    }

    fn in_order(&self, kind: Kind) -> Vec<String> {
        let mut found: Vec<_> =
            self.columns.iter().filter(|(_, column)| column.kind == kind).collect();
        found.sort_by_key(|(_, column)| column.position);
        found.into_iter().map(|(name, _)| name.clone()).collect()
    }

    /// Names of the columns outside the key.
    pub fn beside_key(&self) -> impl Iterator<Item = &str> {
        let beside = |column: &Column| matches!(column.kind, Kind::Regular | Kind::Static);
        self.columns.iter().filter(move |(_, column)| beside(column)).map(|(name, _)| name.as_str())
    }

    /// The regular columns in Cassandra's order, by name.
    pub fn regular(&self) -> Vec<(String, CqlType)> {
        let regular = self.columns.iter().filter(|(_, column)| column.kind == Kind::Regular);
        let mut regular: Vec<_> =
            regular.map(|(name, column)| (name.clone(), column.cql_type.clone())).collect();
        regular.sort_by(|one, other| one.0.cmp(&other.0));
        regular
    }

    /// Hash of all columns, which changes if one is added or dropped.
    pub fn layout(&self) -> u64 {
        let mut columns: Vec<_> =
            self.columns.iter().map(|(name, column)| (&**name, &column.cql_type)).collect();
        columns.sort_by_key(|(name, _)| *name);
        let mut hasher = DefaultHasher::new();
        columns.iter().for_each(|(name, cql_type)| (name, cql_type.to_string()).hash(&mut hasher));
        hasher.finish()
    }

    /// Explains why proxies cannot decide the table's statements by rows in memory, if so.
    pub fn unfit_for_conditional(&self) -> Option<String> {
        let of_kind =
            |kind: Kind| self.columns.iter().filter(move |(_, column)| column.kind == kind);
        let mut many_cells =
            self.columns.iter().filter(|(_, column)| column.cql_type.is_multi_cell());
        match () {
            () if of_kind(Kind::Static).next().is_some() => {
                Some("it has static columns".to_owned())
            }
            () if self.keys().has_counters => Some("it has counters".to_owned()),
            () if let Some(why) = self.retention.refusal() => Some(why),
            () => many_cells
                .next()
                .map(|(name, _)| {
                    format!("its column {name} is a collection or type that is not frozen")
                })
                .or_else(|| {
                    let names = |kind: Kind| of_kind(kind).map(|(name, _)| name.as_str());
                    let key: Vec<&str> =
                        names(Kind::PartitionKey).chain(names(Kind::Clustering)).collect();
                    unfit_by_names(&key, &names(Kind::Regular).collect::<Vec<_>>())
                }),
        }
    }

    /// The type of a column.
    pub fn column(&self, name: &str) -> Option<&CqlType> {
        self.columns.get(name).map(|column| &column.cql_type)
    }

    /// True of a static column.
    pub fn is_static(&self, name: &str) -> bool {
        self.columns.get(name).is_some_and(|column| column.kind == Kind::Static)
    }

    fn keys(&self) -> TableKeys<'_> {
        let statics = self.columns.iter().filter(|(_, column)| column.kind == Kind::Static);
        TableKeys {
            partition_key: self.partition_key.iter().map(String::as_str).collect(),
            clustering: self.clustering.iter().map(String::as_str).collect(),
            statics: statics.map(|(name, _)| name.as_str()).collect(),
            has_counters: self.columns.values().any(|column| column.cql_type.is_counter()),
        }
    }
}

/// Several tables; `keyspace` is that of names without one.
pub struct Several<'a> {
    /// Keyspace of names without one.
    pub keyspace: &'a str,
    /// The tables.
    pub tables: &'a [Arc<Table>],
}

impl Several<'_> {
    /// Finds a table by name.
    pub fn find(&self, name: &QualifiedName) -> Option<&Arc<Table>> {
        let keyspace = name.keyspace.as_deref().unwrap_or(self.keyspace);
        self.tables.iter().find(|table| table.keyspace == keyspace && table.name == name.name)
    }
}

impl Tables for Several<'_> {
    fn keys(&self, name: &QualifiedName) -> Option<TableKeys<'_>> {
        self.find(name).map(|table| table.keys())
    }
}
