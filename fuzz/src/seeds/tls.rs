//! Records as peers write them, before the handshake and after it.

use super::Add;

/// A ClientHello with a cipher suite of TLS 1.3, two groups and no key share.
const CLIENT_HELLO: &[u8] = b"\x16\x03\x01\x00\x60\x01\x00\x00\x5c\x03\x03\
    0123456789abcdef0123456789abcdef\x00\x00\x02\x13\x01\x01\x00\x00\x31\
    \x00\x00\x00\x0e\x00\x0c\x00\x00\x09localhost\x00\x2b\x00\x03\x02\x03\x04\
    \x00\x0a\x00\x06\x00\x04\x00\x1d\x00\x17\x00\x0d\x00\x04\x00\x02\x04\x03\
    \x00\x33\x00\x02\x00\x00";

/// A ServerHello of TLS 1.2.
const SERVER_HELLO: &[u8] = b"\x16\x03\x03\x00\x2a\x02\x00\x00\x26\x03\x03\
    0123456789abcdef0123456789abcdef\x00\xc0\x2f\x00";

/// Type and content of a record.
type Record<'a> = (u8, &'a [u8]);

pub(super) fn tls(add: Add<'_>) {
    let streams: [(&str, u8, &[u8]); 6] = [
        ("client_hello", 0xF0, CLIENT_HELLO),
        ("client_hello_pieces", 0x10, CLIENT_HELLO),
        ("server_hello", 0xF1, SERVER_HELLO),
        ("alert", 0xF0, b"\x15\x03\x03\x00\x02\x02\x30"),
        ("plaintext", 0xF0, b"\x04\x00\x00\x00\x01\x00\x00\x00\x00"),
        ("large", 0xF1, b"\x16\x03\x03\xff\xff"),
    ];
    for (name, mode, stream) in streams {
        add("tls", name, [&[mode], stream].concat());
    }
    let records: [(&str, &[Record<'_>]); 6] = [
        ("data", &[(0x97, b"question"), (23, b""), (23, b"another")]),
        ("close", &[(23, b"last"), (0x95, b"\x01\x00"), (23, b"ignored")]),
        ("fatal", &[(21, b"\x02\x28")]),
        ("update", &[(0x96, b"\x18\x00\x00\x01\x01")]),
        ("update_pieces", &[(0x96, b"\x18\x00"), (0x96, b"\x00\x01"), (0x96, b"\x00")]),
        ("empty_handshake", &[(22, b""), (0x97, b"data"), (0x96, b""), (23, b"data")]),
    ];
    for (name, records) in records {
        let mut bytes = vec![0xF2];
        for (kind, content) in records {
            bytes.extend([*kind, content.len() as u8]);
            bytes.extend_from_slice(content);
        }
        add("tls", name, bytes);
    }
}
