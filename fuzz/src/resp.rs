//! RESP. The first byte selects commands or answers, and the size of pieces.

use shunt_wire::resp::{
    Command, Malformed, Scanner, Step, put_command, read_command, value, values,
};

/// Small limit, so that inputs reach it.
const BYTES_MAX: usize = 4096;

/// Tries one input.
pub fn run(data: &[u8]) {
    let Some((mode, stream)) = data.split_first() else { return };
    let piece = usize::from(mode >> 1).max(1);
    let read = if mode & 1 == 0 { commands } else { answers };
    let whole = read(stream, stream.len().max(1));
    if whole.is_ok() {
        assert_eq!(read(stream, piece), whole, "pieces of {piece}");
    }
    // Commands are not answers.
    pass_over(stream, piece, mode & 1 == 1 && whole.is_ok());
}

/// Only oversized answers are skipped; buffered bytes never exceed the limit, except for a line and
/// the last piece.
fn pass_over(stream: &[u8], piece: usize, is_sound: bool) {
    const LINE_BYTES_MAX: usize = 64 << 10;
    let (mut scanner, mut at) = (Scanner::new(BYTES_MAX), 0);
    for start in (0..stream.len()).step_by(piece) {
        let arrived = (start + piece).min(stream.len());
        loop {
            match scanner.find_or_pass_over(&stream[at..arrived]) {
                Ok(Step::Whole(length)) => at += length,
                Ok(step) => {
                    assert!(!is_sound || step == Step::Waits, "{step:?} of what is not too long");
                    match step {
                        Step::TooLong { length, .. } => at += length,
                        Step::Part(length) => {
                            at += length;
                            break;
                        }
                        Step::Waits | Step::Whole(_) => break,
                    }
                }
                Err(_) => return,
            }
            assert!(at <= arrived);
        }
        assert!(arrived - at <= BYTES_MAX + LINE_BYTES_MAX + piece);
    }
}

fn each_piece(
    stream: &[u8],
    piece: usize,
    mut next: impl FnMut(&[u8]) -> Result<Option<usize>, Malformed>,
) -> Result<usize, Malformed> {
    let (mut at, mut count) = (0, 0);
    for start in (0..stream.len()).step_by(piece) {
        let arrived = (start + piece).min(stream.len());
        while at < arrived
            && let Some(length) = next(&stream[at..arrived])?
        {
            assert!(length > 0 && length <= arrived - at);
            at += length;
            count += 1;
        }
    }
    Ok(count)
}

fn commands(stream: &[u8], piece: usize) -> Result<usize, Malformed> {
    let mut command = Command::default();
    each_piece(stream, piece, |unread| {
        if !crate::bounded(64, unread.len(), || read_command(unread, BYTES_MAX, &mut command))? {
            return Ok(None);
        }
        if !command.is_empty() {
            let mut again = Vec::new();
            let arguments: Vec<&[u8]> = command.arguments(unread, 0).collect();
            put_command(&mut again, arguments.iter().copied());
            let mut second = Command::default();
            assert_eq!(read_command(&again, usize::MAX >> 1, &mut second), Ok(true));
            assert!(second.arguments(&again, 0).eq(arguments));
        }
        Ok(Some(command.len()))
    })
}

fn answers(stream: &[u8], piece: usize) -> Result<usize, Malformed> {
    let mut scanner = Scanner::new(BYTES_MAX);
    each_piece(stream, piece, |unread| {
        let found = scanner.find(unread)?;
        if let Some(length) = found {
            let answer = &unread[..length];
            value(answer);
            if let Some((count, values)) = values(answer) {
                assert!(values.count() <= count);
            }
        }
        Ok(found)
    })
}
