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

/// The time in a version 1 UUID, microseconds since 1970. `None`: it is no such UUID.
#[must_use]
pub fn time_of_timeuuid_us(uuid: &[u8]) -> Option<i64> {
    let high = u64::from_be_bytes(uuid.get(..8)?.try_into().ok()?);
    if uuid.len() != 16 || high >> 12 & 0xf != 1 {
        return None;
    }
    let ticks = (high & 0x0fff) << 48 | (high >> 16 & 0xffff) << 32 | high >> 32;
    Some((ticks.cast_signed() - GREGORIAN_100NS) / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_uuid_has_a_time_and_another_none() {
        // RFC 9562, appendix A.1: 2022-02-22 14:22:22 -05:00.
        let uuid = 0xC232_AB00_9414_11EC_B3C8_9F6B_DECE_D846_u128.to_be_bytes();
        assert_eq!(time_of_timeuuid_us(&uuid), Some(1_645_557_742_000_000));
        assert_eq!(time_of_timeuuid_us(&[0x40; 16]), None);
        assert_eq!(time_of_timeuuid_us(&uuid[..7]), None);
        assert_eq!(time_of_timeuuid_us(&timeuuid(-20, 7)), Some(-2));
    }
}
