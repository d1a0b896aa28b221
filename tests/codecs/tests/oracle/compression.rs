//! Whole bodies, compressed by one codec and decompressed by the other.

use cassandra_protocol::compression::Compression;
use proptest::prelude::*;
use shunt_wire::cql::compression::{Algorithm, Compressor, decompress};

const PAIRS: [(Algorithm, Compression); 2] =
    [(Algorithm::Lz4, Compression::Lz4), (Algorithm::Snappy, Compression::Snappy)];

proptest! {
    #[test]
    fn both_ways(piece in proptest::collection::vec(any::<u8>(), 1..40), times in 1..500_usize) {
        let body = piece.repeat(times);
        let mut compressor = Compressor::new();
        for (ours, theirs) in PAIRS {
            let mut out = Vec::new();
            decompress(ours, &theirs.encode(&body).unwrap(), 1 << 20, &mut out).unwrap();
            prop_assert_eq!(&out, &body);
            out.clear();
            if compressor.compress(ours, &body, &mut out) {
                prop_assert_eq!(&theirs.decode(out).unwrap(), &body);
            } else {
                prop_assert!(out.is_empty());
            }
        }
    }
}
