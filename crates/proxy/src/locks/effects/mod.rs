//! Queue of the effects of a core's locks: answers to requests, rows to write, partitions to read.
//!
//! [`perform`] performs them when the event that caused them is over. The buffers keep their room,
//! so that a lock allocates nothing once they have grown.

pub(crate) mod perform;

use shunt_locks::{LoadId, Mode, Outcome, Sink, Ticket, Write, WriteId};
use shunt_wire::cql::message::put;

use crate::locks::reply::{Held, Reply, Verdict};

/// A row to write: its values in the order of the statement.
#[derive(Clone, Copy, Debug)]
struct RowOut {
    id: WriteId,
    timestamp_us: i64,
    is_release: bool,
    /// Ends of the values, and of the role behind them.
    ends: (usize, usize),
}

/// A row to write, as other modules see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowWrite<'a> {
    /// The request that waits for the write.
    pub(crate) id: WriteId,
    pub(crate) timestamp_us: i64,
    /// [`ROW_VALUES`] values.
    pub(crate) values: &'a [u8],
    /// Role that a free row counts for, and whether a client asked for the release.
    pub(crate) role: &'a [u8],
    pub(crate) is_release: bool,
}

#[derive(Clone, Copy, Debug)]
struct ReplyOut {
    ticket: Ticket,
    verdict: Verdict,
    holder: Option<(Mode, i64, u32)>,
    waiters: u32,
    /// End of the text of the owner.
    end: usize,
}

/// Effects of an event, in order.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    replies: Vec<ReplyOut>,
    owners: Vec<u8>,
    rows: Vec<RowOut>,
    values: Vec<u8>,
    pub(crate) loads: Vec<LoadId>,
}

/// Number of values of a row.
pub(crate) const ROW_VALUES: u16 = 8;

impl Effects {
    pub(crate) fn is_empty(&self) -> bool {
        self.replies.is_empty() && self.rows.is_empty() && self.loads.is_empty()
    }

    /// Removes all effects and keeps the buffers.
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

    /// Number of rows to write.
    pub(crate) fn rows_count(&self) -> usize {
        self.rows.len()
    }

    /// The rows to write, in order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = RowWrite<'_>> {
        let starts = std::iter::once(0).chain(self.rows.iter().map(|row| row.ends.1));
        self.rows.iter().zip(starts).map(|(out, start)| {
            let RowOut { id, timestamp_us, is_release, ends: (middle, end) } = *out;
            let (values, role) = (&self.values[start..middle], &self.values[middle..end]);
            RowWrite { id, timestamp_us, values, role, is_release }
        })
    }
}

impl Sink for Effects {
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
        let middle = values.len();
        values.extend_from_slice(write.role);
        self.rows.push(RowOut {
            id: write.id,
            timestamp_us: row.timestamp_us,
            is_release: write.is_release,
            ends: (middle, values.len()),
        });
    }

    fn load(&mut self, load: LoadId) {
        self.loads.push(load);
    }
}
