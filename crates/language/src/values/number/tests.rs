//! Decimals beside a plain implementation that writes all digits; numbers that are too large.

use proptest::prelude::*;

use super::*;
use crate::values::{compare, ordered};

/// The order by signs, exponents and digits.
fn order_of_digits(left: &Decimal, right: &Decimal) -> Ordering {
    let ((sign, digits, exponent), (other_sign, other_digits, other_exponent)) =
        (left.normal_form(), right.normal_form());
    let magnitude = exponent.cmp(&other_exponent).then_with(|| digits.cmp(&other_digits));
    sign.cmp(&other_sign).then(match sign {
        Sign::Plus => magnitude,
        Sign::Minus => magnitude.reverse(),
        Sign::NoSign => Ordering::Equal,
    })
}

/// A decimal of some digits and zeros behind them, so that many are equal or close.
fn decimals() -> impl Strategy<Value = Decimal> {
    let unscaled = prop_oneof![-20_i64..20, 98_i64..102, any::<i64>()];
    (unscaled, 0_u32..40, -2_i64..3, -30_i32..60).prop_map(|(unscaled, zeros, more, scale)| {
        let unscaled = BigInt::from(unscaled) * BigInt::from(10).pow(zeros) + more;
        Decimal { unscaled, scale }
    })
}

proptest! {
    #[test]
    fn decimals_compare_as_their_digits_do(left in decimals(), right in decimals()) {
        prop_assert_eq!(left.compare(&right), order_of_digits(&left, &right));
        prop_assert_eq!(right.compare(&left), order_of_digits(&right, &left));
        let more = left.scale.abs_diff(-100);
        let same = Decimal { unscaled: &left.unscaled * BigInt::from(10).pow(more + 200), scale: left.scale + i32::try_from(more).unwrap_or(0) + 200 };
        prop_assert_eq!(left.compare(&same), Ordering::Equal);
    }

    #[test]
    fn digits_and_zeros_are_those_of_the_text(of in decimals()) {
        let text = of.unscaled.magnitude().to_string();
        prop_assert_eq!(count_digits(&of.unscaled), i64::try_from(text.len()).unwrap_or(0));
        let (rest, zeros) = without_zeros(of.unscaled.clone());
        let kept = text.trim_end_matches('0');
        let wanted = if kept.is_empty() { 0 } else { text.len() - kept.len() };
        prop_assert_eq!(zeros as usize, wanted);
        prop_assert_eq!(rest * BigInt::from(10).pow(zeros), of.unscaled);
    }
}

#[test]
fn powers_of_ten_and_of_two_have_their_digits() {
    for exponent in 0..2_000_u32 {
        let power = BigInt::from(10).pow(exponent);
        assert_eq!(count_digits(&power), i64::from(exponent) + 1);
        assert_eq!(count_digits(&(&power - 1)), i64::from(exponent.max(1)));
        assert_eq!(without_zeros(-power), (BigInt::from(-1), exponent));
        let power = BigInt::from(2).pow(exponent);
        assert_eq!(count_digits(&power) as usize, power.to_string().len());
        assert_eq!(without_zeros(power.clone()), (power, 0));
    }
}

/// A text of one of these numbers takes seconds.
#[test]
fn large_decimals_of_different_magnitude_are_compared_by_their_lengths() {
    let large = |bytes: usize, scale| Decimal {
        unscaled: BigInt::from_bytes_be(Sign::Plus, &vec![0x5A; bytes]),
        scale,
    };
    let (small, one) = (large(12 << 20, 0), Decimal { unscaled: BigInt::from(1), scale: 0 });
    for _ in 0..1_000 {
        assert_eq!(small.compare(&one), Ordering::Greater);
        assert_eq!(one.compare(&small), Ordering::Less);
    }
    assert_eq!(large(1 << 20, 7).compare(&large(1 << 20, 1 << 20)), Ordering::Greater);
    assert_eq!(large(1 << 20, i32::MAX).compare(&large(1, i32::MIN)), Ordering::Less);
}

#[test]
fn numbers_that_are_too_large_are_found_in_any_value() {
    let (small, large) = (vec![1; NUMBER_BYTES_MAX], vec![1; NUMBER_BYTES_MAX + 1]);
    let cql_type = |name: &str| CqlType::parse(name, &()).expect(name);
    for name in ["decimal", "varint"] {
        assert_eq!(check_numbers(&cql_type(name), &small), Ok(()));
        let error = check_numbers(&cql_type(name), &large).expect_err(name);
        assert!(
            error.message.contains(
                "4161 bytes is too large: the limit for comparisons and arithmetic is 4160"
            ),
            "{error}"
        );
    }
    assert_eq!(check_numbers(&cql_type("blob"), &large), Ok(()));
    for (name, value) in [
        ("list<decimal>", split::join_collection(1, [&large])),
        ("set<varint>", split::join_collection(1, [&large])),
        ("map<text, decimal>", split::join_collection(1, [&vec![b'a'], &large])),
        ("map<decimal, text>", split::join_collection(1, [&large, &vec![b'a']])),
        ("tuple<int, decimal>", split::join_tuple([None, Some(&large)])),
        ("vector<varint, 1>", split::join_vector(&cql_type("varint"), [&large])),
        ("list<frozen<set<decimal>>>", {
            let inner = split::join_collection(1, [&large]);
            split::join_collection(1, [&inner])
        }),
    ] {
        assert!(check_numbers(&cql_type(name), &value).is_err(), "{name}");
        assert!(ordered::encode(&cql_type(name), false, &value, &mut Vec::new()).is_err());
    }
    let many = split::join_collection(3, [&small, &small, &small]);
    assert_eq!(check_numbers(&cql_type("list<decimal>"), &many), Ok(()));
    assert_eq!(
        check_numbers(&cql_type("list<text>"), &split::join_collection(1, [&large])),
        Ok(())
    );
    // Any number of digits that a text or a result may have.
    let nines: BigInt = BigInt::from(10).pow(u32::try_from(DIGITS_MAX).expect("small")) - 1;
    let widest = Decimal { unscaled: -nines, scale: i32::MAX };
    assert_eq!(check_numbers(&cql_type("decimal"), &widest.encode()), Ok(()));
    assert_eq!(compare(&cql_type("decimal"), &widest.encode(), &small), Ordering::Less);
}
