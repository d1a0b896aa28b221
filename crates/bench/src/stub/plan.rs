//! Plans the effect of a statement at a stub node, once per text: a read of a system table, a read
//! or write of the bench table, or a statement that succeeds without effect.

use shunt_wire::cql::{
    message::{Values, encode_result::native},
    statement::{self, Identifier, Kind, Term},
    types,
};

use crate::stub::{
    selection::{Selection, selection},
    system_tables::{KEYSPACE, TABLE, TABLE_COLUMNS},
    table::{Column, Table},
};

/// Plan of a statement.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Plan {
    /// Reads a system table.
    System {
        /// Index among the node's tables.
        table: usize,
        /// Positions of the selected columns.
        columns: Vec<usize>,
        /// Columns that must have a value, by position.
        filters: Vec<(usize, Operand)>,
    },
    /// Reads the bench table by key.
    Read {
        /// Positions of the selected columns in [`TABLE_COLUMNS`].
        columns: Vec<usize>,
        /// The key, if the statement fixes it.
        key: Option<Operand>,
    },
    /// Reads several keys of the bench table.
    Multiget {
        /// Positions of the selected columns in [`TABLE_COLUMNS`].
        columns: Vec<usize>,
        /// The keys.
        keys: Keys,
    },
    /// Reads rows of the bench table from the token of a key on.
    Scan {
        /// Positions of the selected columns in [`TABLE_COLUMNS`].
        columns: Vec<usize>,
        /// The key.
        from: Operand,
        /// The LIMIT, if the statement has one.
        rows: Option<Operand>,
    },
    /// Writes the bench table.
    Write {
        /// The key, if the statement fixes it.
        key: Option<Operand>,
        /// The value; `None` for a deletion.
        value: Option<Operand>,
        /// True for a lightweight transaction, whose condition always holds here.
        conditional: bool,
    },
    /// Changes the connection's keyspace.
    Use(String),
    /// Succeeds without an effect: schema changes, TRUNCATE, grants.
    Nothing,
    /// Cannot be answered, for this reason.
    Invalid(String),
}

impl Plan {
    /// Returns the columns of the bench table that the plan reads, if it reads the table.
    pub fn bench_columns(&self) -> Option<&[usize]> {
        match self {
            Self::Read { columns, .. }
            | Self::Multiget { columns, .. }
            | Self::Scan { columns, .. } => Some(columns),
            _ => None,
        }
    }
}

/// Keys of an `IN`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Keys {
    /// `IN (?, ?, ..)`
    Each(Vec<Operand>),
    /// `IN ?`: a list of keys.
    List(Operand),
}

/// A value in a statement.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Operand {
    /// The serialized bytes of a literal in the text.
    Literal(Vec<u8>),
    /// A bound value, by its position among the markers.
    Marker(u16),
    /// A bound value, by name.
    Named(String, u16),
}

impl Operand {
    /// Returns the bytes, from the text or from a request's values. `None` for null, unset or
    /// missing.
    pub fn resolve<'a>(&'a self, values: &Values<'a>) -> Option<&'a [u8]> {
        match self {
            Self::Literal(bytes) => Some(bytes),
            Self::Named(name, _) if values.is_named() => values.named(name)?.bytes(),
            Self::Marker(index) | Self::Named(_, index) => values.get(usize::from(*index))?.bytes(),
        }
    }
}

/// A plan with its bind markers, as PREPARED describes them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Planned {
    /// The plan itself.
    pub plan: Plan,
    /// The bind markers.
    pub markers: Vec<Marker>,
}

/// A bind marker.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Marker {
    /// Name of the marker.
    pub name: String,
    /// The table's column whose value it is; `None` if it belongs to no known column.
    pub column: Option<usize>,
    /// Type as an `[option]`, if it differs from that of the column.
    pub type_option: Option<&'static [u8]>,
}

/// Plans `text` for a node with these system tables, on a connection with this keyspace.
pub fn plan(text: &str, keyspace: Option<&str>, tables: &[Table]) -> Planned {
    let statement = statement::classify_whole(text);
    let named = |written: Option<Identifier<'_>>, name: &str| match written {
        Some(identifier) => identifier.matches(name),
        None => keyspace == Some(name),
    };
    let is_table = |of: &str, name: &str| {
        named(statement.keyspace, of)
            && statement.table.is_some_and(|identifier| identifier.matches(name))
    };
    let plan = match statement.kind {
        Kind::Use => Plan::Use(statement.keyspace.map(text_of).unwrap_or_default()),
        Kind::Ddl | Kind::Truncate | Kind::Batch | Kind::Transaction | Kind::Other => Plan::Nothing,
        Kind::Select => {
            match tables.iter().position(|table| is_table(table.keyspace, table.name)) {
                Some(table) => system_read(&statement, table, &tables[table]),
                None if is_table(KEYSPACE, TABLE) => bench_read(&statement, text),
                None => Plan::Invalid(format!(
                    "unconfigured table in: {}",
                    text.chars().take(200).collect::<String>()
                )),
            }
        }
        Kind::Insert | Kind::Update | Kind::Delete if is_table(KEYSPACE, TABLE) => {
            bench_write(&statement, text)
        }
        Kind::Insert | Kind::Update | Kind::Delete => Plan::Invalid("unconfigured table".into()),
    };
    let markers = markers(&statement, &plan);
    Planned { plan, markers }
}

fn text_of(identifier: Identifier<'_>) -> String {
    let mut text = String::new();
    identifier.write_to(&mut text);
    text
}

fn operand(term: Term<'_>, serialize: impl FnOnce(&str) -> Option<Vec<u8>>) -> Option<Operand> {
    Some(match term {
        Term::Literal(text) => Operand::Literal(serialize(text)?),
        Term::Marker(index) => Operand::Marker(index),
        Term::NamedMarker { name, index } => Operand::Named(text_of(name), index),
    })
}

pub(super) fn blob(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    types::literal(&types::CqlType::Blob, text, &mut bytes).then_some(bytes)
}

fn key_of(statement: &statement::Statement<'_>) -> Option<Operand> {
    let term = statement.key_terms().find(|term| term.column.matches(TABLE_COLUMNS[0].0))?;
    operand(term.term, blob)
}

fn columns_of(statement: &statement::Statement<'_>, all: &[Column]) -> Option<Vec<usize>> {
    let mut columns = Vec::new();
    for selected in statement.selected_columns() {
        match selected {
            statement::Selected::All => columns.extend(0..all.len()),
            statement::Selected::Column { name, .. } => {
                columns.push(all.iter().position(|(column, _)| name.matches(column))?);
            }
            statement::Selected::Other => return None,
        }
    }
    Some(columns).filter(|columns| !columns.is_empty())
}

fn system_read(statement: &statement::Statement<'_>, index: usize, table: &Table) -> Plan {
    let Some(columns) = columns_of(statement, table.columns) else {
        return Plan::Invalid(format!(
            "undefined column in a SELECT of {}.{}",
            table.keyspace, table.name
        ));
    };
    let mut filters = Vec::new();
    for term in statement.key_terms() {
        let Some(column) = table.columns.iter().position(|(name, _)| term.column.matches(name))
        else {
            continue;
        };
        let cql_type = types::CqlType::decode(&mut { table.columns[column].1 });
        let serialize = |text: &str| {
            let mut bytes = Vec::new();
            types::literal(cql_type.as_ref()?, text, &mut bytes).then_some(bytes)
        };
        filters.extend(operand(term.term, serialize).map(|operand| (column, operand)));
    }
    Plan::System { table: index, columns, filters }
}

fn bench_read(statement: &statement::Statement<'_>, text: &str) -> Plan {
    let Some(columns) = columns_of(statement, TABLE_COLUMNS) else {
        return Plan::Invalid("undefined column".into());
    };
    if statement.plain_where {
        return Plan::Read { columns, key: key_of(statement) };
    }
    match selection(text, TABLE_COLUMNS[0].0) {
        Some(Selection::Keys(keys)) => Plan::Multiget { columns, keys },
        Some(Selection::From { key, rows }) => Plan::Scan { columns, from: key, rows },
        None => Plan::Read { columns, key: key_of(statement) },
    }
}

fn bench_write(statement: &statement::Statement<'_>, text: &str) -> Plan {
    let key = key_of(statement);
    let value = match statement.kind {
        Kind::Insert => {
            let term = statement.key_terms().find(|term| term.column.matches(TABLE_COLUMNS[1].0));
            term.and_then(|term| operand(term.term, blob))
        }
        // SET comes before WHERE, and the table has one column to set, so its marker is the first.
        Kind::Update if text.contains('?') => Some(Operand::Marker(0)),
        _ => None,
    };
    Plan::Write { key, value, conditional: statement.conditional }
}

/// A `list<blob>`.
const LIST_OF_BLOB: &[u8] = &[0, 0x20, 0, 0x03];

/// Returns all markers; a marker that the plan does not know is named by its position.
fn markers(statement: &statement::Statement<'_>, plan: &Plan) -> Vec<Marker> {
    let unknown = |index| Marker { name: format!("arg{index}"), column: None, type_option: None };
    let mut markers: Vec<_> = (0..statement.markers).map(unknown).collect();
    let mut set = |operand: &Operand,
                   name: &str,
                   column: Option<usize>,
                   type_option: Option<&'static [u8]>| {
        let (index, name) = match operand {
            Operand::Literal(_) => return,
            Operand::Marker(index) => (index, name),
            Operand::Named(own, index) => (index, own.as_str()),
        };
        if let Some(marker) = markers.get_mut(usize::from(*index)) {
            *marker = Marker { name: name.to_owned(), column, type_option };
        }
    };
    let (key, value) = (TABLE_COLUMNS[0].0, TABLE_COLUMNS[1].0);
    match plan {
        Plan::Read { key: operand, .. } => {
            operand.iter().for_each(|operand| set(operand, key, Some(0), None))
        }
        Plan::Multiget { keys: Keys::Each(operands), .. } => {
            operands.iter().for_each(|operand| set(operand, key, Some(0), None));
        }
        Plan::Multiget { keys: Keys::List(operand), .. } => {
            set(operand, &format!("in({key})"), None, Some(LIST_OF_BLOB));
        }
        Plan::Scan { from, rows, .. } => {
            set(from, "arg0(system.token)", None, None);
            rows.iter().for_each(|operand| set(operand, "[limit]", None, Some(native::INT)));
        }
        Plan::Write { key: operand, value: written, .. } => {
            written.iter().for_each(|operand| set(operand, value, Some(1), None));
            operand.iter().for_each(|operand| set(operand, key, Some(0), None));
        }
        Plan::System { filters, .. } => {
            filters.iter().for_each(|(column, operand)| set(operand, "value", Some(*column), None));
        }
        _ => {}
    }
    markers
}
