//! Serialized values for the rows of the stub's system tables (protocol v4, section 6).

use std::net::IpAddr;

use shunt_wire::cql::message::put;

/// A serialized value, `None` for null.
pub type Cell = Option<Vec<u8>>;

/// A `text`.
pub fn text(value: &str) -> Cell {
    Some(value.as_bytes().to_vec())
}

/// An `int`.
pub fn int(value: i32) -> Cell {
    Some(value.to_be_bytes().to_vec())
}

/// A `boolean`.
pub fn boolean(value: bool) -> Cell {
    Some(vec![u8::from(value)])
}

/// A `double`.
pub fn double(value: f64) -> Cell {
    Some(value.to_be_bytes().to_vec())
}

/// A `uuid`.
pub fn uuid(value: u128) -> Cell {
    Some(value.to_be_bytes().to_vec())
}

/// An `inet`: 4 or 16 bytes.
pub fn inet(value: IpAddr) -> Cell {
    Some(match value {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    })
}

/// A `set<text>` or `list<text>`.
pub fn texts<T: AsRef<str>>(values: &[T]) -> Cell {
    let mut bytes = (values.len() as u32).to_be_bytes().to_vec();
    for value in values {
        put::bytes(&mut bytes, Some(value.as_ref().as_bytes()));
    }
    Some(bytes)
}

/// A `map<text, text>`.
pub fn text_map(pairs: &[(&str, &str)]) -> Cell {
    let mut bytes = (pairs.len() as u32).to_be_bytes().to_vec();
    for (key, value) in pairs {
        put::bytes(&mut bytes, Some(key.as_bytes()));
        put::bytes(&mut bytes, Some(value.as_bytes()));
    }
    Some(bytes)
}
