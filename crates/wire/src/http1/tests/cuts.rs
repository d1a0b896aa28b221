//! The outcome does not depend on where the bytes are cut.

use proptest::prelude::*;

use super::*;

/// Small limits, so that inputs reach them.
const LIMITS: HeadLimits = HeadLimits { head_bytes: 160, line_bytes: 48, fields: 5 };

/// Fields, framing, whether the connection persists, and bytes of the body.
type Message = (Vec<(Vec<u8>, Vec<u8>)>, Framing, bool, usize);

/// Result of reading a whole stream: heads and their meaning, bodies, and the final error.
#[derive(Debug, PartialEq)]
struct Outcome {
    messages: Vec<Message>,
    refusal: Option<Refusal>,
    unread: usize,
}

/// Reads consecutive requests from bytes that arrive in pieces.
fn read(stream: &[u8], cuts: &[usize]) -> Outcome {
    let mut outcome = Outcome { messages: Vec::new(), refusal: None, unread: 0 };
    let (mut reader, mut body): (_, Option<BodyReader>) = (HeadReader::new(LIMITS), None);
    let mut unread = Vec::new();
    let mut ends: Vec<usize> =
        cuts.iter().map(|cut| cut % (stream.len() + 1)).chain([stream.len()]).collect();
    ends.sort_unstable();
    let mut start = 0;
    for end in ends {
        unread.extend_from_slice(&stream[start..end]);
        start = end;
        while outcome.refusal.is_none() {
            let step = step(&unread, &mut reader, &mut body, &mut outcome);
            match step {
                Ok(0) => break,
                Ok(taken) => drop(unread.drain(..taken)),
                Err(refusal) => outcome.refusal = Some(refusal),
            }
        }
    }
    // The position of a refusal within a piece is not part of the outcome.
    outcome.unread = if outcome.refusal.is_some() { 0 } else { unread.len() };
    outcome
}

fn step(
    unread: &[u8],
    reader: &mut HeadReader,
    body: &mut Option<BodyReader>,
    outcome: &mut Outcome,
) -> Result<usize, Refusal> {
    if let Some(current) = body {
        let taken = current.take(unread)?;
        if let Some(message) = outcome.messages.last_mut() {
            message.3 += taken;
        }
        if current.is_complete() {
            *body = None;
        }
        return Ok(taken);
    }
    let Some(head) = reader.read(unread)? else { return Ok(0) };
    let request = RequestHead::read(head)?;
    let fields = head.fields().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
    outcome.messages.push((fields, request.framing, request.keep_alive, 0));
    let (length, next) = (head.len(), BodyReader::new(request.framing));
    *body = Some(next).filter(|body| !body.is_complete());
    reader.reset();
    Ok(length)
}

/// Pieces of requests, some of them invalid.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => Just(b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec()),
        3 => Just(b"POST /b HTTP/1.1\r\nHost: a\r\n".to_vec()),
        1 => Just(b"GET / HTTP/1.0\r\n".to_vec()),
        8 => Just(b"\r\n".to_vec()),
        3 => Just(b"Content-Length: 5\r\n\r\nhello".to_vec()),
        3 => Just(b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".to_vec()),
        2 => Just(b"Transfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nT: u\r\n\r\n".to_vec()),
        2 => "[a-zA-Z]{1,10}: [ -~]{0,40}\r\n".prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..60),
        1 => prop_oneof![Just("\n"), Just("\r"), Just(" "), Just("\0"), Just(":")].prop_map(|text| text.as_bytes().to_vec()),
    ];
    proptest::collection::vec(piece, 1..14).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn requests_are_the_same_wherever_they_are_cut(stream in pieces(), cuts in proptest::collection::vec(any::<usize>(), 0..12)) {
        prop_assert_eq!(read(&stream, &cuts), read(&stream, &[]));
        let each: Vec<usize> = (0..stream.len()).collect();
        prop_assert_eq!(read(&stream, &each), read(&stream, &[]));
    }

    #[test]
    fn a_forwarded_head_says_the_same(stream in pieces()) {
        let mut reader = HeadReader::new(HeadLimits::DEFAULT);
        if let Ok(Some(head)) = reader.read(&stream)
            && let Ok(request) = RequestHead::read(head)
        {
            let mut forwarded = Vec::new();
            request.forward(&[], &mut forwarded);
            let mut again = HeadReader::new(HeadLimits::DEFAULT);
            let head = again.read(&forwarded).expect("it is one").expect("it is whole");
            prop_assert_eq!(head.len(), forwarded.len());
            let again = RequestHead::read(head).expect("it is one");
            prop_assert_eq!((again.method, again.target, again.framing), (request.method, request.target, request.framing));
        }
    }
}
