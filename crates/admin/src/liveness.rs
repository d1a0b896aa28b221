//! Event loops that do not turn any more.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::sync::Mutex;

/// A loop that has not turned for this long is stuck. Idle loops turn about once a second.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(10);

/// Per loop: its turns when they last changed, and when that was seen.
#[derive(Debug)]
pub struct Heartbeats(Mutex<Vec<(u64, Instant)>>);

impl Heartbeats {
    /// For so many loops, none of which has turned yet.
    pub fn new(loops: usize) -> Self {
        Self(Mutex::new(vec![(0, Instant::now()); loops]))
    }

    /// The loops that have not turned for ten seconds, by their place among `turns` (turns so far, one of each loop).
    pub fn stuck(&self, turns: impl IntoIterator<Item = u64>, now: Instant) -> Vec<usize> {
        let mut heartbeats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stuck = Vec::new();
        for (index, (present, (seen, since))) in turns.into_iter().zip(heartbeats.iter_mut()).enumerate() {
            if present != *seen {
                (*seen, *since) = (present, now);
            } else if now.duration_since(*since) > STUCK_AFTER {
                stuck.push(index);
            }
        }
        stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_stuck_when_it_has_not_turned_for_long() {
        let start = Instant::now();
        let heartbeats = Heartbeats::new(2);
        assert_eq!(heartbeats.stuck([0, 0], start + STUCK_AFTER / 2), Vec::<usize>::new());
        let late = start + STUCK_AFTER * 2;
        assert_eq!(heartbeats.stuck([0, 1], late), [0]);
        assert_eq!(heartbeats.stuck([0, 1], late + STUCK_AFTER * 2), [0, 1]);
        assert_eq!(heartbeats.stuck([1, 2], late + STUCK_AFTER * 2), Vec::<usize>::new());
    }
}
