//! Layout of the log's pages. A page holds whole records only, so that one read of one page answers
//! a hit. A record larger than a page starts on its own page and takes as many consecutive pages as
//! it needs, read at once.
//!
//! ```text
//! page    magic u32 | sequence of the segment u64
//!         | pages of the record that starts here u16 (1: packed) | 0 u16
//! record  crc u32 | epoch u32 | key bytes u16 | flags u8 | record bytes u24 | key | record
//! ```
//! Little endian. The checksum covers the segment's sequence, the slot and all of the record: a
//! page left over from a former life of its segment never passes as a record, and a wrong length
//! never turns one record into another. A key length of zero ends a page.

pub(crate) const PAGE_BYTES: usize = 4096;
pub(crate) const PAGE_HEADER_BYTES: usize = 16;
pub(super) const RECORD_HEADER_BYTES: usize = 14;
/// Slots from this one on mean "a record of `slot - LARGE + 2` pages".
pub(super) const LARGE: u8 = 224;
/// The largest record, in pages.
pub(super) const RECORD_PAGES_MAX: usize = (u8::MAX - LARGE) as usize + 2;

const MAGIC: u32 = 0x5243_4853;
const FLAG_ABSENT: u8 = 1;

/// Reasons why bytes are not the requested record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageFault {
    /// Not a page of the log, or a page of another life of the segment.
    Foreign,
    /// No record in this slot.
    NoSlot,
    /// Invalid lengths or a wrong checksum.
    Broken,
}

/// A record as it lies in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) key: &'a [u8],
    /// `None` if the row is known not to exist.
    pub(crate) payload: Option<&'a [u8]>,
    pub(crate) epoch: u32,
}

impl Record<'_> {
    pub(crate) fn encoded_bytes(&self) -> usize {
        RECORD_HEADER_BYTES + self.key.len() + self.payload.map_or(0, <[u8]>::len)
    }

    /// Writes the record to the front of `into`. Its key must have 1 to 65,535 bytes, the record at
    /// most `RECORD_PAGES_MAX` pages.
    pub(crate) fn encode(&self, sequence: u64, slot: u8, into: &mut [u8]) {
        let payload = self.payload.unwrap_or_default();
        let (header, body) = into[..self.encoded_bytes()].split_at_mut(RECORD_HEADER_BYTES);
        body[..self.key.len()].copy_from_slice(self.key);
        body[self.key.len()..].copy_from_slice(payload);
        header[4..8].copy_from_slice(&self.epoch.to_le_bytes());
        header[8..10].copy_from_slice(&(self.key.len() as u16).to_le_bytes());
        header[10] = if self.payload.is_none() { FLAG_ABSENT } else { 0 };
        header[11..14].copy_from_slice(&(payload.len() as u32).to_le_bytes()[..3]);
        let crc = checksum(sequence, slot, &header[4..], body);
        header[..4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Number of pages for a record of this encoded length; 1 if it is packed with others.
pub(super) fn record_pages(encoded_bytes: usize) -> usize {
    (PAGE_HEADER_BYTES + encoded_bytes).div_ceil(PAGE_BYTES)
}

/// Number of pages to read for a slot.
pub(crate) fn slot_pages(slot: u8) -> usize {
    if slot < LARGE { 1 } else { usize::from(slot - LARGE) + 2 }
}

pub(crate) fn write_header(page: &mut [u8], sequence: u64, pages: usize) {
    page[..4].copy_from_slice(&MAGIC.to_le_bytes());
    page[4..12].copy_from_slice(&sequence.to_le_bytes());
    page[12..14].copy_from_slice(&(pages as u16).to_le_bytes());
    page[14..16].fill(0);
}

/// Number of pages of the content that starts on this page; `None` if it is not of this life of the
/// segment.
pub(super) fn pages_here(page: &[u8], sequence: u64) -> Option<usize> {
    let header = page.get(..PAGE_HEADER_BYTES)?;
    let pages = usize::from(u16::from_le_bytes([header[12], header[13]]));
    let ours = header[..4] == MAGIC.to_le_bytes() && header[4..12] == sequence.to_le_bytes();
    (ours && (1..=RECORD_PAGES_MAX).contains(&pages)).then_some(pages)
}

/// The record in a slot of the given page or pages.
pub(crate) fn record_at(bytes: &[u8], sequence: u64, slot: u8) -> Result<Record<'_>, PageFault> {
    if pages_here(bytes, sequence) != Some(slot_pages(slot)) {
        return Err(PageFault::Foreign);
    }
    let wanted = if slot < LARGE { usize::from(slot) } else { 0 };
    let mut records = Spans { bytes, at: PAGE_HEADER_BYTES };
    match records.nth(wanted) {
        Some(span) => decode(span?, sequence, slot),
        None => Err(PageFault::NoSlot),
    }
}

/// All records that start on this page, with their slots. Omits broken records; one with a wrong
/// length hides those after it.
pub(crate) fn records<'a>(
    bytes: &'a [u8],
    sequence: u64,
) -> impl Iterator<Item = (u8, Record<'a>)> {
    let pages = pages_here(bytes, sequence);
    let spans = pages.map(|_| Spans { bytes, at: PAGE_HEADER_BYTES }).into_iter().flatten();
    let first = if pages.unwrap_or(1) > 1 { LARGE - 2 + pages.unwrap_or(2) as u8 } else { 0 };
    // A large record has none behind it, whatever the unchecked bytes of the page say.
    let most = if first == 0 { usize::from(LARGE) } else { 1 };
    let slots =
        spans.take(most).enumerate().map_while(|(slot, span)| Some((slot as u8, span.ok()?)));
    slots.filter_map(move |(slot, span)| {
        Some((first + slot, decode(span, sequence, first + slot).ok()?))
    })
}

/// Spans given by the lengths in a page, one after another.
struct Spans<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Spans<'a> {
    type Item = Result<&'a [u8], PageFault>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.at..)?;
        let header = rest.get(..RECORD_HEADER_BYTES)?;
        let key_bytes = usize::from(u16::from_le_bytes([header[8], header[9]]));
        if key_bytes == 0 {
            return None;
        }
        let payload_bytes = u32::from_le_bytes([header[11], header[12], header[13], 0]) as usize;
        let span_bytes = RECORD_HEADER_BYTES + key_bytes + payload_bytes;
        self.at += span_bytes;
        Some(rest.get(..span_bytes).ok_or(PageFault::Broken))
    }
}

fn decode(span: &[u8], sequence: u64, slot: u8) -> Result<Record<'_>, PageFault> {
    let (header, body) = span.split_at(RECORD_HEADER_BYTES);
    let stored = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    if checksum(sequence, slot, &header[4..], body) != stored {
        return Err(PageFault::Broken);
    }
    let epoch = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    let (key, payload) = body.split_at(usize::from(u16::from_le_bytes([header[8], header[9]])));
    Ok(Record { key, payload: (header[10] & FLAG_ABSENT == 0).then_some(payload), epoch })
}

fn checksum(sequence: u64, slot: u8, header: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&sequence.to_le_bytes());
    hasher.update(&[slot]);
    hasher.update(header);
    hasher.update(body);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Packs as many of the records as fit into a page.
    fn pack(records: &[(Vec<u8>, Option<Vec<u8>>)], sequence: u64) -> (Vec<u8>, usize) {
        let mut page = vec![0; PAGE_BYTES];
        write_header(&mut page, sequence, 1);
        let mut at = PAGE_HEADER_BYTES;
        for (number, (key, payload)) in records.iter().enumerate() {
            let record = Record { key, payload: payload.as_deref(), epoch: number as u32 };
            if at + record.encoded_bytes() > PAGE_BYTES {
                return (page, number);
            }
            record.encode(sequence, number as u8, &mut page[at..]);
            at += record.encoded_bytes();
        }
        (page, records.len())
    }

    fn any_records() -> impl Strategy<Value = Vec<(Vec<u8>, Option<Vec<u8>>)>> {
        let key = prop::collection::vec(any::<u8>(), 1..40);
        prop::collection::vec(
            (key, prop::option::of(prop::collection::vec(any::<u8>(), 0..300))),
            1..40,
        )
    }

    proptest! {
        #[test]
        fn packed_records_are_found(given in any_records(), sequence: u64) {
            let (page, packed) = pack(&given, sequence);
            prop_assert_eq!(records(&page, sequence).count(), packed);
            for (slot, (key, payload)) in given[..packed].iter().enumerate() {
                let record = record_at(&page, sequence, slot as u8).unwrap();
                prop_assert_eq!((record.key, record.payload), (&key[..], payload.as_deref()));
                prop_assert_eq!(record.epoch, slot as u32);
            }
            prop_assert_eq!(record_at(&page, sequence.wrapping_add(1), 0), Err(PageFault::Foreign));
            prop_assert!(record_at(&page, sequence, packed as u8).is_err());
        }

        #[test]
        fn a_flipped_bit_is_never_a_record(given in any_records(), sequence: u64, at in 0..PAGE_BYTES * 8) {
            let (mut page, packed) = pack(&given, sequence);
            page[at / 8] ^= 1 << (at % 8);
            for (slot, (key, payload)) in given[..packed].iter().enumerate() {
                if let Ok(record) = record_at(&page, sequence, slot as u8) {
                    prop_assert_eq!((record.key, record.payload), (&key[..], payload.as_deref()));
                }
            }
        }

        #[test]
        fn garbage_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..PAGE_BYTES * 2), slot: u8) {
            prop_assert!(record_at(&bytes, 1, slot).is_err());
            prop_assert_eq!(records(&bytes, 1).count(), 0);
        }
    }

    #[test]
    fn a_wrong_length_does_not_make_one_record_stand_in_for_another() {
        let given: Vec<_> =
            (0..4).map(|number| (vec![number + 1; 10], Some(vec![number; 50]))).collect();
        let (mut page, _) = pack(&given, 5);
        let record_bytes = (RECORD_HEADER_BYTES + 60) as u8;
        page[PAGE_HEADER_BYTES + 11] += record_bytes;
        assert_eq!(
            record_at(&page, 5, 1),
            Err(PageFault::Broken),
            "the third record, were it not for its slot"
        );
    }

    #[test]
    fn a_page_that_claims_to_begin_a_large_record_has_no_other() {
        let given: Vec<_> =
            (0..4).map(|number| (vec![number + 1; 10], Some(vec![number; 50]))).collect();
        let (mut page, _) = pack(&given, 5);
        for pages in 2..=RECORD_PAGES_MAX {
            write_header(&mut page, 5, pages);
            assert_eq!(records(&page, 5).count(), 0, "{pages} pages");
        }
    }

    #[test]
    fn a_large_record_takes_pages_of_its_own() {
        let payload = vec![7; 3 * PAGE_BYTES];
        let record = Record { key: b"key", payload: Some(&payload), epoch: 9 };
        let pages = record_pages(record.encoded_bytes());
        assert_eq!(pages, 4);
        let mut bytes = vec![0; pages * PAGE_BYTES];
        write_header(&mut bytes, 5, pages);
        let slot = LARGE - 2 + pages as u8;
        record.encode(5, slot, &mut bytes[PAGE_HEADER_BYTES..]);
        assert_eq!(slot_pages(slot), pages);
        assert_eq!(record_at(&bytes, 5, slot), Ok(record));
        assert_eq!(records(&bytes, 5).collect::<Vec<_>>(), [(slot, record)]);
        assert_eq!(
            record_at(&bytes[..2 * PAGE_BYTES], 5, slot),
            Err(PageFault::Broken),
            "cut short"
        );
    }
}
