//! The segment log: one logical file, appended at one place only, read anywhere.
//!
//! Its segments are files of equal size. The active one takes records through a buffer of 16 KB,
//! which look-ups can read as well; the others only serve reads until they are collected and
//! reused. One thread at a time appends (it holds the [`Appender`]). Readers share the state in
//! [`Log`] and never wait for another thread's I/O: the buffer stays readable while it is written
//! out, and only emptying it excludes readers for a moment.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::super::locks::{read, write};
use super::file::{AlignedBuffer, SegmentFile, SegmentStore};
use super::index::Location;
use super::page::{
    LARGE, PAGE_BYTES, PAGE_HEADER_BYTES, PageFault, Record, record_at, record_pages, slot_pages,
    write_header,
};
use crate::sync::RwLock;

/// Pages written at once.
pub(super) const BUFFER_PAGES: usize = 4;
/// Collection chooses among the oldest segments, this fraction of all (a divisor). With all or half
/// of them it drops rows too young to have been read: the hit ratio falls by up to one point if the
/// newest rows are the most requested.
const COLLECT_SHARE: usize = 4;

struct Segment {
    /// Identifies the current life of the segment; unique, also across restarts.
    sequence: AtomicU64,
    /// Records written in this life, and the number of them that an index points to.
    written: AtomicU32,
    live: AtomicU32,
    file: RwLock<Option<Arc<dyn SegmentFile>>>,
}

/// Pages of the active segment that are not on SSD yet.
struct WriteBuffer {
    bytes: AlignedBuffer,
    first_page: u32,
    /// Limited by the remaining room of the segment and by `BUFFER_PAGES`.
    pages: u32,
    sequence: u64,
}

pub(crate) struct Log {
    store: Box<dyn SegmentStore>,
    segments: Box<[Segment]>,
    segment_pages: u32,
    buffer: RwLock<WriteBuffer>,
    /// Total since the cache was opened.
    written_bytes: AtomicU64,
}

impl Log {
    pub(crate) fn new(store: Box<dyn SegmentStore>, segments: u32, segment_pages: u32) -> Self {
        let segment = |_| Segment {
            sequence: AtomicU64::new(0),
            written: AtomicU32::new(0),
            live: AtomicU32::new(0),
            file: RwLock::new(None),
        };
        let bytes = AlignedBuffer::new(BUFFER_PAGES * PAGE_BYTES);
        Log {
            store,
            segments: (0..segments).map(segment).collect(),
            segment_pages,
            buffer: RwLock::new(WriteBuffer { bytes, first_page: 0, pages: 0, sequence: 0 }),
            written_bytes: AtomicU64::new(0),
        }
    }

    /// Identifies the life of its segment that a page belongs to now.
    pub(crate) fn sequence(&self, page: u32) -> u64 {
        self.segment_of(page).sequence.load(Ordering::Acquire)
    }

    /// Counts an index entry that points to this place.
    pub(crate) fn acquire(&self, location: Location) {
        self.segment_of(location.page).live.fetch_add(1, Ordering::Relaxed);
    }

    /// Uncounts an index entry that pointed to this place.
    pub(crate) fn release(&self, location: Location) {
        self.segment_of(location.page).live.fetch_sub(1, Ordering::Relaxed);
    }

    /// Applies `take` to the record if its page is still in the write buffer; `None` if it is on
    /// SSD.
    pub(crate) fn in_buffer<T>(
        &self,
        location: Location,
        sequence: u64,
        take: impl FnOnce(Result<Record<'_>, PageFault>) -> T,
    ) -> Option<T> {
        let buffer = read(&self.buffer);
        let page =
            location.page.checked_sub(buffer.first_page).filter(|page| *page < buffer.pages)?
                as usize;
        let bytes = &buffer.bytes.bytes()[page * PAGE_BYTES..(page + 1) * PAGE_BYTES];
        Some(take(record_at(bytes, sequence, location.slot)))
    }

    /// The one read of a hit: reads the page or pages of a record.
    pub(crate) fn read<'b>(
        &self,
        location: Location,
        sequence: u64,
        buffer: &'b mut AlignedBuffer,
    ) -> io::Result<Result<Record<'b>, PageFault>> {
        let bytes = slot_pages(location.slot) * PAGE_BYTES;
        buffer.reserve(bytes);
        self.read_pages(location.page, &mut buffer.bytes_mut()[..bytes])?;
        Ok(record_at(&buffer.bytes()[..bytes], sequence, location.slot))
    }

    /// Reads pages of one segment.
    pub(super) fn read_pages(&self, first: u32, into: &mut [u8]) -> io::Result<()> {
        self.file_of(first)?.read_at(into, self.offset_of(first))
    }

    pub(crate) fn allocated_bytes(&self) -> u64 {
        let created = self.segments.iter().filter(|segment| read(&segment.file).is_some()).count();
        created as u64 * self.segment_bytes()
    }

    /// Bytes written to the files so far.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// The only function that writes to a file.
    fn write_pages(&self, first: u32, bytes: &[u8]) -> io::Result<()> {
        self.file_of(first)?.write_at(bytes, self.offset_of(first))?;
        self.written_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn live(&self, segment: u32) -> u32 {
        self.segments[segment as usize].live.load(Ordering::Relaxed)
    }

    fn written(&self, segment: u32) -> u32 {
        self.segments[segment as usize].written.load(Ordering::Relaxed)
    }

    /// Pages of a segment as indexes number them: from 1 on.
    pub(super) fn pages_of(&self, segment: u32) -> std::ops::Range<u32> {
        let first = 1 + segment * self.segment_pages;
        first..first + self.segment_pages
    }

    fn segment_bytes(&self) -> u64 {
        u64::from(self.segment_pages) * PAGE_BYTES as u64
    }

    fn segment_of(&self, page: u32) -> &Segment {
        &self.segments[((page - 1) / self.segment_pages) as usize]
    }

    fn offset_of(&self, page: u32) -> u64 {
        u64::from((page - 1) % self.segment_pages) * PAGE_BYTES as u64
    }

    fn file_of(&self, page: u32) -> io::Result<Arc<dyn SegmentFile>> {
        read(&self.segment_of(page).file)
            .clone()
            .ok_or_else(|| io::Error::other("the segment has no file"))
    }
}

/// Right to append: the place of the next record, and the free, filled and uncreated segments.
pub(crate) struct Appender {
    active: Option<u32>,
    /// First page in the buffer, counted from the active segment's first; page in the buffer; bytes
    /// used in it (0: not begun); records in it.
    buffer_first: u32,
    page: usize,
    page_bytes: usize,
    slot: u8,
    free: Vec<u32>,
    /// Oldest first.
    filled: VecDeque<u32>,
    made: u32,
    sequence: u64,
    large: AlignedBuffer,
}

impl Appender {
    pub(crate) fn new() -> Self {
        // Starting at the current time makes lives of segments distinct across restarts too.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Appender {
            active: None,
            buffer_first: 0,
            page: 0,
            page_bytes: 0,
            slot: 0,
            free: Vec::new(),
            filled: VecDeque::new(),
            made: 0,
            sequence: since_epoch.as_nanos() as u64,
            large: AlignedBuffer::default(),
        }
    }

    /// Restarts with an empty log and new files. No index may point into it.
    pub(super) fn restart(&mut self, log: &Log) -> io::Result<()> {
        for segment in &log.segments {
            // An old ticket finds another life rather than an error.
            segment.sequence.store(0, Ordering::Release);
            *write(&segment.file) = None;
        }
        *self = Appender { sequence: self.sequence, ..Appender::new() };
        self.roll(log)
    }

    /// Appends a record; `None` if the active segment has no room for it.
    pub(super) fn append(
        &mut self,
        log: &Log,
        record: &Record<'_>,
    ) -> io::Result<Option<Location>> {
        let Some(active) = self.active else { return Ok(None) };
        let bytes = record.encoded_bytes();
        let location = if record_pages(bytes) > 1 {
            self.append_large(log, active, record)?
        } else {
            self.append_packed(log, active, record)?
        };
        if location.is_some() {
            log.segments[active as usize].written.fetch_add(1, Ordering::Relaxed);
        }
        Ok(location)
    }

    /// Leaves the active segment and takes a free one, or creates one.
    pub(super) fn roll(&mut self, log: &Log) -> io::Result<()> {
        if let Some(active) = self.active {
            self.flush(log, active)?;
            self.active = None;
            self.filled.push_back(active);
        }
        let next = self.free.pop().unwrap_or(self.made);
        let segment = log
            .segments
            .get(next as usize)
            .ok_or_else(|| io::Error::other("no segment is free"))?;
        if read(&segment.file).is_none() {
            *write(&segment.file) = Some(log.store.create(next, log.segment_bytes())?);
            self.made = next + 1;
        }
        self.sequence += 1;
        segment.written.store(0, Ordering::Relaxed);
        // Before anything of the old life is overwritten: a reader that finds a changed page also
        // finds this change.
        segment.sequence.store(self.sequence, Ordering::Release);
        self.active = Some(next);
        self.buffer_first = 0;
        self.empty_buffer(log, next);
        Ok(())
    }

    /// True if the next roll would find no segment.
    pub(super) fn is_last(&self, log: &Log) -> bool {
        self.free.is_empty() && self.made as usize == log.segments.len()
    }

    /// True if the active segment is too full for further rewrites.
    pub(super) fn is_half_full(&self, log: &Log) -> bool {
        self.buffer_first + self.page as u32 >= log.segment_pages / 2
    }

    /// The next segment to collect: the one of the oldest quarter with the most garbage, the oldest
    /// among equals. Younger segments keep their chance to be read.
    pub(super) fn choose(&mut self, log: &Log) -> Option<u32> {
        let candidates = self.filled.len().div_ceil(COLLECT_SHARE);
        let percent_live = |segment: u32| {
            100 * u64::from(log.live(segment)) / u64::from(log.written(segment).max(1))
        };
        let oldest = self.filled.iter().take(candidates).enumerate();
        let (at, _) = oldest.min_by_key(|(at, segment)| (percent_live(**segment) / 5, *at))?;
        self.filled.remove(at)
    }

    pub(super) fn free(&mut self, segment: u32) {
        self.free.push(segment);
    }

    fn append_packed(
        &mut self,
        log: &Log,
        active: u32,
        record: &Record<'_>,
    ) -> io::Result<Option<Location>> {
        let bytes = record.encoded_bytes();
        if self.page_bytes > 0 && (self.page_bytes + bytes > PAGE_BYTES || self.slot == LARGE) {
            self.page += 1;
            self.page_bytes = 0;
        }
        if self.page == BUFFER_PAGES || self.buffer_first + self.page as u32 == log.segment_pages {
            self.flush(log, active)?;
        }
        if self.buffer_first == log.segment_pages {
            return Ok(None);
        }
        let mut buffer = write(&log.buffer);
        let sequence = buffer.sequence;
        let page =
            &mut buffer.bytes.bytes_mut()[self.page * PAGE_BYTES..(self.page + 1) * PAGE_BYTES];
        if self.page_bytes == 0 {
            write_header(page, sequence, 1);
            self.page_bytes = PAGE_HEADER_BYTES;
            self.slot = 0;
        }
        record.encode(sequence, self.slot, &mut page[self.page_bytes..]);
        let location = Location {
            page: log.pages_of(active).start + self.buffer_first + self.page as u32,
            slot: self.slot,
        };
        self.page_bytes += bytes;
        self.slot += 1;
        Ok(Some(location))
    }

    /// Writes a record larger than a page immediately, past the buffer.
    fn append_large(
        &mut self,
        log: &Log,
        active: u32,
        record: &Record<'_>,
    ) -> io::Result<Option<Location>> {
        let pages = record_pages(record.encoded_bytes());
        self.flush(log, active)?;
        if self.buffer_first + pages as u32 > log.segment_pages {
            return Ok(None);
        }
        let sequence = log.segments[active as usize].sequence.load(Ordering::Relaxed);
        self.large.reserve(pages * PAGE_BYTES);
        let bytes = &mut self.large.bytes_mut()[..pages * PAGE_BYTES];
        write_header(bytes, sequence, pages);
        let slot = LARGE + (pages - 2) as u8;
        record.encode(sequence, slot, &mut bytes[PAGE_HEADER_BYTES..]);
        bytes[PAGE_HEADER_BYTES + record.encoded_bytes()..].fill(0);
        let first = log.pages_of(active).start + self.buffer_first;
        log.write_pages(first, &self.large.bytes()[..pages * PAGE_BYTES])?;
        self.buffer_first += pages as u32;
        self.empty_buffer(log, active);
        Ok(Some(Location { page: first, slot }))
    }

    /// Writes out the buffer. Readers may read it in the meantime: no other thread writes to it.
    fn flush(&mut self, log: &Log, active: u32) -> io::Result<()> {
        let pages = self.page + usize::from(self.page_bytes > 0);
        if pages == 0 {
            return Ok(());
        }
        let first = log.pages_of(active).start + self.buffer_first;
        let buffer = read(&log.buffer);
        log.write_pages(first, &buffer.bytes.bytes()[..pages * PAGE_BYTES])?;
        drop(buffer);
        self.buffer_first += pages as u32;
        self.empty_buffer(log, active);
        Ok(())
    }

    fn empty_buffer(&mut self, log: &Log, active: u32) {
        let mut buffer = write(&log.buffer);
        buffer.bytes.bytes_mut().fill(0);
        buffer.first_page = log.pages_of(active).start + self.buffer_first;
        buffer.pages = (log.segment_pages - self.buffer_first).min(BUFFER_PAGES as u32);
        buffer.sequence = log.segments[active as usize].sequence.load(Ordering::Relaxed);
        (self.page, self.page_bytes, self.slot) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::super::super::tests::disk::Disk;
    use super::*;

    #[test]
    fn old_bytes_of_a_reused_segment_are_no_records() {
        let disk = Disk::default();
        let log = Log::new(Box::new(disk.clone()), 1, 64);
        let mut appender = Appender::new();
        let mut read_back = AlignedBuffer::default();
        let mut places = Vec::new();
        for payload in [b"old", b"new"] {
            appender.restart(&log).unwrap();
            let record = Record { key: b"key", payload: Some(payload), epoch: 0 };
            let place = appender.append(&log, &record).unwrap().expect("an empty segment has room");
            let sequence = log.sequence(place.page);
            let buffered = log.in_buffer(place, sequence, |found| found == Ok(record));
            assert_eq!(buffered, Some(true), "not written out yet");
            appender.flush(&log, 0).unwrap();
            assert!(log.in_buffer(place, sequence, |_| ()).is_none());
            if payload == b"old" {
                assert_eq!(log.read(place, sequence, &mut read_back).unwrap(), Ok(record));
                disk.faults.lost_writes.store(true, Ordering::SeqCst);
            }
            places.push((place, sequence));
        }
        assert_eq!(places[0].0, places[1].0, "the same place");
        let (place, sequence) = places[1];
        assert_eq!(log.read(place, sequence, &mut read_back).unwrap(), Err(PageFault::Foreign));
    }

    #[test]
    fn a_segment_is_filled_to_its_end_and_not_beyond() {
        let disk = Disk::default();
        let log = Log::new(Box::new(disk.clone()), 2, 64);
        let mut appender = Appender::new();
        appender.restart(&log).unwrap();
        let payload = vec![1; 3_000];
        let record = Record { key: b"key", payload: Some(&payload), epoch: 0 };
        let mut places = Vec::new();
        while let Some(place) = appender.append(&log, &record).unwrap() {
            places.push(place);
        }
        assert_eq!(places.len(), 64, "one to a page");
        assert!(
            log.in_buffer(Location { page: 65, slot: 0 }, 0, |_| ()).is_none(),
            "the next segment is not buffered"
        );
        appender.roll(&log).unwrap();
        assert!(appender.is_last(&log));
        assert_eq!(appender.append(&log, &record).unwrap(), Some(Location { page: 65, slot: 0 }));
        let mut read_back = AlignedBuffer::default();
        for place in places {
            assert_eq!(
                log.read(place, log.sequence(place.page), &mut read_back).unwrap(),
                Ok(record)
            );
        }
    }
}
