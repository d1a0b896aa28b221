//! Requests, parts and replies: output can be read again, a split covers each key once, and invalid
//! datagrams are refused by name.

use std::collections::HashSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Groups with their keys.
type Groups = Vec<(u8, Vec<Vec<u8>>)>;

fn encoded(op: Op, id: u32, groups: &Groups) -> Vec<u8> {
    let heads: Vec<Group> = groups
        .iter()
        .map(|(server, keys)| Group { server: *server, keys: keys.len() as u8 })
        .collect();
    let mut out = Vec::new();
    encode_request(
        &mut out,
        op,
        id,
        &heads,
        groups.iter().flat_map(|(_, keys)| keys).map(Vec::as_slice),
    );
    out
}

fn three() -> Groups {
    vec![
        (7, vec![b"a".to_vec(), b"bb".to_vec()]),
        (0, vec![b"".to_vec()]),
        (255, vec![b"cccc".to_vec(), vec![0; 250]]),
    ]
}

fn parts(data: &[u8], trim: Trim) -> Vec<(u8, Vec<u8>)> {
    let (mut found, mut buffer) = (Vec::new(), Vec::new());
    split(data, trim, &mut buffer, |server, part| found.push((server, part.to_vec()))).unwrap();
    found
}

#[test]
fn a_request_has_the_layout_that_the_document_shows() {
    let groups = vec![(3, vec![b"k1".to_vec(), b"k2".to_vec()]), (1, vec![b"x".to_vec()])];
    let expected = [
        &[0x11, 0, 0, 1, 2, 0, 3, 0b0110_0000, 0, 0, 0, 2, 3, 1, 0, 8, 0, 11][..],
        &[0, 2, b'k', b'1', 0, 2, b'k', b'2', 0, 1, b'x'],
    ]
    .concat();
    assert_eq!(encoded(Op::MultiGet, 0x102, &groups), expected);
    assert_eq!(expected.len(), request_bytes(2, 11));
    let second = &parts(&expected, Trim::Own)[1];
    let trimmed =
        [&[0x11, 0, 0, 1, 2, 1, 1, 0, 0, 2, 3, 2, 3, 1, 0, 8, 0, 11][..], &[0, 1, b'x']].concat();
    assert_eq!(*second, (1, trimmed));
}

#[test]
fn each_part_has_the_keys_of_its_server_trimmed_or_not() {
    let groups = three();
    let whole = encoded(Op::MultiGet, 9, &groups);
    let request = Request::parse(&whole).unwrap();
    assert!(!request.is_for_one_server());
    assert_eq!(request.own_keys().unwrap().count(), 5);
    assert!(request.own_servers().eq([7, 7, 0, 255, 255]));
    for trim in [Trim::Full, Trim::Own] {
        let mut start = 0;
        for ((server, part), (expected, keys)) in parts(&whole, trim).iter().zip(&groups) {
            let part = Request::parse(part).unwrap();
            assert!(part.is_for_one_server());
            assert_eq!(
                (*server, part.server(), part.startidx, part.id),
                (*expected, *expected, start, 9)
            );
            assert!(part.own_keys().unwrap().eq(keys.iter().map(Vec::as_slice)));
            assert!(part.own_servers().eq(keys.iter().map(|_| *expected)));
            start += keys.len() as u8;
        }
    }
}

#[test]
fn a_part_is_not_split_again() {
    for (_, part) in parts(&encoded(Op::MultiGet, 1, &three()), Trim::Own) {
        assert_eq!(
            split(&part, Trim::Own, &mut Vec::new(), |_, _| panic!("a part of a part")),
            Err(Malformed::Clo)
        );
    }
}

#[test]
fn faults_of_a_request_are_named() {
    let good = encoded(Op::MultiGet, 1, &three());
    let keys_at = HEADER_BYTES + 9;
    let cases: [(&str, usize, u8); 16] = [
        ("version", 0, 0x21),
        ("op", 0, 0x13),
        ("op", 0, 0x14),
        ("place", 5, 1),
        ("numkey", 6, 0),
        ("numkey", 6, 17),
        ("keyidx", 6, 4),
        ("keyidx", 7, 0),
        ("keyidx", 8, 1),
        ("place", 9, 1),
        ("clo", 10, 2),
        ("clo", 10, 4),
        ("place", 11, 0),
        ("place", 11, 17),
        ("server", HEADER_BYTES + 1, 7),
        ("ends", HEADER_BYTES + 4, 0),
    ];
    for (name, at, byte) in cases {
        let mut bad = good.clone();
        bad[at] = byte;
        assert_eq!(Request::parse(&bad).map_err(Malformed::name), Err(name), "byte {at} is {byte}");
        assert!(split(&bad, Trim::Full, &mut Vec::new(), |_, _| panic!("sent on")).is_err());
    }
    let mut bad = good.clone();
    bad[keys_at + 1] = 2;
    assert_eq!(Request::parse(&bad).unwrap().own_keys().map(|_| ()), Err(Malformed::Keys));
    for length in 0..good.len() {
        assert!(Request::parse(&good[..length]).is_err(), "{length} bytes of {}", good.len());
    }
    assert_eq!(Request::parse(&[&good[..], &[0]].concat()), Err(Malformed::Long));
    assert_eq!(Request::parse(&[0; DATAGRAM_BYTES_MAX + 1]), Err(Malformed::Long));
}

#[test]
fn a_key_stands_once_in_a_request() {
    let mut bytes = encoded(Op::MultiGet, 1, &vec![(0, vec![b"a".to_vec(), b"b".to_vec()])]);
    assert!(Request::parse(&bytes).unwrap().own_keys().is_ok());
    *bytes.last_mut().unwrap() = b'a';
    assert_eq!(Request::parse(&bytes).unwrap().own_keys().map(|_| ()), Err(Malformed::Keys));
}

#[test]
fn a_get_has_one_key() {
    let get = encoded(Op::Get, 1, &vec![(0, vec![b"a".to_vec()])]);
    assert!(Request::parse(&get).unwrap().is_for_one_server());
    let mut two = encoded(Op::MultiGet, 1, &vec![(0, vec![b"a".to_vec(), b"b".to_vec()])]);
    two[0] = Op::Get.to_byte();
    assert_eq!(Request::parse(&two), Err(Malformed::NumKey));
}

#[test]
fn faults_of_a_reply_are_named() {
    let mut good = Vec::new();
    let mut writer = ReplyWriter::begin(&mut good, Op::MultiGet, 5, 1, 3);
    writer.push(&Item { status: Status::Hit, key: b"a", value: b"value" });
    writer.push(&Item { status: Status::Miss, key: b"b", value: b"" });
    for (name, at, byte) in [
        ("op", 0, 0x11),
        ("numkey", 6, 0),
        ("long", 6, 1),
        ("short", 6, 3),
        ("place", 9, 15),
        ("item", 12, 4),
        ("item", 12, 1),
    ] {
        let mut bad = good.clone();
        bad[at] = byte;
        assert_eq!(
            ReplyReader::parse(&bad).map(|_| ()).map_err(Malformed::name),
            Err(name),
            "byte {at} is {byte}"
        );
    }
    for length in 0..good.len() {
        assert!(ReplyReader::parse(&good[..length]).is_err());
    }
}

fn groups() -> impl Strategy<Value = Groups> {
    let group = vec(vec(any::<u8>(), 0..20), 1..5);
    (vec(group, 1..8), any::<u8>()).prop_map(|(groups, first)| {
        let (mut left, mut found, mut seen) = (KEYS_MAX, Groups::new(), HashSet::new());
        for (index, mut keys) in groups.into_iter().enumerate() {
            keys.retain(|key| seen.insert(key.clone()));
            keys.truncate(left);
            left -= keys.len();
            if !keys.is_empty() {
                found.push((first.wrapping_add(index as u8), keys));
            }
        }
        found
    })
}

proptest! {
    #[test]
    fn parts_together_are_the_whole(groups in groups(), id: u32) {
        let whole = encoded(Op::MultiGet, id, &groups);
        prop_assert!(Request::parse(&whole).unwrap().own_keys().is_ok());
        for trim in [Trim::Full, Trim::Own] {
            let found: Groups = parts(&whole, trim).iter().map(|(server, part)| {
                let part = Request::parse(part).unwrap();
                (*server, part.own_keys().unwrap().map(<[u8]>::to_vec).collect())
            }).collect();
            prop_assert_eq!(&found, &groups);
        }
    }

    #[test]
    fn no_bytes_panic(mut data in vec(any::<u8>(), 0..80), kind in 0u8..8) {
        if let Some(first) = data.first_mut() { *first = VERSION << 4 | kind; }
        if let Ok(request) = Request::parse(&data) {
            let _ = request.own_keys();
        }
        let _ = ReplyReader::parse(&data);
        let _ = split(&data, Trim::Own, &mut Vec::new(), |_, part| {
            assert!(Request::parse(part).is_ok());
        });
    }

    #[test]
    fn a_reply_is_read_as_it_was_written(
        items in vec((0u8..4, vec(any::<u8>(), 0..20), vec(any::<u8>(), 0..50)), 1..10), id: u32, startidx in 0u8..7, list: u32,
    ) {
        let mut out = Vec::new();
        let mut writer = ReplyWriter::begin(&mut out, Op::MultiGet, id, 2, startidx).with_list_digest(list);
        let statuses = [Status::Hit, Status::Miss, Status::TooBig, Status::AskOverTcp];
        let items: Vec<Item<'_>> = items.iter().map(|(status, key, value)| {
            let status = statuses[usize::from(*status)];
            Item { status, key, value: if status == Status::Hit { value } else { &[] } }
        }).collect();
        let mut bytes = HEADER_BYTES;
        for item in &items {
            writer.push(item);
            bytes += item_bytes(item);
            prop_assert_eq!(writer.bytes(), bytes);
        }
        let reader = ReplyReader::parse(&out).unwrap();
        let header = reader.header;
        prop_assert_eq!((header.id, header.startidx, header.oid, header.list_digest), (id, startidx, 2, list));
        prop_assert_eq!(reader.collect::<Vec<_>>(), items);
    }
}
