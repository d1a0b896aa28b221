//! The split, as a switch does it: the reference for the program in the kernel, and how a client
//! without a switch makes its parts.

use super::{CLO_SPLIT, CLO_TRIMMED, HEADER_BYTES, Malformed, Request};

/// What a part has of the keys.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trim {
    /// All of them, as the paper has it.
    Full,
    /// Those of its group.
    Own,
}

/// Calls `each` with the number of a server and the part that is for it, once for each group.
/// Nothing is called unless the whole is sound. `buffer` is overwritten.
///
/// The paper does one group per pass through the switch: OID and STARTIDX go on by a group, KEYIDX
/// moves up by its keys, NUMKEY is their number. The outcome is the same.
///
/// # Errors
/// Why there is nothing to be split: it is malformed, or was split before.
pub fn split(
    data: &[u8],
    trim: Trim,
    buffer: &mut Vec<u8>,
    mut each: impl FnMut(u8, &[u8]),
) -> Result<(), Malformed> {
    let whole = Request::parse(data)?;
    if whole.clo & CLO_SPLIT != 0 {
        return Err(Malformed::Clo);
    }
    let (mut keyidx, mut startidx) = (whole.keyidx, 0u8);
    let keys_at = HEADER_BYTES + 3 * whole.servers.len();
    for (oid, server) in whole.servers.iter().enumerate() {
        let numkey = keyidx.leading_zeros() as u8 + 1;
        keyidx = keyidx.checked_shl(u32::from(numkey)).unwrap_or(0);
        buffer.clear();
        buffer.extend_from_slice(&data[..keys_at]);
        match trim {
            Trim::Full => buffer.extend_from_slice(whole.keys),
            Trim::Own => {
                buffer.extend_from_slice(&whole.keys[whole.range(oid).ok_or(Malformed::Ends)?])
            }
        }
        (buffer[5], buffer[6], buffer[9]) = (oid as u8, numkey, startidx);
        buffer[7..9].copy_from_slice(&keyidx.to_be_bytes());
        buffer[10] = if trim == Trim::Own { CLO_SPLIT | CLO_TRIMMED } else { CLO_SPLIT };
        each(*server, buffer);
        startidx += numkey;
    }
    Ok(())
}
