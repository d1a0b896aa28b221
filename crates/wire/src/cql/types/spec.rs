//! Type specifications: `[option]`s of the native protocol, an id of two bytes and its parameters.

use super::CqlType;

/// No legitimate type nests deeper; a hostile peer could otherwise overflow the stack.
const DEPTH_MAX: u32 = 64;

mod id {
    pub(super) const CUSTOM: u16 = 0x00;
    pub(super) const LIST: u16 = 0x20;
    pub(super) const MAP: u16 = 0x21;
    pub(super) const SET: u16 = 0x22;
    pub(super) const UDT: u16 = 0x30;
    pub(super) const TUPLE: u16 = 0x31;
}

pub(super) fn decode(input: &mut &[u8], depth: u32) -> Option<CqlType> {
    if depth > DEPTH_MAX {
        return None;
    }
    let id = short(input)?;
    let element = |input: &mut &[u8]| decode(input, depth + 1);
    Some(match id {
        id::CUSTOM => CqlType::Custom(string(input)?.to_owned()),
        id::LIST => CqlType::List(Box::new(element(input)?)),
        id::SET => CqlType::Set(Box::new(element(input)?)),
        id::MAP => CqlType::Map(Box::new(element(input)?), Box::new(element(input)?)),
        // Counts are not trusted: vectors grow only as elements are read.
        id::TUPLE => {
            CqlType::Tuple((0..short(input)?).map(|_| element(input)).collect::<Option<_>>()?)
        }
        id::UDT => {
            let keyspace = string(input)?.to_owned();
            let name = string(input)?.to_owned();
            let field = |input: &mut &[u8]| Some((string(input)?.to_owned(), element(input)?));
            let fields = (0..short(input)?).map(|_| field(input)).collect::<Option<_>>()?;
            CqlType::Udt { keyspace, name, fields }
        }
        id => native(id)?,
    })
}

/// Advances `input` past one type specification without building it; `None` as for
/// [`CqlType::decode`].
pub fn skip_spec(input: &mut &[u8]) -> Option<()> {
    skip(input, 0)
}

fn skip(input: &mut &[u8], depth: u32) -> Option<()> {
    if depth > DEPTH_MAX {
        return None;
    }
    match short(input)? {
        id::CUSTOM => string(input).map(drop),
        id::LIST | id::SET => skip(input, depth + 1),
        id::MAP => {
            skip(input, depth + 1)?;
            skip(input, depth + 1)
        }
        id::TUPLE => (0..short(input)?).try_for_each(|_| skip(input, depth + 1)),
        id::UDT => {
            string(input)?;
            string(input)?;
            (0..short(input)?).try_for_each(|_| {
                string(input)?;
                skip(input, depth + 1)
            })
        }
        id => native(id).map(drop),
    }
}

fn native(id: u16) -> Option<CqlType> {
    Some(match id {
        0x01 => CqlType::Ascii,
        0x02 => CqlType::Bigint,
        0x03 => CqlType::Blob,
        0x04 => CqlType::Boolean,
        0x05 => CqlType::Counter,
        0x06 => CqlType::Decimal,
        0x07 => CqlType::Double,
        0x08 => CqlType::Float,
        0x09 => CqlType::Int,
        0x0B => CqlType::Timestamp,
        0x0C => CqlType::Uuid,
        // 0x0A was `text` in v1 and v2; servers send only `varchar`.
        0x0A | 0x0D => CqlType::Text,
        0x0E => CqlType::Varint,
        0x0F => CqlType::Timeuuid,
        0x10 => CqlType::Inet,
        0x11 => CqlType::Date,
        0x12 => CqlType::Time,
        0x13 => CqlType::Smallint,
        0x14 => CqlType::Tinyint,
        0x15 => CqlType::Duration,
        _ => return None,
    })
}

fn short(input: &mut &[u8]) -> Option<u16> {
    let (bytes, rest) = input.split_first_chunk::<2>()?;
    *input = rest;
    Some(u16::from_be_bytes(*bytes))
}

fn string<'a>(input: &mut &'a [u8]) -> Option<&'a str> {
    let length = usize::from(short(input)?);
    let (bytes, rest) = input.split_at_checked(length)?;
    *input = rest;
    std::str::from_utf8(bytes).ok()
}
