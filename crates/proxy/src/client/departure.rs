//! The clients that a draining core has yet to close, and how many of them should be gone by now.
//! [`crate::drain`] closes them.

use std::collections::VecDeque;

use crate::ids::ClientRef;

/// The departure of clients in progress.
pub(crate) struct Departure {
    start_ns: u64,
    /// Time in which all of them are to be closed, nanoseconds.
    period_ns: u64,
    /// Number of clients at the start.
    all: usize,
    /// Those that are left, the next one at the front.
    left: VecDeque<ClientRef>,
}

impl Departure {
    pub(crate) fn new(clients: VecDeque<ClientRef>, start_ns: u64, period_ns: u64) -> Departure {
        Departure { start_ns, period_ns, all: clients.len(), left: clients }
    }

    /// True if another client should have left by now.
    pub(crate) fn is_behind(&self, now_ns: u64) -> bool {
        let elapsed_ns = now_ns.saturating_sub(self.start_ns).min(self.period_ns);
        let due = match self.period_ns {
            0 => self.all,
            period_ns => {
                (self.all as u128 * u128::from(elapsed_ns) / u128::from(period_ns)) as usize
            }
        };
        self.all - self.left.len() < due
    }

    /// Number of clients that are left.
    pub(crate) fn len(&self) -> usize {
        self.left.len()
    }

    /// Takes the next client.
    pub(crate) fn next(&mut self) -> Option<ClientRef> {
        self.left.pop_front()
    }

    /// Puts a client back that is busy; its next turn comes after all others.
    pub(crate) fn defer(&mut self, client: ClientRef) {
        self.left.push_back(client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(period_ns: u64, now_ns: u64) -> usize {
        let clients = (0..10).map(|slot| ClientRef { slot, id: 1 }).collect();
        let mut departure = Departure::new(clients, 1_000, period_ns);
        while departure.is_behind(now_ns) {
            assert!(departure.next().is_some());
        }
        10 - departure.len()
    }

    #[test]
    fn clients_leave_evenly() {
        let times = [0, 1_000, 1_099, 1_100, 1_500, 1_999, 2_000, 9_000];
        assert_eq!(times.map(|now_ns| gone(1_000, now_ns)), [0, 0, 0, 1, 5, 9, 10, 10]);
        assert_eq!(gone(0, 1_000), 10, "at once");
    }

    #[test]
    fn a_busy_client_has_its_turn_after_the_others() {
        let mut departure =
            Departure::new([1, 2].map(|slot| ClientRef { slot, id: 1 }).into(), 0, 10);
        let busy = departure.next().unwrap();
        departure.defer(busy);
        assert_eq!([departure.next(), departure.next()].map(|next| next.unwrap().slot), [2, 1]);
    }
}
