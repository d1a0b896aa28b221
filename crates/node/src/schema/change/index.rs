//! CREATE INDEX and DROP INDEX, with the checks of Cassandra 5.0 in its order
//! (`CreateIndexStatement`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use shunt_language::ast::{
    CreateIndex, IndexTarget, NativeType, Properties, PropertyValue, QualifiedName,
};
use shunt_language::types::CqlType;

use super::{Change, Object, Outcome, SYSTEM_KEYSPACES, is_word};
use crate::error::CqlError;
use crate::schema::index::{INDEXES_MAX, Index, target_text};
use crate::schema::resolve::keyspace_of;
use crate::schema::{Column, Keyspace, Schema, Table};

/// Default class of CREATE INDEX, in any letter case.
const DEFAULT_CLASS: &str = "legacy_local_table";
/// Names of storage-attached indexes, in any letter case.
const STORAGE_ATTACHED: [&str; 2] = ["sai", "storageattachedindex"];
/// The class with its package, with exact spelling.
const STORAGE_ATTACHED_CLASS: &str = "org.apache.cassandra.index.sai.StorageAttachedIndex";
const SASI_CLASS: &str = "org.apache.cassandra.index.sasi.SASIIndex";

/// Options of an index that change the comparison of texts, with their neutral values.
const ANALYZER: [(&str, &str); 3] =
    [("ascii", "false"), ("case_sensitive", "true"), ("normalize", "false")];
/// Options of an index on vectors.
const VECTOR: [&str; 4] =
    ["construction_beam_width", "maximum_node_connections", "optimize_for", "similarity_function"];

impl Schema {
    pub(super) fn create_index(&self, create: &CreateIndex, session: Option<&str>) -> Outcome {
        let (class, options) = class_and_options(create)?;
        let keyspace_name = keyspace_of(&create.table, session)?;
        let keyspace = self.keyspace_to_change(keyspace_name)?;
        let table_name = &create.table.name;
        let Some(table) = keyspace.tables.get(table_name) else {
            return invalid(format!("Table '{table_name}' doesn't exist"));
        };
        if let Some(name) = create.name.as_ref().filter(|name| keyspace.has_index(name)) {
            let error = CqlError::Invalid(format!("Index '{name}' already exists"));
            return if create.if_not_exists { Ok(None) } else { Err(error) };
        }
        if table.is_counter {
            return invalid("Secondary indexes on counter tables aren't supported");
        }
        let targets = targets(table, &create.targets)?;
        check_count(&targets, class.is_some())?;
        targets.iter().try_for_each(|(target, column)| check_target(table, *target, column))?;
        let name = match &create.name {
            Some(name) => name.clone(),
            None => keyspace.default_name(table, &targets),
        };
        if !is_word(&name) {
            return Err(CqlError::Config(format!("Illegal index name {name}")));
        }
        if let Some(class) = &class {
            check_class(class)?;
        }
        let [(target, column)] = &targets[..] else { return refuse_columns(&targets) };
        let index = Index { name, column: column.name.clone(), target: *target, class, options };
        if let Some(other) = table.indexes.iter().find(|other| other.duplicates(&index)) {
            let message =
                format!("Index {} is a duplicate of existing index {}", index.name, other.name);
            return if create.if_not_exists { Ok(None) } else { invalid(message) };
        }
        if index.is_storage_attached() {
            check_storage_attached(table, &index, column)?;
        }
        if table.indexes.len() >= INDEXES_MAX {
            return invalid(format!(
                "Tables cannot have more than {INDEXES_MAX} secondary indexes, failed to create secondary index {} on \
                 table {table_name}",
                index.name
            ));
        }
        let mut table = Table::clone(table);
        let place = table.indexes.partition_point(|other| other.name < index.name);
        table.indexes.insert(place, index);
        Ok(Some(self.with_indexes(keyspace, table)))
    }

    pub(super) fn drop_index(
        &self,
        name: &QualifiedName,
        if_exists: bool,
        session: Option<&str>,
    ) -> Outcome {
        let keyspace_name = keyspace_of(name, session)?;
        if SYSTEM_KEYSPACES.contains(&keyspace_name) {
            return invalid(format!("System keyspace '{keyspace_name}' is not user-modifiable"));
        }
        let name = &name.name;
        let keyspace = self.keyspace(keyspace_name);
        let Some((keyspace, table)) =
            keyspace.and_then(|found| Some((found, found.table_of_index(name)?)))
        else {
            // The trailing apostrophe is Cassandra's.
            let message = format!("Index '{keyspace_name}.{name}' doesn't exist'");
            return if if_exists { Ok(None) } else { invalid(message) };
        };
        let mut table = Table::clone(table);
        table.indexes.retain(|index| index.name != *name);
        Ok(Some(self.with_indexes(Keyspace::clone(keyspace), table)))
    }

    /// The schema with this table, whose indexes have changed, replacing the one of its name.
    fn with_indexes(&self, mut keyspace: Keyspace, table: Table) -> (Schema, Change) {
        let object = Object::Table(table.name.clone());
        let change = Change { kind: "UPDATED", keyspace: keyspace.name.clone(), object };
        keyspace.tables.insert(table.name.clone(), Arc::new(table));
        (self.with_keyspace(keyspace), change)
    }
}

impl Keyspace {
    /// Table of the index with this name.
    pub(crate) fn table_of_index(&self, name: &str) -> Option<&Arc<Table>> {
        self.tables.values().find(|table| table.indexes.iter().any(|index| index.name == name))
    }

    /// True if an index of a table here has this name.
    fn has_index(&self, name: &str) -> bool {
        self.table_of_index(name).is_some()
    }

    /// Default name of an unnamed index.
    fn default_name(&self, table: &Table, targets: &[(IndexTarget, Column)]) -> String {
        let column = match targets {
            [(_, only)] => format!("_{}", only.name),
            _ => String::new(),
        };
        let mut base = format!("{}{column}_idx", table.name);
        base.retain(|character| character.is_ascii_alphanumeric() || character == '_');
        let numbered = (1..).map(|number| format!("{base}_{number}"));
        let free = std::iter::once(base.clone()).chain(numbered).find(|name| !self.has_index(name));
        free.unwrap_or(base)
    }
}

fn invalid<T>(message: impl Into<String>) -> Result<T, CqlError> {
    Err(CqlError::Invalid(message.into()))
}

/// The class of a custom index, and its options.
fn class_and_options(
    create: &CreateIndex,
) -> Result<(Option<String>, BTreeMap<String, String>), CqlError> {
    let class = create.class.as_deref().unwrap_or(DEFAULT_CLASS);
    let is_custom = create.custom || !class.eq_ignore_ascii_case(DEFAULT_CLASS);
    let options = options(&create.properties)?;
    if !is_custom && options.is_some() {
        return invalid("Cannot specify options for a non-CUSTOM index");
    }
    let options = options.unwrap_or_default();
    for reserved in ["class_name", "target"] {
        if options.contains_key(reserved) {
            return invalid(format!("Cannot specify {reserved} as a CUSTOM option"));
        }
    }
    Ok((is_custom.then(|| class.to_owned()), options))
}

fn options(properties: &Properties) -> Result<Option<BTreeMap<String, String>>, CqlError> {
    let mut options = None;
    for (name, value) in properties {
        match value {
            _ if name != "options" => {
                return Err(CqlError::Syntax(format!("Unknown property '{name}'")));
            }
            PropertyValue::Map(pairs) => options = Some(pairs.iter().cloned().collect()),
            PropertyValue::Constant(..) => {
                let message = "Invalid value for property 'options'. It should be a map.";
                return Err(CqlError::Syntax(message.to_owned()));
            }
        }
    }
    Ok(options)
}

fn check_class(class: &str) -> Result<(), CqlError> {
    if STORAGE_ATTACHED.iter().any(|name| class.eq_ignore_ascii_case(name))
        || class == STORAGE_ATTACHED_CLASS
    {
        return Ok(());
    }
    if class == SASI_CLASS {
        return invalid(
            "SASI indexes are disabled: this node does not have them. Create a storage-attached index (USING 'sai') instead",
        );
    }
    Err(CqlError::Config(format!("Unable to find custom indexer class '{class}'")))
}

/// Columns with their indexed parts. A collection is indexed by its values.
fn targets(
    table: &Table,
    given: &[(IndexTarget, String)],
) -> Result<Vec<(IndexTarget, Column)>, CqlError> {
    let target = |(target, name): &(IndexTarget, String)| {
        let Some(column) = table.column(name) else {
            let Table { keyspace, name: table, .. } = table;
            return invalid(format!("Undefined column name {name} in table {keyspace}.{table}"));
        };
        let target = match target {
            IndexTarget::Simple if column.cql_type.is_collection() => IndexTarget::Values,
            other => *other,
        };
        Ok((target, column.clone()))
    };
    given.iter().map(target).collect()
}

/// Refuses several columns, unless the index `is_custom`, and repeated columns.
fn check_count(targets: &[(IndexTarget, Column)], is_custom: bool) -> Result<(), CqlError> {
    if targets.is_empty() && !is_custom {
        return invalid("Only CUSTOM indexes can be created without specifying a target column");
    }
    if targets.len() > 1 && !is_custom {
        return invalid("Only CUSTOM indexes support multiple columns");
    }
    let mut names = BTreeSet::new();
    for (_, column) in targets {
        if !names.insert(&column.name) {
            return invalid(format!("Duplicate column '{}' in index target list", column.name));
        }
    }
    Ok(())
}

/// Refuses a storage-attached index that is not on one column.
fn refuse_columns<T>(targets: &[(IndexTarget, Column)]) -> Result<T, CqlError> {
    let parts: Vec<String> =
        targets.iter().map(|(target, column)| target_text(*target, &column.name)).collect();
    match &parts[..] {
        [] => invalid("Failed to retrieve target column for: "),
        _ => invalid(format!(
            "A storage-attached index cannot be created over multiple columns: {}",
            parts.join(", ")
        )),
    }
}

/// Refuses a column, or a part of it, that cannot be indexed.
fn check_target(table: &Table, target: IndexTarget, column: &Column) -> Result<(), CqlError> {
    let Column { name, cql_type, .. } = column;
    if cql_type.references_duration() {
        return invalid(match cql_type {
            _ if cql_type.is_collection() => {
                "Secondary indexes are not supported on collections containing durations"
            }
            CqlType::Tuple(_) => {
                "Secondary indexes are not supported on tuples containing durations"
            }
            CqlType::Udt { .. } => {
                "Secondary indexes are not supported on UDTs containing durations"
            }
            _ => "Secondary indexes are not supported on duration columns",
        });
    }
    if let [only] = table.partition_key()
        && only.name == *name
    {
        return invalid(format!(
            "Cannot create secondary index on the only partition key column {name}"
        ));
    }
    let part = match target {
        IndexTarget::Simple => "simple",
        IndexTarget::Values => "values",
        IndexTarget::Keys => "keys",
        IndexTarget::Entries => "entries",
        IndexTarget::Full => "full",
    };
    let is_frozen_collection = cql_type.is_collection() && !column.is_multi_cell();
    if is_frozen_collection && target != IndexTarget::Full {
        return invalid(format!(
            "Cannot create {part}() index on frozen column {name}. Frozen collections are immutable and must be fully \
             indexed by using the 'full({name})' modifier"
        ));
    }
    if !is_frozen_collection && target == IndexTarget::Full {
        return invalid("full() indexes can only be created on frozen collections");
    }
    if !cql_type.is_collection() && target != IndexTarget::Simple {
        return invalid(format!(
            "Cannot create {part}() index on {name}. Non-collection columns only support simple indexes"
        ));
    }
    let of_keys = matches!(target, IndexTarget::Keys | IndexTarget::Entries);
    if of_keys && !matches!(cql_type, CqlType::Map { .. }) {
        return invalid(format!(
            "Cannot create index on {part} of column {name} with non-map type"
        ));
    }
    if column.is_multi_cell() && !cql_type.is_collection() {
        return invalid(format!("Cannot create index on non-frozen UDT column {name}"));
    }
    Ok(())
}

/// Refuses a storage-attached index that Cassandra refuses, or that this node does not support.
fn check_storage_attached(table: &Table, index: &Index, column: &Column) -> Result<(), CqlError> {
    let Column { name, cql_type, .. } = column;
    if !is_word(name) {
        return invalid(format!("Column '{name}' contains non-alphanumeric-underscore characters"));
    }
    let same = |other: &&Index| {
        other.is_storage_attached() && (&other.column, other.target) == (name, index.target)
    };
    if table.indexes.iter().any(|other| same(&other)) {
        return invalid(format!(
            "Cannot create more than one storage-attached index on the same column: {name}"
        ));
    }
    let indexed: Vec<&CqlType> = match (index.target, cql_type) {
        (IndexTarget::Values, CqlType::List { element, .. } | CqlType::Set { element, .. }) => {
            vec![element]
        }
        (IndexTarget::Values, CqlType::Map { value, .. }) => vec![value],
        (IndexTarget::Keys, CqlType::Map { key, .. }) => vec![key],
        (IndexTarget::Entries, CqlType::Map { key, value, .. }) => vec![key, value],
        _ => vec![cql_type],
    };
    check_options(index, &indexed)?;
    if indexed.iter().any(|indexed| matches!(indexed, CqlType::Vector { .. })) {
        return invalid("Vector indexes are not supported by this node");
    }
    match indexed.iter().find(|indexed| !is_indexable(indexed)) {
        Some(other) => invalid(format!("Unsupported type: {other}")),
        None => Ok(()),
    }
}

fn is_indexable(cql_type: &CqlType) -> bool {
    match cql_type {
        CqlType::Native(native) => {
            !matches!(native, NativeType::Blob | NativeType::Counter | NativeType::Duration)
        }
        CqlType::Custom(_) => false,
        _ => !cql_type.is_multi_cell(),
    }
}

/// Refuses options that Cassandra refuses for these types, or that this node does not support.
fn check_options(index: &Index, indexed: &[&CqlType]) -> Result<(), CqlError> {
    let shown = || match indexed {
        [only] => only.to_string(),
        _ => index.target_text(),
    };
    let is_known =
        |name: &str| VECTOR.contains(&name) || ANALYZER.iter().any(|(known, _)| *known == name);
    let unknown: Vec<&str> =
        index.options.keys().map(String::as_str).filter(|name| !is_known(name)).collect();
    if !unknown.is_empty() {
        return Err(CqlError::Config(format!(
            "Properties specified [{}] are not understood by StorageAttachedIndex",
            unknown.join(", ")
        )));
    }
    let is_text = matches!(indexed, [CqlType::Native(NativeType::Ascii | NativeType::Text)]);
    for (name, plain) in ANALYZER {
        let Some(value) = index.options.get(name) else { continue };
        if !is_text {
            return invalid(format!("CQL type {} cannot be analyzed.", shown()));
        }
        let value = value.to_ascii_lowercase();
        if value != "true" && value != "false" {
            let given = &index.options[name];
            return invalid(format!("Illegal value for boolean option '{name}': {given}"));
        }
        if value != plain {
            return invalid(format!(
                "Option '{name}' of an index is not supported by this node unless it is {plain}"
            ));
        }
    }
    let is_vector = matches!(indexed, [CqlType::Vector { .. }]);
    if !is_vector && VECTOR.iter().any(|name| index.options.contains_key(*name)) {
        return invalid(format!("CQL type {} cannot have vector options", shown()));
    }
    Ok(())
}
