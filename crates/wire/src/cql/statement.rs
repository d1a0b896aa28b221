//! Reads from query text the facts that routing needs: kind, table and partition key terms. Also
//! decides whether a statement may be repeated after a node is lost.
//!
//! This module is not a CQL parser: it recognises the statements that applications send and gives
//! up on the rest. It errs to the safe side: a statement not fully understood has no key terms (it
//! goes to any node, which coordinates it) and is never repeated. The module never allocates; it
//! finds terms again on demand from slices of the text.
//!
//! The tokens are those of Cassandra's `Lexer.g`, the clauses those of its `Parser.g`.

mod classification;
mod identifier;
mod key_terms;
mod lexer;
mod outline;
mod parser;
mod redaction;
mod repeat;
mod routing;
mod selection;
mod setting;
mod terms;
#[cfg(test)]
mod tests;

pub use classification::{Kind, Statement, TEXT_BYTES_MAX, classify, classify_whole};
pub use identifier::Identifier;
pub use key_terms::KeyTerms;
pub use outline::{Outline, Part, outline};
pub use redaction::redact;
pub use repeat::{Repeatable, repeatable};
pub use routing::routing_key;
pub use selection::{Selected, SelectedColumns, SelectedTexts};
pub use setting::{Cells, ColumnKind, Setting};
pub use terms::{Bind, KeyTerm, Term};
