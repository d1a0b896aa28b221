//! Compression of whole bodies in v3 and v4.
//!
//! v4, section 5: the header is never compressed; a body is "if and only if the compressed flag is
//! set". lz4: "the first four bytes of the body will be the uncompressed length", big-endian, then
//! one LZ4 block. snappy: the raw format. v5 compresses segments instead: [`super::frame_v5`].

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};

/// Compression of a connection's bodies, as agreed in STARTUP.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Algorithm {
    /// LZ4 block, preceded by its uncompressed length.
    Lz4,
    /// Raw snappy.
    Snappy,
}

impl Algorithm {
    /// The value of STARTUP's `COMPRESSION`.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Lz4 => "lz4",
            Algorithm::Snappy => "snappy",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A compression that is neither `lz4` nor `snappy`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UnknownAlgorithm;

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown compression: expected lz4 or snappy")
    }
}

impl std::error::Error for UnknownAlgorithm {}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    /// Cassandra and drivers write the names in any letter case.
    fn from_str(name: &str) -> Result<Algorithm, UnknownAlgorithm> {
        [Algorithm::Lz4, Algorithm::Snappy]
            .into_iter()
            .find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
            .ok_or(UnknownAlgorithm)
    }
}

/// Why a body could not be decompressed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CompressionError {
    /// The body ends within its length field.
    Truncated {
        /// Bytes present.
        found: usize,
    },
    /// The body claims more bytes than are allowed.
    TooLarge {
        /// Bytes claimed.
        claimed: u64,
        /// Bytes allowed.
        max: u64,
    },
    /// The body claims more bytes than a body of its size can hold.
    Implausible {
        /// Bytes claimed.
        claimed: u64,
        /// Bytes of the compressed body.
        compressed: usize,
    },
    /// The compressed bytes are damaged.
    Damaged(Algorithm),
    /// The decompressed body does not have the length that it claims.
    LengthMismatch {
        /// Bytes claimed.
        claimed: usize,
        /// Bytes found.
        found: usize,
    },
}

impl fmt::Display for CompressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompressionError::Truncated { found } => {
                write!(
                    f,
                    "compressed body: expected a length of 4 bytes at byte 0, {found} are there"
                )
            }
            CompressionError::TooLarge { claimed, max } => {
                write!(
                    f,
                    "compressed body: expected at most {max} bytes uncompressed, {claimed} are claimed"
                )
            }
            CompressionError::Implausible { claimed, compressed } => {
                write!(
                    f,
                    "compressed body: {compressed} bytes cannot hold the {claimed} that are claimed"
                )
            }
            CompressionError::Damaged(algorithm) => {
                write!(f, "compressed body: expected valid {algorithm}")
            }
            CompressionError::LengthMismatch { claimed, found } => {
                write!(f, "compressed body: expected {claimed} bytes uncompressed, found {found}")
            }
        }
    }
}

impl std::error::Error for CompressionError {}

/// Upper bound of LZ4's expansion: a match of any length costs one byte per 255.
const LZ4_RATIO_MAX: u64 = 255;
/// Upper bound of snappy's expansion: a copy of 3 bytes yields 64.
const SNAPPY_RATIO_MAX: u64 = 22;
/// Shorter bodies are compressed with a table of 8 KB, longer ones with a table of 16 KB.
const LZ4_SMALL_BYTES: usize = u16::MAX as usize;
/// Allowance for the first, shorter elements, to which the ratios above do not apply.
const RATIO_SLACK: u64 = 64;

/// Returns the uncompressed length that a compressed body claims; 0 if it has no readable claim.
#[must_use]
pub fn claimed_bytes(algorithm: Algorithm, body: &[u8]) -> usize {
    match algorithm {
        Algorithm::Lz4 => {
            body.first_chunk::<4>().map_or(0, |length| u32::from_be_bytes(*length) as usize)
        }
        Algorithm::Snappy => snap::raw::decompress_len(body).unwrap_or(0),
    }
}

/// Appends the decompressed `body` to `out`.
///
/// # Errors
/// If the body is damaged, claims more than `max` bytes, or claims more than it can hold. The claim
/// is checked before memory is allocated; an error leaves `out` unchanged.
pub fn decompress(
    algorithm: Algorithm,
    body: &[u8],
    max: u32,
    out: &mut Vec<u8>,
) -> Result<(), CompressionError> {
    let start = out.len();
    let result = match algorithm {
        Algorithm::Lz4 => decompress_lz4(body, max, out),
        Algorithm::Snappy => decompress_snappy(body, max, out),
    };
    if result.is_err() {
        out.truncate(start);
    }
    result
}

fn decompress_lz4(body: &[u8], max: u32, out: &mut Vec<u8>) -> Result<(), CompressionError> {
    let Some((length, block)) = body.split_first_chunk::<4>() else {
        return Err(CompressionError::Truncated { found: body.len() });
    };
    let claimed = u32::from_be_bytes(*length);
    check_claim(u64::from(claimed), max, block.len(), LZ4_RATIO_MAX)?;
    lz4_block(block, claimed as usize, out)
}

/// Appends the decompressed LZ4 block `block`, which holds `claimed` bytes; the caller has checked
/// the claim.
pub(super) fn lz4_block(
    block: &[u8],
    claimed: usize,
    out: &mut Vec<u8>,
) -> Result<(), CompressionError> {
    if claimed == 0 && block.is_empty() {
        return Ok(());
    }
    let start = out.len();
    out.resize(start + claimed, 0);
    let found = decompress_into(block, out.get_mut(start..).unwrap_or_default());
    match found {
        Ok(found) if found == claimed => Ok(()),
        Ok(found) => Err(CompressionError::LengthMismatch { claimed, found }),
        Err(_) => Err(CompressionError::Damaged(Algorithm::Lz4)),
    }
}

fn decompress_snappy(body: &[u8], max: u32, out: &mut Vec<u8>) -> Result<(), CompressionError> {
    let damaged = CompressionError::Damaged(Algorithm::Snappy);
    let claimed = snap::raw::decompress_len(body).map_err(|_| damaged)?;
    check_claim(claimed as u64, max, body.len(), SNAPPY_RATIO_MAX)?;
    let start = out.len();
    out.resize(start + claimed, 0);
    let room = out.get_mut(start..).unwrap_or_default();
    let found = snap::raw::Decoder::new().decompress(body, room).map_err(|_| damaged)?;
    if found == claimed { Ok(()) } else { Err(CompressionError::LengthMismatch { claimed, found }) }
}

fn check_claim(
    claimed: u64,
    max: u32,
    compressed: usize,
    ratio: u64,
) -> Result<(), CompressionError> {
    if claimed > u64::from(max) {
        return Err(CompressionError::TooLarge { claimed, max: u64::from(max) });
    }
    if claimed > (compressed as u64).saturating_mul(ratio).saturating_add(RATIO_SLACK) {
        return Err(CompressionError::Implausible { claimed, compressed });
    }
    Ok(())
}

/// Compressor of bodies. Keeps its tables, so that it allocates once rather than per body.
pub struct Compressor {
    lz4_small: Option<CompressTable>,
    lz4_large: Option<CompressTable>,
    snappy: Option<Box<snap::raw::Encoder>>,
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor").finish_non_exhaustive()
    }
}

impl Default for Compressor {
    fn default() -> Compressor {
        Compressor::new()
    }
}

impl Compressor {
    /// A compressor for any algorithm; allocates on first use.
    pub fn new() -> Compressor {
        Compressor { lz4_small: None, lz4_large: None, snappy: None }
    }

    /// Appends the compressed `body` to `out` and returns `true`. Returns `false` and appends
    /// nothing if compression does not shorten the body; the body then goes out uncompressed and
    /// without the compression flag.
    pub fn compress(&mut self, algorithm: Algorithm, body: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let written = match algorithm {
            Algorithm::Lz4 => u32::try_from(body.len()).ok().and_then(|length| {
                out.extend_from_slice(&length.to_be_bytes());
                self.lz4_block(body, out)
            }),
            Algorithm::Snappy => self.snappy(body, out),
        };
        let shorter = written.is_some() && out.len() - start < body.len();
        if !shorter {
            out.truncate(start);
        }
        shorter
    }

    /// Appends `body` as one LZ4 block and returns its length. On `None` the content behind the old
    /// end of `out` is undefined.
    pub(super) fn lz4_block(&mut self, body: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        // Each body clears the table, so the smaller table pays off.
        let table = match body.len() < LZ4_SMALL_BYTES {
            true => self.lz4_small.get_or_insert_with(CompressTable::small),
            false => self.lz4_large.get_or_insert_with(CompressTable::large),
        };
        let start = out.len();
        out.resize(start + get_maximum_output_size(body.len()), 0);
        let written = compress_into_with_table(body, out.get_mut(start..)?, table).ok()?;
        out.truncate(start + written);
        Some(written)
    }

    fn snappy(&mut self, body: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let encoder = self.snappy.get_or_insert_with(|| Box::new(snap::raw::Encoder::new()));
        let start = out.len();
        // 0 means that the body is too long for the format.
        let room = Some(snap::raw::max_compress_len(body.len())).filter(|room| *room > 0)?;
        out.resize(start + room, 0);
        let written = encoder.compress(body, out.get_mut(start..)?).ok()?;
        out.truncate(start + written);
        Some(written)
    }
}
