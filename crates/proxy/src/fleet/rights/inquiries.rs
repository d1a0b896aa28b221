//! Questions about rights that are on their way to nodes.

use std::collections::HashMap;

use super::right::Right;

/// Requests on locks wait this long for the answer to a question, nanoseconds. After that another
/// question is sent.
pub(crate) const WAIT_NS: u64 = 1_500_000_000;

/// Transactions that come this much later than a question share its answer, nanoseconds: a node
/// that does not answer holds up those of one moment.
const SHARED_NS: u64 = 100_000_000;

/// Pauses that a core keeps; beyond that it forgets those that are over.
const PAUSES_MAX: usize = 1_024;

/// Questions on their way.
#[derive(Default)]
pub(super) struct Inquiries {
    /// Right and time of each question, by its number.
    asked: HashMap<u64, (Right, u64)>,
    /// Number of the last question about each right.
    last: HashMap<Right, u64>,
    /// Rights that nodes are not asked about before this time.
    paused: HashMap<Right, u64>,
    number: u64,
}

impl Inquiries {
    /// A number for another question; it is never used again.
    pub(super) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Notes a question that was sent.
    pub(super) fn add(&mut self, number: u64, right: Right, asked_ns: u64) {
        self.last.insert(right.clone(), number);
        self.asked.insert(number, (right, asked_ns));
    }

    /// The right and the time of a question that is over.
    pub(super) fn remove(&mut self, number: u64) -> Option<(Right, u64)> {
        let (right, asked_ns) = self.asked.remove(&number)?;
        if self.last.get(&right) == Some(&number) {
            self.last.remove(&right);
        }
        Some((right, asked_ns))
    }

    fn last(&self, right: &Right) -> Option<(u64, u64)> {
        let number = self.last.get(right)?;
        self.asked.get(number).map(|(_, asked_ns)| (*number, *asked_ns))
    }

    /// True if the answer to a question about this right may come yet.
    pub(super) fn is_pending(&self, right: &Right, now_ns: u64) -> bool {
        self.last(right).is_some_and(|(_, asked_ns)| now_ns.saturating_sub(asked_ns) < WAIT_NS)
    }

    /// The number of a question whose answer a request that came at this time may share.
    pub(super) fn shared(&self, right: &Right, came_ns: u64) -> Option<u64> {
        let (number, asked_ns) = self.last(right)?;
        (came_ns <= asked_ns.saturating_add(SHARED_NS)).then_some(number)
    }

    pub(super) fn pause(&mut self, right: &Right, until_ns: u64, now_ns: u64) {
        if self.paused.len() >= PAUSES_MAX {
            self.paused.retain(|_, until_ns| *until_ns > now_ns);
        }
        self.paused.insert(right.clone(), until_ns);
    }

    pub(super) fn is_paused(&self, right: &Right, now_ns: u64) -> bool {
        self.paused.get(right).is_some_and(|until_ns| now_ns < *until_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::super::right::Action;
    use super::*;
    use crate::client::account::LoginId;

    fn right(table: &str) -> Right {
        Right { login: LoginId::default(), action: Action::Write(table.into()) }
    }

    /// The number of a question about this table that is sent at this time.
    fn ask(inquiries: &mut Inquiries, table: &str, asked_ns: u64) -> u64 {
        let number = inquiries.next_number();
        inquiries.add(number, right(table), asked_ns);
        number
    }

    #[test]
    fn a_node_is_asked_once_until_the_answer_is_late() {
        let mut inquiries = Inquiries::default();
        assert!(!inquiries.is_pending(&right("t"), 1));
        let number = ask(&mut inquiries, "t", 11_001);
        assert!(inquiries.is_pending(&right("t"), 11_002) && !inquiries.is_pending(&right("u"), 1));
        assert!(inquiries.is_pending(&right("t"), 11_000 + WAIT_NS));
        assert!(!inquiries.is_pending(&right("t"), 11_001 + WAIT_NS));
        inquiries.remove(number);
        assert!(!inquiries.is_pending(&right("t"), 11_002));
        inquiries.pause(&right("t"), 30_000, 1);
        assert!(inquiries.is_paused(&right("t"), 29_999));
        assert!(!inquiries.is_paused(&right("t"), 30_000) && !inquiries.is_paused(&right("u"), 1));
    }

    #[test]
    fn pauses_that_are_over_are_forgotten() {
        let mut inquiries = Inquiries::default();
        for number in 0..10 * PAUSES_MAX as u64 {
            inquiries.pause(&right(&number.to_string()), number + 10, number);
        }
        assert!(inquiries.paused.len() <= PAUSES_MAX);
    }

    #[test]
    fn a_question_that_nobody_answers_is_asked_again() {
        let mut inquiries = Inquiries::default();
        let first = ask(&mut inquiries, "t", 1);
        assert_eq!(inquiries.shared(&right("t"), 1 + SHARED_NS), Some(first));
        assert_eq!(inquiries.shared(&right("u"), 1), None);
        assert_eq!(inquiries.shared(&right("t"), 2 + SHARED_NS), None);
        let second = ask(&mut inquiries, "t", 2 + SHARED_NS);
        assert_eq!(inquiries.shared(&right("t"), 2 + SHARED_NS), Some(second));
        assert_eq!(inquiries.remove(second), Some((right("t"), 2 + SHARED_NS)));
        assert_eq!(inquiries.remove(first), Some((right("t"), 1)));
        assert!(inquiries.last.is_empty() && inquiries.asked.is_empty());
    }

    /// An answer to a question of another pool in the same place has another number.
    #[test]
    fn an_answer_counts_for_its_own_question_only() {
        let mut inquiries = Inquiries::default();
        let number = ask(&mut inquiries, "t", 20_000);
        assert_eq!((inquiries.remove(number - 1), inquiries.remove(number + 1)), (None, None));
        assert_eq!(inquiries.remove(number), Some((right("t"), 20_000)));
        assert_eq!(inquiries.remove(number), None);
    }
}
