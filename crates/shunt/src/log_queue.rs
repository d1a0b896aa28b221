//! Log lines on their way to standard error: threads put them into a queue, and a thread of its own
//! writes them.
//!
//! Standard error is often a pipe, and its reader may stand still. This must never:
//! - make a thread that logs wait for that reader: beyond the limit a line is left out;
//! - leave out a line without counting it, or write a part of one among others: another program may
//!   have made the same standard error non-blocking, and then takes a line in parts;
//! - end the program with lines in the queue that standard error would take.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

use crate::output::write_whole;

/// Lines that standard error has not taken.
const LINES_MAX: usize = 4_096;
/// Bytes of these lines.
const BYTES_MAX: usize = 1 << 20;

#[derive(Default)]
struct State {
    lines: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// Lines left out since the log said so.
    suppressed: u64,
    /// A line was taken out and is being written.
    is_writing: bool,
}

/// The lines that wait.
#[derive(Default)]
pub(crate) struct LogQueue {
    state: Mutex<State>,
    filled: Condvar,
    emptied: Condvar,
}

impl LogQueue {
    /// Starts the thread that writes what is put into a new queue.
    ///
    /// # Errors
    /// The thread could not be started.
    pub(crate) fn start(out: impl Write + Send + 'static) -> io::Result<Arc<LogQueue>> {
        let queue = Arc::new(LogQueue::default());
        let lines = Arc::clone(&queue);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || lines.write_to(out))?;
        Ok(queue)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.lines.len() >= LINES_MAX || state.bytes + line.len() > BYTES_MAX {
            state.suppressed += 1;
            return;
        }
        state.bytes += line.len();
        state.lines.push_back(line.into());
        self.filled.notify_one();
    }

    /// The next line, once there is one.
    fn next(&self) -> Box<[u8]> {
        let mut state = self.lock();
        loop {
            if let Some(line) = state.lines.pop_front() {
                state.bytes -= line.len();
                state.is_writing = true;
                return line;
            }
            state.is_writing = false;
            self.emptied.notify_all();
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Number of lines left out that the log has room to tell of.
    fn take_suppressed(&self) -> u64 {
        let mut state = self.lock();
        let has_room = state.lines.len() < LINES_MAX / 2 && state.bytes < BYTES_MAX / 2;
        if has_room { std::mem::take(&mut state.suppressed) } else { 0 }
    }

    fn write_to(&self, mut out: impl Write) {
        loop {
            let line = self.next();
            // Nobody could be told of an error here. The queue is limited, so that this thread may
            // wait for the reader as long as it takes.
            let _ = write_whole(&mut out, &line, None);
            let suppressed = self.take_suppressed();
            if suppressed > 0 {
                tracing::warn!(suppressed, "log lines are left out: standard error took none");
            }
        }
    }

    /// Waits until all lines are written, or until this time is over.
    pub(crate) fn flush(&self, timeout: Duration) {
        let is_busy = |state: &mut State| state.is_writing || !state.lines.is_empty();
        let waited = self.emptied.wait_timeout_while(self.lock(), timeout, is_busy);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Puts the line of one event into the queue.
pub(crate) struct LineWriter<'a>(&'a LogQueue);

impl Write for LineWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A queue that the layers of `tracing` write to.
#[derive(Clone)]
pub(crate) struct QueueWriter(pub(crate) Arc<LogQueue>);

impl<'a> MakeWriter<'a> for QueueWriter {
    type Writer = LineWriter<'a>;

    fn make_writer(&'a self) -> LineWriter<'a> {
        LineWriter(&self.0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Takes a line when it is told to.
    struct Reader {
        may_read: Receiver<()>,
        lines: Sender<Vec<u8>>,
    }

    impl Write for Reader {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.may_read.recv().is_ok() {
                self.lines.send(bytes.to_vec()).unwrap();
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn queue() -> (Arc<LogQueue>, Sender<()>, Receiver<Vec<u8>>) {
        let ((go, may_read), (lines, read)) = (channel(), channel());
        (LogQueue::start(Reader { may_read, lines }).unwrap(), go, read)
    }

    #[test]
    fn nobody_waits_for_a_reader_that_stands_still_and_what_is_left_out_is_counted() {
        let (queue, go, read) = queue();
        let writer = QueueWriter(Arc::clone(&queue));
        for number in 0..LINES_MAX + 100 {
            writer.make_writer().write_all(format!("{number}\n").as_bytes()).unwrap();
        }
        let kept = LINES_MAX + 100 - queue.lock().suppressed as usize;
        // The thread may have taken one out.
        assert!((LINES_MAX..=LINES_MAX + 1).contains(&kept), "{kept}");
        queue.flush(Duration::from_millis(1));
        for number in 0..kept {
            go.send(()).unwrap();
            assert_eq!(read.recv().unwrap(), format!("{number}\n").as_bytes());
        }
        queue.flush(Duration::from_secs(60));
        let (suppressed, bytes) = {
            let state = queue.lock();
            (state.suppressed, state.bytes)
        };
        assert_eq!((suppressed, bytes), (0, 0), "the log has told of them, and all is written");
        let long = vec![b'x'; BYTES_MAX / 4 + 1];
        (0..8).for_each(|_| writer.make_writer().write_all(&long).unwrap());
        assert!(queue.lock().suppressed >= 4, "the bytes are limited, too");
    }

    /// A program that shares standard error with this one may make it non-blocking.
    #[test]
    fn a_full_pipe_that_does_not_block_cuts_no_line() {
        let (mut read, write) = UnixStream::pair().unwrap();
        write.set_nonblocking(true).unwrap();
        let queue = LogQueue::start(write).unwrap();
        let writer = QueueWriter(Arc::clone(&queue));
        let line = |number: u8| [vec![b'a' + number; BYTES_MAX / 8], vec![b'\n']].concat();
        (0..6).for_each(|number| writer.make_writer().write_all(&line(number)).unwrap());
        // The kernel takes less than that at once.
        read.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        for number in 0..6 {
            let mut taken = vec![0; BYTES_MAX / 8 + 1];
            read.read_exact(&mut taken).unwrap();
            assert!(taken == line(number), "line {number} is not whole");
        }
        queue.flush(Duration::from_secs(60));
        assert!(!queue.lock().is_writing);
    }
}
