//! Rules of tables: which lock a write to a row must name. They are the rows of `shunt.guards`, a
//! real table that roles with MODIFY on it write.
//!
//! A write to a table with a rule is a transaction, whatever its text and the table's mode say
//! ([`super::modes`]). It is refused unless it names the lock of each row that it writes
//! ([`crate::plan`]).
//!
//! This must never: let a write through that names no lock, or another lock, once the rule is
//! known; refuse a write that names the right lock. A rule that cannot be followed lets nothing
//! through until it is corrected.

use std::collections::HashMap;

use shunt_language::CqlType;
use shunt_language::ast::NativeType;
use shunt_language::lock_tables::NAME_BYTES_MAX;
use shunt_language::values::{plain_text, validate};
use shunt_wire::printable::printable_to;

use crate::guard::request::Guard;
use crate::rejection::Rejection;

/// The statement that reads rules, at most [`ROWS_MAX`] of them.
pub const QUESTION: &str =
    "SELECT table_name, lock, fast, mode FROM shunt.guards WHERE enabled = true LIMIT 10000";
/// Rules that are read.
pub const ROWS_MAX: usize = 10_000;

/// Bytes of a lock's name before its columns are filled in.
const TEMPLATE_BYTES_MAX: usize = 4 * NAME_BYTES_MAX;

/// A part of a lock's name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    /// The value of this column of the key.
    Column(Box<str>),
}

/// One row of `shunt.guards`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The name as the row has it.
    table_name: Box<str>,
    is_fast: bool,
    /// The name of the lock, or why it cannot be known.
    lock: Result<Box<[Piece]>, Box<str>>,
}

/// Rules by keyspace and table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(HashMap<Box<str>, HashMap<Box<str>, Vec<Rule>>>);

/// A row of `shunt.guards` as it was read.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// `keyspace.table`.
    pub table_name: &'a str,
    /// Template of the lock's name.
    pub lock: Option<&'a str>,
    /// True of a lock of `shunt.fast_locks`.
    pub is_fast: bool,
    /// `require` or `off`.
    pub mode: Option<&'a str>,
}

impl Rules {
    /// Adds a row. `false` if its `table_name` is no `keyspace.table`.
    pub fn add(&mut self, row: &Row<'_>) -> bool {
        let Some((keyspace, table)) = table_of(row.table_name) else { return false };
        let lock = match row.mode {
            Some("off") => return true,
            Some("require") => row.lock.ok_or_else(|| "it names no lock".into()).and_then(pieces),
            _ => Err("its mode is neither 'require' nor 'off'".into()),
        };
        let rule = Rule { table_name: row.table_name.into(), is_fast: row.is_fast, lock };
        self.0.entry(keyspace).or_default().entry(table).or_default().push(rule);
        true
    }

    /// Rules of a table. There are several if the table is named in several ways, and all apply.
    pub fn for_table(&self, keyspace: &str, table: &str) -> &[Rule] {
        self.0
            .get(keyspace)
            .and_then(|tables| tables.get(table))
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// True if there are no rules.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if a table of this keyspace has a rule.
    pub fn has_keyspace(&self, keyspace: &str) -> bool {
        self.0.contains_key(keyspace)
    }

    /// Names of tables that have rules.
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        self.0.values().flat_map(HashMap::keys).map(|name| &**name)
    }
}

/// Splits `keyspace.table`. As in a statement, unquoted names are lower case.
fn table_of(name: &str) -> Option<(Box<str>, Box<str>)> {
    let (keyspace, table) = name.trim().split_once('.')?;
    let part = |part: &str| -> Option<Box<str>> {
        let (name, exact) = match part.strip_prefix('"').and_then(|part| part.strip_suffix('"')) {
            Some(quoted) => (quoted, true),
            None => (part, false),
        };
        let is_name = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        is_name.then(|| if exact { name.into() } else { name.to_ascii_lowercase().into() })
    };
    Some((part(keyspace)?, part(table)?))
}

/// Parses a template such as `order:{id}`; `{{` and `}}` stand for braces.
fn pieces(template: &str) -> Result<Box<[Piece]>, Box<str>> {
    if template.len() > TEMPLATE_BYTES_MAX {
        return Err(format!("the name of its lock has more than {TEMPLATE_BYTES_MAX} bytes").into());
    }
    let (mut pieces, mut text, mut rest) = (Vec::new(), String::new(), template);
    while let Some(place) = rest.find(['{', '}']) {
        text.push_str(&rest[..place]);
        let brace = &rest[place..place + 1];
        let behind = &rest[place + 1..];
        if let Some(after) = behind.strip_prefix(brace) {
            text.push_str(brace);
            rest = after;
            continue;
        }
        let column = behind
            .split_once('}')
            .filter(|(column, _)| brace == "{" && !column.is_empty() && !column.contains('{'));
        let (column, after) =
            column.ok_or("the name of its lock has a brace that is none of {column}, {{ and }}")?;
        if !text.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut text).into()));
        }
        pieces.push(Piece::Column(column.into()));
        rest = after;
    }
    text.push_str(rest);
    if !text.is_empty() {
        pieces.push(Piece::Text(text.into()));
    }
    match pieces.is_empty() {
        true => Err("it names no lock".into()),
        false => Ok(pieces.into()),
    }
}

impl Rule {
    /// Checks that a write to a row names the lock that the rule requires. `value` returns a column
    /// of the row's key with its type.
    ///
    /// # Errors
    /// The write names another lock or none, or the rule cannot be followed.
    pub fn check<'v>(
        &self,
        guard: Option<Guard<'_>>,
        value: impl Fn(&str) -> Option<(&'v CqlType, Vec<u8>)>,
    ) -> Result<(), Rejection> {
        let shown = |text: &str| printable_to(text, NAME_BYTES_MAX);
        let rule = format!("the rule of shunt.guards for {}", shown(&self.table_name));
        let name = self.name(value).map_err(|why| {
            Rejection::invalid(format!(
                "Shunt: {rule} cannot be followed: {}; nothing was written",
                shown(&why)
            ))
        })?;
        let named = match guard {
            Some(guard) if guard.name == name && guard.is_fast == self.is_fast => return Ok(()),
            Some(guard) => {
                let fast = if guard.is_fast { "fast " } else { "" };
                format!("{fast}lock '{}'", shown(guard.name))
            }
            None => "none".to_owned(),
        };
        let fast = if self.is_fast { "fast " } else { "" };
        Err(Rejection::invalid(format!(
            "Shunt: {rule} wants a write to this row to name {fast}lock '{}' with its fence, and it names {named}; nothing was written",
            shown(&name)
        )))
    }

    /// The name of a row's lock.
    fn name<'v>(
        &self,
        value: impl Fn(&str) -> Option<(&'v CqlType, Vec<u8>)>,
    ) -> Result<String, Box<str>> {
        let mut name = String::new();
        for piece in &**self.lock.as_ref().map_err(Clone::clone)? {
            match piece {
                Piece::Text(text) => name.push_str(text),
                Piece::Column(column) => {
                    let (cql_type, bytes) = value(column).ok_or_else(|| {
                        format!("{{{column}}} is no column of the table's primary key, or the write gives it no value")
                    })?;
                    let text = text_of(cql_type, &bytes);
                    name.push_str(&text.ok_or_else(|| {
                        format!("{{{column}}} has the type {cql_type}: text, whole numbers, booleans and UUIDs may be in the name of a lock")
                    })?);
                }
            }
        }
        match name.len() {
            1..=NAME_BYTES_MAX => Ok(name),
            bytes => Err(format!(
                "the name of this row's lock has {bytes} bytes: 1 to {NAME_BYTES_MAX} may be"
            )
            .into()),
        }
    }
}

/// A value as text. Types with more than one text form are not supported.
fn text_of(cql_type: &CqlType, bytes: &[u8]) -> Option<String> {
    use NativeType::{
        Ascii, Bigint, Boolean, Int, Smallint, Text, Timeuuid, Tinyint, Uuid, Varint,
    };
    match cql_type {
        CqlType::Native(
            native @ (Ascii | Text | Tinyint | Smallint | Int | Bigint | Varint | Boolean | Uuid
            | Timeuuid),
        ) => {
            validate(cql_type, bytes).ok()?;
            plain_text(*native, bytes)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row<'a>(table_name: &'a str, lock: &'a str) -> Row<'a> {
        Row { table_name, lock: Some(lock), is_fast: false, mode: Some("require") }
    }

    fn rules(rows: &[Row<'_>]) -> Rules {
        let mut rules = Rules::default();
        rows.iter().for_each(|row| assert!(rules.add(row), "{row:?}"));
        rules
    }

    fn types() -> Vec<(&'static str, CqlType, Vec<u8>)> {
        let native = |name: &'static str, native, bytes: &[u8]| {
            (name, CqlType::Native(native), bytes.to_vec())
        };
        vec![
            native("id", NativeType::Int, &(-5_i32).to_be_bytes()),
            native("big", NativeType::Bigint, &i64::MIN.to_be_bytes()),
            native("tiny", NativeType::Tinyint, &[7]),
            native("var", NativeType::Varint, &[0, 200]),
            native("name", NativeType::Text, "it's é".as_bytes()),
            native("empty", NativeType::Text, b""),
            native("yes", NativeType::Boolean, &[1]),
            native("uuid", NativeType::Uuid, &[0xAB; 16]),
            native("at", NativeType::Timestamp, &[0; 8]),
            native("broken", NativeType::Int, &[1]),
            native("long", NativeType::Text, &[b'x'; NAME_BYTES_MAX]),
        ]
    }

    /// The name of a row's lock, or why there is none.
    fn name(lock: &str) -> Result<String, String> {
        let (rules, types) = (rules(&[row("ks.t", lock)]), types());
        let value = |column: &str| {
            let (_, cql_type, bytes) = types.iter().find(|(name, ..)| *name == column)?;
            Some((cql_type, bytes.clone()))
        };
        rules.for_table("ks", "t")[0].name(value).map_err(String::from)
    }

    #[test]
    fn a_name_has_the_values_of_the_key_in_it() {
        for (template, wanted) in [
            ("orders", "orders"),
            ("order:{id}", "order:-5"),
            ("{big}/{tiny}{var}", "-9223372036854775808/7200"),
            ("{name}", "it's é"),
            ("a{empty}b{yes}", "abtrue"),
            ("{uuid}", "abababab-abab-abab-abab-abababababab"),
            ("{{{id}}} {{x}}", "{-5} {x}"),
            ("é{id}é", "é-5é"),
        ] {
            assert_eq!(name(template).as_deref(), Ok(wanted), "{template}");
        }
    }

    #[test]
    fn a_rule_that_cannot_be_followed_lets_nothing_through() {
        let long = "x".repeat(TEMPLATE_BYTES_MAX + 1);
        for (template, why) in [
            ("", "names no lock"),
            ("{empty}", "0 bytes"),
            ("{id", "a brace"),
            ("id}", "a brace"),
            ("{}", "a brace"),
            ("{a{id}}", "a brace"),
            ("{none}", "{none} is no column"),
            ("{at}", "{at} has the type timestamp"),
            ("{broken}", "{broken}"),
            ("x{long}", "1025 bytes"),
            (&long, "more than 4096 bytes"),
        ] {
            assert!(name(template).is_err_and(|told| told.contains(why)), "{template}");
        }
        for (lock, mode) in [
            (None, Some("require")),
            (Some("l"), None),
            (Some("l"), Some("Require")),
            (Some("l"), Some("")),
        ] {
            let rules = rules(&[Row { table_name: "ks.t", lock, is_fast: false, mode }]);
            let guard = Guard { is_fast: false, name: "l", fence: 1, is_over: false };
            let told =
                rules.for_table("ks", "t")[0].check(Some(guard), |_| None).expect_err("broken");
            assert!(told.why.contains("for ks.t cannot be followed"), "{}", told.why);
        }
    }

    #[test]
    fn a_write_names_the_lock_of_its_row() {
        let fast = Row { is_fast: true, ..row("\"Ks\".\"T\"", "l") };
        let off = Row { mode: Some("off"), ..row("ks.other", "l") };
        let rules = rules(&[row("Ks.T", "l"), row("ks.two", "l"), row("KS.two", "m"), fast, off]);
        let guard =
            |name: &'static str, is_fast| Some(Guard { is_fast, name, fence: 1, is_over: false });
        let passes = |(keyspace, table): (&str, &str), guard: Option<Guard<'_>>| {
            rules.for_table(keyspace, table).iter().all(|rule| rule.check(guard, |_| None).is_ok())
        };
        for (table, guard, wanted) in [
            (("ks", "t"), guard("l", false), true),
            (("ks", "t"), guard("l", true), false),
            (("ks", "t"), guard("m", false), false),
            (("ks", "t"), None, false),
            (("Ks", "T"), guard("l", true), true),
            (("Ks", "T"), guard("l", false), false),
            // Two rows for one table, which no lock satisfies.
            (("ks", "two"), guard("l", false), false),
            (("ks", "two"), guard("m", false), false),
            (("ks", "other"), None, true),
            (("Ks", "t"), None, true),
        ] {
            assert_eq!(passes(table, guard), wanted, "{table:?} {guard:?}");
        }
        let told =
            rules.for_table("ks", "t")[0].check(guard("m", true), |_| None).expect_err("another");
        assert!(
            told.why.contains("for Ks.T wants") && told.why.contains("names fast lock 'm'"),
            "{}",
            told.why
        );
        for none in ["t", "", ".t", "ks.", "ks.t.u", "ks.\"t", "k s.t", "ks.t; DROP"] {
            assert!(!Rules::default().add(&row(none, "l")), "{none}");
        }
    }
}
