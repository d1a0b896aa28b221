//! Small files that others may replace, or write, at any time: certificates, keys, tokens,
//! passwords.
//!
//! A program that writes a file in place leaves a part of it on disk for a moment. Such a part may
//! pass for a whole file: a list of CAs without its end is one. A reader that has another content
//! already waits until the file is settled.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Error, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;

/// Age from which on a file counts as whole.
pub(crate) const SETTLED_AGE: Duration = Duration::from_secs(1);

/// Mode bits that give access to all users of the host. A group is often the one that the process
/// runs in, as with the secrets of Kubernetes.
const OTHERS: u32 = 0o007;

/// A file as it was read.
pub struct SmallFile {
    /// Content of the file.
    pub bytes: Vec<u8>,
    mode: u32,
    /// Time of its last change; `None`: it changed while it was read.
    modified: Option<SystemTime>,
}

impl SmallFile {
    /// Reads a file of so many bytes at most. Never waits for a writer.
    ///
    /// # Errors
    /// The reason why the file cannot be used.
    pub fn read(path: &Path, bytes_max: u64) -> Result<Self, String> {
        Self::read_with(path, bytes_max, || {})
    }

    /// The same; `meanwhile` happens between the content and its end.
    fn read_with(path: &Path, bytes_max: u64, meanwhile: impl FnOnce()) -> Result<Self, String> {
        let failed = |error: Error| format!("cannot read the file: {error}");
        let file = open(path).map_err(failed)?;
        let before = file.metadata().map_err(failed)?;
        if !before.is_file() {
            return Err("this is not a regular file".to_owned());
        }
        let mut bytes = Vec::new();
        (&file).take(bytes_max + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > bytes_max {
            let bound = match bytes_max >> 20 {
                0 => format!("{bytes_max} bytes"),
                mib => format!("{mib} MiB"),
            };
            return Err(format!("the file is larger than {bound}: is it another file?"));
        }
        meanwhile();
        let after = file.metadata().map_err(failed)?;
        let state = |metadata: &Metadata| Some((metadata.len(), metadata.modified().ok()?));
        let is_same = state(&before) == state(&after) && after.len() == bytes.len() as u64;
        let modified = after.modified().ok().filter(|_| is_same);
        Ok(Self { bytes, mode: after.mode(), modified })
    }

    /// False if the file's writer may not be done: the file has changed while it was read, or less
    /// than a second ago.
    pub fn is_settled(&self, now: SystemTime) -> bool {
        // The clock of a file server may be ahead.
        let distance =
            |modified| now.duration_since(modified).unwrap_or_else(|before| before.duration());
        self.modified.is_some_and(|modified| distance(modified) >= SETTLED_AGE)
    }

    /// A warning about a secret that anyone but its owner and its group has access to.
    pub fn readers_warning(&self) -> Option<String> {
        let mode = self.mode & 0o777;
        (mode & OTHERS != 0)
            .then(|| format!("other users have access (mode {mode:o}); run chmod 600"))
    }
}

/// Opens a file. A pipe is opened without its writer.
fn open(path: &Path) -> Result<File, Error> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::sync::mpsc::channel;

    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use tempfile::tempdir;

    use super::*;

    const BYTES_MAX: u64 = 100;

    #[test]
    fn a_file_is_settled_a_second_after_its_last_change() {
        let directory = tempdir().expect("a directory");
        let path = directory.path().join("file");
        fs::write(&path, "content").expect("written");
        let file = SmallFile::read(&path, BYTES_MAX).expect("a file");
        assert_eq!(file.bytes, b"content");
        let modified = fs::metadata(&path).and_then(|file| file.modified()).expect("a time");
        let almost = SETTLED_AGE - Duration::from_millis(1);
        for (now, is_settled) in [
            (modified, false),
            (modified + almost, false),
            (modified + SETTLED_AGE, true),
            (modified - almost, false),
            (modified - SETTLED_AGE, true),
        ] {
            assert_eq!(file.is_settled(now), is_settled);
        }
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_not_settled() {
        let directory = tempdir().expect("a directory");
        let path = directory.path().join("file");
        let old = SystemTime::now() - Duration::from_secs(60);
        let write_again = |text: &str| {
            let mut file = fs::File::create(&path).expect("a file");
            file.write_all(text.as_bytes()).expect("written");
            file.set_modified(old).expect("a time");
        };
        let append = || {
            let mut file = fs::File::options().append(true).open(&path).expect("a file");
            file.write_all(b"more").expect("written");
            // Nothing but the size tells.
            file.set_modified(old).expect("a time");
        };
        write_again("content");
        let touch =
            || fs::File::open(&path).and_then(|file| file.set_modified(SystemTime::UNIX_EPOCH));
        for (meanwhile, is_settled) in
            [(&append as &dyn Fn(), false), (&|| touch().expect("a time"), false), (&|| {}, true)]
        {
            write_again("content");
            let file = SmallFile::read_with(&path, BYTES_MAX, meanwhile).expect("a file");
            assert_eq!(
                (file.bytes.as_slice(), file.is_settled(SystemTime::now())),
                (&b"content"[..], is_settled)
            );
        }
    }

    #[test]
    fn a_pipe_is_refused_at_once() {
        let directory = tempdir().expect("a directory");
        let path = directory.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        let (sender, receiver) = channel();
        std::thread::spawn(move || sender.send(SmallFile::read(&path, BYTES_MAX).err()));
        let error = receiver.recv_timeout(Duration::from_secs(30)).expect("it does not wait");
        assert_eq!(error.as_deref(), Some("this is not a regular file"));
    }

    #[test]
    fn a_file_that_is_too_large_is_refused() {
        let directory = tempdir().expect("a directory");
        let path = directory.path().join("file");
        let error = |bytes: usize, most| {
            fs::write(&path, vec![0; bytes]).expect("written");
            SmallFile::read(&path, most).err()
        };
        assert_eq!(error(100, BYTES_MAX), None);
        let text = error(101, BYTES_MAX).expect("too large");
        assert_eq!(text, "the file is larger than 100 bytes: is it another file?");
        let text = error((1 << 20) + 1, 1 << 20).expect("too large");
        assert_eq!(text, "the file is larger than 1 MiB: is it another file?");
    }
}
