//! v5's outer framing: segments with two checksums each around a stream of envelopes.
//!
//! v5, section 2 calls a segment "frame". A segment holds one or more whole envelopes ("self
//! contained") or a part of one large envelope. Messages before the answer to STARTUP are not
//! framed (section 2.3.1).
//!
//! ```text
//! uncompressed:  3 bytes lengths and flag | 3 bytes CRC24 | payload | 4 bytes CRC32  (section 2.1)
//! lz4:           5 bytes lengths and flag | 3 bytes CRC24 | payload | 4 bytes CRC32  (section 2.2)
//! ```
//! Integers of the framing are little-endian.

mod crc;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;

use super::compression::{CompressionError, lz4_block};

pub use write::SegmentWriter;

/// Largest payload of a segment in bytes, compressed or not: 17 bits of length.
pub const PAYLOAD_BYTES_MAX: usize = (1 << 17) - 1;

/// Length of the CRC24 of a segment header, and of the CRC32 of a payload.
const CRC24_BYTES: usize = 3;
const CRC32_BYTES: usize = 4;

/// Length of a segment header in bytes, with its CRC24.
const fn header_bytes(lz4: bool) -> usize {
    length_bytes(lz4) + CRC24_BYTES
}

/// Length of the length fields and the flag in a segment header in bytes.
const fn length_bytes(lz4: bool) -> usize {
    if lz4 { 5 } else { 3 }
}

/// A segment with correct checksums.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Segment<'a> {
    /// The payload as received, possibly compressed; see [`Segment::append_payload`].
    pub payload: &'a [u8],
    /// Length of the decompressed payload in bytes.
    pub uncompressed_len: usize,
    /// True if `payload` is an LZ4 block.
    pub compressed: bool,
    /// True if the payload consists of whole envelopes. Otherwise it is a part of one envelope,
    /// which [`super::reader`] assembles.
    pub self_contained: bool,
    /// Number of input bytes that the segment occupies.
    pub consumed: usize,
}

impl Segment<'_> {
    /// Appends the payload to `out` and decompresses it if needed.
    ///
    /// # Errors
    /// If the LZ4 block is damaged or does not have the length that it claims.
    pub fn append_payload(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        if !self.compressed {
            out.extend_from_slice(self.payload);
            return Ok(());
        }
        // The claim is below 2^17, so allocating that much is safe.
        lz4_block(self.payload, self.uncompressed_len, out).map_err(FrameError::Payload)
    }
}

/// Reasons why bytes are not a segment, or a segment's content is not an acceptable envelope.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FrameError {
    /// The CRC24 of a segment header is wrong, so the start of the next segment is unknown.
    HeaderCrc {
        /// The checksum of the bytes received.
        expected: u32,
        /// The checksum received.
        found: u32,
    },
    /// The CRC32 of a payload is wrong.
    PayloadCrc {
        /// The checksum of the bytes received.
        expected: u32,
        /// The checksum received.
        found: u32,
    },
    /// A payload cannot be decompressed.
    Payload(CompressionError),
    /// An envelope's body is longer than allowed.
    EnvelopeTooLarge {
        /// Bytes claimed by the envelope's header.
        claimed: u32,
        /// Bytes allowed.
        max: u32,
    },
    /// A self-contained segment ends in the middle of an envelope.
    PartialEnvelope,
    /// A self-contained segment arrived before the envelope of the preceding segments was complete.
    InterruptedEnvelope,
    /// A body is compressed on its own (v3, v4), but STARTUP agreed on no compression.
    CompressionNotAgreed,
    /// A body compressed on its own (v3, v4) cannot be decompressed.
    Body(CompressionError),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::HeaderCrc { expected, found } => {
                write!(f, "segment header: expected CRC24 {expected:#08x}, found {found:#08x}")
            }
            FrameError::PayloadCrc { expected, found } => {
                write!(f, "segment payload: expected CRC32 {expected:#010x}, found {found:#010x}")
            }
            FrameError::Payload(error) => write!(f, "segment payload: {error}"),
            FrameError::EnvelopeTooLarge { claimed, max } => {
                write!(f, "envelope: expected a body of at most {max} bytes, {claimed} are claimed")
            }
            FrameError::PartialEnvelope => {
                f.write_str("a self-contained segment ends in the middle of an envelope")
            }
            FrameError::InterruptedEnvelope => {
                f.write_str("a self-contained segment comes in the middle of an envelope")
            }
            FrameError::CompressionNotAgreed => {
                f.write_str("a body is compressed, and no compression was agreed on")
            }
            FrameError::Body(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FrameError {}

/// Returns the segment at the start of `bytes`, or `None` if it is incomplete. `lz4` says whether
/// STARTUP agreed on LZ4.
///
/// The caller never waits for more than [`PAYLOAD_BYTES_MAX`] bytes plus header and checksums. The
/// header's checksum is verified before its lengths are used.
///
/// # Errors
/// If a checksum is wrong.
#[inline]
pub fn decode(bytes: &[u8], lz4: bool) -> Result<Option<Segment<'_>>, FrameError> {
    let Some(header) = SegmentHeader::decode(bytes, lz4)? else {
        return Ok(None);
    };
    let start = header_bytes(lz4);
    let end = start + header.payload_len;
    let (Some(payload), Some(trailer)) = (bytes.get(start..end), bytes.get(end..end + CRC32_BYTES))
    else {
        return Ok(None);
    };
    let found = trailer.first_chunk().map_or(0, |crc| u32::from_le_bytes(*crc));
    let expected = crc::crc32(payload);
    if found != expected {
        return Err(FrameError::PayloadCrc { expected, found });
    }
    // "An uncompressed length of 0 signals that the compressed payload should be used as-is"
    // (section 2.2).
    let compressed = lz4 && header.uncompressed_len != 0;
    Ok(Some(Segment {
        payload,
        uncompressed_len: if compressed { header.uncompressed_len } else { payload.len() },
        compressed,
        self_contained: header.self_contained,
        consumed: end + CRC32_BYTES,
    }))
}

/// Returns how many of `bytes`, in segments with LZ4, the caller can take so that at most `most`
/// bytes get decompressed, and how many bytes those segments claim to hold. A segment that claims
/// more is returned alone. Verifies no checksum: the caller weighs the claim before doing the work.
pub fn claimed_part(bytes: &[u8], most: usize) -> (usize, usize) {
    let (mut rest, mut claimed) = (bytes, 0);
    while let Some(header) = SegmentHeader::read(rest, true)
        && let Some(behind) = rest.get(header_bytes(true) + header.payload_len + CRC32_BYTES..)
    {
        // An uncompressed segment claims nothing and never ends a part.
        let is_over = header.uncompressed_len > 0 && claimed + header.uncompressed_len > most;
        if claimed > 0 && is_over {
            return (bytes.len() - rest.len(), claimed);
        }
        claimed += header.uncompressed_len;
        rest = behind;
    }
    (bytes.len(), claimed)
}

/// Length fields and flag of a segment header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct SegmentHeader {
    payload_len: usize,
    /// 0 if the payload is not compressed; always 0 without LZ4.
    uncompressed_len: usize,
    self_contained: bool,
}

impl SegmentHeader {
    #[inline]
    fn decode(bytes: &[u8], lz4: bool) -> Result<Option<SegmentHeader>, FrameError> {
        let Some((lengths, rest)) = bytes.split_at_checked(length_bytes(lz4)) else {
            return Ok(None);
        };
        let Some(crc) = rest.first_chunk::<CRC24_BYTES>() else {
            return Ok(None);
        };
        let found = little_endian(crc) as u32;
        let expected = crc::crc24(lengths);
        if found != expected {
            return Err(FrameError::HeaderCrc { expected, found });
        }
        Ok(SegmentHeader::read(bytes, lz4))
    }

    /// Reads the fields of a complete header without verifying its checksum.
    #[inline]
    fn read(bytes: &[u8], lz4: bool) -> Option<SegmentHeader> {
        let lengths = little_endian(bytes.get(..header_bytes(lz4))?.get(..length_bytes(lz4))?);
        let field = |shift: u32| (lengths >> shift) as usize & PAYLOAD_BYTES_MAX;
        Some(SegmentHeader {
            payload_len: field(0),
            uncompressed_len: if lz4 { field(17) } else { 0 },
            self_contained: lengths >> if lz4 { 34 } else { 17 } & 1 == 1,
        })
    }

    /// Writes the header with its CRC24 into `room`, which has [`header_bytes`] bytes.
    fn encode(self, lz4: bool, room: &mut [u8]) {
        let flag = u64::from(self.self_contained);
        let lengths = match lz4 {
            true => self.payload_len as u64 | (self.uncompressed_len as u64) << 17 | flag << 34,
            false => self.payload_len as u64 | flag << 17,
        };
        let (fields, crc) = room.split_at_mut(length_bytes(lz4).min(room.len()));
        put_little_endian(fields, lengths);
        put_little_endian(crc, u64::from(crc::crc24(fields)));
    }
}

/// A segment with any payload up to [`PAYLOAD_BYTES_MAX`] and the given flag, including segments
/// that a [`SegmentWriter`] would not write.
#[cfg(test)]
pub(crate) fn segment_of(payload: &[u8], self_contained: bool, lz4: bool) -> Vec<u8> {
    let mut block = Vec::new();
    if lz4 {
        block = lz4_flex::block::compress(payload);
    }
    let shorter = lz4 && block.len() < payload.len();
    let (body, uncompressed_len) = if shorter { (&block[..], payload.len()) } else { (payload, 0) };
    let mut out = vec![0; header_bytes(lz4)];
    SegmentHeader { payload_len: body.len(), uncompressed_len, self_contained }
        .encode(lz4, &mut out);
    out.extend_from_slice(body);
    out.extend_from_slice(&crc::crc32(body).to_le_bytes());
    out
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn put_little_endian(room: &mut [u8], value: u64) {
    for (byte, from) in room.iter_mut().zip(value.to_le_bytes()) {
        *byte = from;
    }
}
