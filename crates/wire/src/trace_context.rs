//! W3C Trace Context: the `traceparent` by which a client names the trace of a request
//! (<https://www.w3.org/TR/trace-context/>, section 3.2).
//!
//! CQL drivers send it as a value of a request's custom payload.

/// Key of the custom payload, as DataStax' and Apache's Java drivers write it.
pub const TRACEPARENT: &str = "traceparent";

/// Bytes of a `traceparent` of version 00.
const BYTES: usize = 55;
/// Bit of the flags: the caller records this trace (section 3.2.2.5.1).
const SAMPLED: u8 = 1;

/// The trace of a request, and the span that caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// Number of the trace; not 0.
    pub trace_id: [u8; 16],
    /// Number of the caller's span; not 0.
    pub parent_id: [u8; 8],
    /// True if the caller records the trace.
    pub is_sampled: bool,
}

impl TraceParent {
    /// Reads a `traceparent`; `None` if it is malformed.
    ///
    /// Section 3.2.4: of a later version the first four fields are read, whatever follows them
    /// after a dash.
    pub fn parse(text: &[u8]) -> Option<TraceParent> {
        let version = hex::<1>(text.get(..2)?)?[0];
        let has_end = match (version, text.get(BYTES)) {
            (0xFF, _) => false,
            (0, rest) => rest.is_none(),
            (_, rest) => rest.is_none_or(|byte| *byte == b'-'),
        };
        let dashes = [2, 35, 52].iter().all(|place| text.get(*place) == Some(&b'-'));
        if !has_end || !dashes {
            return None;
        }
        let trace_id = hex::<16>(text.get(3..35)?)?;
        let parent_id = hex::<8>(text.get(36..52)?)?;
        let flags = hex::<1>(text.get(53..55)?)?[0];
        let is_valid = trace_id != [0; 16] && parent_id != [0; 8];
        is_valid.then_some(TraceParent { trace_id, parent_id, is_sampled: flags & SAMPLED != 0 })
    }
}

/// Reads hexadecimal digits; upper case is malformed (section 3.2.2).
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let (pairs, rest) = text.as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn parse(text: &str) -> Option<TraceParent> {
        TraceParent::parse(text.as_bytes())
    }

    #[test]
    fn the_example_of_the_specification_is_read() {
        let parent = parse(EXAMPLE).expect("well formed");
        assert_eq!(parent.trace_id[..2], [0x4b, 0xf9]);
        assert_eq!(parent.trace_id[15], 0x36);
        assert_eq!(parent.parent_id, [0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
        assert!(parent.is_sampled);
    }

    #[test]
    fn only_the_lowest_flag_means_sampled() {
        let with_flags = |flags: &str| parse(&format!("{}{flags}", &EXAMPLE[..53]));
        for (flags, is_sampled) in [("00", false), ("01", true), ("02", false), ("ff", true)] {
            assert_eq!(with_flags(flags).map(|parent| parent.is_sampled), Some(is_sampled));
        }
    }

    #[test]
    fn malformed_values_are_none() {
        for text in [
            "",
            "00",
            &EXAMPLE[..54],
            &format!("{EXAMPLE}-"),
            &format!("{EXAMPLE}0"),
            &EXAMPLE.to_uppercase(),
            &EXAMPLE.replace("4bf9", "4bg9"),
            &EXAMPLE.replace('-', "_"),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "0é-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_later_version_may_have_more_fields() {
        let later = EXAMPLE.replacen("00", "01", 1);
        assert_eq!(parse(&later), parse(EXAMPLE));
        assert_eq!(parse(&format!("{later}-more")), parse(EXAMPLE));
        assert_eq!(parse(&format!("{later}.more")), None);
    }
}
