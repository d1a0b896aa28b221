//! UUIDs derived from a time.

/// Tenths of microseconds between the beginning of the Gregorian calendar and 1970 (RFC 9562,
/// section 5.1).
const GREGORIAN_100NS: i64 = 0x01b2_1dd2_1381_4000;

/// A version 1 UUID of a time (tenths of microseconds since 1970), with these bits as its clock
/// sequence and node.
#[must_use]
pub fn timeuuid(time_100ns: i64, node: u64) -> [u8; 16] {
    let ticks = (time_100ns + GREGORIAN_100NS) as u64;
    let high =
        (ticks & 0xffff_ffff) << 32 | (ticks >> 32 & 0xffff) << 16 | 0x1000 | ticks >> 48 & 0x0fff;
    // The multicast bit marks the node as a random number instead of a network card.
    let low = node & 0x3fff_ffff_ffff_ffff | 0x8000_0100_0000_0000;
    let mut id = [0; 16];
    id[..8].copy_from_slice(&high.to_be_bytes());
    id[8..].copy_from_slice(&low.to_be_bytes());
    id
}
