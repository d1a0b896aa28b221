//! State of a core's locks: requests to all cores, the search for foreign rows, and requests that
//! wait for a verdict.

use shunt_locks::Ticket;
use shunt_wire::cql::envelope::Header;

use crate::fleet::rights::waiters::Waiting;
use crate::ids::ClientRef;
use crate::locks::reply::Verdict;

/// A request to all cores.
pub(super) struct Overview {
    /// The client's request.
    pub(super) ticket: Ticket,
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

/// Requests of a core that wait for a verdict.
#[derive(Default)]
pub(super) struct Undecided {
    pub(super) waiting: Waiting<UndecidedRequest, WAITING_BYTES_MAX>,
    /// Time of the next attempt.
    pub(super) retry_ns: u64,
}
