//! States that the owner of a core's locks keeps: requests to all cores, the search for foreign rows,
//! requests that wait for a verdict.

use shunt_locks::Ticket;
use shunt_wire::cql::envelope::Header;

use crate::fleet::rights::waiting::Waiting;
use crate::ids::ClientRef;
use crate::locks::reply::Verdict;

/// A question to all cores.
pub(super) struct Overview {
    /// The client's request.
    pub(super) ticket: Ticket,
    /// Answers that have not come.
    pub(super) left: usize,
    /// What has come, as [`super::listing`] writes it.
    pub(super) list: Vec<u8>,
    /// Why a core does not tell.
    pub(super) refused: Option<Verdict>,
}

/// What a core saw of its locks.
#[derive(Default)]
pub(super) struct Snapshot {
    pub(super) at_ns: u64,
    pub(super) most: u32,
    pub(super) list: Vec<u8>,
}

/// How far the looking has come.
#[derive(Default)]
pub(super) struct ForeignRows {
    /// When the next table is looked at.
    pub(super) next_ns: u64,
    /// Its place among all.
    pub(super) place: usize,
    /// A bit for each table in which a row was.
    pub(super) found: u32,
}

impl ForeignRows {
    /// Begins anew.
    pub(super) fn restart(&mut self) {
        (self.next_ns, self.place) = (0, 0);
    }
}

/// Bytes of the requests of a core that wait for a verdict.
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
    /// When they are tried again.
    pub(super) retry_ns: u64,
}
