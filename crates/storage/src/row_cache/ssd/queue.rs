//! The bounded queue between memory and SSD. Rows that leave memory wait here for the one appending
//! thread; if it falls behind they are dropped, so that no write or read ever waits for the SSD.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};

use super::super::locks::lock;
use super::super::row::CachedRow;

/// A row on its way to SSD, and the conditions it must still meet on arrival.
pub(crate) struct Spill {
    pub(crate) row: CachedRow,
    pub(crate) hash: u64,
    pub(crate) epoch: u32,
    pub(crate) generation: u32,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Spill>,
    /// Bytes of the rows waiting and of those being written.
    bytes: usize,
    closed: bool,
}

pub(crate) struct SpillQueue {
    state: Mutex<State>,
    /// Signals a waiting row or the closing of the queue.
    ready: Condvar,
    bytes_max: usize,
}

impl SpillQueue {
    pub(crate) fn new(bytes_max: usize) -> Self {
        SpillQueue { state: Mutex::default(), ready: Condvar::new(), bytes_max }
    }

    /// Queues a row; false if there is no room.
    pub(crate) fn push(&self, spill: Spill) -> bool {
        let bytes = cost(&spill);
        let mut state = lock(&self.state);
        if state.closed || state.bytes + bytes > self.bytes_max {
            return false;
        }
        state.bytes += bytes;
        state.waiting.push_back(spill);
        let first = state.waiting.len() == 1;
        drop(state);
        if first {
            self.ready.notify_one();
        }
        true
    }

    /// Waits for rows and takes them all; `false` once the queue is closed. Each row counts until
    /// [`Self::written`].
    pub(crate) fn take(&self, batch: &mut VecDeque<Spill>) -> bool {
        let mut state = lock(&self.state);
        while state.waiting.is_empty() && !state.closed {
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            return false;
        }
        std::mem::swap(&mut state.waiting, batch);
        true
    }

    /// One row of the batch is on SSD, or was dropped.
    pub(crate) fn written(&self, spill: &Spill) {
        lock(&self.state).bytes -= cost(spill);
    }

    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        let dropped = std::mem::take(&mut state.waiting);
        state.bytes -= dropped.iter().map(cost).sum::<usize>();
        drop(state);
        self.ready.notify_all();
    }

    pub(crate) fn bytes(&self) -> usize {
        lock(&self.state).bytes
    }
}

fn cost(spill: &Spill) -> usize {
    spill.row.allocated_bytes() + size_of::<Spill>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spill(number: u64) -> Spill {
        Spill {
            row: CachedRow::new(b"key", Some(&[1; 100])).unwrap(),
            hash: number,
            epoch: 0,
            generation: 0,
        }
    }

    #[test]
    fn the_queue_is_bounded_and_rows_count_until_their_write() {
        let queue = SpillQueue::new(10 * cost(&spill(0)));
        assert_eq!((0..20).filter(|number| queue.push(spill(*number))).count(), 10);
        let mut batch = VecDeque::new();
        assert!(queue.take(&mut batch));
        assert_eq!(
            batch.iter().map(|spill| spill.hash).collect::<Vec<_>>(),
            (0..10).collect::<Vec<_>>()
        );
        assert!(!queue.push(spill(20)), "the batch still counts");
        queue.written(&batch[0]);
        assert!(queue.push(spill(21)));
        batch.drain(1..).for_each(|spill| queue.written(&spill));
        assert_eq!(queue.bytes(), cost(&spill(21)));
        queue.close();
        assert!(!queue.push(spill(22)) && !queue.take(&mut batch));
        assert_eq!(queue.bytes(), 0, "what waited is dropped");
    }
}
