//! The columns that a `SELECT` reads, for the system tables that the proxy answers itself.

use crate::cql::statement::{Selected, classify};

fn selected(text: &str) -> String {
    let columns = classify(text).selected_columns().map(|item| match item {
        Selected::All => "*".to_owned(),
        Selected::Column { name, alias: None } => name.to_string(),
        Selected::Column { name, alias: Some(alias) } => format!("{name} as {alias}"),
        Selected::Other => "?".to_owned(),
    });
    columns.collect::<Vec<_>>().join(",")
}

#[test]
fn columns() {
    let list = [
        ("SELECT * FROM system.local", "*"),
        ("SELECT peer, \"Data\" , rack FROM system.peers", "peer,Data,rack"),
        ("select host_id AS h, key as \"K\" from system.local", "host_id as h,key as K"),
        ("SELECT count(*), key, cast(a AS text), (int) b FROM t", "?,key,?,?"),
        ("SELECT DISTINCT key FROM t", "?"),
        ("SELECT JSON * FROM t", "?"),
        ("SELECT a.b, m['x'], a + b, c FROM t", "?,?,?,c"),
        ("SELECT f(a, b), g({1, 2}, [3, 4]), c FROM t", "?,?,c"),
        ("SELECT a AS 5 FROM t", "?"),
        ("INSERT INTO t (a) VALUES (1)", ""),
        ("SELECT a", ""),
    ];
    for (text, expected) in list {
        assert_eq!(selected(text), expected, "{text}");
    }
}

#[test]
fn texts_before_and_behind() {
    let list = [
        ("SELECT * FROM t", "* ", ""),
        (
            "select  count ( * ) from t where a = ? limit ? allow filtering;",
            "count ( * ) ",
            "limit ? allow filtering",
        ),
        ("SELECT DISTINCT a FROM t LIMIT 5 ; ", "DISTINCT a ", "LIMIT 5 "),
        ("SELECT a FROM t PER PARTITION LIMIT 1", "a ", "PER PARTITION LIMIT 1"),
        // Not understood to its end.
        ("SELECT a FROM t LIMIT )", "a ", ""),
        ("SELECT a", "", ""),
        ("INSERT INTO t (a) VALUES (1) IF NOT EXISTS", "", ""),
    ];
    for (text, selection, tail) in list {
        let statement = classify(text);
        assert_eq!((statement.selection(), statement.tail()), (selection, tail), "{text}");
    }
}

#[test]
fn tables() {
    let list = [
        (
            "SELECT * FROM system.local WHERE key='local'",
            Some((Some("system"), "local")),
            true,
            false,
        ),
        (
            "select release_version from SYSTEM.\"peers_v2\";",
            Some((Some("system"), "peers_v2")),
            true,
            false,
        ),
        ("SELECT * FROM local LIMIT 1", Some((None, "local")), true, true),
        (
            "SELECT * FROM system.peers WHERE peer > '1' ALLOW FILTERING",
            Some((Some("system"), "peers")),
            false,
            true,
        ),
        (
            "SELECT * FROM system.peers WHERE peer ~ 1",
            Some((Some("system"), "peers")),
            false,
            false,
        ),
        ("DELETE FROM system.peers WHERE peer = '1'", None, true, false),
        ("SELECT * FROM 'system.local'", None, false, false),
    ];
    for (text, table, plain_where, has_tail) in list {
        let statement = classify(text);
        let found = statement.selected_table();
        assert_eq!(found.is_some(), table.is_some(), "{text}");
        if let (Some((keyspace, name)), Some((wanted_keyspace, wanted_name))) = (found, table) {
            assert!(name.matches(wanted_name), "{text}");
            assert_eq!(
                keyspace.map(|keyspace| keyspace.to_string()).as_deref(),
                wanted_keyspace,
                "{text}"
            );
        }
        assert_eq!((statement.plain_where, statement.has_tail), (plain_where, has_tail), "{text}");
    }
}

#[test]
fn each_item_has_its_text() {
    let texts = |text: &'static str| classify(text).selected_texts().collect::<Vec<_>>();
    assert_eq!(
        texts("SELECT a , f(b, 'c,d')AS x,m['y,z'] FROM t"),
        ["a", "f(b, 'c,d')AS x", "m['y,z']"]
    );
    assert_eq!(texts("SELECT JSON a FROM t"), ["JSON a"]);
    assert_eq!(texts("SELECT * FROM t"), ["*"]);
    assert_eq!(texts("INSERT INTO t (a) VALUES (1)"), [""; 0]);
}

#[test]
fn a_list_is_one_item_and_an_odd_selection_hides_no_table() {
    let statement = classify("SELECT [a, b], {c, d}, (int) e FROM ks.t");
    assert_eq!((statement.selected_columns().count(), statement.selected_texts().count()), (3, 3));
    let statement = classify("SELECT (text):x AS t, a FROM ks.t WHERE k = 1");
    let table = statement.table.map(|table| table.to_string());
    assert_eq!(
        (table.as_deref(), statement.key_terms().count(), statement.plain_where),
        (Some("t"), 0, false)
    );
    assert!(classify("SELECT ) a").table.is_none());
}
