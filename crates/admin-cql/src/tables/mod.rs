//! The tables: columns with their types, and the places of their rows.

mod admin;
mod connections;
mod system;

use std::borrow::Cow;

use serde_json::Value as Page;
use shunt_language::CqlType;

use crate::fault::Fault;

pub use admin::ADMIN_TABLES;
use system::SYSTEM_TABLES;

/// Keyspace of the admin tables.
pub(crate) const KEYSPACE: &str = "shunt_admin";

/// Key of a table's only row, as in `system.local`.
pub(crate) const ONLY_KEY: &str = "local";

/// The `field` of a column whose value is [`ONLY_KEY`].
const ONLY_KEY_FIELD: &str = "only key";

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Name of the column.
    pub name: &'static str,
    /// CQL type of the column.
    pub cql: &'static str,
    /// Place of the value in a row of the page (RFC 6901), or [`ONLY_KEY_FIELD`].
    pub(crate) field: &'static str,
    /// Meaning of the value; empty for system tables.
    pub meaning: &'static str,
}

impl Column {
    /// The value in a row of the page.
    pub(crate) fn value<'p>(&self, row: &'p Page) -> Option<Cow<'p, Page>> {
        match self.field {
            ONLY_KEY_FIELD => Some(Cow::Owned(ONLY_KEY.into())),
            field => row.pointer(field).map(Cow::Borrowed),
        }
    }
}

/// The source of a table's rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// A page: its name, and the place of the rows in it (RFC 6901). An object is one row.
    Page(&'static str, &'static str),
    /// A page as above, and one more row with the sums of the rows that the page leaves out: the
    /// place of the sums, and the field that is 0 if the page is complete.
    PageWithOthers(&'static str, &'static str, &'static str, &'static str),
    /// This crate.
    Own,
}

/// A table.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Keyspace of the table.
    pub keyspace: &'static str,
    /// Name of the table.
    pub name: &'static str,
    /// Subject of the table; empty for system tables.
    pub subject: &'static str,
    /// Number of columns that are the partition key. They come first.
    pub(crate) partition_columns: usize,
    /// Number of clustering columns, which follow.
    pub(crate) clustering_columns: usize,
    pub(crate) source: Source,
    /// The columns in order.
    pub columns: &'static [Column],
}

impl Table {
    /// Position of a column.
    pub(crate) fn position(&self, name: &str) -> Result<usize, Fault> {
        let found = self.columns.iter().position(|column| column.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = self.columns.iter().map(|column| column.name).collect();
            Fault::invalid(format!(
                "Undefined column name {name} in table {}.{}; it has {}",
                self.keyspace,
                self.name,
                names.join(", ")
            ))
        })
    }

    /// The page with the rows; `None`: this crate has them.
    #[cfg(test)]
    pub(crate) fn source_page(&self) -> Option<&'static str> {
        match self.source {
            Source::Page(page, _) | Source::PageWithOthers(page, ..) => Some(page),
            Source::Own => None,
        }
    }

    /// Type of a column.
    pub(crate) fn cql_type(&self, position: usize) -> Result<CqlType, Fault> {
        let column = self.columns.get(position);
        let column = column.ok_or_else(|| Fault::server("a column has no type"))?;
        Ok(CqlType::parse(column.cql, &())?)
    }

    /// Kind and position of a column, as drivers know them.
    pub(crate) fn key_part(&self, position: usize) -> (&'static str, i32) {
        let clustering = position.checked_sub(self.partition_columns);
        match clustering {
            None => ("partition_key", position as i32),
            Some(place) if place < self.clustering_columns => ("clustering", place as i32),
            Some(_) => ("regular", -1),
        }
    }
}

/// The keyspaces in order of their names.
pub(crate) const KEYSPACES: [&str; 5] =
    [KEYSPACE, "system", "system_schema", "system_views", "system_virtual_schema"];

/// Tables of all keyspaces.
pub(crate) fn all() -> impl Iterator<Item = &'static Table> {
    ADMIN_TABLES.iter().chain(SYSTEM_TABLES)
}

/// The table of this name.
pub(crate) fn find(keyspace: &str, name: &str) -> Result<&'static Table, Fault> {
    let found = all().find(|table| table.keyspace == keyspace && table.name == name);
    found.ok_or_else(|| {
        if !KEYSPACES.contains(&keyspace) {
            return Fault::invalid(format!(
                "keyspace {keyspace} does not exist: this is the admin address of a proxy, whose \
                 tables are in {KEYSPACE}"
            ));
        }
        let names = all().filter(|table| table.keyspace == keyspace).map(|table| table.name);
        let names: Vec<&str> = names.collect();
        Fault::invalid(format!(
            "table {keyspace}.{name} does not exist; there are {}",
            names.join(", ")
        ))
    })
}
