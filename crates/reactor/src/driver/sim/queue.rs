//! The future events, in the order of virtual time; equal times in order of insertion.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A packet that reaches one end of a wire.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) enum Packet {
    /// A connect request reaches side 1; `attempt` counts the repetitions.
    Open { attempt: u32 },
    /// The acceptance reaches side 0.
    Opened,
    /// The refusal reaches side 0.
    Refused,
    /// The oldest parcel in flight reaches this side, if none was lost since it was sent.
    Data { side: usize, losses: u32 },
    /// The other side has read: this side may write again.
    Room { side: usize },
    /// The connection is reset, seen from this side.
    Reset { side: usize },
}

/// An entry of the queue.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) enum Event {
    /// A host's loop turns.
    Turn { host: usize, life: u32 },
    /// A host checks its timers: the one for this time, by its own clock.
    Timer { host: usize, life: u32, for_ns: u64 },
    /// A packet arrives.
    Packet { wire: usize, packet: Packet },
    /// An end gives up waiting for the other.
    GiveUp { wire: usize, silence: u32 },
}

/// The event queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: Vec<Event>,
    free: Vec<usize>,
    sequence: u64,
}

impl Queue {
    pub(super) fn push(&mut self, at_ns: u64, event: Event) {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.events[slot] = event;
                slot
            }
            None => {
                self.events.push(event);
                self.events.len() - 1
            }
        };
        self.sequence += 1;
        self.heap.push(Reverse((at_ns, self.sequence, slot)));
    }

    /// The time of the next event.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    pub(super) fn pop(&mut self) -> Option<(u64, Event)> {
        let Reverse((at_ns, _, slot)) = self.heap.pop()?;
        self.free.push(slot);
        Some((at_ns, self.events[slot]))
    }
}
