//! CREATE, ALTER and DROP TABLE.

use std::collections::HashSet;
use std::sync::Arc;

use shunt_language::ast::{
    AlterTable, ColumnDefinition, CreateTable, Properties, PropertyValue, QualifiedName,
    TableAlteration,
};
use shunt_language::types::CqlType;
use shunt_storage::row::{ColumnId, TableId};

use super::{Change, Moment, Object, Outcome, check_table_name};
use crate::error::CqlError;
use crate::schema::resolve::{Types, keyspace_of, without_udts};
use crate::schema::{
    Column, ColumnKind, DroppedColumn, Keyspace, Schema, Table, TableOptions, Uuid,
};

/// Most columns of one table, the upper bound of Cassandra's warning.
const COLUMNS_MAX: usize = 4096;

impl Schema {
    pub(super) fn create_table(
        &self,
        create: &CreateTable,
        session: Option<&str>,
        moment: &Moment<'_>,
    ) -> Outcome {
        let keyspace_name = keyspace_of(&create.name, session)?;
        let keyspace = self.keyspace_to_change(keyspace_name)?;
        let name = &create.name.name;
        check_table_name(keyspace_name, name)?;
        if keyspace.tables.contains_key(name) {
            let error =
                CqlError::AlreadyExists { keyspace: keyspace_name.to_owned(), table: name.clone() };
            return if create.if_not_exists { Ok(None) } else { Err(error) };
        }
        let number = TableId(self.next_table);
        let table = Table::create(create, keyspace_name, self, moment.table_id, Some(number))?;
        let mut schema = self.with_table(keyspace, table);
        schema.next_table += 1;
        Ok(Some((schema, changed("CREATED", keyspace_name, name))))
    }

    fn columns(
        &self,
        keyspace: &str,
        definitions: &[ColumnDefinition],
    ) -> Result<Vec<Column>, CqlError> {
        // Before they are compared, and before their types are resolved.
        if definitions.len() > COLUMNS_MAX {
            return Err(too_many_columns());
        }
        let mut names = HashSet::with_capacity(definitions.len());
        let mut columns: Vec<Column> = Vec::with_capacity(definitions.len());
        for definition in definitions {
            if !names.insert(definition.name.as_str()) {
                let message =
                    format!("Duplicate column '{}' declaration for table", definition.name);
                return Err(CqlError::Invalid(message));
            }
            columns.push(self.column(keyspace, definition, ColumnId(columns.len() as u32))?);
        }
        Ok(columns)
    }

    fn column(
        &self,
        keyspace: &str,
        definition: &ColumnDefinition,
        id: ColumnId,
    ) -> Result<Column, CqlError> {
        if definition.mask.is_some() {
            return Err(CqlError::invalid("Data masking is not supported by this node"));
        }
        let cql_type = CqlType::resolve(
            &definition.type_name,
            &Types { schema: self, keyspace: Some(keyspace) },
        )?;
        let kind = if definition.is_static { ColumnKind::Static } else { ColumnKind::Regular };
        Ok(Column {
            name: definition.name.clone(),
            kind,
            position: 0,
            descending: false,
            cql_type,
            id,
            dropped_us: None,
        })
    }

    fn with_table(&self, mut keyspace: Keyspace, table: Table) -> Schema {
        keyspace.tables.insert(table.name.clone(), Arc::new(table));
        self.with_keyspace(keyspace)
    }

    pub(super) fn alter_table(
        &self,
        alter: &AlterTable,
        session: Option<&str>,
        moment: &Moment<'_>,
    ) -> Outcome {
        let keyspace_name = keyspace_of(&alter.name, session)?;
        let keyspace = self.keyspace_to_change(keyspace_name)?;
        let name = &alter.name.name;
        let Some(old) = keyspace.tables.get(name) else {
            let error = CqlError::Invalid(format!("Table '{keyspace_name}.{name}' doesn't exist"));
            return if alter.if_exists { Ok(None) } else { Err(error) };
        };
        let named = match &alter.alteration {
            TableAlteration::Add { columns, .. } => old.columns.len() + columns.len(),
            TableAlteration::Drop { columns, .. } => columns.len(),
            TableAlteration::Rename { columns, .. } => columns.len(),
            _ => 0,
        };
        // Each is looked up among all.
        if named > COLUMNS_MAX {
            return Err(too_many_columns());
        }
        let mut table = Table::clone(old);
        match &alter.alteration {
            TableAlteration::Add { if_not_exists, columns } => {
                for definition in columns {
                    self.add_column(&mut table, definition, *if_not_exists)?;
                }
            }
            TableAlteration::Drop { if_exists, columns, timestamp } => {
                for column in columns {
                    drop_column(
                        &mut table,
                        column,
                        *if_exists,
                        timestamp.unwrap_or(moment.now_us),
                    )?;
                }
            }
            TableAlteration::Rename { if_exists, columns } => {
                rename_columns(&mut table, *if_exists, columns)?
            }
            TableAlteration::With(properties) => {
                if properties.iter().any(|(name, _)| name == "id") {
                    return Err(CqlError::Config("Cannot alter table id.".to_owned()));
                }
                set_options(&mut table, properties)?;
            }
            TableAlteration::AlterType { .. } => {
                return Err(CqlError::invalid("Altering column types is no longer supported"));
            }
            TableAlteration::Mask { .. } => {
                return Err(CqlError::invalid("Data masking is not supported by this node"));
            }
            TableAlteration::DropCompactStorage => {
                return Err(CqlError::invalid(
                    "Cannot DROP COMPACT STORAGE on table without COMPACT STORAGE",
                ));
            }
        }
        check_counters(old, &table)?;
        table.arrange();
        check(&table)?;
        Ok(Some((self.with_table(keyspace, table), changed("UPDATED", keyspace_name, name))))
    }

    fn add_column(
        &self,
        table: &mut Table,
        definition: &ColumnDefinition,
        if_not_exists: bool,
    ) -> Result<(), CqlError> {
        let name = &definition.name;
        if table.column(name).is_some() {
            let message = format!("Column with name '{name}' already exists");
            return if if_not_exists { Ok(()) } else { Err(CqlError::Invalid(message)) };
        }
        let mut column = self.column(&table.keyspace, definition, ColumnId(table.next_column))?;
        if column.kind == ColumnKind::Static && table.clustering_len == 0 {
            let message = "Static columns are only useful (and thus allowed) if the table has at least one clustering column";
            return Err(CqlError::invalid(message));
        }
        if let Some(before) = table.dropped.iter().rfind(|dropped| dropped.column.name == *name) {
            if before.column.kind != column.kind {
                let message = format!(
                    "Cannot re-add previously dropped column '{name}', as static or not as it was"
                );
                return Err(CqlError::Invalid(message));
            }
            let (known, new) = (&before.column.cql_type, without_udts(&column.cql_type));
            let same = known.is_multi_cell() == new.is_multi_cell()
                && known.fixed_length() == new.fixed_length()
                && new.freeze().accepts(&known.freeze());
            if !same {
                let message = format!(
                    "Cannot re-add previously dropped column '{name}' of type {}, incompatible with previous type {}",
                    column.cql_type, before.column.cql_type
                );
                return Err(CqlError::Invalid(message));
            }
            if column.cql_type.is_counter() {
                return Err(CqlError::Invalid(format!(
                    "Cannot re-add previously dropped counter column {name}"
                )));
            }
            // Values written after the drop become visible again.
            column.id = before.column.id;
        } else {
            table.next_column += 1;
        }
        table.columns.push(column);
        Ok(())
    }

    pub(super) fn drop_table(
        &self,
        name: &QualifiedName,
        if_exists: bool,
        session: Option<&str>,
    ) -> Outcome {
        let keyspace_name = keyspace_of(name, session)?;
        let name = &name.name;
        let found = self.table(keyspace_name, name).is_some();
        if !found {
            let error = CqlError::Invalid(format!("Table '{keyspace_name}.{name}' doesn't exist"));
            return if if_exists { Ok(None) } else { Err(error) };
        }
        let mut keyspace = self.keyspace_to_change(keyspace_name)?;
        keyspace.tables.remove(name);
        Ok(Some((self.with_keyspace(keyspace), changed("DROPPED", keyspace_name, name))))
    }
}

impl Table {
    /// Builds and checks the table of CREATE TABLE.
    pub(crate) fn create(
        create: &CreateTable,
        keyspace: &str,
        schema: &Schema,
        id: Uuid,
        number: Option<TableId>,
    ) -> Result<Table, CqlError> {
        if create.options.compact_storage {
            return Err(CqlError::invalid("COMPACT STORAGE tables are not supported by this node"));
        }
        let mut table = Table {
            keyspace: keyspace.to_owned(),
            name: create.name.name.clone(),
            id,
            number,
            columns: schema.columns(keyspace, &create.columns)?,
            partition_key_len: 0,
            clustering_len: 0,
            has_static: false,
            is_counter: false,
            keeps_written_keys: false,
            next_column: create.columns.len() as u32,
            dropped: Vec::new(),
            indexes: Vec::new(),
            options: TableOptions::default(),
        };
        set_primary_key(&mut table, create)?;
        set_order(&mut table, &create.options.clustering_order)?;
        table.arrange();
        check(&table)?;
        set_options(&mut table, &create.options.properties)?;
        if !create.options.properties.iter().any(|(name, _)| name == BLOOM_FILTER) {
            // Cassandra's levelled compaction implies another default; an altered table keeps its
            // value.
            let class =
                table.options.maps.get("compaction").and_then(|compaction| compaction.get("class"));
            if class.is_some_and(|class| class.ends_with(".LeveledCompactionStrategy")) {
                table.options.numbers.insert(BLOOM_FILTER, BLOOM_FILTER_LEVELLED);
            }
        }
        Ok(table)
    }
}

const BLOOM_FILTER: &str = "bloom_filter_fp_chance";
const BLOOM_FILTER_LEVELLED: f64 = 0.1;

fn too_many_columns() -> CqlError {
    CqlError::Invalid(format!("a table has at most {COLUMNS_MAX} columns"))
}

fn changed(kind: &'static str, keyspace: &str, name: &str) -> Change {
    Change { kind, keyspace: keyspace.to_owned(), object: Object::Table(name.to_owned()) }
}

fn set_primary_key(table: &mut Table, create: &CreateTable) -> Result<(), CqlError> {
    let name = format!("{}.{}", table.keyspace, table.name);
    let (partition_key, clustering) = match &create.primary_keys[..] {
        [] => {
            return Err(CqlError::Invalid(format!(
                "No PRIMARY KEY specifed for table '{name}' (exactly one required)"
            )));
        }
        [only] => only,
        _ => {
            return Err(CqlError::Invalid(format!(
                "Multiple PRIMARY KEYs specified for table '{name}' (exactly one required)"
            )));
        }
    };
    for (kind, names) in
        [(ColumnKind::PartitionKey, partition_key), (ColumnKind::Clustering, clustering)]
    {
        for (position, column_name) in names.iter().enumerate() {
            let Some(column) = table.columns.iter_mut().find(|column| column.name == *column_name)
            else {
                let message = format!(
                    "Unknown column '{column_name}' referenced in PRIMARY KEY for table '{name}'"
                );
                return Err(CqlError::Invalid(message));
            };
            match column.kind {
                ColumnKind::Regular => {}
                ColumnKind::Static => {
                    return Err(CqlError::Invalid(format!(
                        "Static column '{column_name}' cannot be part of the PRIMARY KEY"
                    )));
                }
                _ => {
                    return Err(CqlError::Invalid(format!(
                        "Duplicate column '{column_name}' in PRIMARY KEY clause for table '{name}'"
                    )));
                }
            }
            (column.kind, column.position) = (kind, position);
        }
    }
    Ok(())
}

fn set_order(table: &mut Table, order: &[(String, bool)]) -> Result<(), CqlError> {
    let mut clustering: Vec<&mut Column> =
        table.columns.iter_mut().filter(|column| column.kind == ColumnKind::Clustering).collect();
    clustering.sort_by_key(|column| column.position);
    if order.len() > clustering.len() {
        let message = "Only clustering columns can be defined in CLUSTERING ORDER directive";
        return Err(CqlError::invalid(message));
    }
    // Unnamed columns come last and ascend.
    for (index, (name, descending)) in order.iter().enumerate() {
        let expected = &clustering[index].name;
        if expected != name {
            let message = if order.iter().any(|(other, _)| other == expected) {
                format!(
                    "The order of columns in the CLUSTERING ORDER directive must match that of the clustering columns \
                     ({expected} must appear before {name})"
                )
            } else {
                format!("Missing CLUSTERING ORDER for column {expected}")
            };
            return Err(CqlError::Invalid(message));
        }
        clustering[index].descending = *descending;
    }
    Ok(())
}

/// A table stays a counter table or not, as created.
fn check_counters(old: &Table, new: &Table) -> Result<(), CqlError> {
    let values = new.columns.iter().filter(|column| !column.is_primary_key());
    let Some(wrong) =
        values.into_iter().find(|column| column.cql_type.is_counter() != old.is_counter)
    else {
        return Ok(());
    };
    let Table { keyspace, name, .. } = new;
    let (column, table) = if old.is_counter {
        ("a non counter", "a counter")
    } else {
        ("a counter", "a non counter")
    };
    let message = format!(
        "{keyspace}.{name}: Cannot have {column} column (\"{}\") in {table} table",
        wrong.name
    );
    Err(CqlError::Config(message))
}

/// Refuses an invalid table.
fn check(table: &Table) -> Result<(), CqlError> {
    for column in table.columns.iter().filter(|column| column.is_primary_key()) {
        let (name, cql_type) = (&column.name, &column.cql_type);
        if cql_type.is_counter() {
            return Err(CqlError::Invalid(format!(
                "counter type is not supported for PRIMARY KEY column '{name}'"
            )));
        }
        if cql_type.is_multi_cell() {
            let kind = if cql_type.is_collection() { "collection" } else { "user-defined" };
            return Err(CqlError::Invalid(format!(
                "Invalid non-frozen {kind} type {cql_type} for PRIMARY KEY column '{name}'"
            )));
        }
        if cql_type.references_duration() {
            return Err(CqlError::Invalid(format!(
                "duration type is not supported for PRIMARY KEY column '{name}'"
            )));
        }
    }
    if table.has_static && table.clustering_len == 0 {
        let message = "Static columns are only useful (and thus allowed) if the table has at least one clustering column";
        return Err(CqlError::invalid(message));
    }
    if table.is_counter && table.values().iter().any(|column| !column.cql_type.is_counter()) {
        return Err(CqlError::invalid(
            "Cannot mix counter and non counter columns in the same table",
        ));
    }
    if table.is_counter && table.options.default_time_to_live > 0 {
        return Err(CqlError::Config(
            "Cannot set default_time_to_live on a table with counters".to_owned(),
        ));
    }
    Ok(())
}

fn set_options(table: &mut Table, properties: &Properties) -> Result<(), CqlError> {
    for (name, value) in properties {
        if name == "id" {
            // Written by DESCRIBE .. WITH INTERNALS; a node assigns its own.
            check_id(value)?;
            continue;
        }
        table.options.set(name, value)?;
    }
    table.options.check()?;
    check(table)
}

fn check_id(value: &PropertyValue) -> Result<(), CqlError> {
    let is_uuid = |text: &str| {
        let mut parts = text.split('-');
        let hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
        [8, 4, 4, 4, 12]
            .iter()
            .all(|length| parts.next().is_some_and(|part| part.len() == *length && hex(part)))
            && parts.next().is_none()
    };
    match value {
        PropertyValue::Constant(_, text) if is_uuid(text) => Ok(()),
        _ => Err(CqlError::Config("Invalid table id".to_owned())),
    }
}

fn drop_column(
    table: &mut Table,
    name: &str,
    if_exists: bool,
    dropped_us: i64,
) -> Result<(), CqlError> {
    let Some(position) = table.position(name) else {
        let message =
            format!("Column {name} was not found in table '{}.{}'", table.keyspace, table.name);
        return if if_exists { Ok(()) } else { Err(CqlError::Invalid(message)) };
    };
    if table.columns[position].is_primary_key() {
        return Err(CqlError::Invalid(format!("Cannot drop PRIMARY KEY column {name}")));
    }
    let dropped = &table.columns[position];
    if matches!(dropped.cql_type, CqlType::Udt { .. }) && dropped.is_multi_cell() {
        let message =
            format!("Cannot drop non-frozen column {name} of user type {}", dropped.cql_type);
        return Err(CqlError::Invalid(message));
    }
    if let Some(indexes) = table.index_names(name) {
        let message = format!(
            "Cannot drop column {name} because it has dependent secondary indexes ({indexes})"
        );
        return Err(CqlError::Invalid(message));
    }
    let mut column = table.columns.remove(position);
    // The types it consisted of may be dropped next.
    column.cql_type = without_udts(&column.cql_type);
    table.dropped.retain(|dropped| dropped.column.name != name);
    table.dropped.push(DroppedColumn { column, dropped_us });
    Ok(())
}

fn rename_columns(
    table: &mut Table,
    if_exists: bool,
    columns: &[(String, String)],
) -> Result<(), CqlError> {
    for (old, new) in columns {
        let Some(position) = table.position(old) else {
            let message =
                format!("Column {old} was not found in table {}.{}", table.keyspace, table.name);
            if if_exists {
                continue;
            }
            return Err(CqlError::Invalid(message));
        };
        if !table.columns[position].is_primary_key() {
            return Err(CqlError::Invalid(format!("Cannot rename non PRIMARY KEY column {old}")));
        }
        if table.column(new).is_some() {
            let message = format!(
                "Cannot rename column {old} to {new} in table '{}.{}'; another column with that name already exists",
                table.keyspace, table.name
            );
            return Err(CqlError::Invalid(message));
        }
        if let Some(indexes) = table.index_names(old) {
            let message = format!(
                "Can't rename column {old} because it has dependent secondary indexes ({indexes})"
            );
            return Err(CqlError::Invalid(message));
        }
        table.columns[position].name.clone_from(new);
    }
    Ok(())
}
