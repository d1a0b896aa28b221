//! What the locks of a core want done, until it is: answers to requests, rows to be written,
//! partitions to be read.
//!
//! The buffers keep their room, so that nothing is allocated for a lock once they have grown.

use shunt_locks::{Holder, LoadId, Mode, NotServed, Outcome, Quota, Sink, Ticket, Write, WriteId};
use shunt_wire::cql::message::put;

/// An outcome, without the text of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Granted,
    Released,
    Refused,
    Seen,
    /// There is a list.
    Listed,
    /// There is a list of several locks.
    Locks,
    NotServed(NotServed),
    InDoubt,
    /// Another role holds the lock under the same owner's text.
    Unauthorized,
    /// Another proxy says that the role may not use the table.
    NotAllowed,
    OtherMode,
    Quota(Quota),
}

/// Who holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held<'a> {
    pub(crate) owner: &'a [u8],
    pub(crate) mode: Mode,
    pub(crate) fence: i64,
    pub(crate) ttl_ms: u32,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply<'a> {
    pub(crate) verdict: Verdict,
    pub(crate) holder: Option<Held<'a>>,
    pub(crate) waiters: u32,
    /// Entries as [`super::listing`] writes them.
    pub(crate) list: &'a [u8],
}

impl From<Verdict> for Reply<'_> {
    fn from(verdict: Verdict) -> Self {
        Reply { verdict, holder: None, waiters: 0, list: &[] }
    }
}

impl<'a> From<Outcome<'a>> for Reply<'a> {
    fn from(outcome: Outcome<'a>) -> Self {
        let held = |holder: Holder<'a>| Held {
            owner: holder.owner,
            mode: holder.mode,
            fence: holder.fence,
            ttl_ms: holder.ttl_ms,
        };
        match outcome {
            Outcome::Granted { holder, waiters } => {
                Reply { holder: Some(held(holder)), waiters, ..Verdict::Granted.into() }
            }
            Outcome::Released { waiters } => Reply { waiters, ..Reply::from(Verdict::Released) },
            Outcome::Refused { holder, waiters } => {
                Reply { holder: holder.map(held), waiters, ..Verdict::Refused.into() }
            }
            Outcome::Seen { holder, waiters } => {
                Reply { holder: holder.map(held), waiters, ..Verdict::Seen.into() }
            }
            Outcome::NotServed(why) => Reply::from(Verdict::NotServed(why)),
            Outcome::InDoubt => Reply::from(Verdict::InDoubt),
            Outcome::Unauthorized => Reply::from(Verdict::Unauthorized),
            Outcome::OtherMode => Reply::from(Verdict::OtherMode),
            Outcome::Quota(quota) => Reply::from(Verdict::Quota(quota)),
        }
    }
}

/// A row to be written: its values as they are bound, in the order of the statement.
#[derive(Clone, Copy, Debug)]
struct RowOut {
    id: WriteId,
    timestamp_us: i64,
    end: usize,
}

#[derive(Clone, Copy, Debug)]
struct ReplyOut {
    ticket: Ticket,
    verdict: Verdict,
    holder: Option<(Mode, i64, u32)>,
    waiters: u32,
    /// Where the owner's text ends.
    end: usize,
}

/// All that is to be done.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    replies: Vec<ReplyOut>,
    owners: Vec<u8>,
    rows: Vec<RowOut>,
    values: Vec<u8>,
    pub(crate) loads: Vec<LoadId>,
}

/// How many values a row has.
pub(crate) const ROW_VALUES: u16 = 8;

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.replies.is_empty() && self.rows.is_empty() && self.loads.is_empty()
    }

    /// Nothing is left; the room is.
    pub(crate) fn clear(&mut self) {
        self.replies.clear();
        self.owners.clear();
        self.rows.clear();
        self.values.clear();
        self.loads.clear();
    }

    /// The answers, in order.
    pub(crate) fn replies(&self) -> impl Iterator<Item = (Ticket, Reply<'_>)> {
        let starts = std::iter::once(0).chain(self.replies.iter().map(|reply| reply.end));
        self.replies.iter().zip(starts).map(|(out, start)| {
            let owner = &self.owners[start..out.end];
            let holder =
                out.holder.map(|(mode, fence, ttl_ms)| Held { owner, mode, fence, ttl_ms });
            (out.ticket, Reply { holder, waiters: out.waiters, ..out.verdict.into() })
        })
    }

    /// How many rows are to be written.
    pub(crate) fn rows_count(&self) -> usize {
        self.rows.len()
    }

    /// The rows to be written: who waits, their timestamp in microseconds, and [`ROW_VALUES`]
    /// values.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (WriteId, i64, &[u8])> {
        let starts = std::iter::once(0).chain(self.rows.iter().map(|row| row.end));
        self.rows
            .iter()
            .zip(starts)
            .map(|(out, start)| (out.id, out.timestamp_us, &self.values[start..out.end]))
    }
}

impl Sink for Outbox {
    fn reply(&mut self, ticket: Ticket, outcome: Outcome<'_>) {
        let Reply { verdict, holder, waiters, .. } = outcome.into();
        self.owners.extend_from_slice(holder.map_or(&[], |holder| holder.owner));
        let holder = holder.map(|holder| (holder.mode, holder.fence, holder.ttl_ms));
        self.replies.push(ReplyOut { ticket, verdict, holder, waiters, end: self.owners.len() });
    }

    fn write(&mut self, write: Write<'_>) {
        let (row, values) = (&write.row, &mut self.values);
        let mode: &[u8] = if row.slot.is_empty() { b"X" } else { b"S" };
        put::bytes(values, Some(&i32::from(write.bucket).to_be_bytes()));
        for text in [row.name, row.slot, row.owner, row.role, mode] {
            put::bytes(values, Some(text));
        }
        put::bytes(values, Some(&row.token.to_be_bytes()));
        put::bytes(values, Some(&row.ttl_ms.cast_signed().to_be_bytes()));
        self.rows.push(RowOut { id: write.id, timestamp_us: row.timestamp_us, end: values.len() });
    }

    fn load(&mut self, load: LoadId) {
        self.loads.push(load);
    }
}
