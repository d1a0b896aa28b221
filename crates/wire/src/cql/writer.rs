//! Writer of envelopes into output buffers, in all three framings of a CQL connection: bare (v3, v4
//! and every handshake), with compressed bodies (v3, v4), in segments (v5). Serves code that
//! handles a whole connection and reads with [`super::reader`]. The proxy passes bodies on
//! unchanged and writes its links and clients itself.

#[cfg(test)]
mod tests;

use super::compression::{Algorithm, Compressor};
use super::envelope::{HEADER_BYTES, Header, flag};
use super::frame_v5::SegmentWriter;

/// State of a connection for sending envelopes.
#[derive(Debug, Default)]
pub struct EnvelopeWriter {
    segments: Option<SegmentWriter>,
    /// Algorithm of compressed bodies (v3, v4), once agreed.
    pub compression: Option<Algorithm>,
    compressor: Compressor,
}

impl EnvelopeWriter {
    /// Sends all following envelopes in segments (v5, section 2.3.1), with LZ4 if STARTUP agreed on
    /// it.
    pub fn start_segments(&mut self, lz4: bool) {
        self.segments = Some(SegmentWriter::new(lz4));
    }

    /// True if [`EnvelopeWriter::finish`] must be called before the buffer is sent.
    #[inline]
    pub fn is_segmented(&self) -> bool {
        self.segments.is_some()
    }

    /// Returns whether segments may be compressed with LZ4; `None` if the connection has no
    /// segments.
    #[inline]
    pub(super) fn segments_lz4(&self) -> Option<bool> {
        self.segments.as_ref().map(SegmentWriter::is_lz4)
    }

    /// Appends one envelope to `out` and sets the header's length.
    #[inline]
    pub fn push(&mut self, out: &mut Vec<u8>, mut header: Header, body: &[u8]) {
        header.length = body.len() as u32;
        if let Some(writer) = &mut self.segments {
            writer.push(out, &header.to_bytes(), body);
        } else if let Some(algorithm) = self.compression.filter(|_| !body.is_empty()) {
            push_compressed(out, &mut self.compressor, algorithm, header, body);
        } else {
            out.extend_from_slice(&header.to_bytes());
            out.extend_from_slice(body);
        }
    }

    /// Appends one envelope to `out` with its flags and body unchanged, and sets the header's
    /// length.
    pub fn push_as_is(&mut self, out: &mut Vec<u8>, mut header: Header, body: &[u8]) {
        header.length = body.len() as u32;
        out.extend_from_slice(&header.to_bytes());
        out.extend_from_slice(body);
    }

    /// Completes the segment at the end of `out`, if one is open.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some(writer) = &mut self.segments {
            writer.finish(out);
        }
    }
}

fn push_compressed(
    out: &mut Vec<u8>,
    compressor: &mut Compressor,
    algorithm: Algorithm,
    header: Header,
    body: &[u8],
) {
    let start = out.len();
    out.extend_from_slice(&header.to_bytes());
    if compressor.compress(algorithm, body, out) {
        out[start + 1] |= flag::COMPRESSION;
        let length = (out.len() - start - HEADER_BYTES) as u32;
        out[start + 5..start + HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
    } else {
        out.extend_from_slice(body);
    }
}
