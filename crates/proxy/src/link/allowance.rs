//! The bound on the links that a core opens in one turn of its loop, and on the nodes that it looks
//! at for that. A ring may name thousands of nodes, and all may refuse at once: the core serves
//! clients in between, and the pools that lack links wait in line for the next turns.

use std::collections::VecDeque;

use crate::ids::PoolId;
use crate::limits;

/// The rest of a turn's allowance, and the pools that wait for the next one.
#[derive(Default)]
pub(crate) struct Allowance {
    opened: usize,
    looked: usize,
    waiting: VecDeque<PoolId>,
    /// By pool: true if it waits.
    waits: Vec<bool>,
    /// True while a timer forces another turn.
    pub(crate) is_timed: bool,
}

impl Allowance {
    /// True if no more links may open in this turn.
    pub(crate) fn is_full(&self) -> bool {
        self.opened >= limits::OPENINGS_TURN_MAX
    }

    /// True if no more links may open, or if no other pool may look for nodes.
    pub(crate) fn is_spent(&self) -> bool {
        self.is_full() || self.looked >= limits::OPENING_LOOKS_TURN_MAX
    }

    /// Counts a link.
    pub(crate) fn open(&mut self) {
        self.opened += 1;
    }

    /// Counts a look at a node.
    pub(crate) fn look(&mut self) {
        self.looked += 1;
    }

    /// Has a pool wait for another turn.
    pub(crate) fn wait(&mut self, pool: PoolId) {
        let index = pool.0 as usize;
        if self.waits.len() <= index {
            self.waits.resize(index + 1, false);
        }
        if !std::mem::replace(&mut self.waits[index], true) {
            self.waiting.push_back(pool);
        }
    }

    /// The pool that has waited longest.
    pub(crate) fn next(&mut self) -> Option<PoolId> {
        let pool = self.waiting.pop_front()?;
        if let Some(waits) = self.waits.get_mut(pool.0 as usize) {
            *waits = false;
        }
        Some(pool)
    }

    /// Number of pools that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Begins another turn.
    pub(crate) fn renew(&mut self) {
        (self.opened, self.looked) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_looks_of_a_turn_are_bounded() {
        let mut allowance = Allowance::default();
        for _ in 0..limits::OPENINGS_TURN_MAX {
            assert!(!allowance.is_spent());
            allowance.open();
        }
        assert!(allowance.is_full() && allowance.is_spent());
        allowance.renew();
        assert!(!allowance.is_spent());
        (0..limits::OPENING_LOOKS_TURN_MAX).for_each(|_| allowance.look());
        assert!(allowance.is_spent() && !allowance.is_full());
    }

    #[test]
    fn pools_wait_once_and_in_order() {
        let mut allowance = Allowance::default();
        for pool in [3, 1, 3, 1, 2] {
            allowance.wait(PoolId(pool));
        }
        assert_eq!((allowance.waiting(), allowance.next()), (3, Some(PoolId(3))));
        allowance.wait(PoolId(3));
        let rest: Vec<_> = std::iter::from_fn(|| allowance.next()).collect();
        assert_eq!(rest, [PoolId(1), PoolId(2), PoolId(3)]);
    }
}
