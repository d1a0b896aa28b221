//! Timers of one loop: a binary heap by time, first set first for equal times. Timers cannot be
//! cancelled: the receiver of one checks whether it still means something.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::service::ConnId;

/// The purpose of a due timer.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Due {
    /// A timer of the service, with its key.
    Service(u64),
    /// A connection's connect or linger deadline.
    Connection(ConnId),
}

#[derive(Eq, PartialEq)]
struct Entry {
    at_ns: u64,
    order: u64,
    due: Due,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.order).cmp(&(other.at_ns, other.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The heap.
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<Entry>>,
    order: u64,
}

impl Timers {
    pub(crate) fn set(&mut self, at_ns: u64, due: Due) {
        self.order += 1;
        self.heap.push(Reverse(Entry { at_ns, order: self.order, due }));
    }

    /// Time of the next timer.
    #[inline]
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.0.at_ns)
    }

    /// Takes the next timer if it is due.
    #[inline]
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<Due> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.heap.pop().map(|entry| entry.0.due)
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_order_of_time_and_then_of_setting() {
        let mut timers = Timers::default();
        for (at, key) in [(30, 1), (10, 2), (20, 3), (10, 4), (40, 5)] {
            timers.set(at, Due::Service(key));
        }
        assert_eq!(timers.next_ns(), Some(10));
        let due: Vec<_> = std::iter::from_fn(|| timers.pop_due(30)).collect();
        assert_eq!(due, [2, 4, 3, 1].map(Due::Service));
        assert_eq!(timers.len(), 1);
    }
}
