//! Standard output and standard error, which other programs may share.
//!
//! One of these programs may make them non-blocking. A write then takes a part of the bytes, or
//! fails, and the rest is tried again: what was written must never end within a line while the
//! reader still reads.

use std::fmt::{Arguments, Write as _};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use crate::logging::Printable;

/// Pauses before a write that would block is tried again; each is twice the last.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(64);
/// Time that a command leaves a reader who takes nothing.
const READER: Duration = Duration::from_secs(10);

/// Writes all bytes, and waits where `out` would block: for `limit` between two bytes at most, or
/// for as long as it takes.
///
/// # Errors
/// `out` has failed, or would still block; it may have taken a part of the bytes.
pub(crate) fn write_whole(
    out: &mut impl Write,
    mut bytes: &[u8],
    limit: Option<Duration>,
) -> io::Result<()> {
    let mut patience = Patience::new(limit);
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                bytes = bytes.get(count..).unwrap_or_default();
                patience = Patience::new(limit);
            }
            Err(error) => patience.wait(error)?,
        }
    }
    while let Err(error) = out.flush() {
        patience.wait(error)?;
    }
    Ok(())
}

/// Pauses of a writer.
struct Patience {
    until: Option<Instant>,
    pause: Duration,
}

impl Patience {
    fn new(limit: Option<Duration>) -> Self {
        Self { until: limit.map(|limit| Instant::now() + limit), pause: PAUSE_MIN }
    }

    /// Waits until the writer may try again.
    ///
    /// # Errors
    /// Another attempt would not help, or its time is over.
    #[allow(clippy::disallowed_methods, reason = "the log and commands have threads of their own")]
    fn wait(&mut self, error: io::Error) -> io::Result<()> {
        match error.kind() {
            io::ErrorKind::Interrupted => Ok(()),
            io::ErrorKind::WouldBlock if self.until.is_none_or(|until| Instant::now() < until) => {
                std::thread::sleep(self.pause);
                self.pause = (2 * self.pause).min(PAUSE_MAX);
                Ok(())
            }
            _ => Err(error),
        }
    }
}

/// Prints to standard output; a closed output is no error.
pub(crate) fn print(text: &str) {
    let _ = write_whole(&mut io::stdout().lock(), text.as_bytes(), Some(READER));
}

/// Prints to standard error; a closed one is no error. Messages may hold texts of nodes.
pub(crate) fn complain(text: Arguments<'_>) {
    let text = printable_lines(&text.to_string());
    let _ = write_whole(&mut io::stderr().lock(), text.as_bytes(), Some(READER));
}

/// A text of any number of lines, without characters that a terminal acts upon.
fn printable_lines(text: &str) -> String {
    let mut shown = String::new();
    for char in text.chars() {
        if matches!(char, '\n' | '\t') {
            shown.push(char);
        } else {
            let _ = Printable(&mut shown).write_char(char);
        }
    }
    shown
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    #[test]
    fn a_full_pipe_that_does_not_block_gets_all_bytes() {
        let (mut read, mut write) = UnixStream::pair().unwrap();
        write.set_nonblocking(true).unwrap();
        let bytes: Vec<u8> = (0..1 << 20).map(|number: u32| (number % 251) as u8).collect();
        let sent = bytes.clone();
        let writer = thread::spawn(move || write_whole(&mut write, &sent, None));
        let mut taken = Vec::new();
        read.read_to_end(&mut taken).unwrap();
        assert!(writer.join().unwrap().is_ok() && taken == bytes);
    }

    #[test]
    fn a_message_of_a_server_does_nothing_to_the_terminal() {
        assert_eq!(
            printable_lines("error: Überlauf \"a\"\n\thint: b\\c\u{1b}[2J\u{9b}m\u{202e}\r\n"),
            "error: Überlauf \"a\"\n\thint: b\\c\\u{1b}[2J\\u{9b}m\\u{202e}\\r\n"
        );
    }

    #[test]
    fn a_reader_who_takes_nothing_is_given_up() {
        let (_read, mut write) = UnixStream::pair().unwrap();
        write.set_nonblocking(true).unwrap();
        let outcome = write_whole(&mut write, &vec![b'x'; 4 << 20], Some(PAUSE_MIN));
        assert_eq!(outcome.map_err(|error| error.kind()), Err(io::ErrorKind::WouldBlock));
    }
}
