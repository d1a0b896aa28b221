//! The CQL language as a pure library: text to statements, literals and bind values to serialized
//! values, and back.
//!
//! ```text
//! text ─ lexer ─ parser ─ ast ──┐
//!                               ├─ terms (checked against types, then evaluated) ─ bytes
//! types ─ values ─ functions ───┘
//! ```
//!
//! Nothing here reads a clock, a file or a schema: the time, names of user-defined types and tokens
//! of keys come from the caller. The grammar, the messages and the meaning of values are those of
//! Apache Cassandra 5.0; those of transactions are of Cassandra 6. Text and bytes may come from
//! anybody: nothing panics, nothing nests without a limit.

pub mod ast;
pub mod conditions;
pub mod error;
pub mod facade;
pub mod functions;
mod keyword;
mod lexer;
mod parser;

pub mod terms;
pub mod transaction;
pub mod types;
pub mod values;

pub use ast::Parsed;
pub use error::{InvalidRequest, Refusal, SyntaxError};
pub use parser::{parse, parse_type};
pub use types::CqlType;
