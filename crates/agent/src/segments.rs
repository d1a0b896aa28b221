//! Envelopes of a v5 server, which come in segments with checksums: as many as fit, or a part of a
//! large one.
//!
//! Segments without anything to be offered go on as they came. Of others the offered answer is
//! taken out, and what else is in them goes on in new ones.

use shunt_wire::cql::envelope::{HEADER_BYTES, Header, opcode};
use shunt_wire::cql::frame_v5::{self, Segment, SegmentWriter};

/// Where in a stream of segments a link is.
#[derive(Debug)]
pub(crate) enum Run {
    /// The next segment begins with an envelope.
    Between,
    /// So many bytes of a large envelope are to be passed on.
    Passing(usize),
    /// A large envelope is being taken in; with its header it has so many bytes.
    TakingIn(Vec<u8>, usize),
}

/// What becomes of what comes.
pub(crate) trait Sink {
    /// Is this the answer to be offered? Then there is room for it.
    fn is_offered(&mut self, header: &Header) -> bool;
    /// A segment goes on as it came, with so many bytes of envelopes.
    fn pass(&mut self, segment: &[u8], bytes: usize);
    /// Whole envelopes go on, in segments of their own.
    fn write(&mut self, envelopes: &[u8]);
    /// An answer is here.
    fn offer(&mut self, envelope: Vec<u8>);
}

/// What comes are no envelopes, or cannot be told apart.
#[derive(Debug)]
pub(crate) struct Broken;

/// Reads a segment, from `run` on, which has to be between envelopes while it is read. Returns
/// where the next one is, and how many bytes were used; `None`: it is not there whole.
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

/// A segment of whole envelopes.
fn whole_envelopes(raw: &[u8], segment: &Segment<'_>, sink: &mut impl Sink) -> Result<Run, Broken> {
    let payload = segment.payload;
    // Before anything of it goes on.
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
            // All before it go on, and those behind it after it.
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

/// The first part of an envelope that has segments of its own.
fn first_part(raw: &[u8], payload: &[u8], sink: &mut impl Sink) -> Result<Run, Broken> {
    let header = header(payload)?;
    let whole = HEADER_BYTES + header.length as usize;
    if payload.len() <= whole && sink.is_offered(&header) {
        return Ok(take_in(Vec::with_capacity(whole), whole, payload, sink));
    }
    pass_on(raw, payload.len(), whole, sink)
}

/// Takes in a part that is no longer than what is missing.
fn take_in(mut envelope: Vec<u8>, whole: usize, payload: &[u8], sink: &mut impl Sink) -> Run {
    envelope.extend_from_slice(payload);
    if envelope.len() < whole {
        return Run::TakingIn(envelope, whole);
    }
    sink.offer(envelope);
    Run::Between
}

/// Passes a segment on, with so many bytes of the envelope of which so many are left.
fn pass_on(raw: &[u8], bytes: usize, left: usize, sink: &mut impl Sink) -> Result<Run, Broken> {
    let left = left.checked_sub(bytes).ok_or(Broken)?;
    sink.pass(raw, bytes);
    Ok(if left == 0 { Run::Between } else { Run::Passing(left) })
}

/// A header of the server's: an offer is this agent's word.
fn header(bytes: &[u8]) -> Result<Header, Broken> {
    Header::decode(bytes).filter(|header| header.opcode != opcode::OFFERED).ok_or(Broken)
}

/// Puts whole envelopes into segments of their own.
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
