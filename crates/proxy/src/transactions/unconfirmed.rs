//! What waits on a core until it is known that this proxy was alive when it heard it
//! ([`super::confirm`]).

use shunt_fleet::Incarnation;
use shunt_transactions::{Claim, Decision, Failed, Place, Row, TransactionId};

/// Something that was heard, and is told once it is known that this proxy was alive then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Unconfirmed {
    /// What a transaction does, which has read.
    Decided(TransactionId, Decision),
    /// Its record is acknowledged.
    Recorded(TransactionId),
    /// A single write is.
    Alone(TransactionId),
    /// The row of a shard's log was read, for an opening.
    Row(Claim, Result<Option<Row>, Failed>),
    /// A record that it found is there again.
    Again(Claim, Place),
}

/// The owner of what waits on a core.
#[derive(Debug, Default)]
pub(super) struct Confirming {
    /// The membership that this proxy's shards are of.
    pub(super) member: Option<Incarnation>,
    pub(super) waiting: Vec<Unconfirmed>,
    /// What the read under way is for.
    pub(super) asked: Option<Vec<Unconfirmed>>,
    /// How often that has failed in a row, and since when it is tried.
    pub(super) failed: u32,
    pub(super) since_ns: u64,
}
