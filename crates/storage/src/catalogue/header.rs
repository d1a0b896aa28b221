//! Reads headers of partitions in place: finds the deletion over one row without decoding thousands
//! of ranges.
//!
//! A reader may get a header as a list of the fragments it was written in
//! ([`super::encode_unmerged`]): merging them costs more than reading each. A broken fragment must
//! never count as empty, nor may the fragments behind it be skipped: it makes the whole header an
//! error.

use super::bytes::Reader;
use super::error::DecodeError;
use super::layout::{EPOCH_US, KIND_HEADER, KIND_UNMERGED, VERSION};
use super::view::{kind, read_deletion};
use crate::row::{Cut, Deletion, Header, RangeTombstone};

/// Fragments on a header are worth folding into it once they reach a quarter of its size. A header
/// of any size is then rewritten only a constant number of times per doubling.
const FOLD_SHARE: usize = 4;

/// A borrowed cut: kind, bytes, side. Sorts in the order of cuts.
type CutView<'a> = (u8, &'a [u8], u8);

/// Decodes the header of a record, merging its fragments if it has several.
pub fn decode_header(bytes: &[u8]) -> Result<Header, DecodeError> {
    let mut fragments = Vec::new();
    each_fragment(bytes, |fragment| {
        fragments.push(decode_fragment(fragment)?);
        Ok(())
    })?;
    Ok(Header::merge_all(fragments))
}

/// Returns the deletion in a header's record at the row of these clustering bytes; without
/// clustering bytes, the deletion of the whole partition.
pub fn covering(bytes: &[u8], clustering: Option<&[u8]>) -> Result<Option<Deletion>, DecodeError> {
    let mut strongest = None;
    each_fragment(bytes, |fragment| {
        strongest = strongest.max(fragment_covering(fragment, clustering)?);
        Ok(())
    })?;
    Ok(strongest)
}

/// True if a header's record has fragments that are worth merging.
pub fn is_worth_folding(bytes: &[u8]) -> bool {
    let mut reader = Reader::new(bytes);
    let mut first = || {
        (reader.byte("kind").ok()? == VERSION << 4 | KIND_UNMERGED).then_some(())?;
        reader.count("number of fragments").ok()?;
        reader.count("fragment").ok()
    };
    first().is_some_and(|first| bytes.len().saturating_sub(first) > first / FOLD_SHARE)
}

fn each_fragment<'a>(
    bytes: &'a [u8],
    mut visit: impl FnMut(&'a [u8]) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    if bytes.first() != Some(&(VERSION << 4 | KIND_UNMERGED)) {
        return visit(bytes);
    }
    let mut reader = Reader::new(bytes);
    reader.byte("kind")?;
    for _ in 0..reader.count("number of fragments")? {
        visit(reader.bytes("fragment")?)?;
    }
    reader.end("bytes after the last fragment")
}

/// Reads the deletion of the partition, and the number of ranges that follow.
fn read_head(reader: &mut Reader<'_>) -> Result<(Option<Deletion>, usize), DecodeError> {
    kind(reader, KIND_HEADER)?;
    let head = reader.varint("ranges")?;
    let deletion = if head & 1 == 1 { Some(read_deletion(reader, EPOCH_US)?) } else { None };
    let count = usize::try_from(head >> 1).ok().filter(|count| *count <= reader.remaining());
    Ok((deletion, count.ok_or_else(|| reader.error("number of ranges"))?))
}

fn decode_fragment(bytes: &[u8]) -> Result<Header, DecodeError> {
    let mut reader = Reader::new(bytes);
    let (deletion, count) = read_head(&mut reader)?;
    let mut ranges: Vec<RangeTombstone> = Vec::with_capacity(count);
    for _ in 0..count {
        let (start, end) = (owned(read_cut(&mut reader)?), owned(read_cut(&mut reader)?));
        if start >= end || ranges.last().is_some_and(|last| last.end > start) {
            return Err(reader.error("ranges out of order"));
        }
        ranges.push(RangeTombstone { start, end, deletion: read_deletion(&mut reader, EPOCH_US)? });
    }
    reader.end("bytes after the last range")?;
    Ok(Header { deletion, ranges })
}

fn fragment_covering(
    bytes: &[u8],
    clustering: Option<&[u8]>,
) -> Result<Option<Deletion>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let (deletion, count) = read_head(&mut reader)?;
    let Some(clustering) = clustering else { return Ok(deletion) };
    let place: CutView<'_> = (1, clustering, 0);
    for _ in 0..count {
        let (start, end) = (read_cut(&mut reader)?, read_cut(&mut reader)?);
        let ranged = read_deletion(&mut reader, EPOCH_US)?;
        if start > place {
            break;
        }
        if place < end {
            return Ok(deletion.max(Some(ranged)));
        }
    }
    Ok(deletion)
}

fn read_cut<'a>(reader: &mut Reader<'a>) -> Result<CutView<'a>, DecodeError> {
    match reader.byte("bound of a range")? {
        0 => Ok((0, &[], 0)),
        1 => Ok((1, reader.bytes("bound of a range")?, 0)),
        2 => Ok((1, reader.bytes("bound of a range")?, 1)),
        3 => Ok((2, &[], 0)),
        _ => Err(reader.error("kind of a bound")),
    }
}

fn owned(cut: CutView<'_>) -> Cut {
    match cut {
        (0, ..) => Cut::Start,
        (1, bytes, 0) => Cut::Before(bytes.to_vec()),
        (1, bytes, _) => Cut::After(bytes.to_vec()),
        _ => Cut::End,
    }
}
