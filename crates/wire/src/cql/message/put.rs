//! Writers of the notations of the specification (section 3), the counterpart of
//! [`super::primitive`].
//!
//! A length that its field cannot hold is never a peer's error, since a peer's lengths came through
//! the same field; it can only come from Shunt's own texts. A value that is too long is therefore
//! cut and never wraps around.

use std::net::{IpAddr, SocketAddr};

use super::consistency::Consistency;

/// `[short]`.
pub fn short(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// `[int]`.
pub fn int(out: &mut Vec<u8>, value: i32) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// `[long]`.
pub fn long(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// `[string]`, cut at the last character that ends within 65,535 bytes.
pub fn string(out: &mut Vec<u8>, value: &str) {
    short_bytes(out, cut(value, usize::from(u16::MAX)).as_bytes());
}

/// `[long string]`, cut at the last character that ends within 2^31 - 1 bytes.
pub fn long_string(out: &mut Vec<u8>, value: &str) {
    bytes(out, Some(cut(value, i32::MAX as usize).as_bytes()));
}

/// `[short bytes]`, cut after 65,535 bytes.
pub fn short_bytes(out: &mut Vec<u8>, value: &[u8]) {
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    short(out, length);
    out.extend_from_slice(value.get(..usize::from(length)).unwrap_or(value));
}

/// `[bytes]`, cut after 2^31 - 1 bytes; `None` is null.
pub fn bytes(out: &mut Vec<u8>, value: Option<&[u8]>) {
    let Some(value) = value else {
        return int(out, -1);
    };
    let length = i32::try_from(value.len()).unwrap_or(i32::MAX);
    int(out, length);
    out.extend_from_slice(value.get(..length as usize).unwrap_or(value));
}

/// `[consistency]`.
pub fn consistency(out: &mut Vec<u8>, value: Consistency) {
    short(out, value.0);
}

/// `[inetaddr]`.
pub fn inet_address(out: &mut Vec<u8>, value: IpAddr) {
    match value {
        IpAddr::V4(address) => {
            out.push(4);
            out.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            out.push(16);
            out.extend_from_slice(&address.octets());
        }
    }
}

/// `[inet]`.
pub fn inet(out: &mut Vec<u8>, value: SocketAddr) {
    inet_address(out, value.ip());
    int(out, i32::from(value.port()));
}

/// `[string list]`; omits strings beyond the 65,535th.
pub fn string_list<'s>(out: &mut Vec<u8>, values: impl IntoIterator<Item = &'s str>) {
    counted(out, values, string);
}

/// `[string map]`; omits pairs beyond the 65,535th.
pub fn string_map<'s>(out: &mut Vec<u8>, pairs: impl IntoIterator<Item = (&'s str, &'s str)>) {
    counted(out, pairs, |out, (key, value)| {
        string(out, key);
        string(out, value);
    });
}

/// `[bytes map]`; omits pairs beyond the 65,535th.
pub fn bytes_map<'s>(
    out: &mut Vec<u8>,
    pairs: impl IntoIterator<Item = (&'s str, Option<&'s [u8]>)>,
) {
    counted(out, pairs, |out, (key, value)| {
        string(out, key);
        bytes(out, value);
    });
}

/// A `[short]` count and that many items.
pub(super) fn counted<T>(
    out: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    mut put: impl FnMut(&mut Vec<u8>, T),
) {
    let at = out.len();
    short(out, 0);
    let mut count = 0_u16;
    for item in items.into_iter().take(usize::from(u16::MAX)) {
        put(out, item);
        count += 1;
    }
    if let Some(field) = out.get_mut(at..at + 2) {
        field.copy_from_slice(&count.to_be_bytes());
    }
}

/// The longest prefix of `text` that has at most `max` bytes and ends between characters.
fn cut(text: &str, max: usize) -> &str {
    if text.len() <= max {
        text
    } else {
        text.get(..text.floor_char_boundary(max)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cql::message::primitive::Reader;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = "ä".repeat(40_000);
        let mut out = Vec::new();
        string(&mut out, &text);
        let mut reader = Reader::new(&out);
        assert_eq!(reader.string("text"), Ok(&text[..65_534]));
        assert!(reader.rest().is_empty());
    }
}
