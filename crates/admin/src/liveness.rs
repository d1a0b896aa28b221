//! Detection of event loops that no longer turn.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::sync::Mutex;

/// A loop that has not turned for this long is stuck. Idle loops turn about once a second.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(10);
/// Time between two looks at the loops. The pages look even without requests: only a second look
/// shows that a loop which once turned has stopped.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Per loop: its turns when they last changed, and when that was seen.
#[derive(Debug)]
pub struct Heartbeats(Mutex<Vec<(u64, Instant)>>);

impl Heartbeats {
    /// Heartbeats of `loops` loops, none of which has turned yet.
    pub fn new(loops: usize) -> Self {
        Self(Mutex::new(vec![(0, Instant::now()); loops]))
    }

    /// Returns for each loop how long ago its present count of turns was first seen. `turns` yields
    /// the count of each loop so far.
    pub fn ages(&self, turns: impl IntoIterator<Item = u64>, now: Instant) -> Vec<Duration> {
        let mut heartbeats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let age = |(present, (seen, since)): (u64, &mut (u64, Instant))| {
            if present != *seen {
                (*seen, *since) = (present, now);
            }
            now.saturating_duration_since(*since)
        };
        turns.into_iter().zip(heartbeats.iter_mut()).map(age).collect()
    }

    /// Returns the loops that have not turned for ten seconds, by their position in `turns` (turns
    /// so far, one count per loop).
    pub fn stuck(&self, turns: impl IntoIterator<Item = u64>, now: Instant) -> Vec<usize> {
        let ages = self.ages(turns, now).into_iter().enumerate();
        ages.filter(|(_, age)| *age > STUCK_AFTER).map(|(index, _)| index).collect()
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

    #[test]
    fn the_age_of_a_turn_counts_from_the_look_that_saw_it() {
        let start = Instant::now();
        let heartbeats = Heartbeats::new(2);
        let seconds = Duration::from_secs;
        assert_eq!(heartbeats.ages([1, 1], start + seconds(1)), [seconds(0); 2]);
        assert_eq!(heartbeats.ages([2, 1], start + seconds(3)), [seconds(0), seconds(2)]);
        assert_eq!(heartbeats.ages([2, 1], start + seconds(8)), [seconds(5), seconds(7)]);
        assert_eq!(heartbeats.ages([2, 1], start), [seconds(0); 2], "a look that comes late");
    }
}
