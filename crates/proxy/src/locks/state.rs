//! State of a core's locks: requests to all cores, the search for foreign rows, and requests that
//! wait for a verdict.

use std::collections::HashMap;

use shunt_locks::Ticket;
use shunt_wire::cql::envelope::Header;

use crate::fleet::rights::waiters::{Waiter, Waiting};
use crate::ids::ClientRef;
use crate::locks::reply::Verdict;
use crate::transactions::part::Who;

/// Requests to all cores under way on a core. One role gets half of them.
pub(super) const OVERVIEWS_MAX: usize = 256;

/// A request to all cores.
pub(super) struct Overview {
    /// The client's request, and the role that it counts to.
    pub(super) ticket: Ticket,
    pub(super) who: Who,
    /// Answers that have not arrived.
    pub(super) left: usize,
    /// Entries that have arrived, as [`super::listing`] writes them.
    pub(super) list: Vec<u8>,
    /// Reason why a core sent no list.
    pub(super) refused: Option<Verdict>,
}

/// A core's list of its own locks at one time.
#[derive(Default)]
pub(super) struct Snapshot {
    pub(super) at_ns: u64,
    pub(super) most: u32,
    pub(super) list: Vec<u8>,
}

/// Progress of the search for rows in the tables of locks ([`super::foreign_rows`]).
#[derive(Default)]
pub(super) struct ForeignRows {
    /// Time of the next query.
    pub(super) next_ns: u64,
    /// Position of the next table among all.
    pub(super) place: usize,
    /// A bit for each table in which a row was found.
    pub(super) found: u32,
}

impl ForeignRows {
    /// Begins the next round.
    pub(super) fn restart(&mut self) {
        (self.next_ns, self.place) = (0, 0);
    }
}

/// Bytes of all requests of a core that wait for a verdict.
const WAITING_BYTES_MAX: usize = 8 << 20;

/// A request that waits for a verdict.
pub(super) struct UndecidedRequest {
    pub(super) client: ClientRef,
    pub(super) header: Header,
    pub(super) body: Box<[u8]>,
    pub(super) came_ns: u64,
}

impl UndecidedRequest {
    fn place(&self) -> (ClientRef, i16) {
        (self.client, self.header.stream)
    }
}

/// Requests of a core that wait for a verdict.
#[derive(Default)]
pub(super) struct Undecided {
    waiting: Waiting<UndecidedRequest, WAITING_BYTES_MAX>,
    /// The last request of each client and stream id: so that one of thousands is found that is
    /// withdrawn.
    by_stream: HashMap<(ClientRef, i16), u64>,
    /// Time of the next attempt.
    pub(super) retry_ns: u64,
}

impl Undecided {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn has_room(&self, who: Who, bytes: usize) -> bool {
        self.waiting.has_room(who, bytes)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiter<UndecidedRequest>> {
        self.waiting.iter()
    }

    pub(super) fn push(&mut self, waiter: Waiter<UndecidedRequest>) {
        let place = waiter.request.place();
        self.by_stream.insert(place, self.waiting.push(waiter));
    }

    /// Takes out the request of a client with this stream id.
    pub(super) fn withdraw(&mut self, client: ClientRef, stream: i16) -> Option<UndecidedRequest> {
        let number = self.by_stream.remove(&(client, stream))?;
        self.waiting.remove(number).map(|waiter| waiter.request)
    }

    /// Takes out all requests that fit, in the order in which they came.
    pub(super) fn remove_where(
        &mut self,
        fits: impl FnMut(&Waiter<UndecidedRequest>) -> bool,
    ) -> Vec<UndecidedRequest> {
        let removed = self.waiting.remove_where(fits).into_iter().map(|waiter| waiter.request);
        let by_stream = &mut self.by_stream;
        removed.inspect(|request| _ = by_stream.remove(&request.place())).collect()
    }
}
