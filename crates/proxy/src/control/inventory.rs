//! Schema changes that no event announced, because they were made while there was no control
//! connection.
//!
//! Drivers read the schema once and rely on events from then on; a driver whose own connection
//! breaks reads it again. Behind the proxy a driver's connection stays, so the proxy compares the
//! schema before and after the gap, and sends the differences as a node would have sent them.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use shunt_wire::cql::message::{Event, Reader, SchemaChange, encode, error_code, put};

use super::connection::Connection;
use super::error::ControlError;
use super::tables::{self, Reading, Row};

/// Events about single objects for one gap: drivers read something for each. Beyond this number
/// each keyspace has one event.
const EVENTS_MAX: usize = 128;
/// Keyspaces with an event for one gap; the mail for a core is bounded too.
const KEYSPACES_MAX: usize = 1_000;

/// Keyspaces that belong to the nodes. They differ between releases, which is no change to
/// announce.
const OF_NODES: [&str; 8] = [
    "system",
    "system_auth",
    "system_cluster_metadata",
    "system_distributed",
    "system_schema",
    "system_traces",
    "system_views",
    "system_virtual_schema",
];

/// The subject of an event, in the order in which nodes announce new ones: parts come before the
/// things made of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Keyspace,
    Type,
    Table,
    Function,
    Aggregate,
}

/// The lists of schema objects, and the column with their names. Only columns that every release
/// since 3.0 has, and that change when drivers have to read again: a table's comment is none of
/// them. Events treat views as tables.
const LISTS: [(Target, &str, &str); 8] = [
    (
        Target::Keyspace,
        "",
        "SELECT keyspace_name, durable_writes, replication FROM system_schema.keyspaces",
    ),
    (
        Target::Type,
        "type_name",
        "SELECT keyspace_name, type_name, field_names, field_types FROM system_schema.types",
    ),
    (Target::Table, "table_name", "SELECT keyspace_name, table_name, id FROM system_schema.tables"),
    (Target::Table, "view_name", "SELECT keyspace_name, view_name, id FROM system_schema.views"),
    (
        Target::Table,
        "table_name",
        "SELECT keyspace_name, table_name, column_name, clustering_order, kind, position, type \
         FROM system_schema.columns",
    ),
    (
        Target::Table,
        "table_name",
        "SELECT keyspace_name, table_name, index_name, kind, options FROM system_schema.indexes",
    ),
    (
        Target::Function,
        "function_name",
        "SELECT keyspace_name, function_name, argument_types, argument_names, body, language, return_type \
         FROM system_schema.functions",
    ),
    (
        Target::Aggregate,
        "aggregate_name",
        "SELECT keyspace_name, aggregate_name, argument_types, final_func, return_type, state_func, state_type \
         FROM system_schema.aggregates",
    ),
];

/// A schema object that events name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Thing {
    target: Target,
    keyspace: String,
    /// Name; empty for the keyspace itself.
    name: String,
    /// CQL types of a function's arguments, which are part of its name.
    arguments: Vec<String>,
}

/// Schema objects that events can name, each with a digest of its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inventory {
    things: BTreeMap<Thing, u64>,
}

/// The outcome of an attempt to take an inventory. Only events depend on it.
pub(super) enum Taken {
    All(Inventory),
    /// One of the lists has too many bytes.
    TooLarge,
    /// The server does not list its keyspaces (before Cassandra 3.0), or refuses to now.
    Refused,
}

/// The memory of the inventories so far.
pub(super) struct Inventories {
    /// The schema as clients know it from events; `None` before the first read.
    pub(super) last: Option<Inventory>,
    /// Schema version of the node at the start of the last attempt that was not refused; the schema
    /// may have been newer, not older.
    pub(super) version: Option<u128>,
    /// Bytes that the rows of one list take at most.
    pub(super) bytes_max: usize,
}

impl Default for Inventories {
    fn default() -> Self {
        Self { last: None, version: None, bytes_max: tables::BYTES_MAX }
    }
}

impl Inventory {
    /// Takes an inventory, unless the rows of a list take more than so many bytes.
    pub(super) async fn take(
        connection: &mut Connection,
        bytes_max: usize,
        limit: Duration,
    ) -> Result<Taken, ControlError> {
        let mut inventory = Self::default();
        for (target, name, query) in LISTS {
            match tables::read_some(connection, query, bytes_max, limit).await {
                // The server has no functions, for example.
                Err(ControlError::Node { code: error_code::INVALID, .. })
                    if target != Target::Keyspace => {}
                Err(ControlError::Node { .. }) => return Ok(Taken::Refused),
                Ok(Reading { is_cut: true, .. }) => return Ok(Taken::TooLarge),
                outcome => outcome?.rows.iter().for_each(|row| inventory.add(target, name, row)),
            }
        }
        Ok(Taken::All(inventory))
    }

    /// Adds a row. Several rows may describe one object; their order does not matter.
    fn add(&mut self, target: Target, name: &str, row: &Row) {
        let name = if target == Target::Keyspace { Some("") } else { row.text(name) };
        let keyspace = row.text("keyspace_name").filter(|keyspace| !OF_NODES.contains(keyspace));
        let (Some(keyspace), Some(name)) = (keyspace, name) else { return };
        let arguments = row.texts("argument_types").into_iter().map(str::to_owned).collect();
        let thing =
            Thing { target, keyspace: keyspace.to_owned(), name: name.to_owned(), arguments };
        let mut hasher = DefaultHasher::new();
        row.values().hash(&mut hasher);
        let digest = self.things.entry(thing).or_default();
        *digest = digest.wrapping_add(hasher.finish());
    }

    /// Bodies of the events that lead from `before` to here, and the number of changes. More than
    /// [`EVENTS_MAX`] changes are told as changes of their keyspaces.
    pub(super) fn events_since(&self, before: &Inventory) -> (Vec<Arc<[u8]>>, usize) {
        let changed =
            self.things.iter().filter_map(|(thing, digest)| match before.things.get(thing) {
                None => Some(("CREATED", thing)),
                Some(old) if old != digest => Some(("UPDATED", thing)),
                Some(_) => None,
            });
        // An object goes before its parts.
        let gone = before.things.keys().rev().filter(|thing| !self.things.contains_key(*thing));
        let all: Vec<_> = changed.chain(gone.map(|thing| ("DROPPED", thing))).collect();
        let events = if all.len() <= EVENTS_MAX {
            all.iter().map(|(change, thing)| thing.event(change)).collect()
        } else {
            keyspace_events(&all)
        };
        (events, all.len())
    }
}

/// One event for each keyspace that these changes concern.
fn keyspace_events(changes: &[(&str, &Thing)]) -> Vec<Arc<[u8]>> {
    let mut keyspaces: BTreeMap<&str, &str> = BTreeMap::new();
    for (change, thing) in changes {
        let of_keyspace = keyspaces.entry(&thing.keyspace).or_insert("UPDATED");
        if thing.target == Target::Keyspace {
            *of_keyspace = change;
        }
    }
    let events = keyspaces.into_iter().map(|(keyspace, change)| {
        let (keyspace, name) = (keyspace.to_owned(), String::new());
        Thing { target: Target::Keyspace, keyspace, name, arguments: Vec::new() }.event(change)
    });
    events.take(KEYSPACES_MAX).collect()
}

impl Thing {
    /// The body of an event about the object.
    fn event(&self, change: &str) -> Arc<[u8]> {
        let (target, has_arguments) = match self.target {
            Target::Keyspace => ("KEYSPACE", false),
            Target::Type => ("TYPE", false),
            Target::Table => ("TABLE", false),
            Target::Function => ("FUNCTION", true),
            Target::Aggregate => ("AGGREGATE", true),
        };
        let mut arguments = Vec::new();
        put::string_list(&mut arguments, self.arguments.iter().map(String::as_str));
        let arguments =
            Reader::new(&arguments).string_list("argument types").ok().filter(|_| has_arguments);
        let name = (self.target != Target::Keyspace).then_some(self.name.as_str());
        let change = SchemaChange { change, target, keyspace: &self.keyspace, name, arguments };
        let mut body = Vec::new();
        encode::event(&mut body, &Event::SchemaChange(change));
        Arc::from(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory(things: &[(Target, &str, &[&str], u64)]) -> Inventory {
        let mut inventory = Inventory::default();
        for (target, name, arguments, digest) in things {
            let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
            let thing = Thing {
                target: *target,
                keyspace: "k".to_owned(),
                name: (*name).to_owned(),
                arguments,
            };
            inventory.things.insert(thing, *digest);
        }
        inventory
    }

    /// Change, target, name and arguments of each event.
    fn told(after: &Inventory, before: &Inventory) -> Vec<String> {
        let (bodies, count) = after.events_since(before);
        assert!(bodies.len() <= count);
        let tell = |body: &Arc<[u8]>| match Event::decode(body).expect("event") {
            Event::SchemaChange(found) => {
                let arguments: Vec<_> =
                    found.arguments.map(|list| list.iter().collect()).unwrap_or_default();
                let name = found.name.unwrap_or(found.keyspace);
                assert_eq!(found.keyspace, "k");
                assert_eq!(
                    found.arguments.is_some(),
                    matches!(found.target, "FUNCTION" | "AGGREGATE")
                );
                format!("{} {} {name}{arguments:?}", found.change, found.target)
            }
            other => panic!("{other:?}"),
        };
        bodies.iter().map(tell).collect()
    }

    #[test]
    fn events_come_in_the_order_in_which_a_schema_is_built_and_taken_down() {
        let nothing = inventory(&[]);
        let all = inventory(&[
            (Target::Aggregate, "sum", &["int"], 1),
            (Target::Function, "plus", &["int", "text"], 1),
            (Target::Table, "t", &[], 1),
            (Target::Type, "address", &[], 1),
            (Target::Keyspace, "", &[], 1),
        ]);
        let named = [
            "KEYSPACE k[]",
            "TYPE address[]",
            "TABLE t[]",
            r#"FUNCTION plus["int", "text"]"#,
            r#"AGGREGATE sum["int"]"#,
        ];
        assert_eq!(told(&all, &nothing), named.map(|name| format!("CREATED {name}")));
        let mut backwards = named.map(|name| format!("DROPPED {name}"));
        backwards.reverse();
        assert_eq!(told(&nothing, &all), backwards);
        assert!(told(&all, &all).is_empty());
    }

    #[test]
    fn changed_objects_were_updated_and_functions_differ_by_their_arguments() {
        let before = inventory(&[
            (Target::Table, "t", &[], 1),
            (Target::Table, "u", &[], 1),
            (Target::Function, "f", &["int"], 1),
        ]);
        let after = inventory(&[
            (Target::Table, "t", &[], 2),
            (Target::Table, "u", &[], 1),
            (Target::Function, "f", &["text"], 1),
        ]);
        let expected =
            ["UPDATED TABLE t[]", r#"CREATED FUNCTION f["text"]"#, r#"DROPPED FUNCTION f["int"]"#]
                .map(str::to_owned);
        assert_eq!(told(&after, &before), expected);
    }

    #[test]
    fn more_changes_than_drivers_should_read_one_by_one_are_told_by_keyspace() {
        let names: Vec<String> = (0..EVENTS_MAX).map(|number| format!("t{number}")).collect();
        let mut tables: Vec<_> =
            names.iter().map(|name| (Target::Table, name.as_str(), &[][..], 1)).collect();
        let nothing = inventory(&[]);
        assert_eq!(told(&inventory(&tables), &nothing).len(), EVENTS_MAX);
        tables.push((Target::Type, "one_more", &[], 1));
        assert_eq!(told(&inventory(&tables), &nothing), ["UPDATED KEYSPACE k[]"]);
        tables.push((Target::Keyspace, "", &[], 1));
        assert_eq!(told(&inventory(&tables), &nothing), ["CREATED KEYSPACE k[]"]);
        assert_eq!(told(&nothing, &inventory(&tables)), ["DROPPED KEYSPACE k[]"]);
    }
}
