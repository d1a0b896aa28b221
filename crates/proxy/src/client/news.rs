//! Pending events: a round through the clients, the events between two lists of the fleet, and
//! changes of the schema.
//!
//! The module does not depend on the core, so that the owner of the clients can keep its state.
//! [`crate::client::announce`] and [`crate::client::events`] send the events.

use std::collections::VecDeque;
use std::sync::Arc;

use shunt_wire::cql::message::{Event, SchemaChange, encode};

use crate::fleet::roster::{self, Change, Fleet};
use crate::limits;

/// A round through the clients' slots, if one is in progress.
#[derive(Default)]
pub(super) struct Round {
    /// Next slot.
    next: usize,
    /// Slots to go.
    pub(super) left: usize,
    /// Number of slots when the last change came. Clients in later slots came since, and know of
    /// it.
    slots: usize,
}

impl Round {
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

/// The round of events about changes of the fleet.
#[derive(Default)]
pub(crate) struct Announcing {
    pub(super) round: Round,
    /// The last difference sent: most clients need the same one.
    pub(super) last: Option<Difference>,
}

/// A change of the schema as clients hear of it.
pub(super) struct SchemaEvent {
    body: Arc<[u8]>,
    /// Version 3 knows neither functions nor aggregates: nodes report a change of the keyspace.
    for_v3: Option<Vec<u8>>,
}

impl SchemaEvent {
    fn new(body: Arc<[u8]>) -> Self {
        let for_v3 = match Event::decode(&body) {
            Ok(Event::SchemaChange(found)) if found.arguments.is_some() => {
                let of_keyspace = SchemaChange {
                    change: "UPDATED",
                    target: "KEYSPACE",
                    name: None,
                    arguments: None,
                    ..found
                };
                let mut for_v3 = Vec::new();
                encode::event(&mut for_v3, &Event::SchemaChange(of_keyspace));
                Some(for_v3)
            }
            _ => None,
        };
        Self { body, for_v3 }
    }

    /// The body of the event in this protocol version.
    pub(super) fn body(&self, version: u8) -> &[u8] {
        self.for_v3.as_deref().filter(|_| version < 4).unwrap_or(&self.body)
    }
}

/// Changes of the schema that clients have not all heard of yet, oldest first. Each has a round of
/// its own, so that every client hears of them in order.
#[derive(Default)]
pub(crate) struct SchemaNews {
    waiting: VecDeque<SchemaEvent>,
    round: Round,
}

impl SchemaNews {
    /// Adds a change. Beyond the bound, the oldest that no client has heard of makes room. `false`:
    /// a round is in progress.
    pub(super) fn add(&mut self, body: Arc<[u8]>) -> bool {
        if self.waiting.len() >= limits::SCHEMA_EVENTS_MAX {
            self.waiting.remove(1);
        }
        self.waiting.push_back(SchemaEvent::new(body));
        self.waiting.len() == 1
    }

    /// Begins the round of the oldest change, if none is in progress.
    pub(super) fn begin(&mut self, slots: usize) {
        if self.round.left == 0 && !self.waiting.is_empty() {
            self.round.begin(slots);
        }
    }

    /// The next slot, and the change that it hears of.
    pub(super) fn next(&mut self) -> Option<(u32, &SchemaEvent)> {
        let slot = self.round.next()?;
        Some((slot, self.waiting.front()?))
    }

    /// Removes the oldest change, if its round has ended. Returns the pause before the next step,
    /// unless that was the last.
    pub(super) fn end_round(&mut self) -> Option<u64> {
        if self.round.left > 0 {
            return Some(limits::ANNOUNCE_PAUSE_NS);
        }
        self.waiting.pop_front();
        (!self.waiting.is_empty()).then_some(limits::SCHEMA_EVENT_PAUSE_NS)
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
        std::iter::from_fn(|| announcing.round.next()).collect()
    }

    #[test]
    fn a_round_visits_every_slot_once() {
        let mut announcing = Announcing::default();
        assert!(announcing.round.begin(0) && rest(&mut announcing).is_empty());
        assert!(announcing.round.begin(4));
        assert_eq!(rest(&mut announcing), [0, 1, 2, 3]);
        assert!(announcing.round.begin(4), "the last one has ended");
        assert_eq!(rest(&mut announcing), [0, 1, 2, 3]);
    }

    #[test]
    fn a_change_in_the_middle_of_a_round_still_reaches_every_slot() {
        for (taken, slots) in [(1, 5), (3, 5), (5, 5), (2, 8), (4, 8), (5, 8)] {
            let mut announcing = Announcing::default();
            announcing.round.begin(5);
            let before: Vec<u32> = (0..taken).filter_map(|_| announcing.round.next()).collect();
            assert_eq!(announcing.round.begin(slots), taken == 5, "{before:?}");
            let mut visited = rest(&mut announcing);
            assert_eq!(visited.len(), slots);
            visited.sort_unstable();
            visited.dedup();
            assert_eq!(visited.len(), slots, "after {taken} of 5, with {slots}");
        }
    }

    #[test]
    fn changes_of_the_schema_have_a_round_each_and_a_bound() {
        let event = |number: usize| Arc::from(number.to_be_bytes().as_slice());
        let mut news = SchemaNews::default();
        assert!(news.add(event(0)));
        news.begin(2);
        assert_eq!(news.next().map(|(slot, _)| slot), Some(0));
        for number in 1..2 * limits::SCHEMA_EVENTS_MAX {
            assert!(!news.add(event(number)));
        }
        let mut heard = Vec::new();
        loop {
            news.begin(2);
            while let Some((slot, change)) = news.next() {
                heard.push((slot, change.body(5).to_vec()));
            }
            if news.end_round().is_none() {
                break;
            }
        }
        assert_eq!(heard.remove(0), (1, 0_usize.to_be_bytes().to_vec()));
        let first = limits::SCHEMA_EVENTS_MAX + 1;
        let expected: Vec<_> = (first..2 * limits::SCHEMA_EVENTS_MAX)
            .flat_map(|number| [0, 1].map(|slot| (slot, number.to_be_bytes().to_vec())))
            .collect();
        heard.sort_by(|one, other| (&one.1, one.0).cmp(&(&other.1, other.0)));
        assert_eq!(heard, expected);
    }
}
