//! Functions on values: each case is a function, its arguments as literals, and its result.

use super::{Aggregate, AggregateKind, Argument, Environment, Function, resolve};
use crate::ast::NativeType;
use crate::types::CqlType;
use crate::types::tests::Types;
use crate::values::{from_string, literal};

struct Fixed;

impl Environment for Fixed {
    fn now_ms(&self) -> i64 {
        1_577_880_000_123
    }

    fn timeuuid(&self) -> [u8; 16] {
        [0x11; 16]
    }

    fn random(&self) -> u128 {
        u128::MAX
    }

    fn token(&self, key: &[u8]) -> i64 {
        key.iter().map(|byte| i64::from(*byte)).sum()
    }
}

fn value(name: &str, text: &str) -> Vec<u8> {
    from_string(NativeType::by_name(name).expect(name), text, 0).expect(text)
}

/// Calls a function with arguments `type:text`.
fn call(name: &str, arguments: &[&str]) -> Result<String, String> {
    let split: Vec<_> =
        arguments.iter().map(|argument| argument.split_once(':').expect("a type")).collect();
    let types: Vec<CqlType> =
        split.iter().map(|(name, _)| CqlType::parse(name, &()).expect(name)).collect();
    let known: Vec<&dyn Argument> =
        types.iter().map(|cql_type| cql_type as &dyn Argument).collect();
    let function = resolve(name, &known, None, Some(&types)).map_err(|error| error.message)?;
    evaluate(&function, &split)
}

fn evaluate(function: &Function, arguments: &[(&str, &str)]) -> Result<String, String> {
    let values: Vec<_> =
        arguments.iter().map(|(name, text)| (*text != "null").then(|| value(name, text))).collect();
    let values: Vec<_> = values.iter().map(Option::as_deref).collect();
    let result = function.evaluate(&values, &Fixed).map_err(|error| error.message)?;
    Ok(result.map_or_else(|| "null".to_owned(), |bytes| literal(&function.returns, &bytes)))
}

#[test]
fn results() {
    let cases: &[(&str, &[&str], &str)] = &[
        ("_+", &["int:1", "int:2"], "3"),
        ("_+", &["int:2147483647", "int:1"], "-2147483648"),
        ("_+", &["tinyint:127", "tinyint:1"], "-128"),
        ("_+", &["int:1", "bigint:2"], "3"),
        ("_+", &["int:1", "float:2.5"], "3.5"),
        ("_*", &["varint:99999999999999999999", "int:10"], "999999999999999999990"),
        ("_/", &["int:-7", "int:2"], "-3"),
        ("_%", &["int:-7", "int:2"], "-1"),
        ("_/", &["double:1", "double:0"], "Infinity"),
        ("_+", &["decimal:1.50", "decimal:0.5"], "2.00"),
        ("_*", &["decimal:1.5", "decimal:1.5"], "2.25"),
        ("_/", &["decimal:1", "decimal:8"], "0.125"),
        ("_%", &["decimal:7.5", "decimal:2"], "1.5"),
        ("_+", &["decimal:1", "double:0.1"], "1.1"),
        ("_+", &["text:a", "text:b"], "'ab'"),
        ("_+", &["ascii:a", "text:é"], "'aé'"),
        ("_+", &["int:1", "int:null"], "null"),
        ("_-", &["timestamp:2020-03-31", "duration:1mo"], "'2020-02-29T00:00:00.000Z'"),
        ("_+", &["date:2019-12-31", "duration:1d"], "'2020-01-01'"),
        ("_negate", &["int:5"], "-5"),
        ("abs", &["decimal:-1.50"], "1.50"),
        ("abs", &["int:-5"], "5"),
        ("round", &["double:-1.5"], "-1.0"),
        ("round", &["decimal:-1.5"], "-2"),
        ("round", &["decimal:-12E+3"], "-12000"),
        ("round", &["decimal:0E+30000"], "0"),
        ("round", &["double:2.5"], "3.0"),
        ("exp", &["int:1"], "2"),
        ("log10", &["double:1000"], "3.0"),
        ("log", &["double:1"], "0.0"),
        ("current_timestamp", &[], "'2020-01-01T12:00:00.123Z'"),
        ("currentdate", &[], "'2020-01-01'"),
        ("current_time", &[], "'12:00:00.123000000'"),
        ("now", &[], "11111111-1111-1111-1111-111111111111"),
        ("uuid", &[], "ffffffff-ffff-4fff-bfff-ffffffffffff"),
        ("to_date", &["timestamp:2020-01-01 23:59:59Z"], "'2020-01-01'"),
        ("to_timestamp", &["date:2020-01-01"], "'2020-01-01T00:00:00.000Z'"),
        ("tounixtimestamp", &["date:1970-01-02"], "86400000"),
        (
            "to_timestamp",
            &["timeuuid:13814000-1dd2-11b2-8080-808080808080"],
            "'1970-01-01T00:00:00.000Z'",
        ),
        ("min_timeuuid", &["timestamp:0"], "13814000-1dd2-11b2-8080-808080808080"),
        ("maxtimeuuid", &["timestamp:0"], "1381670f-1dd2-11b2-7f7f-7f7f7f7f7f7f"),
        ("int_as_blob", &["int:1"], "0x00000001"),
        ("blobastext", &["blob:61"], "'a'"),
        ("token", &["int:7"], "7"),
        ("to_json", &["text:a\"b"], "'\"a\\\"b\"'"),
        ("to_json", &["int:null"], "'null'"),
        ("mask_null", &["int:7"], "null"),
        ("mask_default", &["text:secret"], "'****'"),
        ("mask_default", &["int:null"], "0"),
        ("mask_default", &["date:2020-01-01"], "'1970-01-01'"),
        ("mask_default", &["inet:10.1.2.3"], "'0.0.0.0'"),
        ("mask_replace", &["int:7", "int:8"], "8"),
        ("mask_inner", &["text:secret", "int:1", "int:2"], "'s***et'"),
        ("mask_inner", &["text:secret", "int:1", "int:null", "text:#"], "'s#####'"),
        ("mask_outer", &["ascii:secret", "int:1", "int:2"], "'*ecr**'"),
        ("mask_outer", &["text:null", "int:1", "int:2"], "null"),
        (
            "floor",
            &["timestamp:2020-03-05 10:11:12.5Z", "duration:1h"],
            "'2020-03-05T10:00:00.000Z'",
        ),
        (
            "floor",
            &["timestamp:2020-03-05 10:11:12.5Z", "duration:2mo"],
            "'2020-03-01T00:00:00.000Z'",
        ),
        (
            "floor",
            &["timestamp:2020-03-05 10:11Z", "duration:1mo10d"],
            "'2020-02-25T00:00:00.000Z'",
        ),
        (
            "floor",
            &["timestamp:1970-01-05", "duration:3d", "timestamp:1970-01-02"],
            "'1970-01-05T00:00:00.000Z'",
        ),
        ("floor", &["date:2020-03-05", "duration:1y"], "'2020-01-01'"),
        ("floor", &["time:10:11:12", "duration:30m"], "'10:00:00.000000000'"),
        (
            "floor",
            &["timeuuid:e23f1e00-5d1c-11ee-8c99-0242ac120002", "duration:1d"],
            "'2023-09-27T00:00:00.000Z'",
        ),
    ];
    for (name, arguments, expected) in cases {
        assert_eq!(call(name, arguments).as_deref(), Ok(*expected), "{name} {arguments:?}");
    }
}

#[test]
fn calls_without_a_result() {
    let cases: &[(&str, &[&str], &str)] = &[
        ("_/", &["int:1", "int:0"], "the operation 'int / int' failed: / by zero"),
        (
            "_/",
            &["decimal:1", "decimal:0"],
            "the operation 'decimal / decimal' failed: BigInteger divide by zero",
        ),
        (
            "blob_as_int",
            &["blob:01"],
            "In call to function system.blob_as_int, value 0x01 is not a valid binary representation for type int",
        ),
        ("nothing", &[], "Unknown function nothing called"),
        (
            "to_date",
            &["int:1"],
            "Invalid call to function to_date, none of its type signatures match (known type signatures: \
             system.to_date(timeuuid) -> date, system.to_date(timestamp) -> date)",
        ),
        (
            "floor",
            &["timestamp:-1", "duration:1h"],
            "The floor function starting time is greater than the provided time",
        ),
        (
            "floor",
            &["date:2020-01-01", "duration:1h"],
            "The floor on date values cannot be computed for the 1h duration as precision is below 1 day",
        ),
        (
            "mask_inner",
            &["text:a", "int:1", "int:1", "text:ab"],
            "The padding argument of a masking function should be single-character, but 'ab' has 2 characters.",
        ),
        ("round", &["decimal:1E+30000"], "the decimal 1E+30000 has too many digits to be rounded"),
        ("_-", &["text:a", "text:b"], "the '-' operation is not supported between text and text"),
        ("_+", &["int:1", "text:a"], "the '+' operation is not supported between int and text"),
    ];
    for (name, arguments, message) in cases {
        assert_eq!(call(name, arguments), Err((*message).to_owned()), "{name} {arguments:?}");
    }
}

#[test]
fn casts() {
    let cases = [
        ("double", "1e20", NativeType::Int, "2147483647"),
        ("double", "1e20", NativeType::Tinyint, "-1"),
        ("int", "300", NativeType::Tinyint, "44"),
        ("float", "1.1", NativeType::Decimal, "1.1"),
        ("double", "Infinity", NativeType::Varint, "9223372036854775807"),
        ("double", "-2.9", NativeType::Varint, "-2"),
        ("decimal", "12.9", NativeType::Int, "12"),
        ("decimal", "-99999999999999999999.5", NativeType::Varint, "-7766279631452241919"),
        ("decimal", "1E+30000", NativeType::Varint, "0"),
        ("varint", "18446744073709551617", NativeType::Bigint, "1"),
        ("int", "5", NativeType::Text, "'5'"),
        ("boolean", "true", NativeType::Text, "'true'"),
        ("timestamp", "0", NativeType::Date, "'1970-01-01'"),
        ("timestamp", "0", NativeType::Text, "'1970-01-01T00:00:00.000Z'"),
        ("date", "1970-01-02", NativeType::Timestamp, "'1970-01-02T00:00:00.000Z'"),
        ("ascii", "a", NativeType::Text, "'a'"),
    ];
    for (from, text, to, expected) in cases {
        let function = Function::cast(&CqlType::parse(from, &()).expect(from), to).expect(from);
        assert_eq!(
            evaluate(&function, &[(from, text)]).as_deref(),
            Ok(expected),
            "{from} {text} as {to}"
        );
    }
    for (from, expected) in [("inet", None), ("ascii", Some(&b""[..]))] {
        let function =
            Function::cast(&CqlType::parse(from, &()).expect(from), NativeType::Text).expect(from);
        let found = function.evaluate(&[Some(&[][..])], &Fixed).expect(from);
        assert_eq!(found.as_deref(), expected, "an empty {from}");
    }
    assert!(Function::cast(&NativeType::Blob.into(), NativeType::Text).is_err());
    assert!(Function::cast(&NativeType::Text.into(), NativeType::Int).is_err());
}

#[test]
fn functions_of_collections() {
    let map = CqlType::parse("frozen<map<text, int>>", &Types).expect("a map");
    let bytes = crate::values::split::join_collection(1, [&b"a"[..], &5i32.to_be_bytes()]);
    let apply = |name: &str, cql_type: &CqlType, bytes: &[u8]| {
        let function = resolve(name, &[cql_type], None, None).expect(name);
        let result = function.evaluate(&[Some(bytes)], &Fixed).expect(name).expect("a value");
        format!("{} {}", function.returns, literal(&function.returns, &result))
    };
    assert_eq!(apply("map_keys", &map, &bytes), "set<text> {'a'}");
    assert_eq!(apply("map_values", &map, &bytes), "list<int> [5]");
    assert_eq!(apply("collection_count", &map, &bytes), "int 1");
    let list = CqlType::parse("list<int>", &Types).expect("a list");
    let bytes = crate::values::split::join_collection(3, [3i32, 1, 4].map(i32::to_be_bytes));
    assert_eq!(apply("collection_min", &list, &bytes), "int 1");
    assert_eq!(apply("collection_max", &list, &bytes), "int 4");
    assert_eq!(apply("collection_sum", &list, &bytes), "int 8");
    assert_eq!(apply("collection_avg", &list, &bytes), "int 2");
    assert!(resolve("map_keys", &[&list], None, None).is_err());
}

#[test]
fn aggregates() {
    let cases: &[(AggregateKind, &str, &[&str], &str)] = &[
        (AggregateKind::Count, "int", &["1", "null", "2"], "2"),
        (AggregateKind::Min, "int", &["3", "-1", "null"], "-1"),
        (AggregateKind::Max, "text", &["b", "a"], "'b'"),
        (AggregateKind::Min, "int", &[], "null"),
        (AggregateKind::Sum, "int", &["2147483647", "1"], "-2147483648"),
        (AggregateKind::Sum, "int", &[], "0"),
        (AggregateKind::Average, "int", &["2147483647", "2147483647"], "2147483647"),
        (AggregateKind::Average, "int", &["1", "2"], "1"),
        (AggregateKind::Average, "tinyint", &[], "0"),
        (AggregateKind::Average, "double", &["1", "2"], "1.5"),
        (AggregateKind::Average, "decimal", &["1.0", "2.1", "null"], "1.6"),
        (AggregateKind::Average, "varint", &["-7", "2"], "-2"),
        (AggregateKind::Sum, "decimal", &["1.50", "2"], "3.50"),
        (AggregateKind::Sum, "float", &["0.5", "0.25"], "0.75"),
        (AggregateKind::Sum, "counter", &["5", "6"], "11"),
        (
            AggregateKind::Average,
            "double",
            &["1.7976931348623157E308", "1.7976931348623157E308"],
            "1.7976931348623157E308",
        ),
        (
            AggregateKind::Average,
            "double",
            &["1.7E308", "null", "1.7E308", "-1.7E308", "1"],
            "4.25E307",
        ),
        (AggregateKind::Average, "double", &["1E308", "1E308", "Infinity"], "Infinity"),
    ];
    for (kind, cql_type, rows, expected) in cases {
        let argument = CqlType::parse(cql_type, &()).expect(cql_type);
        let aggregate = Aggregate::new(*kind, argument).expect(cql_type);
        let mut state = aggregate.start();
        for row in *rows {
            let row = (*row != "null").then(|| value(cql_type, row));
            state.add(row.as_deref()).expect("a number");
        }
        let result = state
            .finish()
            .map_or_else(|| "null".to_owned(), |bytes| literal(&aggregate.returns(), &bytes));
        assert_eq!(result, *expected, "{kind:?} {cql_type} {rows:?}");
    }
}

#[test]
fn aggregates_have_types() {
    assert!(Aggregate::new(AggregateKind::Sum, NativeType::Text.into()).is_err());
    let rows = Aggregate::new(AggregateKind::CountRows, NativeType::Int.into()).expect("any type");
    assert_eq!(rows.returns(), NativeType::Bigint.into());
    let mut state = rows.start();
    state.add(None).expect("a row");
    assert_eq!(state.finish(), Some(1i64.to_be_bytes().to_vec()));
}

#[test]
fn similarities() {
    let vector = CqlType::parse("vector<float, 2>", &Types).expect("a vector");
    let bytes = |numbers: [f32; 2]| numbers.map(f32::to_be_bytes).concat();
    let similarity = |name: &str, one: [f32; 2], other: [f32; 2]| {
        let function = resolve(name, &[&vector, &vector], None, None).expect(name);
        let result = function.evaluate(&[Some(&bytes(one)), Some(&bytes(other))], &Fixed);
        result
            .map(|bytes| literal(&function.returns, &bytes.expect("a value")))
            .map_err(|error| error.message)
    };
    let result = |text: &str| Ok(text.to_owned());
    assert_eq!(similarity("similarity_cosine", [1.0, 0.0], [0.0, 1.0]), result("0.5"));
    assert_eq!(
        similarity("similarity_cosine", [12_345_679.0, -0.5], [-3.375, 1.0]),
        result("0.020600915")
    );
    assert_eq!(similarity("similarity_euclidean", [1.0, 0.0], [1.0, 2.0]), result("0.2"));
    assert_eq!(similarity("similarity_dot_product", [1.0, 2.0], [3.0, 0.0]), result("2.0"));
    assert!(similarity("similarity_cosine", [0.0, 0.0], [0.0, 1.0]).is_err());
    assert!(resolve("similarity_cosine", &[&vector], None, None).is_err());
}

#[test]
fn an_operation_that_fails_says_which_it_is() {
    let int = CqlType::from(NativeType::Int);
    let function = resolve("_%", &[&int, &int], None, None).expect("a remainder");
    let (one, zero) = (value("int", "1"), value("int", "0"));
    let error = function.evaluate(&[Some(&one), Some(&zero)], &Fixed).expect_err("no remainder");
    let failed = error.function.expect("a function");
    assert_eq!(
        (failed.name.as_str(), &failed.arguments[..]),
        ("_modulo", &["int".to_owned(), "int".to_owned()][..])
    );
}
