//! Commands and answers, whole and in pieces.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const LIMIT: usize = 1 << 20;

fn command(bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Malformed> {
    let mut command = Command::default();
    let is_whole = read_command(bytes, LIMIT, &mut command)?;
    Ok(is_whole.then(|| command.arguments(bytes, 0).map(<[u8]>::to_vec).collect()))
}

/// The lengths of the answers in a stream that arrives in pieces.
fn ends(stream: &[u8], piece: usize) -> Result<Vec<usize>, Malformed> {
    let (mut scanner, mut at, mut found) = (Scanner::new(LIMIT), 0, Vec::new());
    for arrived in (0..stream.len()).step_by(piece).map(|start| (start + piece).min(stream.len())) {
        while at < arrived
            && let Some(length) = scanner.find(&stream[at..arrived])?
        {
            found.push(length);
            at += length;
        }
    }
    Ok(found)
}

#[test]
fn commands_are_read_to_their_arguments() {
    assert_eq!(command(b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n"), Ok(Some(vec![b"GET".to_vec(), vec![]])));
    for empty in [&b"\r\n"[..], b"*0\r\n", b"*-1\r\n", b"*-12\r\n"] {
        assert_eq!(command(empty), Ok(Some(vec![])), "{empty:?}");
    }
    for part in [&b""[..], b"*", b"*1\r\n", b"*1\r\n$3\r\nGE", b"*1\r\n$3\r\nGET\r"] {
        assert_eq!(command(part), Ok(None), "{part:?}");
    }
    for (bytes, why) in [
        (&b"PING\r\n"[..], Malformed::Command),
        (b"*1\n", Malformed::LineEnd),
        (b"*1\r\n:1\r\n", Malformed::Command),
        (b"*1\r\n$-1\r\n", Malformed::Length),
        (b"*x\r\n", Malformed::Length),
        (b"*01\r\n$4\r\nPING\r\n", Malformed::Length),
        (b"*1\r\n$04\r\nPING\r\n", Malformed::Length),
        (b"*00\r\n", Malformed::Length),
        (b"*-0\r\n", Malformed::Length),
        (b"*-01\r\n", Malformed::Length),
        (b"*--1\r\n", Malformed::Length),
        (b"*+1\r\n$4\r\nPING\r\n", Malformed::Length),
        (b"*1\r\n$+4\r\nPING\r\n", Malformed::Length),
        (b"*\r\n", Malformed::Length),
        (b"\r*1\r\n", Malformed::Command),
        (b"*99999999\r\n", Malformed::TooManyArguments),
        (b"*1\r\n$2\r\nGET\r\n", Malformed::LineEnd),
        (b"*1\r\n$2000000\r\n", Malformed::TooLong { limit: LIMIT }),
    ] {
        assert_eq!(command(bytes), Err(why), "{bytes:?}");
    }
    assert_eq!(command(&[b'*'; 70_000]), Err(Malformed::LineTooLong));
}

#[test]
fn the_read_part_of_a_command_is_not_read_again() {
    let (mut bytes, mut command) = (b"*2\r\n$3\r\nGET\r\n$1".to_vec(), Command::default());
    assert_eq!((read_command(&bytes, LIMIT, &mut command), command.is_begun()), (Ok(false), true));
    // Scanning these again before the last one arrives would refuse them.
    let start = bytes[..8].to_vec();
    bytes[..8].fill(b'?');
    bytes.extend_from_slice(b"\r\n");
    assert_eq!((read_command(&bytes, LIMIT, &mut command), command.is_begun()), (Ok(false), true));
    bytes[..8].copy_from_slice(&start);
    bytes.extend_from_slice(b"k\r\n");
    assert_eq!((read_command(&bytes, LIMIT, &mut command), command.is_begun()), (Ok(true), false));
    assert_eq!(command.arguments(&bytes, 0).collect::<Vec<_>>(), [&b"GET"[..], b"k"]);
    assert_eq!(command.len(), bytes.len());
    assert_eq!(read_command(b"*1\r\n$4\r\nPING\r\n", LIMIT, &mut command), Ok(true));
    assert_eq!(command.count(), 1);
}

#[test]
fn the_ends_of_answers_are_found_however_they_are_cut() {
    let answers: [&[u8]; 12] = [
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":12\r\n",
        b"$-1\r\n",
        b"$4\r\na\r\nb\r\n",
        b"*0\r\n",
        b"*-1\r\n",
        b"*3\r\n$1\r\na\r\n*1\r\n:1\r\n_\r\n",
        b"%1\r\n+a\r\n~2\r\n#t\r\n,1.5\r\n",
        b"|1\r\n+ttl\r\n:3\r\n$1\r\nx\r\n",
        b"=7\r\ntxt:abc\r\n",
        b"!3\r\nERR\r\n",
    ];
    let lengths: Vec<usize> = answers.iter().map(|answer| answer.len()).collect();
    let stream = answers.concat();
    for piece in 1..=stream.len() {
        assert_eq!(ends(&stream, piece), Ok(lengths.clone()), "pieces of {piece}");
    }
}

#[test]
fn answers_that_are_none_or_too_long_are_refused() {
    for (bytes, why) in [
        (&b"?\r\n"[..], Malformed::Type { found: b'?' }),
        (b"\r\n", Malformed::Type { found: b'\r' }),
        (b"$2\r\nabc\r\n", Malformed::LineEnd),
        (b"$2000000\r\n", Malformed::TooLong { limit: LIMIT }),
        (b"*2000000000\r\n", Malformed::TooLong { limit: LIMIT }),
    ] {
        assert_eq!(Scanner::new(LIMIT).find(bytes), Err(why), "{bytes:?}");
    }
}

/// Reads a stream that arrives in pieces and skips answers longer than the limit. Returns the first
/// byte and length of each answer (length 0 if skipped), and the most bytes buffered.
fn passed_over(
    stream: &[u8],
    piece: usize,
    limit: usize,
) -> Result<(Vec<(u8, usize)>, usize), Malformed> {
    let (mut scanner, mut at, mut found, mut kept) = (Scanner::new(limit), 0, Vec::new(), 0);
    for arrived in (0..stream.len()).step_by(piece).map(|start| (start + piece).min(stream.len())) {
        loop {
            match scanner.find_or_pass_over(&stream[at..arrived])? {
                Step::Waits => break,
                Step::Part(length) => {
                    at += length;
                    break;
                }
                Step::Whole(length) => {
                    found.push((stream[at], length));
                    at += length;
                }
                Step::TooLong { length, kind } => {
                    found.push((kind, 0));
                    at += length;
                }
            }
        }
        kept = kept.max(arrived - at);
    }
    assert_eq!(at, stream.len());
    Ok((found, kept))
}

#[test]
fn answers_that_are_too_long_are_passed_over_and_others_are_found_behind_them() {
    let (long, limit) = ("x".repeat(300), 100);
    let tens = "$2\r\nab\r\n".repeat(30);
    let many = "$-1\r\n".repeat(60);
    let answers = [
        "+OK\r\n".to_owned(),
        format!("$300\r\n{long}\r\n"),
        ":7\r\n".to_owned(),
        format!("*3\r\n$1\r\na\r\n*2\r\n$300\r\n{long}\r\n:1\r\n$2\r\nbc\r\n"),
        format!("*30\r\n{tens}"),
        format!("*60\r\n{many}"),
        format!("|1\r\n+a\r\n$300\r\n{long}\r\n%1\r\n+b\r\n_\r\n"),
        format!("+{long}\r\n"),
        format!("$300\r\n{}\r\n", ">".repeat(300)),
        format!(">2\r\n+a\r\n$300\r\n{long}\r\n"),
        "$-1\r\n".to_owned(),
    ];
    let expected = answers.iter().map(|answer| {
        let length = if answer.len() > limit { 0 } else { answer.len() };
        (answer.as_bytes()[0], length)
    });
    let (expected, stream) = (expected.collect::<Vec<_>>(), answers.concat().into_bytes());
    for piece in 1..=stream.len() {
        let (found, kept) = passed_over(&stream, piece, limit).unwrap();
        assert_eq!(found, expected, "pieces of {piece}");
        // A line is buffered until it ends.
        assert!(kept <= 304, "{kept} bytes kept of pieces of {piece}");
    }
    assert_eq!(passed_over(b"$300\r\n", 3, limit), Ok((vec![], 3)));
    let wrong = format!("*2\r\n$300\r\n{long}\r\n?\r\n");
    assert_eq!(
        passed_over(wrong.as_bytes(), 9, limit).err(),
        Some(Malformed::Type { found: b'?' })
    );
}

#[test]
fn the_values_of_mget_are_strings_nothing_or_an_error_in_its_place() {
    let (count, values) = values(b"*4\r\n$1\r\na\r\n$-1\r\n_\r\n-ERR x\r\n").unwrap();
    assert_eq!(count, 4);
    assert_eq!(
        values.collect::<Vec<_>>(),
        [Value::Bulk(b"a"), Value::Nil, Value::Nil, Value::Error(b"ERR x")]
    );
    assert!(super::values(b"-LOADING\r\n").is_none());
}

#[test]
fn an_error_stays_one_line() {
    let mut out = Vec::new();
    put_error(&mut out, "ERR a\r\nb");
    assert_eq!(out, b"-ERR a  b\r\n");
}

proptest! {
    #[test]
    fn a_command_is_read_as_it_was_written(arguments in vec(vec(any::<u8>(), 0..40), 1..10), cut: prop::sample::Index) {
        let mut out = Vec::new();
        put_command(&mut out, arguments.iter().map(Vec::as_slice));
        prop_assert_eq!(command(&out[..cut.index(out.len())]), Ok(None));
        let mut dripped = Command::default();
        for arrived in 0..out.len() {
            prop_assert_eq!(read_command(&out[..arrived], LIMIT, &mut dripped), Ok(false));
        }
        prop_assert_eq!(read_command(&out, LIMIT, &mut dripped), Ok(true));
        prop_assert_eq!(dripped.arguments(&out, 0).map(<[u8]>::to_vec).collect::<Vec<_>>(), arguments.clone());
        prop_assert_eq!(command(&out), Ok(Some(arguments)));
    }

    #[test]
    fn no_bytes_panic(data in vec(prop::sample::select(b"*$+-:_%|~>=!1209\r\n\r\n\r\nab".to_vec()), 0..60), piece in 1usize..20) {
        let _ = command(&data);
        let _ = value(&data);
        if let Some((_, values)) = values(&data) {
            values.count();
        }
        if let Ok(whole) = ends(&data, data.len().max(1)) {
            prop_assert_eq!(ends(&data, piece), Ok(whole));
        }
    }
}
