//! `SELECT .. WHERE pk IN ?`, sent in parts: each node that has keys gets only those keys.
//!
//! ```text
//! EXECUTE -> take -> split: keys in order, runs that share a replica -> parts on links
//! RESULT  <- merge: rows of the parts, one after the other <- gather <- answers of the parts
//! ```
//!
//! A split is a bet that always ends in Cassandra's own answer ([ADR
//! 24](../../../../docs/adr/0024-in-queries-are-split-as-a-bet.md)). A request that is not provably
//! equal to its parts goes whole, from the start or after all ([`reasons`]): the proxy keeps the
//! original until the parts are answered.
//!
//! A part travels as a request of the proxy's own, in the pool of its client. So it gets the
//! treatment of a client's query: a second attempt, preparing again, the deadline. Each part is
//! answered exactly once, if only with an error of the proxy's; so each gather ends.

pub(crate) mod form;
pub(crate) mod gather;
pub(crate) mod merge;
pub(crate) mod reasons;
pub(crate) mod split;
pub(crate) mod send;

use std::collections::HashMap;

use slab::Slab;

use crate::ids::{ClientRef, PoolId};
use crate::limits;
use crate::metrics::MultigetMetrics;
use crate::plan::Plan;
use crate::prepared::ID_BYTES;

/// A part in flight: its gather, and its index there.
#[derive(Clone, Copy)]
struct Part {
    gather: usize,
    /// Number of the gather; never reused.
    number: u64,
    place: usize,
}

/// The answer to a part: rows.
pub(crate) struct Rows {
    pub(crate) flags: u8,
    pub(crate) body: Vec<u8>,
}

/// The client's parameters that shape the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) version: u8,
    pub(crate) skips_metadata: bool,
    /// Page size, if the client wants pages.
    pub(crate) page_rows: Option<usize>,
    /// `LIMIT`
    pub(crate) limit: Option<usize>,
}

/// A request that was split.
struct Gather {
    number: u64,
    client: ClientRef,
    stream: i16,
    pool: PoolId,
    /// Plan of the whole request.
    plan: Plan,
    received_ns: u64,
    id: [u8; ID_BYTES],
    /// The original request.
    request: Vec<u8>,
    wanted: Wanted,
    answers: Vec<Option<Rows>>,
    missing: usize,
    /// Bytes of the request and of the answers so far.
    bytes: usize,
}

/// A statement that goes whole for a while.
#[derive(Clone, Copy, Default)]
struct Pause {
    /// Consecutive lost bets.
    losses: u32,
    until_ns: u64,
}

/// The owner of split requests.
#[derive(Default)]
pub(crate) struct Multigets {
    gathers: Slab<Gather>,
    parts: Slab<Part>,
    pauses: HashMap<[u8; ID_BYTES], Pause>,
    numbers: u64,
    /// Bytes of all gathers.
    bytes: usize,
    turn: Turn,
    /// A mistake that a test plants, if any.
    pub(crate) mistake: Option<Mistake>,
}

/// Parts that a turn has written. The values of an EXECUTE are not parsed, so it does not count as
/// a heavy request, and its parts are more than it is itself.
#[derive(Default)]
struct Turn {
    now_ns: u64,
    parts: usize,
    bytes: usize,
}

impl Turn {
    /// Counts the parts of one more request, each of so many bytes, if the turn has room for them.
    /// The first request of a turn has room, however large it is.
    fn admits(&mut self, now_ns: u64, parts: usize, part_bytes: usize) -> bool {
        if self.now_ns != now_ns {
            *self = Turn { now_ns, ..Turn::default() };
        }
        let sum = (self.parts + parts, self.bytes + parts * part_bytes);
        let has_room =
            sum.0 <= limits::MULTIGET_TURN_PARTS_MAX && sum.1 <= limits::MULTIGET_TURN_BYTES_MAX;
        if has_room || self.parts == 0 {
            (self.parts, self.bytes) = sum;
            return true;
        }
        false
    }
}

/// Mistakes that a test plants, to see that its checks notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "weakened"),
    allow(dead_code, unreachable_pub, reason = "only tests plant them")
)]
pub enum Mistake {
    /// Parts are merged in the order of their answers.
    OrderOfAnswers,
    /// A full page of rows is taken for all rows.
    PagesIgnored,
    /// An error of a part is taken for an empty result.
    ErrorIgnored,
    /// Rows beyond `LIMIT` are kept.
    LimitIgnored,
}

impl Multigets {
    /// True if a gather may have to send its request once more in this pool.
    pub(crate) fn refers_to(&self, pool: PoolId) -> bool {
        self.gathers.iter().any(|(_, gather)| gather.pool == pool)
    }

    /// The client and the stream id of each request that was split.
    pub(crate) fn requests(&self) -> impl Iterator<Item = (ClientRef, i16)> {
        self.gathers.iter().map(|(_, gather)| (gather.client, gather.stream))
    }

    /// True if one more gather, of this many parts and bytes, is within the bounds.
    fn has_room(&self, parts: usize, bytes: usize) -> bool {
        self.gathers.len() < limits::MULTIGETS_MAX
            && self.parts.len() + parts <= limits::MULTIGET_PARTS_MAX
            && self.bytes + bytes <= limits::MULTIGETS_BYTES_MAX
    }

    fn is_paused(&self, id: &[u8; ID_BYTES], now_ns: u64) -> bool {
        !self.pauses.is_empty() && self.pauses.get(id).is_some_and(|pause| now_ns < pause.until_ns)
    }

    /// Notes that a bet on a statement was lost.
    fn pause(&mut self, id: [u8; ID_BYTES], now_ns: u64) {
        if self.pauses.len() >= limits::MULTIGET_PAUSES_MAX {
            self.pauses.clear();
        }
        let pause = self.pauses.entry(id).or_default();
        pause.until_ns = now_ns
            + (limits::MULTIGET_PAUSE_NS << pause.losses.min(limits::MULTIGET_PAUSE_DOUBLINGS));
        pause.losses += 1;
    }

    /// Notes that a bet on a statement was won.
    fn won(&mut self, id: &[u8; ID_BYTES]) {
        if !self.pauses.is_empty() {
            self.pauses.remove(id);
        }
    }

    /// Updates the gauges.
    fn show(&self, metrics: &MultigetMetrics) {
        metrics.open.set(self.gathers.len() as u64);
        metrics.parts_open.set(self.parts.len() as u64);
        metrics.bytes.set(self.bytes as u64);
    }

    /// Removes a gather; the answers of its parts are ignored from here on.
    fn remove(&mut self, key: usize) -> Option<Gather> {
        let gather = self.gathers.try_remove(key)?;
        self.bytes -= gather.bytes;
        Some(gather)
    }
}

#[cfg(test)]
mod tests;
