//! Bodies: their ends, and refusal of malformed chunks.

use super::*;

/// Number of bytes that belong to the body, if it is complete.
fn chunks(text: &[u8]) -> Result<Option<usize>, Refusal> {
    let mut reader = BodyReader::new(Framing::Chunked);
    let taken = reader.take(text)?;
    Ok(reader.is_complete().then_some(taken))
}

#[test]
fn chunks_end_with_the_last_one_and_what_follows_it() {
    for (text, rest) in [
        ("0\r\n\r\n", "GET"),
        ("5\r\nhello\r\n0\r\n\r\n", ""),
        ("005;a=b;c=\"d\"\r\nhello\r\nA\r\n0123456789\r\n000\r\nX: y\r\n\r\n", "\r\n"),
    ] {
        assert_eq!(chunks(format!("{text}{rest}").as_bytes()), Ok(Some(text.len())), "{text}");
        assert_eq!(chunks(&text.as_bytes()[..text.len() - 1]), Ok(None), "{text}");
    }
}

#[test]
fn chunks_that_are_none_are_refused_by_name() {
    for (text, expected) in [
        ("\r\n", Refusal::ChunkSize),
        ("g\r\n", Refusal::ChunkSize),
        ("+5\r\nhello\r\n", Refusal::ChunkSize),
        ("0x5\r\nhello\r\n", Refusal::ChunkSize),
        (" 5\r\nhello\r\n", Refusal::ChunkSize),
        ("5 \r\nhello\r\n", Refusal::ChunkSize),
        (";a\r\n", Refusal::ChunkSize),
        ("5;a\x01\r\n", Refusal::ChunkSize),
        ("5\nhello\r\n", Refusal::BareLineFeed),
        ("5;a\nhello\r\n", Refusal::BareLineFeed),
        ("5\rhello\r\n", Refusal::BareCarriageReturn),
        ("5;\0\r\n", Refusal::Nul),
        ("5\r\nhello!\r\n", Refusal::ChunkEnd),
        ("5\r\nhello\n0\r\n", Refusal::ChunkEnd),
        ("5\r\nhello\r0\r\n", Refusal::ChunkEnd),
        ("8000000000000000\r\n", Refusal::ChunkTooLarge),
        ("fffffffffffffffff\r\n", Refusal::ChunkTooLarge),
        ("10000000000000005\r\nhello\r\n", Refusal::ChunkTooLarge),
        ("0\r\nContent-Length: 5\r\n\r\n", Refusal::Trailer),
        ("0\r\nTransfer-Encoding: chunked\r\n\r\n", Refusal::Trailer),
        ("0\r\nX : y\r\n\r\n", Refusal::SpaceBeforeColon),
        ("0\r\nTransfer_Encoding: chunked\r\n\r\n", Refusal::Trailer),
        ("0\r\nX: y\r\n z\r\n\r\n", Refusal::FoldedField),
        ("0\r\nX: y\n\r\n", Refusal::BareLineFeed),
        ("0\r\nX: \0\r\n\r\n", Refusal::Nul),
    ] {
        assert_eq!(chunks(text.as_bytes()), Err(expected), "{}", text.escape_debug());
    }
    assert_eq!(chunks(b"7fffffffffffffff\r\nx\r\n"), Ok(None), "the largest is one");
}

#[test]
fn behind_the_last_chunk_nothing_stands_that_is_decided_by() {
    let trailer = |name: &str| chunks(format!("0\r\n{name}: x\r\n\r\n").as_bytes());
    for name in [
        "X-Forwarded-For",
        "x-forwarded-proto",
        "X_Forwarded_For",
        "Forwarded",
        "X-Real-IP",
        "Via",
        "Authorization",
        "Proxy-Authorization",
        "Cookie",
        "Set-Cookie",
        "WWW-Authenticate",
        "Cache-Control",
        "Range",
        "If-None-Match",
        "Expect",
        "Content-Type",
        "Content-Range",
        "Location",
        "Upgrade",
        "Keep-Alive",
        "X-HTTP-Method-Override",
    ] {
        assert_eq!(trailer(name), Err(Refusal::Trailer), "{name}");
    }
    for name in [
        "X",
        "Content-Digest",
        "Content-MD5",
        "ETag",
        "Server-Timing",
        "grpc-status",
        "x-amz-checksum-crc32c",
    ] {
        assert!(matches!(trailer(name), Ok(Some(_))), "{name}");
    }
}

#[test]
fn lines_of_chunks_and_what_follows_them_have_limits() {
    let line = |length: usize| format!("5;{}\r\n", "a".repeat(length - 4));
    assert_eq!(chunks(line(CHUNK_LINE_BYTES_MAX).as_bytes()), Ok(None));
    assert_eq!(chunks(line(CHUNK_LINE_BYTES_MAX + 2).as_bytes()), Err(Refusal::ChunkLineTooLong));
    let zeros = "0".repeat(CHUNK_LINE_BYTES_MAX + 1);
    assert_eq!(chunks(zeros.as_bytes()), Err(Refusal::ChunkLineTooLong));
    let trailer = format!("0\r\n{}", "X: y\r\n".repeat(TRAILER_BYTES_MAX / 6 + 1));
    assert_eq!(chunks(trailer.as_bytes()), Err(Refusal::ChunkLineTooLong));
    let endless = format!("0\r\nX: {}", "y".repeat(TRAILER_BYTES_MAX));
    assert_eq!(chunks(endless.as_bytes()), Err(Refusal::ChunkLineTooLong));
}

#[test]
fn only_a_body_without_length_may_end_with_the_connection() {
    let mut endless = BodyReader::new(Framing::UntilClose);
    assert_eq!(
        (endless.take(b"abc"), endless.is_complete(), endless.may_end_here()),
        (Ok(3), false, true)
    );
    let mut counted = BodyReader::new(Framing::Length(4));
    assert_eq!(
        (counted.take(b"abc"), counted.is_complete(), counted.may_end_here()),
        (Ok(3), false, false)
    );
    assert_eq!(
        (counted.take(b"def"), counted.is_complete(), counted.may_end_here()),
        (Ok(1), true, true)
    );
    let mut none = BodyReader::new(Framing::None);
    assert_eq!((none.take(b"abc"), none.is_complete()), (Ok(0), true));
}
