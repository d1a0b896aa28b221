//! Compressed bodies of v3 and v4. The first byte selects the algorithm, the rest is a body to
//! decompress, and one to compress.

use shunt_wire::cql::compression::{Algorithm, Compressor, decompress};

/// Most bytes that a body may claim here.
const MAX: u32 = 1 << 20;

/// Tries one input.
pub fn run(data: &[u8]) {
    let Some((first, body)) = data.split_first() else { return };
    let algorithm = if first & 1 == 0 { Algorithm::Lz4 } else { Algorithm::Snappy };
    let mut compressor = Compressor::new();
    let mut out = b"before".to_vec();
    match decompress(algorithm, body, MAX, &mut out) {
        Ok(()) => {
            let found = out.split_off(6);
            assert!(found.len() <= MAX as usize);
            round_trip(&mut compressor, algorithm, &found);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    assert_eq!(out, b"before");
    round_trip(&mut compressor, algorithm, body);
}

fn round_trip(compressor: &mut Compressor, algorithm: Algorithm, body: &[u8]) {
    let mut compressed = Vec::new();
    if !compressor.compress(algorithm, body, &mut compressed) {
        assert!(compressed.is_empty());
        return;
    }
    assert!(compressed.len() < body.len());
    let mut found = Vec::new();
    decompress(algorithm, &compressed, MAX, &mut found).expect("our own body");
    assert_eq!(found, body);
}
