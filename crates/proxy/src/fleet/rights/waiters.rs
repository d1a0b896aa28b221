//! Requests that wait until it is known if their roles may make them.

use std::collections::BTreeMap;

use super::right::Right;
use crate::fleet::role_shares::RoleShares;
use crate::transactions::part::Who;

/// Requests of a core that may wait. One role gets half of them.
const WAITING_MAX: usize = 4_096;

/// A request that waits for the verdict on a right.
pub(crate) struct Waiter<T> {
    /// The role that it counts to.
    pub(crate) who: Who,
    pub(crate) right: Right,
    pub(crate) bytes: usize,
    pub(crate) request: T,
}

/// Requests that wait, in the order in which they came. `BYTES_MAX`: bytes of their messages; one
/// role gets half of them.
pub(crate) struct Waiting<T, const BYTES_MAX: usize> {
    /// The requests by their numbers.
    all: BTreeMap<u64, Waiter<T>>,
    /// Number of the next request.
    next: u64,
    shares: RoleShares,
}

impl<T, const BYTES_MAX: usize> Default for Waiting<T, BYTES_MAX> {
    fn default() -> Self {
        let shares = RoleShares::new(WAITING_MAX, BYTES_MAX);
        Self { all: BTreeMap::new(), next: 0, shares }
    }
}

impl<T, const BYTES_MAX: usize> Waiting<T, BYTES_MAX> {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// True if one more request of this role, with this many bytes, may wait.
    pub(crate) fn has_room(&self, who: Who, bytes: usize) -> bool {
        self.shares.has_room(who, bytes)
    }

    /// The requests, in the order in which they came.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiter<T>> {
        self.all.values()
    }

    /// Adds a request; returns its number.
    pub(crate) fn push(&mut self, waiter: Waiter<T>) -> u64 {
        self.shares.take(waiter.who, waiter.bytes);
        self.next += 1;
        self.all.insert(self.next, waiter);
        self.next
    }

    /// Takes out the request with this number.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Waiter<T>> {
        let waiter = self.all.remove(&number)?;
        self.shares.give_back(waiter.who, waiter.bytes);
        Some(waiter)
    }

    /// Takes out all requests that fit.
    pub(crate) fn remove_where(
        &mut self,
        mut fits: impl FnMut(&Waiter<T>) -> bool,
    ) -> Vec<Waiter<T>> {
        let fitting = self.all.iter().filter(|(_, waiter)| fits(waiter));
        let numbers: Vec<u64> = fitting.map(|(number, _)| *number).collect();
        numbers.into_iter().filter_map(|number| self.remove(number)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::right::Action;
    use super::*;
    use crate::client::account::LoginId;

    const BYTES_MAX: usize = 8 << 20;

    fn waiter(who: u64, bytes: usize, number: u64) -> Waiter<u64> {
        let right = Right { login: LoginId::default(), action: Action::Read("ks.t".into()) };
        Waiter { who: Who(who), right, bytes, request: number }
    }

    #[test]
    fn one_role_leaves_room_for_the_others_and_its_share_comes_back() {
        let mut waiting = Waiting::<u64, BYTES_MAX>::default();
        while waiting.has_room(Who(1), 10) {
            waiting.push(waiter(1, 10, 7));
        }
        assert_eq!(waiting.all.len(), WAITING_MAX / 2);
        let half = BYTES_MAX / 2;
        assert!(waiting.has_room(Who(2), half) && !waiting.has_room(Who(2), half + 1));
        waiting.push(waiter(2, half, 8));
        assert!(waiting.has_room(Who(3), 10) && !waiting.has_room(Who(2), 1));
        for (number, count) in [(7, WAITING_MAX / 2), (8, 1)] {
            let removed = |waiting: &mut Waiting<u64, BYTES_MAX>| {
                waiting.remove_where(|waiter| waiter.request == number).len()
            };
            assert_eq!((removed(&mut waiting), removed(&mut waiting)), (count, 0));
        }
        assert!(waiting.has_room(Who(1), half) && waiting.is_empty());
    }

    #[test]
    fn a_request_is_found_by_its_number_and_the_others_keep_their_order() {
        let mut waiting = Waiting::<u64, BYTES_MAX>::default();
        let numbers: Vec<u64> = (0..4).map(|number| waiting.push(waiter(1, 10, number))).collect();
        let request = |waiter: Option<Waiter<u64>>| waiter.map(|waiter| waiter.request);
        assert_eq!(request(waiting.remove(numbers[1])), Some(1));
        assert_eq!(request(waiting.remove(numbers[1])), None);
        assert_eq!(waiting.iter().map(|waiter| waiter.request).collect::<Vec<_>>(), [0, 2, 3]);
    }
}
