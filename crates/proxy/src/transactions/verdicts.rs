//! What nodes have said of the rights of logins, what they are being asked, and who waits for what
//! they will say.

use std::collections::HashMap;
use std::sync::Arc;

use shunt_locks::Ticket;

use crate::fleet::peers::Login;
use crate::ids::PoolId;
use crate::transactions::part::Who;
use shunt_transactions::request::Known;

/// Verdicts that are kept; beyond that all are forgotten.
const VERDICTS_MAX: usize = 16_384;
/// Requests that wait for one, and bytes of them. One role gets half of either.
const WAITING_MAX: usize = 4_096;
const WAITING_BYTES_MAX: usize = 16 << 20;

/// How old a question may be for others to wait for its answer too, nanoseconds: a node that does
/// not answer holds up those of one moment.
const JOINED_NS: u64 = 100_000_000;

/// A right: of a login, on a table, to write if it says so.
pub(super) type Right = (Login, Box<str>, bool);

/// What nodes said, and who waits for what they will say.
#[derive(Default)]
pub(super) struct Allowed {
    /// Until when it counts for requests that come.
    verdicts: HashMap<Right, u64>,
    /// What is being asked, by its number; and the last question about each right.
    asked: HashMap<u64, Inquiry>,
    of_right: HashMap<Right, u64>,
    /// How many wait, and bytes of them.
    waiting: usize,
    bytes: usize,
    /// The same of each role.
    of: HashMap<Who, (usize, usize)>,
    number: u64,
}

/// A question to a node.
pub(super) struct Inquiry {
    pub(super) right: Right,
    pub(super) asked_ns: u64,
    pub(super) waiting: Vec<Waiting>,
}

/// A request that waits.
pub(super) struct Waiting {
    pub(super) who: Who,
    /// Its client's.
    pub(super) pool: PoolId,
    /// Whose it is, and whether another proxy has forwarded it.
    pub(super) ticket: (Ticket, bool),
    pub(super) known: Arc<Known>,
    /// It names a lock; of `shunt.fast_locks`, if it says so.
    pub(super) guard: Option<bool>,
    pub(super) message: Vec<u8>,
    pub(super) came_ns: u64,
}

impl Allowed {
    /// True if it is known that a request which came then may do this.
    pub(super) fn is_known(&self, right: &Right, came_ns: u64) -> bool {
        self.verdicts.get(right).is_some_and(|until_ns| came_ns <= *until_ns)
    }

    /// Whoever comes until then may do this. Answers may overtake one another.
    pub(super) fn allow(&mut self, right: Right, until_ns: u64) {
        if self.verdicts.len() >= VERDICTS_MAX {
            self.verdicts.clear();
        }
        let known_ns = self.verdicts.entry(right).or_default();
        *known_ns = until_ns.max(*known_ns);
    }

    /// The number of a question about this for whose answer a request that came then may wait.
    pub(super) fn inquiry(&self, right: &Right, came_ns: u64) -> Option<u64> {
        let number = self.of_right.get(right)?;
        let inquiry = self.asked.get(number)?;
        (came_ns <= inquiry.asked_ns.saturating_add(JOINED_NS)).then_some(*number)
    }

    /// A number for another question.
    pub(super) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// A node is being asked about this.
    pub(super) fn asks(&mut self, number: u64, right: Right, asked_ns: u64) {
        self.of_right.insert(right.clone(), number);
        self.asked.insert(number, Inquiry { right, asked_ns, waiting: Vec::new() });
    }

    /// True if one more request of this role, with so many bytes, may wait.
    pub(super) fn has_room(&self, who: Who, bytes: usize) -> bool {
        let (count, of_role) = self.of.get(&who).copied().unwrap_or_default();
        self.waiting < WAITING_MAX
            && self.bytes + bytes <= WAITING_BYTES_MAX
            && count < WAITING_MAX / 2
            && of_role + bytes <= WAITING_BYTES_MAX / 2
    }

    /// A request waits for the answer to this question.
    pub(super) fn wait(&mut self, number: u64, one: Waiting) {
        let Some(inquiry) = self.asked.get_mut(&number) else { return };
        let bytes = one.message.len();
        let of_role = self.of.entry(one.who).or_default();
        *of_role = (of_role.0 + 1, of_role.1 + bytes);
        self.waiting += 1;
        self.bytes += bytes;
        inquiry.waiting.push(one);
    }

    /// A question is answered: nobody waits for it any more.
    pub(super) fn answered(&mut self, number: u64) -> Option<Inquiry> {
        let inquiry = self.asked.remove(&number)?;
        if self.of_right.get(&inquiry.right) == Some(&number) {
            self.of_right.remove(&inquiry.right);
        }
        self.left(&inquiry.waiting);
        Some(inquiry)
    }

    /// Those who wait for the answers to other questions about this.
    pub(super) fn others(&mut self, right: &Right) -> Vec<Waiting> {
        let of_right = self.asked.values_mut().filter(|inquiry| inquiry.right == *right);
        let others: Vec<Waiting> = of_right.flat_map(|inquiry| inquiry.waiting.drain(..)).collect();
        self.left(&others);
        others
    }

    /// These do not wait any more.
    fn left(&mut self, waiting: &[Waiting]) {
        for one in waiting {
            let bytes = one.message.len();
            self.waiting -= 1;
            self.bytes -= bytes;
            if let Some(of_role) = self.of.get_mut(&one.who) {
                *of_role = (of_role.0 - 1, of_role.1 - bytes);
                if of_role.0 == 0 {
                    self.of.remove(&one.who);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(who: u64, bytes: usize) -> Waiting {
        let known = Known::read(
            "BEGIN TRANSACTION INSERT INTO ks.t (k) VALUES (1); COMMIT TRANSACTION",
            None,
        );
        Waiting {
            who: Who(who),
            pool: PoolId::NONE,
            ticket: (Ticket(1), false),
            known: Arc::new(known.expect("a transaction")),
            guard: None,
            message: vec![0; bytes],
            came_ns: 1,
        }
    }

    /// The number of a question about this table that is asked from now on.
    fn ask(allowed: &mut Allowed, table: &str, asked_ns: u64) -> u64 {
        let number = allowed.next_number();
        allowed.asks(number, right(table), asked_ns);
        number
    }

    fn right(table: &str) -> Right {
        (None, table.into(), true)
    }

    #[test]
    fn requests_of_one_role_that_wait_leave_others_room_and_their_share_comes_back() {
        let mut allowed = Allowed::default();
        let [first, second] = ["t", "u"].map(|table| ask(&mut allowed, table, 1));
        while allowed.has_room(Who(1), 10) {
            allowed.wait(first, one(1, 10));
        }
        assert_eq!(allowed.waiting, WAITING_MAX / 2);
        let half = WAITING_BYTES_MAX / 2;
        assert!(allowed.has_room(Who(2), half) && !allowed.has_room(Who(2), half + 1));
        allowed.wait(second, one(2, half));
        assert!(allowed.has_room(Who(3), 10) && !allowed.has_room(Who(2), 1));
        for (number, count) in [(first, WAITING_MAX / 2), (second, 1)] {
            assert_eq!(allowed.answered(number).map(|inquiry| inquiry.waiting.len()), Some(count));
            assert!(allowed.answered(number).is_none());
        }
        assert!(
            allowed.of.is_empty()
                && (allowed.waiting, allowed.bytes, allowed.of_right.len()) == (0, 0, 0)
        );
    }

    #[test]
    fn a_question_that_nobody_answers_is_asked_again_and_the_next_answer_is_for_all() {
        let mut allowed = Allowed::default();
        let first = ask(&mut allowed, "t", 1);
        assert_eq!(
            (allowed.inquiry(&right("t"), 1 + JOINED_NS), allowed.inquiry(&right("u"), 1)),
            (Some(first), None)
        );
        allowed.wait(first, one(1, 10));
        assert_eq!(allowed.inquiry(&right("t"), 2 + JOINED_NS), None);
        let second = ask(&mut allowed, "t", 2 + JOINED_NS);
        assert_eq!(allowed.inquiry(&right("t"), 2 + JOINED_NS), Some(second));
        allowed.wait(second, one(1, 10));
        assert_eq!(allowed.answered(second).map(|inquiry| inquiry.waiting.len()), Some(1));
        assert_eq!((allowed.others(&right("u")).len(), allowed.others(&right("t")).len()), (0, 1));
        assert_eq!((allowed.waiting, allowed.bytes, allowed.of.len()), (0, 0, 0));
        assert_eq!(allowed.answered(first).map(|inquiry| inquiry.waiting.len()), Some(0));
        assert!(allowed.of_right.is_empty() && allowed.asked.is_empty());
        // The answer to the older of two may come last.
        allowed.allow(right("t"), 7);
        allowed.allow(right("t"), 5);
        assert!(allowed.is_known(&right("t"), 7) && !allowed.is_known(&right("t"), 8));
    }
}
