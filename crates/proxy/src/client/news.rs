//! Pending events about changes of the fleet: a round through the clients, and the events between
//! two lists.
//!
//! It does not depend on the core, so that the owner of the clients can keep it
//! ([`crate::client::announce`] sends the events).

use std::sync::Arc;

use shunt_wire::cql::message::{Event, encode};

use crate::fleet::roster::{self, Change, Fleet};

/// A round through the clients' slots, if one is in progress.
#[derive(Default)]
pub(crate) struct Announcing {
    /// Next slot.
    next: usize,
    /// Slots to go.
    pub(super) left: usize,
    /// Number of slots when the last change came. Clients in later slots came since, and know of
    /// it.
    slots: usize,
    /// The last difference sent: most clients need the same one.
    pub(super) last: Option<Difference>,
}

impl Announcing {
    /// Begins a round through all slots at the position of the present or last one. `false`: a
    /// round is in progress.
    pub(super) fn begin(&mut self, slots: usize) -> bool {
        let idle = self.left == 0;
        self.slots = slots.max(self.slots);
        self.left = self.slots;
        idle
    }

    /// The next slot of the round.
    pub(super) fn next(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let slot = self.next % self.slots;
        self.next = slot + 1;
        u32::try_from(slot).ok()
    }
}

/// The events between two fleets.
pub(super) struct Difference {
    before: Option<Arc<Fleet>>,
    now: Arc<Fleet>,
    /// Bodies of events, in order.
    pub(super) events: Vec<(Kind, Vec<u8>)>,
}

/// The kinds of events about hosts that clients register for.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Topology,
    Status,
}

impl Difference {
    pub(super) fn new(before: Option<Arc<Fleet>>, now: Arc<Fleet>) -> Self {
        let mut events = Vec::new();
        for change in roster::changes(before.as_deref(), &now) {
            let (address, told) = match change {
                Change::Joined(address) => {
                    (address, [(Kind::Topology, "NEW_NODE"), (Kind::Status, "UP")])
                }
                Change::Restarted(address) => {
                    (address, [(Kind::Status, "DOWN"), (Kind::Status, "UP")])
                }
                Change::Left(address) => {
                    (address, [(Kind::Status, "DOWN"), (Kind::Topology, "REMOVED_NODE")])
                }
            };
            for (kind, change) in told {
                let mut body = Vec::new();
                let event = match kind {
                    Kind::Topology => Event::TopologyChange { change, address },
                    Kind::Status => Event::StatusChange { change, address },
                };
                encode::event(&mut body, &event);
                events.push((kind, body));
            }
        }
        Self { before, now, events }
    }

    pub(super) fn is_between(&self, before: Option<&Arc<Fleet>>, now: &Arc<Fleet>) -> bool {
        is_same(self.before.as_ref(), before) && Arc::ptr_eq(&self.now, now)
    }
}

/// True if both are the same list.
pub(super) fn is_same(one: Option<&Arc<Fleet>>, other: Option<&Arc<Fleet>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slots that a round still visits.
    fn rest(announcing: &mut Announcing) -> Vec<u32> {
        std::iter::from_fn(|| announcing.next()).collect()
    }

    #[test]
    fn a_round_visits_every_slot_once() {
        let mut announcing = Announcing::default();
        assert!(announcing.begin(0) && rest(&mut announcing).is_empty());
        assert!(announcing.begin(4));
        assert_eq!(rest(&mut announcing), [0, 1, 2, 3]);
        assert!(announcing.begin(4), "the last one has ended");
        assert_eq!(rest(&mut announcing), [0, 1, 2, 3]);
    }

    #[test]
    fn a_change_in_the_middle_of_a_round_still_reaches_every_slot() {
        for (taken, slots) in [(1, 5), (3, 5), (5, 5), (2, 8), (4, 8), (5, 8)] {
            let mut announcing = Announcing::default();
            announcing.begin(5);
            let before: Vec<u32> = (0..taken).filter_map(|_| announcing.next()).collect();
            assert_eq!(announcing.begin(slots), taken == 5, "{before:?}");
            let mut visited = rest(&mut announcing);
            assert_eq!(visited.len(), slots);
            visited.sort_unstable();
            visited.dedup();
            assert_eq!(visited.len(), slots, "after {taken} of 5, with {slots}");
        }
    }
}
