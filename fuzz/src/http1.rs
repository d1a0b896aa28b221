//! HTTP/1.1. The first byte selects a stream of requests or of responses, and the size of pieces;
//! the rest is the stream.

use shunt_wire::http1::{
    BodyReader, Framing, HeadLimits, HeadReader, Refusal, RequestHead, ResponseHead, Version,
};

/// Small limits, so that inputs reach them.
const LIMITS: HeadLimits = HeadLimits { head_bytes: 1024, line_bytes: 256, fields: 16 };

/// A message: the bytes of its head, its framing and persistence, and the length of its body.
type Message = (Vec<u8>, Framing, bool, usize);

/// Tries one input.
pub fn run(data: &[u8]) {
    let Some((mode, stream)) = data.split_first() else { return };
    let responses = mode & 1 == 1;
    let piece = usize::from(mode >> 1).max(1);
    let whole = read(stream, responses, usize::MAX);
    assert_eq!(read(stream, responses, piece), whole, "pieces of {piece}");
    assert!(
        whole.0.iter().map(|(head, .., body)| head.len() + body).sum::<usize>() <= stream.len()
    );
}

/// The messages of a stream that arrives in pieces, and the reason if it was refused.
fn read(stream: &[u8], responses: bool, piece: usize) -> (Vec<Message>, Option<Refusal>) {
    let mut reader = HeadReader::new(LIMITS);
    let (mut messages, mut body) = (Vec::<Message>::new(), None::<BodyReader>);
    let (mut at, mut arrived) = (0, 0);
    while arrived < stream.len() {
        arrived += piece.min(stream.len() - arrived);
        loop {
            let unread = &stream[at..arrived];
            if let (Some(current), Some(message)) = (&mut body, messages.last_mut()) {
                let taken = match current.take(unread) {
                    Ok(taken) => taken,
                    Err(refusal) => {
                        // The length of the body before the fault depends on the pieces.
                        message.3 = 0;
                        return (messages, Some(refusal));
                    }
                };
                assert!(taken == unread.len() || current.is_complete());
                message.3 += taken;
                at += taken;
                if !current.is_complete() {
                    break;
                }
                body = None;
                continue;
            }
            match message(&mut reader, unread, responses) {
                Ok(Some(message)) => {
                    at += message.0.len();
                    body = Some(BodyReader::new(message.1));
                    messages.push(message);
                    reader.reset();
                }
                Ok(None) => break,
                Err(refusal) => return (messages, Some(refusal)),
            }
        }
    }
    (messages, None)
}

fn message(
    reader: &mut HeadReader,
    unread: &[u8],
    responses: bool,
) -> Result<Option<Message>, Refusal> {
    let Some(head) = reader.read(unread)? else { return Ok(None) };
    assert!(head.len() <= LIMITS.head_bytes && head.fields().count() <= LIMITS.fields);
    assert!(!head.bytes().contains(&0), "no byte of a head is 0");
    let mut forwarded = Vec::new();
    let found = if responses {
        let response = ResponseHead::read(head, false)?;
        assert!((100..1000).contains(&response.status));
        response.forward(&[], &mut forwarded);
        (response.framing, response.keep_alive)
    } else {
        let request = RequestHead::read(head)?;
        assert!(request.framing != Framing::UntilClose);
        assert!(request.version == Version::Http11 || request.framing != Framing::Chunked);
        request.forward(&[], &mut forwarded);
        (request.framing, request.keep_alive)
    };
    check_forwarded(&forwarded, responses, found.0);
    Ok(Some((head.bytes().to_vec(), found.0, found.1, 0)))
}

/// The next reader finds one head, and the same end of the body.
fn check_forwarded(forwarded: &[u8], responses: bool, framing: Framing) {
    let mut reader = HeadReader::new(HeadLimits::DEFAULT);
    let head = reader.read(forwarded).expect("what is forwarded is a head").expect("a whole one");
    assert_eq!(head.len(), forwarded.len());
    assert!(head.field("connection").is_none() && head.field("upgrade").is_none());
    let again = match responses {
        true => ResponseHead::read(head, false).map(|head| head.framing),
        false => RequestHead::read(head).map(|head| head.framing),
    };
    assert_eq!(again, Ok(framing));
}
