//! The split as a switch does it: the reference for the kernel program, and the way a client
//! without a switch makes its parts.

use super::{CLO_SPLIT, CLO_TRIMMED, HEADER_BYTES, Malformed, Request};

/// Keys that a part carries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trim {
    /// The keys of all groups, as in the paper.
    Full,
    /// Only the keys of its group.
    Own,
}

/// Calls `each` once per group with the number of a server and its part. Calls nothing unless the
/// whole request is valid. Overwrites `buffer`.
///
/// The paper handles one group per pass through the switch: it advances OID and STARTIDX by a
/// group, shifts KEYIDX by its keys, and sets NUMKEY to their number. The outcome is the same.
///
/// # Errors
/// The request is malformed or was split before.
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
