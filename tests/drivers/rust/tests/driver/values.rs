//! Values of every type, and large ones, come back as they were sent.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use drivers_rust::{Scenario, in_every_setup};
use scylla::value::{
    CqlDate, CqlDecimal, CqlDuration, CqlTime, CqlTimestamp, CqlTimeuuid, CqlVarint,
};
use scylla::{DeserializeRow, DeserializeValue, SerializeRow, SerializeValue};
use uuid::Uuid;

const FIVE_MEGABYTES: usize = 5 << 20;

#[derive(Clone, Debug, PartialEq, SerializeRow, DeserializeRow)]
struct Scalars {
    key: String,
    a: String,
    bi: i64,
    bl: Vec<u8>,
    bo: bool,
    d: CqlDate,
    de: CqlDecimal,
    dbl: f64,
    du: CqlDuration,
    f: f32,
    ip: IpAddr,
    i: i32,
    si: i16,
    t: CqlTime,
    ts: CqlTimestamp,
    tu: CqlTimeuuid,
    ti: i8,
    u: Uuid,
    vc: String,
    vi: CqlVarint,
}

#[test]
fn scalars_of_every_type() {
    in_every_setup(async |s| {
        let columns = "key, a, bi, bl, bo, d, de, dbl, du, f, ip, i, si, t, ts, tu, ti, u, vc, vi";
        let sent = Scalars {
            key: s.key.clone(),
            a: "ascii".into(),
            bi: i64::MIN,
            bl: vec![0, 1, 255],
            bo: true,
            d: CqlDate((1 << 31) + 19_782),
            de: CqlDecimal::from_signed_be_bytes_and_exponent(
                vec![0x87, 1, 2, 3, 4, 5, 6, 7, 8, 9],
                4,
            ),
            dbl: std::f64::consts::PI,
            du: CqlDuration { months: 1, days: 2, nanoseconds: 3_600_000_000_000 },
            f: 1.5,
            ip: "2001:db8::1".parse().unwrap(),
            i: i32::MIN,
            si: i16::MAX,
            t: CqlTime(86_399_999_999_999),
            ts: CqlTimestamp(1_700_000_000_123),
            tu: CqlTimeuuid::from(Uuid::now_v1(&[1, 2, 3, 4, 5, 6])),
            ti: i8::MIN,
            u: Uuid::new_v4(),
            vc: "zürich 🚂".into(),
            vi: CqlVarint::from_signed_bytes_be(vec![0x80, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        };
        let markers = vec!["?"; columns.split(',').count()].join(", ");
        s.exec(&format!("INSERT INTO scalars ({columns}) VALUES ({markers})"), &sent).await;
        let got = s
            .row::<Scalars>(&format!("SELECT {columns} FROM scalars WHERE key = ?"), (&s.key,))
            .await;
        assert_eq!(got, sent);
    });
}

#[derive(Clone, Debug, PartialEq, SerializeRow, DeserializeRow)]
struct Collected {
    key: String,
    l: Vec<i32>,
    s: BTreeSet<String>,
    m: BTreeMap<String, i64>,
    t: (i32, String, Option<bool>),
    n: BTreeMap<i32, Vec<BTreeSet<i32>>>,
    v: Vec<f32>,
}

#[test]
fn collections_tuple_and_vector() {
    in_every_setup(async |s| {
        let sent = Collected {
            key: s.key.clone(),
            l: vec![3, 1, 2],
            s: ["a".into(), "b".into()].into(),
            m: [("x".into(), 1), ("y".into(), -1)].into(),
            t: (1, "two".into(), None),
            n: [(1, vec![[1, 2].into(), [3].into()]), (2, vec![])].into(),
            v: vec![0.5, -1.0, 2.25],
        };
        s.exec("INSERT INTO collected (key, l, s, m, t, n, v) VALUES (?, ?, ?, ?, ?, ?, ?)", &sent)
            .await;
        let query = "SELECT key, l, s, m, t, n, v FROM collected WHERE key = ?";
        assert_eq!(s.row::<Collected>(query, (&s.key,)).await, sent);
    });
}

#[derive(Clone, Debug, PartialEq, SerializeValue, DeserializeValue)]
struct Address {
    street: String,
    number: i32,
    tags: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, SerializeValue, DeserializeValue)]
struct Person {
    name: String,
    home: Option<Address>,
    phones: Option<Vec<String>>,
}

#[test]
fn user_defined_types_nested_in_each_other_and_in_collections() {
    in_every_setup(async |s| {
        let home = Address { street: "Ring".into(), number: 3, tags: ["x".into()].into() };
        let ada = Person {
            name: "Ada".into(),
            home: Some(home.clone()),
            phones: Some(vec!["1".into(), "2".into()]),
        };
        let bob = Person { name: "Bob".into(), home: None, phones: None };
        let sent = (ada.clone(), vec![bob, ada], BTreeMap::from([("main".to_owned(), home)]));
        let insert = "INSERT INTO people (who, known, homes, key) VALUES (?, ?, ?, ?)";
        s.exec(insert, (&sent.0, &sent.1, &sent.2, &s.key)).await;
        type Row = (Person, Vec<Person>, BTreeMap<String, Address>);
        let query = "SELECT who, known, homes FROM people WHERE key = ?";
        assert_eq!(s.row::<Row>(query, (&s.key,)).await, sent);
    });
}

async fn blob_round_trip(s: &Scenario, body: Vec<u8>) {
    let insert = s.session.prepare("INSERT INTO blobs (key, body) VALUES (?, ?)").await.unwrap();
    s.session.execute_unpaged(&insert, (&s.key, &body)).await.unwrap();
    let (got,) = s.row::<(Vec<u8>,)>("SELECT body FROM blobs WHERE key = ?", (&s.key,)).await;
    assert!(got == body, "{} bytes came back, different from the {} sent", got.len(), body.len());
}

/// Bytes that no compression makes smaller (xorshift).
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

#[test]
fn five_megabytes_that_do_not_compress() {
    in_every_setup(async |s| blob_round_trip(s, noise(FIVE_MEGABYTES)).await);
}

#[test]
fn five_megabytes_that_compress_well() {
    in_every_setup(async |s| blob_round_trip(s, vec![0; FIVE_MEGABYTES]).await);
}

/// Sizes around which the proxy receives and sends in pieces (128 KB), and segments of v5 end.
#[test]
fn values_around_128_kilobytes() {
    in_every_setup(async |s| {
        for size in (130_900..131_200).step_by(13) {
            blob_round_trip(s, noise(size)).await;
        }
    });
}
