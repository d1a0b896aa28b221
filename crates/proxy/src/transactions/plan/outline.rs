//! A text that was read: which tables it is about.

use std::sync::Arc;

use shunt_language::ast::{QualifiedName, Statement, quoted_name};
use shunt_language::transaction::{self, Inner, Transaction};
use shunt_language::{InvalidRequest, Refusal};
use shunt_wire::cql::statement::{self, Kind};

use crate::transactions::schema::Table;

/// A text that was read, and the tables in it.
#[derive(Debug)]
pub(in super::super) struct Outline {
    pub(in super::super) text: Arc<str>,
    /// Of names without one; empty: none.
    pub(in super::super) keyspace: Arc<str>,
    pub(in super::super) transaction: Transaction,
    /// The keyspace of all tables: the domain in which transactions exclude each other.
    pub(in super::super) domain: String,
    /// Names of the tables in it, each once, and whether the transaction writes to it.
    pub(in super::super) tables: Vec<(String, bool)>,
}

/// References to rows in one transaction, and its bind markers: each is looked for among what is read.
const REFERENCES_MAX: usize = 1_000;
const MARKERS_MAX: usize = 4_096;

pub(super) fn table_of(inner: &Inner) -> Option<&QualifiedName> {
    match &inner.statement {
        Statement::Select(select) => Some(&select.table),
        Statement::Mutation(mutation) => Some(mutation.table()),
        Statement::Truncate(table) => Some(table),
        _ => None,
    }
}

impl Outline {
    /// Reads a text. `keyspace`: that of the session, empty if it has none.
    pub(in super::super) fn read(text: &str, keyspace: &str) -> Result<Outline, Refusal> {
        let transaction = match statement::classify(text).kind {
            Kind::Transaction => transaction::parse(text)?,
            _ => transaction::parse_alone(text)?,
        };
        let (references, markers) = (transaction.references().count(), transaction.markers.len());
        if references > REFERENCES_MAX || markers > MARKERS_MAX {
            return Err(Refusal::from(InvalidRequest::new(format!(
                "a transaction has {references} references to rows and {markers} bind markers: {REFERENCES_MAX} and {MARKERS_MAX} are \
                 the most"
            ))));
        }
        let (mut domain, mut tables): (Option<&str>, Vec<(String, bool)>) = (None, Vec::new());
        for (index, inner) in transaction.statements.iter().enumerate() {
            let at = |problem: &str| {
                Refusal::from(InvalidRequest::new(format!("{}: {problem}", transaction.name_of(index, text))))
            };
            let Some(table) = table_of(inner) else { continue };
            let named = table.keyspace.as_deref().unwrap_or(keyspace);
            if named.is_empty() {
                return Err(at(
                    "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename",
                ));
            }
            if *domain.get_or_insert(named) != named {
                return Err(at(
                    "the tables of a transaction are of one keyspace: one proxy decides all transactions of a keyspace",
                ));
            }
            let writes = matches!(inner.statement, Statement::Mutation(_) | Statement::Truncate(_));
            match tables.iter_mut().find(|(known, _)| *known == table.name) {
                Some((_, is_written)) => *is_written |= writes,
                None => tables.push((table.name.clone(), writes)),
            }
        }
        let domain = domain.unwrap_or_default().to_owned();
        Ok(Outline { text: text.into(), keyspace: keyspace.into(), transaction, domain, tables })
    }
}

/// The text with its table's keyspace in it: whoever executes it, in whichever session, means the same table.
pub(super) fn qualified(text: &str, name: &QualifiedName, table: &Table) -> Result<Arc<str>, InvalidRequest> {
    if name.keyspace.is_some() {
        return Ok(text.into());
    }
    let parsed = statement::classify(text);
    let place = parsed.table.filter(|found| parsed.keyspace.is_none() && found.matches(&table.name));
    let place = place.and_then(|found| found.place_in(text));
    let Some((before, after)) = place.and_then(|place| text.split_at_checked(place)) else {
        let (keyspace, name) = (quoted_name(&table.keyspace), quoted_name(&table.name));
        return Err(InvalidRequest::new(format!("name the table with its keyspace here: {keyspace}.{name}")));
    };
    Ok(format!("{before}{}.{after}", quoted_name(&table.keyspace)).into())
}
