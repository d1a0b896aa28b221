//! The notations of the specification (section 3): a bounds-checked reader.
//!
//! [`Reader`] is the only code in this crate that takes bytes out of a body. Every method names the
//! field it reads, so that an error can say what is missing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::collections::{BytesMap, Counted, StringList, StringMap, StringMultimap};
use super::consistency::Consistency;
use crate::error::{DecodeError, Problem};

/// A position in a body. Methods advance it past the value they return; on an error it stays
/// unchanged.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the beginning of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, position: 0 }
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The unread bytes.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.position..).unwrap_or_default()
    }

    /// The bytes from `start`, an earlier [`Reader::position`], to the current position.
    pub fn since(&self, start: usize) -> &'a [u8] {
        self.bytes.get(start..self.position).unwrap_or_default()
    }

    /// An error about `field`, which starts at the current position.
    pub fn error(&self, field: &'static str, problem: Problem) -> DecodeError {
        DecodeError { problem, field, offset: self.position }
    }

    /// The next `length` bytes.
    #[inline]
    pub fn take(&mut self, length: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        match self.rest().get(..length) {
            Some(taken) => {
                self.position += length;
                Ok(taken)
            }
            None => {
                let problem = Problem::Truncated { needed: length as u64, left: self.rest().len() };
                Err(self.error(field, problem))
            }
        }
    }

    /// The next `N` bytes as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        match self.rest().first_chunk::<N>() {
            Some(taken) => {
                self.position += N;
                Ok(*taken)
            }
            None => {
                Err(self
                    .error(field, Problem::Truncated { needed: N as u64, left: self.rest().len() }))
            }
        }
    }

    /// `[byte]`.
    #[inline]
    pub fn byte(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    /// `[short]`, 2 bytes unsigned.
    #[inline]
    pub fn short(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        self.array(field).map(u16::from_be_bytes)
    }

    /// `[int]`, 4 bytes signed.
    #[inline]
    pub fn int(&mut self, field: &'static str) -> Result<i32, DecodeError> {
        self.array(field).map(i32::from_be_bytes)
    }

    /// `[int]` used as a count or a length, so never negative.
    #[inline]
    pub fn count(&mut self, field: &'static str) -> Result<usize, DecodeError> {
        let start = *self;
        let found = self.int(field)?;
        usize::try_from(found).map_err(|_| {
            *self = start;
            self.error(field, Problem::Negative { found })
        })
    }

    /// `[long]`, 8 bytes signed.
    #[inline]
    pub fn long(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        self.array(field).map(i64::from_be_bytes)
    }

    /// `[uuid]`.
    #[inline]
    pub fn uuid(&mut self, field: &'static str) -> Result<[u8; 16], DecodeError> {
        self.array(field)
    }

    /// `[string]`: a short length and UTF-8.
    #[inline]
    pub fn string(&mut self, field: &'static str) -> Result<&'a str, DecodeError> {
        let start = *self;
        let result = self.short_bytes(field).and_then(|bytes| start.utf8(bytes, field));
        self.or_back_to(start, result)
    }

    /// `[long string]`: an int length and UTF-8.
    #[inline]
    pub fn long_string(&mut self, field: &'static str) -> Result<&'a str, DecodeError> {
        let start = *self;
        let result = self
            .count(field)
            .and_then(|length| self.take(length, field))
            .and_then(|bytes| start.utf8(bytes, field));
        self.or_back_to(start, result)
    }

    /// `[short bytes]`.
    #[inline]
    pub fn short_bytes(&mut self, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let start = *self;
        let result = self.short(field).and_then(|length| self.take(usize::from(length), field));
        self.or_back_to(start, result)
    }

    /// `[bytes]`; `None` is null, encoded as any negative length.
    #[inline]
    pub fn bytes(&mut self, field: &'static str) -> Result<Option<&'a [u8]>, DecodeError> {
        let start = *self;
        let length = self.int(field)?;
        let Ok(length) = usize::try_from(length) else {
            return Ok(None);
        };
        let result = self.take(length, field).map(Some);
        self.or_back_to(start, result)
    }

    /// `[consistency]`. Accepts values that no version of the specification lists; see
    /// [`Consistency`].
    #[inline]
    pub fn consistency(&mut self, field: &'static str) -> Result<Consistency, DecodeError> {
        self.short(field).map(Consistency)
    }

    /// `[inet]`: an address and a port.
    pub fn inet(&mut self, field: &'static str) -> Result<SocketAddr, DecodeError> {
        let start = *self;
        let address = self.inet_address(field)?;
        let port_at = *self;
        let port = match self.int(field) {
            Ok(port) => port,
            Err(error) => return self.or_back_to(start, Err(error)),
        };
        match u16::try_from(port) {
            Ok(port) => Ok(SocketAddr::new(address, port)),
            Err(_) => {
                let problem =
                    Problem::Unknown { found: port as u32, expected: "a port from 0 to 65535" };
                self.or_back_to(start, Err(port_at.error(field, problem)))
            }
        }
    }

    /// `[inetaddr]`: an address without a port, of 4 or 16 bytes.
    pub fn inet_address(&mut self, field: &'static str) -> Result<IpAddr, DecodeError> {
        let start = *self;
        let result = match self.byte(field)? {
            4 => self.array::<4>(field).map(|octets| IpAddr::V4(Ipv4Addr::from(octets))),
            16 => self.array::<16>(field).map(|octets| IpAddr::V6(Ipv6Addr::from(octets))),
            other => {
                let problem = Problem::Unknown {
                    found: u32::from(other),
                    expected: "an address of 4 or 16 bytes",
                };
                Err(start.error(field, problem))
            }
        };
        self.or_back_to(start, result)
    }

    /// `[string list]`. Validates the items, so that iterating over the list cannot fail.
    pub fn string_list(&mut self, field: &'static str) -> Result<StringList<'a>, DecodeError> {
        self.list(field, |reader| reader.string(field).map(drop)).map(StringList::new)
    }

    /// `[string map]`. Validates the items, so that iterating over the map cannot fail.
    pub fn string_map(&mut self, field: &'static str) -> Result<StringMap<'a>, DecodeError> {
        self.list(field, |reader| {
            reader.string(field)?;
            reader.string(field).map(drop)
        })
        .map(StringMap::new)
    }

    /// `[string multimap]`. Validates the items, so that iterating over the map cannot fail.
    pub fn string_multimap(
        &mut self,
        field: &'static str,
    ) -> Result<StringMultimap<'a>, DecodeError> {
        self.list(field, |reader| {
            reader.string(field)?;
            reader.string_list(field).map(drop)
        })
        .map(StringMultimap::new)
    }

    /// `[bytes map]`. Validates the items, so that iterating over the map cannot fail.
    pub fn bytes_map(&mut self, field: &'static str) -> Result<BytesMap<'a>, DecodeError> {
        self.list(field, |reader| {
            reader.string(field)?;
            reader.bytes(field).map(drop)
        })
        .map(BytesMap::new)
    }

    /// A `[short]` count and that many items, each validated by `item`.
    fn list(
        &mut self,
        field: &'static str,
        mut item: impl FnMut(&mut Reader<'a>) -> Result<(), DecodeError>,
    ) -> Result<Counted<'a>, DecodeError> {
        let start = *self;
        let count = self.short(field)?;
        let items = self.position;
        for _ in 0..count {
            if let Err(error) = item(self) {
                return self.or_back_to(start, Err(error));
            }
        }
        Ok(Counted::new(count, self.since(items)))
    }

    fn utf8(&self, bytes: &'a [u8], field: &'static str) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(bytes).map_err(|_| self.error(field, Problem::NotUtf8))
    }

    /// Restores the position `start` if `result` is an error.
    #[inline]
    fn or_back_to<T>(
        &mut self,
        start: Reader<'a>,
        result: Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        if result.is_err() {
            *self = start;
        }
        result
    }
}
