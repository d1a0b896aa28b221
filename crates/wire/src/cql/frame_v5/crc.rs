//! The two checksums of v5's framing.

/// "The CRC24 of the header is calculated by initializing the CRC24 algorithm with the value
/// 0x875060 and using the polynomial 0x1974F0B" (v5, section 2.1).
const CRC24_INITIAL: u32 = 0x0087_5060;
const CRC24_POLYNOMIAL: u32 = 0x0197_4F0B;

/// Cassandra feeds these bytes to the CRC32 in front of the payload, so that the CRC of an all-zero
/// payload is not 0. The specification does not mention them.
const CRC32_PREFIX: [u8; 4] = [0xFA, 0x2D, 0x55, 0xCA];

/// CRC32 of [`CRC32_PREFIX`] alone, the initial value for a payload.
const CRC32_AFTER_PREFIX: u32 = crc32_bitwise(&CRC32_PREFIX);

const CRC24_TABLE: [u32; 256] = crc24_table();

const fn crc24_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u32) << 16;
        let mut bit = 0;
        while bit < 8 {
            crc <<= 1;
            if crc & 0x0100_0000 != 0 {
                crc ^= CRC24_POLYNOMIAL;
            }
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

const fn crc32_bitwise(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    let mut index = 0;
    while index < bytes.len() {
        crc ^= bytes[index] as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
            bit += 1;
        }
        index += 1;
    }
    !crc
}

/// CRC24 of the lengths and the flag of a segment header.
#[inline]
pub(super) fn crc24(bytes: &[u8]) -> u32 {
    bytes.iter().fold(CRC24_INITIAL, |crc, byte| {
        let index = (crc >> 16) as u8 ^ byte;
        (crc << 8 & 0x00FF_FFFF) ^ CRC24_TABLE[usize::from(index)]
    })
}

/// CRC32 of a payload.
#[inline]
pub(super) fn crc32(payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(CRC32_AFTER_PREFIX);
    hasher.update(payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32_starts_after_the_prefix() {
        let mut whole = crc32fast::Hasher::new();
        whole.update(&CRC32_PREFIX);
        whole.update(b"123456789");
        assert_eq!(crc32(b"123456789"), whole.finalize());
    }

    #[test]
    fn crc24_follows_the_definition_bit_by_bit() {
        let bitwise = |bytes: &[u8]| {
            bytes.iter().fold(CRC24_INITIAL, |crc, byte| {
                (0..8).fold(crc ^ u32::from(*byte) << 16, |crc, _| {
                    let crc = crc << 1;
                    if crc & 0x0100_0000 != 0 { crc ^ CRC24_POLYNOMIAL } else { crc }
                })
            })
        };
        for bytes in [&[][..], &[0, 0, 0], &[0xFF, 0xFF, 0x03], &[1, 2, 3, 4, 5]] {
            assert_eq!(crc24(bytes), bitwise(bytes));
        }
    }
}
