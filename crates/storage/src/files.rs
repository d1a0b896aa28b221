//! Replaces small files atomically and durably, and makes directories durable.

use std::cell::Cell;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

thread_local! {
    static FAILS: Cell<bool> = const { Cell::new(false) };
}

/// Makes this thread's next directory sync fail. For tests: no file system fails on demand here.
#[doc(hidden)]
pub fn fail_next_directory_sync() {
    FAILS.set(true);
}

/// Reasons why a file was not replaced, or not durably.
#[derive(Debug)]
pub enum ReplaceError {
    /// The file is unchanged.
    Unchanged(io::Error),
    /// The file has the new contents, but may have the old ones again after a power failure: its
    /// directory could not be synced. A caller that continues as if the file were unchanged ignores
    /// the new contents.
    Undurable(io::Error),
}

impl fmt::Display for ReplaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplaceError::Unchanged(error) => error.fmt(f),
            ReplaceError::Undurable(error) => {
                write!(
                    f,
                    "written, but after a power failure it may be as before: its directory cannot be synced: {error}"
                )
            }
        }
    }
}

impl std::error::Error for ReplaceError {}

/// For callers that give up in both cases.
impl From<ReplaceError> for io::Error {
    fn from(error: ReplaceError) -> Self {
        match error {
            ReplaceError::Unchanged(error) => error,
            undurable @ ReplaceError::Undurable(_) => io::Error::other(undurable.to_string()),
        }
    }
}

/// Replaces the file at `path`: after a crash it has the old or the new contents, never a mixture.
/// Durable on return. Must have one caller at a time.
///
/// # Errors
/// The error of the file system, and which contents the file has now.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), ReplaceError> {
    let beside = path.with_extension("new");
    let written = fs::File::create(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    if let Err(error) = written.and_then(|()| fs::rename(&beside, path)) {
        // A partial file is useless, and a full disk needs its room.
        let _ = fs::remove_file(&beside);
        return Err(ReplaceError::Unchanged(error));
    }
    sync_directory(parent(path)).map_err(ReplaceError::Undurable)
}

/// Creates a directory and its missing parents, durably.
///
/// # Errors
/// The error of the file system.
pub fn create_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = parent(path);
    create_directory(above)?;
    match fs::create_dir(path) {
        // Another process was faster.
        Err(_) if path.is_dir() => {}
        made => made?,
    }
    sync_directory(above)
}

/// Makes the entries of a directory durable.
///
/// # Errors
/// The error of the file system.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    if FAILS.replace(false) {
        return Err(io::Error::other("the test says so"));
    }
    fs::File::open(directory)?.sync_all()
}

/// The directory that contains a path.
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
