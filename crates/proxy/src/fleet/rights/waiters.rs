//! Requests that wait until it is known if their roles may make them.

use std::collections::{HashMap, VecDeque};

use super::right::Right;
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
    all: VecDeque<Waiter<T>>,
    bytes: usize,
    /// Number and bytes of each role's requests.
    by_role: HashMap<Who, (usize, usize)>,
}

impl<T, const BYTES_MAX: usize> Default for Waiting<T, BYTES_MAX> {
    fn default() -> Self {
        Self { all: VecDeque::new(), bytes: 0, by_role: HashMap::new() }
    }
}

impl<T, const BYTES_MAX: usize> Waiting<T, BYTES_MAX> {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// True if one more request of this role, with this many bytes, may wait.
    pub(crate) fn has_room(&self, who: Who, bytes: usize) -> bool {
        let (count, of_role) = self.by_role.get(&who).copied().unwrap_or_default();
        self.all.len() < WAITING_MAX
            && self.bytes + bytes <= BYTES_MAX
            && count < WAITING_MAX / 2
            && of_role + bytes <= BYTES_MAX / 2
    }

    /// The requests, in the order in which they came.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiter<T>> {
        self.all.iter()
    }

    pub(crate) fn push(&mut self, waiter: Waiter<T>) {
        self.bytes += waiter.bytes;
        let of_role = self.by_role.entry(waiter.who).or_default();
        *of_role = (of_role.0 + 1, of_role.1 + waiter.bytes);
        self.all.push_back(waiter);
    }

    /// Takes out all requests that fit.
    pub(crate) fn remove_where(
        &mut self,
        mut fits: impl FnMut(&Waiter<T>) -> bool,
    ) -> Vec<Waiter<T>> {
        if !self.all.iter().any(&mut fits) {
            return Vec::new();
        }
        let mut removed = Vec::new();
        for _ in 0..self.all.len() {
            let Some(waiter) = self.all.pop_front() else { break };
            if fits(&waiter) {
                removed.push(waiter);
            } else {
                self.all.push_back(waiter);
            }
        }
        removed.iter().for_each(|waiter| self.release(waiter));
        removed
    }

    /// Gives the room of a request back to its role.
    fn release(&mut self, waiter: &Waiter<T>) {
        self.bytes -= waiter.bytes;
        if let Some(of_role) = self.by_role.get_mut(&waiter.who) {
            *of_role = (of_role.0 - 1, of_role.1 - waiter.bytes);
            if of_role.0 == 0 {
                self.by_role.remove(&waiter.who);
            }
        }
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
        assert!(waiting.has_room(Who(1), 10) && waiting.is_empty());
        assert!(waiting.by_role.is_empty() && waiting.bytes == 0);
    }
}
