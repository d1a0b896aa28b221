//! Round trips, and bodies with a false length.

use super::*;

const BOTH: [Algorithm; 2] = [Algorithm::Lz4, Algorithm::Snappy];
const MAX: u32 = 1 << 20;

#[test]
fn bodies_survive_the_round_trip_behind_what_is_there() {
    let mut compressor = Compressor::new();
    let bodies = [vec![b'a'; 40], vec![0; 200_000], b"abcdefgh".repeat(1000)];
    for algorithm in BOTH {
        for body in &bodies {
            let mut compressed = b"header".to_vec();
            assert!(compressor.compress(algorithm, body, &mut compressed));
            assert!(compressed.len() < body.len() && compressed.starts_with(b"header"));
            let mut out = b"before".to_vec();
            assert_eq!(decompress(algorithm, &compressed[6..], MAX, &mut out), Ok(()));
            assert_eq!(out, [b"before", &body[..]].concat());
        }
    }
}

#[test]
fn incompressible_bodies_stay_as_they_are() {
    let mut compressor = Compressor::new();
    for algorithm in BOTH {
        for body in [&b""[..], b"a", b"0123456789"] {
            let mut out = b"before".to_vec();
            assert!(!compressor.compress(algorithm, body, &mut out));
            assert_eq!(out, b"before");
        }
    }
}

#[test]
fn lz4_has_its_length_big_endian_in_front() {
    let mut out = Vec::new();
    assert!(Compressor::new().compress(Algorithm::Lz4, &[7; 258], &mut out));
    assert_eq!(&out[..4], [0, 0, 1, 2]);
}

#[test]
fn an_empty_body_may_be_marked_as_compressed() {
    for (algorithm, body) in [
        (Algorithm::Lz4, &[0, 0, 0, 0][..]),
        (Algorithm::Lz4, &[0, 0, 0, 0, 0]),
        (Algorithm::Snappy, &[0]),
    ] {
        let mut out = Vec::new();
        assert_eq!(decompress(algorithm, body, MAX, &mut out), Ok(()));
        assert!(out.is_empty());
    }
}

#[test]
fn a_claim_is_checked_before_memory_is_taken() {
    let mut out = Vec::new();
    let lz4 = [0x7F, 0xFF, 0xFF, 0xFF, 0x10, b'a'];
    let error = decompress(Algorithm::Lz4, &lz4, MAX, &mut out).unwrap_err();
    let claimed = 0x7FFF_FFFF;
    assert_eq!(error, CompressionError::TooLarge { claimed, max: u64::from(MAX) });
    let error = decompress(Algorithm::Lz4, &lz4, u32::MAX, &mut out).unwrap_err();
    assert_eq!(error, CompressionError::Implausible { claimed, compressed: 2 });
    // A varint of 2^28 in front of nothing.
    let snappy = [0x80, 0x80, 0x80, 0x80, 0x01];
    let error = decompress(Algorithm::Snappy, &snappy, u32::MAX, &mut out).unwrap_err();
    assert_eq!(error, CompressionError::Implausible { claimed: 1 << 28, compressed: 5 });
    assert_eq!(out.capacity(), 0);
}

#[test]
fn damage_is_an_error_and_leaves_the_output_as_it_was() {
    for algorithm in BOTH {
        let mut compressed = Vec::new();
        assert!(Compressor::new().compress(algorithm, &b"abcd".repeat(50), &mut compressed));
        for length in 0..compressed.len() {
            let mut out = b"before".to_vec();
            assert!(decompress(algorithm, &compressed[..length], MAX, &mut out).is_err());
            assert_eq!(out, b"before");
        }
    }
}

#[test]
fn a_long_run_of_length_bytes_does_not_overflow() {
    // LZ4 adds bytes of 255 to a length; enough of them exceed 2^32.
    let mut body = vec![0xFF; 17_000_000];
    body[..4].copy_from_slice(&[0, 1, 0, 0]);
    let error = decompress(Algorithm::Lz4, &body, MAX, &mut Vec::new()).unwrap_err();
    assert_eq!(error, CompressionError::Damaged(Algorithm::Lz4));
}

#[test]
fn names_are_taken_in_any_case() {
    assert_eq!("LZ4".parse(), Ok(Algorithm::Lz4));
    assert_eq!("snappy".parse(), Ok(Algorithm::Snappy));
    assert_eq!("zstd".parse::<Algorithm>(), Err(UnknownAlgorithm));
    assert_eq!(Algorithm::Snappy.to_string(), "snappy");
}
