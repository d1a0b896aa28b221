//! The bound on the links that a core opens in one turn of its loop, and on the nodes that it looks
//! at for that. A ring may name thousands of nodes, and all may refuse at once: the core serves
//! clients in between, and the pools that lack links wait in line for the next turns. With TLS a
//! link costs a handshake in the loop: it counts for several, and the bound holds for longer than a
//! turn.

use std::collections::VecDeque;

use crate::ids::PoolId;
use crate::limits;

/// The rest of a turn's allowance, and the pools that wait for the next one.
#[derive(Default)]
pub(crate) struct Allowance {
    opened: usize,
    looked: usize,
    /// Time at which links with TLS have their bound anew; `None`: links have no TLS.
    tls_renewal_ns: Option<u64>,
    waiting: VecDeque<PoolId>,
    /// By pool: true if it waits.
    waits: Vec<bool>,
    /// True while a timer forces another turn.
    pub(crate) is_timed: bool,
}

impl Allowance {
    /// The allowance of a core whose links have TLS, or not.
    pub(crate) fn new(has_tls: bool) -> Allowance {
        Allowance { tls_renewal_ns: has_tls.then_some(0), ..Allowance::default() }
    }

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
        self.opened += if self.tls_renewal_ns.is_some() { limits::TLS_OPENING_WEIGHT } else { 1 };
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
    pub(crate) fn renew(&mut self, now_ns: u64) {
        self.looked = 0;
        match &mut self.tls_renewal_ns {
            Some(due_ns) if now_ns < *due_ns => return,
            Some(due_ns) => *due_ns = now_ns + limits::TLS_OPENINGS_NS,
            None => {}
        }
        self.opened = 0;
    }

    /// Pause before a turn that opens the next links.
    pub(crate) fn pause_ns(&self) -> u64 {
        if self.tls_renewal_ns.is_some() {
            limits::TLS_OPENINGS_NS
        } else {
            limits::OPENINGS_PAUSE_NS
        }
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
        allowance.renew(0);
        assert!(!allowance.is_spent());
        (0..limits::OPENING_LOOKS_TURN_MAX).for_each(|_| allowance.look());
        assert!(allowance.is_spent() && !allowance.is_full());
    }

    #[test]
    fn handshakes_leave_most_of_the_time_to_clients() {
        let mut allowance = Allowance::new(true);
        let mut opened = 0;
        for turn in 0..100_000_u64 {
            allowance.renew(turn * 10_000);
            while !allowance.is_full() {
                allowance.open();
                opened += 1;
            }
        }
        // A second.
        assert!((100..=400).contains(&opened), "{opened}");
        assert!(allowance.pause_ns() >= limits::TLS_OPENINGS_NS);
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
