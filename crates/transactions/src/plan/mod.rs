//! A transaction's plan: what is read, what is decided by it, and what is written, for any bind
//! values.
//!
//! 1. [`Outline`]: the text is read, and the tables in it are named.
//! 2. [`Draft`]: with the tables, the statements are checked, and there are texts for nodes to
//!    prepare.
//! 3. [`Plan`]: with what nodes say of their markers and columns, it can be carried out.
//!
//! Everything here is free of I/O. What must never be: a write that gives another result when it is
//! made again, for a recovery makes it again; a partition that is read or written and not locked.

pub mod cache;
mod calls;
mod bind;
mod draft;
mod follow;
pub mod conditional;
mod outline;
mod repeatable;
pub mod schema;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::Partition;
use shunt_language::terms::Prepared;
use shunt_language::transaction::{
    self, MarkerPlace, OneRow, PreparedCondition, PreparedReference, PreparedSelfAssignment,
    Returned, Transaction,
};
use shunt_language::{CqlType, InvalidRequest};
use shunt_wire::cql::message::{ErrorMessage, Prepared as Answer, Rows, error_code};
use shunt_wire::cql::types as wire;

use calls::Called;
use conditional::Lone;
use draft::Drafting;

use crate::catalogue::mentions::Mentions;
use crate::plan::schema::{Several, Table};
pub use bind::{Decided, RowRead, bytes_of, push};
pub use calls::Moment;
pub use outline::{Outline, Single, qualified};

/// A statement by itself.
#[derive(Debug)]
pub struct Standalone {
    pub text: Arc<str>,
    /// The value of each marker.
    values: Vec<Source>,
}

/// Where the value of a marker comes from.
#[derive(Clone, Debug)]
enum Source {
    /// The client's, by its index.
    Client(u16),
    /// What a row that was read has; an index in [`Draft::references`].
    Reference(usize),
    /// It is computed from the row that is written; an index in [`Draft::computed`].
    Computed(usize),
    /// Functions give it, once for each transaction; an index in [`Draft::called`].
    Called(usize),
    /// A column of the key of a statement.
    Key { statement: usize, part: usize },
}

/// A statement's row, or partition.
#[derive(Debug)]
struct Key {
    table: Arc<Table>,
    /// Of the partition, then of the clustering as far as it is given.
    parts: Vec<Prepared>,
}

/// `a = a + x`, and where `a` was read.
#[derive(Debug)]
struct Computed {
    assignment: PreparedSelfAssignment,
    statement: usize,
    read: usize,
    column: usize,
}

/// A reference, and where it was read.
#[derive(Debug)]
struct Referred {
    reference: PreparedReference,
    read: usize,
    column: Place,
}

/// Where a column is in what was read.
#[derive(Clone, Debug)]
enum Place {
    /// By its name, for `SELECT *`.
    Named(String),
    At(usize),
}

/// A plan without what nodes know of it.
#[derive(Debug)]
pub struct Draft {
    pub outline: Outline,
    one_row: Vec<OneRow>,
    /// First those of `LET`, then the one that is returned, then one for each write that computes
    /// something from its row.
    pub reads: Vec<Standalone>,
    pub writes: Vec<Standalone>,
    keys: Vec<Key>,
    /// Of each statement, the values of its markers; behind them those that functions give.
    sources: Vec<Vec<Source>>,
    references: Vec<Referred>,
    computed: Vec<Computed>,
    called: Vec<Called>,
    conditions: Vec<(PreparedCondition, usize, Option<Place>)>,
    returned: Vec<usize>,
    /// Names and types of the client's markers, as far as no node is asked for them.
    known_markers: Vec<Option<(String, CqlType)>>,
    /// It is a single statement on a table with the mode `conditional`.
    pub lone: Option<Lone>,
}

/// A column or marker, as a node tells of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    pub name: Box<str>,
    pub type_option: Box<[u8]>,
}

/// What a node says of a text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShownText {
    markers: Vec<Shown>,
    columns: Vec<Shown>,
}

impl ShownText {
    pub fn of(prepared: &Answer<'_>) -> ShownText {
        let markers = prepared.bind.markers().map(|marker| Shown {
            name: marker.name.into(),
            type_option: marker.type_option.into(),
        });
        let columns = prepared.result.columns().map(|column| Shown {
            name: column.name.into(),
            type_option: column.type_option.into(),
        });
        ShownText { markers: markers.collect(), columns: columns.collect() }
    }
}

/// A transaction that can be carried out.
#[derive(Debug)]
pub struct Plan {
    pub draft: Draft,
    /// The client's markers.
    pub markers: Vec<Shown>,
    /// Columns of what it answers; none if it answers no rows.
    pub columns: Vec<Shown>,
    /// The columns of each read.
    read_columns: Vec<Vec<Shown>>,
    /// Of each write, names and types of its markers.
    write_markers: Vec<Vec<(Box<str>, CqlType)>>,
    asks_columns: Vec<bool>,
}

/// True if a column may be named in a text, in upper or lower case, as a word. Quotes in a name are
/// doubled there: then it may. For one column: [`Mentions`] looks for many.
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
    /// `now_ms`: milliseconds since 1970, for the literal `'now'`. `is_conditional`: the mode of a
    /// table of it is `conditional` or `observe`.
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
            known: vec![None; outline.transaction.markers.len()],
            is_conditional,
            lone: None,
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
            lone,
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
            lone,
        })
    }

    /// The texts that nodes are to prepare, in the order in which [`Plan::new`] takes what they
    /// say.
    pub fn texts(&self) -> impl Iterator<Item = &Arc<str>> {
        self.reads.iter().chain(&self.writes).map(|standalone| &standalone.text)
    }

    /// True if a node refuses a column that the client has not named. It was dropped since the
    /// table was looked up: a row is read, and made anew, with all.
    pub fn is_refused_for_another(&self, error: &ErrorMessage<'_>) -> bool {
        let is_named_by = |name: &str| {
            let told = [
                format!("Undefined column name {name} "),
                format!("Undefined column name \"{name}\" "),
            ];
            told.iter().any(|told| error.message.contains(told)) && !is_in(name, &self.outline.text)
        };
        error.code == error_code::INVALID
            && self.keys.iter().flat_map(|key| key.table.beside_key()).any(is_named_by)
    }

    /// The statement of a read or write, as messages name it; `index` as in [`Draft::texts`].
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
    /// `shown`: what nodes say of each of [`Draft::texts`].
    pub fn new(draft: Draft, shown: &[ShownText]) -> Result<Plan, InvalidRequest> {
        let transaction = &draft.outline.transaction;
        let unknown = |what: &str| {
            InvalidRequest::new(format!("a node does not say of which type {what} is"))
        };
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
                Some(Shown { name: name.as_str().into(), type_option: type_option.into() })
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
                    Shown { name: text.into(), type_option: type_option.into() }
                });
                typed.collect()
            }
        };
        let mut plan =
            Plan { draft, markers, columns, read_columns, write_markers, asks_columns: Vec::new() };
        plan.asks_columns = plan.columns_to_ask();
        Ok(plan)
    }

    /// True if the columns of a read are those that it was planned with: the table may be another
    /// by now.
    pub fn has_columns(&self, read: usize, rows: &Rows<'_>) -> bool {
        let planned = self.read_columns.get(read).map(Vec::as_slice).unwrap_or_default();
        let found = rows.metadata.columns().map(|column| (column.name, column.type_option));
        found.eq(planned.iter().map(|column| (&*column.name, &*column.type_option)))
    }

    /// The tables that it reads or writes, each once.
    pub fn tables(&self) -> Vec<&Table> {
        let mut tables: Vec<&Table> = Vec::new();
        for key in &self.draft.keys {
            if !tables.iter().any(|table| table.id == key.table.id) {
                tables.push(&key.table);
            }
        }
        tables
    }

    /// Of each of [`Plan::tables`], if a node is to be asked for its columns before anything is
    /// written: it is written to, and not all columns that a write may name are read by this
    /// transaction, which would be refused, or answered otherwise, if one were another. What names
    /// the columns of the key is a read of one row.
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

    /// About what it takes in memory: above all what its tables do, which are its own.
    pub fn bytes(&self) -> usize {
        let texts = self.draft.texts().map(|text| text.len()).sum::<usize>();
        let anew = self.draft.lone.as_ref().map_or(0, Lone::bytes);
        let tables = self.tables().into_iter().map(Table::bytes).sum::<usize>();
        // A statement as it was read takes several times its text.
        size_of::<Plan>() + 8 * self.draft.outline.text.len() + texts + anew + tables
    }

    /// The keys of what is read, but for what a write computes from, and those of the writes.
    fn keys(&self) -> (&[Key], &[Key]) {
        self.draft.keys.split_at(self.draft.keys.len().saturating_sub(self.draft.writes.len()))
    }

    /// The table of each write.
    pub fn written(&self) -> impl Iterator<Item = &Table> {
        self.keys().1.iter().map(|key| &*key.table)
    }

    /// The table of a write.
    pub fn table_of_write(&self, write: usize) -> Option<&Table> {
        self.written().nth(write)
    }

    /// True of the read whose rows are returned as they are.
    pub fn is_returned(&self, read: usize) -> bool {
        let transaction = &self.draft.outline.transaction;
        transaction.returns_rows() && read == transaction.lets.len()
    }

    /// Rows that a read may find.
    pub fn rows_max(&self, read: usize) -> i32 {
        if self.is_returned(read) { transaction::ROWS_MAX as i32 } else { 1 }
    }

    /// Keyspace and table that metadata names.
    pub fn names(&self) -> (&str, &str) {
        let outline = &self.draft.outline;
        (&outline.domain, outline.tables.first().map_or("", |(name, _)| name))
    }
}

/// The hash of a partition.
pub fn partition(keyspace: &str, table: &str, parts: &[Vec<u8>]) -> Partition {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        // By its names: one plan may know a table that was dropped, and another the one that was
        // made in its place.
        (keyspace, table).hash(&mut hasher);
        parts.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    Partition(half(0) << 64 | half(1))
}
