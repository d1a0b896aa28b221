//! Functions, casts and JSON of columns that show the proxy: none shows a node.

use super::*;

/// The value that the only proxy shows in a row with one column, or why it shows none.
fn shown(text: &str, column: Specification<'_>, of_node: &[u8]) -> Result<Vec<u8>, String> {
    let body = answer(&[column], &[Some(of_node)]);
    let found = Found { table: SystemTable::Local, version: 4, flags: 0, body: &body, known: &[] };
    let asked = Asked::new(text, Values::default());
    let shown =
        show_alone(&found, &alone(), Some(&asked)).map_err(|fault| fault.why.into_owned())?;
    Ok(rows_in(4, &shown.expect("rows")).remove(0).remove(0).expect("a value"))
}

fn text_of(text: &str, of_node: &str) -> String {
    String::from_utf8(shown(text, ("x", TEXT), of_node.as_bytes()).expect(text)).expect("text")
}

#[test]
fn an_alias_hides_no_node() {
    let found = shown("SELECT rpc_address AS a FROM system.local", ("a", INET), &[10, 9, 0, 1]);
    assert_eq!(found, Ok(vec![127, 0, 0, 1]));
}

#[test]
fn casts_and_json_of_own_columns_are_made_of_own_values() {
    let id = text_of(
        "SELECT CAST(host_id AS text) FROM system.local",
        "00000000-0000-0000-0000-000000000001",
    );
    assert!(id.len() == 36 && id != "00000000-0000-0000-0000-000000000001", "{id}");
    for (text, expected) in [
        ("SELECT toJson(rpc_address) FROM system.local", "\"127.0.0.1\""),
        ("SELECT to_json(\"rpc_port\") AS p FROM system.local", "9042"),
        ("SELECT system.tojson(tokens) FROM system.local", "[\"0\"]"),
        ("SELECT cast(rpc_port as ASCII) FROM system.local", "9042"),
    ] {
        assert_eq!(text_of(text, "the node's"), expected, "{text}");
    }
    assert_eq!(text_of("SELECT toJson(host_id) FROM system.local", "x"), format!("\"{id}\""));
    let port = shown("SELECT max(rpc_port) FROM system.local", ("m", INT), &[0, 0, 0, 1]);
    assert_eq!(port, Ok(9042i32.to_be_bytes().to_vec()));
}

#[test]
fn rows_as_json_have_own_values_and_what_the_node_says_of_others() {
    let of_node = "{\"rpc_address\": \"10.9.0.1\", \"cluster_name\": \"ring\", \"rpc_port\": 1}";
    let expected = "{\"cluster_name\":\"ring\",\"rpc_address\":\"127.0.0.1\",\"rpc_port\":9042}";
    for text in [
        "SELECT JSON * FROM system.local",
        "select json rpc_address, cluster_name, \"rpc_port\" FROM system.local WHERE key = 'local'",
    ] {
        assert_eq!(text_of(text, of_node), expected, "{text}");
    }
    assert_eq!(
        text_of("SELECT JSON rpc_address AS a FROM system.local", "{\"a\": \"x\"}"),
        "{\"a\":\"127.0.0.1\"}"
    );
}

#[test]
fn impossible_expressions_are_refused_and_others_go_to_the_nodes() {
    for text in [
        "SELECT blobAsText(textAsBlob(CAST(host_id AS text))) FROM system.local",
        "SELECT tokens['0'] FROM system.local",
        "SELECT CAST(rpc_port AS bigint) FROM system.local",
        "SELECT JSON rpc_address, toJson(host_id) FROM system.local",
        "SELECT [uuid(), host_id] FROM system.local",
        "SELECT (int)0 + rpc_port FROM system.local",
        "SELECT count(key) + (rpc_port) FROM system.local",
        "SELECT {'x as y': host_id} FROM system.local",
    ] {
        let why = shown(text, ("x", BIGINT), b"{\"rpc_address\": \"x\"}").expect_err(text);
        assert!(why.contains("shows this proxy"), "{why}");
    }
    let why = shown("SELECT JSON rpc_address FROM system.local", ("x", TEXT), b"no JSON")
        .expect_err("no JSON");
    assert!(why.contains("cannot be read"), "{why}");
    assert_eq!(text_of("SELECT toTimestamp(now()) FROM system.local", "now"), "now");
    assert_eq!(text_of("SELECT toJson(cluster_name) FROM system.local", "ring"), "ring");
}

/// The proxy's own columns cannot be determined: the request is forgotten, or the node left the
/// columns out.
#[test]
fn a_row_that_is_not_understood_is_not_passed_on() {
    let body = answer(&[("a", INET)], &[Some(&[10, 9, 0, 1])]);
    let found = Found { table: SystemTable::Local, version: 4, flags: 0, body: &body, known: &[] };
    assert!(show_alone(&found, &alone(), None).is_err());
    let asked =
        Asked::new("SELECT [key, key], rpc_address AS a FROM system.local", Values::default());
    assert!(show_alone(&found, &alone(), Some(&asked)).is_err());
    let mut body = Vec::new();
    let mut writer = RowsWriter::without_metadata(&mut body, 1);
    writer.value(Some(&[10, 9, 0, 1]));
    writer.finish();
    let asked = Asked::new("SELECT * FROM system.local", Values::default());
    assert!(show_alone(&Found { body: &body, ..found }, &alone(), Some(&asked)).is_err());
}

#[test]
fn functions_apply_to_the_proxies_of_a_fleet_too() {
    let columns = &[("j", TEXT), ("peer", INET)];
    let read = Read::new(
        SystemTable::Peers,
        "SELECT toJson(rpc_address) AS j, peer FROM system.peers",
        columns,
    );
    assert_eq!(read.rows()[0], [Some(b"\"10.0.0.2\"".to_vec()), Some(vec![10, 0, 0, 2])]);
    let read =
        Read::new(SystemTable::Peers, "SELECT JSON * FROM system.peers", &[("[json]", TEXT)]);
    assert!(read.in_fleet(&fleet(1)).expect_err("JSON").why.contains("not there as JSON"));
}
