//! The data directory: its owner, its version, and the places of its files.
//!
//! ```text
//! FORMAT     version of the directory
//! LOCK       held while the store is open; names the holder
//! catalogue  schema ids
//! synced     how far the log was synced
//! db/        the engine's files
//! ```

use super::error::StoreError;
use crate::engine::EngineError;
use crate::files;
use std::fs::{self, File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const FORMAT: &str = "shunt storage 1\n";

/// Bytes that opening may write: the log's rows as a file, a manifest, options.
const ROOM_TO_OPEN_BYTES: u64 = 1 << 20;

/// Places of the files in a data directory.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) root: PathBuf,
}

impl Layout {
    pub(super) fn new(root: &Path) -> Self {
        Layout { root: root.to_owned() }
    }

    pub(super) fn catalogue(&self) -> PathBuf {
        self.root.join("catalogue")
    }

    pub(super) fn engine(&self) -> PathBuf {
        self.root.join("db")
    }

    pub(super) fn marker(&self) -> PathBuf {
        self.root.join("synced")
    }

    fn format(&self) -> PathBuf {
        self.root.join("FORMAT")
    }

    /// Refuses a directory of another version; initialises an empty or absent one if `create`.
    pub(super) fn check_format(&self, create: bool) -> Result<(), StoreError> {
        let path = self.format();
        match fs::read(&path) {
            Ok(bytes) if bytes == FORMAT.as_bytes() => Ok(()),
            Ok(bytes) => {
                let shown =
                    String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).trim_end().to_owned();
                Err(StoreError::Format {
                    path,
                    found: format!("it says {shown:?}, expected {:?}", FORMAT.trim_end()),
                })
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                if self.engine().exists() || !create {
                    return Err(StoreError::Format {
                        path,
                        found: "the file is missing".to_owned(),
                    });
                }
                self.write_format()
            }
            Err(error) => Err(StoreError::io(&path, error)),
        }
    }

    /// Checks that the engine's files are present. A store with missing parts must not start
    /// afresh: records contain schema ids, and an engine that finds no `CURRENT` deletes all files
    /// that it does not know.
    pub(super) fn check_parts(&self, create: bool) -> Result<bool, StoreError> {
        let current = self.engine().join("CURRENT");
        let begun = current.exists();
        if begun && let Some(found) = dangling(&current) {
            return Err(StoreError::Format { path: current, found });
        }
        let wanted = match begun {
            true => [Some(self.catalogue()), None],
            // The marker is the last file created in a new store.
            false if !create || self.marker().exists() || self.has_rows()? => {
                [Some(current), Some(self.catalogue())]
            }
            false => [None, None],
        };
        match wanted.into_iter().flatten().find(|path| !path.exists()) {
            Some(path) => Err(StoreError::Format { path, found: "the file is missing".to_owned() }),
            None => Ok(begun),
        }
    }

    /// Free bytes on the disk; the maximum value if unknown.
    pub(super) fn free_bytes(&self) -> u64 {
        let space = rustix::fs::statvfs(&self.root).ok().filter(|space| space.f_blocks > 0);
        space.map_or(u64::MAX, |space| space.f_bavail.saturating_mul(space.f_frsize))
    }

    /// Refuses to open on a full disk: the engine writes before it accepts any call.
    pub(super) fn check_room(&self) -> Result<(), StoreError> {
        let free = self.free_bytes();
        if free >= ROOM_TO_OPEN_BYTES {
            return Ok(());
        }
        let what = format!(
            "No space left on device: {free} bytes are free, to open it takes {ROOM_TO_OPEN_BYTES}"
        );
        Err(StoreError::io(&self.root, std::io::Error::new(std::io::ErrorKind::StorageFull, what)))
    }

    /// True if there is a file of rows or a log.
    fn has_rows(&self) -> Result<bool, StoreError> {
        Ok(self.engine_files()?.iter().any(|name| name.ends_with(".sst") || name.ends_with(".log")))
    }

    /// Names of the engine's logs, for messages: the engine does not say which one is faulty. Must
    /// be called before it opens, which replaces them.
    pub(super) fn logs(&self) -> String {
        let mut logs = self.engine_files().unwrap_or_default();
        logs.retain(|name| name.ends_with(".log"));
        logs.sort();
        let shown: Vec<_> =
            logs.iter().map(|name| self.engine().join(name).display().to_string()).collect();
        if shown.is_empty() { "there is none".to_owned() } else { shown.join(", ") }
    }

    fn engine_files(&self) -> Result<Vec<String>, StoreError> {
        let path = self.engine();
        let failed = |error| StoreError::io(&path, error);
        let entries = match fs::read_dir(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        entries
            .map(|entry| Ok(entry.map_err(failed)?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    /// Makes the directory and its entries durable.
    pub(super) fn make_durable(&self) -> Result<(), StoreError> {
        let own = self.root.canonicalize().map_err(|error| StoreError::io(&self.root, error))?;
        for directory in [Some(own.as_path()), own.parent()].into_iter().flatten() {
            files::sync_directory(directory).map_err(|error| StoreError::io(directory, error))?;
        }
        Ok(())
    }

    pub(super) fn write_format(&self) -> Result<(), StoreError> {
        let path = self.format();
        files::replace(&path, FORMAT.as_bytes())
            .map_err(|error| StoreError::io(&path, error.into()))
    }
}

/// Held while the store is open; the operating system releases it when the process ends for any
/// reason.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    pub(super) fn take(root: &Path) -> Result<Self, StoreError> {
        let path = root.join("LOCK");
        let failed = |error| StoreError::io(&path, error);
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        DirectoryLock::lock(&file, &path)?;
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let holder = format!("process {} on {}\n", std::process::id(), host.trim_end());
        // The content is only for the message; a full disk has no room for it.
        let _ = file
            .set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| file.write_all(holder.as_bytes()));
        Ok(DirectoryLock { _file: file })
    }

    /// For a caller that only reads, including on read-only media. A directory without the file is
    /// unlocked.
    pub(super) fn take_to_read(root: &Path) -> Result<Option<Self>, StoreError> {
        let path = root.join("LOCK");
        match File::open(&path) {
            Ok(file) => {
                DirectoryLock::lock(&file, &path).map(|()| Some(DirectoryLock { _file: file }))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::io(&path, error)),
        }
    }

    fn lock(file: &File, path: &Path) -> Result<(), StoreError> {
        match file.try_lock() {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Only for the message.
                let _ = file.take(200).read_to_string(&mut holder);
                Err(StoreError::Locked {
                    path: path.to_owned(),
                    holder: holder.trim_end().to_owned(),
                })
            }
            Err(TryLockError::Error(error)) => Err(StoreError::io(path, error)),
        }
    }
}

/// Adds the names of the logs to an engine error about unnamed damage, which is in one of them.
pub(super) fn name_logs(error: EngineError, logs: &str) -> EngineError {
    match error {
        EngineError::Corrupt(what) if !what.contains('/') => {
            EngineError::Corrupt(format!("{what}, in the log ({logs})"))
        }
        error => error,
    }
}

/// Describes the fault of the file that names the manifest, if its target does not exist.
fn dangling(current: &Path) -> Option<String> {
    let Ok(text) = fs::read_to_string(current) else { return Some("it is not text".to_owned()) };
    let name = text.trim_end();
    let there = name.starts_with("MANIFEST-")
        && text.ends_with('\n')
        && current.with_file_name(name).is_file();
    (!there).then(|| format!("it names {name:?}, which is not there"))
}
