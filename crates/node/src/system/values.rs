//! Encodes values of the system tables.

use std::collections::BTreeMap;
use std::net::IpAddr;

use shunt_language::values::split;

use crate::schema::Uuid;

/// A row under construction: values by column name. Missing columns are null.
#[derive(Default)]
pub(super) struct RowMaker(pub(super) BTreeMap<&'static str, Vec<u8>>);

impl RowMaker {
    fn put(mut self, column: &'static str, value: Vec<u8>) -> Self {
        self.0.insert(column, value);
        self
    }

    pub(super) fn text(self, column: &'static str, value: &str) -> Self {
        self.put(column, value.as_bytes().to_vec())
    }

    pub(super) fn uuid(self, column: &'static str, value: &Uuid) -> Self {
        self.put(column, value.to_vec())
    }

    pub(super) fn int(self, column: &'static str, value: i32) -> Self {
        self.put(column, value.to_be_bytes().to_vec())
    }

    pub(super) fn bigint(self, column: &'static str, value: i64) -> Self {
        self.put(column, value.to_be_bytes().to_vec())
    }

    pub(super) fn double(self, column: &'static str, value: f64) -> Self {
        self.put(column, value.to_be_bytes().to_vec())
    }

    pub(super) fn boolean(self, column: &'static str, value: bool) -> Self {
        self.put(column, vec![u8::from(value)])
    }

    pub(super) fn blob(self, column: &'static str, value: &[u8]) -> Self {
        self.put(column, value.to_vec())
    }

    pub(super) fn inet(self, column: &'static str, value: IpAddr) -> Self {
        let bytes = match value {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        self.put(column, bytes)
    }

    /// A list or set of texts in the given order.
    pub(super) fn texts<'v>(
        self,
        column: &'static str,
        values: impl IntoIterator<Item = &'v str>,
    ) -> Self {
        let values: Vec<&[u8]> = values.into_iter().map(str::as_bytes).collect();
        self.put(column, split::join_collection(values.len(), values))
    }

    /// A map of texts.
    pub(super) fn map(self, column: &'static str, values: &BTreeMap<String, String>) -> Self {
        let parts = values.iter().flat_map(|(key, value)| [key.as_bytes(), value.as_bytes()]);
        let joined = split::join_collection(values.len(), parts);
        self.put(column, joined)
    }
}
