//! Events of a world.

use super::*;

/// A conditional statement on the shard's row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Claim(Option<Row>),
    Seal(Generation),
}

/// Something that happens at a host.
#[derive(Clone, Debug)]
pub(super) enum At {
    Renew {
        member: usize,
    },
    Renewed {
        member: usize,
        sent_ms: u64,
        applied: bool,
        ts_limit_us: i64,
    },
    Watch,
    Gain {
        member: usize,
        epoch: u64,
        floor_us: i64,
    },
    Given {
        epoch: u64,
    },
    Tick,
    Ask(usize),
    Read(TransactionId, Writes),
    Appended(TransactionId, Written),
    Applied(TransactionId, u16, Written),
    LowWritten(Generation, Position, Written),
    /// For an opening.
    Opening(Claim, Heard),
}

/// Answers to an opening.
#[derive(Clone, Debug)]
pub(super) enum Heard {
    Row(Result<Option<Row>, Failed>),
    Changed(Change, Conditional),
    Low(Generation, Result<Position, Failed>),
    Page(Place, BTreeMap<Position, Writes>),
    PageFailed(Place),
    Rewritten(Place, Written),
    Redone(Place, u16, Written),
}

#[derive(Clone, Debug)]
pub(super) enum Event {
    Deliver(usize, Mutation),
    Host(usize, u64, At),
    /// A replica is read for a transaction, or for an opening; the rest is what the ones before
    /// have said.
    ReadAt {
        host: usize,
        process: u64,
        id: TransactionId,
        keys: Vec<usize>,
        left: Vec<usize>,
        found: Writes,
    },
    PageAt {
        host: usize,
        process: u64,
        claim: Claim,
        from: Place,
        left: Vec<usize>,
        found: replicas::Log,
    },
    LowAt {
        host: usize,
        process: u64,
        claim: Claim,
        generation: Generation,
        left: Vec<usize>,
        found: Option<(i64, Position)>,
    },
    RowAt(usize, u64, Claim),
    /// The row is changed, and who asked hears of it after so long, if at all.
    ChangeAt(usize, u64, Claim, Change, Option<u64>),
    Client,
    Trouble,
}
