//! Commands to running nodes over a Unix socket in their data directory: write permission there is
//! required.
//!
//! One request per connection: a line `snapshot DIRECTORY`. The answer is a line `ok` or `error
//! MESSAGE`.
//!
//! A socket address has at most 107 bytes, but a path may have more. The socket is therefore
//! reached through the open directory, under a name that is short whatever the length of the
//! directory's.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::layout;
use crate::shared::Shared;
use crate::stop_outcome::{self, Stopped};

/// Longest time for a client to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for a snapshot. Linking files takes a moment; on another file system they are
/// copied.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// Longest request: a path has at most 4096 bytes.
const REQUEST_BYTES_MAX: u64 = 8192;

/// The thread that executes commands.
pub(crate) struct Control {
    path: PathBuf,
    stopping: Arc<AtomicBool>,
    /// Closed when the thread ends.
    ended: Receiver<()>,
    thread: JoinHandle<()>,
}

impl Control {
    /// Listens in the data directory, whose lock the caller holds: an existing socket is a
    /// leftover.
    pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<Control> {
        let orders = Arc::clone(shared);
        Self::start_with(shared.directory(), move |stream| answer(&orders, stream))
    }

    fn start_with(
        directory: &Path,
        answer: impl Fn(&UnixStream) -> std::io::Result<()> + Send + 'static,
    ) -> std::io::Result<Control> {
        let path = layout::control_socket(directory);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let parent = File::open(directory)?;
        let listener = UnixListener::bind(short(&parent))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let (alive, ended) = channel();
        let body = move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::Acquire) {
                    break;
                }
                if let Err(error) = stream.and_then(|stream| answer(&stream)) {
                    tracing::debug!(%error, "a control connection failed");
                }
            }
            // Before the end is signalled by closing a channel without messages: its receiver may
            // open the data again.
            drop(answer);
            drop(alive);
        };
        let thread = std::thread::Builder::new().name("node-control".to_owned()).spawn(body)?;
        Ok(Control { path, stopping, ended, thread })
    }

    /// Name of the thread if it has ended without being told to.
    pub(crate) fn dead_threads(&self) -> Vec<String> {
        stop_outcome::ended([&self.thread])
    }

    /// Ends the thread after its current command; late if that takes longer than `limit`.
    pub(crate) fn stop(self, limit: Duration) -> Stopped {
        self.stopping.store(true, Ordering::Release);
        // Wakes the thread. If nothing can connect, it has ended already or cannot be ended.
        let woken = connect(&self.path).is_ok();
        let _ = std::fs::remove_file(&self.path);
        let has_ended = woken && self.ended.recv_timeout(limit) != Err(RecvTimeoutError::Timeout);
        match has_ended || self.thread.is_finished() {
            true => Stopped::of(true, [self.thread]),
            false => Stopped::when(!woken),
        }
    }
}

/// The name of the socket in its directory.
fn short(directory: &File) -> PathBuf {
    layout::control_socket(Path::new(&format!("/proc/self/fd/{}", directory.as_raw_fd())))
}

fn connect(path: &Path) -> std::io::Result<UnixStream> {
    UnixStream::connect(short(&File::open(shunt_storage::files::parent(path))?))
}

fn answer(shared: &Shared, mut stream: &UnixStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let mut line = Vec::new();
    BufReader::new(stream.take(REQUEST_BYTES_MAX)).read_until(b'\n', &mut line)?;
    let Some(line) = line.strip_suffix(b"\n") else { return Ok(()) };
    let outcome = match line.strip_prefix(b"snapshot ") {
        Some(path) => shared.snapshot(Path::new(std::ffi::OsStr::from_bytes(path))),
        None => Err("the only order there is is `snapshot DIRECTORY`".to_owned()),
    };
    match outcome {
        Ok(()) => stream.write_all(b"ok\n"),
        Err(why) => {
            tracing::warn!(%why, "an order failed");
            stream.write_all(format!("error {}\n", why.replace('\n', " ")).as_bytes())
        }
    }
}

/// Lets nodes running on a data directory write a snapshot. `None`: no node runs there.
pub(crate) fn ask_snapshot(directory: &Path, to: &Path) -> Option<Result<(), String>> {
    let path = layout::control_socket(directory);
    let stream = connect(&path).ok()?;
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let ask = |mut stream: &UnixStream| {
        stream.set_read_timeout(Some(SNAPSHOT_TIMEOUT))?;
        stream.write_all(b"snapshot ")?;
        stream.write_all(to.as_os_str().as_bytes())?;
        stream.write_all(b"\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    Some(ask(&stream).map_err(failed).and_then(|answer| match answer.trim_end().split_once(' ') {
        Some(("error", why)) => Err(why.to_owned()),
        _ if answer == "ok\n" => Ok(()),
        _ => Err(format!("{}: the node ended before it was done", path.display())),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let well = Control::start_with(directory.path(), |_| Ok(())).unwrap();
        assert!(well.dead_threads().is_empty());
        assert_eq!(well.stop(Duration::from_secs(60)), Stopped::InTime);
        let control =
            Control::start_with(directory.path(), |_| panic!("as the test wants it")).unwrap();
        // The caller learns that the snapshot failed.
        assert!(ask_snapshot(directory.path(), Path::new("/nowhere")).unwrap().is_err());
        while control.dead_threads().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(control.dead_threads(), ["node-control"]);
        assert_eq!(control.stop(Duration::from_secs(60)), Stopped::Died);
    }
}
