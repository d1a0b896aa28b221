//! Small files that have to survive a crash whole, and directories that have to survive one at all.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Replaces the file at `path`: after a crash it has the old contents or the new, never half of them. Durable when this
/// returns. For one caller at a time.
///
/// # Errors
/// What the file system says. The file is then as it was, unless its directory could not be synced.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let written = fs::File::create(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    if let Err(error) = written.and_then(|()| fs::rename(&beside, path)) {
        // Half a file is of no use, and on a full disk its room is.
        let _ = fs::remove_file(&beside);
        return Err(error);
    }
    sync_directory(parent(path))
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
    fs::File::open(directory)?.sync_all()
}

/// The directory that a path is in.
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
