//! Locks of partitions: first come, first served, and readers share.

use std::collections::{HashMap, VecDeque};

use crate::engine::types::{Mode, Partition, TransactionId};

/// One locked partition.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
struct Queue {
    /// Number of holders; one if it is locked exclusively.
    holders: u32,
    is_exclusive: bool,
    waiting: VecDeque<(TransactionId, Mode)>,
    /// Number of waiters that have given up.
    gone: usize,
}

impl Queue {
    fn admits(&self, mode: Mode) -> bool {
        self.holders == 0 || !self.is_exclusive && mode == Mode::Shared
    }

    fn enter(&mut self, mode: Mode) {
        self.holders += 1;
        self.is_exclusive = mode == Mode::Exclusive;
    }
}

/// The locked partitions of a core.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Partitions(HashMap<Partition, Queue>);

impl Partitions {
    /// Locks a partition, or queues for it. Returns `true` if it is locked.
    pub(crate) fn lock(&mut self, partition: Partition, mode: Mode, who: TransactionId) -> bool {
        let queue = self.0.entry(partition).or_default();
        // A reader does not pass a writer that waits, so the queue must be empty.
        if queue.waiting.len() == queue.gone && queue.admits(mode) {
            queue.enter(mode);
            return true;
        }
        queue.waiting.push_back((who, mode));
        false
    }

    /// Unlocks a partition, and adds those who hold it now to `granted`. `is_waiting` tells whether
    /// a waiter has not given up.
    pub(crate) fn unlock(
        &mut self,
        partition: Partition,
        is_waiting: impl Fn(TransactionId) -> bool,
        granted: &mut Vec<TransactionId>,
    ) {
        if let Some(queue) = self.0.get_mut(&partition) {
            queue.holders = queue.holders.saturating_sub(1);
        }
        self.serve(partition, is_waiting, granted);
    }

    /// Removes a waiter, and lets in those that it blocked.
    pub(crate) fn give_up(
        &mut self,
        partition: Partition,
        is_waiting: impl Fn(TransactionId) -> bool,
        granted: &mut Vec<TransactionId>,
    ) {
        let Some(queue) = self.0.get_mut(&partition) else { return };
        queue.gone += 1;
        // The entry keeps its place until its turn: searching for it each time would cost as much
        // as the queue is long.
        if queue.gone > queue.waiting.len() / 2 {
            queue.waiting.retain(|(who, _)| is_waiting(*who));
            queue.gone = 0;
        }
        self.serve(partition, is_waiting, granted);
    }

    fn serve(
        &mut self,
        partition: Partition,
        is_waiting: impl Fn(TransactionId) -> bool,
        granted: &mut Vec<TransactionId>,
    ) {
        let Some(queue) = self.0.get_mut(&partition) else { return };
        while let Some(&(who, mode)) = queue.waiting.front() {
            if !is_waiting(who) {
                queue.waiting.pop_front();
                queue.gone = queue.gone.saturating_sub(1);
                continue;
            }
            if !queue.admits(mode) {
                break;
            }
            queue.waiting.pop_front();
            queue.enter(mode);
            granted.push(who);
        }
        if queue.holders == 0 && queue.waiting.is_empty() {
            self.0.remove(&partition);
        }
    }

    /// Number of locked partitions.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOT: Partition = Partition(1);

    fn who(index: u32) -> TransactionId {
        TransactionId { index, generation: 0 }
    }

    #[test]
    fn readers_share_and_do_not_pass_a_writer_that_waits() {
        let (mut partitions, mut granted) = (Partitions::default(), Vec::new());
        assert!(
            partitions.lock(HOT, Mode::Shared, who(0))
                && partitions.lock(HOT, Mode::Shared, who(1))
        );
        assert!(
            !partitions.lock(HOT, Mode::Exclusive, who(2))
                && !partitions.lock(HOT, Mode::Shared, who(3))
        );
        assert!(!partitions.lock(HOT, Mode::Shared, who(4)));
        partitions.unlock(HOT, |_| true, &mut granted);
        assert_eq!(granted, []);
        partitions.unlock(HOT, |_| true, &mut granted);
        assert_eq!(granted, [who(2)]);
        partitions.unlock(HOT, |_| true, &mut granted);
        assert_eq!(granted, [who(2), who(3), who(4)]);
        partitions.unlock(HOT, |_| true, &mut granted);
        partitions.unlock(HOT, |_| true, &mut granted);
        assert_eq!((granted.len(), partitions.len()), (3, 0));
    }

    #[test]
    fn an_abandoned_wait_blocks_nobody() {
        let (mut partitions, mut granted) = (Partitions::default(), Vec::new());
        assert!(partitions.lock(HOT, Mode::Shared, who(0)));
        assert!(
            !partitions.lock(HOT, Mode::Exclusive, who(1))
                && !partitions.lock(HOT, Mode::Shared, who(2))
        );
        partitions.give_up(HOT, |waiting| waiting != who(1), &mut granted);
        assert_eq!(granted, [who(2)], "the reader shares it with the first");
        assert!(partitions.lock(HOT, Mode::Shared, who(3)));
    }

    /// With 100 and with 100,000: each is looked at a few times.
    #[test]
    fn a_crowd_that_gives_up_is_not_looked_through_for_each_of_them() {
        for count in [100, 100_000] {
            let (mut partitions, mut granted, looks) =
                (Partitions::default(), Vec::new(), std::cell::Cell::new(0));
            assert!(partitions.lock(HOT, Mode::Exclusive, who(u32::MAX)));
            (0..count)
                .for_each(|index| assert!(!partitions.lock(HOT, Mode::Exclusive, who(index))));
            for gone in (0..count).rev() {
                let is_waiting = |waiting: TransactionId| {
                    looks.set(looks.get() + 1);
                    waiting.index < gone
                };
                partitions.give_up(HOT, is_waiting, &mut granted);
            }
            partitions.unlock(HOT, |_| false, &mut granted);
            assert_eq!((granted.len(), partitions.len()), (0, 0));
            assert!(looks.get() <= 8 * count, "{} looks at {count}", looks.get());
        }
    }
}
