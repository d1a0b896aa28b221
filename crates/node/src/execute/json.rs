//! The row that INSERT JSON describes.

use shunt_language::functions::Environment;
use shunt_language::terms::Prepared;
use shunt_language::values::json;

use super::bindings::Bound;
use super::keys::{self, Partition};
use crate::error::CqlError;
use crate::schema::{Column, Table};

/// Place of the row, and the values named by the object, including the key's.
pub(crate) struct JsonRow {
    pub(super) partition: Partition,
    pub(super) clustering: Vec<u8>,
    pub(super) clustering_values: Vec<Vec<u8>>,
    values: Vec<NamedValue>,
}

/// A column's name and its value; `None` is null.
type NamedValue = (String, Option<Vec<u8>>);

impl JsonRow {
    /// Parses the text given by `term`.
    pub(super) fn new(
        table: &Table,
        term: &Prepared,
        bound: &Bound<'_>,
    ) -> Result<JsonRow, CqlError> {
        let text = term.evaluate(bound)?.into_bytes();
        let text = text.ok_or_else(|| CqlError::invalid("Got null for INSERT JSON values"))?;
        let text = String::from_utf8(text)
            .map_err(|_| CqlError::invalid("Could not decode JSON string as a map"))?;
        let values = named_values(table, &text, bound)?;
        let key = |columns: &[Column]| -> Result<Vec<&Vec<u8>>, CqlError> {
            let value = |column: &Column| {
                let found = values.iter().find(|(name, _)| *name == column.name);
                let found = found.and_then(|(_, value)| value.as_ref());
                found.ok_or_else(|| {
                    CqlError::Invalid(format!("Invalid null value for key {}", column.name))
                })
            };
            columns.iter().map(value).collect()
        };
        let partition = Partition::new(&key(table.partition_key())?)?;
        let clustering_values: Vec<Vec<u8>> =
            key(table.clustering())?.into_iter().cloned().collect();
        let clustering = keys::row(table, &clustering_values)?;
        Ok(JsonRow { partition, clustering, clustering_values, values })
    }

    /// Returns the object's entry for a column: none, null or a value.
    pub(super) fn value(&self, name: &str) -> Option<Option<&[u8]>> {
        self.values.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_deref())
    }
}

fn named_values(table: &Table, text: &str, bound: &Bound<'_>) -> Result<Vec<NamedValue>, CqlError> {
    let mut values = Vec::new();
    for (name, value) in json::from_json_row(text)? {
        let Some(column) = table.column(&name) else {
            return Err(CqlError::Invalid(format!(
                "JSON values map contains unrecognized column: {name}"
            )));
        };
        let value = json::from_json(&column.cql_type, &value, bound.now_ms()).map_err(|error| {
            CqlError::Invalid(format!("Error decoding JSON value for {name}: {error}"))
        })?;
        values.push((name, value));
    }
    Ok(values)
}
