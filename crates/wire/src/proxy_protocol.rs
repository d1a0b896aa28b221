//! The header of the PROXY protocol, versions 1 and 2, with which a balancer names the client whose
//! connection it forwards (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>).
//!
//! The header says nothing that a client could not write itself: the caller reads it only on
//! connections of balancers that it trusts.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// First bytes of a header of version 2 (section 2.2).
pub const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// First bytes of a header of version 1 (section 2.1).
pub const WORD: [u8; 6] = *b"PROXY ";

/// Longest header of version 1: section 2.1 counts 107 bytes with the end of the line.
const TEXT_BYTES_MAX: usize = 107;
/// Signature, version and command, family, length.
const FIXED_BYTES: usize = 16;
/// Longest rest of a header of version 2, which has the addresses and more. Section 2.2 has senders
/// keep the header to 536 bytes, which one segment carries on every path.
const REST_BYTES_MAX: usize = 536;
/// Longest header.
pub const HEADER_BYTES_MAX: usize = FIXED_BYTES + REST_BYTES_MAX;

/// A complete header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProxyHeader {
    /// Length of the header. The bytes of the client follow.
    pub bytes: usize,
    /// The client. `None`: the balancer speaks for itself (LOCAL) or does not know the client
    /// (UNKNOWN), or the client has no IP address.
    pub client: Option<SocketAddr>,
}

/// The reason why a connection has no valid header, as the end of the sentence "the connection ..".
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MalformedHeader(pub &'static str);

impl fmt::Display for MalformedHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for MalformedHeader {}

/// Reads the header at the start of a connection. `None`: it is incomplete, and all of `bytes`
/// belongs to it.
///
/// # Errors
/// The connection does not begin with a header, or the header is malformed or too long.
pub fn read_header(bytes: &[u8]) -> Result<Option<ProxyHeader>, MalformedHeader> {
    let may_be = |prefix: &[u8]| {
        let length = bytes.len().min(prefix.len());
        bytes[..length] == prefix[..length]
    };
    if may_be(&SIGNATURE) {
        read_binary(bytes)
    } else if may_be(&WORD) {
        read_text(bytes)
    } else {
        Err(MalformedHeader("does not begin with a PROXY header"))
    }
}

/// Version 2, section 2.2.
fn read_binary(bytes: &[u8]) -> Result<Option<ProxyHeader>, MalformedHeader> {
    let is_local = match bytes.get(12) {
        Some(0x20) => true,
        Some(0x21) => false,
        Some(0x22..=0x2f) => return Err(MalformedHeader("has a PROXY header of unknown command")),
        Some(_) => return Err(MalformedHeader("has a PROXY header of unknown version")),
        None => return Ok(None),
    };
    let (Some(&family), Some(&[high, low])) = (bytes.get(13), bytes.get(14..FIXED_BYTES)) else {
        return Ok(None);
    };
    let rest_bytes = usize::from(u16::from_be_bytes([high, low]));
    if rest_bytes > REST_BYTES_MAX {
        return Err(MalformedHeader("has a PROXY header of more than 552 bytes"));
    }
    let Some(rest) = bytes.get(FIXED_BYTES..FIXED_BYTES + rest_bytes) else { return Ok(None) };
    let too_short = MalformedHeader("has a PROXY header without the addresses that it announces");
    let port_at =
        |at: usize| rest.get(at..at + 2).map(|port| u16::from_be_bytes([port[0], port[1]]));
    // The addresses are source, destination, source port, destination port. What follows them
    // (TLVs) is passed over.
    let client = match family {
        _ if is_local => None,
        // Unspecified, or a Unix socket.
        0x00 | 0x31 => None,
        0x11 if rest.len() < 12 => return Err(too_short),
        0x21 if rest.len() < 36 => return Err(too_short),
        0x11 => rest.first_chunk().map(|ip: &[u8; 4]| Ipv4Addr::from(*ip).into()).zip(port_at(8)),
        0x21 => rest.first_chunk().map(|ip: &[u8; 16]| Ipv6Addr::from(*ip).into()).zip(port_at(32)),
        _ => return Err(MalformedHeader("has a PROXY header for a protocol other than TCP")),
    };
    let client = client.map(|(ip, port): (IpAddr, u16)| SocketAddr::new(ip, port));
    Ok(Some(ProxyHeader { bytes: FIXED_BYTES + rest_bytes, client }))
}

/// Version 1, section 2.1: one line.
fn read_text(bytes: &[u8]) -> Result<Option<ProxyHeader>, MalformedHeader> {
    let searched = &bytes[..bytes.len().min(TEXT_BYTES_MAX)];
    let Some(end) = searched.windows(2).position(|pair| pair == b"\r\n") else {
        if searched.len() < TEXT_BYTES_MAX {
            return Ok(None);
        }
        return Err(MalformedHeader("has a PROXY header whose line does not end in 107 bytes"));
    };
    let malformed = MalformedHeader("has a malformed PROXY header");
    let line = searched.get(WORD.len()..end).ok_or(malformed)?;
    let line = std::str::from_utf8(line).map_err(|_| malformed)?;
    let mut words = line.split(' ');
    let client = match words.next() {
        // The rest of such a line is to be ignored.
        Some("UNKNOWN") => None,
        Some(family @ ("TCP4" | "TCP6")) => {
            let mut next = || words.next().ok_or(malformed);
            let (source, destination) = (next()?, next()?);
            let (source_port, destination_port) = (next()?, next()?);
            let address = |text: &str| -> Option<IpAddr> {
                match family {
                    "TCP4" => text.parse().ok().map(IpAddr::V4),
                    _ => text.parse().ok().map(IpAddr::V6),
                }
            };
            let source = address(source).zip(port(source_port)).ok_or(malformed)?;
            address(destination).zip(port(destination_port)).ok_or(malformed)?;
            if words.next().is_some() {
                return Err(malformed);
            }
            Some(source.into())
        }
        _ => return Err(malformed),
    };
    Ok(Some(ProxyHeader { bytes: end + 2, client }))
}

/// A port as version 1 writes it: a decimal number without a sign or leading zeros.
fn port(text: &str) -> Option<u16> {
    let is_canonical = text == "0" || text.starts_with(|digit: char| matches!(digit, '1'..='9'));
    text.parse().ok().filter(|_| is_canonical)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([command, family]);
        bytes.extend((rest.len() as u16).to_be_bytes());
        bytes.extend(rest);
        bytes
    }

    /// Checks that a header is read whole with a client's bytes behind it, and that no part of it
    /// is taken for a header or for an error.
    fn read(header: &[u8]) -> Option<String> {
        for length in 0..header.len() {
            assert_eq!(read_header(&header[..length]), Ok(None), "{length} of {header:?}");
        }
        let followed = [header, b"\r\n\x04\0\0\0"].concat();
        let found = read_header(&followed).unwrap().unwrap();
        assert_eq!((found.bytes, read_header(header)), (header.len(), Ok(Some(found))));
        found.client.map(|client| client.to_string())
    }

    fn refused(header: &[u8]) -> &'static str {
        read_header(header).unwrap_err().0
    }

    const FOUR: [u8; 12] = [192, 0, 2, 7, 10, 0, 0, 1, 0xe4, 0x20, 0x23, 0x52];

    #[test]
    fn version_2_names_the_client() {
        assert_eq!(read(&binary(0x21, 0x11, &FOUR)).unwrap(), "192.0.2.7:58400");
        let mut six = [0; 36];
        six[..16].copy_from_slice(&Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 5).octets());
        six[32..].copy_from_slice(&[0, 80, 0, 81]);
        assert_eq!(read(&binary(0x21, 0x21, &six)).unwrap(), "[2001:db8::5]:80");
        // A TLV, here a NOOP, and bytes that are none.
        for more in [&[4, 0, 1, 0xff][..], &[0xff], &[0; REST_BYTES_MAX - 12]] {
            assert!(read(&binary(0x21, 0x11, &[&FOUR, more].concat())).is_some());
        }
    }

    #[test]
    fn a_balancer_may_speak_for_itself_or_not_know_the_client() {
        for rest in [&[][..], &FOUR, &[7; 3]] {
            assert_eq!(read(&binary(0x20, 0x11, rest)), None);
            assert_eq!(read(&binary(0x20, 0x77, rest)), None);
            assert_eq!(read(&binary(0x21, 0x00, rest)), None);
        }
        assert_eq!(read(&binary(0x21, 0x31, &[0; 216])), None);
        assert_eq!(read(b"PROXY UNKNOWN\r\n"), None);
        assert_eq!(read(b"PROXY UNKNOWN ffff::1 whatever 1 2 3\r\n"), None);
    }

    #[test]
    fn version_1_names_the_client() {
        assert_eq!(
            read(b"PROXY TCP4 192.0.2.7 10.0.0.1 58400 9042\r\n").unwrap(),
            "192.0.2.7:58400"
        );
        assert_eq!(read(b"PROXY TCP6 2001:db8::5 ::1 0 65535\r\n").unwrap(), "[2001:db8::5]:0");
    }

    #[test]
    fn malformed_headers_are_refused() {
        for line in [
            "TCP4 192.0.2.7 10.0.0.1 58400",
            "TCP4 192.0.2.7 10.0.0.1 58400 9042 ",
            "TCP4 192.0.2.7 10.0.0.1 58400 9042 1",
            "TCP4  192.0.2.7 10.0.0.1 58400 9042",
            "TCP4 192.0.2.07 10.0.0.1 58400 9042",
            "TCP4 192.0.2.7 10.0.0 58400 9042",
            "TCP4 192.0.2.7 10.0.0.1 058400 9042",
            "TCP4 192.0.2.7 10.0.0.1 +58400 9042",
            "TCP4 192.0.2.7 10.0.0.1 65536 9042",
            "TCP4 192.0.2.7 10.0.0.1 58400 ",
            "TCP4 ::1 ::1 58400 9042",
            "TCP6 192.0.2.7 10.0.0.1 58400 9042",
            "UDP4 192.0.2.7 10.0.0.1 58400 9042",
            "tcp4 192.0.2.7 10.0.0.1 58400 9042",
            "TCP4 192.0.2.7 10.0.0.1 58400 9042\n",
            "",
            " TCP4",
        ] {
            let header = format!("PROXY {line}\r\n");
            assert_eq!(refused(header.as_bytes()), "has a malformed PROXY header", "{line}");
        }
        assert!(refused(&[&b"PROXY UNKNOWN "[..], &[b'x'; 100]].concat()).contains("107 bytes"));
        assert_eq!(read_header(&[&b"PROXY UNKNOWN "[..], &[b'x'; 92]].concat()), Ok(None));
        assert!(refused(b"PROXY TCP4 \xff\r\n").contains("malformed"));
        assert!(refused(&binary(0x11, 0x11, &FOUR)).contains("version"));
        assert!(refused(&binary(0x22, 0x11, &FOUR)).contains("command"));
        for family in [0x12, 0x22, 0x10, 0x41, 0xff] {
            assert!(refused(&binary(0x21, family, &[0; 216])).contains("other than TCP"));
        }
        assert!(refused(&binary(0x21, 0x11, &FOUR[..11])).contains("without the addresses"));
        assert!(refused(&binary(0x21, 0x21, &[0; 35])).contains("without the addresses"));
        assert!(refused(&binary(0x21, 0x11, &[0; REST_BYTES_MAX + 1])[..16]).contains("552"));
    }

    #[test]
    fn other_protocols_begin_without_a_header() {
        for other in [&b"\x04\0\0\0\x05"[..], b"\x16\x03\x01", b"GET /", b"PROXYS", b"\r\n\r\n\r"] {
            assert!(refused(other).contains("does not begin"), "{other:?}");
        }
        assert_eq!(read_header(b""), Ok(None));
    }
}
