//! The line of a core's clients that wait for the limits of one tenant.

use std::collections::VecDeque;

use crate::ids::ClientRef;

/// Clients in line, the first to come at the front.
#[derive(Debug, Default)]
pub(super) struct Line {
    clients: VecDeque<ClientRef>,
    /// The client that was called last. It may read while others are in line.
    called: Option<ClientRef>,
    /// Time at which the first of them may pass.
    wake_ns: u64,
    /// True if the core looks at the line at the end of this turn.
    pub(super) is_due: bool,
    /// True while the core looks because of the time.
    pub(super) looks: bool,
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// True if a client must let others go first.
    pub(super) fn puts_behind(&self, client: ClientRef) -> bool {
        !self.clients.is_empty() && self.called != Some(client)
    }

    pub(super) fn join(&mut self, client: ClientRef) {
        self.called.take_if(|called| *called == client);
        self.clients.push_back(client);
    }

    pub(super) fn first(&self) -> Option<ClientRef> {
        self.clients.front().copied()
    }

    /// Takes out the first client, which no longer waits.
    pub(super) fn skip(&mut self) {
        self.clients.pop_front();
    }

    /// Calls the first client, which leaves the line.
    pub(super) fn call(&mut self) {
        self.called = self.clients.pop_front();
    }

    /// Keeps clients in line that wait.
    pub(super) fn retain(&mut self, waits: impl FnMut(&ClientRef) -> bool) {
        self.clients.retain(waits);
    }

    /// Notes the time at which the first client may pass.
    pub(super) fn wake_at(&mut self, ready_ns: u64) {
        self.wake_ns = match self.wake_ns {
            0 => ready_ns,
            earlier => earlier.min(ready_ns),
        };
    }

    /// Sees to it that the core looks at the line, for a client behind others. The time of the
    /// first stays: in a look because of the time, a core takes more than its part of a limit, so
    /// a core whose clients come often must not look more often.
    pub(super) fn wake_behind(&mut self, now_ns: u64) {
        if self.wake_ns == 0 && !self.is_due {
            self.wake_ns = now_ns;
        }
    }

    /// The time at which the core must look at the line.
    pub(super) fn wake_ns(&self) -> Option<u64> {
        (!self.clients.is_empty() && self.wake_ns != 0).then_some(self.wake_ns)
    }

    /// Begins a look because the time has come, and forgets that time.
    pub(super) fn look(&mut self) {
        (self.wake_ns, self.looks) = (0, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_behind_others_make_the_core_look_no_sooner() {
        let mut line = Line::default();
        let client = |slot: u32| ClientRef { slot, id: 1 };
        line.join(client(0));
        line.wake_at(100);
        for slot in 1..50 {
            assert!(line.puts_behind(client(slot)));
            line.join(client(slot));
            line.wake_behind(10);
            assert_eq!(line.wake_ns(), Some(100));
        }
        line.look();
        line.is_due = true;
        line.wake_behind(100);
        assert_eq!(line.wake_ns(), None, "the look sets the next time");
        line.is_due = false;
        line.wake_behind(101);
        assert_eq!(line.wake_ns(), Some(101), "no line is forgotten");
    }
}
