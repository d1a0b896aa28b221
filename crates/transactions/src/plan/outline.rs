//! A parsed text, and the tables in it.

use std::sync::Arc;

use shunt_language::ast::{QualifiedName, Statement, quoted_name};
use shunt_language::transaction::{self, Inner, MARKERS_MAX, Transaction};
use shunt_language::{InvalidRequest, Refusal};
use shunt_wire::cql::statement::{self, Kind};

use super::repeatable::calls_only_native;

/// A parsed text, and the tables in it.
#[derive(Debug)]
pub struct Outline {
    /// The text.
    pub text: Arc<str>,
    /// Keyspace of names without one; empty if there is none.
    pub keyspace: Arc<str>,
    /// The parsed transaction.
    pub transaction: Transaction,
    /// Keyspace of all tables: the domain in which transactions exclude each other.
    pub domain: String,
    /// Names of the tables, each once, and whether the transaction writes to the table.
    pub tables: Vec<(String, bool)>,
}

/// References to rows in one transaction. Each is looked up among the reads, as bind markers are.
const REFERENCES_MAX: usize = 1_000;

/// The table of a statement.
pub(super) fn table_of(inner: &Inner) -> Option<&QualifiedName> {
    match &inner.statement {
        Statement::Select(select) => Some(&select.table),
        Statement::Mutation(mutation) => Some(mutation.table()),
        Statement::Truncate(table) => Some(table),
        _ => None,
    }
}

impl Outline {
    /// Parses a text. `keyspace` is that of the session, empty if it has none.
    ///
    /// # Errors
    /// The text is no transaction that proxies carry out.
    pub fn parse(text: &str, keyspace: &str) -> Result<Outline, Refusal> {
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
                Refusal::from(InvalidRequest::new(format!(
                    "{}: {problem}",
                    transaction.name_of(index, text)
                )))
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

    /// True of a single statement that calls user-defined functions.
    pub fn calls_others(&self) -> bool {
        let inner = self.transaction.lone_mutation().map(|inner| &inner.statement);
        matches!(inner, Some(Statement::Mutation(mutation)) if !calls_only_native(mutation))
    }
}

/// A single write as nodes read it; it need not be a transaction.
#[derive(Debug)]
pub struct Single {
    /// The table.
    pub table: QualifiedName,
    /// Calls user-defined functions.
    pub calls_others: bool,
}

impl Single {
    /// Parses a text; none if it is no single write.
    pub fn parse(text: &str) -> Option<Single> {
        match shunt_language::parse(text).ok()?.statement {
            Statement::Mutation(mutation) => Some(Single {
                table: mutation.table().clone(),
                calls_others: !calls_only_native(&mutation),
            }),
            Statement::Truncate(table) => Some(Single { table, calls_others: false }),
            _ => None,
        }
    }
}

/// The text with its table's keyspace, so that it means the same table in every session.
///
/// # Errors
/// The table's name cannot be found in the text.
pub fn qualified(
    text: &str,
    name: &QualifiedName,
    keyspace: &str,
) -> Result<Arc<str>, InvalidRequest> {
    if name.keyspace.is_some() {
        return Ok(text.into());
    }
    let parsed = statement::classify(text);
    let place = parsed.table.filter(|found| parsed.keyspace.is_none() && found.matches(&name.name));
    let place = place.and_then(|found| found.place_in(text));
    let Some((before, after)) = place.and_then(|place| text.split_at_checked(place)) else {
        let (keyspace, name) = (quoted_name(keyspace), quoted_name(&name.name));
        return Err(InvalidRequest::new(format!(
            "name the table with its keyspace here: {keyspace}.{name}"
        )));
    };
    Ok(format!("{before}{}.{after}", quoted_name(keyspace)).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_users_are_found_wherever_they_are_called() {
        for (text, calls_others) in [
            ("INSERT INTO t (k, v) VALUES (1, ks.f('a')) IF NOT EXISTS", true),
            ("INSERT INTO t (k, v) VALUES (1, (text) f(now()))", true),
            ("INSERT INTO t (k, v) VALUES (f(1), 'a')", true),
            ("INSERT INTO t (k, v) VALUES (1, {'a': [g('b')]}) USING TTL 5", true),
            ("INSERT INTO t (k, v) VALUES (1, 'f(1)') USING TIMESTAMP 5", false),
            ("INSERT INTO t (k, v) VALUES (now(), system.now()) USING TTL ?", false),
            ("INSERT INTO t JSON '{\"k\": 1}'", false),
            ("UPDATE t SET v = f(?) WHERE k = 1", true),
            ("UPDATE t SET m['a'] = 'b', v = 'c' WHERE k = f(1)", true),
            ("UPDATE t SET m[f('a')] = 'b' WHERE k = 1", true),
            ("UPDATE t SET v = 'a' WHERE k IN (1, f(2))", true),
            ("UPDATE t SET v = 'a' WHERE k = 1 IF v = f('b')", true),
            ("UPDATE t SET v = 'a' WHERE k = 1 IF v IN ('b', f('c'))", true),
            ("UPDATE t SET v = 'a' WHERE (a, b) = (1, f(2))", true),
            (
                "UPDATE t SET v = 'a' WHERE k = 1 AND c = minTimeuuid('2024-01-01 00:00:00+0000') IF EXISTS",
                false,
            ),
            ("DELETE m[f('a')] FROM t WHERE k = 1", true),
            ("DELETE v FROM t WHERE k = 1 AND c = f(2)", true),
            ("DELETE v FROM t WHERE k = ? IF v = ?", false),
            ("TRUNCATE t", false),
        ] {
            let single = Single::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(
                (single.table.name.as_str(), single.calls_others),
                ("t", calls_others),
                "{text}"
            );
        }
    }

    #[test]
    fn other_texts_are_not_read_as_single_statements() {
        for text in [
            "SELECT v FROM t WHERE k = 1",
            "BEGIN BATCH DELETE FROM t WHERE k = 1 APPLY BATCH",
            "INSERT INTO t",
        ] {
            assert!(Single::parse(text).is_none(), "{text}");
        }
    }
}
