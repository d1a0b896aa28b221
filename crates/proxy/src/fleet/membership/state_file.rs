//! Proof that former processes of this proxy have ended, so that a restart need not wait for their
//! leases.
//!
//! The file names the incarnations of the process that holds its lock. The kernel releases the lock
//! when that process ends, in whatever way. A process that gets the lock thus knows that all of
//! them have ended. This must never be concluded for a process that runs: not if the file was
//! copied, was moved to another host or restored there, or is not as it was written. The file
//! therefore also identifies itself and the boot of the host. Any other file proves nothing, and
//! the fleet waits for the lease.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use shunt_fleet::Incarnation;

/// File with the id of the host's boot: proc(5).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Most incarnations in the file. After several restarts, more than one may still own shards.
const KEPT_MAX: usize = 8;
/// Limit on the size of a state file, which is far smaller; a longer file is ignored.
const BYTES_MAX: u64 = 4096;
const TITLE: &str = "# incarnations of the proxy that holds the lock of this file";

/// The file of `--fleet-state`, locked while this value exists.
#[derive(Debug)]
pub struct StateFile {
    file: File,
    /// Identity of the file and of the host's boot.
    place: String,
    incarnations: Vec<Incarnation>,
}

/// Reason why the file cannot be used.
#[derive(Debug)]
pub struct Unusable {
    path: PathBuf,
    why: String,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--fleet-state {}: {}", self.path.display(), self.why)
    }
}

impl std::error::Error for Unusable {}

impl StateFile {
    /// Opens or makes the file, and locks it.
    ///
    /// # Errors
    /// The file cannot be opened or read, belongs to something else, or is locked by another
    /// process: each proxy needs its own.
    pub fn open(path: &Path) -> Result<Self, Unusable> {
        // Without the lock nothing is known of former processes, and later ones will know nothing
        // of this one.
        let boot = std::fs::read_to_string(BOOT_ID).unwrap_or_default();
        let opened = Self::open_on(path, boot.trim())?;
        // The file is never closed, so that the lock lasts as long as the process: the owner of
        // this value may end while other cores still grant locks.
        let kept = opened.file.try_clone();
        let kept = kept.map_err(|error| Unusable {
            path: path.to_owned(),
            why: format!("it cannot be kept: {error}"),
        })?;
        std::mem::forget(kept);
        Ok(opened)
    }

    fn open_on(path: &Path, boot: &str) -> Result<Self, Unusable> {
        let unusable = |why: String| Unusable { path: path.to_owned(), why };
        let options =
            || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file =
            options().map_err(|error| unusable(format!("it cannot be opened: {error}")))?;
        let about = file
            .metadata()
            .map_err(|error| unusable(format!("it cannot be looked at: {error}")))?;
        // Reading from a FIFO or a terminal would wait for its writer.
        if !about.is_file() {
            return Err(unusable("it is not a regular file".to_owned()));
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(unusable(
                    "another process has it: each proxy needs a file of its own".to_owned(),
                ));
            }
            Err(TryLockError::Error(error)) => {
                return Err(unusable(format!("it cannot be locked: {error}")));
            }
        }
        let place = format!("boot {boot} device {} file {}", about.dev(), about.ino());
        let mut found = Vec::new();
        let read = (&mut file).take(BYTES_MAX + 1).read_to_end(&mut found);
        read.map_err(|error| unusable(format!("it cannot be read: {error}")))?;
        // A process may have been killed while it wrote.
        if !found.starts_with(TITLE.as_bytes()) && !TITLE.as_bytes().starts_with(&found) {
            return Err(unusable(
                "it was not written by a proxy, and would be overwritten".to_owned(),
            ));
        }
        let text = std::str::from_utf8(&found)
            .ok()
            .filter(|text| text.len() as u64 <= BYTES_MAX && !boot.is_empty());
        let incarnations = text.and_then(|text| parse(text, &place)).unwrap_or_default();
        Ok(Self { file, place, incarnations })
    }

    /// Incarnations whose processes have ended.
    pub(crate) fn ended(&self) -> &[Incarnation] {
        &self.incarnations
    }

    /// Adds the name that this process takes, before any other process learns it.
    ///
    /// # Errors
    /// The file cannot be written. The next process then waits for the lease.
    pub(crate) fn note(&mut self, incarnation: Incarnation) -> std::io::Result<()> {
        self.incarnations.push(incarnation);
        let excess = self.incarnations.len().saturating_sub(KEPT_MAX);
        self.incarnations.drain(..excess);
        let mut text = format!("{TITLE}\n{}\n", self.place);
        for incarnation in &self.incarnations {
            text.push_str(&format!("{incarnation}\n"));
        }
        // The old content is cut off first: a process that is killed in between leaves a file that
        // says too little.
        self.file.set_len(0)?;
        self.file.write_all_at(text.as_bytes(), 0)
    }
}

/// The incarnations, or nothing unless every line is valid.
fn parse(text: &str, place: &str) -> Option<Vec<Incarnation>> {
    let mut lines = text.strip_suffix('\n')?.lines();
    if lines.next()? != TITLE || lines.next()? != place {
        return None;
    }
    let incarnations: Vec<Incarnation> = lines.map(incarnation).collect::<Option<_>>()?;
    (incarnations.len() <= KEPT_MAX).then_some(incarnations)
}

fn incarnation(line: &str) -> Option<Incarnation> {
    let digits: String = line.chars().filter(|&character| character != '-').collect();
    let read = Incarnation(u128::from_str_radix(&digits, 16).ok()?.to_be_bytes());
    (read.to_string() == line).then_some(read)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FileType, Mode};

    use super::*;

    const BOOT: &str = "5b3c";

    fn path(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("shunt-state-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    fn named(number: u8) -> Incarnation {
        Incarnation([number; 16])
    }

    fn noted(path: &Path, numbers: &[u8]) -> StateFile {
        let mut file = StateFile::open_on(path, BOOT).expect("a new file");
        for &number in numbers {
            file.note(named(number)).expect("a file that can be written");
        }
        file
    }

    #[test]
    fn earlier_holders_of_the_file_have_ended_and_nobody_has_it_twice() {
        let path = path("twice");
        let first = noted(&path, &[1, 2]);
        let error = StateFile::open_on(&path, BOOT).expect_err("it is locked").to_string();
        assert!(
            error.contains("another process has it") && error.contains("shunt-state"),
            "{error}"
        );
        drop(first);
        let mut second = StateFile::open_on(&path, BOOT).expect("nobody has it");
        assert_eq!(second.ended(), [named(1), named(2)]);
        second.note(named(3)).expect("a file that can be written");
        drop(second);
        let third = StateFile::open_on(&path, BOOT).expect("nobody has it");
        assert_eq!(
            third.ended(),
            [named(1), named(2), named(3)],
            "the second may not have taken over from the first"
        );
        std::fs::remove_file(&path).expect("it is there");
    }

    /// The first core's thread, which has it, may end while other cores grant locks still.
    #[test]
    fn a_process_that_runs_has_the_file_whatever_has_ended_in_it() {
        let path = path("thread");
        drop(StateFile::open(&path).expect("a new file"));
        let error = StateFile::open(&path).expect_err("this process runs").to_string();
        assert!(error.contains("another process has it"), "{error}");
        std::fs::remove_file(&path).expect("it is there");
    }

    #[test]
    fn a_copy_and_the_file_of_another_boot_prove_nothing() {
        let (path, copy) = (path("original"), path("copy"));
        let running = noted(&path, &[1]);
        std::fs::copy(&path, &copy).expect("it is there");
        assert!(
            StateFile::open_on(&copy, BOOT).expect("nobody has it").ended().is_empty(),
            "it runs"
        );
        drop(running);
        assert!(StateFile::open_on(&path, "77aa").expect("nobody has it").ended().is_empty());
        assert!(StateFile::open_on(&path, "").expect("nobody has it").ended().is_empty());
        assert_eq!(StateFile::open_on(&path, BOOT).expect("nobody has it").ended(), [named(1)]);
        std::fs::remove_file(&path).expect("it is there");
        std::fs::remove_file(&copy).expect("it is there");
    }

    #[test]
    fn only_a_whole_file_is_believed() {
        let path = path("whole");
        drop(noted(&path, &[1, 2]));
        let whole = std::fs::read(&path).expect("it is there");
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).expect("a file that can be written");
            let ended = StateFile::open_on(&path, BOOT).expect("nobody has it").ended().to_vec();
            // What is left of a line is no incarnation; the lines before it are whole only where
            // the text ends with one.
            let lines = whole[..length].iter().filter(|&&byte| byte == b'\n').count();
            let ends = length > 0 && whole[length - 1] == b'\n';
            assert_eq!(ended.len(), if ends { lines.saturating_sub(2) } else { 0 }, "{length}");
        }
        let text = String::from_utf8(whole).expect("text");
        std::fs::write(&path, "[proxy]\n").expect("a file that can be written");
        let error = StateFile::open_on(&path, BOOT).expect_err("it is a configuration").to_string();
        assert!(error.contains("not written by a proxy"), "{error}");
        assert_eq!(std::fs::read(&path).expect("it is there"), b"[proxy]\n");
        for other in [
            text.replace("boot", "BOOT"),
            text.replace("0101", "01 01"),
            format!("{text}more\n"),
            text.repeat(40),
        ] {
            std::fs::write(&path, other).expect("a file that can be written");
            assert!(StateFile::open_on(&path, BOOT).expect("nobody has it").ended().is_empty());
        }
        std::fs::remove_file(&path).expect("it is there");
    }

    #[test]
    fn a_fifo_is_refused_and_not_read() {
        let path = path("fifo");
        // Not by a process of its own: until that is mkfifo it is a copy of this one, and has the
        // locks of the other tests' files too.
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RWXU, 0).expect("a fifo");
        let (sender, opened) = std::sync::mpsc::channel();
        let fifo = path.clone();
        std::thread::spawn(move || {
            for path in [fifo.as_path(), Path::new("/dev/null")] {
                let _ = sender.send(StateFile::open_on(path, BOOT).map(drop));
            }
        });
        for _ in 0..2 {
            let opened = opened
                .recv_timeout(std::time::Duration::from_secs(180))
                .expect("nobody waits for a fifo");
            let error = opened.expect_err("it is no file").to_string();
            assert!(error.contains("not a regular file"), "{error}");
        }
        std::fs::remove_file(&path).expect("it is there");
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let path = path("oldest");
        drop(noted(&path, &(0..20).collect::<Vec<u8>>()));
        let ended = StateFile::open_on(&path, BOOT).expect("nobody has it").ended().to_vec();
        assert_eq!(ended, (12..20).map(named).collect::<Vec<_>>());
        std::fs::remove_file(&path).expect("it is there");
    }
}
