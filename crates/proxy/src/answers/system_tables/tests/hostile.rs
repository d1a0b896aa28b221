//! Nodes that answer garbage, and clients that ask for too much: no panic, and no more memory than
//! a bound allows.

use shunt_wire::cql::message::{Value, ValueList, metadata_flag, result_kind};

use super::*;

const TEXTS: [&str; 6] = [
    "SELECT * FROM system.peers",
    "SELECT peer AS a, count(*), tokens FROM system.peers WHERE peer = ? LIMIT ?",
    "SELECT count(*) FROM system.peers",
    "SELECT ((",
    "SELECT JSON *, cluster_name FROM system.local",
    "SELECT CAST(host_id AS text), toJson(tokens) AS t FROM system.local",
];

/// Rewrites an answer in all ways; the result must be readable, or the node's own bytes pass
/// unchanged.
fn rewrite(version: u8, flags: u8, body: &[u8]) {
    let known = [ResultColumn { name: "peer".into(), type_option: INET.into() }];
    let (fleet, cluster) = (fleet(2), cluster());
    let mut values = ValueList::positional(4);
    values.push(Value::Bytes(&[10, 0, 0, 3])).push(Value::Bytes(&[0xff; 4]));
    for table in [SystemTable::Local, SystemTable::Peers, SystemTable::PeersV2] {
        for known in [&[][..], &known] {
            let found = Found { table, version, flags, body, known };
            let mut shown = Vec::new();
            for text in TEXTS {
                let asked = Asked::new(text, values.values());
                for asked in [Some(&asked), None] {
                    shown.extend(show_alone(&found, &alone(), asked));
                    shown.extend(show_fleet(&found, &fleet, &cluster, asked, 1 << 16));
                }
            }
            for shown in shown.into_iter().flatten() {
                assert!(
                    shown.len() <= 4 * body.len() + (1 << 17),
                    "{} bytes from {}",
                    shown.len(),
                    body.len()
                );
                let again = Found { body: &shown, ..found };
                assert!(again.rows().is_some(), "what is shown must be rows: {body:x?}");
            }
        }
    }
}

/// Valid answers, to be corrupted.
fn answers() -> Vec<(u8, Vec<u8>)> {
    let values: Vec<Option<&[u8]>> = vec![Some(b"value"); PEERS_V2.len()];
    let mut paged = Vec::new();
    put::int(&mut paged, result_kind::ROWS);
    put::int(
        &mut paged,
        metadata_flag::GLOBAL_TABLE
            | metadata_flag::HAS_MORE_PAGES
            | metadata_flag::METADATA_CHANGED,
    );
    put::int(&mut paged, 1);
    put::bytes(&mut paged, Some(b"state"));
    put::short_bytes(&mut paged, b"id");
    ["system", "peers", "tokens"].iter().for_each(|name| put::string(&mut paged, name));
    paged.extend_from_slice(SET_OF_TEXT);
    put::int(&mut paged, 1);
    put::bytes(&mut paged, Some(b"set"));
    let mut bare = Vec::new();
    let mut writer = RowsWriter::without_metadata(&mut bare, 1);
    writer.value(Some(b"x"));
    writer.finish();
    vec![(4, answer(PEERS_V2, &values)), (3, answer(LOCAL, &[])), (5, paged), (4, bare)]
}

#[test]
fn an_answer_cut_short_anywhere_is_survived() {
    for (version, body) in answers() {
        for length in 0..=body.len() {
            rewrite(version, 0, &body[..length]);
        }
    }
}

#[test]
fn an_answer_with_any_field_changed_is_survived() {
    for (version, body) in answers() {
        for at in 0..body.len() {
            for value in [0x00, 0x01, 0x7f, 0x80, 0xff] {
                let mut broken = body.clone();
                broken[at] = value;
                rewrite(version, 0, &broken);
            }
        }
    }
}

#[test]
fn garbage_is_survived() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..2_000 {
        let mut body: Vec<u8> = (0..random() % 200).map(|_| (random() % 7) as u8).collect();
        if round % 2 == 0 {
            body.splice(..0, result_kind::ROWS.to_be_bytes());
        }
        rewrite(3 + (round % 3) as u8, (random() % 32) as u8, &body);
    }
}

#[test]
fn columns_without_number_do_not_multiply_by_members() {
    let columns: Vec<Specification<'_>> = vec![("tokens", SET_OF_TEXT); 300];
    let text = format!("SELECT {} FROM system.peers", vec!["tokens"; columns.len()].join(","));
    let member = |number: u32| crate::fleet::roster::Member {
        address: (number.to_be_bytes(), 9042).into(),
        incarnation: [0; 16],
    };
    let fleet = Fleet::new((1..=200).map(member).collect(), 0).expect("a fleet");
    let fault =
        Read::new(SystemTable::Peers, &text, &columns).in_fleet(&fleet).expect_err("too long");
    assert!(fault.why.contains("frame_bytes_max"), "{}", fault.why);
}

/// The node's answer has one row for each of its peers; the proxy's has one for each proxy.
#[test]
fn a_column_that_is_named_very_often_is_not_computed_for_all_proxies() {
    let members = |count: u8| {
        let member = |number: u8| Member {
            address: ([10, 0, 0, number], 9042).into(),
            incarnation: [number; 16],
        };
        Fleet::new((1..=count).map(member).collect(), 0).expect("a fleet")
    };
    // As many as a text has room for whose table Shunt still finds.
    let often = vec![PEERS_V2[0]; 5_000];
    let name = PEERS_V2[0].0;
    for item in [name.to_owned(), format!("max({name})")] {
        let items = vec![item; often.len()].join(", ");
        let text = format!("SELECT {items} FROM system.peers_v2");
        let read = Read::new(SystemTable::PeersV2, &text, &often);
        let fault = read.in_fleet(&members(63)).expect_err("too many values");
        assert!(fault.why.contains("5000 columns of 62 proxies"), "{fault:?}");
    }
    let all = Read::new(SystemTable::PeersV2, "SELECT * FROM system.peers_v2", PEERS_V2);
    let shown = all.in_fleet(&members(255)).expect("few enough").expect("rows");
    assert_eq!(rows_in(4, &shown).len(), 254);
}
