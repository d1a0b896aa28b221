//! Aggregated frames: the input is the body of one.

use shunt_wire::aggregate::{AggregateReader, AggregateWriter, Entry, Limits, Offer};
use shunt_wire::cql::envelope::{HEADER_BYTES, Header, opcode};

/// Tries one input.
pub fn run(data: &[u8]) {
    offer(data);
    let Ok(mut reader) = AggregateReader::new(data) else { return };
    let count = reader.left();
    let mut entries = Vec::new();
    for entry in reader.by_ref() {
        let Ok(entry) = entry else { break };
        assert_eq!(entry.body, &data[entry.offset..entry.offset + entry.body.len()]);
        entries.push(entry);
    }
    assert!(reader.position() <= data.len() && entries.len() <= count);
    assert!(reader.next().is_none());

    let roomy = Limits { count_max: u32::MAX, bytes_max: u32::MAX };
    let frames = write(roomy, &entries);
    if entries.len() == count && count > 0 {
        assert_eq!(frames[HEADER_BYTES..], data[..reader.position()]);
    }
    let tight = Limits { count_max: 3, bytes_max: 100 };
    let mut left = &entries[..];
    let frames = write(tight, &entries);
    let mut bytes = &frames[..];
    while let Some(header) = Header::decode(bytes) {
        assert_eq!((header.opcode, header.version), (opcode::AGGREGATE, 4));
        let (body, rest) = bytes[HEADER_BYTES..].split_at(header.length as usize);
        let found: Vec<Entry<'_>> = AggregateReader::new(body)
            .expect("our own frame")
            .map(|entry| entry.expect("our own entry"))
            .collect();
        assert!(found.len() <= 3 && (found.len() == 1 || body.len() <= 100));
        let (expected, after) = left.split_at(found.len());
        assert!(found.iter().zip(expected).all(|(found, expected)| same(found, expected)));
        (left, bytes) = (after, rest);
    }
    assert!(left.is_empty() && bytes.is_empty());
}

fn write(limits: Limits, entries: &[Entry<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = AggregateWriter::new(limits);
    for entry in entries {
        let Entry { stream, client_id, version, flags, opcode, body, .. } = *entry;
        let at = writer.push(&mut out, stream, client_id, version, flags, opcode, body);
        assert_eq!(&out[at..], body);
    }
    writer.finish(&mut out);
    out
}

/// Compares everything except the place of the body.
fn same(left: &Entry<'_>, right: &Entry<'_>) -> bool {
    Entry { offset: 0, ..*left } == Entry { offset: 0, ..*right }
}

/// The offer in SUPPORTED is text; also tries the input as one.
fn offer(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some(offer) = Offer::parse(text.split(',')) else { return };
    assert!(offer.count_max > 0 && offer.bytes_max > 0);
    assert_eq!(Offer::parse(offer.values().iter().map(String::as_str)), Some(offer));
}
