//! Murmur3 tokens as Cassandra computes them.
//!
//! Cassandra's `Murmur3Partitioner` takes the first half of MurmurHash3 x64 128 with seed 0, but
//! its implementation sign-extends the bytes of the tail (those after the last full block of 16).
//! That bug is part of the on-disk and wire contract, so a textbook implementation gives other
//! tokens for keys with bytes above 0x7f in the tail.

/// A position on the ring.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct Token(pub i64);

impl Token {
    /// The lowest token. No partition has it except the (invalid) empty key.
    pub const MIN: Token = Token(i64::MIN);
}

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

/// The token of a serialized partition key (for several columns: the composite encoding).
///
/// As in `Murmur3Partitioner.getToken`, the empty key has the minimum token, and a hash equal to
/// `i64::MIN` is moved to `i64::MAX` so that no partition sorts at the minimum.
#[must_use]
pub fn token(key: &[u8]) -> Token {
    if key.is_empty() {
        return Token::MIN;
    }
    match hash(key) {
        i64::MIN => Token(i64::MAX),
        hash => Token(hash),
    }
}

/// True if the crate can compute tokens of this partitioner (class name as in
/// `system.local.partitioner`).
#[must_use]
pub fn is_supported(partitioner: &str) -> bool {
    partitioner.rsplit('.').next() == Some("Murmur3Partitioner")
}

/// Reads the `tokens` column of a node. Empty for an unsupported partitioner, which turns token
/// routing off for that ring.
pub fn parse_tokens<'a>(partitioner: &str, tokens: impl IntoIterator<Item = &'a str>) -> Vec<i64> {
    if !is_supported(partitioner) {
        return Vec::new();
    }
    tokens.into_iter().filter_map(|token| token.trim().parse().ok()).collect()
}

fn hash(key: &[u8]) -> i64 {
    let (mut h1, mut h2) = (0u64, 0u64);
    let (blocks, tail) = key.as_chunks::<16>();
    for block in blocks {
        let (k1, k2) = halves(block);
        h1 ^= mix1(k1);
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 ^= mix2(k2);
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    // A half without bytes contributes mix(0) = 0, so both can be mixed unconditionally.
    let (k1, k2) = signed_tail(tail);
    h2 ^= mix2(k2);
    h1 ^= mix1(k1);

    let length = key.len() as u64;
    h1 ^= length;
    h2 ^= length;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    finish(h1).wrapping_add(finish(h2)).cast_signed()
}

fn halves(block: &[u8; 16]) -> (u64, u64) {
    let whole = u128::from_le_bytes(*block);
    (whole as u64, (whole >> 64) as u64)
}

/// The tail with every byte sign-extended before the shift, as in Cassandra's
/// `MurmurHash.hash3_x64_128`.
fn signed_tail(tail: &[u8]) -> (u64, u64) {
    let mut k = [0u64; 2];
    for (position, &byte) in tail.iter().enumerate() {
        let extended = i64::from(byte.cast_signed()).cast_unsigned();
        k[position / 8] ^= extended << (8 * (position % 8));
    }
    (k[0], k[1])
}

fn mix1(k: u64) -> u64 {
    k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn mix2(k: u64) -> u64 {
    k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn finish(mut k: u64) -> u64 {
    k ^= k >> 33;
    k = k.wrapping_mul(0xff51_afd7_ed55_8ccd);
    k ^= k >> 33;
    k = k.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}
