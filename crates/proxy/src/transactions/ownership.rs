//! State of a core's shards while they change hands: logs that are being opened, shards that are
//! being handed over, and answers that wait for a proof that this proxy was alive.

use std::collections::HashMap;
use std::sync::Arc;

use shunt_fleet::{Incarnation, Shard};
use shunt_transactions::{Claim, Decision, Failed, Opening, Place, Row, TransactionId};

/// The opening of one shard.
pub(crate) struct Open {
    pub(crate) shard: u8,
    pub(crate) opening: Opening,
    /// Records that were read and are not finished.
    pub(crate) bodies: HashMap<Place, Arc<[u8]>>,
    /// No client needs the shard: if it has no log, none is started.
    pub(crate) only_recovers: bool,
}

impl Open {
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        self.opening.next_due_ms()
    }

    pub(crate) fn is_of(&self, shard: u8) -> bool {
        self.shard == shard
    }
}

/// A shard that is handed over once it is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Draining {
    pub(crate) shard: Shard,
    pub(crate) number: u64,
    /// Highest token of its locks, microseconds.
    pub(crate) last_token_us: i64,
    pub(crate) memory_empty: bool,
}

/// An answer that counts once this proxy is known to have been alive when it came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Unconfirmed {
    /// A transaction that writes nothing has read.
    Decided(TransactionId, Decision),
    /// A record is acknowledged.
    Recorded(TransactionId),
    /// An unlogged write is acknowledged.
    Unlogged(TransactionId),
    /// An opening has read the row of a shard's log.
    Row(Claim, Result<Option<Row>, Failed>),
    /// A recovered record is rewritten.
    Again(Claim, Place),
}

/// The owner of a core's unconfirmed answers.
#[derive(Debug, Default)]
pub(crate) struct Confirming {
    /// The membership to which this proxy's shards belong.
    pub(crate) member: Option<Incarnation>,
    pub(crate) waiting: Vec<Unconfirmed>,
    /// Answers that the read under way confirms.
    pub(crate) asked: Option<Vec<Unconfirmed>>,
    /// Failed reads in a row.
    pub(crate) failed: u32,
    pub(crate) since_ns: u64,
}
