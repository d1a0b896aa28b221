//! Small files that have to survive a crash whole, and directories that have to survive one at all.

use std::cell::Cell;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

thread_local! {
    static FAILS: Cell<bool> = const { Cell::new(false) };
}

/// The next directory that this thread syncs is not. For tests: no file system fails in this on
/// demand.
#[doc(hidden)]
pub fn fail_next_directory_sync() {
    FAILS.set(true);
}

/// Why a file was not replaced, or not for good.
#[derive(Debug)]
pub enum ReplaceError {
    /// It is as it was.
    Unchanged(io::Error),
    /// It has the new contents, and may have the old ones again after a power failure: its
    /// directory could not be synced. Whoever goes on as if it were as it was goes on without what
    /// lies there.
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

/// For those who give up in both cases.
impl From<ReplaceError> for io::Error {
    fn from(error: ReplaceError) -> Self {
        match error {
            ReplaceError::Unchanged(error) => error,
            undurable @ ReplaceError::Undurable(_) => io::Error::other(undurable.to_string()),
        }
    }
}

/// Replaces the file at `path`: after a crash it has the old contents or the new, never half of
/// them. Durable when this returns. For one caller at a time.
///
/// # Errors
/// What the file system says, and which of the two the file has now.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), ReplaceError> {
    let beside = path.with_extension("new");
    let written = fs::File::create(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    if let Err(error) = written.and_then(|()| fs::rename(&beside, path)) {
        // Half a file is of no use, and on a full disk its room is.
        let _ = fs::remove_file(&beside);
        return Err(ReplaceError::Unchanged(error));
    }
    sync_directory(parent(path)).map_err(ReplaceError::Undurable)
}

/// Makes a directory with all above it that are missing, so that they outlast a power failure.
///
/// # Errors
/// What the file system says.
pub fn create_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = parent(path);
    create_directory(above)?;
    match fs::create_dir(path) {
        // Somebody else was quicker.
        Err(_) if path.is_dir() => {}
        made => made?,
    }
    sync_directory(above)
}

/// Makes the names in a directory durable.
///
/// # Errors
/// What the file system says.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    if FAILS.replace(false) {
        return Err(io::Error::other("the test says so"));
    }
    fs::File::open(directory)?.sync_all()
}

/// The directory that a path is in.
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
