//! Judges the connected clients by a new configuration: a client that the configuration gives
//! another identity, or that would have the role of the proxy's own certificate, is closed.
//!
//! A reload may come with each change of an option, and a certificate may have many names. So a
//! configuration that changes no identity starts no review, and a review takes
//! [`limits::REVIEW_STEP`] clients at a time: the core serves its connections in between.
//!
//! The following must never happen:
//! - *A client that a reload takes an identity from stays connected.* A reload that comes during a
//!   review has every client judged once more.
//! - *Reloads in quick succession keep a review from its end.* It never begins again before it has
//!   seen all places.

mod index;
pub(crate) mod steps;

use std::ops::Range;

use crate::limits;

/// A review in progress.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Review {
    /// Slot of the next client.
    next: usize,
    /// Another reload has come, so all are judged again after this round.
    again: bool,
}

impl Review {
    /// Begins a review; `false`: the timer of the one in progress goes on with it.
    fn begin(review: &mut Option<Review>) -> bool {
        match review {
            Some(review) => {
                review.again = true;
                false
            }
            None => {
                *review = Some(Review::default());
                true
            }
        }
    }

    /// The slots of the next step, of so many; the review is over once there are none.
    fn step(review: &mut Option<Review>, slots: usize) -> Range<usize> {
        let Some(Review { next, again }) = review else { return 0..0 };
        let start = *next;
        *next = start.saturating_add(limits::REVIEW_STEP).min(slots);
        let step = start..*next;
        if *next >= slots {
            *review = again.then(Review::default);
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes all steps of a review; a reload comes at some of them. Returns how often each slot was
    /// judged.
    fn judged(slots: usize, has_reload: impl Fn(usize) -> bool) -> (Vec<usize>, usize) {
        let (mut review, mut times, mut steps) = (None, vec![0; slots], 0);
        assert!(Review::begin(&mut review), "the first reload sets the timer");
        while review.is_some() {
            if has_reload(steps) {
                assert!(!Review::begin(&mut review), "a second timer");
            }
            let step = Review::step(&mut review, slots);
            assert!(step.len() <= limits::REVIEW_STEP);
            step.for_each(|slot| times[slot] += 1);
            steps += 1;
        }
        (times, steps)
    }

    #[test]
    fn a_review_sees_every_client_once_and_few_in_a_step() {
        for slots in [0, 1, limits::REVIEW_STEP, limits::REVIEW_STEP + 1, 1_000] {
            let (times, steps) = judged(slots, |_| false);
            assert_eq!(times, vec![1; slots]);
            assert_eq!(steps, slots.div_ceil(limits::REVIEW_STEP).max(1), "{slots}");
        }
    }

    /// The clients before the one that is next were judged by a former configuration.
    #[test]
    fn a_reload_during_a_review_has_all_judged_again_after_it() {
        let (times, _) = judged(1_000, |step| step == 3);
        assert_eq!(times, vec![2; 1_000]);
        let (times, _) = judged(1_000, |step| step < 4);
        assert_eq!(times, vec![2; 1_000], "several count as one");
        let (times, _) = judged(1_000, |step| step < 30);
        assert!(times.iter().all(|times| *times >= 2), "and keep no review from its end");
    }
}
