//! Requests that are sent again because their shard has just changed hands.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use shunt_locks::Ticket;

use crate::limits::SECOND_NS;

/// Time after its receipt for which a request is sent again, nanoseconds.
const RETRY_FOR_NS: u64 = SECOND_NS;
/// Pause before a request is sent again.
const PAUSE_NS: u64 = 20_000_000;

/// Requests on locks that wait to be sent again. Their buffers are small, and limited by number.
pub(crate) type LockRetries = RetryQueue<8_192, { usize::MAX }>;
/// Transactions that wait to be sent again.
pub(crate) type TransactionRetries = RetryQueue<4_096, { 32 << 20 }>;

/// The part of a queue that one client may have: one of so many.
const PARTS: usize = 4;

/// A request that waits to be sent again.
struct Retry<T> {
    due_ns: u64,
    ticket: T,
    bytes: usize,
    /// The client whose part it counts against.
    who: Arc<str>,
}

/// Number and bytes of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    count: usize,
    bytes: usize,
}

impl Usage {
    fn has_room(self, bytes: usize, count_max: usize, bytes_max: usize) -> bool {
        self.count < count_max && self.bytes.saturating_add(bytes) <= bytes_max
    }

    fn add(&mut self, bytes: usize) {
        (self.count, self.bytes) = (self.count + 1, self.bytes + bytes);
    }

    fn subtract(&mut self, bytes: usize) {
        (self.count, self.bytes) = (self.count - 1, self.bytes - bytes);
    }
}

/// Requests that wait to be sent again, in the order of their times. `COUNT_MAX`, `BYTES_MAX`:
/// their number and bytes, of which one client may have a quarter; clients have to repeat any more.
pub(crate) struct RetryQueue<const COUNT_MAX: usize, const BYTES_MAX: usize, T = Ticket> {
    queue: VecDeque<Retry<T>>,
    /// Tickets of the requests in the queue.
    tickets: HashSet<T>,
    all: Usage,
    by_client: HashMap<Arc<str>, Usage>,
}

impl<const COUNT_MAX: usize, const BYTES_MAX: usize, T> Default
    for RetryQueue<COUNT_MAX, BYTES_MAX, T>
{
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            tickets: HashSet::new(),
            all: Usage::default(),
            by_client: HashMap::new(),
        }
    }
}

impl<const COUNT_MAX: usize, const BYTES_MAX: usize, T: Copy + Eq + Hash>
    RetryQueue<COUNT_MAX, BYTES_MAX, T>
{
    /// Schedules a request that was received at this time, unless it waits too long already, or the
    /// queue or the client's part of it is full. Returns when it is due.
    pub(crate) fn schedule(
        &mut self,
        (received_ns, now_ns): (u64, u64),
        who: &Arc<str>,
        ticket: T,
        bytes: usize,
    ) -> Option<u64> {
        let own = self.by_client.get(who).copied().unwrap_or_default();
        if now_ns.saturating_sub(received_ns) >= RETRY_FOR_NS
            || !self.all.has_room(bytes, COUNT_MAX, BYTES_MAX)
            || !own.has_room(bytes, COUNT_MAX / PARTS, BYTES_MAX / PARTS)
        {
            return None;
        }
        let due_ns = now_ns + PAUSE_NS;
        self.all.add(bytes);
        self.by_client.entry(Arc::clone(who)).or_default().add(bytes);
        self.tickets.insert(ticket);
        self.queue.push_back(Retry { due_ns, ticket, bytes, who: Arc::clone(who) });
        Some(due_ns)
    }

    /// True if this request waits in the queue.
    pub(crate) fn contains(&self, ticket: T) -> bool {
        self.tickets.contains(&ticket)
    }

    /// The time of the next request.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.queue.front().map(|retry| retry.due_ns)
    }

    /// Removes the next request, if it is due.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<T> {
        self.queue.front().filter(|retry| retry.due_ns <= now_ns)?;
        let Retry { ticket, bytes, who, .. } = self.queue.pop_front()?;
        self.tickets.remove(&ticket);
        self.all.subtract(bytes);
        if let Some(own) = self.by_client.get_mut(&who) {
            own.subtract(bytes);
            if own.count == 0 {
                self.by_client.remove(&who);
            }
        }
        Some(ticket)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::hash::Hasher;

    use super::*;

    /// A queue of 12 requests and 400 bytes, of which each client may have 3 and 100.
    type Queue = RetryQueue<12, 400>;

    #[test]
    fn requests_come_back_in_order_when_they_are_due() {
        let (mut queue, who) = (Queue::default(), "ann".into());
        assert_eq!(queue.schedule((0, 5), &who, Ticket(1), 10), Some(5 + PAUSE_NS));
        assert_eq!(queue.schedule((0, 6), &who, Ticket(2), 10), Some(6 + PAUSE_NS));
        assert!(queue.contains(Ticket(1)) && !queue.contains(Ticket(3)));
        assert_eq!(queue.pop_due(4 + PAUSE_NS), None);
        assert_eq!(queue.pop_due(5 + PAUSE_NS), Some(Ticket(1)));
        assert!(!queue.contains(Ticket(1)) && queue.contains(Ticket(2)));
        assert_eq!((queue.pop_due(5 + PAUSE_NS), queue.next_due_ns()), (None, Some(6 + PAUSE_NS)));
    }

    #[test]
    fn a_clients_part_is_limited_in_number_bytes_and_time() {
        let (mut queue, who) = (Queue::default(), "ann".into());
        assert_eq!(queue.schedule((0, RETRY_FOR_NS), &who, Ticket(1), 10), None);
        assert_eq!(queue.schedule((0, 0), &who, Ticket(1), 101), None);
        for ticket in 1..=3 {
            assert!(queue.schedule((0, RETRY_FOR_NS - 1), &who, Ticket(ticket), 10).is_some());
        }
        assert_eq!(queue.schedule((0, 0), &who, Ticket(4), 10), None);
        assert!(queue.pop_due(u64::MAX).is_some());
        assert_eq!(queue.schedule((0, 0), &who, Ticket(4), 81), None);
        assert!(queue.schedule((0, 0), &who, Ticket(4), 80).is_some());
        while queue.pop_due(u64::MAX).is_some() {}
        assert_eq!((queue.all, queue.next_due_ns()), (Usage::default(), None));
        assert!(queue.by_client.is_empty() && queue.tickets.is_empty());
    }

    #[test]
    fn one_client_leaves_others_room_and_all_together_are_limited() {
        let mut queue = Queue::default();
        for (number, who) in (0u64..).zip(["ann", "bob", "eve", "mallory", "trent"]) {
            let who = who.into();
            let takes = (0..4).map(|one| Ticket(4 * number + one));
            let taken = takes.filter(|one| queue.schedule((0, 0), &who, *one, 20).is_some());
            assert_eq!(taken.count(), if number < 4 { 3 } else { 0 }, "{who}");
        }
        assert_eq!(queue.all, Usage { count: 12, bytes: 240 });
    }

    thread_local! {
        static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    /// A ticket that counts comparisons.
    #[derive(Clone, Copy)]
    struct Counting(u64);

    impl PartialEq for Counting {
        fn eq(&self, other: &Self) -> bool {
            COMPARED.with(|compared| compared.set(compared.get() + 1));
            self.0 == other.0
        }
    }

    impl Eq for Counting {}

    impl Hash for Counting {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    #[test]
    fn to_find_a_request_costs_few_steps_however_many_wait() {
        const MANY: u64 = 1_000;
        let (mut queue, who) = (RetryQueue::<4_096, 4_096, Counting>::default(), "ann".into());
        (0..MANY).for_each(|one| _ = queue.schedule((0, 0), &who, Counting(one), 1));
        COMPARED.set(0);
        let found = (0..2 * MANY).filter(|one| queue.contains(Counting(*one))).count();
        assert_eq!(found, MANY as usize);
        assert!(COMPARED.get() < 4 * found, "{} comparisons", COMPARED.get());
    }
}
