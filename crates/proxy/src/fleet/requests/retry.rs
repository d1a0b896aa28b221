//! Requests that are sent again because their shard has just changed hands.

use std::collections::VecDeque;

use shunt_locks::Ticket;

use crate::limits::SECOND_NS;

/// Time after its receipt for which a request is sent again, nanoseconds.
const RETRY_FOR_NS: u64 = SECOND_NS;
/// Pause before a request is sent again.
const PAUSE_NS: u64 = 20_000_000;

/// Requests on locks that wait to be sent again. Their buffers are small, and limited by number.
pub(crate) type LockRetries = RetryQueue<2_048, { usize::MAX }>;
/// Transactions that wait to be sent again.
pub(crate) type TransactionRetries = RetryQueue<1_024, { 8 << 20 }>;

/// A request that waits to be sent again.
struct Retry {
    due_ns: u64,
    ticket: Ticket,
    bytes: usize,
}

/// Requests that wait to be sent again, in the order of their times. `COUNT_MAX`, `BYTES_MAX`:
/// their number and bytes; clients have to repeat any more.
pub(crate) struct RetryQueue<const COUNT_MAX: usize, const BYTES_MAX: usize> {
    queue: VecDeque<Retry>,
    bytes: usize,
}

impl<const COUNT_MAX: usize, const BYTES_MAX: usize> Default for RetryQueue<COUNT_MAX, BYTES_MAX> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), bytes: 0 }
    }
}

impl<const COUNT_MAX: usize, const BYTES_MAX: usize> RetryQueue<COUNT_MAX, BYTES_MAX> {
    /// Schedules a request that was received at this time, unless it waits too long already or the
    /// queue is full. Returns when it is due.
    pub(crate) fn schedule(
        &mut self,
        (received_ns, now_ns): (u64, u64),
        ticket: Ticket,
        bytes: usize,
    ) -> Option<u64> {
        if now_ns.saturating_sub(received_ns) >= RETRY_FOR_NS
            || self.queue.len() >= COUNT_MAX
            || self.bytes + bytes > BYTES_MAX
        {
            return None;
        }
        let due_ns = now_ns + PAUSE_NS;
        self.bytes += bytes;
        self.queue.push_back(Retry { due_ns, ticket, bytes });
        Some(due_ns)
    }

    /// True if this request waits in the queue.
    pub(crate) fn contains(&self, ticket: Ticket) -> bool {
        self.queue.iter().any(|retry| retry.ticket == ticket)
    }

    /// The time of the next request.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.queue.front().map(|retry| retry.due_ns)
    }

    /// Removes the next request, if it is due.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<Ticket> {
        self.queue.front().filter(|retry| retry.due_ns <= now_ns)?;
        let retry = self.queue.pop_front()?;
        self.bytes -= retry.bytes;
        Some(retry.ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_in_order_when_they_are_due() {
        let mut queue = RetryQueue::<3, 100>::default();
        assert_eq!(queue.schedule((0, 5), Ticket(1), 10), Some(5 + PAUSE_NS));
        assert_eq!(queue.schedule((0, 6), Ticket(2), 10), Some(6 + PAUSE_NS));
        assert!(queue.contains(Ticket(1)) && !queue.contains(Ticket(3)));
        assert_eq!(queue.pop_due(4 + PAUSE_NS), None);
        assert_eq!(queue.pop_due(5 + PAUSE_NS), Some(Ticket(1)));
        assert_eq!((queue.pop_due(5 + PAUSE_NS), queue.next_due_ns()), (None, Some(6 + PAUSE_NS)));
    }

    #[test]
    fn a_queue_is_limited_in_number_bytes_and_time() {
        let mut queue = RetryQueue::<3, 100>::default();
        assert_eq!(queue.schedule((0, RETRY_FOR_NS), Ticket(1), 10), None);
        assert_eq!(queue.schedule((0, 0), Ticket(1), 101), None);
        for ticket in 1..=3 {
            assert!(queue.schedule((0, RETRY_FOR_NS - 1), Ticket(ticket), 10).is_some());
        }
        assert_eq!(queue.schedule((0, 0), Ticket(4), 10), None);
        assert!(queue.pop_due(u64::MAX).is_some());
        assert_eq!(queue.schedule((0, 0), Ticket(4), 81), None);
        assert!(queue.schedule((0, 0), Ticket(4), 80).is_some());
        while queue.pop_due(u64::MAX).is_some() {}
        assert_eq!((queue.bytes, queue.next_due_ns()), (0, None));
    }
}
