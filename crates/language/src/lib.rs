//! The CQL language as a pure library: text to statements, literals and bind values to serialized
//! values, and back.
//!
//! ```text
//! text ─ lexer ─ parser ─ ast ──┐
//!                               ├─ terms (checked against types, then evaluated) ─ bytes
//! types ─ values ─ functions ───┘
//! ```
//!
//! The crate reads no clock, file or schema: the caller provides the time, user-defined types and
//! tokens of keys. Grammar, messages and meaning of values are those of Apache Cassandra 5.0;
//! transactions follow Cassandra 6. Text and bytes may be hostile: nothing panics, and nesting is
//! limited.

pub mod ast;
pub mod conditions;
pub mod error;
pub mod lock_tables;
pub mod functions;
mod keyword;
mod lexer;
mod parser;

pub mod terms;
pub mod transaction;
pub mod types;
pub mod values;
pub mod work;

pub use ast::Parsed;
pub use error::{InvalidRequest, Refusal, SyntaxError};
pub use parser::{parse, parse_type};
pub use types::CqlType;
