//! Views of the lists and maps of the specification's notations (section 3).
//!
//! [`Reader`] validates a collection once, so that iterating over its view cannot fail.

use super::primitive::Reader;
use crate::error::DecodeError;

/// Validated items; reading them again cannot fail.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Counted<'a> {
    count: u16,
    items: &'a [u8],
}

impl<'a> Counted<'a> {
    /// `count` validated items, which fill `items`.
    pub(super) fn new(count: u16, items: &'a [u8]) -> Counted<'a> {
        Counted { count, items }
    }

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
    pub(super) fn new(items: Counted<'a>) -> StringList<'a> {
        StringList(items)
    }

    /// The strings in order.
    pub fn iter(self) -> impl Iterator<Item = &'a str> {
        self.0.iter(|reader| reader.string("string"))
    }

    /// Number of strings.
    pub fn len(self) -> usize {
        usize::from(self.0.count)
    }

    /// True if there is no string.
    pub fn is_empty(self) -> bool {
        self.0.count == 0
    }
}

/// A view of a `[string map]`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StringMap<'a>(Counted<'a>);

impl<'a> StringMap<'a> {
    pub(super) fn new(items: Counted<'a>) -> StringMap<'a> {
        StringMap(items)
    }

    /// The pairs in order.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.iter(|reader| Ok((reader.string("key")?, reader.string("value")?)))
    }

    /// The value of `key`; the last one if the key is repeated.
    pub fn get(self, key: &str) -> Option<&'a str> {
        self.iter().filter(|(found, _)| *found == key).last().map(|(_, value)| value)
    }
}

/// A view of a `[string multimap]`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StringMultimap<'a>(Counted<'a>);

impl<'a> StringMultimap<'a> {
    pub(super) fn new(items: Counted<'a>) -> StringMultimap<'a> {
        StringMultimap(items)
    }

    /// The keys with their values in order.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, StringList<'a>)> {
        self.0.iter(|reader| Ok((reader.string("key")?, reader.string_list("values")?)))
    }

    /// The values of `key`.
    pub fn get(self, key: &str) -> Option<StringList<'a>> {
        self.iter().find(|(found, _)| *found == key).map(|(_, values)| values)
    }
}

/// A view of a `[bytes map]`, the form of a custom payload.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BytesMap<'a>(Counted<'a>);

impl<'a> BytesMap<'a> {
    pub(super) fn new(items: Counted<'a>) -> BytesMap<'a> {
        BytesMap(items)
    }

    /// The pairs in order; a value of `None` is null.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, Option<&'a [u8]>)> {
        self.0.iter(|reader| Ok((reader.string("key")?, reader.bytes("value")?)))
    }
}
