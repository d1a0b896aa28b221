//! Bound values of QUERY, EXECUTE and BATCH, read in place.
//!
//! v5, section 4.1.4: a `[short]` n followed by n `[value]`, each preceded by a `[string]` name if
//! the names flag is set. Decoding the message validates the list and finds its end; reading the
//! list later cannot fail.

use std::collections::{HashMap, HashSet};

use super::primitive::Reader;
use super::put;
use crate::error::{DecodeError, Problem};

/// A bound value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Value<'a> {
    /// The serialized value; may be empty.
    Bytes(&'a [u8]),
    /// Null: length -1 (in v3 any negative length).
    Null,
    /// Not set: length -2, v4 and later.
    Unset,
}

impl<'a> Value<'a> {
    /// The bytes, if the value is neither null nor unset.
    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Value::Bytes(bytes) => Some(bytes),
            Value::Null | Value::Unset => None,
        }
    }
}

/// A view of a list of bound values.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Values<'a> {
    count: u16,
    named: bool,
    version: u8,
    items: &'a [u8],
}

impl<'a> Values<'a> {
    /// Reads a count and that many values, with names if `named`.
    ///
    /// # Errors
    /// A value that ends beyond the body, a name that is not UTF-8, or (v4 and later) a length
    /// below -2.
    #[inline]
    pub fn read(
        reader: &mut Reader<'a>,
        version: u8,
        named: bool,
    ) -> Result<Values<'a>, DecodeError> {
        let count = reader.short("value count")?;
        let start = reader.position();
        for _ in 0..count {
            if named {
                reader.string("value name")?;
            }
            read_value(reader, version)?;
        }
        Ok(Values { count, named, version, items: reader.since(start) })
    }

    /// `count` positional values in the layout of `version`.
    pub fn positional(version: u8, count: u16, items: &'a [u8]) -> Values<'a> {
        Values { count, named: false, version, items }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// True if there is no value.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// True if the values have names.
    pub fn is_named(&self) -> bool {
        self.named
    }

    /// The value at `index`, counted from 0 in the order of the message.
    #[inline]
    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        self.iter().nth(index).map(|(_, value)| value)
    }

    /// The value with the name `name`, compared byte by byte; `None` also if the values have no
    /// names.
    pub fn named(&self, name: &str) -> Option<Value<'a>> {
        self.iter().find(|(found, _)| *found == Some(name)).map(|(_, value)| value)
    }

    /// The first value of each of these names, as [`Values::named`] finds it. Walks the list once,
    /// whatever the number of names.
    pub fn with_names<'n>(
        &self,
        names: impl IntoIterator<Item = &'n str>,
    ) -> HashMap<&'n str, Value<'a>> {
        first_of_each(&names.into_iter().collect(), self.iter())
    }

    /// The values in order, each with its name if the values have names.
    #[inline]
    pub fn iter(&self) -> ValuesIter<'a> {
        ValuesIter {
            reader: Reader::new(self.items),
            left: self.count,
            named: self.named,
            version: self.version,
        }
    }

    /// Appends the count and the values as they were read.
    pub fn put(&self, out: &mut Vec<u8>) {
        put::short(out, self.count);
        out.extend_from_slice(self.items);
    }
}

fn first_of_each<'n, 'a>(
    names: &HashSet<&'n str>,
    values: impl Iterator<Item = (Option<&'a str>, Value<'a>)>,
) -> HashMap<&'n str, Value<'a>> {
    let mut found = HashMap::with_capacity(names.len());
    for (name, value) in values {
        if let Some(name) = name.and_then(|name| names.get(name)) {
            found.entry(*name).or_insert(value);
        }
    }
    found
}

/// Iterator of [`Values::iter`].
#[derive(Clone, Debug)]
pub struct ValuesIter<'a> {
    reader: Reader<'a>,
    left: u16,
    named: bool,
    version: u8,
}

impl<'a> Iterator for ValuesIter<'a> {
    type Item = (Option<&'a str>, Value<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let name = if self.named { Some(self.reader.string("value name").ok()?) } else { None };
        Some((name, read_value(&mut self.reader, self.version).ok()?))
    }
}

/// `[value]` (section 3). v3 knows `[bytes]` only: "if n < 0, no byte should follow and the value
/// represented is null".
#[inline]
fn read_value<'a>(reader: &mut Reader<'a>, version: u8) -> Result<Value<'a>, DecodeError> {
    let start = *reader;
    let length = reader.int("value")?;
    match usize::try_from(length) {
        Ok(length) => reader.take(length, "value").map(Value::Bytes),
        Err(_) if length == -1 || version < 4 => Ok(Value::Null),
        Err(_) if length == -2 => Ok(Value::Unset),
        Err(_) => Err(start.error("value", Problem::Negative { found: length })),
    }
}

/// Builds a list of values for the encoders.
///
/// ```
/// use shunt_wire::cql::message::values::{Value, ValueList};
/// let mut list = ValueList::positional(4);
/// list.push(Value::Bytes(&7_i32.to_be_bytes()));
/// list.push(Value::Null);
/// assert_eq!(list.values().get(1), Some(Value::Null));
/// ```
#[derive(Clone, Debug)]
pub struct ValueList {
    version: u8,
    named: bool,
    count: u16,
    items: Vec<u8>,
}

impl ValueList {
    /// An empty list of values without names, for protocol `version`.
    pub fn positional(version: u8) -> ValueList {
        ValueList { version, named: false, count: 0, items: Vec::new() }
    }

    /// An empty list of values with names, for protocol `version`.
    pub fn named(version: u8) -> ValueList {
        ValueList { named: true, ..ValueList::positional(version) }
    }

    /// Appends a value. In a list with names the value gets an empty name. Omits values beyond the
    /// 65,535th. v3 has no unset values, so unset becomes null.
    pub fn push(&mut self, value: Value<'_>) -> &mut ValueList {
        self.push_named("", value)
    }

    /// Appends a value with its name; a list without names drops the name.
    pub fn push_named(&mut self, name: &str, value: Value<'_>) -> &mut ValueList {
        let Some(count) = self.count.checked_add(1) else {
            return self;
        };
        self.count = count;
        if self.named {
            put::string(&mut self.items, name);
        }
        match value {
            Value::Bytes(bytes) => put::bytes(&mut self.items, Some(bytes)),
            Value::Unset if self.version >= 4 => put::int(&mut self.items, -2),
            Value::Null | Value::Unset => put::bytes(&mut self.items, None),
        }
        self
    }

    /// Removes all values and keeps the memory.
    pub fn clear(&mut self) {
        self.count = 0;
        self.items.clear();
    }

    /// The list for the encoders.
    pub fn values(&self) -> Values<'_> {
        Values { count: self.count, named: self.named, version: self.version, items: &self.items }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], version: u8, named: bool) -> Result<Values<'_>, DecodeError> {
        Values::read(&mut Reader::new(bytes), version, named)
    }

    #[test]
    fn null_and_unset_are_told_apart_from_v4() {
        let bytes = [0, 2, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFE];
        let values = read(&bytes, 4, false).unwrap();
        assert_eq!(values.get(0), Some(Value::Null));
        assert_eq!(values.get(1), Some(Value::Unset));
        assert_eq!(values.get(2), None);
        assert_eq!(read(&bytes, 3, false).unwrap().get(1), Some(Value::Null));
    }

    #[test]
    fn a_length_below_minus_two_is_refused_from_v4() {
        let bytes = [0, 1, 0xFF, 0xFF, 0xFF, 0xFD];
        let error = read(&bytes, 5, false).unwrap_err();
        assert_eq!((error.problem, error.offset), (Problem::Negative { found: -3 }, 2));
        assert_eq!(read(&bytes, 3, false).unwrap().get(0), Some(Value::Null));
    }

    #[test]
    fn named_values_are_found_by_name() {
        let mut list = ValueList::named(4);
        list.push_named("a", Value::Bytes(b"x")).push_named("b", Value::Bytes(b""));
        let values = list.values();
        assert_eq!(values.named("b"), Some(Value::Bytes(b"")));
        assert_eq!(values.named("c"), None);
        assert_eq!(values.get(0), Some(Value::Bytes(b"x")));
    }

    #[test]
    fn values_are_found_by_many_names_as_by_each() {
        let mut list = ValueList::named(4);
        list.push_named("a", Value::Bytes(b"x"))
            .push_named("b", Value::Null)
            .push_named("a", Value::Unset);
        let (values, names) = (list.values(), ["b", "a", "c", "a"]);
        let found = values.with_names(names);
        assert!(
            names.iter().all(|name| found.get(name).copied() == values.named(name)),
            "{found:?}"
        );
        let mut list = ValueList::positional(4);
        assert!(list.push(Value::Null).values().with_names([""]).is_empty(), "they have no names");
    }

    #[test]
    fn values_are_walked_once_however_many_names_are_looked_for() {
        let mut list = ValueList::named(4);
        let names: Vec<String> = (0..u16::MAX).map(|number| format!("n{number}")).collect();
        names.iter().for_each(|name| _ = list.push_named(name, Value::Null));
        for most in [100, 4_096, 65_535] {
            let mut steps = 0;
            let wanted = names.iter().rev().take(most).map(String::as_str).collect();
            let found = first_of_each(&wanted, list.values().iter().inspect(|_| steps += 1));
            assert_eq!((found.len(), steps), (most, 65_535));
        }
    }

    #[test]
    fn a_claimed_length_is_not_believed() {
        let bytes = [0, 1, 0x7F, 0xFF, 0xFF, 0xFF, 1];
        let error = read(&bytes, 4, false).unwrap_err();
        assert_eq!(error.problem, Problem::Truncated { needed: 0x7FFF_FFFF, left: 1 });
    }
}
