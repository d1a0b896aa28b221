//! The encoding of a redo record: everything that a proxy which never heard of a transaction needs
//! to make its writes.
//!
//! ```text
//! format     [byte]   2
//! shard      [byte]
//! timestamp  [long]   of the first write, microseconds; each after it has one more
//! key        [short bytes]   by which a client finds the outcome again; empty: none
//! count      [short]  writes that follow, at least one
//!   keyspace [string]
//!   table    [string]
//!   id       [16 bytes]   of the table, as `system_schema.tables` has it
//!   text     [long string]   names the table with its keyspace
//!   count    [short]  bind values that follow
//!     value  [value]  as in the native protocol, version 4
//! ```
//!
//! A write has its table's name and id: another table may have the name by the time that the write
//! is made, and must not get it. Format 1 had no ids.
//!
//! Numbers are big-endian, names of kinds are those of the native protocol (version 4, section 3).

use std::fmt;

/// The format that is written.
pub const FORMAT: u8 = 2;
/// The longest record: the largest transaction and what is said about it.
pub const RECORD_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Writes of one record: those of a transaction's statements, and two rows of the fleet's own.
pub const WRITES_MAX: usize = 102;
/// The longest key of a client.
pub const KEY_BYTES_MAX: usize = 64;
const LEAST_BYTES_OF_WRITE: usize = 2 + 2 + 16 + 4 + 2;
const UNSET: i32 = -2;

/// A bind value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A value.
    Bytes(&'a [u8]),
    /// `null`
    Null,
    /// The existing value stays.
    Unset,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// The keyspace of its table.
    pub keyspace: &'a str,
    /// The name of its table.
    pub table: &'a str,
    /// Id of the table.
    pub id: [u8; 16],
    /// The statement, with a marker for each value. It names the table with its keyspace.
    pub text: &'a str,
    /// Values of the markers.
    pub values: Vec<Value<'a>>,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The shard of its domain.
    pub shard: u8,
    /// The timestamp of the first write, microseconds; each of the others has one more than that
    /// before it.
    pub timestamp_us: i64,
    /// Key under which the client finds the outcome; empty if there is none.
    pub key: &'a [u8],
    /// The writes.
    pub writes: Vec<Write<'a>>,
}

/// Reasons why bytes are no record, or a record cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRecord {
    /// This version does not know the format.
    Format(u8),
    /// The record ends too early.
    Short,
    /// Bytes follow the end.
    Long,
    /// A text is not UTF-8.
    Text,
    /// A number is out of bounds.
    Number,
    /// The record would be longer than [`RECORD_BYTES_MAX`].
    Size,
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadRecord::Format(format) => {
                write!(f, "a redo record has format {format}, and this version knows {FORMAT}")
            }
            BadRecord::Short => f.write_str("a redo record ends too early"),
            BadRecord::Long => f.write_str("a redo record goes on after its end"),
            BadRecord::Text => f.write_str("a text in a redo record is not UTF-8"),
            BadRecord::Number => f.write_str("a number in a redo record is out of bounds"),
            BadRecord::Size => {
                write!(f, "a redo record would have more than {RECORD_BYTES_MAX} bytes")
            }
        }
    }
}

impl Record<'_> {
    /// Appends the encoded record to `out`, which stays unchanged on failure.
    ///
    /// # Errors
    /// Something in it is too long, or there is too much of it.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), BadRecord> {
        let start = out.len();
        let written = self.put(out).and_then(|()| match out.len() - start <= RECORD_BYTES_MAX {
            true => Ok(()),
            false => Err(BadRecord::Size),
        });
        if written.is_err() {
            out.truncate(start);
        }
        written
    }

    fn put(&self, out: &mut Vec<u8>) -> Result<(), BadRecord> {
        if self.writes.is_empty()
            || self.writes.len() > WRITES_MAX
            || self.key.len() > KEY_BYTES_MAX
        {
            return Err(BadRecord::Number);
        }
        out.extend([FORMAT, self.shard]);
        out.extend(self.timestamp_us.to_be_bytes());
        put_short(out, self.key)?;
        out.extend((self.writes.len() as u16).to_be_bytes());
        for write in &self.writes {
            put_short(out, write.keyspace.as_bytes())?;
            put_short(out, write.table.as_bytes())?;
            out.extend(write.id);
            put_long(out, write.text.as_bytes())?;
            let count = u16::try_from(write.values.len()).map_err(|_| BadRecord::Number)?;
            out.extend(count.to_be_bytes());
            for value in &write.values {
                match value {
                    Value::Bytes(bytes) => put_long(out, bytes)?,
                    Value::Null => out.extend((-1i32).to_be_bytes()),
                    Value::Unset => out.extend(UNSET.to_be_bytes()),
                }
            }
        }
        Ok(())
    }
}

fn put_short(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), BadRecord> {
    let length = u16::try_from(bytes.len()).map_err(|_| BadRecord::Number)?;
    out.extend(length.to_be_bytes());
    out.extend(bytes);
    Ok(())
}

fn put_long(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), BadRecord> {
    let length = i32::try_from(bytes.len()).map_err(|_| BadRecord::Number)?;
    out.extend(length.to_be_bytes());
    out.extend(bytes);
    Ok(())
}

impl<'a> Record<'a> {
    /// Reads a record.
    ///
    /// # Errors
    /// These bytes are none that this version has written, or could have.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, BadRecord> {
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(BadRecord::Size);
        }
        let mut rest = Rest(bytes);
        let [format] = rest.array()?;
        if format != FORMAT {
            return Err(BadRecord::Format(format));
        }
        let [shard] = rest.array()?;
        let timestamp_us = i64::from_be_bytes(rest.array()?);
        let key = rest.short()?;
        let count = usize::from(u16::from_be_bytes(rest.array()?));
        if count == 0 || count > WRITES_MAX || key.len() > KEY_BYTES_MAX {
            return Err(BadRecord::Number);
        }
        let mut writes = Vec::with_capacity(count.min(rest.0.len() / LEAST_BYTES_OF_WRITE));
        for _ in 0..count {
            let (keyspace, table) = (utf8(rest.short()?)?, utf8(rest.short()?)?);
            let id = rest.array()?;
            let text = utf8(rest.long()?.ok_or(BadRecord::Number)?)?;
            let values = usize::from(u16::from_be_bytes(rest.array()?));
            let values = (0..values).map(|_| rest.value()).collect::<Result<_, _>>()?;
            writes.push(Write { keyspace, table, id, text, values });
        }
        if !rest.0.is_empty() {
            return Err(BadRecord::Long);
        }
        Ok(Self { shard, timestamp_us, key, writes })
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, BadRecord> {
    std::str::from_utf8(bytes).map_err(|_| BadRecord::Text)
}

/// Bytes that are not decoded yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], BadRecord> {
        let (first, rest) = self.0.split_first_chunk().ok_or(BadRecord::Short)?;
        self.0 = rest;
        Ok(*first)
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], BadRecord> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(BadRecord::Short)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn short(&mut self) -> Result<&'a [u8], BadRecord> {
        let length = u16::from_be_bytes(self.array()?);
        self.bytes(usize::from(length))
    }

    /// Reads long bytes; none if the length is negative, which has another meaning.
    fn long(&mut self) -> Result<Option<&'a [u8]>, BadRecord> {
        match usize::try_from(i32::from_be_bytes(self.array()?)) {
            Ok(length) => self.bytes(length).map(Some),
            Err(_) => Ok(None),
        }
    }

    fn value(&mut self) -> Result<Value<'a>, BadRecord> {
        let before = Rest(self.0).array().map(i32::from_be_bytes)?;
        match (self.long()?, before) {
            (Some(bytes), _) => Ok(Value::Bytes(bytes)),
            (None, -1) => Ok(Value::Null),
            (None, UNSET) => Ok(Value::Unset),
            (None, _) => Err(BadRecord::Number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record<'static> {
        let values = vec![Value::Bytes(b"ann"), Value::Null, Value::Unset, Value::Bytes(b"")];
        let text = "UPDATE bank.accounts SET balance = ? WHERE id = ?";
        let update = Write { keyspace: "bank", table: "accounts", id: [7; 16], text, values };
        let text = "DELETE FROM bank.\u{e9} WHERE id = 1";
        let delete =
            Write { keyspace: "bank", table: "\u{e9}", id: [0xff; 16], text, values: Vec::new() };
        Record { shard: 63, timestamp_us: -5, key: b"once", writes: vec![update, delete] }
    }

    fn bytes(record: &Record<'_>) -> Vec<u8> {
        let mut bytes = vec![9];
        record.encode(&mut bytes).expect("a record");
        bytes.split_off(1)
    }

    #[test]
    fn a_written_record_is_read() {
        assert_eq!(Record::decode(&bytes(&record())), Ok(record()));
    }

    /// Old records are read by later versions: these bytes are in rings.
    #[test]
    fn the_format_is_as_it_was() {
        let id = [3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
        let values = vec![Value::Bytes(&[7]), Value::Null];
        let write = Write { keyspace: "k", table: "tt", id, text: "DELETE", values };
        let record = Record { shard: 2, timestamp_us: 258, key: b"", writes: vec![write] };
        let expected: &[u8] = &[
            2, 2, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, 0, 1, b'k', 0, 2, b't', b't', 3, 0, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 6, b'D', b'E', b'L', b'E', b'T', b'E', 0, 2,
            0, 0, 0, 1, 7, 255, 255, 255, 255,
        ];
        assert_eq!(bytes(&record), expected);
    }

    #[test]
    fn bytes_that_are_no_record_are_refused_and_say_why() {
        let good = bytes(&record());
        for length in 0..good.len() {
            assert_eq!(
                Record::decode(&good[..length]),
                Err(BadRecord::Short),
                "{length} of {}",
                good.len()
            );
        }
        let with = |place: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[place] = byte;
            Record::decode(&bytes).map(|record| record.shard)
        };
        assert_eq!(
            (with(0, 1), with(0, 3)),
            (Err(BadRecord::Format(1)), Err(BadRecord::Format(3)))
        );
        let counted = 1 + 1 + 8 + 2 + 4;
        assert_eq!(
            (with(counted + 1, 0), with(counted, 1)),
            (Err(BadRecord::Number), Err(BadRecord::Number))
        );
        assert_eq!(with(counted + 4, 0xff), Err(BadRecord::Text));
        assert_eq!(Record::decode(&[&good[..], &[0]].concat()), Err(BadRecord::Long));
        assert_eq!(Record::decode(&vec![1; RECORD_BYTES_MAX + 1]), Err(BadRecord::Size));
    }

    #[test]
    fn an_oversized_record_is_refused_and_leaves_nothing() {
        let write =
            || Write { keyspace: "", table: "", id: [0; 16], text: "x", values: Vec::new() };
        let of = |writes: Vec<Write<'static>>, key: &'static [u8]| Record {
            shard: 0,
            timestamp_us: 1,
            key,
            writes,
        };
        let mut out = vec![7];
        for (record, why) in [
            (of(Vec::new(), b""), BadRecord::Number),
            (of(vec![write(); WRITES_MAX + 1], b""), BadRecord::Number),
            (of(vec![write()], &[0; KEY_BYTES_MAX + 1]), BadRecord::Number),
            (
                of(vec![Write { values: vec![Value::Null; 65_536], ..write() }], b""),
                BadRecord::Number,
            ),
        ] {
            assert_eq!((record.encode(&mut out), &out[..]), (Err(why), &[7][..]));
        }
        let long = "x".repeat(RECORD_BYTES_MAX);
        let record =
            Record { writes: vec![Write { text: &long, ..write() }], ..of(Vec::new(), b"") };
        assert_eq!((record.encode(&mut out), &out[..]), (Err(BadRecord::Size), &[7][..]));
    }
}
