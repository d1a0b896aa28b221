//! Restrictions on transactions from the keys of tables: each `LET` reads one row, the returned
//! `SELECT` one partition, and each write affects one row.

use std::collections::HashSet;

use super::place::at_reference;
use crate::ast::{
    Comparison, Delete, Deletion, Inner, Insert, Marker, MarkerSource, Mutation, QualifiedName,
    Relation, Returned, Select, Statement, Term, Transaction, Update,
};
use crate::error::InvalidRequest;

/// Columns of a table that identify a row.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TableKeys<'a> {
    /// Columns of the partition key.
    pub partition_key: Vec<&'a str>,
    /// Clustering columns.
    pub clustering: Vec<&'a str>,
    /// Static columns.
    pub statics: Vec<&'a str>,
    /// True for a table of counters.
    pub has_counters: bool,
}

/// Lookup of tables.
pub trait Tables {
    /// The table with a name, if there is one.
    fn keys(&self, name: &QualifiedName) -> Option<TableKeys<'_>>;
}

/// A marker behind `LIMIT` that must have the value 1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OneRow {
    /// Index of the `LET`.
    pub statement: usize,
    /// Index of the marker in [`Transaction::markers`].
    pub marker: u16,
}

const ONE_ROW: &str = "SELECT must specify either all primary key elements or all partition key elements and LIMIT 1. \
     In both cases partition key elements must be always specified with equality operators";
const ONE_PARTITION: &str = "SELECT must specify all partition key elements. \
     Partition key elements must be always specified with equality operators";
const NO_RANGE: &str = "Range queries are not allowed for reads within a transaction";

impl Transaction {
    /// Checks the statements against the keys of their tables, and returns the markers whose values
    /// must be 1.
    ///
    /// # Errors
    /// If a table does not exist, or a statement does not select one row (for the returned
    /// `SELECT`, one partition).
    pub fn check(&self, text: &str, tables: &dyn Tables) -> Result<Vec<OneRow>, InvalidRequest> {
        let mut one_row = Vec::new();
        for (index, inner) in self.statements.iter().enumerate() {
            let at = |problem: String| {
                InvalidRequest::new(format!("{}: {problem}", self.name_of(index, text)))
            };
            let name = match &inner.statement {
                Statement::Select(select) => &select.table,
                Statement::Mutation(mutation) => mutation.table(),
                Statement::Truncate(table) => table,
                _ => continue,
            };
            let keys =
                tables.keys(name).ok_or_else(|| at(format!("table {name} does not exist")))?;
            if keys.has_counters {
                return Err(at(
                    "Counter columns cannot be accessed within a transaction".to_owned()
                ));
            }
            match &inner.statement {
                Statement::Select(select) => {
                    let marker =
                        check_select(select, &keys, index < self.lets.len()).map_err(at)?;
                    let marker = marker.and_then(|marker| client_marker(inner, marker));
                    one_row.extend(marker.map(|marker| OneRow { statement: index, marker }));
                }
                Statement::Mutation(Mutation::Insert(insert)) => {
                    check_key_references(insert, inner, &keys, text)?;
                    check_insert(insert, &keys).map_err(at)?;
                }
                Statement::Mutation(Mutation::Update(update)) => {
                    check_update(update, &keys).map_err(at)?
                }
                Statement::Mutation(Mutation::Delete(delete)) => {
                    check_delete(delete, &keys).map_err(at)?
                }
                _ => {}
            }
        }
        Ok(one_row)
    }

    /// Error for another value of a marker from [`Transaction::check`].
    #[must_use]
    pub fn not_one_row(&self, one_row: OneRow, text: &str) -> InvalidRequest {
        InvalidRequest::new(format!("{}: {ONE_ROW}", self.name_of(one_row.statement, text)))
    }

    /// True if the result has rows of a statement, at most [`super::ROWS_MAX`].
    #[must_use]
    pub fn returns_rows(&self) -> bool {
        matches!(self.returned, Returned::Select)
    }
}

fn client_marker(inner: &Inner, index: u16) -> Option<u16> {
    match inner.markers.get(usize::from(index))? {
        Marker { source: MarkerSource::Client(client), .. } => Some(*client),
        Marker { source: MarkerSource::Reference(_), .. } => None,
    }
}

/// The columns that relations fix to one value each. `in_parts` leaves out those whose values come
/// as one tuple in a marker, because a key is computed column by column.
fn fixed(relations: &[Relation], in_parts: bool) -> HashSet<&str> {
    let mut columns = HashSet::new();
    for relation in relations {
        match relation {
            Relation::Column { column, comparison: Comparison::Equal, .. } => {
                columns.insert(column.as_str());
            }
            Relation::Tuple { columns: several, comparison: Comparison::Equal, value } => {
                let is_spelled =
                    matches!(value, Term::Tuple(parts) if parts.len() == several.len());
                if is_spelled || !in_parts {
                    columns.extend(several.iter().map(String::as_str));
                }
            }
            _ => {}
        }
    }
    columns
}

/// Checks a SELECT. Returns its LIMIT if it is a marker that must be 1.
fn check_select(
    select: &Select,
    keys: &TableKeys<'_>,
    one_row: bool,
) -> Result<Option<u16>, String> {
    let fixed = fixed(&select.relations, false);
    let in_key = |column: &String| keys.partition_key.contains(&column.as_str());
    if !keys.partition_key.iter().all(|column| fixed.contains(column)) {
        let lists = select.relations.iter().any(|relation| match relation {
            Relation::In { column, .. } | Relation::InMarker { column, .. } => in_key(column),
            _ => false,
        });
        let problem = match (lists, one_row) {
            (false, true) => NO_RANGE,
            (true, true) => ONE_ROW,
            (_, false) => ONE_PARTITION,
        };
        return Err(problem.to_owned());
    }
    if !one_row || keys.clustering.iter().all(|column| fixed.contains(column)) {
        return Ok(None);
    }
    match &select.limit {
        Some(Term::Marker(marker)) => Ok(Some(*marker)),
        Some(Term::Literal(literal)) if literal.text.parse() == Ok(1) => Ok(None),
        _ => Err(ONE_ROW.to_owned()),
    }
}

/// Refuses references in key columns, which are unknown before the rows are read.
fn check_key_references(
    insert: &Insert,
    inner: &Inner,
    keys: &TableKeys<'_>,
    text: &str,
) -> Result<(), InvalidRequest> {
    for (column, value) in insert.columns.iter().zip(&insert.values) {
        let in_key = keys.partition_key.contains(&column.as_str())
            || keys.clustering.contains(&column.as_str());
        let Term::Marker(index) = value else { continue };
        let marker = inner.markers.get(usize::from(*index)).filter(|_| in_key);
        if let Some(Marker { source: MarkerSource::Reference(reference), .. }) = marker {
            let shown = text.get(reference.range.clone()).unwrap_or_default();
            let problem = format!(
                "Value reference {shown} cannot be used to insert PRIMARY KEY column {column}"
            );
            return Err(at_reference(reference, text, &problem));
        }
    }
    Ok(())
}

fn check_insert(insert: &Insert, keys: &TableKeys<'_>) -> Result<(), String> {
    let given: HashSet<&str> = insert.columns.iter().map(String::as_str).collect();
    let of_partition = |column: &str| keys.partition_key.contains(&column);
    let mut others = given.iter().filter(|column| !of_partition(column)).peekable();
    let statics = others.peek().is_some() && others.all(|column| keys.statics.contains(column));
    whole_key(&given, keys, statics)
}

fn check_update(update: &Update, keys: &TableKeys<'_>) -> Result<(), String> {
    let in_key =
        |column: &str| keys.partition_key.contains(&column) || keys.clustering.contains(&column);
    if let Some(assignment) =
        update.assignments.iter().find(|assignment| in_key(&assignment.column))
    {
        return Err(format!("PRIMARY KEY part {} found in SET part", assignment.column));
    }
    let statics = update
        .assignments
        .iter()
        .all(|assignment| keys.statics.contains(&assignment.column.as_str()));
    whole_key(&fixed(&update.relations, true), keys, statics)
}

fn check_delete(delete: &Delete, keys: &TableKeys<'_>) -> Result<(), String> {
    let is_static = |deletion: &Deletion| {
        let (Deletion::Column(column) | Deletion::Element(column, _) | Deletion::Field(column, _)) =
            deletion;
        keys.statics.contains(&column.as_str())
    };
    let statics = !delete.deletions.is_empty() && delete.deletions.iter().all(is_static);
    whole_key(&fixed(&delete.relations, true), keys, statics)
}

/// A write must name its row by the whole key, or its partition if it writes only static columns.
fn whole_key(fixed: &HashSet<&str>, keys: &TableKeys<'_>, statics: bool) -> Result<(), String> {
    let missing = |columns: &[&str]| -> Vec<String> {
        columns
            .iter()
            .filter(|column| !fixed.contains(**column))
            .map(|column| (*column).to_owned())
            .collect()
    };
    let rule =
        "a statement of a transaction writes one row: give each column of its key one value with =";
    let partition = missing(&keys.partition_key);
    if !partition.is_empty() {
        return Err(format!(
            "Some partition key parts are missing: {}; {rule}",
            partition.join(", ")
        ));
    }
    let clustering = missing(&keys.clustering);
    if !clustering.is_empty() && !statics {
        return Err(format!("Some clustering keys are missing: {}; {rule}", clustering.join(", ")));
    }
    Ok(())
}
