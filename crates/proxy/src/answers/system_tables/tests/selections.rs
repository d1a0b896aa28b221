//! Conditions, aliases, functions, numbers of rows, pages.

use shunt_wire::cql::message::encode_result::native::{BLOB, BOOLEAN};
use shunt_wire::cql::message::{Value, ValueList, error_code, metadata_flag, result_kind};

use super::*;

const KEY: &[Specification<'static>] = &[("peer", INET)];

/// The last bytes of the addresses in the first column.
fn numbers(rows: &Shown) -> Vec<u8> {
    rows.iter()
        .map(|row| row[0].as_ref().and_then(|value| value.last().copied()).unwrap_or_default())
        .collect()
}

#[test]
fn conditions_are_met() {
    let cases: [(&str, &[u8]); 14] = [
        ("", &[2, 3]),
        (";", &[2, 3]),
        ("WHERE peer = '10.0.0.2'", &[2]),
        ("where PEER='10.0.0.3'", &[3]),
        ("WHERE peer = '10.0.0.1'", &[]),
        ("WHERE peer = '::1'", &[]),
        ("WHERE data_center = 'dc1' ALLOW FILTERING", &[2, 3]),
        ("WHERE data_center = 'dc2' ALLOW FILTERING", &[]),
        ("WHERE peer = '10.0.0.2' AND rack = 'r2' ALLOW FILTERING", &[2]),
        ("WHERE peer = '10.0.0.2' AND rack = 'r3' ALLOW FILTERING", &[]),
        ("WHERE release_version = '5.0.2' ALLOW FILTERING", &[2, 3]),
        ("WHERE schema_version = 00000000-0000-0000-0000-00000000005c ALLOW FILTERING", &[2, 3]),
        // A column without a value for members.
        ("WHERE workload = 'x' ALLOW FILTERING", &[]),
        ("WHERE graph = true AND peer = '10.0.0.2' ALLOW FILTERING", &[]),
    ];
    for (tail, expected) in cases {
        let text = format!("SELECT peer FROM system.peers {tail}");
        assert_eq!(numbers(&Read::new(SystemTable::Peers, &text, KEY).rows()), expected, "{text}");
        let text = format!("SELECT count(*) FROM system.peers {tail}");
        let count = Read::new(SystemTable::Peers, &text, &[("count", BIGINT)]).rows();
        assert_eq!(count, [[Some((expected.len() as i64).to_be_bytes().to_vec())]], "{text}");
    }
}

/// The proxy must not give rows that do not meet a condition, so it refuses conditions that it does
/// not understand.
#[test]
fn other_conditions_are_refused_by_name() {
    for tail in [
        "WHERE peer IN ('10.0.0.2', '10.0.0.3')",
        "WHERE peer > '10.0.0.2' ALLOW FILTERING",
        "WHERE token(peer) > 5",
        "WHERE tokens CONTAINS '0' ALLOW FILTERING",
        "WHERE peer = 'not an address'",
        "WHERE peer = ?",
        "WHERE peer ~ 1",
        "LIMIT )",
    ] {
        let text = format!("SELECT peer FROM system.peers {tail}");
        let fault = Read::new(SystemTable::Peers, &text, KEY).in_fleet(&fleet(1)).expect_err(&text);
        assert_eq!(fault.kind.code(), error_code::INVALID);
        assert!(fault.why.contains("proxies of a fleet"), "{}", fault.why);
    }
    // The request itself is forgotten.
    let read = Read::new(SystemTable::Peers, "", KEY);
    let shown = show_fleet(&read.found(), &fleet(1), &cluster(), None, 1 << 20);
    assert!(shown.is_err());
}

#[test]
fn null_and_unset_meet_nothing() {
    for value in [Value::Null, Value::Unset] {
        let mut read =
            Read::new(SystemTable::Peers, "SELECT peer FROM system.peers WHERE peer = ?", KEY);
        let mut values = ValueList::positional(4);
        values.push(value);
        read.values = values.values();
        assert!(read.in_fleet(&fleet(1)).is_err(), "a node refuses them before");
    }
}

#[test]
fn no_more_rows_come_than_were_asked_for() {
    for (tail, expected) in [
        ("LIMIT 1", &[2u8][..]),
        ("limit 2", &[2, 3]),
        ("LIMIT 1 ALLOW FILTERING", &[2]),
        ("WHERE data_center = 'dc1' LIMIT 1 ALLOW FILTERING;", &[2]),
        ("LIMIT 100", &[2, 3]),
        ("LIMIT 99999999999999999999999", &[2, 3]),
        ("PER PARTITION LIMIT 1", &[2, 3]),
    ] {
        let text = format!("SELECT peer FROM system.peers {tail}");
        assert_eq!(numbers(&Read::new(SystemTable::Peers, &text, KEY).rows()), expected, "{text}");
    }
    let text = "SELECT peer FROM system.peers WHERE data_center = ? LIMIT ? ALLOW FILTERING";
    let mut read = Read::new(SystemTable::Peers, text, KEY);
    let mut values = ValueList::positional(4);
    values.push(Value::Bytes(b"dc1")).push(Value::Bytes(&[0, 0, 0, 1]));
    read.values = values.values();
    assert_eq!(numbers(&read.rows()), [2]);
    // The client asks for rows, not for their count.
    let count = Read::new(
        SystemTable::Peers,
        "SELECT count(*) FROM system.peers LIMIT 1",
        &[("count", BIGINT)],
    );
    assert_eq!(count.rows(), [[Some(2i64.to_be_bytes().to_vec())]]);
}

#[test]
fn numbers_of_rows_are_told_under_any_name() {
    for (text, name) in [
        ("SELECT count(*) FROM system.peers", "count"),
        ("SELECT COUNT (1) FROM system.peers", "count"),
        ("SELECT count(*) AS peer FROM system.peers", "peer"),
        ("SELECT count(peer) FROM system.peers", "system.count(peer)"),
    ] {
        let rows = Read::new(SystemTable::Peers, text, &[(name, BIGINT)]).rows();
        assert_eq!(rows, [[Some(2i64.to_be_bytes().to_vec())]], "{text}");
    }
    // Some functions with that type or name are no counts.
    for (text, name) in [
        ("SELECT writetime(rack) FROM system.peers", "writetime(rack)"),
        ("SELECT writetime(rack) AS count FROM system.peers", "count"),
        ("SELECT counted FROM system.peers", "counted"),
    ] {
        let rows = Read::new(SystemTable::Peers, text, &[(name, BIGINT)]).rows();
        assert_eq!(rows, [[None], [None]], "{text}");
    }
}

/// The rows of a read, which must be the same when prepared and without metadata.
fn shown(text: &str, columns: &[Specification<'_>]) -> Shown {
    let mut read = Read::new(SystemTable::Peers, text, columns);
    let with_metadata = read.rows();
    let known = |(name, cql_type): &Specification<'_>| ResultColumn {
        name: Box::from(*name),
        type_option: Box::from(*cql_type),
    };
    read.known = columns.iter().map(known).collect();
    read.answer.clear();
    RowsWriter::without_metadata(&mut read.answer, columns.len()).finish();
    assert_eq!(read.rows(), with_metadata, "{text}");
    with_metadata
}

#[test]
fn a_value_stands_under_the_name_that_was_asked_for() {
    let rows = shown(
        "SELECT rack AS a, \"peer\" AS rack FROM system.peers",
        &[("a", TEXT), ("rack", INET)],
    );
    assert_eq!(rows[0], [Some(b"r2".to_vec()), Some(vec![10, 0, 0, 2])]);
    let rows = shown("SELECT DISTINCT peer FROM system.peers", KEY);
    assert_eq!(numbers(&rows), [2, 3]);
}

#[test]
fn columns_that_members_lack_are_null() {
    // Functions of no member's column, whatever their name and type.
    let rows =
        shown("SELECT now() AS rack, peer FROM system.peers", &[("rack", TEXT), ("peer", INET)]);
    assert_eq!(rows[1], [None, Some(vec![10, 0, 0, 3])]);
    // Columns of other products, and of other types.
    let rows =
        shown("SELECT * FROM system.peers", &[("peer", INET), ("graph", BOOLEAN), ("rack", BLOB)]);
    assert_eq!(rows[0], [Some(vec![10, 0, 0, 2]), None, None]);
}

#[test]
fn the_own_row_keeps_its_columns_under_any_name() {
    let columns = [("a", INET), ("rpc_address", UUID), ("key", TEXT)];
    let text = "SELECT rpc_address AS a, host_id AS rpc_address, key FROM system.local";
    let mut read = Read::new(SystemTable::Local, text, &columns);
    read.answer = answer(&columns, &[Some(&[10, 9, 0, 1]), Some(&[9; 16]), Some(b"local")]);
    let cluster = cluster();
    let own = Host::member(Place::of(&cluster), ([10, 0, 0, 1], 9042).into());
    assert_eq!(
        read.rows(),
        [[Some(vec![10, 0, 0, 1]), own.value("host_id", None), Some(b"local".to_vec())]]
    );
    // The proxy believes a node that says null or nothing.
    read.answer = answer(&columns, &[None, None, None]);
    assert_eq!(read.rows(), [[None, None, None]]);
    read.answer = answer(&columns, &[]);
    assert_eq!(read.rows(), Shown::new());
}

/// The paging state is the node's, and would lead to the same rows once more.
#[test]
fn all_rows_come_in_one_page() {
    for state in [Some(&b"more"[..]), Some(b""), None] {
        for metadata_id in [None, Some(&b"new"[..])] {
            let version = if metadata_id.is_some() { 5 } else { 4 };
            let mut body = vec![0xee; 16];
            put::int(&mut body, result_kind::ROWS);
            let changed = if metadata_id.is_some() { metadata_flag::METADATA_CHANGED } else { 0 };
            put::int(
                &mut body,
                metadata_flag::GLOBAL_TABLE | metadata_flag::HAS_MORE_PAGES | changed,
            );
            put::int(&mut body, 1);
            put::bytes(&mut body, state);
            if let Some(id) = metadata_id {
                put::short_bytes(&mut body, id);
            }
            ["system", "peers", "peer"].iter().for_each(|name| put::string(&mut body, name));
            body.extend_from_slice(INET);
            put::int(&mut body, 1);
            put::bytes(&mut body, Some(&[10, 9, 0, 7]));
            let found = Found {
                table: SystemTable::Peers,
                version,
                flags: flag::TRACING,
                body: &body,
                known: &[],
            };
            let asked = Asked::new("SELECT peer FROM system.peers", Values::default());
            let shown = show_fleet(&found, &fleet(1), &cluster(), Some(&asked), 1 << 20)
                .expect("shown")
                .expect("rows");
            assert_eq!(shown[..16], [0xee; 16], "the tracing id");
            let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(version, &shown[16..]) else {
                panic!("no rows")
            };
            assert_eq!(
                (rows.metadata.paging_state, rows.metadata.new_metadata_id),
                (None, metadata_id)
            );
            assert_eq!(rows.metadata.flags, metadata_flag::GLOBAL_TABLE | changed);
            assert_eq!(numbers(&rows_in(version, &shown[16..])), [2, 3]);
        }
    }
}
