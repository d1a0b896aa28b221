//! Envelopes out of received bytes and into output buffers, in all three ways a CQL connection has: bare (v3, v4 and
//! every handshake), with compressed bodies (v3, v4), in segments (v5). For whoever serves or uses a connection
//! as a whole; the proxy, which passes bodies on, reads envelopes itself.

use std::fmt;

use crate::cql::{
    compression::{self, Algorithm, Compressor},
    envelope::{BODY_BYTES_MAX, HEADER_BYTES, Header, flag},
    frame_v5::{self, SegmentWriter},
};

/// Buffers that one event loop lends to whichever connection is being served.
#[derive(Debug, Default)]
pub struct Scratch {
    segment: Vec<u8>,
    body: Vec<u8>,
}

/// The reader's next step after an envelope.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next {
    /// The next envelope.
    Continue,
    /// Everything from here on comes in segments (v5, after the handshake's first answer).
    Segments {
        /// True if segments may be compressed with LZ4.
        lz4: bool,
    },
    /// Nothing more for now. What shares a segment with this envelope still comes.
    Pause,
    /// Nothing more; the connection is being closed.
    Stop,
}

/// Input that is not CQL.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InputFault(pub String);

impl fmt::Display for InputFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The receiving side of a connection.
#[derive(Debug)]
pub struct Input {
    segments: Option<bool>,
    /// Algorithm of compressed bodies (v3, v4), once negotiated.
    pub compression: Option<Algorithm>,
    /// Largest body taken, compressed or not; larger ones are refused by their header.
    pub body_bytes_max: u32,
    assembly: Vec<u8>,
}

impl Default for Input {
    fn default() -> Input {
        Input { segments: None, compression: None, body_bytes_max: BODY_BYTES_MAX, assembly: Vec::new() }
    }
}

impl Input {
    /// Hands every complete envelope in `data` to `handle`, with its body uncompressed; returns how many bytes were
    /// used. Called again with what was left in front of what arrived since.
    ///
    /// # Errors
    /// The bytes cannot be CQL; the connection has to be closed.
    pub fn feed(
        &mut self,
        data: &[u8],
        scratch: &mut Scratch,
        mut handle: impl FnMut(Header, &[u8]) -> Next,
    ) -> Result<usize, InputFault> {
        let mut used = 0;
        while used < data.len() {
            let step = match self.segments {
                None => self.bare(&data[used..], scratch, &mut handle)?,
                Some(lz4) => self.segment(&data[used..], lz4, scratch, &mut handle)?,
            };
            match step {
                None => break,
                Some((count, Next::Stop | Next::Pause)) => return Ok(used + count),
                Some((count, next)) => {
                    used += count;
                    if let Next::Segments { lz4 } = next {
                        self.segments = Some(lz4);
                    }
                }
            }
        }
        Ok(used)
    }

    fn bare(
        &self,
        data: &[u8],
        scratch: &mut Scratch,
        handle: &mut impl FnMut(Header, &[u8]) -> Next,
    ) -> Result<Option<(usize, Next)>, InputFault> {
        let Some((header, body)) = split(data, self.body_bytes_max)? else { return Ok(None) };
        let used = HEADER_BYTES + body.len();
        if header.flags & flag::COMPRESSION == 0 || header.version >= 5 {
            return Ok(Some((used, handle(header, body))));
        }
        let algorithm = self.compression.ok_or_else(|| InputFault("compressed body, none was negotiated".into()))?;
        scratch.body.clear();
        compression::decompress(algorithm, body, self.body_bytes_max, &mut scratch.body)
            .map_err(|error| InputFault(format!("compressed body: {error}")))?;
        Ok(Some((used, handle(header, &scratch.body))))
    }

    fn segment(
        &mut self,
        data: &[u8],
        lz4: bool,
        scratch: &mut Scratch,
        handle: &mut impl FnMut(Header, &[u8]) -> Next,
    ) -> Result<Option<(usize, Next)>, InputFault> {
        let fault = |error: frame_v5::FrameError| InputFault(format!("segment: {error}"));
        let Some(segment) = frame_v5::decode(data, lz4).map_err(fault)? else { return Ok(None) };
        let payload = segment.payload(&mut scratch.segment).map_err(fault)?;
        let whole;
        let mut rest = if segment.self_contained {
            payload
        } else {
            self.assembly.extend_from_slice(payload);
            if split(&self.assembly, self.body_bytes_max)?.is_none() {
                return Ok(Some((segment.consumed, Next::Continue)));
            }
            whole = std::mem::take(&mut self.assembly);
            &whole
        };
        let mut next = Next::Continue;
        while matches!(next, Next::Continue | Next::Pause) && !rest.is_empty() {
            let Some((header, body)) = split(rest, self.body_bytes_max)? else {
                return Err(InputFault("self-contained segment with part of an envelope".into()));
            };
            rest = &rest[HEADER_BYTES + body.len()..];
            next = match handle(header, body) {
                Next::Continue => next,
                other => other,
            };
        }
        Ok(Some((segment.consumed, next)))
    }
}

fn split(data: &[u8], bytes_max: u32) -> Result<Option<(Header, &[u8])>, InputFault> {
    let Some(header) = Header::decode(data) else { return Ok(None) };
    if header.length > bytes_max {
        return Err(InputFault(format!("a body of {} bytes exceeds the limit of {bytes_max} bytes", header.length)));
    }
    let end = HEADER_BYTES + header.length as usize;
    Ok(data.get(HEADER_BYTES..end).map(|body| (header, body)))
}

/// The sending side of a connection.
#[derive(Debug, Default)]
pub struct Output {
    writer: Option<SegmentWriter>,
    /// Algorithm of compressed bodies (v3, v4), once negotiated.
    pub compression: Option<Algorithm>,
    compressor: Compressor,
}

impl Output {
    /// From here on everything is sent in segments.
    pub fn start_segments(&mut self, lz4: bool) {
        self.writer = Some(SegmentWriter::new(lz4));
    }

    /// True if [`Output::finish`] has to be called before the buffer is sent.
    pub fn is_segmented(&self) -> bool {
        self.writer.is_some()
    }

    /// Appends one envelope to `out`; the header's length is set here.
    #[inline]
    pub fn push(&mut self, out: &mut Vec<u8>, mut header: Header, body: &[u8]) {
        header.length = body.len() as u32;
        if let Some(writer) = &mut self.writer {
            writer.push(out, &header.to_bytes(), body);
        } else if let Some(algorithm) = self.compression.filter(|_| !body.is_empty()) {
            push_compressed(out, &mut self.compressor, algorithm, header, body);
        } else {
            out.extend_from_slice(&header.to_bytes());
            out.extend_from_slice(body);
        }
    }

    /// Appends one envelope to `out` with the flags and body it has; the header's length is set here.
    pub fn push_as_is(&mut self, out: &mut Vec<u8>, mut header: Header, body: &[u8]) {
        header.length = body.len() as u32;
        out.extend_from_slice(&header.to_bytes());
        out.extend_from_slice(body);
    }

    /// Completes the segment at the end of `out`, if one is open.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some(writer) = &mut self.writer {
            writer.finish(out);
        }
    }
}

fn push_compressed(out: &mut Vec<u8>, compressor: &mut Compressor, algorithm: Algorithm, header: Header, body: &[u8]) {
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

#[cfg(test)]
mod tests {
    use crate::cql::{compression::Algorithm, envelope::Header};

    use super::{Input, Next, Output, Scratch};

    /// Sends bodies of these sizes through an output and its input in pieces of `piece` bytes.
    fn through(version: u8, compression: Option<Algorithm>, segments: Option<bool>, piece: usize) {
        let mut output = Output { compression, ..Output::default() };
        let mut input = Input { compression, segments, ..Input::default() };
        if let Some(lz4) = segments {
            output.start_segments(lz4);
        }
        let sizes = [0usize, 1, 70, 5000, 140_000, 300_000, 3];
        let mut wire = Vec::new();
        for (stream, &size) in sizes.iter().enumerate() {
            let body: Vec<u8> = (0..size).map(|index| (index / 7) as u8).collect();
            output.push(&mut wire, Header::response(version, stream as i16, 8), &body);
        }
        output.finish(&mut wire);
        let (mut scratch, mut found, mut start) = (Scratch::default(), Vec::new(), 0);
        let mut end = 0;
        while end < wire.len() {
            end = (end + piece).min(wire.len());
            start += input
                .feed(&wire[start..end], &mut scratch, |header, body| {
                    assert!(body.iter().enumerate().all(|(index, &byte)| byte == (index / 7) as u8));
                    found.push((header.stream, body.len()));
                    Next::Continue
                })
                .expect("valid");
        }
        let expected: Vec<_> = sizes.iter().enumerate().map(|(stream, &size)| (stream as i16, size)).collect();
        assert_eq!(found, expected);
        assert_eq!(start, wire.len());
    }

    #[test]
    fn all_framings_in_whole_and_in_pieces() {
        for piece in [usize::MAX >> 1, 1000, 131] {
            through(4, None, None, piece);
            through(3, Some(Algorithm::Lz4), None, piece);
            through(4, Some(Algorithm::Snappy), None, piece);
            through(5, None, Some(false), piece);
            through(5, None, Some(true), piece);
        }
    }

    #[test]
    fn an_oversized_header_is_refused_before_its_body() {
        let feed = |body_bytes_max, length| {
            let header = Header { length, ..Header::request(4, 0, 7) }.to_bytes();
            let mut input = Input { body_bytes_max, ..Input::default() };
            input.feed(&header, &mut Scratch::default(), |_, _| Next::Continue)
        };
        assert!(feed(Input::default().body_bytes_max, 0x7f00_0000).is_err());
        assert_eq!((feed(1000, 1000), feed(1000, 1001).is_err()), (Ok(0), true));
    }
}
