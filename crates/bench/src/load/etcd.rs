//! The client side of etcd: `etcdserverpb.KV/Txn` over gRPC, as in etcd's own clients, one call at
//! a time on a connection.
//!
//! The module implements as much of HTTP/2 (RFC 9113) as a unary call needs. It sends header blocks
//! without indexing and does not read received ones, so a failed call has no message.

use crate::load::locks::{NAME_BYTES, OWNER_BYTES};

const FRAME_HEADER_BYTES: usize = 9;
/// Largest frame that a peer may send by default (section 4.2).
const FRAME_BYTES_MAX: usize = 16_384;
/// Bytes before a message: a flag and its length.
const MESSAGE_HEADER_BYTES: usize = 5;
/// Received bytes after which the window is extended by as many; the peer may have 65,535 under
/// way.
const ALLOW_AFTER_BYTES: u32 = 16_384;
/// End of the stream ids for calls (section 5.1.1).
const CALLS_END: u32 = 1 << 31;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
/// Flag of SETTINGS and PING.
const ACK: u8 = 1;
/// Flag of HEADERS and DATA.
const END_STREAM: u8 = 1;
/// Flag of HEADERS.
const END_HEADERS: u8 = 4;
/// Flag of DATA.
const PADDED: u8 = 8;

/// The header block of a call: POST, http, path, authority, content-type, te, as literals without
/// indexing (RFC 7541, section 6.2.2).
const CALL_HEADERS: &[u8] =
    b"\x83\x86\x04\x14/etcdserverpb.KV/Txn\x01\x04etcd\x0f\x10\x10application/grpc\x00\x02te\x08trailers";

/// Meaning of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Heard {
    /// No meaning for the load.
    Nothing,
    /// The server's first frame.
    Greeting,
    /// The end of a call; true if the transaction's comparison held.
    Done(bool),
}

/// State of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Connection {
    calls: u32,
    /// The received answer, until the call ends.
    succeeded: Option<bool>,
    /// Bytes received since the window was last extended.
    received: u32,
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Appends a field of a message; its value is shorter than 128 bytes.
fn field(out: &mut Vec<u8>, tag: u8, value: &[u8]) {
    out.extend_from_slice(&[tag, value.len() as u8]);
    out.extend_from_slice(value);
}

/// Appends a `TxnRequest` that puts the lock if it does not exist.
pub(super) fn acquire(out: &mut Vec<u8>, name: &[u8; NAME_BYTES], owner: &[u8; OWNER_BYTES]) {
    // Compare { target: CREATE, key, create_revision: 0 }
    out.extend_from_slice(&[0x0A, NAME_BYTES as u8 + 6, 0x10, 1]);
    field(out, 0x1A, name);
    out.extend_from_slice(&[0x28, 0]);
    // success: RequestOp { request_put: PutRequest { key, value } }
    let put_bytes = (NAME_BYTES + OWNER_BYTES) as u8 + 4;
    out.extend_from_slice(&[0x12, put_bytes + 2, 0x12, put_bytes]);
    field(out, 0x0A, name);
    field(out, 0x12, owner);
}

/// Appends a `TxnRequest` that deletes the lock if its value is this owner.
pub(super) fn release(out: &mut Vec<u8>, name: &[u8; NAME_BYTES], owner: &[u8; OWNER_BYTES]) {
    // Compare { target: VALUE, key, value }
    out.extend_from_slice(&[0x0A, (NAME_BYTES + OWNER_BYTES) as u8 + 6, 0x10, 3]);
    field(out, 0x1A, name);
    field(out, 0x3A, owner);
    // success: RequestOp { request_delete_range: DeleteRangeRequest { key } }
    let delete_bytes = NAME_BYTES as u8 + 2;
    out.extend_from_slice(&[0x12, delete_bytes + 2, 0x1A, delete_bytes]);
    field(out, 0x0A, name);
}

impl Connection {
    /// Appends the first bytes of a connection: the preface, and empty settings.
    pub(super) fn begin(out: &mut Vec<u8>) {
        out.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        frame(out, SETTINGS, 0, 0, &[]);
    }

    /// Appends a call with a message.
    ///
    /// # Errors
    /// The connection has no stream id left.
    pub(super) fn call(&mut self, out: &mut Vec<u8>, message: &[u8]) -> Result<(), String> {
        let stream =
            self.calls.checked_mul(2).map(|even| even + 1).filter(|&stream| stream < CALLS_END);
        let stream = stream.ok_or("a connection to etcd has no stream id left for another call")?;
        self.calls += 1;
        self.succeeded = None;
        frame(out, HEADERS, END_HEADERS, stream, CALL_HEADERS);
        let length = (MESSAGE_HEADER_BYTES + message.len()) as u32;
        out.extend_from_slice(&length.to_be_bytes()[1..]);
        out.extend_from_slice(&[DATA, END_STREAM]);
        out.extend_from_slice(&stream.to_be_bytes());
        out.push(0); // not compressed
        out.extend_from_slice(&(message.len() as u32).to_be_bytes());
        out.extend_from_slice(message);
        Ok(())
    }

    /// Reads the first frame in `data`; returns its length and meaning, or `None` if it is
    /// incomplete. Appends any reply to `out`.
    ///
    /// # Errors
    /// The peer breaks the protocol, ends the connection, or refuses the call.
    pub(super) fn take(
        &mut self,
        out: &mut Vec<u8>,
        data: &[u8],
    ) -> Result<Option<(usize, Heard)>, String> {
        let Some(head) = data.first_chunk::<FRAME_HEADER_BYTES>() else { return Ok(None) };
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(format!("etcd sent a frame of {length} bytes"));
        }
        let (kind, flags) = (head[3], head[4]);
        let Some(payload) = data[FRAME_HEADER_BYTES..].get(..length) else { return Ok(None) };
        let heard = match kind {
            SETTINGS if flags & ACK == 0 => {
                frame(out, SETTINGS, ACK, 0, &[]);
                Heard::Greeting
            }
            PING if flags & ACK == 0 => {
                frame(out, PING, ACK, 0, payload);
                Heard::Nothing
            }
            SETTINGS | PING | WINDOW_UPDATE => Heard::Nothing,
            DATA if flags & PADDED == 0 => {
                self.allow_more(out, length as u32);
                self.succeeded = Some(succeeded(payload)?);
                Heard::Nothing
            }
            HEADERS if flags & END_STREAM == 0 => Heard::Nothing,
            HEADERS => {
                let text = || format!("etcd refused a call: {}", String::from_utf8_lossy(payload));
                Heard::Done(self.succeeded.take().ok_or_else(text)?)
            }
            RST_STREAM | GOAWAY => {
                return Err(format!("etcd ended a call or the connection (frame {kind})"));
            }
            _ => return Err(format!("etcd sent a frame of kind {kind} with flags {flags:#x}")),
        };
        Ok(Some((FRAME_HEADER_BYTES + length, heard)))
    }

    fn allow_more(&mut self, out: &mut Vec<u8>, length: u32) {
        self.received += length;
        if self.received >= ALLOW_AFTER_BYTES {
            frame(out, WINDOW_UPDATE, 0, 0, &self.received.to_be_bytes());
            self.received = 0;
        }
    }
}

/// Reads `succeeded` from a complete `TxnResponse` with its length.
fn succeeded(data: &[u8]) -> Result<bool, String> {
    let wrong = || "etcd sent a message other than a TxnResponse".to_owned();
    let (head, mut rest) = data.split_first_chunk::<MESSAGE_HEADER_BYTES>().ok_or_else(wrong)?;
    if head[0] != 0
        || u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize != rest.len()
    {
        return Err(wrong());
    }
    let mut found = false;
    while !rest.is_empty() {
        let tag = varint(&mut rest).ok_or_else(wrong)?;
        let value = varint(&mut rest).ok_or_else(wrong)?;
        match (tag >> 3, tag & 7) {
            (2, 0) => found = value != 0,
            (_, 0) => {}
            (_, 2) => rest = rest.get(value as usize..).ok_or_else(wrong)?,
            _ => return Err(wrong()),
        }
    }
    Ok(found)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for place in 0..10 {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7F) << (7 * place);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{
        CALL_HEADERS, Connection, DATA, END_STREAM, HEADERS, Heard, PING, SETTINGS, acquire, frame,
        release,
    };

    fn answer(message: &[u8]) -> Vec<u8> {
        let mut payload = vec![0, 0, 0, 0, message.len() as u8];
        payload.extend_from_slice(message);
        let mut data = Vec::new();
        frame(&mut data, HEADERS, 4, 1, b"\x88");
        frame(&mut data, DATA, 0, 1, &payload);
        frame(&mut data, HEADERS, 4 | END_STREAM, 1, b"grpc-status 0");
        data
    }

    fn hear(connection: &mut Connection, data: &[u8]) -> Result<Vec<Heard>, String> {
        let (mut used, mut heard, mut out) = (0, Vec::new(), Vec::new());
        while let Some((length, said)) = connection.take(&mut out, &data[used..])? {
            used += length;
            heard.push(said);
        }
        assert_eq!(used, data.len());
        Ok(heard)
    }

    #[test]
    fn a_call_ends_with_its_trailers() {
        // ResponseHeader of two bytes; succeeded; one response of one byte.
        for (message, wanted) in
            [(&b"\x0a\x02\x08\x01\x10\x01\x1a\x01\x00"[..], true), (b"\x0a\x02\x08\x01", false)]
        {
            let heard = hear(&mut Connection::default(), &answer(message)).expect("valid");
            assert_eq!(heard, [Heard::Nothing, Heard::Nothing, Heard::Done(wanted)]);
        }
    }

    #[test]
    fn a_call_without_a_message_was_refused() {
        let mut data = Vec::new();
        frame(&mut data, HEADERS, 4 | END_STREAM, 1, b"grpc-status 14");
        let problem = hear(&mut Connection::default(), &data).expect_err("refused");
        assert!(problem.contains("grpc-status 14"), "{problem}");
        // The answer to the previous call does not count for this one either.
        let mut connection = Connection::default();
        hear(&mut connection, &answer(b"\x10\x01")).expect("valid");
        assert!(hear(&mut connection, &data).is_err());
    }

    #[test]
    fn settings_and_pings_are_answered() {
        let (mut data, mut out) = (Vec::new(), Vec::new());
        frame(&mut data, SETTINGS, 0, 0, b"\x00\x05\x00\x00\x40\x00");
        frame(&mut data, PING, 0, 0, b"12345678");
        let mut connection = Connection::default();
        let (length, heard) = connection.take(&mut out, &data).expect("valid").expect("whole");
        assert_eq!(
            (heard, &out[..]),
            (Heard::Greeting, &b"\x00\x00\x00\x04\x01\x00\x00\x00\x00"[..])
        );
        out.clear();
        connection.take(&mut out, &data[length..]).expect("valid").expect("whole");
        assert_eq!(out, b"\x00\x00\x08\x06\x01\x00\x00\x00\x0012345678");
        assert_eq!(connection.take(&mut out, &data[..length - 1]), Ok(None));
    }

    #[test]
    fn more_is_allowed_before_the_peer_may_send_no_more() {
        let mut connection = Connection::default();
        let (mut out, mut allowed, mut sent) = (Vec::new(), 65_535u32, 0);
        for _ in 0..5000 {
            let data =
                answer(&[0x1A, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            let mut rest = &data[..];
            while let Some((length, _)) = connection.take(&mut out, rest).expect("valid") {
                rest = &rest[length..];
            }
            sent += 27;
            if let Some(update) = out.get(9..13) {
                allowed += u32::from_be_bytes([update[0], update[1], update[2], update[3]]);
                out.clear();
            }
            assert!(sent < allowed);
        }
    }

    #[test]
    fn lengths_of_requests_fit() {
        let (mut take, mut give) = (Vec::new(), Vec::new());
        acquire(&mut take, b"0000000007", b"0000000012");
        release(&mut give, b"0000000007", b"0000000012");
        for message in [take, give] {
            let (compare, rest) = message.split_at(2 + usize::from(message[1]));
            assert_eq!((compare[0], rest[0], usize::from(rest[1])), (0x0A, 0x12, rest.len() - 2));
            assert_eq!(usize::from(rest[3]), rest.len() - 4);
        }
        assert_eq!(usize::from(CALL_HEADERS[3]), "/etcdserverpb.KV/Txn".len());
    }

    #[test]
    fn malformed_answers_are_errors() {
        for message in [&b"\x0a\x05\x00"[..], b"\x10", b"\x15\x00\x00\x00\x00"] {
            assert!(hear(&mut Connection::default(), &answer(message)).is_err(), "{message:?}");
        }
        let mut data = Vec::new();
        frame(&mut data, super::GOAWAY, 0, 0, &[0; 8]);
        assert!(hear(&mut Connection::default(), &data).is_err());
    }
}
