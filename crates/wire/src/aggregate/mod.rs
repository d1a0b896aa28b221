//! The aggregated frame: many queries for one node, or their answers, in one envelope.
//!
//! An ordinary v4 header with opcode [`opcode::AGGREGATE`] and a body of
//!
//! ```text
//! [int] count
//! count times:  [short] stream  [int] client_id  [byte] version  [byte] flags  [byte] opcode
//!               [int] length  body
//! ```
//!
//! The answer has the same layout with response opcodes. `stream` is the link's number for the
//! query, as on an ordinary connection; the node echoes it. `client_id` names the client whose
//! state (its keyspace) the query sees, and is never 0. An entry with opcode
//! [`opcode::CLIENT_GONE`] and no body tells the node to forget a client and gets no answer. A node
//! that takes aggregated frames lists [`SUPPORTED_KEY`] in SUPPORTED; see [`Offer`].

mod offer;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use offer::{Offer, SUPPORTED_KEY};
pub use read::{AggregateReader, Entry};
pub use write::{AggregateWriter, Limits};

#[cfg(doc)]
use crate::cql::envelope::opcode;

/// Protocol version in the header of an aggregated frame, independent of its entries' versions.
pub const HEADER_VERSION: u8 = 4;

/// Length of the count in front of the entries in bytes.
pub const COUNT_BYTES: usize = 4;

/// Length of an entry without its body in bytes.
pub const ENTRY_HEADER_BYTES: usize = 13;
