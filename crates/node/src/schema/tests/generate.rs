//! Schemas generated from bytes: any bytes give valid statements, fewer bytes simpler ones.

use proptest::prelude::*;
use shunt_language::ast::{NativeType, quoted_name, quoted_string};

use super::{Schema, after};

/// Statements that make a schema, each valid after those before it.
pub(crate) fn statements() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec(any::<u8>(), 0..300).prop_map(|choices| {
        let mut maker = Maker { choices, statements: Vec::new() };
        maker.keyspaces();
        maker.statements
    })
}

/// The schema created by statements.
pub(crate) fn schema_of(statements: &[String]) -> Schema {
    after(&Schema::empty(), statements)
}

const KEYSPACES: [&str; 2] = ["k", "Mixed_Keyspace"];
const REPLICATIONS: [&str; 3] = [
    "{'class': 'SimpleStrategy', 'replication_factor': 1}",
    "{'class': 'org.apache.cassandra.locator.NetworkTopologyStrategy', 'asia': '3', 'europe': 2}",
    "{'class': 'NetworkTopologyStrategy', 'replication_factor': '3/1'}",
];
const KEYSPACE_PROPERTIES: [&str; 4] = [
    "",
    " AND durable_writes = false",
    " AND durability = 'batch'",
    " AND durability = 'periodic'",
];
/// Reserved words, capitals, and names that need quotes.
const OBJECTS: [&str; 6] = ["point", "table", "Mixed", "select", "x1", "_under"];
const COLUMNS: [&str; 14] = [
    "a",
    "b",
    "Capital",
    "where",
    "key",
    "two words",
    "quo\"te",
    "1st",
    "ünï",
    "type",
    "order",
    "v",
    "w",
    "static",
];
/// Types with an order first.
const NATIVES: [&str; 19] = [
    "int",
    "text",
    "ascii",
    "bigint",
    "blob",
    "boolean",
    "date",
    "decimal",
    "double",
    "float",
    "inet",
    "smallint",
    "time",
    "timestamp",
    "timeuuid",
    "tinyint",
    "uuid",
    "varint",
    "duration",
];
const OPTIONS: [&str; 16] = [
    "gc_grace_seconds = 60",
    "comment = 'it''s; a -- \"comment\" /* '",
    "default_time_to_live = 86400",
    "bloom_filter_fp_chance = 0.0001",
    "bloom_filter_fp_chance = 1",
    "crc_check_chance = 0.5",
    "caching = {'keys': 'NONE', 'rows_per_partition': '12'}",
    "cdc = true",
    "compaction = {'class': 'LeveledCompactionStrategy', 'sstable_size_in_mb': 160}",
    "compression = {'enabled': false}",
    "memtable = 'trie'",
    "max_index_interval = 4096",
    "extensions = {'e': 0xcafe}",
    "allow_auto_snapshot = false",
    "read_repair = 'NONE'",
    "speculative_retry = 'NEVER'",
];

/// Turns bytes into statements.
struct Maker {
    choices: Vec<u8>,
    statements: Vec<String>,
}

impl Maker {
    /// A number below `bound`; 0 when the bytes are exhausted.
    fn below(&mut self, bound: usize) -> usize {
        self.choices.pop().map_or(0, |choice| usize::from(choice) % bound)
    }

    fn yes(&mut self) -> bool {
        self.below(2) == 1
    }

    fn one_of(&mut self, texts: &[&'static str]) -> &'static str {
        texts[self.below(texts.len())]
    }

    fn keyspaces(&mut self) {
        for keyspace in &KEYSPACES[..=self.below(KEYSPACES.len())] {
            let name = quoted_name(keyspace);
            let (replication, property) =
                (self.one_of(&REPLICATIONS), self.one_of(&KEYSPACE_PROPERTIES));
            self.statements
                .push(format!("CREATE KEYSPACE {name} WITH replication = {replication}{property}"));
            let mut types = Vec::new();
            for object in &OBJECTS[..self.below(OBJECTS.len())] {
                self.user_type(&name, &quoted_name(object), &types);
                types.push(quoted_name(object));
            }
            for object in OBJECTS.iter().rev().take(self.below(OBJECTS.len())) {
                self.table(&format!("{name}.{}", quoted_name(object)), &types);
            }
        }
    }

    fn user_type(&mut self, keyspace: &str, name: &str, types: &[String]) {
        let count = 1 + self.below(4);
        let fields: Vec<String> = COLUMNS[..count]
            .iter()
            .map(|field| {
                let frozen = self.yes();
                // Nested types are frozen, collections need not be.
                let cql_type = match self.type_text(2, frozen, true, types) {
                    plain if types.contains(&plain) => format!("frozen<{plain}>"),
                    other => other,
                };
                format!("{} {cql_type}", quoted_name(field))
            })
            .collect();
        self.statements.push(format!("CREATE TYPE {keyspace}.{name} ({})", fields.join(", ")));
    }

    fn type_text(&mut self, depth: usize, frozen: bool, ordered: bool, types: &[String]) -> String {
        let natives = if ordered { &NATIVES[..NATIVES.len() - 1] } else { &NATIVES };
        let inner = |maker: &mut Maker| maker.type_text(depth - 1, true, true, types);
        let text = match self.below(if depth == 0 { 1 } else { 8 }) {
            2 => format!("tuple<{}, {}>", inner(self), inner(self)),
            3 => format!("vector<{}, {}>", inner(self), 1 + self.below(3)),
            4 => format!("list<{}>", inner(self)),
            5 => format!("set<{}>", inner(self)),
            6 => format!("map<{}, {}>", inner(self), inner(self)),
            7 if !types.is_empty() => types[self.below(types.len())].clone(),
            _ => return self.one_of(natives).to_owned(),
        };
        if frozen && !text.starts_with("vector") { format!("frozen<{text}>") } else { text }
    }

    fn table(&mut self, name: &str, types: &[String]) {
        let (keys, clustering) = (1 + self.below(3), self.below(4));
        let start = self.below(COLUMNS.len());
        let names: Vec<String> = COLUMNS
            .iter()
            .cycle()
            .skip(start)
            .take(COLUMNS.len())
            .map(|name| quoted_name(name))
            .collect();
        let (primary_key, rest) = names.split_at(keys + clustering);
        let mut columns: Vec<String> = primary_key
            .iter()
            .map(|column| format!("{column} {}", self.type_text(2, true, true, types)))
            .collect();
        let counters = self.below(5) == 1;
        let values = &rest[..self.below(6)];
        for column in values {
            let frozen = self.yes();
            let cql_type = if counters {
                "counter".to_owned()
            } else {
                self.type_text(3, frozen, false, types)
            };
            let is_static = if clustering > 0 && self.yes() { " static" } else { "" };
            columns.push(format!("{column} {cql_type}{is_static}"));
        }
        let definitions = columns[keys + clustering..].to_vec();
        columns.push(format!(
            "PRIMARY KEY (({}){}{})",
            primary_key[..keys].join(", "),
            if clustering > 0 { ", " } else { "" },
            primary_key[keys..].join(", ")
        ));
        let options = self.options(&primary_key[keys..], counters);
        self.statements.push(format!("CREATE TABLE {name} ({}){options}", columns.join(", ")));
        self.alterations(name, values, &definitions, counters);
    }

    fn options(&mut self, clustering: &[String], counters: bool) -> String {
        let mut options = Vec::new();
        if !clustering.is_empty() && self.yes() {
            let order =
                |column: &String| format!("{column} {}", if self.yes() { "DESC" } else { "ASC" });
            let order: Vec<String> = clustering.iter().map(order).collect();
            options.push(format!("CLUSTERING ORDER BY ({})", order.join(", ")));
        }
        for _ in 0..self.below(4) {
            let option = self.one_of(&OPTIONS).to_owned();
            let name = option.split(' ').next().unwrap_or_default();
            let known = options.iter().any(|other: &String| other.split(' ').next() == Some(name));
            let refused = counters && name == "default_time_to_live";
            if !(known || refused) {
                options.push(option);
            }
        }
        if options.is_empty() { String::new() } else { format!(" WITH {}", options.join(" AND ")) }
    }

    fn alterations(
        &mut self,
        name: &str,
        values: &[String],
        definitions: &[String],
        counters: bool,
    ) {
        for (column, definition) in values.iter().zip(definitions) {
            // Dropping the last counter would end a counter table, so the first column stays. A
            // multi-cell column of a user-defined type cannot be dropped.
            let cql_type =
                definition.strip_prefix(column.as_str()).unwrap_or_default().replace("static", "");
            let is_type = !cql_type.contains('<') && NativeType::by_name(cql_type.trim()).is_none();
            if self.below(4) != 1 || is_type || counters && *column == values[0] {
                continue;
            }
            let at = if self.yes() { " USING TIMESTAMP 1600000000000000" } else { "" };
            self.statements.push(format!("ALTER TABLE {name} DROP {column}{at}"));
            if !counters && self.yes() {
                self.statements.push(format!("ALTER TABLE {name} ADD {definition}"));
            }
        }
        if self.below(4) == 1 {
            let comment = quoted_string("altered");
            self.statements.push(format!("ALTER TABLE {name} WITH comment = {comment}"));
        }
    }
}
