//! Envelopes of a v5 server, in segments with checksums: several whole ones in each, or a part of a
//! large one.
//!
//! Segments with no answer to offer pass on unchanged. From others the offered answer is taken out,
//! and the remaining envelopes go on in new segments.

use shunt_wire::cql::envelope::{HEADER_BYTES, Header, opcode};
use shunt_wire::cql::frame_v5::{self, Segment, SegmentWriter};

/// A link's position in a stream of segments.
#[derive(Debug)]
pub(crate) enum Run {
    /// The next segment begins with an envelope.
    Between,
    /// This many bytes of a large envelope are still to be passed on.
    Passing(usize),
    /// A large envelope is being taken in; its length with the header.
    TakingIn(Vec<u8>, usize),
}

/// Receiver of a stream's segments and envelopes.
pub(crate) trait Sink {
    /// True if this answer is to be offered; its room is then reserved.
    fn is_offered(&mut self, header: &Header) -> bool;
    /// Passes a segment on unchanged; it has this many bytes of envelopes.
    fn pass(&mut self, segment: &[u8], bytes: usize);
    /// Writes whole envelopes, in new segments.
    fn write(&mut self, envelopes: &[u8]);
    /// Takes an answer to be offered.
    fn offer(&mut self, envelope: Vec<u8>);
}

/// The bytes are not envelopes, or cannot be separated.
#[derive(Debug)]
pub(crate) struct Broken;

/// Reads a segment, starting at `run`, which is left as `Between` meanwhile. Returns the next
/// position and the bytes used; `None` if the segment is incomplete.
pub(crate) fn read(
    run: &mut Run,
    data: &[u8],
    sink: &mut impl Sink,
) -> Result<Option<(Run, usize)>, Broken> {
    // Links have no compression of segments.
    let segment = frame_v5::decode(data, false).map_err(|_| Broken)?;
    let Some(segment) = segment else { return Ok(None) };
    let raw = &data[..segment.consumed];
    let next = match run {
        Run::Between if segment.self_contained => whole_envelopes(raw, &segment, sink)?,
        Run::Between => first_part(raw, segment.payload, sink)?,
        _ if segment.self_contained => return Err(Broken),
        Run::Passing(left) => pass_on(raw, segment.payload.len(), *left, sink)?,
        Run::TakingIn(envelope, whole) => {
            if segment.payload.len() > *whole - envelope.len() {
                return Err(Broken);
            }
            take_in(std::mem::take(envelope), *whole, segment.payload, sink)
        }
    };
    Ok(Some((next, segment.consumed)))
}

/// Reads a segment of whole envelopes.
fn whole_envelopes(raw: &[u8], segment: &Segment<'_>, sink: &mut impl Sink) -> Result<Run, Broken> {
    let payload = segment.payload;
    // Check all headers before any of the segment goes on.
    let (mut at, mut ends) = (0, Vec::new());
    while at < payload.len() {
        let header = header(&payload[at..])?;
        at += HEADER_BYTES + header.length as usize;
        ends.push((header, at));
    }
    if at > payload.len() {
        return Err(Broken);
    }
    let (mut start, mut passed, mut is_rewritten) = (0, 0, false);
    for (header, end) in ends {
        if sink.is_offered(&header) {
            // Envelopes before the answer go on; those behind it follow in a later write.
            sink.write(&payload[passed..start]);
            sink.offer(payload[start..end].to_vec());
            (passed, is_rewritten) = (end, true);
        }
        start = end;
    }
    if is_rewritten {
        sink.write(&payload[passed..])
    } else {
        sink.pass(raw, payload.len())
    }
    Ok(Run::Between)
}

/// Reads the first part of an envelope that spans segments.
fn first_part(raw: &[u8], payload: &[u8], sink: &mut impl Sink) -> Result<Run, Broken> {
    let header = header(payload)?;
    let whole = HEADER_BYTES + header.length as usize;
    if payload.len() <= whole && sink.is_offered(&header) {
        return Ok(take_in(Vec::with_capacity(whole), whole, payload, sink));
    }
    pass_on(raw, payload.len(), whole, sink)
}

/// Takes in a part that is at most as long as the missing rest.
fn take_in(mut envelope: Vec<u8>, whole: usize, payload: &[u8], sink: &mut impl Sink) -> Run {
    envelope.extend_from_slice(payload);
    if envelope.len() < whole {
        return Run::TakingIn(envelope, whole);
    }
    sink.offer(envelope);
    Run::Between
}

/// Passes on a segment with `bytes` of an envelope that has `left` bytes to come.
fn pass_on(raw: &[u8], bytes: usize, left: usize, sink: &mut impl Sink) -> Result<Run, Broken> {
    let left = left.checked_sub(bytes).ok_or(Broken)?;
    sink.pass(raw, bytes);
    Ok(if left == 0 { Run::Between } else { Run::Passing(left) })
}

/// Decodes a header from the server; only this agent may send OFFERED.
fn header(bytes: &[u8]) -> Result<Header, Broken> {
    Header::decode(bytes).filter(|header| header.opcode != opcode::OFFERED).ok_or(Broken)
}

/// Appends whole envelopes in new segments.
pub(crate) fn append(out: &mut Vec<u8>, lz4: bool, mut envelopes: &[u8]) {
    let mut writer = SegmentWriter::new(lz4);
    while let Some((header, rest)) = envelopes.split_first_chunk::<HEADER_BYTES>() {
        let length =
            Header::decode(header).map_or(0, |header| header.length as usize).min(rest.len());
        writer.push(out, header, &rest[..length]);
        envelopes = &rest[length..];
    }
    writer.finish(out);
}
