//! The rest of an answer: the request for it, and the check of its answer.

use shunt_handover::limits::{ETAG_BYTES_MAX, HEAD_BYTES_MAX};
use shunt_handover::message::Framing;
use shunt_wire::http1::{
    ContentRange, Framing as BodyFraming, HeadLimits, HeadReader, ResponseHead,
};

use crate::limits;

/// Limits of heads that agents pass on.
const ANSWER_HEAD: HeadLimits =
    HeadLimits { head_bytes: HEAD_BYTES_MAX, line_bytes: HEAD_BYTES_MAX, fields: 256 };

/// Request fields that would ask for another part than the rest, or for none.
const LEFT_OUT: [&[u8]; 6] = [
    b"range",
    b"if-range",
    b"if-match",
    b"if-none-match",
    b"if-modified-since",
    b"if-unmodified-since",
];

/// The rest of an answer that another backend can be asked for.
#[derive(Debug)]
pub(crate) struct Rest {
    etag: Vec<u8>,
    /// First and last byte that the client lacks, and the total.
    range: ContentRange,
    /// Bytes of the head before the rest, which go out with it when the connection is handed over.
    head_bytes: u64,
    /// The rest was requested, and its head has not come.
    is_awaited: bool,
    tries: u8,
}

impl Rest {
    /// The whole of a GET's answer, before any of it is sent.
    pub(crate) fn of(head: &[u8], framing: Framing) -> Option<Box<Rest>> {
        let Framing::Length(length) = framing else { return None };
        if length < limits::RESUMED_BYTES_MIN {
            return None;
        }
        let mut reader = HeadReader::new(ANSWER_HEAD);
        let response = ResponseHead::read(reader.read(head).ok()??, false).ok()?;
        let range = match response.status {
            200 => ContentRange { first: 0, last: length - 1, total: length },
            206 => {
                response.content_range().filter(|range| range.last - range.first + 1 == length)?
            }
            _ => return None,
        };
        let etag = response.strong_etag().filter(|etag| etag.len() <= ETAG_BYTES_MAX)?.to_vec();
        Some(Box::new(Rest {
            etag,
            range,
            head_bytes: head.len() as u64,
            is_awaited: false,
            tries: 0,
        }))
    }

    /// True from the request for the rest until its head has come.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Notes a request for the last `left` bytes, at least one; false if too many were made.
    pub(crate) fn ask(&mut self, left: u64) -> bool {
        self.range.first = self.range.last + 1 - left;
        self.is_awaited = true;
        self.tries += 1;
        self.tries <= limits::RESUMES_MAX
    }

    /// The head of the rest has come.
    pub(crate) fn begins(&mut self) {
        self.is_awaited = false;
    }

    /// The rest is offered with a head of `bytes` bytes.
    pub(crate) fn set_head(&mut self, bytes: u64) {
        self.head_bytes = bytes;
    }

    /// Notes that `bytes` of head and rest have been sent; returns the bytes left, or `None` if
    /// that cannot be.
    pub(crate) fn sent(&mut self, bytes: u64) -> Option<u64> {
        if !self.follows(bytes) {
            return None;
        }
        self.range.first += bytes - self.head_bytes;
        Some(self.left())
    }

    /// True if the rest can go on after `bytes` of head and rest: never within the head, which may
    /// differ on another server.
    pub(crate) fn follows(&self, bytes: u64) -> bool {
        bytes.checked_sub(self.head_bytes).is_some_and(|body| body <= self.left())
    }

    /// Bytes that the client lacks.
    fn left(&self) -> u64 {
        (self.range.last + 1).saturating_sub(self.range.first)
    }

    /// Builds the request for the rest from the one for the whole.
    pub(crate) fn request(&self, whole: &[u8]) -> Vec<u8> {
        let fields = whole.strip_suffix(b"\r\n").unwrap_or(whole);
        let mut request = Vec::with_capacity(whole.len() + self.etag.len() + 80);
        for line in fields.split_inclusive(|byte| *byte == b'\n') {
            let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
            if !LEFT_OUT.iter().any(|left_out| name.eq_ignore_ascii_case(left_out)) {
                request.extend_from_slice(line);
            }
        }
        let ContentRange { first, last, .. } = self.range;
        request.extend_from_slice(format!("Range: bytes={first}-{last}\r\nIf-Range: ").as_bytes());
        request.extend_from_slice(&self.etag);
        request.extend_from_slice(b"\r\n\r\n");
        request
    }

    /// True if the head announces exactly this rest.
    pub(crate) fn is_in(&self, head: &[u8]) -> bool {
        let mut reader = HeadReader::new(ANSWER_HEAD);
        let Ok(Some(head)) = reader.read(head) else { return false };
        ResponseHead::read(head, false).is_ok_and(|response| {
            response.status == 206
                && response.content_range() == Some(self.range)
                && response.strong_etag() == Some(&*self.etag)
                && response.framing == BodyFraming::Length(self.left())
        })
    }
}

/// Status in a head as agents pass it on.
pub(crate) fn status_of(head: &[u8]) -> Option<u16> {
    let status = head.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    std::str::from_utf8(status).ok()?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    const WHOLE: &str = "HTTP/1.1 200 OK\r\nETag: \"a-1\"\r\nContent-Length: 100000\r\n\r\n";

    fn rest(head: &str, length: u64) -> Option<Box<Rest>> {
        Rest::of(head.as_bytes(), Framing::Length(length))
    }

    fn part(first: u64, last: u64, total: u64, etag: &str) -> String {
        format!(
            "HTTP/1.1 206 Part\r\nETag: {etag}\r\nContent-Range: bytes {first}-{last}/{total}\r\nContent-Length: {}\r\n\r\n",
            last + 1 - first
        )
    }

    #[test]
    fn answers_that_are_short_or_lack_a_length_or_strong_tag_have_no_rest() {
        assert!(rest(WHOLE, 100_000).is_some());
        assert!(Rest::of(WHOLE.as_bytes(), Framing::Chunked).is_none());
        assert!(rest(&WHOLE.replace("100000", "1000"), 1000).is_none());
        for other in [
            WHOLE.replace("\"a-1\"", "W/\"a-1\""),
            WHOLE.replace("ETag", "X"),
            WHOLE.replace("200", "203"),
            WHOLE.replace("200", "404"),
        ] {
            assert!(rest(&other, 100_000).is_none(), "{other}");
        }
        // A part has a rest only if the head says which part it is.
        assert!(rest(&WHOLE.replace("200", "206"), 100_000).is_none());
        assert!(rest(&part(5, 100_004, 200_000, "\"a-1\""), 100_000).is_some());
        assert!(rest(&part(5, 100_005, 200_000, "\"a-1\""), 100_000).is_none());
    }

    #[test]
    fn the_request_for_it_has_no_other_condition_or_range() {
        let mut rest = rest(WHOLE, 100_000).unwrap();
        assert!(rest.ask(1));
        let whole = "GET /a?range:=b HTTP/1.1\r\nHost: a\r\nRANGE: bytes=0-\r\nIf-None-Match: \"b\"\r\nif-modified-since: x\r\nX-Range: c\r\n\r\n";
        let asked = String::from_utf8(rest.request(whole.as_bytes())).unwrap();
        assert_eq!(
            asked,
            "GET /a?range:=b HTTP/1.1\r\nHost: a\r\nX-Range: c\r\nRange: bytes=99999-99999\r\nIf-Range: \"a-1\"\r\n\r\n"
        );
    }

    #[test]
    fn nothing_but_exactly_the_rest_is_taken_for_it() {
        let mut rest = rest(&part(1_000, 100_999, 200_000, "\"a-1\""), 100_000).unwrap();
        assert_eq!(rest.sent(u64::MAX), None);
        rest.set_head(100);
        assert_eq!((rest.sent(99), rest.sent(600)), (None, Some(99_500)));
        assert!(rest.ask(99_500));
        assert!(rest.is_in(part(1_500, 100_999, 200_000, "\"a-1\"").as_bytes()));
        for wrong in [
            part(1_501, 100_999, 200_000, "\"a-1\""),
            part(1_500, 100_998, 200_000, "\"a-1\""),
            part(1_500, 100_999, 200_001, "\"a-1\""),
            part(1_500, 100_999, 200_000, "\"a-2\""),
            part(1_500, 100_999, 200_000, "W/\"a-1\""),
            part(1_500, 100_999, 200_000, "\"a-1\"").replace("206", "200"),
            part(1_500, 100_999, 200_000, "\"a-1\"")
                .replace("Content-Length: 99500", "Content-Length: 99499"),
            WHOLE.to_owned(),
            String::new(),
        ] {
            assert!(!rest.is_in(wrong.as_bytes()), "{wrong}");
        }
        let tries = (0..).take_while(|_| rest.ask(99_500)).count();
        assert_eq!(tries + 1, usize::from(limits::RESUMES_MAX));
    }
}
