//! A disk in memory that fails on demand.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use super::super::locks::lock;
use super::super::ssd::{PAGE_BYTES, SegmentFile, SegmentStore};
use super::Random;

/// Faults of the disk, all switched off at first.
#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) failing_reads: AtomicBool,
    pub(crate) failing_writes: AtomicBool,
    /// Half of the bytes are written, then an error follows.
    pub(crate) short_writes: AtomicBool,
    /// Writes do nothing and return no error.
    pub(crate) lost_writes: AtomicBool,
    /// No room for another segment.
    pub(crate) full: AtomicBool,
    /// Every read has one flipped bit.
    pub(crate) flipped_bits: AtomicBool,
    /// Writes panic.
    pub(crate) panicking_writes: AtomicBool,
    /// Other threads run while the disk works.
    pub(crate) slow: AtomicBool,
    reads: AtomicU64,
    writes: AtomicU64,
    random: Mutex<Option<Random>>,
}

impl Faults {
    fn take_time(&self) {
        if self.slow.load(Ordering::SeqCst) {
            (0..5).for_each(|_| thread::yield_now());
        }
    }
}

#[derive(Clone, Default)]
pub(crate) struct Disk {
    pub(crate) faults: Arc<Faults>,
    segments: Arc<Mutex<HashMap<u32, Arc<Segment>>>>,
}

struct Segment {
    bytes: Mutex<Vec<u8>>,
    faults: Arc<Faults>,
}

impl Disk {
    pub(crate) fn reads(&self) -> u64 {
        self.faults.reads.load(Ordering::SeqCst)
    }

    pub(crate) fn writes(&self) -> u64 {
        self.faults.writes.load(Ordering::SeqCst)
    }

    /// Truncates every segment, as a crash of the file system may.
    pub(crate) fn truncate(&self, bytes: usize) {
        for segment in lock(&self.segments).values() {
            lock(&segment.bytes).truncate(bytes);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        lock(&self.segments).values().map(|segment| lock(&segment.bytes).len()).sum()
    }
}

impl SegmentStore for Disk {
    fn create(&self, number: u32, bytes: u64) -> io::Result<Arc<dyn SegmentFile>> {
        if self.faults.full.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        // The file keeps its old content, like a real one.
        let mut segments = lock(&self.segments);
        let segment = segments.entry(number).or_insert_with(|| {
            Arc::new(Segment {
                bytes: Mutex::new(vec![0; bytes as usize]),
                faults: self.faults.clone(),
            })
        });
        lock(&segment.bytes).resize(bytes as usize, 0);
        Ok(segment.clone())
    }
}

impl SegmentFile for Segment {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        assert!(is_aligned(buffer, offset), "going around the page cache takes aligned reads");
        self.faults.reads.fetch_add(1, Ordering::SeqCst);
        self.faults.take_time();
        if self.faults.failing_reads.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()));
        }
        let bytes = lock(&self.bytes);
        let from = offset as usize;
        buffer.copy_from_slice(
            bytes.get(from..from + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?,
        );
        if self.faults.flipped_bits.load(Ordering::SeqCst) {
            let mut random = lock(&self.faults.random);
            let bit = random.get_or_insert_with(|| Random::new(7)).below(8 * buffer.len() as u64)
                as usize;
            buffer[bit / 8] ^= 1 << (bit % 8);
        }
        Ok(())
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        assert!(is_aligned(buffer, offset), "going around the page cache takes aligned writes");
        self.faults.writes.fetch_add(1, Ordering::SeqCst);
        assert!(!self.faults.panicking_writes.load(Ordering::SeqCst), "as the test wants it");
        self.faults.take_time();
        if self.faults.failing_writes.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()));
        }
        if self.faults.lost_writes.load(Ordering::SeqCst) {
            return Ok(());
        }
        let short = self.faults.short_writes.load(Ordering::SeqCst);
        let written = if short { buffer.len() / 2 } else { buffer.len() };
        let mut bytes = lock(&self.bytes);
        let from = offset as usize;
        bytes
            .get_mut(from..from + written)
            .ok_or(io::ErrorKind::WriteZero)?
            .copy_from_slice(&buffer[..written]);
        if short { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) }
    }
}

fn is_aligned(buffer: &[u8], offset: u64) -> bool {
    let address = buffer.as_ptr() as usize;
    address.is_multiple_of(PAGE_BYTES)
        && buffer.len().is_multiple_of(PAGE_BYTES)
        && offset.is_multiple_of(PAGE_BYTES as u64)
}
