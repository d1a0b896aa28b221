//! Requests that take long to read: large texts, and compressed bytes, alone or in segments. A loop
//! reads a limited number of such bytes in a turn. Then it serves other requests first, and a
//! client that has sent more waits in line.
//!
//! This must never: hold back a request that is not heavy; leave a client in line when there is
//! room; let a later client go first.

use std::collections::VecDeque;

use shunt_wire::cql::compression::{self, Algorithm};
use shunt_wire::cql::envelope::{Header, flag, opcode};

use crate::ids::ClientRef;
use crate::limits;

/// The heavy requests of a core.
#[derive(Default)]
pub(crate) struct Heavy {
    /// Bytes that this turn has read or has promised.
    taken: usize,
    /// Clients in line, with the bytes of their next requests.
    waiting: VecDeque<(ClientRef, usize)>,
}

impl Heavy {
    /// True if a request of this many bytes may be read now. The first one of a turn may, however
    /// large it is.
    pub(crate) fn admits(&mut self, bytes: usize) -> bool {
        let is_admitted = self.waiting.is_empty() && self.has_room(bytes);
        if is_admitted {
            self.taken += bytes;
        }
        is_admitted
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.taken == 0 || self.taken + bytes <= limits::HEAVY_TURN_BYTES_MAX
    }

    /// Puts a client in line, with a request of this many bytes.
    pub(crate) fn wait(&mut self, client: ClientRef, bytes: usize) {
        self.waiting.push_back((client, bytes));
    }

    /// Ends a turn: its bytes no longer count.
    pub(crate) fn end_turn(&mut self) {
        self.taken = 0;
    }

    /// The first client in line, if there is room for its request.
    pub(crate) fn next(&mut self) -> Option<ClientRef> {
        let (client, bytes) = self.waiting.front().copied()?;
        if !self.has_room(bytes) {
            return None;
        }
        self.taken += bytes;
        self.waiting.pop_front();
        Some(client)
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }
}

/// Approximate bytes to parse in a request: those of its text, or those that a compressed body
/// claims to hold. The values of an EXECUTE are only passed on.
pub(crate) fn cost(compression: Option<Algorithm>, header: &Header, body: &[u8]) -> usize {
    let is_compressed = header.version < 5 && header.flags & flag::COMPRESSION != 0;
    match compression {
        Some(algorithm) if is_compressed => match compression::claimed_bytes(algorithm, body) {
            // A larger claim is refused without being read.
            claimed if claimed > limits::REQUEST_BYTES_MAX as usize => body.len(),
            claimed => claimed.max(body.len()),
        },
        _ if header.opcode == opcode::EXECUTE => 0,
        _ => body.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = limits::HEAVY_TURN_BYTES_MAX;

    fn client(slot: u32) -> ClientRef {
        ClientRef { slot, id: 1 }
    }

    #[test]
    fn a_turn_reads_so_much_and_the_rest_waits_in_line() {
        let mut heavy = Heavy::default();
        assert!(heavy.admits(MAX / 2) && heavy.admits(MAX / 2) && !heavy.admits(1));
        heavy.wait(client(1), MAX);
        heavy.wait(client(2), 1);
        assert_eq!(heavy.next(), None);
        heavy.end_turn();
        assert!(!heavy.admits(1), "others wait already");
        assert_eq!((heavy.next(), heavy.next()), (Some(client(1)), None));
        heavy.end_turn();
        assert_eq!((heavy.next(), heavy.is_waited_for()), (Some(client(2)), false));
        assert!(heavy.admits(1));
    }

    #[test]
    fn a_request_larger_than_a_turn_is_read_alone() {
        let mut heavy = Heavy::default();
        assert!(heavy.admits(16 * MAX) && !heavy.admits(1));
        heavy.end_turn();
        assert!(heavy.admits(1) && !heavy.admits(16 * MAX));
    }
}
