//! The notations of the specification (section 3): a bounds-checked reader, and the collections that messages hold.
//!
//! [`Reader`] is the only place of this crate that takes bytes out of a body. Every method names the field it reads,
//! so that an error can say what was missing.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::error::{DecodeError, Problem};

/// A position in a body. Methods advance it by what they return, or leave it where it was and return an error.
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

    /// Everything that has not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.position..).unwrap_or_default()
    }

    /// The bytes from `start`, an earlier [`Reader::position`], up to here.
    pub fn since(&self, start: usize) -> &'a [u8] {
        self.bytes.get(start..self.position).unwrap_or_default()
    }

    /// An error about `field`, which starts here.
    pub fn error(&self, field: &'static str, problem: Problem) -> DecodeError {
        DecodeError {
            problem,
            field,
            offset: self.position,
        }
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
                let problem = Problem::Truncated {
                    needed: length as u64,
                    left: self.rest().len(),
                };
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
            None => Err(self.error(
                field,
                Problem::Truncated {
                    needed: N as u64,
                    left: self.rest().len(),
                },
            )),
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

    /// `[int]` that is a count or a length and so not negative.
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
        let result = self
            .short_bytes(field)
            .and_then(|bytes| start.utf8(bytes, field));
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
        let result = self
            .short(field)
            .and_then(|length| self.take(usize::from(length), field));
        self.or_back_to(start, result)
    }

    /// `[bytes]`; `None` is null, which any negative length means.
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

    /// `[consistency]`. Values that no version of the specification lists pass; see [`Consistency`].
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
                let problem = Problem::Unknown {
                    found: port as u32,
                    expected: "a port from 0 to 65535",
                };
                self.or_back_to(start, Err(port_at.error(field, problem)))
            }
        }
    }

    /// `[inetaddr]`: an address without a port, of 4 or 16 bytes.
    pub fn inet_address(&mut self, field: &'static str) -> Result<IpAddr, DecodeError> {
        let start = *self;
        let result = match self.byte(field)? {
            4 => self
                .array::<4>(field)
                .map(|octets| IpAddr::V4(Ipv4Addr::from(octets))),
            16 => self
                .array::<16>(field)
                .map(|octets| IpAddr::V6(Ipv6Addr::from(octets))),
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

    /// `[string list]`. Walks it, so that iterating over the list cannot fail.
    pub fn string_list(&mut self, field: &'static str) -> Result<StringList<'a>, DecodeError> {
        self.list(field, |reader| reader.string(field).map(drop))
            .map(StringList)
    }

    /// `[string map]`. Walks it, so that iterating over the map cannot fail.
    pub fn string_map(&mut self, field: &'static str) -> Result<StringMap<'a>, DecodeError> {
        self.list(field, |reader| {
            reader.string(field)?;
            reader.string(field).map(drop)
        })
        .map(StringMap)
    }

    /// `[string multimap]`. Walks it, so that iterating over the map cannot fail.
    pub fn string_multimap(
        &mut self,
        field: &'static str,
    ) -> Result<StringMultimap<'a>, DecodeError> {
        self.list(field, |reader| {
            reader.string(field)?;
            reader.string_list(field).map(drop)
        })
        .map(StringMultimap)
    }

    /// `[bytes map]`. Walks it, so that iterating over the map cannot fail.
    pub fn bytes_map(&mut self, field: &'static str) -> Result<BytesMap<'a>, DecodeError> {
        self.list(field, |reader| {
            reader.string(field)?;
            reader.bytes(field).map(drop)
        })
        .map(BytesMap)
    }

    /// A `[short]` count and as many items, each walked over by `item`.
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
        Ok(Counted {
            count,
            items: self.since(items),
        })
    }

    fn utf8(&self, bytes: &'a [u8], field: &'static str) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(bytes).map_err(|_| self.error(field, Problem::NotUtf8))
    }

    /// Puts the position back to `start` if `result` is an error.
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

/// `[consistency]`, as the number on the wire. Any number is carried through: whether it is acceptable is for the node
/// to say.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Consistency(pub u16);

impl Consistency {
    /// A write that any node may hold for the replica.
    pub const ANY: Consistency = Consistency(0);
    /// One replica.
    pub const ONE: Consistency = Consistency(1);
    /// Two replicas.
    pub const TWO: Consistency = Consistency(2);
    /// Three replicas.
    pub const THREE: Consistency = Consistency(3);
    /// More than half of all replicas.
    pub const QUORUM: Consistency = Consistency(4);
    /// Every replica.
    pub const ALL: Consistency = Consistency(5);
    /// More than half of the replicas in the coordinator's datacentre.
    pub const LOCAL_QUORUM: Consistency = Consistency(6);
    /// More than half of the replicas in each datacentre.
    pub const EACH_QUORUM: Consistency = Consistency(7);
    /// Linearizable over all datacentres.
    pub const SERIAL: Consistency = Consistency(8);
    /// Linearizable within the coordinator's datacentre.
    pub const LOCAL_SERIAL: Consistency = Consistency(9);
    /// One replica in the coordinator's datacentre.
    pub const LOCAL_ONE: Consistency = Consistency(10);

    /// Whether the level asks for a linearizable read or write.
    pub fn is_serial(self) -> bool {
        self == Consistency::SERIAL || self == Consistency::LOCAL_SERIAL
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 11] = [
            "ANY",
            "ONE",
            "TWO",
            "THREE",
            "QUORUM",
            "ALL",
            "LOCAL_QUORUM",
            "EACH_QUORUM",
            "SERIAL",
            "LOCAL_SERIAL",
            "LOCAL_ONE",
        ];
        match NAMES.get(usize::from(self.0)) {
            Some(name) => f.write_str(name),
            None => write!(f, "consistency {:#06x}", self.0),
        }
    }
}

/// Items that have been walked over once, so that reading them again cannot fail.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Counted<'a> {
    count: u16,
    items: &'a [u8],
}

impl<'a> Counted<'a> {
    fn iter<T>(
        self,
        mut item: impl FnMut(&mut Reader<'a>) -> Result<T, DecodeError>,
    ) -> impl Iterator<Item = T> {
        let mut reader = Reader::new(self.items);
        (0..self.count).map_while(move |_| item(&mut reader).ok())
    }
}

/// A view of a `[string list]`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StringList<'a>(Counted<'a>);

impl<'a> StringList<'a> {
    /// The strings in order.
    pub fn iter(self) -> impl Iterator<Item = &'a str> {
        self.0.iter(|reader| reader.string("string"))
    }

    /// Number of strings.
    pub fn len(self) -> usize {
        usize::from(self.0.count)
    }

    /// Whether there is no string.
    pub fn is_empty(self) -> bool {
        self.0.count == 0
    }
}

/// A view of a `[string map]`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StringMap<'a>(Counted<'a>);

impl<'a> StringMap<'a> {
    /// The pairs in order.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0
            .iter(|reader| Ok((reader.string("key")?, reader.string("value")?)))
    }

    /// The value of `key`; the last one if it is there more than once.
    pub fn get(self, key: &str) -> Option<&'a str> {
        self.iter()
            .filter(|(found, _)| *found == key)
            .last()
            .map(|(_, value)| value)
    }
}

/// A view of a `[string multimap]`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StringMultimap<'a>(Counted<'a>);

impl<'a> StringMultimap<'a> {
    /// The keys with their values in order.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, StringList<'a>)> {
        self.0
            .iter(|reader| Ok((reader.string("key")?, reader.string_list("values")?)))
    }

    /// The values of `key`.
    pub fn get(self, key: &str) -> Option<StringList<'a>> {
        self.iter()
            .find(|(found, _)| *found == key)
            .map(|(_, values)| values)
    }
}

/// A view of a `[bytes map]`, which is what a custom payload is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BytesMap<'a>(Counted<'a>);

impl<'a> BytesMap<'a> {
    /// The pairs in order; a value of `None` is null.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, Option<&'a [u8]>)> {
        self.0
            .iter(|reader| Ok((reader.string("key")?, reader.bytes("value")?)))
    }
}
