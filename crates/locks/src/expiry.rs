//! Expiry: holds whose TTL is over end, and so do waits and writes whose time is over.

use crate::locks::Locks;
use crate::state::{Awaits, Due, Freed};
use crate::types::{NotServed, Now, Outcome, Sink};

/// Due entries handled in one call of [`Locks::tick`]; the rest is left for the next.
const DUE_PER_TICK: usize = 4096;

impl Locks {
    /// Ends what is over. Returns true if there is more, and it should be called again soon.
    pub fn tick(&mut self, now: Now, sink: &mut impl Sink) -> bool {
        let mut steps = DUE_PER_TICK;
        while let Some(id) = self.wheel.next_due(&mut self.timed, now.ms(), &mut steps) {
            match Due::of(id) {
                Due::Hold(hold) => self.end_hold(now, hold, Freed::Expired, sink),
                Due::Request(request) => self.wait_ended(now, request, sink),
                Due::Write(write) => self.redrive(now, write, sink),
            }
        }
        steps == 0
    }

    /// Time of the next work for [`Locks::tick`], in milliseconds of [`Now::boot_ns`].
    pub fn next_due_ms(&self) -> Option<u64> {
        self.wheel.next_ms()
    }

    /// Ends a request's wait.
    fn wait_ended(&mut self, now: Now, request: u32, sink: &mut impl Sink) {
        match self.timed.requests[request].awaits {
            Awaits::Turn(lock) => {
                self.counters.wait_timeouts += 1;
                let ticket = self.timed.requests[request].ticket;
                self.forget_request(request);
                sink.reply(ticket, self.refused(now, lock));
                // Readers behind a writer that has stopped waiting may share the lock with its
                // holders.
                self.hand_over(now, lock, sink);
                self.forget_unused(lock);
            }
            _ => self.answer(request, Outcome::NotServed(NotServed::Loading), sink),
        }
    }
}
