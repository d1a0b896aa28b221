//! Values of the language: the first byte picks a type, the rest is a value of it, a key component
//! of it, or a text.

use std::cmp::Ordering;

use shunt_language::CqlType;
use shunt_language::ast::NativeType;
use shunt_language::values::{
    compare, from_string, json, literal, normal, ordered, plain_text, validate,
};

/// Types of the inputs; the corpus depends on their positions, so new ones come last.
pub const TYPES: [&str; 32] = [
    "ascii",
    "bigint",
    "blob",
    "boolean",
    "counter",
    "date",
    "decimal",
    "double",
    "duration",
    "float",
    "inet",
    "int",
    "smallint",
    "text",
    "time",
    "timestamp",
    "timeuuid",
    "tinyint",
    "uuid",
    "varint",
    "list<decimal>",
    "set<varint>",
    "map<text, int>",
    "map<decimal, frozen<list<double>>>",
    "tuple<int, text, boolean>",
    "tuple<frozen<list<decimal>>, duration>",
    "vector<float, 3>",
    "vector<text, 2>",
    "frozen<set<frozen<tuple<uuid, timeuuid>>>>",
    "frozen<map<frozen<set<inet>>, frozen<map<date, time>>>>",
    "vector<decimal, 2>",
    "'org.example.Opaque'",
];

/// Most memory per byte of a value: it grows in decimal digits, and JSON may escape each of them.
const BYTES_EACH_MAX: usize = 400;
/// The instant in milliseconds for relative texts.
const NOW_MS: i64 = 1_790_000_000_000;

/// The first millisecond of the year 1.
const YEAR_1_MS: i64 = -62_135_596_800_000;

/// Tries one input.
pub fn run(data: &[u8]) {
    let Some((which, bytes)) = data.split_first() else { return };
    let cql_type = CqlType::parse(TYPES[usize::from(*which) % TYPES.len()], &()).expect("a type");
    component(&cql_type, bytes);
    texts(&cql_type, bytes);
    let valid = crate::bounded(BYTES_EACH_MAX, bytes.len(), || {
        let shown = literal(&cql_type, bytes);
        assert!(shown.len() <= bytes.len() * 20 + 100);
        validate(&cql_type, bytes).is_ok()
    });
    if valid {
        value(&cql_type, bytes);
    }
}

/// A valid value equals itself, also through its key component and its normal form.
fn value(cql_type: &CqlType, bytes: &[u8]) {
    assert_eq!(compare(cql_type, bytes, bytes), Ordering::Equal);
    let kept = normal(cql_type, bytes.to_vec());
    assert!(validate(cql_type, &kept).is_ok());
    assert_eq!(normal(cql_type, kept.clone()), kept, "the normal form of a normal form");
    if let Some(text) = json::to_json(cql_type, Some(bytes)) {
        let read = json::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        if let Ok(Some(again)) = json::from_json(cql_type, &read, NOW_MS) {
            assert!(has_empty(&text) || validate(cql_type, &again).is_ok(), "{text}");
        }
    }
    for descending in [false, true] {
        let mut key = b"before".to_vec();
        if ordered::encode(cql_type, descending, bytes, &mut key).is_err() {
            assert_eq!(key, b"before");
            continue;
        }
        let length = key.len();
        key.extend_from_slice(b"behind");
        let (mut rest, mut decoded) = (&key[6..], Vec::new());
        ordered::decode(cql_type, descending, &mut rest, &mut decoded).expect("our own component");
        assert_eq!(rest, b"behind");
        assert_eq!(compare(cql_type, bytes, &decoded), Ordering::Equal);
        let mut again = b"before".to_vec();
        ordered::encode(cql_type, descending, &decoded, &mut again)
            .expect("a value that was decoded");
        assert_eq!(again, key[..length]);
    }
}

/// Arbitrary bytes as a key component: decoding fails, or the result can be encoded again.
fn component(cql_type: &CqlType, bytes: &[u8]) {
    for descending in [false, true] {
        let (mut rest, mut out) = (bytes, b"before".to_vec());
        let read = ordered::decode(cql_type, descending, &mut rest, &mut out);
        if read.is_none() {
            assert!(out == b"before" && rest == bytes);
            continue;
        }
        assert!(bytes.ends_with(rest) && rest.len() < bytes.len());
        let decoded = &out[6..];
        let mut again = Vec::new();
        if validate(cql_type, decoded).is_ok() {
            ordered::encode(cql_type, descending, decoded, &mut again).expect("a valid value");
            let mut read = Vec::new();
            ordered::decode(cql_type, descending, &mut &again[..], &mut read)
                .expect("our own component");
            assert_eq!(compare(cql_type, decoded, &read), Ordering::Equal);
        }
    }
}

/// The bytes as text: a parsed value is valid, and its own text parses to it again.
fn texts(cql_type: &CqlType, bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(json) = json::parse(text)
        && let Ok(Some(value)) = json::from_json(cql_type, &json, NOW_MS)
    {
        assert!(has_empty(text) || validate(cql_type, &value).is_ok());
    }
    let CqlType::Native(native) = cql_type else { return };
    let Ok(value) = from_string(*native, text, NOW_MS) else { return };
    assert!(value.is_empty() || validate(cql_type, &value).is_ok());
    let shown = plain_text(*native, &value).expect("a value of the type");
    // As in Cassandra: digits of a blob print with a prefix, an empty duration has no text, a year
    // of more than four digits has a sign that the parser refuses, and a year before Christ has
    // none.
    let one_way = match native {
        NativeType::Blob => true,
        NativeType::Duration => shown.is_empty(),
        NativeType::Timestamp | NativeType::Date => {
            shown.starts_with(['+', '-']) || is_before_year_1(&value)
        }
        _ => false,
    };
    if !one_way {
        let again =
            from_string(*native, &shown, NOW_MS).unwrap_or_else(|error| panic!("{shown}: {error}"));
        assert_eq!(compare(cql_type, &again, &value), Ordering::Equal, "printed as {shown}");
    }
}

/// True if JSON may have an empty string: as in Cassandra, that is the empty value of types without
/// one otherwise.
fn has_empty(json: &str) -> bool {
    json.contains("\"\"") || json.contains("\\\"\\\"")
}

/// True for a timestamp before the year 1, whose date has a sign.
fn is_before_year_1(value: &[u8]) -> bool {
    value.try_into().is_ok_and(|bytes| i64::from_be_bytes(bytes) < YEAR_1_MS)
}
