//! Numbers, UUIDs, blobs and durations: tokens that begin with a digit, a minus or certain letters.

use super::Kind;

/// The kind and length of the number at the front of `input`, if there is one.
pub(super) fn scan(input: &[u8]) -> Option<(Kind, usize)> {
    if is_uuid(input) {
        return Some((Kind::Uuid, 36));
    }
    let sign = usize::from(input.first() == Some(&b'-'));
    let rest = &input[sign..];
    match rest.first()? {
        b'0' if sign == 0 && matches!(rest.get(1), Some(b'x' | b'X')) => {
            Some((Kind::Hex, 2 + run(&rest[2..], u8::is_ascii_hexdigit)))
        }
        b'0'..=b'9' => {
            let (kind, length) = decimal(rest);
            Some((kind, sign + length))
        }
        b'P' => iso_duration(rest).map(|length| (Kind::Duration, sign + length)),
        b'N' | b'n' | b'I' | b'i' if sign == 1 => {
            let word = run(rest, |byte| byte.is_ascii_alphanumeric() || *byte == b'_');
            let named = [&b"nan"[..], b"infinity"]
                .iter()
                .any(|name| rest[..word].eq_ignore_ascii_case(name));
            named.then_some((Kind::Float, 1 + word))
        }
        _ => None,
    }
}

fn run(input: &[u8], belongs: impl Fn(&u8) -> bool) -> usize {
    input.iter().take_while(|byte| belongs(byte)).count()
}

fn digits(input: &[u8]) -> usize {
    run(input, u8::is_ascii_digit)
}

fn is_uuid(input: &[u8]) -> bool {
    input.len() >= 36
        && input[..36].iter().enumerate().all(|(position, byte)| match position {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// An integer, a float or a duration with units; `input` begins with a digit.
fn decimal(input: &[u8]) -> (Kind, usize) {
    let mut length = digits(input);
    if let Some(units) = units(input) {
        return (Kind::Duration, units);
    }
    let mut kind = Kind::Integer;
    // `1..3` is a range of integers, and `1...3` one from a float.
    let point = input.get(length) == Some(&b'.');
    let range = input.get(length + 1) == Some(&b'.') && input.get(length + 2) != Some(&b'.');
    if point && !range {
        kind = Kind::Float;
        length += 1;
        length += digits(&input[length..]);
    }
    if let Some(exponent) = exponent(&input[length..]) {
        kind = Kind::Float;
        length += exponent;
    }
    (kind, length)
}

fn exponent(input: &[u8]) -> Option<usize> {
    if !matches!(input.first(), Some(b'e' | b'E')) {
        return None;
    }
    let sign = usize::from(matches!(input.get(1), Some(b'+' | b'-')));
    let digits = digits(&input[1 + sign..]);
    (digits > 0).then_some(1 + sign + digits)
}

/// `(digits unit)+`: total length of the units present.
fn units(input: &[u8]) -> Option<usize> {
    let mut length = 0;
    loop {
        let rest = &input[length..];
        let digits = digits(rest);
        let Some(unit) = (digits > 0).then(|| unit(&rest[digits..])).flatten() else {
            return (length > 0).then_some(length);
        };
        length += digits + unit;
    }
}

fn unit(input: &[u8]) -> Option<usize> {
    let lower = |position: usize| input.get(position).map_or(0, u8::to_ascii_lowercase);
    match (lower(0), lower(1)) {
        (b'm', b'o' | b's') | (b'u' | b'n', b's') => Some(2),
        (0xC2, 0xB5) if lower(2) == b's' => Some(3),
        (b'y' | b'w' | b'd' | b'h' | b'm' | b's', _) => Some(1),
        _ => None,
    }
}

/// Length of an ISO 8601 duration, `input` from its `P`; `None` if it starts a longer word.
fn iso_duration(input: &[u8]) -> Option<usize> {
    let length = iso_alternative(input).or_else(|| iso_designators(input))?;
    let word_goes_on =
        input.get(length).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    (!word_goes_on).then_some(length)
}

/// `P0001-02-03T04:05:06`
fn iso_alternative(input: &[u8]) -> Option<usize> {
    let shape = b"PDDDD-DD-DDTDD:DD:DD";
    let found = input.get(..shape.len())?;
    let fits = |(byte, wanted): (&u8, &u8)| {
        if *wanted == b'D' { byte.is_ascii_digit() } else { byte == wanted }
    };
    found.iter().zip(shape).all(fits).then_some(shape.len())
}

/// `P[nY][nM][nD][T[nH][nM][nS]]` or `PnW`
fn iso_designators(input: &[u8]) -> Option<usize> {
    let mut length = 1;
    let mut parts = 0;
    let mut take = |length: &mut usize, designators: &[u8]| {
        for designator in designators {
            let rest = &input[(*length).min(input.len())..];
            let digits = digits(rest);
            if digits > 0 && rest.get(digits) == Some(designator) {
                *length += digits + 1;
                parts += 1;
            }
        }
        parts
    };
    if take(&mut length, b"W") > 0 {
        return Some(length);
    }
    let dates = take(&mut length, b"YMD");
    if input.get(length) == Some(&b'T') {
        let mut end = length + 1;
        if take(&mut end, b"HMS") > dates {
            return Some(end);
        }
    }
    (dates > 0).then_some(length)
}
