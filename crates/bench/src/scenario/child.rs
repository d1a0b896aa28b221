//! The processes that measure: `shunt bench load` for one measurement, or a program of the project
//! for a whole experiment.
//!
//! Each runs in a separate process group, which the terminal's Ctrl-C does not reach. This process
//! sends it a single SIGINT and gives it time to stop what it has started; a second signal from the
//! terminal would interrupt that.

use std::{
    io::{self, BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    process::{Child, ChildStderr, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Set when the run should end.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Set by SIGINT, SIGTERM and the terminal's hang-up; a second signal ends the process
    /// immediately.
    pub(super) fn on_signals() -> io::Result<Self> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register_conditional_default(signal, stop.0.clone())?;
            signal_hook::flag::register(signal, stop.0.clone())?;
        }
        Ok(stop)
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The end of a process.
#[derive(Debug)]
pub(super) struct Ended {
    /// Exit code; `None` if a signal ended the process.
    pub(super) code: Option<i32>,
    /// The last lines of its standard error.
    pub(super) complaint: String,
}

/// Number of kept lines of standard error.
const COMPLAINT_LINES: usize = 5;
/// Time that a process has after SIGINT to stop what it has started, such as a ring of Cassandra.
const TAKE_DOWN_MAX: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Longest line; no expected output is longer.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Runs a command to its end and calls `line` with each line of its standard output.
///
/// # Errors
/// The command cannot be started; or `line` failed, in which case the process is ended.
pub(super) fn run(
    command: &mut Command,
    stop: &Stop,
    mut line: impl FnMut(&str) -> io::Result<()>,
) -> io::Result<Ended> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut guard = Guard(command.spawn()?);
    let child = &mut guard.0;
    let complaint = child.stderr.take().map(collect);
    let watcher = Watcher::start(stop.clone(), child.id());
    if let Some(output) = child.stdout.take() {
        let mut reader = BufReader::new(output);
        let mut text = String::new();
        loop {
            text.clear();
            if reader.by_ref().take(LINE_BYTES_MAX).read_line(&mut text)? == 0 {
                break;
            }
            line(text.trim_end())?;
        }
    }
    let status = child.wait()?;
    drop(watcher);
    let complaint = complaint.and_then(|thread| thread.join().ok()).unwrap_or_default();
    Ok(Ended { code: status.code(), complaint })
}

/// Ends its process on drop, if it still runs, with time to stop what it has started.
struct Guard(Child);

impl Drop for Guard {
    #[expect(
        clippy::disallowed_methods,
        reason = "the command's own thread, which serves nobody, waits for a process"
    )]
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(None)) {
            return;
        }
        interrupt(self.0.id());
        let begun = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) && begun.elapsed() < TAKE_DOWN_MAX {
            thread::sleep(LOOK_AGAIN);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends SIGINT to a process group. Must not be called after its leader was waited for: the id may
/// belong to another process by then.
fn interrupt(leader: u32) {
    if let Some(pid) = i32::try_from(leader).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::INT);
    }
}

fn collect(output: ChildStderr) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut last = std::collections::VecDeque::new();
        for text in BufReader::new(output).lines().map_while(Result::ok) {
            if last.len() == COMPLAINT_LINES {
                last.pop_front();
            }
            last.push_back(text);
        }
        Vec::from(last).join("\n")
    })
}

/// Ends a process and its children when the run should end.
struct Watcher {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    fn start(stop: Stop, pid: u32) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let seen = over.clone();
        let thread = thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                if stop.is_set() {
                    interrupt(pid);
                    return;
                }
                thread::park_timeout(Duration::from_millis(100));
            }
        });
        Self { over, thread: Some(thread) }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{process::Command, sync::atomic::Ordering};

    use super::{Stop, run};

    #[test]
    fn lines_code_and_complaint_come_back() {
        let mut lines = Vec::new();
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "echo one; echo two; for i in 1 2 3 4 5 6; do echo bad $i >&2; done; exit 3",
        ]);
        let ended = run(&mut command, &Stop::default(), |line| {
            lines.push(line.to_owned());
            Ok(())
        })
        .expect("sh is there");
        assert_eq!((lines, ended.code), (vec!["one".to_owned(), "two".to_owned()], Some(3)));
        assert_eq!(ended.complaint, "bad 2\nbad 3\nbad 4\nbad 5\nbad 6");
    }

    #[test]
    fn a_stop_ends_what_runs() {
        let stop = Stop::default();
        // Tests in the background of a shell script ignore SIGINT, and so do their children, unless
        // `env` resets it.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", "sh", "-c", "echo runs; exec sleep 600"]);
        let ended = run(&mut command, &stop, |_| {
            stop.0.store(true, Ordering::Relaxed);
            Ok(())
        })
        .expect("env and sh are there");
        assert_eq!(ended.code, None, "a signal ended it");
    }

    #[test]
    fn a_line_that_is_refused_ends_it_with_time_to_take_down_what_it_started() {
        let mark =
            std::env::temp_dir().join(format!("shunt-bench-{}-taken-down", std::process::id()));
        let mut command = Command::new("env");
        command.args([
            "--default-signal=INT",
            "sh",
            "-c",
            "trap 'kill $!; touch \"$1\"; exit' INT; sleep 600 & echo x; wait",
            "sh",
        ]);
        command.arg(&mark);
        let refused = run(&mut command, &Stop::default(), |_| Err(std::io::Error::other("no")));
        assert_eq!(refused.expect_err("refused").to_string(), "no");
        assert!(std::fs::remove_file(mark).is_ok(), "nothing was taken down");
    }
}
