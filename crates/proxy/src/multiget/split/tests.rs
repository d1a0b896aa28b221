//! Each form of a request: the parts, or why it goes whole.

use shunt_language::ast::NativeType;
use shunt_topology::schema::{Cells, Factor};
use shunt_topology::{Column, Keyspace, Node, Replication, Table};
use shunt_wire::cql::envelope::opcode;

use super::*;

const KEYS_MAX: usize = 20;

/// Three nodes with a third of the ring each.
fn routing(factor: u16) -> RoutingTable {
    let node = |number: u16| Node {
        id: NodeId(number),
        host_id: number.into(),
        address: ([127, 0, 0, 1], 9_000 + number).into(),
        datacentre: "dc".into(),
        rack: "r".into(),
        tokens: vec![i64::MIN / 3 * (1 - i64::from(number)) * 2],
        up: true,
        release_version: String::new(),
    };
    let replication = Replication::Simple(Factor { all: factor, transient: 0 });
    let table = |name: &str, key: &[(&str, &str)]| Table {
        keyspace: "ks".into(),
        name: name.into(),
        partition_key: key.iter().map(|(name, cql_type)| Column::new(*name, cql_type)).collect(),
        cells: Cells::default(),
    };
    let tables = vec![
        table("t", &[("k", "int")]),
        table("b", &[("k", "blob")]),
        table("c", &[("a", "text"), ("k", "int"), ("z", "text")]),
    ];
    RoutingTable::build(
        (0..3).map(node).collect(),
        vec![Keyspace { name: "ks".into(), replication }],
        tables,
        Some("dc"),
    )
}

fn form(keys: Keys, markers: usize) -> Split {
    Split {
        keyspace: "ks".into(),
        table: "t".into(),
        column: "k".into(),
        key_type: CqlType::Native(NativeType::Int),
        keys,
        equal: [].into(),
        limit: Limit::None,
        markers,
    }
}

fn header(version: u8, flags: u8) -> Header {
    Header { version, response: false, flags, stream: 1, opcode: opcode::EXECUTE, length: 0 }
}

fn list(keys: &[i32]) -> Vec<u8> {
    let mut list = Vec::new();
    put::int(&mut list, keys.len() as i32);
    keys.iter().for_each(|key| put::bytes(&mut list, Some(&key.to_be_bytes())));
    list
}

fn execute(
    version: u8,
    values: &[Value<'_>],
    change: impl FnOnce(&mut QueryParams<'_>),
) -> Vec<u8> {
    let mut bound = ValueList::positional(version);
    for value in values {
        bound.push(*value);
    }
    let mut params =
        QueryParams { values: bound.values(), ..QueryParams::simple(Consistency::ONE) };
    change(&mut params);
    let mut body = Vec::new();
    encode::execute(&mut body, version, b"sixteen bytes id", Some(b"meta"), &params);
    body
}

fn refused(form: &Split, header: &Header, body: &[u8]) -> Whole {
    read(form, &routing(1), header, body, KEYS_MAX).expect_err("split").whole
}

fn keys_of(request: &Request<'_>) -> Vec<Vec<i32>> {
    let key = |key: &&[u8]| i32::from_be_bytes((*key).try_into().unwrap());
    request.runs.iter().map(|run| run.keys.iter().map(key).collect()).collect()
}

#[test]
fn keys_come_in_the_order_of_their_type_each_once_in_runs_of_one_replica() {
    for version in 3..=5 {
        let asked = list(&[7, -1, 3, 7, 100, -50, 3, 0, 12, 5]);
        let body = execute(version, &[Value::Bytes(&asked)], |params| params.page_size = Some(100));
        let routing = routing(1);
        let request =
            read(&form(Keys::List(0), 1), &routing, &header(version, 0), &body, KEYS_MAX).unwrap();
        assert_eq!(keys_of(&request).concat(), [-50, -1, 0, 3, 5, 7, 12, 100]);
        assert!(request.runs.len() > 2, "{:?}", keys_of(&request));
        let keyspace = routing.keyspace("ks").unwrap();
        for run in &request.runs {
            for key in &run.keys {
                let found = routing.replicas(keyspace, token::token(key));
                assert_eq!(found.nodes, &run.replicas[..], "a run has one replica");
            }
        }
        let neighbours = request.runs.windows(2).all(|pair| pair[0].replicas != pair[1].replicas);
        assert!(neighbours, "a run ends only where the replica does");
        assert_eq!((request.wanted.page_rows, request.wanted.limit), (Some(100), None));
    }
}

#[test]
fn a_part_is_the_same_request_for_fewer_keys() {
    for version in 3..=5 {
        let asked = list(&[7, -1, 3]);
        let values = [Value::Bytes(b"before"), Value::Bytes(&asked), Value::Null];
        let body = execute(version, &values, |params| {
            params.flags |= query_flag::SKIP_METADATA;
            params.page_size = Some(9);
            params.timestamp = Some(77);
            params.serial_consistency = Some(Consistency::LOCAL_SERIAL);
            params.now_in_seconds = Some(5).filter(|_| version == 5);
        });
        let whole = Execute::decode(version, &body).unwrap();
        let mut part = Vec::new();
        write_part(&mut part, &form(Keys::List(1), 3), version, &whole, &[&[0, 0, 0, 7]]);
        let read = Execute::decode(version, &part).unwrap();
        assert_eq!((read.id, read.result_metadata_id), (whole.id, whole.result_metadata_id));
        assert!(
            whole.params.skips_metadata() && !read.params.skips_metadata(),
            "metadata are compared"
        );
        let same =
            QueryParams { flags: whole.params.flags, values: whole.params.values, ..read.params };
        assert_eq!(same, whole.params);
        let values: Vec<_> = read.params.values.iter().map(|(_, value)| value).collect();
        assert_eq!(values, [Value::Bytes(b"before"), Value::Bytes(&list(&[7])), Value::Null]);
    }
}

#[test]
fn places_that_are_left_over_have_a_key_of_the_part() {
    let key = |key: i32| key.to_be_bytes();
    let (one, two, three) = (key(1), key(2), key(3));
    let values = [Value::Bytes(&one), Value::Bytes(b"a"), Value::Bytes(&two), Value::Bytes(&three)];
    let body = execute(4, &values, |_| {});
    let whole = Execute::decode(4, &body).unwrap();
    let mut part = Vec::new();
    write_part(&mut part, &form(Keys::Each([0, 2, 3].into()), 4), 4, &whole, &[&two, &three]);
    let read = Execute::decode(4, &part).unwrap();
    let values: Vec<_> = read.params.values.iter().map(|(_, value)| value).collect();
    assert_eq!(
        values,
        [Value::Bytes(&two), Value::Bytes(b"a"), Value::Bytes(&three), Value::Bytes(&two)]
    );
}

#[test]
fn keys_of_one_node_go_there_whole() {
    let asked = list(&[7, -1, 3]);
    let body = execute(4, &[Value::Bytes(&asked)], |_| {});
    let refused =
        read(&form(Keys::List(0), 1), &routing(3), &header(4, 0), &body, KEYS_MAX).unwrap_err();
    assert_eq!((refused.whole, refused.placement.is_some()), (Whole::OneReplica, true));
    let asked = list(&[7, 7]);
    let body = execute(4, &[Value::Bytes(&asked)], |_| {});
    let refused =
        read(&form(Keys::List(0), 1), &routing(1), &header(4, 0), &body, KEYS_MAX).unwrap_err();
    assert_eq!(refused.whole, Whole::OneKey);
    assert_eq!(refused.placement.unwrap().1, token::token(&7i32.to_be_bytes()));
}

#[test]
fn a_composite_key_is_placed_as_a_whole() {
    let routing = routing(1);
    let form = Split {
        table: "c".into(),
        equal: [("z".into(), 2), ("a".into(), 0)].into(),
        ..form(Keys::List(1), 3)
    };
    let asked = list(&[5, 1, 2, 3, 4, 6, 7, 8]);
    let body =
        execute(4, &[Value::Bytes(b"left"), Value::Bytes(&asked), Value::Bytes(b"right")], |_| {});
    let request = read(&form, &routing, &header(4, 0), &body, KEYS_MAX).unwrap();
    for run in &request.runs {
        let mut key = Vec::new();
        assert!(partition_key(
            [Some(&b"left"[..]), Some(run.keys[0]), Some(&b"right"[..])],
            &mut key
        ));
        assert_eq!(run.token, token::token(&key));
    }
    for values in [
        [Value::Null, Value::Bytes(&asked), Value::Bytes(b"right")],
        [Value::Bytes(b"left"), Value::Bytes(&asked), Value::Unset],
    ] {
        assert_eq!(refused(&form, &header(4, 0), &execute(4, &values, |_| {})), Whole::Values);
    }
    let missing = Split { equal: [("a".into(), 0)].into(), ..form.clone() };
    let body =
        execute(4, &[Value::Bytes(b"left"), Value::Bytes(&asked), Value::Bytes(b"right")], |_| {});
    assert_eq!(refused(&missing, &header(4, 0), &body), Whole::Where);
    let not_key = Split { column: "v".into(), ..form.clone() };
    assert_eq!(refused(&not_key, &header(4, 0), &body), Whole::Where);
    let clustered = Split { equal: [("a".into(), 0), ("c".into(), 2)].into(), ..form };
    assert_eq!(refused(&clustered, &header(4, 0), &body), Whole::Where);
}

#[test]
fn requests_for_more_than_the_first_rows_go_whole() {
    let asked = list(&[1, 2, 3, 4, 5, 6]);
    let values = [Value::Bytes(&asked)];
    let form = form(Keys::List(0), 1);
    let plain = execute(5, &values, |_| {});
    assert!(read(&form, &routing(1), &header(5, 0), &plain, KEYS_MAX).is_ok());
    for (flags, why) in [
        (flag::TRACING, Whole::Tracing),
        (flag::CUSTOM_PAYLOAD, Whole::Payload),
        (0x10, Whole::Parameters),
    ] {
        assert_eq!(refused(&form, &header(5, flags), &plain), why);
    }
    type Change = fn(&mut QueryParams<'_>);
    let changes: [(Change, Whole); 8] = [
        (|params| params.paging_state = Some(b"further"), Whole::PagingState),
        (|params| params.keyspace = Some("other"), Whole::Parameters),
        (|params| params.timestamp = Some(i64::MIN), Whole::Parameters),
        (|params| params.serial_consistency = Some(Consistency(99)), Whole::Parameters),
        (|params| params.consistency = Consistency(11), Whole::Parameters),
        (|params| params.consistency = Consistency::ANY, Whole::Parameters),
        (|params| params.consistency = Consistency::SERIAL, Whole::Serial),
        (|params| params.consistency = Consistency::LOCAL_SERIAL, Whole::Serial),
    ];
    for (change, why) in changes {
        assert_eq!(refused(&form, &header(5, 0), &execute(5, &values, change)), why);
    }
    // Flags that no version lists, and a paging state that is null.
    for (flag, why) in
        [(0x4000_0000u32, Whole::Parameters), (query_flag::PAGING_STATE, Whole::PagingState)]
    {
        let mut body = plain.clone();
        // The flags follow both ids and the level.
        let at = 2 + 16 + 2 + 4 + 2;
        let flags = u32::from_be_bytes(body[at..at + 4].try_into().unwrap()) | flag;
        body[at..at + 4].copy_from_slice(&flags.to_be_bytes());
        put::bytes(&mut body, None);
        assert_eq!(refused(&form, &header(5, 0), &body), why);
    }
    assert_eq!(
        refused(&form, &header(4, 0), &plain[..plain.len() - 1]),
        Whole::Parameters,
        "cut short"
    );
    let mut named = ValueList::named(4);
    named.push_named("in(k)", Value::Bytes(&asked));
    let params = QueryParams { values: named.values(), ..QueryParams::simple(Consistency::ONE) };
    let mut body = Vec::new();
    encode::execute(&mut body, 4, b"sixteen bytes id", None, &params);
    assert_eq!(refused(&form, &header(4, 0), &body), Whole::Markers);
}

#[test]
fn keys_that_are_none_go_whole() {
    let single = form(Keys::List(0), 1);
    let with_null = [&list(&[1, 2])[..8], &[0xFF; 4]].concat();
    let short = [&[0, 0, 0, 2][..], &[0, 0, 0, 4, 0, 0, 0, 1], &[0, 0, 0, 2, 0, 1]].concat();
    let empty = [&[0, 0, 0, 2][..], &[0, 0, 0, 4, 0, 0, 0, 1], &[0; 4]].concat();
    let behind = [&list(&[1, 2, 3])[..], &[9]].concat();
    let missing = [&[0, 0, 0, 9][..], &list(&[1, 2])[4..]].concat();
    for bytes in [&with_null[..], &short, &empty, &behind, &missing, &list(&[]), &[], &[0xFF; 4]] {
        assert_eq!(
            refused(&single, &header(4, 0), &execute(4, &[Value::Bytes(bytes)], |_| {})),
            Whole::Values
        );
    }
    for value in [Value::Null, Value::Unset] {
        assert_eq!(refused(&single, &header(4, 0), &execute(4, &[value], |_| {})), Whole::Values);
        let each = form(Keys::Each([0, 1].into()), 2);
        let body = execute(4, &[Value::Bytes(&[0, 0, 0, 1]), value], |_| {});
        assert_eq!(refused(&each, &header(4, 0), &body), Whole::Values);
    }
    let two = list(&[1, 2]);
    assert_eq!(refused(&single, &header(4, 0), &execute(4, &[], |_| {})), Whole::Markers);
    let body = execute(4, &[Value::Bytes(&two), Value::Bytes(&two)], |_| {});
    assert_eq!(refused(&single, &header(4, 0), &body), Whole::Markers);
    let many: Vec<i32> = (0..=KEYS_MAX as i32).collect();
    let body = execute(4, &[Value::Bytes(&list(&many))], |_| {});
    assert_eq!(refused(&single, &header(4, 0), &body), Whole::Keys);
    let unknown = Split { table: "unknown".into(), ..single };
    assert_eq!(
        refused(&unknown, &header(4, 0), &execute(4, &[Value::Bytes(&two)], |_| {})),
        Whole::Schema
    );
}

/// Keys that `IN` treats as equal are two partitions.
#[test]
fn keys_that_equal_another_and_are_not_the_same_go_whole() {
    for (native, one, other) in [
        (NativeType::Varint, &[1][..], &[0, 1][..]),
        (NativeType::Decimal, &[0, 0, 0, 0, 1], &[0, 0, 0, 1, 10]),
        (NativeType::Boolean, &[1], &[2]),
    ] {
        let form =
            Split { key_type: CqlType::Native(native), ..form(Keys::Each([0, 1].into()), 2) };
        let body = execute(4, &[Value::Bytes(one), Value::Bytes(other)], |_| {});
        assert_eq!(refused(&form, &header(4, 0), &body), Whole::Values, "{native:?}");
    }
}

#[test]
fn a_limit_that_is_bound_must_be_one() {
    let form = Split { limit: Limit::Marker(1), ..form(Keys::List(0), 2) };
    let asked = list(&[1, 2, 3, 4, 5, 6]);
    let with = |limit: Value<'_>| execute(4, &[Value::Bytes(&asked), limit], |_| {});
    let body = with(Value::Bytes(&[0, 0, 0, 7]));
    let found = read(&form, &routing(1), &header(4, 0), &body, KEYS_MAX).unwrap();
    assert_eq!(found.wanted.limit, Some(7));
    for limit in [
        Value::Null,
        Value::Unset,
        Value::Bytes(&[0; 4]),
        Value::Bytes(&[0xFF; 4]),
        Value::Bytes(&[7]),
    ] {
        assert_eq!(refused(&form, &header(4, 0), &with(limit)), Whole::Limit);
    }
}

/// Each part has places for all keys and the values of the other columns: a small request must not
/// become a very large output.
#[test]
fn requests_that_grow_too_much_in_parts_go_whole() {
    let routing = routing(1);
    let asked: Vec<i32> = (0..200).collect();
    let asked = list(&asked);
    let form_of_three = Split {
        table: "c".into(),
        equal: [("a".into(), 0), ("z".into(), 2)].into(),
        ..form(Keys::List(1), 3)
    };
    let long = vec![b'a'; 60_000];
    for (first, is_split) in [(&long[..1], true), (&long, false)] {
        let body =
            execute(4, &[Value::Bytes(first), Value::Bytes(&asked), Value::Bytes(b"z")], |_| {});
        let found = read(&form_of_three, &routing, &header(4, 0), &body, 200);
        assert_eq!(
            found.map(drop).map_err(|refused| refused.whole),
            if is_split { Ok(()) } else { Err(Whole::Bytes) }
        );
    }
    let keys: Vec<[u8; 4]> = (0..1_000i32).map(i32::to_be_bytes).collect();
    for (count, is_split) in [(100, true), (1_000, false)] {
        let values: Vec<Value<'_>> = keys[..count].iter().map(|key| Value::Bytes(key)).collect();
        let body = execute(4, &values, |_| {});
        let found = read(
            &form(Keys::Each((0..count).collect()), count),
            &routing,
            &header(4, 0),
            &body,
            1_000,
        );
        assert_eq!(
            found.map(drop).map_err(|refused| refused.whole),
            if is_split { Ok(()) } else { Err(Whole::Bytes) }
        );
    }
}

#[test]
fn the_bytes_of_parts_are_known_before_they_are_written() {
    let routing = routing(1);
    let keys: Vec<Vec<u8>> = (0..12u8)
        .map(|key| vec![key; if key == 3 { 5_000 } else { 1 + usize::from(key) }])
        .collect();
    let mut listed = Vec::new();
    put::int(&mut listed, keys.len() as i32);
    keys.iter().for_each(|key| put::bytes(&mut listed, Some(key)));
    for version in 3..=5 {
        let each: Vec<Value<'_>> = keys.iter().map(|key| Value::Bytes(key)).collect();
        for (of, values) in
            [(Keys::List(0), vec![Value::Bytes(&listed)]), (Keys::Each((0..12).collect()), each)]
        {
            let form = Split {
                table: "b".into(),
                key_type: CqlType::Native(NativeType::Blob),
                ..form(of, values.len())
            };
            let body = execute(version, &values, |params| params.page_size = Some(9));
            let request = read(&form, &routing, &header(version, 0), &body, KEYS_MAX).unwrap();
            let (mut part, mut written) = (Vec::new(), 0);
            for run in &request.runs {
                write_part(&mut part, &form, version, &request.execute, &run.keys);
                written += part.len();
            }
            assert_eq!(
                bytes_of_parts(&form, &values, body.len(), &request.runs),
                written,
                "{:?}",
                form.keys
            );
            // The long key is only in its own part, once: the unused places there and the other
            // parts have a short one.
            assert!(
                request.runs.len() > 2
                    && written < 5_000 + request.runs.len() * (body.len() - 5_000 + 12 * 12)
            );
        }
    }
}

/// The statement has the same id, and its keys another order.
#[test]
fn a_table_that_was_made_anew_with_another_type_is_not_known() {
    let asked = list(&[1, 2, 3, 4, 5, 6]);
    let body = execute(4, &[Value::Bytes(&asked)], |_| {});
    for (native, is_split) in
        [(NativeType::Int, true), (NativeType::Float, false), (NativeType::Blob, false)]
    {
        let form = Split { key_type: CqlType::Native(native), ..form(Keys::List(0), 1) };
        let found = read(&form, &routing(1), &header(4, 0), &body, KEYS_MAX).map(drop);
        assert_eq!(
            found.map_err(|refused| refused.whole),
            if is_split { Ok(()) } else { Err(Whole::Schema) }
        );
    }
}

/// Numbers of many digits take long to compare, and nodes refuse long keys.
#[test]
fn long_keys_are_not_compared() {
    let (decimal, blob) = (NativeType::Decimal, NativeType::Blob);
    for (native, bytes, most) in [
        (decimal, 1 << 20, NUMBER_BYTES_MAX),
        (NativeType::Varint, 1 << 20, NUMBER_BYTES_MAX),
        (blob, 70_000, KEY_BYTES_MAX),
    ] {
        let form = Split { key_type: CqlType::Native(native), ..form(Keys::List(0), 1) };
        let keys = |bytes: usize| {
            let mut list = Vec::new();
            put::int(&mut list, 2);
            for first in [1, 2] {
                let mut key = vec![first; bytes];
                key[..4].fill(0);
                put::bytes(&mut list, Some(&key));
            }
            super::keys(&form, &[Value::Bytes(&list)], KEYS_MAX).map(|keys| keys.len())
        };
        assert_eq!(keys(bytes), Err(Whole::Values), "{native}");
        assert_eq!(keys(most + 1), Err(Whole::Values), "{native}");
        assert_eq!(keys(most), Ok(2), "{native}");
    }
}
