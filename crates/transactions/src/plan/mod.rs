//! Plans of transactions: what is read, decided and written, for any bind values.
//!
//! | step | module | result |
//! |---|---|---|
//! | 1 | [`outline`] | [`Outline`]: the text is parsed, and its tables are named |
//! | 2 | [`draft`], [`conditional`], [`repeatable`], [`calls`], [`row_reads`] | [`Draft`]: with the tables of [`schema`], statements are checked, and there are texts for nodes to prepare |
//! | 3 | here | [`Plan`]: with the types that nodes report, it can be carried out; [`cache`] keeps it |
//! | 4 | [`bind`] | [`bind::Bound`]: with a client's values, partitions, reads and writes follow |
//!
//! Nothing here does I/O. This must never: plan a write whose result differs when recovery repeats
//! it; read or write a partition that is not locked.

pub mod cache;
mod calls;
mod bind;
mod draft;
mod rules;
pub mod conditional;
mod outline;
mod parts;
mod repeatable;
mod row_reads;
pub mod schema;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use calls::CallValue;
use conditional::ConditionalPlan;
use draft::Drafting;
use parts::{Computed, Key, Place, ReferenceRead, Source};
use shunt_language::transaction::{
    self, MarkerPlace, OneRow, PreparedCondition, Returned, Transaction,
};
use shunt_language::{CqlType, InvalidRequest};
use shunt_wire::cql::message::{ErrorMessage, Rows, error_code};
use shunt_wire::cql::types as wire;

use crate::catalogue::mentions::Mentions;
use crate::plan::schema::{Several, Table};
pub use bind::{Moment, PlanDecision, RowRead, bytes_of, push};
pub use outline::{Outline, Single, qualified};
pub use parts::partition;
pub use parts::{ColumnSpec, PreparedText, Standalone};

/// Names that one error of a node may have: it has one.
const COLUMNS_NAMED_MAX: usize = 4;

/// A plan that lacks the types that nodes report.
#[derive(Debug)]
pub struct Draft {
    /// The parsed text.
    pub outline: Outline,
    one_row: Vec<OneRow>,
    /// Reads: first those of `LET`, then the one that is returned, then those of [`row_reads`].
    pub reads: Vec<Standalone>,
    /// Writes, in order.
    pub writes: Vec<Standalone>,
    keys: Vec<Key>,
    /// Sources of each statement's markers; those of functions come last.
    sources: Vec<Vec<Source>>,
    references: Vec<ReferenceRead>,
    computed: Vec<Computed>,
    called: Vec<CallValue>,
    conditions: Vec<(PreparedCondition, usize, Option<Place>)>,
    returned: Vec<usize>,
    /// Names and types of the client's markers, as far as no node is asked for them.
    known_markers: Vec<Option<(String, CqlType)>>,
    /// The single statement, on a table with the mode `conditional` or `observe`.
    pub conditional: Option<ConditionalPlan>,
}

/// A transaction that can be carried out.
#[derive(Debug)]
pub struct Plan {
    /// The checked statements.
    pub draft: Draft,
    /// The client's markers.
    pub markers: Vec<ColumnSpec>,
    /// Columns of the answer; none if it has no rows.
    pub columns: Vec<ColumnSpec>,
    /// Columns of each read.
    read_columns: Vec<Vec<ColumnSpec>>,
    /// Names and types of the markers of each write.
    write_markers: Vec<Vec<(Box<str>, CqlType)>>,
    asks_columns: Vec<bool>,
}

/// Parts of a node's error that begin with the name of a column that it does not know. An error may
/// be long and a table may have very many columns, so the error is searched once for all of them.
fn columns_named_by(message: &str) -> impl Iterator<Item = &str> {
    const BEFORE_NAME: &str = "Undefined column name ";
    let found = message.match_indices(BEFORE_NAME).take(COLUMNS_NAMED_MAX);
    found.filter_map(|(at, before)| message.get(at + before.len()..))
}

/// True if a part of a node's error begins with this name, plain or in quotes.
fn begins_with_name(part: &str, name: &str) -> bool {
    let is_followed =
        |part: &str, by: &str| part.strip_prefix(name).is_some_and(|after| after.starts_with(by));
    is_followed(part, " ") || part.strip_prefix('"').is_some_and(|part| is_followed(part, "\" "))
}

/// True if a text may name a column as a word, in upper or lower case. A name with quotes, which
/// are doubled in a text, counts as named. [`Mentions`] is the version for many columns.
fn is_in(name: &str, text: &str) -> bool {
    let (name, text) = (name.as_bytes(), text.as_bytes());
    let is_of_word =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let is_here = |(place, part): (usize, &[u8])| {
        let before = place.checked_sub(1).and_then(|place| text.get(place));
        part.eq_ignore_ascii_case(name)
            && !is_of_word(before)
            && !is_of_word(text.get(place + name.len()))
    };
    name.is_empty() || name.contains(&b'"') || text.windows(name.len()).enumerate().any(is_here)
}

fn at(
    transaction: &Transaction,
    statement: usize,
    text: &str,
    error: InvalidRequest,
) -> InvalidRequest {
    InvalidRequest::new(format!("{}: {}", transaction.name_of(statement, text), error.message))
}

impl Draft {
    /// Checks the statements of a text. `now_ms` is the time since 1970 for the literal `'now'`;
    /// `is_conditional` says that a table has the mode `conditional` or `observe`.
    ///
    /// # Errors
    /// Proxies carry out no such transaction.
    pub fn new(
        outline: Outline,
        tables: &[Arc<Table>],
        now_ms: i64,
        is_conditional: bool,
    ) -> Result<Draft, InvalidRequest> {
        if !is_conditional {
            outline.transaction.check_alone(&outline.text)?;
        } else if outline.transaction.lone_mutation().is_none() {
            let (keyspace, table) =
                (&outline.domain, outline.tables.first().map_or("", |(name, _)| name));
            return Err(InvalidRequest::new(format!(
                "Shunt: the mode of table {keyspace}.{table} is 'conditional' or 'observe': what writes to such a table is one INSERT, UPDATE, \
                 DELETE or TRUNCATE, no batch and no transaction, and takes no guards and keys"
            )));
        }
        let several = Several { keyspace: &outline.keyspace, tables };
        let one_row = outline.transaction.check(&outline.text, &several)?;
        let mut drafting = Drafting {
            text: &outline.text,
            transaction: &outline.transaction,
            tables: &several,
            now_ms,
            reads: Vec::new(),
            writes: Vec::new(),
            keys: Vec::new(),
            sources: Vec::new(),
            references: Vec::new(),
            computed: Vec::new(),
            called: Vec::new(),
            static_reads: Vec::new(),
            known: vec![None; outline.transaction.markers.len()],
            is_conditional,
            conditional: None,
        };
        for (index, inner) in outline.transaction.statements.iter().enumerate() {
            drafting
                .statement(index, inner)
                .map_err(|error| at(&outline.transaction, index, &outline.text, error))?;
        }
        let conditions = drafting.conditions()?;
        let returned = drafting.returned()?;
        let Drafting {
            reads,
            writes,
            keys,
            sources,
            references,
            computed,
            called,
            known: known_markers,
            conditional,
            ..
        } = drafting;
        Ok(Draft {
            outline,
            one_row,
            reads,
            writes,
            keys,
            sources,
            references,
            computed,
            called,
            conditions,
            returned,
            known_markers,
            conditional,
        })
    }

    /// Texts for nodes to prepare, in the order in which [`Plan::new`] takes the answers.
    pub fn texts(&self) -> impl Iterator<Item = &Arc<str>> {
        self.reads.iter().chain(&self.writes).map(|standalone| &standalone.text)
    }

    /// True if a node refuses a column that the client has not named. The column was dropped after
    /// the table was looked up: reads and rewrites of a row name all columns.
    pub fn is_refused_for_another(&self, error: &ErrorMessage<'_>) -> bool {
        let named: Vec<&str> = columns_named_by(error.message).collect();
        let is_named = |column: &str| named.iter().any(|rest| begins_with_name(rest, column));
        let is_another = |column: &str| is_named(column) && !is_in(column, &self.outline.text);
        error.code == error_code::INVALID
            && !named.is_empty()
            && self.keys.iter().flat_map(|key| key.table.beside_key()).any(is_another)
    }

    /// Name of a read's or write's statement in error messages; `index` as in [`Draft::texts`].
    pub fn name_of(&self, index: usize) -> String {
        let transaction = &self.outline.transaction;
        let first_write = transaction.statements.len() - transaction.mutations().len();
        let statement = match index.checked_sub(self.reads.len()) {
            Some(write) => first_write + write,
            None => index.min(first_write.saturating_sub(1)),
        };
        transaction.name_of(statement, &self.outline.text)
    }
}

impl Plan {
    /// Completes a draft. `shown` are the nodes' answers to [`Draft::texts`].
    ///
    /// # Errors
    /// A node does not report a type.
    pub fn new(draft: Draft, shown: &[PreparedText]) -> Result<Plan, InvalidRequest> {
        let transaction = &draft.outline.transaction;
        let unknown =
            |what: &str| InvalidRequest::new(format!("a node does not report the type of {what}"));
        let mut markers = Vec::with_capacity(transaction.markers.len());
        for (index, marker) in transaction.markers.iter().enumerate() {
            let mut found = None;
            if let MarkerPlace::Statement { .. } = marker.place {
                let all = draft.reads.iter().chain(&draft.writes).zip(shown);
                found = all
                    .flat_map(|(standalone, shown)| standalone.values.iter().zip(&shown.markers))
                    .find(|(source, _)| matches!(source, Source::Client(client) if usize::from(*client) == index))
                    .map(|(_, shown)| shown.clone());
            }
            let known = || {
                let (name, cql_type) = draft.known_markers[index].as_ref()?;
                let mut type_option = Vec::new();
                cql_type.write_option(crate::PROTOCOL_VERSION, &mut type_option);
                Some(ColumnSpec { name: name.as_str().into(), type_option: type_option.into() })
            };
            let mut shown = found.or_else(known).ok_or_else(|| unknown("a bind marker"))?;
            if let Some(name) = &marker.name {
                shown.name = name.as_str().into();
            }
            markers.push(shown);
        }
        let read_columns =
            shown.iter().take(draft.reads.len()).map(|shown| shown.columns.clone()).collect();
        let write_markers = shown.iter().skip(draft.reads.len()).map(|shown| {
            let typed = shown.markers.iter().map(|marker| {
                let found = wire::CqlType::decode(&mut &*marker.type_option);
                let cql_type = found
                    .map_or_else(|| CqlType::Custom("".into()), |found| CqlType::from_wire(&found));
                (marker.name.clone(), cql_type)
            });
            typed.collect()
        });
        let write_markers = write_markers.collect();
        let columns = match &transaction.returned {
            Returned::Nothing => Vec::new(),
            Returned::Select => shown
                .get(transaction.lets.len())
                .map(|shown| shown.columns.clone())
                .unwrap_or_default(),
            Returned::References(references) => {
                let typed = references.iter().zip(&draft.returned).map(|(reference, place)| {
                    let mut type_option = Vec::new();
                    draft.references[*place]
                        .reference
                        .value_type()
                        .write_option(crate::PROTOCOL_VERSION, &mut type_option);
                    let text = draft.outline.text.get(reference.range.clone()).unwrap_or_default();
                    ColumnSpec { name: text.into(), type_option: type_option.into() }
                });
                typed.collect()
            }
        };
        let mut plan =
            Plan { draft, markers, columns, read_columns, write_markers, asks_columns: Vec::new() };
        plan.asks_columns = plan.columns_to_ask();
        Ok(plan)
    }

    /// True if a read returned the planned columns; otherwise the table has changed.
    pub fn has_columns(&self, read: usize, rows: &Rows<'_>) -> bool {
        let planned = self.read_columns.get(read).map(Vec::as_slice).unwrap_or_default();
        let found = rows.metadata.columns().map(|column| (column.name, column.type_option));
        found.eq(planned.iter().map(|column| (&*column.name, &*column.type_option)))
    }

    /// The tables that are read or written, each once.
    pub fn tables(&self) -> Vec<&Table> {
        let mut tables: Vec<&Table> = Vec::new();
        for key in &self.draft.keys {
            if !tables.iter().any(|table| table.id == key.table.id) {
                tables.push(&key.table);
            }
        }
        tables
    }

    /// Says of each of [`Plan::tables`] whether a node must report its columns before anything is
    /// written. That is so if the table is written, and this transaction does not itself read all
    /// columns that a write may name: if one of them had changed, the write would be refused.
    /// Naming the columns of the key amounts to reading one row.
    pub fn asks_columns(&self) -> &[bool] {
        &self.asks_columns
    }

    fn columns_to_ask(&self) -> Vec<bool> {
        let (of_reads, of_writes) = self.keys();
        let needs = |table: &Table| {
            let key_parts = table.partition_key.len() + table.clustering.len();
            // Of a row that is returned, columns may have other names.
            let reads =
                of_reads.iter().zip(&self.read_columns).enumerate().filter(|(read, (key, _))| {
                    key.table.id == table.id
                        && key.parts.len() == key_parts
                        && !self.is_returned(*read)
                });
            let mut read: Option<HashSet<&str>> = None;
            for (_, (_, columns)) in reads {
                read.get_or_insert_default().extend(columns.iter().map(|column| &*column.name));
            }
            let written = of_writes.iter().zip(&self.draft.writes);
            let mut texts =
                written.filter(|(key, _)| key.table.id == table.id).map(|(_, write)| &*write.text);
            let Some(read) = read else { return texts.next().is_some() };
            let others: Mentions<'_> =
                table.beside_key().filter(|name| !read.contains(name)).collect();
            texts.any(|text| others.may_be_in(text))
        };
        self.tables().into_iter().map(needs).collect()
    }

    /// Approximate size in memory, most of it that of the tables.
    pub fn bytes(&self) -> usize {
        let texts = self.draft.texts().map(|text| text.len()).sum::<usize>();
        let anew = self.draft.conditional.as_ref().map_or(0, ConditionalPlan::bytes);
        let tables = self.tables().into_iter().map(Table::bytes).sum::<usize>();
        // A statement as it was read takes several times its text.
        size_of::<Plan>() + 8 * self.draft.outline.text.len() + texts + anew + tables
    }

    /// Keys of the reads, except those that only feed computed writes, and keys of the writes.
    fn keys(&self) -> (&[Key], &[Key]) {
        self.draft.keys.split_at(self.draft.keys.len().saturating_sub(self.draft.writes.len()))
    }

    /// True if the transaction writes whatever it reads.
    pub fn always_writes(&self) -> bool {
        match &self.draft.conditional {
            Some(conditional) => !conditional.is_conditional(),
            None => self.draft.conditions.is_empty() && !self.draft.writes.is_empty(),
        }
    }

    /// The table of each write.
    pub fn written(&self) -> impl Iterator<Item = &Table> {
        self.keys().1.iter().map(|key| &*key.table)
    }

    /// The table of one write.
    pub fn table_of_write(&self, write: usize) -> Option<&Table> {
        self.written().nth(write)
    }

    /// True of the read whose rows are returned unchanged.
    pub fn is_returned(&self, read: usize) -> bool {
        let transaction = &self.draft.outline.transaction;
        transaction.returns_rows() && read == transaction.lets.len()
    }

    /// Rows that a read may return.
    pub fn rows_max(&self, read: usize) -> i32 {
        if self.is_returned(read) { transaction::ROWS_MAX as i32 } else { 1 }
    }

    /// Keyspace and table in the answer's metadata.
    pub fn names(&self) -> (&str, &str) {
        let outline = &self.draft.outline;
        (&outline.domain, outline.tables.first().map_or("", |(name, _)| name))
    }
}
