//! Type specifications, names, partition keys, and arbitrary text as a literal. `tests/literals.rs`
//! compares serialized literals with Cassandra's bytes.

use proptest::prelude::*;

use super::{Column, CqlType, literal, partition_key, skip_spec};

/// `[option]`s as in the native protocol v4, section 4.2.5.2, followed by a byte that must remain.
#[test]
fn type_specifications() {
    let list: &[(&[u8], &str)] = &[
        (b"\0\x01!", "ascii"),
        (b"\0\x02!", "bigint"),
        (b"\0\x09!", "int"),
        (b"\0\x0a!", "text"),
        (b"\0\x0d!", "text"),
        (b"\0\x0f!", "timeuuid"),
        (b"\0\x15!", "duration"),
        (b"\0\x00\0\x03a.B!", "a.B"),
        (b"\0\x20\0\x09!", "list<int>"),
        (b"\0\x21\0\x0d\0\x22\0\x0c!", "map<text, set<uuid>>"),
        (b"\0\x31\0\x02\0\x04\0\x10!", "tuple<boolean, inet>"),
        (b"\0\x31\0\x00!", "tuple<>"),
        (b"\0\x30\0\x02ks\0\x01u\0\x02\0\x01a\0\x09\0\x01b\0\x31\0\x01\0\x14!", "ks.u"),
    ];
    for (bytes, name) in list {
        let mut input = *bytes;
        let decoded = CqlType::decode(&mut input).expect(name);
        assert_eq!(decoded.to_string(), *name);
        assert_eq!(input, b"!", "{name}");
        let mut skipped = *bytes;
        assert_eq!(skip_spec(&mut skipped), Some(()), "{name}");
        assert_eq!(skipped, b"!", "{name}");
        for cut in 0..bytes.len() - 1 {
            assert_eq!(CqlType::decode(&mut &bytes[..cut]), None, "{name} cut to {cut}");
            assert_eq!(skip_spec(&mut &bytes[..cut]), None, "{name} cut to {cut}");
        }
    }
    let udt = CqlType::Udt {
        keyspace: "ks".to_owned(),
        name: "u".to_owned(),
        fields: vec![
            ("a".to_owned(), CqlType::Int),
            ("b".to_owned(), CqlType::Tuple(vec![CqlType::Tinyint])),
        ],
    };
    assert_eq!(CqlType::decode(&mut &*list[12].0), Some(udt));
}

#[test]
fn malformed_type_specifications() {
    let bottomless = b"\0\x20".repeat(100_000);
    let many = [b"\0\x31\xff\xff".as_slice(), &b"\0\x09".repeat(100)].concat();
    let list: [&[u8]; 5] = [b"\0\x16", b"\x80\0", b"\0\0\0\x02\xff\xff", &bottomless, &many];
    for bytes in list {
        assert_eq!(CqlType::decode(&mut &*bytes), None);
        assert_eq!(skip_spec(&mut &*bytes), None);
    }
}

#[test]
fn type_names() {
    let list = [
        ("text", CqlType::Text),
        ("varchar", CqlType::Text),
        ("TimeUUID", CqlType::Timeuuid),
        ("frozen<list<int>>", CqlType::Custom("frozen<list<int>>".to_owned())),
        ("address", CqlType::Custom("address".to_owned())),
    ];
    for (name, expected) in list {
        assert_eq!(Column::new("c", name).cql_type, expected, "{name}");
    }
}

#[test]
fn partition_keys() {
    let long = vec![7u8; 65_536];
    let most = &long[1..];
    type Bytes<'a> = Option<&'a [u8]>;
    let list: &[(&[Bytes<'_>], Bytes<'_>)] = &[
        (&[Some(b"abc")], Some(b"abc")),
        (&[Some(b"")], Some(b"")),
        (&[Some(most)], Some(most)),
        (&[Some(b"abc"), Some(b"\0\0\0\x05")], Some(b"\0\x03abc\0\0\x04\0\0\0\x05\0")),
        (&[Some(b""), Some(b"x")], Some(b"\0\0\0\0\x01x\0")),
        (&[Some(b"x"), Some(b""), Some(b"y")], Some(b"\0\x01x\0\0\0\0\0\x01y\0")),
        (&[], None),
        (&[None], None),
        (&[Some(b"a"), None], None),
        (&[Some(&long)], None),
        (&[Some(b"a"), Some(&long)], None),
    ];
    for (values, expected) in list {
        let mut out = b"left over".to_vec();
        assert_eq!(partition_key(values.iter().copied(), &mut out), expected.is_some());
        assert_eq!(out, expected.unwrap_or_default());
    }
}

proptest! {
    #[test]
    fn decoding_never_panics_and_skipping_agrees(bytes in prop::collection::vec(0u8..0x32, 0..64)) {
        let (mut decoded, mut skipped) = (&bytes[..], &bytes[..]);
        let found = CqlType::decode(&mut decoded).is_some();
        prop_assert_eq!(skip_spec(&mut skipped).is_some(), found);
        if found {
            prop_assert_eq!(decoded, skipped);
        }
    }

    #[test]
    fn any_text_as_any_literal(text in "\\PC{0,40}|[-+0-9.eE:TZx' ]{0,40}|'[-0-9:.TZ+ ]{0,40}'") {
        for (name, cql_type) in super::NATIVE {
            let mut out = b"kept".to_vec();
            let written = literal(&cql_type, &text, &mut out);
            prop_assert!(out.starts_with(b"kept"), "{}", name);
            prop_assert!(written || out.len() == 4, "{}", name);
        }
    }

    #[test]
    fn integers(value: i64) {
        let mut out = Vec::new();
        prop_assert!(literal(&CqlType::Bigint, &value.to_string(), &mut out));
        prop_assert_eq!(&out[..], &value.to_be_bytes()[..]);
        out.clear();
        prop_assert!(literal(&CqlType::Varint, &value.to_string(), &mut out));
        // Sign extension of the shortest form restores the value, and no shorter form does.
        let extend = |bytes: &[u8]| bytes.iter().skip(1).fold(i64::from(bytes[0].cast_signed()), |all, byte| all << 8 | i64::from(*byte));
        prop_assert_eq!(extend(&out), value);
        prop_assert!(out.len() == 1 || extend(&out[1..]) != value);
    }

    /// Compares with a slow count of days.
    #[test]
    fn dates(days in 0u32..3_000_000) {
        let (mut year, mut left) = (1583u32, days);
        let length = |year: u32| if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) { 366 } else { 365 };
        while left >= length(year) {
            left -= length(year);
            year += 1;
        }
        let text = format!("'{year:04}-01-01'");
        let mut out = Vec::new();
        prop_assert!(literal(&CqlType::Date, &text, &mut out));
        // 1583-01-01 is 141,349 days before 1970-01-01.
        let expected = (1u32 << 31) - 141_349 + (days - left);
        prop_assert_eq!(&out[..], &expected.to_be_bytes()[..]);
    }
}
