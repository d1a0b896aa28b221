//! JSON: values out (`SELECT JSON`, `to_json`) and in (`INSERT JSON`, `from_json`).
//!
//! The parser is custom because numbers must keep their text: a `varint` or `decimal` has digits
//! that no float holds, and a JSON crate supports that only by a program-wide setting.

mod decode;
mod encode;
mod time_dependence;
mod syntax;

pub use decode::{from_json, from_json_row};
pub use encode::{json_key, json_string, to_json};
pub use syntax::{Json, parse};
pub use time_dependence::time_dependence;
