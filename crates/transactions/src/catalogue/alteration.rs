//! `ALTER TABLE` with options or columns that a table with a mode cannot have.
//!
//! Proxies refuse to write to a table with such options, so a node that carried the statement out
//! would end all writes to the table. Proxies refuse the statement instead, as they refuse to give
//! a mode to a table that has the options. The same holds for static columns, and for collections
//! that are not frozen, on a table whose statements proxies decide one by one. Transactions on
//! tables with other modes take columns of all kinds.

use shunt_language::ast::{
    AlterTable, ColumnDefinition, Properties, PropertyValue, SchemaStatement, Statement,
    TableAlteration,
};
use shunt_wire::cql::statement;

use crate::catalogue::modes::TableName;
use crate::plan::schema::{self, Retention};

/// The options, as [`schema::TABLE`] reads them.
const OPTIONS: [&str; 3] = ["default_time_to_live", "gc_grace_seconds", "read_repair"];

/// The table of a statement that gives it options or columns which a table with a mode cannot have.
/// None if the text may do so and is too long to be searched for each client.
pub fn altered_tables(text: &str, session: Option<&str>) -> Option<Vec<TableName>> {
    if !may_be_unfit(text) {
        return Some(Vec::new());
    }
    if text.len() > statement::TEXT_BYTES_MAX {
        return None;
    }
    let unfit = unfit(text).map(|(alter, _)| {
        let keyspace = alter.name.keyspace.as_deref().or(session);
        (keyspace.map(Into::into), alter.name.name.into())
    });
    Some(unfit.into_iter().collect())
}

/// True of a statement that adds a column which only a table with the mode `conditional` or
/// `observe` cannot have.
pub fn adds_unfit_column(text: &str) -> bool {
    let is_addition = |alter: &AlterTable| matches!(alter.alteration, TableAlteration::Add { .. });
    text.len() <= statement::TEXT_BYTES_MAX
        && may_be_unfit(text)
        && unfit(text).is_some_and(|(alter, _)| is_addition(&alter))
}

/// Explains why a proxy does not pass on a statement that [`altered_tables`] has found.
pub fn refusal(text: &str) -> Option<String> {
    if !may_be_unfit(text) {
        return None;
    }
    let (bytes, bytes_max) = (text.len(), statement::TEXT_BYTES_MAX);
    if bytes > bytes_max {
        return Some(format!(
            "Shunt: this change of a table has {bytes} bytes, and may set one of the options {}; {bytes_max} bytes are allowed",
            OPTIONS.join(", ")
        ));
    }
    let (AlterTable { name, alteration, .. }, why) = unfit(text)?;
    if let TableAlteration::Add { .. } = alteration {
        return Some(format!(
            "Shunt: table {name} has transactional_mode 'conditional' or 'observe', or is about to get or lose it, and proxies could not decide its statements: {why}; nothing was changed"
        ));
    }
    Some(format!(
        "Shunt: table {name} has a transactional_mode or a rule, and proxies could not write to it: {why}; nothing was changed"
    ))
}

fn may_be_unfit(text: &str) -> bool {
    if text.len() > statement::TEXT_BYTES_MAX {
        return begins_with_alter(text);
    }
    let is_in = |option: &str| {
        let mut parts = text.as_bytes().windows(option.len());
        parts.any(|part| part.eq_ignore_ascii_case(option.as_bytes()))
    };
    OPTIONS.into_iter().any(is_in) || is_in("ADD")
}

/// True if ALTER is the first word of a long text, or the first word comes late.
fn begins_with_alter(text: &str) -> bool {
    let mut rest = &text.as_bytes()[..statement::TEXT_BYTES_MAX];
    loop {
        rest = rest.trim_ascii_start();
        let after_opening = rest.get(2..).unwrap_or_default();
        let length = match rest {
            // Cassandra's grammar: COMMENT is ('--' | '//') .* ('\n' | '\r').
            [b'-', b'-', ..] | [b'/', b'/', ..] => {
                let end = after_opening.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
                end.map(|end| end + 1)
            }
            [b'/', b'*', ..] => {
                after_opening.windows(2).position(|part| part == b"*/").map(|end| end + 2)
            }
            _ => return rest.len() < 5 || rest[..5].eq_ignore_ascii_case(b"ALTER"),
        };
        rest = length.map_or(&[], |length| &after_opening[length..]);
    }
}

/// The statement, and why its table could not have a mode. None for other statements.
fn unfit(text: &str) -> Option<(AlterTable, String)> {
    let Statement::Schema(SchemaStatement::AlterTable(alter)) =
        shunt_language::parse(text).ok()?.statement
    else {
        return None;
    };
    let why = match &alter.alteration {
        TableAlteration::With(properties) => unfit_options(properties)?,
        TableAlteration::Add { columns, .. } => columns.iter().find_map(unfit_column)?,
        _ => return None,
    };
    Some((alter, why))
}

fn unfit_column(column: &ColumnDefinition) -> Option<String> {
    let name = &column.name;
    if column.is_static {
        return Some(format!("its column {name} would be static"));
    }
    schema::is_multi_cell(&column.type_name)
        .then(|| format!("its column {name} would be a collection or type that is not frozen"))
}

fn unfit_options(properties: &Properties) -> Option<String> {
    let value = |option: &str| {
        properties.iter().find_map(|(name, value)| match value {
            PropertyValue::Constant(_, value) if name == option => Some(&**value),
            _ => None,
        })
    };
    // A node refuses a value that is no number.
    let seconds = |option: &str| value(option)?.parse::<i32>().ok().map(i32::to_be_bytes);
    let (ttl, gc_grace) = (seconds("default_time_to_live"), seconds("gc_grace_seconds"));
    let retention = Retention::read(
        ttl.as_ref().map(<[u8; 4]>::as_slice),
        gc_grace.as_ref().map(<[u8; 4]>::as_slice),
    );
    let read_repair = value("read_repair").map(str::to_ascii_uppercase);
    retention.refusal().or_else(|| schema::unfit_read_repair(read_repair.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_a_table_with_a_mode_cannot_have_are_found() {
        for (text, part) in [
            ("ALTER TABLE ks.t WITH gc_grace_seconds = 0", "gc_grace_seconds = 0"),
            ("alter columnfamily if exists T with GC_Grace_Seconds=10799;", "10799"),
            ("ALTER TABLE t WITH comment = 'c' AND gc_grace_seconds = '60'", "= 60"),
            ("ALTER TABLE t WITH default_time_to_live = 1", "default_time_to_live = 1"),
            ("ALTER TABLE t WITH \"read_repair\" = 'none'", "read_repair = 'NONE'"),
        ] {
            let tables = altered_tables(text, Some("ks")).expect("parsed");
            assert_eq!(tables, [(Some("ks".into()), "t".into())], "{text}");
            let why = refusal(text).expect("refused");
            assert!(why.contains(part) && why.contains("nothing was changed"), "{why}");
        }
        let named = altered_tables("ALTER TABLE a.\"T\" WITH gc_grace_seconds = 1", None);
        assert_eq!(named, Some(vec![(Some("a".into()), "T".into())]));
    }

    #[test]
    fn columns_that_proxies_cannot_decide_by_are_found() {
        for (text, part) in [
            ("ALTER TABLE ks.t ADD s int STATIC", "its column s would be static"),
            (
                "alter table T add (a int, \"M\" map<text, int>)",
                "its column M would be a collection",
            ),
            ("ALTER TABLE t ADD IF NOT EXISTS (a int, l list<frozen<address>>);", "column l"),
            ("ALTER TABLE t ADD a ks.address", "column a would be a collection or type"),
            ("ALTER TABLE t ADD a 'ListType(Int32Type)'", "column a would be a collection or type"),
            (
                "ALTER TABLE t ADD (b int, a 'org.apache.cassandra.db.marshal.MapType ( Int32Type,Int32Type)')",
                "column a would be a collection or type",
            ),
        ] {
            let tables = altered_tables(text, Some("ks")).expect("parsed");
            assert_eq!(tables, [(Some("ks".into()), "t".into())], "{text}");
            assert!(adds_unfit_column(text), "{text}");
            let why = refusal(text).expect("refused");
            assert!(why.contains(part) && why.contains("'conditional'"), "{why}");
        }
        assert!(!adds_unfit_column("ALTER TABLE t WITH gc_grace_seconds = 0"));
    }

    #[test]
    fn other_changes_are_left_to_nodes() {
        for text in [
            "ALTER TABLE t WITH gc_grace_seconds = 10800",
            "ALTER TABLE t WITH default_time_to_live = 0",
            "ALTER TABLE t WITH read_repair = 'BLOCKING'",
            "ALTER TABLE t WITH comment = 'gc_grace_seconds = 0'",
            "ALTER TABLE t WITH gc_grace_seconds = 'x'",
            "ALTER TABLE t ADD gc_grace_seconds int",
            "ALTER TABLE t ADD (a int, f frozen<list<int>>, v vector<float, 3>)",
            "ALTER TABLE t ADD a tuple<int, text>",
            "ALTER TABLE t ADD a 'org.example.Type'",
            "ALTER TABLE t ADD a 'FrozenType(ListType(Int32Type))'",
            "ALTER TABLE t DROP added",
            "ALTER TYPE t ADD a list<int>",
            "ALTER TABLE t WITH gc_grace_seconds =",
            "CREATE TABLE IF NOT EXISTS t (k int PRIMARY KEY) WITH gc_grace_seconds = 0",
            "ALTER MATERIALIZED VIEW t WITH gc_grace_seconds = 0",
            "DROP TABLE t",
        ] {
            assert_eq!(altered_tables(text, Some("ks")), Some(Vec::new()), "{text}");
            assert_eq!(refusal(text), None, "{text}");
            assert!(!adds_unfit_column(text), "{text}");
        }
    }

    #[test]
    fn a_long_text_is_not_parsed() {
        let long = |rest: &str| {
            let comment = "c".repeat(statement::TEXT_BYTES_MAX);
            format!("ALTER TABLE ks.t WITH comment = '{comment}' AND {rest}")
        };
        let text = long("gc_grace_seconds = 864000");
        assert_eq!(altered_tables(&text, None), None);
        assert!(refusal(&text).is_some_and(|why| why.contains("bytes are allowed")));
        let blanks = " ".repeat(statement::TEXT_BYTES_MAX);
        // Only the line feed behind ALTER would end a comment that goes on behind the return.
        let after_comment = long("gc_grace_seconds = 0").replace(" WITH", "\nWITH");
        for text in [
            long("compaction = {}"),
            format!("-- a comment\n/* and another */{}", long("compaction = {}")),
            format!("-- a comment\r{after_comment}"),
            format!("// a comment\r{after_comment}"),
            format!("-- a comment\r\n--\r{after_comment}"),
            format!("{blanks}ALTER TABLE t WITH gc_grace_seconds = 0"),
            format!("/*{blanks}*/ CREATE TABLE t (k int PRIMARY KEY)"),
        ] {
            assert_eq!(altered_tables(&text, None), None, "it is not searched");
        }
        let text = format!("CREATE TABLE t (k int PRIMARY KEY) {blanks} WITH gc_grace_seconds = 0");
        assert_eq!((altered_tables(&text, None), refusal(&text)), (Some(Vec::new()), None));
    }
}
