//! Recognises other protocols by their first bytes, so that their clients get a helpful answer.

use super::envelope::Header;
use crate::proxy_protocol::{SIGNATURE, WORD};

/// First bytes of HTTP requests, and the preface of HTTP/2.
const METHODS: [&[u8]; 10] = [
    b"GET ",
    b"HEAD ",
    b"POST ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"CONNECT ",
    b"TRACE ",
    b"PRI * HTT",
];

/// Type of a TLS handshake record, and the first byte of its version.
const TLS_HANDSHAKE: [u8; 2] = [0x16, 0x03];

/// A protocol that is not CQL.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Foreign {
    /// An HTTP request.
    Http,
    /// The beginning of a TLS connection.
    Tls,
    /// A header of the PROXY protocol.
    Proxy,
}

impl Foreign {
    /// Recognises the protocol whose first bytes were read as a header.
    pub fn of(header: Header) -> Option<Foreign> {
        let bytes = header.to_bytes();
        if bytes.starts_with(&TLS_HANDSHAKE) {
            return Some(Foreign::Tls);
        }
        if SIGNATURE.starts_with(&bytes) || bytes.starts_with(&WORD) {
            return Some(Foreign::Proxy);
        }
        METHODS.iter().any(|method| bytes.starts_with(method)).then_some(Foreign::Http)
    }

    /// Message for the peer and the log.
    pub fn text(self) -> &'static str {
        match self {
            Foreign::Http => {
                "this looks like an HTTP request, but this port speaks only CQL: metrics and health are at --admin"
            }
            Foreign::Tls => {
                "this looks like TLS, but this port has none: switch it off in the driver, or on in the proxy (tls = optional)"
            }
            Foreign::Proxy => {
                "this looks like a PROXY header of a balancer, but this port takes none from this address: list the address in proxy_protocol_from of the proxy"
            }
        }
    }
}

/// Returns true if a driver may begin with this protocol version: a version of CQL, or of DataStax
/// Enterprise, which its drivers try first. Any other byte comes from a different protocol.
pub const fn is_a_drivers(version: u8) -> bool {
    matches!(version, 1..=6 | 65..=66)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_protocols_are_told_from_versions_nobody_has() {
        let of = |bytes: &[u8]| Foreign::of(Header::decode(bytes).expect("nine bytes"));
        for method in [
            "GET / HTTP",
            "HEAD / HTTP",
            "DELETE /ab",
            "OPTIONS * ",
            "CONNECT a:1",
            "PRI * HTTP/2.0",
        ] {
            assert_eq!(of(method.as_bytes()), Some(Foreign::Http), "{method}");
        }
        assert_eq!(of(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"), Some(Foreign::Tls));
        assert_eq!(of(b"PROXY TCP4 192.0.2.7"), Some(Foreign::Proxy));
        assert_eq!(of(b"\r\n\r\n\0\r\nQUIT\n!"), Some(Foreign::Proxy));
        for other in [&b"GETTING ON"[..], b"\x16\x04\0\0\0\0\0\0\0", b"\x04\0\0\x01\x01\0\0\0\x16"]
        {
            assert_eq!(of(other), None, "{other:?}");
        }
    }
}
