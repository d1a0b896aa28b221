//! Files of segments: a narrow interface to the disk, so that tests can put a failing disk below
//! the cache.
//!
//! The real files bypass the page cache (`O_DIRECT`) where the file system allows it. A row on SSD
//! is read because it is *not* hot, so caching its page a second time is of little use, takes
//! unbounded memory from the engine's own block cache, and hides the behaviour of the SSD. Segments
//! are allocated on creation, so that a full disk is detected then and a segment does not fragment.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, OFlags};
use tracing::info;

use super::page::PAGE_BYTES;

const PREFIX: &str = "row-cache-";
const SUFFIX: &str = ".segment";
const LOCK: &str = "row-cache.lock";

/// File of one segment. Buffers and offsets are aligned to pages, and lengths are a multiple of a
/// page.
pub(crate) trait SegmentFile: Send + Sync {
    /// Fills the buffer from `offset` on.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes the whole buffer at `offset`.
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()>;
}

/// Source of segment files.
pub(crate) trait SegmentStore: Send + Sync {
    /// Creates the file of a segment with this size and allocated space; its content is undefined.
    fn create(&self, number: u32, bytes: u64) -> io::Result<Arc<dyn SegmentFile>>;
}

/// Segments as files of a directory that belongs to this cache alone.
pub(crate) struct Directory {
    path: PathBuf,
    /// Held while the cache is open; another process gets an error instead of a shared log.
    _lock: File,
}

impl Directory {
    /// Creates the directory if needed and locks it; removes files of an earlier run, as their rows
    /// may be stale.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        let lock = File::create(path.join(LOCK))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => {
                io::Error::new(io::ErrorKind::ResourceBusy, "in use by another row cache")
            }
        })?;
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX))
            {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(Directory { path: path.to_owned(), _lock: lock })
    }
}

impl SegmentStore for Directory {
    fn create(&self, number: u32, bytes: u64) -> io::Result<Arc<dyn SegmentFile>> {
        let path = self.path.join(format!("{PREFIX}{number:06}{SUFFIX}"));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let direct = options.clone().custom_flags(OFlags::DIRECT.bits().cast_signed()).open(&path);
        let file = match direct {
            // Some file systems (tmpfs of old kernels, overlays) cannot bypass the page cache.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
                info!(path = %path.display(), "no direct I/O here: the row cache goes through the page cache");
                options.open(&path)?
            }
            file => file?,
        };
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(bytes)?,
            allocated => allocated?,
        }
        Ok(Arc::new(file))
    }
}

impl SegmentFile for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(buffer, offset)
    }
}

/// Bytes aligned to a page in memory, as bypassing the page cache requires.
#[derive(Default)]
pub(crate) struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    pub(crate) fn new(length: usize) -> Self {
        let bytes = vec![0; length + PAGE_BYTES];
        let start = bytes.as_ptr().align_offset(PAGE_BYTES);
        assert!(start <= PAGE_BYTES, "an address of bytes can always be aligned");
        AlignedBuffer { bytes, start, length }
    }

    /// Grows to at least `length` bytes; growing discards the content.
    pub(crate) fn reserve(&mut self, length: usize) {
        if self.length < length {
            *self = AlignedBuffer::new(length);
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_owner_and_starts_empty() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache");
        let first = Directory::open(&path).unwrap();
        let file = first.create(3, 1 << 20).unwrap();
        let mut page = AlignedBuffer::new(PAGE_BYTES);
        page.bytes_mut().fill(7);
        file.write_at(page.bytes(), PAGE_BYTES as u64).unwrap();
        let mut back = AlignedBuffer::new(PAGE_BYTES);
        file.read_at(back.bytes_mut(), PAGE_BYTES as u64).unwrap();
        assert_eq!(back.bytes(), page.bytes());
        assert!(file.read_at(back.bytes_mut(), 1 << 20).is_err(), "beyond the end");

        fs::write(path.join("of-somebody-else"), "kept").unwrap();
        assert_eq!(
            Directory::open(&path).err().map(|error| error.kind()),
            Some(io::ErrorKind::ResourceBusy)
        );
        drop(first);
        assert!(path.join("row-cache-000003.segment").exists());
        let _second = Directory::open(&path).unwrap();
        assert!(
            !path.join("row-cache-000003.segment").exists(),
            "rows of an earlier run are not trusted"
        );
        assert!(path.join("of-somebody-else").exists());
    }
}
