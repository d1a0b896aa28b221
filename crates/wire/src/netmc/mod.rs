//! NetMC: a multiget in one datagram, which the network splits into a part per server. The client
//! merges the answers.
//!
//! ```text
//! client ── whole request ──> switch ── parts ──> shim beside each server
//!        <───────────────── replies ─────────────┘
//! ```
//! `docs/internals/netmc.md` describes each field of the layout: the paper's, and additions.
//! [`split`] does what a switch does, as the reference for the kernel program; a client without a
//! switch calls it itself.
//!
//! A switch reads only the header ([`Request::parse`]), a server also the keys
//! ([`Request::own_keys`]). A datagram that fails either check is dropped whole.

mod error;
mod reply;
mod request;
mod split;
#[cfg(test)]
mod tests;

pub use error::Malformed;
pub use reply::{Item, ReplyHeader, ReplyReader, ReplyWriter, Status, item_bytes};
pub use request::{Group, OwnKeys, Request, encode_request, key_bytes, request_bytes};
pub use split::{Trim, split};

/// The version of the layout, in the upper half of the first byte.
pub const VERSION: u8 = 1;
/// Bytes of the header before SRV.
pub const HEADER_BYTES: usize = 12;
/// Most keys of one request: KEYIDX has a bit for each.
pub const KEYS_MAX: usize = 16;
/// Most bytes of a key; longer keys go over TCP.
pub const KEY_BYTES_MAX: usize = 1024;
/// Most bytes of a datagram's payload: 1,500 less the headers of IPv6 and UDP, so that a network
/// with that MTU never fragments it.
pub const DATAGRAM_BYTES_MAX: usize = 1500 - 40 - 8;
/// CLO: a switch has split the request.
pub const CLO_SPLIT: u8 = 1;
/// CLO: KEYS holds only the keys of this group.
pub const CLO_TRIMMED: u8 = 2;

const _: () = assert!(KEYS_MAX <= u16::BITS as usize);
const _: () = assert!(HEADER_BYTES + 3 + 2 + KEY_BYTES_MAX <= DATAGRAM_BYTES_MAX);

/// The operation of a datagram.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Op {
    /// Asks for the values of several keys; a key without a plain value is missing.
    MultiGet,
    /// Asks for the value of one key; a key without a plain value is an error of the server's.
    Get,
    /// An answer, or a part of one.
    MultiGetReply,
    /// The answer to [`Op::Get`].
    GetReply,
}

impl Op {
    /// The first byte of a datagram with this operation.
    pub(crate) fn to_byte(self) -> u8 {
        let code = match self {
            Op::MultiGet => 1,
            Op::Get => 2,
            Op::MultiGetReply => 4,
            Op::GetReply => 5,
        };
        VERSION << 4 | code
    }

    fn of(byte: u8) -> Result<Op, Malformed> {
        if byte >> 4 != VERSION {
            return Err(Malformed::Version { found: byte >> 4 });
        }
        match byte & 15 {
            1 => Ok(Op::MultiGet),
            2 => Ok(Op::Get),
            4 => Ok(Op::MultiGetReply),
            5 => Ok(Op::GetReply),
            found => Err(Malformed::Op { found }),
        }
    }

    /// True if the datagram can only be a reply.
    pub fn is_reply(data: &[u8]) -> bool {
        data.first()
            .is_some_and(|first| matches!(Op::of(*first), Ok(Op::MultiGetReply | Op::GetReply)))
    }

    /// The operation of the answer.
    pub fn reply(self) -> Op {
        match self {
            Op::MultiGet | Op::MultiGetReply => Op::MultiGetReply,
            Op::Get | Op::GetReply => Op::GetReply,
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes([four[0], four[1], four[2], four[3]]))
}
