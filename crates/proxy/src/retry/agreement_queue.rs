//! Answers to schema changes that wait for agreement, with bounds on their memory and a share for
//! each role.

use std::collections::{BTreeMap, HashMap};

use crate::client::account::Account;
use crate::ids::Ticket;
use crate::limits;
use crate::link::Pending;
use crate::retry::AwaitingAgreement;

/// The waiting answers of a core. A node may add megabytes of warnings to each answer, and a role
/// may change the schema without end. Neither can fill the memory or take all places.
#[derive(Default)]
pub(crate) struct AgreementQueue {
    by_ticket: BTreeMap<Ticket, AwaitingAgreement>,
    bytes: usize,
    shares: HashMap<Account, Share>,
}

/// The waiting answers of one role.
#[derive(Clone, Copy, Default)]
struct Share {
    answers: usize,
    bytes: usize,
}

impl AgreementQueue {
    /// True if an answer of this role, with a body of this many bytes, may wait. A role has half of
    /// all places and bytes.
    pub(crate) fn has_room(&self, account: Account, body_bytes: usize) -> bool {
        let bytes = size_of::<AwaitingAgreement>() + body_bytes;
        let share = self.shares.get(&account).copied().unwrap_or_default();
        self.by_ticket.len() < limits::REPAIRS_MAX
            && self.bytes + bytes <= limits::REPAIRS_BYTES_MAX
            && share.answers < limits::REPAIRS_MAX / 2
            && share.bytes + bytes <= limits::REPAIRS_BYTES_MAX / 2
    }

    /// Adds an answer, for which there is room.
    pub(crate) fn insert(&mut self, ticket: Ticket, answer: AwaitingAgreement) {
        self.remove(ticket);
        let bytes = answer.bytes();
        let share = self.shares.entry(answer.account).or_default();
        *share = Share { answers: share.answers + 1, bytes: share.bytes + bytes };
        self.bytes += bytes;
        self.by_ticket.insert(ticket, answer);
    }

    /// Removes an answer.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<AwaitingAgreement> {
        let answer = self.by_ticket.remove(&ticket)?;
        let bytes = answer.bytes();
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(share) = self.shares.get_mut(&answer.account) {
            share.answers = share.answers.saturating_sub(1);
            share.bytes = share.bytes.saturating_sub(bytes);
            if share.answers == 0 {
                self.shares.remove(&answer.account);
            }
        }
        Some(answer)
    }

    /// The requests of the answers that wait.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &Pending> {
        self.by_ticket.values().map(|answer| &answer.pending)
    }

    /// Tickets of the answers that have waited long enough.
    pub(crate) fn late(&self, now_ns: u64) -> Vec<Ticket> {
        let late = self.by_ticket.iter().filter(|(_, answer)| now_ns > answer.deadline_ns);
        late.map(|(ticket, _)| *ticket).collect()
    }
}

#[cfg(test)]
mod tests {
    use shunt_wire::cql::envelope::opcode;

    use super::*;
    use crate::link::Purpose;

    fn answer(account: Account, bytes: usize) -> AwaitingAgreement {
        AwaitingAgreement {
            pending: Pending::own(0, Purpose::Client, opcode::QUERY),
            account,
            flags: 0,
            opcode: opcode::RESULT,
            body: vec![0; bytes],
            deadline_ns: 5,
        }
    }

    #[test]
    fn answers_have_a_bound_in_bytes_and_roles_a_share() {
        let [one, other, third] = ["a", "b", "c"].map(Account::of_identity);
        let mut queue = AgreementQueue::default();
        let large = 20 << 20;
        assert!(!queue.has_room(one, 40 << 20), "more than a role's share");
        for (number, account) in [(1, one), (2, other)] {
            assert!(queue.has_room(account, large));
            queue.insert(Ticket(number), answer(account, large));
            assert!(!queue.has_room(account, large));
        }
        assert!(queue.has_room(third, large));
        queue.insert(Ticket(3), answer(third, large));
        assert!(!queue.has_room(Account::of_identity("d"), large), "more than in all");
        assert_eq!((queue.late(5).len(), queue.late(6).len()), (0, 3));
        assert!(queue.remove(Ticket(1)).is_some() && queue.remove(Ticket(1)).is_none());
        assert!(queue.has_room(one, large));

        let mut queue = AgreementQueue::default();
        let mut number = 0;
        while queue.has_room(one, 0) {
            number += 1;
            queue.insert(Ticket(number), answer(one, 0));
        }
        assert_eq!(number as usize, limits::REPAIRS_MAX / 2);
        assert!(queue.has_room(other, 0));
    }
}
