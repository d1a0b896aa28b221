//! Types as the `[option]`s of result metadata (native protocol v5, section 4.2.5.2).

use std::sync::Arc;

use shunt_wire::cql::types as wire;

use super::{CqlType, UserType};
use crate::ast::NativeType;

/// Ids of native types, and the first protocol version with them; older ones use the class name.
const NATIVE: [(NativeType, u16, u8); 20] = [
    (NativeType::Ascii, 0x01, 3),
    (NativeType::Bigint, 0x02, 3),
    (NativeType::Blob, 0x03, 3),
    (NativeType::Boolean, 0x04, 3),
    (NativeType::Counter, 0x05, 3),
    (NativeType::Decimal, 0x06, 3),
    (NativeType::Double, 0x07, 3),
    (NativeType::Float, 0x08, 3),
    (NativeType::Int, 0x09, 3),
    (NativeType::Timestamp, 0x0B, 3),
    (NativeType::Uuid, 0x0C, 3),
    (NativeType::Text, 0x0D, 3),
    (NativeType::Varint, 0x0E, 3),
    (NativeType::Timeuuid, 0x0F, 3),
    (NativeType::Inet, 0x10, 3),
    (NativeType::Date, 0x11, 4),
    (NativeType::Time, 0x12, 4),
    (NativeType::Smallint, 0x13, 4),
    (NativeType::Tinyint, 0x14, 4),
    (NativeType::Duration, 0x15, 5),
];

impl CqlType {
    /// Appends the type as an `[option]` for a client of the given protocol version.
    pub fn write_option(&self, version: u8, out: &mut Vec<u8>) {
        match self {
            CqlType::Native(native) => match NATIVE.iter().find(|(known, ..)| known == native) {
                Some((_, id, since)) if *since <= version => short(*id, out),
                _ => self.write_class(out),
            },
            CqlType::List { element, .. } => {
                short(0x20, out);
                element.write_option(version, out);
            }
            CqlType::Map { key, value, .. } => {
                short(0x21, out);
                key.write_option(version, out);
                value.write_option(version, out);
            }
            CqlType::Set { element, .. } => {
                short(0x22, out);
                element.write_option(version, out);
            }
            CqlType::Udt { definition, .. } => {
                short(0x30, out);
                string(&definition.keyspace, out);
                string(&definition.name, out);
                short(count(definition.fields.len()), out);
                for (name, field) in definition.fields.iter().take(usize::from(u16::MAX)) {
                    string(name, out);
                    field.write_option(version, out);
                }
            }
            CqlType::Tuple(elements) => {
                short(0x31, out);
                short(count(elements.len()), out);
                for element in elements.iter().take(usize::from(u16::MAX)) {
                    element.write_option(version, out);
                }
            }
            CqlType::Vector { .. } | CqlType::Custom(_) => self.write_class(out),
        }
    }

    fn write_class(&self, out: &mut Vec<u8>) {
        short(0x00, out);
        string(&self.class_name(), out);
    }

    /// The type as an `[option]`.
    #[must_use]
    pub fn option(&self, version: u8) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_option(version, &mut out);
        out
    }

    /// Converts a type of result metadata, which does not show freezing: outer collections and
    /// user-defined types are unfrozen, nested ones frozen.
    #[must_use]
    pub fn from_wire(found: &wire::CqlType) -> CqlType {
        let inner = |inner: &wire::CqlType| CqlType::from_wire(inner).freeze();
        match found {
            wire::CqlType::List(element) => CqlType::list(inner(element)),
            wire::CqlType::Set(element) => CqlType::set(inner(element)),
            wire::CqlType::Map(key, value) => CqlType::map(inner(key), inner(value)),
            wire::CqlType::Tuple(elements) => CqlType::Tuple(elements.iter().map(inner).collect()),
            wire::CqlType::Udt { keyspace, name, fields } => {
                let fields =
                    fields.iter().map(|(name, field)| (name.clone(), inner(field))).collect();
                let definition =
                    UserType { keyspace: keyspace.clone(), name: name.clone(), fields };
                CqlType::Udt { definition: Arc::new(definition), frozen: false }
            }
            wire::CqlType::Custom(class) => CqlType::from_class_name(class),
            native => {
                let name = native.to_string();
                NativeType::by_name(&name)
                    .map_or_else(|| CqlType::Custom(name.into()), CqlType::Native)
            }
        }
    }

    /// Reads an `[option]` from the front of `input` and advances it; `None` if it is malformed.
    pub fn read_option(input: &mut &[u8]) -> Option<CqlType> {
        wire::CqlType::decode(input).map(|found| CqlType::from_wire(&found))
    }
}

fn short(value: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn count(value: usize) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

/// A string of the protocol; names are far shorter than its limit, and a longer class name is cut.
fn string(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    let bytes = &bytes[..bytes.len().min(usize::from(u16::MAX))];
    short(count(bytes.len()), out);
    out.extend_from_slice(bytes);
}
