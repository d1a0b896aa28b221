//! Each form of a statement: which ones are split, and why the others go whole.

use shunt_wire::cql::message::ResultMessage;
use shunt_wire::cql::message::encode_result::{self, PreparedSpec, native};

use super::*;

const LIST_OF_INT: &[u8] = &[0, 0x20, 0, 0x09];

/// Reads a text whose markers are of these types.
fn read_with(text: &str, bind: &[(&str, &[u8])]) -> Option<Form> {
    let mut body = Vec::new();
    let (id, result_metadata_id) = (&b"id"[..], &b"meta"[..]);
    let (partition_key, result) = (&[][..], &[("k", native::INT)][..]);
    let spec = PreparedSpec {
        id,
        result_metadata_id,
        keyspace: "ks",
        table: "t",
        bind,
        partition_key,
        result,
    };
    encode_result::prepared(&mut body, 4, &spec);
    match ResultMessage::decode(4, &body) {
        Ok(ResultMessage::Prepared(prepared)) => read(text, &prepared),
        other => panic!("{other:?}"),
    }
}

/// The reason for a text whose only marker is that of `IN ?` on an int.
fn reason(text: &str) -> Option<Whole> {
    read_with(text, &[("in(k)", LIST_OF_INT)]).map(|form| form.expect_err(text))
}

#[test]
fn a_list_and_several_markers_are_split() {
    let one = |text: &str, bind: &[(&str, &[u8])]| read_with(text, bind).unwrap().unwrap();
    for selection in ["*", "k, v", "v", "v AS k, k AS v", "k, k", "m"] {
        let text = format!("SELECT {selection} FROM ks.t WHERE k IN ?");
        let form = one(&text, &[("in(k)", LIST_OF_INT)]);
        assert_eq!(
            (form.keys, form.limit, form.markers),
            (Keys::List(0), Limit::None, 1),
            "{text}"
        );
        assert_eq!((&*form.keyspace, &*form.table, &*form.column), ("ks", "t", "k"));
        assert_eq!(form.key_type, CqlType::Native(NativeType::Int));
    }
    let form = one(
        "select v from t where a = ? and K in (?, ?) limit 7",
        &[("a", native::TEXT), ("k", native::INT), ("k", native::INT)],
    );
    assert_eq!(
        (form.keys, form.limit, form.markers),
        (Keys::Each([1, 2].into()), Limit::Rows(7), 3)
    );
    assert_eq!((&*form.column, &*form.equal), ("k", &[("a".into(), 0)][..]));
    let form = one(
        "SELECT v FROM t WHERE k IN ? AND a = ? PER PARTITION LIMIT ? LIMIT ?;",
        &[
            ("in(k)", LIST_OF_INT),
            ("a", native::INT),
            ("[per_partition_limit]", native::INT),
            ("[limit]", native::INT),
        ],
    );
    assert_eq!((form.keys, form.limit, form.markers), (Keys::List(0), Limit::Marker(3), 4));
}

#[test]
fn statements_without_in_are_not_split() {
    for text in [
        "SELECT v FROM t WHERE k = ?",
        "SELECT inn FROM t WHERE k = ?",
        "SELECT v FROM t WHERE token(k) > ?",
        "UPDATE t SET v = 1 WHERE k IN ?",
        "DELETE FROM t WHERE k IN ?",
        "INSERT INTO t (k) VALUES (?)",
        "SELECT v FROM t WHERE k IN",
        "this is no statement IN ?",
    ] {
        assert_eq!(read_with(text, &[("in(k)", LIST_OF_INT)]), None, "{text}");
    }
}

#[test]
fn statements_that_do_more_than_show_columns_go_whole() {
    for (text, why) in [
        ("SELECT JSON * FROM t WHERE k IN ?", Whole::Json),
        ("SELECT DISTINCT k FROM t WHERE k IN ?", Whole::Distinct),
        ("SELECT k, v FROM t WHERE k IN ? GROUP BY k", Whole::GroupBy),
        ("SELECT k FROM t WHERE k IN ? ORDER BY c DESC", Whole::OrderBy),
        ("SELECT k FROM t WHERE k IN ? ORDER BY v ANN OF [1, 2] LIMIT 3", Whole::OrderBy),
        ("SELECT k FROM t WHERE k IN ? ALLOW FILTERING", Whole::Filtering),
        ("SELECT COUNT(*) FROM t WHERE k IN ?", Whole::Selection),
        ("SELECT count(v) FROM t WHERE k IN ?", Whole::Selection),
        ("SELECT k, max(v) FROM t WHERE k IN ?", Whole::Selection),
        ("SELECT now() FROM t WHERE k IN ?", Whole::Selection),
        ("SELECT k, uuid() FROM t WHERE k IN ?", Whole::Selection),
        ("SELECT ks.mine(v) FROM t WHERE k IN ?", Whole::Selection),
        ("SELECT token(k) FROM t WHERE k IN ?", Whole::Selection),
        ("SELECT writetime(v) FROM t WHERE k IN ?", Whole::Selection),
        ("SELECT ttl(v) FROM t WHERE k IN ?", Whole::Selection),
        ("SELECT CAST(v AS text) FROM t WHERE k IN ?", Whole::Selection),
        ("SELECT mask_default(v) FROM t WHERE k IN ?", Whole::Selection),
        ("SELECT u.f FROM t WHERE k IN ?", Whole::Selection),
        ("SELECT m['a'] FROM t WHERE k IN ?", Whole::Selection),
        ("SELECT v + 1 FROM t WHERE k IN ?", Whole::Selection),
        ("SELECT (int) 1 FROM t WHERE k IN ?", Whole::Selection),
    ] {
        assert_eq!(reason(text), Some(why), "{text}");
    }
}

#[test]
fn other_conditions_go_whole() {
    for (text, why) in [
        ("SELECT v FROM t WHERE k IN ? AND c > 3", Whole::Where),
        ("SELECT v FROM t WHERE k IN ? AND c = 3", Whole::Literals),
        ("SELECT v FROM t WHERE k IN ? AND (c, d) > (1, 2)", Whole::Where),
        ("SELECT v FROM t WHERE k IN ? AND m CONTAINS 'x'", Whole::Where),
        ("SELECT v FROM t WHERE k IN ? AND m['a'] = 1", Whole::Where),
        ("SELECT v FROM t WHERE k IN ? AND v LIKE 'a%'", Whole::Where),
        ("SELECT v FROM t WHERE k IN ? AND c IN (1, 2)", Whole::Where),
        ("SELECT v FROM t WHERE (k) IN ?", Whole::Where),
        ("SELECT v FROM t WHERE (a, k) IN ?", Whole::Where),
        ("SELECT v FROM t WHERE k IN ? AND expr(i, 'x')", Whole::Where),
        ("SELECT v FROM t WHERE a = now() AND k IN ?", Whole::Literals),
        ("SELECT v FROM t WHERE k IN ? LIMIT 0", Whole::Limit),
        ("SELECT v FROM t WHERE k IN ? LIMIT 99999999999", Whole::Limit),
    ] {
        assert_eq!(reason(text), Some(why), "{text}");
    }
    let two = [("in(k)", LIST_OF_INT), ("in(l)", LIST_OF_INT)];
    assert_eq!(read_with("SELECT v FROM t WHERE k IN ? AND l IN ?", &two), Some(Err(Whole::Where)));
}

#[test]
fn literals_and_named_markers_go_whole() {
    assert_eq!(read_with("SELECT v FROM t WHERE k IN (1, 2)", &[]), Some(Err(Whole::Literals)));
    assert_eq!(
        read_with("SELECT v FROM t WHERE k IN (1, ?)", &[("k", native::INT)]),
        Some(Err(Whole::Literals))
    );
    assert_eq!(reason("SELECT v FROM t WHERE k IN :keys"), Some(Whole::Markers));
    let twice = [("a", native::INT), ("a", native::INT)];
    assert_eq!(read_with("SELECT v FROM t WHERE k IN (:a, :a)", &twice), Some(Err(Whole::Markers)));
    assert_eq!(
        read_with("SELECT v FROM t WHERE k IN ?", &[]),
        Some(Err(Whole::Markers)),
        "not what the node told of"
    );
    assert_eq!(read_with("SELECT v FROM t WHERE k IN ()", &[]), Some(Err(Whole::Markers)));
}

#[test]
fn types_whose_order_is_not_native_go_whole() {
    let frozen_list: &[u8] = &[0, 0x20, 0, 0x20, 0, 0x09];
    let tuple: &[u8] = &[0, 0x20, 0, 0x31, 0, 1, 0, 0x09];
    let custom: &[u8] = &[0, 0x20, 0, 0, 0, 3, b'a', b'.', b'B'];
    let duration: &[u8] = &[0, 0x20, 0, 0x15];
    for option in [frozen_list, tuple, custom, duration, native::INT] {
        assert_eq!(
            read_with("SELECT v FROM t WHERE k IN ?", &[("in(k)", option)]),
            Some(Err(Whole::Type)),
            "{option:?}"
        );
    }
}
