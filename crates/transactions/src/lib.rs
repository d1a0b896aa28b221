//! Transactions, as one core of a proxy carries them out, without I/O, clock or threads: requests,
//! times and outcomes of statements come in; statements to be made go out through a [`Effects`].
//!
//! | module | subject |
//! |---|---|
//! | [`request`] | a client's request, and how proxies send it to each other |
//! | [`guard`] | locks that a request relies on, and idempotency keys |
//! | [`catalogue`] | which tables take part in transactions, and their rules and identity |
//! | [`plan`] | from a text and its tables to what is locked, read and written |
//! | [`engine`] | locks, the log, commits, recovery |
//! | [`conditional`] | rows that a core knows, for statements that proxies decide by them |
//! | [`quotas`] | how much of a core's room each client may take |
//! | [`rejection`] | why a request is refused |

pub mod catalogue;
pub mod conditional;
pub mod engine;
pub mod guard;
pub mod plan;
pub mod quotas;
pub mod rejection;
pub mod request;

#[cfg(test)]
mod tests;

pub use engine::commit::Refused;
pub use engine::log::{BUCKET_RECORDS, Generation, Place, Position};
pub use engine::opening::{
    Claim, Conditional, Failed, FoundRecord, Opened, Opening, OpeningEffects, Page, Row,
};
pub use engine::record;
pub use engine::transactions::{Transactions, no_lease};
pub use engine::types::{
    Begin, Counters, Decision, Effects, Limits, Mode, NotExecuted, Outcome, Partition, Ticket,
    TransactionId,
};
#[cfg(feature = "weakened")]
pub use engine::weakened::{OpeningStep, Without};

/// Version of Cassandra's protocol in which values and types are kept.
pub const PROTOCOL_VERSION: u8 = 4;

/// Nanoseconds of a second.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;
