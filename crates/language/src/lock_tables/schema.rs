//! Changes of the schema that would remove or alter the tables: refused, because clients'
//! statements are parsed and answered for the tables as created by `shunt fleet init`.

use super::{KEYSPACE, Table, find_table};
use crate::ast::{DropKind, QualifiedName, SchemaStatement};
use crate::error::InvalidRequest;
use crate::lexer::{self, Kind, Token};

/// Reason to refuse a change of the schema of these tables or their keyspace, if any; `keyspace` is
/// the session's.
pub(super) fn refusal(
    statement: &SchemaStatement,
    keyspace: Option<&str>,
) -> Option<InvalidRequest> {
    use SchemaStatement as S;
    let on = |what: &str, name: &QualifiedName, advice: &str| {
        let is_of_rules =
            name.keyspace.as_deref().or(keyspace) == Some(KEYSPACE) && name.name == RULES;
        let (table, advice) = match is_of_rules {
            true => (RULES, OF_RULES),
            false => (find_table(name, keyspace)?.name(), advice),
        };
        Some(InvalidRequest::new(format!("{what} {KEYSPACE}.{table} is refused: {advice}")))
    };
    let of_keyspace = |what: &str, name: &str, advice: &str| {
        (name == KEYSPACE).then(|| {
            InvalidRequest::new(format!("{what} KEYSPACE {KEYSPACE} is refused: {advice}"))
        })
    };
    match statement {
        S::CreateKeyspace { name, .. } => of_keyspace("CREATE", name, MAKE),
        S::AlterKeyspace { name, .. } => of_keyspace("ALTER", name, REPLICAS),
        S::CreateTable(create) => on("CREATE TABLE", &create.name, MAKE),
        S::AlterTable(alter) => on("ALTER TABLE", &alter.name, KEEP),
        S::CreateIndex(create) => on("CREATE INDEX ON", &create.table, NO_ROWS),
        S::CreateTrigger { table, .. } => on("CREATE TRIGGER ON", table, NO_ROWS),
        S::CreateView(create) => on("CREATE MATERIALIZED VIEW of", &create.table, NO_ROWS)
            .or_else(|| on("CREATE MATERIALIZED VIEW", &create.name, MAKE)),
        S::AlterView { name, .. } => on("ALTER MATERIALIZED VIEW", name, KEEP),
        S::Drop(drop) => match drop.kind {
            DropKind::Keyspace => of_keyspace("DROP", &drop.name.name, GONE),
            DropKind::Table => on("DROP TABLE", &drop.name, GONE),
            DropKind::View => on("DROP MATERIALIZED VIEW", &drop.name, GONE),
            DropKind::Trigger => {
                drop.table.as_ref().and_then(|table| on("DROP TRIGGER ON", table, KEEP))
            }
            // An index has its own name, and the tables have no rows for it.
            DropKind::Index | DropKind::Type | DropKind::Function | DropKind::Aggregate => None,
        },
        S::CreateType { .. } | S::AlterType(_) | S::CreateFunction(_) | S::CreateAggregate(_) => {
            None
        }
    }
}

/// The table of rules, which has rows and is read and written by nodes.
const RULES: &str = "guards";
const OF_RULES: &str = "the proxies of a fleet read rules from this table, and need it as `shunt fleet init` has made it; DELETE removes a rule";
const MAKE: &str = "`shunt fleet init` makes what locks need, at a node";
const KEEP: &str = "the proxies of a fleet answer statements on this table, and need it as `shunt fleet init` has made it";
const NO_ROWS: &str = "the table has no rows; SELECT .. WHERE name = ? looks at a lock, and `shunt locks` shows those of a fleet";
const REPLICAS: &str = "its tables have no rows to be replicated. Durable locks are in shunt_meta; change the replication of either at a node";
const GONE: &str = "locks are released by DELETE, each by its owner. When no fleet is to run any more, drop it at a node";

/// True if a change of the schema names one of the tables, or their whole keyspace, or cannot be
/// tokenised. For texts that [`crate::parse`] cannot parse, or that are too long: a later version
/// of Cassandra may understand them, and they are still refused.
pub fn may_change(text: &str, keyspace: Option<&str>) -> bool {
    let is_name = |token: Token, name: &str| {
        let token_text = text.get(token.start..token.end).unwrap_or_default();
        match token.kind {
            Kind::Word => token_text.eq_ignore_ascii_case(name),
            Kind::QuotedName => token_text.trim_matches('"') == name,
            _ => false,
        }
    };
    let is_dot = |token: Token| text.get(token.start..token.end) == Some(".");
    let mut tables = Table::ALL.map(Table::name).to_vec();
    tables.push(RULES);
    let is_table = |token: Token| tables.iter().any(|table| is_name(token, table));
    let (mut before, mut number, mut of_keyspace, mut found) =
        ([None::<Token>; 2], 0, false, false);
    let cut = lexer::each(text, |token| {
        number += 1;
        of_keyspace |= number == 2 && (is_name(token, "keyspace") || is_name(token, "schema"));
        found |= match before {
            [Some(name), Some(dot)] if is_dot(dot) => is_name(name, KEYSPACE) && is_table(token),
            _ => keyspace == Some(KEYSPACE) && is_table(token),
        };
        found |= of_keyspace && is_name(token, KEYSPACE);
        before = [before[1], Some(token)];
    });
    found || cut.is_err()
}
