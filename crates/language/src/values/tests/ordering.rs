//! The order of values, and its preservation by encoding.

use std::cmp::Ordering;

use num_bigint::BigInt;
use proptest::prelude::*;

use super::{cql_type, hex};
use crate::ast::NativeType;
use crate::types::CqlType;
use crate::values::{Decimal, Duration, compare, encode_varint, ordered, split, validate};

#[test]
fn order_as_cassandra_has_it() {
    let cases = [
        ("int", "", "01020304", Ordering::Less),
        ("int", "ffffffff", "00000000", Ordering::Less),
        ("text", "", "61", Ordering::Less),
        ("text", "6100", "61", Ordering::Greater),
        ("double", "7ff8000000000000", "fff8000000000000", Ordering::Equal),
        ("double", "7ff0000000000000", "fff8000000000000", Ordering::Less),
        ("double", "8000000000000000", "0000000000000000", Ordering::Less),
        ("decimal", "000000010a", "0000000264", Ordering::Equal),
        ("decimal", "00000001f6", "0000000000", Ordering::Less),
        ("varint", "0080", "7f", Ordering::Greater),
        ("varint", "ff7f", "80", Ordering::Less),
        ("boolean", "00", "07", Ordering::Less),
        ("date", "80000000", "7fffffff", Ordering::Greater),
        ("inet", "7f000001", "00000000000000000000000000000001", Ordering::Greater),
        // By version, then by time.
        (
            "uuid",
            "00000000000040008000000000000000",
            "ffffffffffff1fff8000000000000000",
            Ordering::Greater,
        ),
        (
            "timeuuid",
            "ffffffff000010008000000000000000",
            "00000000000110008000000000000000",
            Ordering::Less,
        ),
        // The last eight bytes are signed.
        (
            "timeuuid",
            "00000000000010008000000000000000",
            "00000000000010000000000000000000",
            Ordering::Less,
        ),
        ("frozen<list<int>>", "0000000100000004ffffffff", "00000000", Ordering::Greater),
        ("tuple<int, text>", "", "ffffffff", Ordering::Less),
        ("tuple<int, text>", "ffffffff", "ffffffffffffffff", Ordering::Equal),
        ("tuple<int, text>", "0000000400000001", "000000040000000100000000", Ordering::Less),
        ("tuple<int, text>", "ffffffff0000000161", "0000000400000001", Ordering::Less),
    ];
    for (name, left, right, expected) in cases {
        let (cql_type, left, right) = (cql_type(name), hex(left), hex(right));
        assert_eq!(compare(&cql_type, &left, &right), expected, "{name}");
        assert_eq!(compare(&cql_type, &right, &left), expected.reverse(), "{name}");
        check_encoding(&cql_type, &left, &right);
    }
}

/// Checks that two encoded values sort as they compare, and decode to equal values.
fn check_encoding(cql_type: &CqlType, left: &[u8], right: &[u8]) {
    let expected = compare(cql_type, left, right);
    for descending in [false, true] {
        let encode = |value: &[u8]| {
            let mut out = Vec::new();
            ordered::encode(cql_type, descending, value, &mut out).expect("a valid value");
            out
        };
        let (left_encoded, right_encoded) = (encode(left), encode(right));
        let wanted = if descending { expected.reverse() } else { expected };
        let names = format!("{cql_type} {left:?} {right:?} {left_encoded:?} {right_encoded:?}");
        assert_eq!(left_encoded.cmp(&right_encoded), wanted, "{names}");
        assert!(!matches!(left_encoded.first(), None | Some(0x00 | 0xFF)), "{names}");
        // Also with appended bytes, where neither may be a prefix of the other.
        if expected.is_ne() {
            let longer = |encoded: &[u8], tail: u8| [encoded, &[tail]].concat();
            assert_eq!(
                longer(&left_encoded, 0xFF).cmp(&longer(&right_encoded, 0x00)),
                wanted,
                "{names}"
            );
        }
        let mut decoded = Vec::new();
        let mut input = &left_encoded[..];
        ordered::decode(cql_type, descending, &mut input, &mut decoded).expect("what was encoded");
        assert!(input.is_empty(), "{names}");
        assert_eq!(validate(cql_type, &decoded), Ok(()), "{names}");
        assert_eq!(compare(cql_type, &decoded, left), Ordering::Equal, "{names}");
    }
}

/// Any valid value of a type, including empty ones.
fn value(cql_type: &CqlType) -> BoxedStrategy<Vec<u8>> {
    let full = match cql_type {
        CqlType::Native(native) => native_value(*native),
        CqlType::List { element, .. } | CqlType::Set { element, .. } => {
            let elements = prop::collection::vec(value(element), 0..4);
            elements.prop_map(|elements| split::join_collection(elements.len(), elements)).boxed()
        }
        CqlType::Map { key, value: of, .. } => prop::collection::vec((value(key), value(of)), 0..3)
            .prop_map(|entries| {
                split::join_collection(
                    entries.len(),
                    entries.into_iter().flat_map(|(key, value)| [key, value]),
                )
            })
            .boxed(),
        CqlType::Tuple(types) => tuple(types.iter()),
        CqlType::Udt { definition, .. } => tuple(definition.fields.iter().map(|(_, field)| field)),
        CqlType::Vector { element, dimension } => {
            let element = element.clone();
            let count = usize::try_from(*dimension).expect("a small dimension");
            // Elements of fixed length are never empty in a vector.
            let of = value(&element);
            let of = match element.fixed_length() {
                Some(length) => {
                    of.prop_filter("a full element", move |value| value.len() == length).boxed()
                }
                None => of,
            };
            let elements = prop::collection::vec(of, count);
            elements.prop_map(move |elements| split::join_vector(&element, elements)).boxed()
        }
        CqlType::Custom(_) => prop::collection::vec(any::<u8>(), 0..5).boxed(),
    };
    let empty_is_valid = validate(cql_type, &[]).is_ok();
    prop_oneof![9 => full.clone(), 1 => full.prop_map(move |full| if empty_is_valid { Vec::new() } else { full })]
        .boxed()
}

fn tuple<'t>(types: impl Iterator<Item = &'t CqlType>) -> BoxedStrategy<Vec<u8>> {
    let elements: Vec<_> =
        types.map(|cql_type| prop::option::weighted(0.8, value(cql_type))).collect();
    let all = elements.len();
    (elements, 0..=all)
        .prop_map(|(elements, kept)| {
            // Sometimes truncated: missing elements are null.
            split::join_tuple(elements.into_iter().take(kept))
        })
        .boxed()
}

fn native_value(native: NativeType) -> BoxedStrategy<Vec<u8>> {
    let bytes =
        || prop::collection::vec(prop_oneof![Just(0u8), Just(0xFF), Just(1), any::<u8>()], 0..6);
    match native {
        NativeType::Ascii => "[ -~\\x00]{0,4}".prop_map(String::into_bytes).boxed(),
        NativeType::Text => "[\\x00a\\u{ff}\\u{ffff}]{0,4}".prop_map(String::into_bytes).boxed(),
        NativeType::Blob => bytes().boxed(),
        NativeType::Boolean | NativeType::Tinyint => {
            any::<u8>().prop_map(|byte| vec![byte]).boxed()
        }
        NativeType::Smallint => any::<i16>().prop_map(|value| value.to_be_bytes().to_vec()).boxed(),
        NativeType::Int => prop_oneof![-3i32..3, any::<i32>()]
            .prop_map(|value| value.to_be_bytes().to_vec())
            .boxed(),
        NativeType::Bigint | NativeType::Counter | NativeType::Timestamp => {
            prop_oneof![-3i64..3, any::<i64>()]
                .prop_map(|value| value.to_be_bytes().to_vec())
                .boxed()
        }
        NativeType::Date => any::<u32>().prop_map(|value| value.to_be_bytes().to_vec()).boxed(),
        NativeType::Time => {
            (0i64..86_400_000_000_000).prop_map(|value| value.to_be_bytes().to_vec()).boxed()
        }
        NativeType::Float => any::<u32>().prop_map(|value| value.to_be_bytes().to_vec()).boxed(),
        NativeType::Double => prop_oneof![
            any::<u64>(),
            Just(f64::NAN.to_bits()),
            Just((-f64::NAN).to_bits()),
            Just((-0.0f64).to_bits()),
            Just(0)
        ]
        .prop_map(|value| value.to_be_bytes().to_vec())
        .boxed(),
        NativeType::Uuid => (any::<u128>(), any::<bool>())
            .prop_map(|(value, first)| {
                let mut bytes = value.to_be_bytes().to_vec();
                bytes[6] = if first { 0x10 | bytes[6] & 0xF } else { bytes[6] };
                bytes
            })
            .boxed(),
        NativeType::Timeuuid => any::<u128>()
            .prop_map(|value| {
                let mut bytes = value.to_be_bytes().to_vec();
                bytes[6] = 0x10 | bytes[6] & 0xF;
                bytes
            })
            .boxed(),
        NativeType::Inet => prop_oneof![
            prop::collection::vec(any::<u8>(), 4),
            prop::collection::vec(any::<u8>(), 16)
        ]
        .boxed(),
        NativeType::Varint => prop_oneof![
            bytes(),
            any::<i64>().prop_map(|value| encode_varint(&BigInt::from(value))),
            prop::collection::vec(any::<u8>(), 95..110)
        ]
        .boxed(),
        NativeType::Decimal => (prop_oneof![-300i128..300, any::<i128>()], -6i32..6, 0u32..3)
            .prop_map(|(unscaled, scale, zeros)| {
                let unscaled = BigInt::from(unscaled) * BigInt::from(10u32.pow(zeros));
                Decimal { unscaled, scale: scale + i32::try_from(zeros).expect("a few") }.encode()
            })
            .boxed(),
        NativeType::Duration => (0i32..5, 0i32..5, 0i64..5, any::<bool>())
            .prop_map(|(months, days, nanoseconds, negative)| {
                let sign = if negative { -1 } else { 1 };
                let nanoseconds = nanoseconds * i64::from(sign);
                Duration { months: months * sign, days: days * sign, nanoseconds }.encode()
            })
            .boxed(),
    }
}

/// Every type allowed in a key, with nesting.
fn any_type() -> BoxedStrategy<CqlType> {
    let natives: Vec<CqlType> = NativeType::all().map(CqlType::from).collect();
    let leaf = prop_oneof![
        4 => prop::sample::select(natives),
        1 => Just(cql_type("ty")),
        1 => Just(cql_type("'org.example.Odd'")),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(CqlType::list),
            inner.clone().prop_map(CqlType::set),
            (inner.clone(), inner.clone()).prop_map(|(key, value)| CqlType::map(key, value)),
            prop::collection::vec(inner.clone(), 1..4).prop_map(CqlType::tuple),
            (inner, 1u32..3).prop_map(|(element, dimension)| CqlType::Vector {
                element: element.into(),
                dimension
            }),
        ]
    })
    .prop_map(|cql_type| cql_type.freeze())
    .boxed()
}

#[test]
fn a_decimal_of_an_exponent_that_there_is_not_is_none() {
    let decimal = cql_type("decimal");
    for exponent in [i64::MIN, i64::MIN + 100, i64::MIN / 2, i64::MAX - 1, i64::MAX] {
        let ordered = (exponent ^ i64::MIN).to_be_bytes();
        let component = [&[0x04, 0x81][..], &ordered, &[12, 0]].concat();
        let mut input = &component[..];
        assert_eq!(
            ordered::decode(&decimal, false, &mut input, &mut Vec::new()),
            None,
            "{exponent}"
        );
        assert_eq!(input, component);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn encoded_values_sort_as_they_compare(
        (cql_type, left, right) in any_type().prop_flat_map(|cql_type| {
            let (left, right) = (value(&cql_type), value(&cql_type));
            (Just(cql_type), left, right)
        })
    ) {
        prop_assert_eq!(validate(&cql_type, &left), Ok(()));
        check_encoding(&cql_type, &left, &right);
    }

    #[test]
    fn bounds_of_prefixes(
        rows in prop::collection::vec((native_value(NativeType::Text), native_value(NativeType::Int)), 1..6),
        bound in native_value(NativeType::Text),
        descending in any::<bool>(),
    ) {
        let (text, int) = (CqlType::from(NativeType::Text), CqlType::from(NativeType::Int));
        let columns = [(&text, descending), (&int, !descending)];
        let encode = |values: Vec<&[u8]>| {
            let mut out = Vec::new();
            let mut pairs = columns.into_iter().zip(values);
            pairs.try_for_each(|((cql_type, descending), value)| ordered::encode(cql_type, descending, value, &mut out)).map(|()| out)
        };
        let start = encode(vec![&bound]).expect("a text");
        let mut end = start.clone();
        ordered::after_prefix(&mut end);
        for (first, second) in &rows {
            let row = encode(vec![first, second]).expect("a row");
            let order = compare(&text, first, &bound);
            let order = if descending { order.reverse() } else { order };
            prop_assert_eq!(row >= start, order.is_ge());
            prop_assert_eq!(row > end, order.is_gt());
        }
    }

    #[test]
    fn any_bytes_at_all(cql_type in any_type(), bytes in prop::collection::vec(any::<u8>(), 0..40), descending in any::<bool>()) {
        let valid = validate(&cql_type, &bytes).is_ok();
        let mut out = Vec::new();
        let encoded = ordered::encode(&cql_type, descending, &bytes, &mut out);
        prop_assert!(!valid || encoded.is_ok());
        let _ = ordered::decode(&cql_type, descending, &mut &bytes[..], &mut Vec::new());
        prop_assert_eq!(compare(&cql_type, &bytes, &bytes), Ordering::Equal);
        let _ = crate::values::literal(&cql_type, &bytes);
        let _ = crate::values::json::to_json(&cql_type, Some(&bytes));
    }
}
