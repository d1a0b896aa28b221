//! The 9-byte envelope header, its opcodes and flags.
//!
//! Native protocol v3 and v4, section 2; v5, section 2.4.1. The header is the same in all three
//! versions; in v5 the envelope travels inside segments ([`super::frame_v5`]), in v3 and v4 bare.

/// Length of an envelope header in bytes.
pub const HEADER_BYTES: usize = 9;

/// Largest body in bytes: "currently a frame is limited to 256MB in length" (v4, section 2.5).
pub const BODY_BYTES_MAX: u32 = 256 * 1024 * 1024;

/// Stream id of messages that the server sends unprompted, which are events (v4, section 2.3).
pub const EVENT_STREAM: i16 = -1;

/// The bit of the version byte that marks a response.
const DIRECTION_RESPONSE: u8 = 0x80;

/// A decoded envelope header. [`Header::decode`] validates no field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Header {
    /// Protocol version without the direction bit; 3, 4 or 5 from a conforming peer.
    pub version: u8,
    /// True if the direction bit marks a response.
    pub response: bool,
    /// Bits of [`flag`].
    pub flags: u8,
    /// Stream id: 0 or more for requests and their responses, [`EVENT_STREAM`] for events.
    pub stream: i16,
    /// One of [`opcode`].
    pub opcode: u8,
    /// Length of the body that follows, in bytes.
    pub length: u32,
}

impl Header {
    /// Reads the header at the start of `bytes`; `None` if `bytes` is shorter than
    /// [`HEADER_BYTES`].
    ///
    /// Only splits the fields. The caller, who knows the connection, decides whether version,
    /// opcode and length are acceptable. The caller must refuse a length above [`BODY_BYTES_MAX`]
    /// before waiting for the body.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        let &[version, flags, stream_high, stream_low, opcode, a, b, c, d] =
            bytes.first_chunk::<HEADER_BYTES>()?;
        Some(Header {
            version: version & !DIRECTION_RESPONSE,
            response: version & DIRECTION_RESPONSE != 0,
            flags,
            stream: i16::from_be_bytes([stream_high, stream_low]),
            opcode,
            length: u32::from_be_bytes([a, b, c, d]),
        })
    }

    /// Encodes the header for the wire.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let direction = if self.response { DIRECTION_RESPONSE } else { 0 };
        let [stream_high, stream_low] = self.stream.to_be_bytes();
        let [a, b, c, d] = self.length.to_be_bytes();
        [
            (self.version & !DIRECTION_RESPONSE) | direction,
            self.flags,
            stream_high,
            stream_low,
            self.opcode,
            a,
            b,
            c,
            d,
        ]
    }

    /// A request header with no flags and length 0.
    pub fn request(version: u8, stream: i16, opcode: u8) -> Header {
        Header { version, response: false, flags: 0, stream, opcode, length: 0 }
    }

    /// A response header with no flags and length 0.
    pub fn response(version: u8, stream: i16, opcode: u8) -> Header {
        Header { version, response: true, flags: 0, stream, opcode, length: 0 }
    }
}

/// Appends a whole envelope to `out`: `header`, then whatever `body` appends. Sets the header's
/// length to the length of the body.
///
/// Serves v3 and v4, and v5 before the handshake is over (v5, section 2.3.1). The value of
/// `header.length` is ignored.
pub fn append(out: &mut Vec<u8>, header: Header, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&header.to_bytes());
    body(out);
    let length = out.len().saturating_sub(start + HEADER_BYTES);
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    if let Some(field) = out.get_mut(start + 5..start + HEADER_BYTES) {
        field.copy_from_slice(&length.to_be_bytes());
    }
}

/// Opcodes (v5, section 2.4.1.4), and three opcodes that Shunt adds.
pub mod opcode {
    /// Response: an error (section 4.2.1).
    pub const ERROR: u8 = 0x00;
    /// Request: opens the connection (section 4.1.1).
    pub const STARTUP: u8 = 0x01;
    /// Response: the connection is ready for queries (section 4.2.2).
    pub const READY: u8 = 0x02;
    /// Response: the client must log in (section 4.2.3).
    pub const AUTHENTICATE: u8 = 0x03;
    /// Request: asks which options the server supports (section 4.1.3).
    pub const OPTIONS: u8 = 0x05;
    /// Response: answer to OPTIONS (section 4.2.4).
    pub const SUPPORTED: u8 = 0x06;
    /// Request: a statement as text (section 4.1.4).
    pub const QUERY: u8 = 0x07;
    /// Response: a result (section 4.2.5).
    pub const RESULT: u8 = 0x08;
    /// Request: prepare a statement (section 4.1.5).
    pub const PREPARE: u8 = 0x09;
    /// Request: execute a prepared statement (section 4.1.6).
    pub const EXECUTE: u8 = 0x0A;
    /// Request: subscribes to events (section 4.1.8).
    pub const REGISTER: u8 = 0x0B;
    /// Response without a request: an event (section 4.2.6).
    pub const EVENT: u8 = 0x0C;
    /// Request: several statements as one (section 4.1.7).
    pub const BATCH: u8 = 0x0D;
    /// Response: the next step of a login (section 4.2.7).
    pub const AUTH_CHALLENGE: u8 = 0x0E;
    /// Request: the client's step of a login (section 4.1.2).
    pub const AUTH_RESPONSE: u8 = 0x0F;
    /// Response: logged in (section 4.2.8).
    pub const AUTH_SUCCESS: u8 = 0x10;
    /// Both directions: several envelopes in one; see [`crate::aggregate`].
    pub const AGGREGATE: u8 = 0x64;
    /// Inside an aggregated frame: the node may forget a client; see [`crate::aggregate`].
    pub const CLIENT_GONE: u8 = 0x65;
    /// Response: a large RESULT waits at the agent on the node's host (docs/internals/handover.md).
    pub const OFFERED: u8 = 0x66;

    /// The specification's name of an opcode, for error messages.
    pub fn name(opcode: u8) -> Option<&'static str> {
        const NAMES: [&str; 17] = [
            "ERROR",
            "STARTUP",
            "READY",
            "AUTHENTICATE",
            "",
            "OPTIONS",
            "SUPPORTED",
            "QUERY",
            "RESULT",
            "PREPARE",
            "EXECUTE",
            "REGISTER",
            "EVENT",
            "BATCH",
            "AUTH_CHALLENGE",
            "AUTH_RESPONSE",
            "AUTH_SUCCESS",
        ];
        NAMES.get(usize::from(opcode)).copied().filter(|name| !name.is_empty())
    }
}

/// Header flags (v5, section 2.4.1.2).
pub mod flag {
    /// The body is compressed. v3 and v4 only; "deprecated and ignored" in v5.
    pub const COMPRESSION: u8 = 0x01;
    /// Request: trace this query. Response: a tracing id leads the body.
    pub const TRACING: u8 = 0x02;
    /// A custom payload leads the body, after tracing id and warnings. v4 and later.
    pub const CUSTOM_PAYLOAD: u8 = 0x04;
    /// Response: warnings lead the body, after the tracing id. v4 and later.
    pub const WARNING: u8 = 0x08;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_survives_the_round_trip() {
        for version in 3..=5 {
            for response in [false, true] {
                let header = Header {
                    version,
                    response,
                    flags: 0x1F,
                    stream: -2,
                    opcode: 0x0A,
                    length: 0x0102_0304,
                };
                assert_eq!(Header::decode(&header.to_bytes()), Some(header));
            }
        }
    }

    #[test]
    fn header_has_the_specified_layout() {
        let header =
            Header { version: 4, response: true, flags: 2, stream: 0x0102, opcode: 8, length: 5 };
        assert_eq!(header.to_bytes(), [0x84, 2, 1, 2, 8, 0, 0, 0, 5]);
    }

    #[test]
    fn fewer_than_nine_bytes_are_no_header() {
        for length in 0..HEADER_BYTES {
            assert_eq!(Header::decode(&[0xFF; HEADER_BYTES][..length]), None);
        }
    }

    #[test]
    fn append_sets_the_length() {
        let mut out = vec![0xEE];
        append(&mut out, Header::request(4, 7, opcode::OPTIONS), |body| {
            body.extend_from_slice(b"abc")
        });
        assert_eq!(out, [0xEE, 4, 0, 0, 7, 5, 0, 0, 0, 3, b'a', b'b', b'c']);
    }
}
