//! Events that wait while the connection answers a request.
//!
//! An event says that something changed, and readers look at the present state. So one event stands
//! for all equal ones before it, and the queue stays small however often a node repeats itself.

use std::collections::VecDeque;

/// Largest body of an event. A function may have 255 arguments (the JVM allows no more), each of a
/// type like `frozen<NAME>` with a name of 48 characters: 15 KiB.
pub(super) const EVENT_BYTES_MAX: u32 = 16 * 1024;
/// Different events that wait, in number. Beyond it, reading ring and schema again costs clients
/// and proxy less.
pub(super) const EVENTS_MAX: usize = 1024;
/// Bytes of the events that wait.
pub(super) const EVENTS_BYTES_MAX: usize = 1024 * 1024;

/// Bodies of events, oldest first.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    bodies: VecDeque<Vec<u8>>,
    bytes: usize,
    /// True if the queue had no room for an event.
    has_lost_some: bool,
}

impl EventQueue {
    /// Adds an event, which takes the place of an equal one. Without room for it, the queue keeps
    /// only the fact that it has lost an event.
    pub(super) fn push(&mut self, body: Vec<u8>) {
        if let Some(place) = self.bodies.iter().position(|waiting| *waiting == body) {
            self.bodies.remove(place);
        } else if self.bodies.len() < EVENTS_MAX && self.bytes + body.len() <= EVENTS_BYTES_MAX {
            self.bytes += body.len();
        } else {
            self.has_lost_some = true;
            return;
        }
        self.bodies.push_back(body);
    }

    /// Removes the oldest event.
    pub(super) fn pop(&mut self) -> Option<Vec<u8>> {
        let body = self.bodies.pop_front()?;
        self.bytes -= body.len();
        Some(body)
    }

    /// True if the queue has lost an event since the last call.
    pub(super) fn take_loss(&mut self) -> bool {
        std::mem::take(&mut self.has_lost_some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained(queue: &mut EventQueue) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn the_latest_of_equal_events_stands_for_all_of_them() {
        let mut queue = EventQueue::default();
        for _ in 0..10 * EVENTS_MAX {
            queue.push(b"up".to_vec());
            queue.push(b"down".to_vec());
        }
        queue.push(b"up".to_vec());
        assert_eq!(drained(&mut queue), [b"down".to_vec(), b"up".to_vec()]);
        assert_eq!((queue.bytes, queue.take_loss()), (0, false));
    }

    #[test]
    fn different_events_are_bounded_in_number_and_bytes_and_a_loss_is_told_once() {
        for (bytes, expected) in [(8, EVENTS_MAX), (EVENT_BYTES_MAX as usize, 64)] {
            let mut queue = EventQueue::default();
            for number in 0..2 * EVENTS_MAX as u64 {
                let mut body = number.to_be_bytes().to_vec();
                body.resize(bytes, 0);
                queue.push(body);
            }
            assert_eq!(drained(&mut queue).len(), expected, "{bytes} bytes each");
            assert_eq!((queue.take_loss(), queue.take_loss()), (true, false));
        }
    }
}
