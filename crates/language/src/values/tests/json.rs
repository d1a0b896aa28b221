//! JSON out and in, compared with Cassandra 5.0.

use super::{cql_type, hex};
use crate::values::json::{Json, from_json, from_json_row, parse, to_json};

/// Type, bytes of a value and its JSON.
const WRITTEN: &[(&str, &str, &str)] = &[
    ("double", "3ff0000000000000", "1.0"),
    ("float", "3f800000", "1.0"),
    ("double", "4059000000000000", "100.0"),
    ("float", "42c80000", "100.0"),
    ("double", "416312d000000000", "1.0E7"),
    ("float", "4b189680", "1.0E7"),
    ("double", "41678c29dccccccd", "1.23456789E7"),
    ("float", "4b3c614f", "1.2345679E7"),
    ("double", "3f50624dd2f1a9fc", "0.001"),
    ("float", "3a83126f", "0.001"),
    ("double", "3f1a36e2eb1c432d", "1.0E-4"),
    ("float", "38d1b717", "1.0E-4"),
    ("double", "3ee4f8b588e368f1", "1.0E-5"),
    ("float", "3727c5ac", "1.0E-5"),
    ("double", "7e41eb2d66005835", "1.5E300"),
    ("float", "7f800000", "null"),
    ("double", "7ff8000000000000", "null"),
    ("float", "7fc00000", "null"),
    ("double", "7ff0000000000000", "null"),
    ("double", "8000000000000000", "-0.0"),
    ("float", "80000000", "-0.0"),
    ("double", "47efffffe54daff8", "3.4028235E38"),
    ("float", "7f7fffff", "3.4028235E38"),
    ("double", "423cbe991a140000", "1.23456789012E11"),
    ("double", "3fb999999999999a", "0.1"),
    ("float", "3dcccccd", "0.1"),
    ("double", "444b1ae4d6e2ef50", "1.0E21"),
    ("float", "6258d727", "1.0E21"),
    ("decimal", "000000010a", "1.0"),
    ("decimal", "fffffff901", "1E+7"),
    ("decimal", "0000000a01", "1E-10"),
    ("decimal", "0000000300", "0.000"),
    ("decimal", "000000037b", "0.123"),
    ("decimal", "00000000fb", "-5"),
    ("decimal", "fffffffd01", "1E+3"),
    ("decimal", "fffffffb00", "0E+5"),
    ("decimal", "0000000701", "1E-7"),
    ("decimal", "000000080a", "1.0E-7"),
    ("decimal", "0000000300bc614e", "12345.678"),
    ("ascii", "", "\"\""),
    ("bigint", "", "\"\""),
    ("blob", "", "\"0x\""),
    ("decimal", "", "\"\""),
    ("double", "", "\"\""),
    ("float", "", "\"\""),
    ("inet", "", "\"\""),
    ("int", "", "\"\""),
    ("text", "", "\"\""),
    ("timestamp", "", "\"\""),
    ("timeuuid", "", "\"\""),
    ("uuid", "", "\"\""),
    ("varint", "", "\"\""),
    ("frozen<ty>", "", "{\"a\": null, \"\\\"Bc\\\"\": null}"),
    ("ascii", "6162275c22", "\"ab'\\\\\\\"\""),
    ("blob", "00ff", "\"0x00ff\""),
    ("boolean", "01", "true"),
    ("date", "80000001", "\"1970-01-02\""),
    ("date", "00000000", "\"-5877641-06-23\""),
    ("time", "0000000000000001", "\"00:00:00.000000001\""),
    ("time", "00002d79883d2000", "\"13:53:20.000000000\""),
    ("timestamp", "0000000000000001", "\"1970-01-01 00:00:00.001Z\""),
    ("timestamp", "ffffffffffffff01", "\"1969-12-31 23:59:59.745Z\""),
    ("timestamp", "8000000000000000", "\"+292275056-05-16 16:47:04.192Z\""),
    ("timestamp", "0000016000000000", "\"2017-11-28 00:21:28.192Z\""),
    ("uuid", "01020304050607080102030405060708", "\"01020304-0506-0708-0102-030405060708\""),
    ("inet", "7f000001", "\"127.0.0.1\""),
    ("inet", "00000000000000000000000000000001", "\"0:0:0:0:0:0:0:1\""),
    ("inet", "20010db8000000000000000000000001", "\"2001:db8:0:0:0:0:0:1\""),
    ("duration", "020406", "\"1mo2d3ns\""),
    ("duration", "000000", "\"\""),
    ("duration", "010305", "\"-1mo2d3ns\""),
    ("varint", "0100000000000000000000", "1208925819614629174706176"),
    ("text", "e282ac0a0922f09f9880", "\"€\\n\\t\\\"😀\""),
    ("tuple<int, text>", "00000004000000050000000161", "[5, \"a\"]"),
    ("tuple<int, text>", "0000000400000005ffffffff", "[5, null]"),
    ("frozen<ty>", "00000004000000050000000161", "{\"a\": 5, \"\\\"Bc\\\"\": \"a\"}"),
    ("frozen<ty>", "0000000400000005", "{\"a\": 5, \"\\\"Bc\\\"\": null}"),
    ("frozen<list<int>>", "00000001000000040000000a", "[10]"),
    ("frozen<map<text, int>>", "000000010000000161000000040000000a", "{\"a\": 10}"),
    ("frozen<set<text>>", "000000010000000161", "[\"a\"]"),
    ("vector<float, 2>", "3f80000040000000", "[1.0, 2.0]"),
    ("vector<text, 2>", "01610162", "[\"a\", \"b\"]"),
    ("bigint", "7fffffffffffffff", "9223372036854775807"),
    ("counter", "0000000000000005", "5"),
    ("tinyint", "ff", "-1"),
    ("smallint", "ffff", "-1"),
    ("int", "ffffffff", "-1"),
];

#[test]
fn values_become_json() {
    for (name, bytes, json) in WRITTEN {
        assert_eq!(
            to_json(&cql_type(name), Some(&hex(bytes))).as_deref(),
            Some(*json),
            "{name} {bytes}"
        );
    }
    assert_eq!(to_json(&cql_type("int"), None).as_deref(), Some("null"));
}

#[test]
fn json_becomes_values() {
    let cases = [
        ("int", "1", "00000001"),
        ("int", "\"1\"", "00000001"),
        ("bigint", "3000000000", "00000000b2d05e00"),
        ("tinyint", "-1", "ff"),
        ("varint", "123456789012345678901234567890", "018ee90ff6c373e0ee4e3f0ad2"),
        ("decimal", "\"1.50\"", "000000020096"),
        ("decimal", "1.50", "000000010f"),
        ("decimal", "7", "0000000007"),
        ("double", "1", "3ff0000000000000"),
        ("float", "1.5", "3fc00000"),
        ("boolean", "true", "01"),
        ("boolean", "\"false\"", "00"),
        ("blob", "\"0xff\"", "ff"),
        ("timestamp", "3000000000", "00000000b2d05e00"),
        ("timestamp", "\"2020-01-01\"", "0000016f5e66e800"),
        ("date", "\"2020-01-01\"", "80004756"),
        ("duration", "\"1h\"", "0000fc068c61714000"),
        ("inet", "\"::1\"", "00000000000000000000000000000001"),
        ("text", "\"\\u20ac\\ud83d\\ude00\\n\"", "e282acf09f98800a"),
        ("frozen<list<int>>", "[1, 2]", "0000000200000004000000010000000400000002"),
        ("frozen<list<int>>", "\"[1, 2]\"", "0000000200000004000000010000000400000002"),
        ("frozen<set<text>>", "[\"b\", \"a\", \"b\"]", "0000000200000001610000000162"),
        ("frozen<map<text, int>>", "{\"a\": 1}", "0000000100000001610000000400000001"),
        (
            "frozen<map<int, int>>",
            "{\"2\": 1, \"1\": 5, \"2\": 3}",
            "0000000200000004000000010000000400000005000000040000000200000004",
        ),
        ("tuple<int, text>", "[1, null]", "0000000400000001ffffffff"),
        ("frozen<ty>", "{\"A\": 1}", "0000000400000001ffffffff"),
        ("frozen<ty>", "{\"\\\"Bc\\\"\": \"x\"}", "ffffffff0000000178"),
        ("vector<float, 2>", "[1, 2]", "3f80000040000000"),
    ];
    for (name, json, bytes) in cases {
        let parsed = parse(json).expect(json);
        let found = from_json(&cql_type(name), &parsed, 0);
        let wanted =
            if json.starts_with("{\"2\"") { format!("{bytes}00000003") } else { bytes.to_owned() };
        assert_eq!(found, Ok(Some(hex(&wanted))), "{name} {json}");
    }
    assert_eq!(from_json(&cql_type("int"), &Json::Null, 0), Ok(None));
}

#[test]
fn json_of_the_wrong_type_is_refused_as_by_cassandra() {
    let cases = [
        ("text", "1", "Expected a UTF-8 string, but got a Integer: 1"),
        ("int", "3000000000", "Expected an int value, but got a Long: 3000000000"),
        ("int", "1.5", "Expected an int value, but got a Double: 1.5"),
        ("int", "true", "Expected an int value, but got a Boolean: true"),
        ("int", "\"abc\"", "Unable to make int from 'abc'"),
        ("tinyint", "300", "Unable to make byte from '300'"),
        ("varint", "1.5", "Value '1.5' is not a valid representation of a varint value"),
        ("decimal", "\"abc\"", "Value 'abc' is not a valid representation of a decimal value"),
        (
            "timestamp",
            "1.5",
            "Expected a long or a datestring representation of a timestamp value, but got a Double: 1.5",
        ),
        ("uuid", "1", "Expected a string representation of a uuid, but got a Integer: 1"),
        ("date", "\"abc\"", "Unable to coerce 'abc' to a formatted date (long)"),
        ("frozen<list<int>>", "1", "Expected a list, but got a Integer: 1"),
        ("frozen<set<text>>", "1", "Expected a list (representing a set), but got a Integer: 1"),
        ("frozen<map<text, int>>", "1", "Expected a map, but got a Integer: 1"),
        (
            "tuple<int, text>",
            "1",
            "Expected a list representation of a tuple, but got a Integer: 1",
        ),
    ];
    for (name, json, message) in cases {
        let parsed = parse(json).expect(json);
        assert_eq!(
            from_json(&cql_type(name), &parsed, 0).expect_err(json).message,
            message,
            "{name} {json}"
        );
    }
}

#[test]
fn text_that_is_no_json() {
    for text in
        ["", "{", "[1,]", "{\"a\"}", "01", "1.", "nul", "\"a", "\"\\x\"", "1 2", "{a: 1}", "\"\n\""]
    {
        assert!(parse(text).is_err(), "{text}");
    }
    assert!(parse(&"[".repeat(1000)).is_err());
}

#[test]
fn rows_have_names_with_or_without_quotes() {
    let row = from_json_row("{\"A\": 1, \"\\\"B\\\"\": null}").expect("a row");
    assert_eq!(row, [("a".to_owned(), Json::Number("1".to_owned())), ("B".to_owned(), Json::Null)]);
    assert!(from_json_row("[1]").is_err() && from_json_row("null").is_err());
}

proptest::proptest! {
    #[test]
    fn any_text(text in "[\\[\\]{}:,\"\\\\u0-9a-f.eE+ -]{0,40}") {
        let _ = parse(&text);
    }
}
