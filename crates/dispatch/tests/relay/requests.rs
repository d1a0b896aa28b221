//! Requests, and the answers that servers give to them.

use std::sync::Mutex;

use shunt_reactor::sim::Random;

/// A request whose answer both sides know.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Request {
    /// Body of this many bytes, with a Content-Length.
    Length(usize),
    /// Body of this many bytes, different for each run of a server.
    Versioned(usize),
    /// Like `Versioned`, with a weak tag that is the same for all versions.
    Weak(usize),
    /// Like `Length`, with a request body that the server ignores.
    WithBody(usize),
    /// Like `Length`, with a head of 20 KB.
    LongHead(usize),
    /// Like `Length`, in chunks.
    Chunked(usize),
    /// Like `Length`, ended by the end of the connection.
    UntilClose(usize),
    /// HEAD of `Length`.
    Head(usize),
    /// Status 204 or 304.
    Empty(u16),
    /// Sends a body of this many bytes; the server answers with its length and checksum.
    Upload(usize),
    /// Like `Upload`, in chunks.
    UploadChunked(usize),
    /// Like `Upload`, after `100 Continue`.
    UploadExpected(usize),
    /// Like `Length`, from an HTTP/1.0 client.
    Old(usize),
    /// Bytes sent unchanged.
    Raw(String),
}

/// Bytes without repetition. Each is computed once in a process: servers and clients ask for the
/// same megabytes thousands of times.
pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    static LONGEST: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    let mut longest = LONGEST.lock().unwrap();
    for at in longest.len()..bytes {
        longest.push((at as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3]);
    }
    longest[..bytes].to_vec()
}

/// One version of these bytes; it differs from every other at each byte.
pub(crate) fn version(bytes: usize, version: u8) -> Vec<u8> {
    let mut bytes = pattern(bytes);
    for byte in &mut bytes {
        *byte ^= version;
    }
    bytes
}

/// A server's answer to a body: its length and a checksum.
pub(crate) fn seen(body: &[u8]) -> Vec<u8> {
    let sum = body.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{} {sum:x}", body.len()).into_bytes()
}

/// Encodes bytes in chunks of odd sizes.
pub(crate) fn chunked(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in body.chunks(1_777) {
        out.extend(format!("{:x};a=b\r\n", piece.len()).bytes());
        out.extend_from_slice(piece);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\nX-Sum: 1\r\n\r\n");
    out
}

/// Decodes [`chunked`], given valid chunks.
pub(crate) fn unchunked(mut raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let line = raw.windows(2).position(|pair| pair == b"\r\n").unwrap();
        let digits = raw[..line].split(|byte| *byte == b';').next().unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
        if size == 0 {
            return out;
        }
        out.extend_from_slice(&raw[line + 2..line + 2 + size]);
        raw = &raw[line + 2 + size + 2..];
    }
}

impl Request {
    pub(crate) fn draw(random: &mut Random) -> Request {
        let limit = *[10, 1_000, 70_000, 400_000].get(random.index(4)).unwrap();
        let bytes = random.below(limit) as usize;
        match random.below(13) {
            0 | 1 => Request::Length(bytes),
            2 => Request::Chunked(bytes),
            3 => Request::UntilClose(bytes),
            4 => Request::Head(bytes),
            5 => Request::Empty(if random.chance(0.5) { 204 } else { 304 }),
            6 => Request::Upload(bytes),
            7 => Request::UploadChunked(bytes),
            8 => Request::UploadExpected(bytes + 1),
            9 => Request::Old(bytes),
            10 => Request::Versioned(bytes),
            11 => Request::Weak(bytes),
            _ => Request::Length(0),
        }
    }

    pub(crate) fn is_head(&self) -> bool {
        matches!(self, Request::Head(_))
    }

    /// Bytes sent to the server first; for [`Request::UploadExpected`] only the head.
    pub(crate) fn head(&self) -> Vec<u8> {
        let get = |method: &str, path: String| {
            format!("{method} {path} HTTP/1.1\r\nHost: a\r\nX-Own: 1\r\nConnection: x-own\r\n\r\n")
        };
        match self {
            Request::Length(bytes) => get("GET", format!("/length/{bytes}")),
            Request::Versioned(bytes) => get("GET", format!("/versioned/{bytes}")),
            Request::Weak(bytes) => get("GET", format!("/weak/{bytes}")),
            Request::WithBody(bytes) => format!("GET /length/{bytes} HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"),
            Request::LongHead(bytes) => {
                let fields: String = (0..20).map(|number| format!("X-{number}: {}\r\n", "a".repeat(1_000))).collect();
                format!("GET /length/{bytes} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
            }
            Request::Chunked(bytes) => get("GET", format!("/chunked/{bytes}")),
            Request::UntilClose(bytes) => get("GET", format!("/close/{bytes}")),
            Request::Head(bytes) => get("HEAD", format!("/length/{bytes}")),
            Request::Empty(status) => get("GET", format!("/status/{status}")),
            Request::Upload(bytes) => format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n"),
            Request::UploadChunked(_) => {
                "PUT /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned()
            }
            Request::UploadExpected(bytes) => {
                format!("PUT /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\nExpect: 100-continue\r\n\r\n")
            }
            Request::Old(bytes) => format!("GET /length/{bytes} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
            Request::Raw(text) => text.clone(),
        }
        .into_bytes()
    }

    /// Bytes sent after the head.
    pub(crate) fn body(&self) -> Vec<u8> {
        match self {
            Request::Upload(bytes) | Request::UploadExpected(bytes) => pattern(*bytes),
            Request::UploadChunked(bytes) => chunked(&pattern(*bytes)),
            Request::WithBody(_) => b"hello".to_vec(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn status(&self) -> u16 {
        if let Request::Empty(status) = self { *status } else { 200 }
    }

    /// True if this is the body of the answer, or of one valid answer.
    pub(crate) fn is_answered_by(&self, body: &[u8]) -> bool {
        match self {
            Request::Versioned(bytes) | Request::Weak(bytes) => {
                // The first byte tells the version.
                let first = body.first().copied().unwrap_or_default();
                *body == version(*bytes, first ^ pattern(1)[0])
            }
            _ => *body == self.answer(),
        }
    }

    /// The body of the answer.
    pub(crate) fn answer(&self) -> Vec<u8> {
        match self {
            Request::Length(bytes)
            | Request::Chunked(bytes)
            | Request::UntilClose(bytes)
            | Request::Old(bytes) => pattern(*bytes),
            Request::Versioned(bytes) | Request::Weak(bytes) => pattern(*bytes),
            Request::WithBody(bytes) | Request::LongHead(bytes) => pattern(*bytes),
            Request::Head(_) | Request::Empty(_) | Request::Raw(_) => Vec::new(),
            Request::Upload(bytes)
            | Request::UploadChunked(bytes)
            | Request::UploadExpected(bytes) => seen(&pattern(*bytes)),
        }
    }
}
