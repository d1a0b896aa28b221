//! Columns that a write may name, looked for in its text.

use super::*;

/// A table with these columns beside its key, each a text.
fn table_with<'n>(names: impl IntoIterator<Item = &'n str>) -> Arc<Table> {
    let regular = names.into_iter().map(|name| (name, "regular", -1, "text"));
    table(
        "wide",
        &[("k", "partition_key", 0, "int")].into_iter().chain(regular).collect::<Vec<_>>(),
    )
}

/// If a node is asked for the columns of such a table, by a transaction that reads `plain` and
/// writes so.
fn asks(table: &Arc<Table>, write: &str) -> bool {
    let text = format!(
        "BEGIN TRANSACTION LET a = (SELECT plain FROM wide WHERE k = 1); {write}; COMMIT TRANSACTION"
    );
    let outline =
        Outline::parse(&text, "ks").unwrap_or_else(|refusal| panic!("{write}: {refusal}"));
    let draft = Draft::new(outline, &[Arc::clone(table)], 0, false).expect(write);
    let shown = shown(&draft, &[&["plain"]]);
    Plan::new(draft, &shown).expect("a plan").asks_columns() == [true]
}

/// Each of these columns looked for in the whole of this text would be ten billion steps.
#[test]
fn columns_of_a_wide_table_are_looked_for_in_a_long_text_at_once() {
    let names: Vec<String> = (0..10_000).map(|number| format!("column{number}")).collect();
    let table = table_with(names.iter().map(String::as_str).chain(["plain"]));
    let long = "column ".repeat(149_000);
    assert!(!asks(&table, &format!("UPDATE wide SET plain = '{long}' WHERE k = 1")));
    assert!(asks(
        &table,
        &format!("UPDATE wide SET plain = '{long}', column9999 = 'a' WHERE k = 1")
    ));
}

/// Failing to ask where a write names a column that is not read would be to write into another one.
#[test]
fn a_column_that_a_write_names_is_found_however_it_is_written() {
    let table = table_with([
        "plain",
        "other",
        "plain_other",
        "Mixed",
        "a b",
        "q\"q",
        "\u{fc}",
        "9th",
        "_low",
    ]);
    for (write, asked) in [
        ("UPDATE wide SET plain = 'a' WHERE k = 1", false),
        ("UPDATE wide SET PLAIN='a' WHERE k = 1", false),
        ("UPDATE wide SET other = 'a' WHERE k = 1", true),
        ("UPDATE wide SET OTHER='a' WHERE k = 1", true),
        ("UPDATE wide SET plain='a',other='a'WHERE k = 1", true),
        ("UPDATE wide SET/**/other/**/= 'a' WHERE k = 1", true),
        ("UPDATE wide SET--\nother--\n= 'a' WHERE k = 1", true),
        ("UPDATE wide SET\"other\"= 'a' WHERE k = 1", true),
        ("UPDATE wide SET \"Mixed\" = 'a' WHERE k = 1", true),
        ("UPDATE wide SET \"a b\" = 'a' WHERE k = 1", true),
        ("UPDATE wide SET \"q\"\"q\" = 'a' WHERE k = 1", true),
        ("UPDATE wide SET \"\u{fc}\" = 'a' WHERE k = 1", true),
        ("UPDATE wide SET \"9th\" = 'a' WHERE k = 1", true),
        ("UPDATE wide SET \"_low\" = 'a' WHERE k = 1", true),
        ("UPDATE wide SET plain_other = 'a' WHERE k = 1", true),
        ("INSERT INTO wide (k,plain,other) VALUES (1, 'a', 'a')", true),
        ("INSERT INTO wide (k,\"plain\",\"q\"\"q\") VALUES (1, 'a', 'a')", true),
        ("DELETE other FROM wide WHERE k = 1", true),
        ("DELETE plain FROM wide WHERE k = 1", false),
        // What is no name may be taken for one: asking does no harm.
        ("UPDATE wide SET plain = 'other' WHERE k = 1", true),
        ("UPDATE wide SET plain = /* other */ 'a' WHERE k = 1", true),
        ("UPDATE wide SET plain = 'others, another, plain_others' WHERE k = 1", false),
    ] {
        assert_eq!(asks(&table, write), asked, "{write}");
    }
}
