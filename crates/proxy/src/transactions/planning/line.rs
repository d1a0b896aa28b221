//! Transactions that wait until their texts may be planned.
//!
//! A change of the schema or of a table's mode makes a core forget all plans. A role with many
//! texts then has more to plan at once than its share. Its transactions wait here, and roles take
//! turns.
//!
//! This must never:
//! - let one role's transactions wait behind all of another's;
//! - keep a transaction beyond its deadline.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Transactions in line.
const LINE_MAX: usize = 1_024;
/// One client may have half of the line.
const SHARES: usize = 2;

/// A transaction in line.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    job: u64,
    deadline_ms: u64,
}

/// The line, by client.
#[derive(Default)]
pub(crate) struct PlanningLine {
    clients: HashMap<Arc<str>, VecDeque<Waiting>>,
    /// Clients in the order of their turns.
    turns: VecDeque<Arc<str>>,
    count: usize,
}

impl PlanningLine {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Puts a transaction in line. `false`: the line, or the client's share of it, is full.
    pub(super) fn join(&mut self, who: &Arc<str>, job: u64, deadline_ms: u64) -> bool {
        let own = self.clients.get(who).map_or(0, VecDeque::len);
        if self.count >= LINE_MAX || own >= LINE_MAX / SHARES {
            return false;
        }
        if own == 0 {
            self.turns.push_back(Arc::clone(who));
        }
        let waiting = Waiting { job, deadline_ms };
        self.clients.entry(Arc::clone(who)).or_default().push_back(waiting);
        self.count += 1;
        true
    }

    /// The next transaction of a client for which there is room.
    pub(super) fn first(&self, has_room: impl Fn(&Arc<str>) -> bool) -> Option<u64> {
        let who = self.turns.iter().find(|who| has_room(who))?;
        self.clients.get(who)?.front().map(|waiting| waiting.job)
    }

    /// Takes the transaction out that [`first`](PlanningLine::first) returns.
    pub(super) fn next(&mut self, has_room: impl Fn(&Arc<str>) -> bool) -> Option<u64> {
        let place = self.turns.iter().position(has_room)?;
        let who = self.turns.remove(place)?;
        let own = self.clients.get_mut(&who)?;
        let next = own.pop_front();
        self.count -= usize::from(next.is_some());
        if own.is_empty() {
            self.clients.remove(&who);
        } else {
            self.turns.push_back(who);
        }
        next.map(|waiting| waiting.job)
    }

    /// Takes out the transactions whose deadline has passed. The oldest of a client is the first.
    pub(super) fn take_late(&mut self, now_ms: u64) -> Vec<u64> {
        let mut late = Vec::new();
        for own in self.clients.values_mut() {
            while let Some(first) = own.front().filter(|first| first.deadline_ms <= now_ms) {
                late.push(first.job);
                own.pop_front();
            }
        }
        self.clients.retain(|_, own| !own.is_empty());
        self.turns.retain(|who| self.clients.contains_key(who));
        self.count -= late.len();
        late.sort_unstable();
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line in which transactions of these clients wait, numbered from 0.
    fn line(clients: &[&str]) -> PlanningLine {
        let mut line = PlanningLine::default();
        for (job, who) in (0..).zip(clients) {
            assert!(line.join(&(*who).into(), job, 100 + job));
        }
        line
    }

    #[test]
    fn clients_take_turns_and_those_without_room_are_passed_over() {
        let mut line = line(&["ann", "ann", "ann", "bob", "eve", "bob"]);
        let mut next = |full: &str| line.next(|who| &**who != full);
        assert_eq!([next(""), next(""), next("")], [Some(0), Some(3), Some(4)]);
        assert_eq!([next("ann"), next("ann")], [Some(5), None]);
        assert_eq!([line.first(|_| true), line.first(|_| false)], [Some(1), None]);
        let mut next = |full: &str| line.next(|who| &**who != full);
        assert_eq!([next(""), next(""), next("")], [Some(1), Some(2), None]);
        assert!(line.is_empty() && line.clients.is_empty() && line.turns.is_empty());
    }

    #[test]
    fn one_client_leaves_others_room() {
        let mut line = PlanningLine::default();
        let mut fill = |who: &str| (0..2_000).filter(|job| line.join(&who.into(), *job, 0)).count();
        assert_eq!([fill("ann"), fill("bob"), fill("eve")], [512, 512, 0]);
    }

    #[test]
    fn nothing_waits_beyond_its_deadline() {
        let mut line = line(&["ann", "bob", "ann", "bob"]);
        assert!(line.take_late(99).is_empty());
        assert_eq!(line.take_late(102), [0, 1, 2]);
        assert_eq!(line.next(|_| true), Some(3));
        assert!(line.is_empty() && line.turns.is_empty());
    }
}
