//! Numbers of errors as the pages show them.

use serde_json::{Map, Value};
use shunt_admin::Label as _;

use crate::query_end::ErrorKind;

/// Errors by kind.
pub(super) fn by_kind(errors: &[u64; ErrorKind::COUNT]) -> Map<String, Value> {
    let kinds = ErrorKind::ALL.iter().zip(errors);
    kinds.map(|(kind, number)| (kind.text().to_owned(), (*number).into())).collect()
}
