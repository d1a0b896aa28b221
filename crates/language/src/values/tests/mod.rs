//! Values of every type.

mod formats;
mod json;
mod ordering;

use crate::types::CqlType;
use crate::types::tests::Types;

/// The type of a text.
fn cql_type(text: &str) -> CqlType {
    CqlType::parse(text, &Types).expect(text)
}

fn hex(text: &str) -> Vec<u8> {
    super::string::unhex(text).expect(text)
}
