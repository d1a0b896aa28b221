//! Requests of which nobody knows yet if they are allowed.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use shunt_language::facade::Table;
use shunt_wire::cql::envelope::Header;

use crate::ids::ClientRef;

/// Requests of a core that may wait for a node's word, and bytes of their bodies. One role gets
/// half of either.
const WAITING_MAX: usize = 4_096;
const WAITING_BYTES_MAX: usize = 8 << 20;

/// A request of which nobody knows yet if it is allowed.
pub(super) struct Waiting {
    pub(super) client: ClientRef,
    /// Whose login its client has.
    pub(super) role: Arc<str>,
    /// What it waits for a word on.
    pub(super) table: Table,
    pub(super) header: Header,
    pub(super) body: Box<[u8]>,
    pub(super) came_ns: u64,
}

/// All requests of a core that wait for a node's word.
#[derive(Default)]
pub(super) struct Judging {
    pub(super) waiting: VecDeque<Waiting>,
    /// Of their bodies.
    bytes: usize,
    /// How many, and bytes of their bodies, are of each role.
    of: HashMap<Arc<str>, (usize, usize)>,
    /// When they are looked at next.
    pub(super) look_ns: u64,
    /// Of the last question.
    pub(super) number: u64,
}

impl Judging {
    /// True if one more of this role may wait.
    pub(super) fn has_room(&self, role: &str, bytes: usize) -> bool {
        let (count, of_role) = self.of.get(role).copied().unwrap_or_default();
        self.waiting.len() < WAITING_MAX
            && self.bytes + bytes <= WAITING_BYTES_MAX
            && count < WAITING_MAX / 2
            && of_role + bytes <= WAITING_BYTES_MAX / 2
    }

    pub(super) fn put(&mut self, one: Waiting) {
        self.bytes += one.body.len();
        let (count, bytes) = self.of.entry(Arc::clone(&one.role)).or_default();
        (*count, *bytes) = (*count + 1, *bytes + one.body.len());
        self.waiting.push_back(one);
    }

    /// One of them does not wait any more.
    pub(super) fn took(&mut self, one: &Waiting) {
        self.bytes -= one.body.len();
        if let Some((count, bytes)) = self.of.get_mut(&one.role) {
            (*count, *bytes) = (*count - 1, *bytes - one.body.len());
            if *count == 0 {
                self.of.remove(&one.role);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use shunt_wire::cql::envelope::opcode;

    use super::*;

    fn one(role: &str, bytes: usize) -> Waiting {
        let header = Header {
            version: 4,
            response: false,
            flags: 0,
            stream: 1,
            opcode: opcode::QUERY,
            length: 0,
        };
        let client = ClientRef { slot: 1, id: 1 };
        Waiting {
            client,
            role: role.into(),
            table: Table::Locks,
            header,
            body: vec![0; bytes].into(),
            came_ns: 1,
        }
    }

    #[test]
    fn one_role_leaves_room_for_the_others_and_its_share_comes_back() {
        let mut judging = Judging::default();
        while judging.has_room("mallory", 10) {
            judging.put(one("mallory", 10));
        }
        assert_eq!(judging.waiting.len(), WAITING_MAX / 2);
        assert!(
            judging.has_room("ann", WAITING_BYTES_MAX / 2)
                && !judging.has_room("ann", WAITING_BYTES_MAX / 2 + 1)
        );
        judging.put(one("ann", WAITING_BYTES_MAX / 2));
        assert!(judging.has_room("bob", 10));
        while let Some(one) = judging.waiting.pop_front() {
            judging.took(&one);
        }
        assert!(judging.has_room("mallory", 10) && judging.of.is_empty() && judging.bytes == 0);
    }
}
