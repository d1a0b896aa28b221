//! Lists of a lock's holds, and of the requests that wait for one thing, in their order.

use crate::locks::Locks;
use crate::slab::NIL;
use crate::state::{Awaits, Due, Hold, Neighbours, Queue, Request};

impl Locks {
    /// Appends a hold to those of its lock. A single hold, the usual case, has no [`Neighbours`].
    pub(crate) fn link_hold(&mut self, lock: u32, hold: u32) {
        let first = self.locks[lock].first_hold;
        if first == NIL {
            self.locks[lock].first_hold = hold;
            return;
        }
        if self.timed.holds[first].neighbours == NIL {
            self.timed.holds[first].neighbours =
                self.neighbours.insert(Neighbours { previous: first, next: NIL });
        }
        let last = std::mem::replace(&mut self.neighbours_of(first).previous, hold);
        self.neighbours_of(last).next = hold;
        self.timed.holds[hold].neighbours =
            self.neighbours.insert(Neighbours { previous: last, next: NIL });
    }

    /// Removes a hold from those of its lock.
    pub(crate) fn unlink_hold(&mut self, hold: u32) {
        let Hold { lock, neighbours, .. } = self.timed.holds[hold];
        if neighbours == NIL {
            self.locks[lock].first_hold = NIL;
            return;
        }
        let Neighbours { previous, next } = self.neighbours[neighbours];
        self.neighbours.remove(neighbours);
        let first = self.locks[lock].first_hold;
        if first == hold {
            self.locks[lock].first_hold = next;
        } else {
            self.neighbours_of(previous).next = next;
        }
        match (next, first == hold) {
            (NIL, true) => {}
            (NIL, false) => self.neighbours_of(first).previous = previous,
            (next, _) => self.neighbours_of(next).previous = previous,
        }
    }

    /// Neighbours of a hold that has some.
    fn neighbours_of(&mut self, hold: u32) -> &mut Neighbours {
        &mut self.neighbours[self.timed.holds[hold].neighbours]
    }

    /// The hold of the same lock that was granted next, or [`NIL`].
    pub(crate) fn next_hold(&self, hold: u32) -> u32 {
        match self.timed.holds[hold].neighbours {
            NIL => NIL,
            neighbours => self.neighbours[neighbours].next,
        }
    }

    /// The longest-waiting request for a lock, or [`NIL`].
    #[inline]
    pub(crate) fn first_waiter(&self, lock: u32) -> u32 {
        match self.locks[lock].queue {
            NIL => NIL,
            queue => self.queues[queue].first,
        }
    }

    /// Number of requests that wait for a lock.
    #[inline]
    pub(crate) fn queue_length(&self, lock: u32) -> u32 {
        match self.locks[lock].queue {
            NIL => 0,
            queue => self.queues[queue].length,
        }
    }

    /// Appends a request to a lock's queue; returns the one that was last before, or [`NIL`].
    fn queue_behind(&mut self, lock: u32, request: u32) -> u32 {
        let known = self.locks[lock].queue;
        if known == NIL {
            self.locks[lock].queue =
                self.queues.insert(Queue { first: request, last: request, length: 1 });
            return NIL;
        }
        let queue = &mut self.queues[known];
        queue.length += 1;
        std::mem::replace(&mut queue.last, request)
    }

    /// Appends a request to those that wait for a lock, or for a write.
    pub(crate) fn wait(&mut self, request: u32, awaits: Awaits) {
        let last = match awaits {
            Awaits::Turn(lock) => self.queue_behind(lock, request),
            Awaits::Write(write) => {
                let write = &mut self.timed.writes[write];
                write.requests += 1;
                if write.first_request == NIL {
                    write.first_request = request;
                }
                std::mem::replace(&mut write.last_request, request)
            }
            Awaits::Load(_) | Awaits::Nothing => NIL,
        };
        if last != NIL {
            self.timed.requests[last].next = request;
        }
        let entry = &mut self.timed.requests[request];
        (entry.awaits, entry.previous, entry.next) = (awaits, last, NIL);
    }

    /// Removes a request from its list, and its wait from the wheel.
    pub(crate) fn stop_waiting(&mut self, request: u32) {
        self.wheel.cancel(&mut self.timed, Due::Request(request).id());
        let Request { awaits, previous, next, .. } = self.timed.requests[request];
        match awaits {
            Awaits::Turn(lock) => {
                let queue = &mut self.queues[self.locks[lock].queue];
                queue.length -= 1;
                if queue.first == request {
                    queue.first = next;
                }
                if queue.last == request {
                    queue.last = previous;
                }
                if queue.length == 0 {
                    self.queues.remove(std::mem::replace(&mut self.locks[lock].queue, NIL));
                }
            }
            Awaits::Write(write) => {
                let write = &mut self.timed.writes[write];
                write.requests -= 1;
                if write.original == request {
                    write.original = NIL;
                }
                if write.first_request == request {
                    write.first_request = next;
                }
                if write.last_request == request {
                    write.last_request = previous;
                }
            }
            Awaits::Load(_) | Awaits::Nothing => {}
        }
        if previous != NIL {
            self.timed.requests[previous].next = next;
        }
        if next != NIL {
            self.timed.requests[next].previous = previous;
        }
        let entry = &mut self.timed.requests[request];
        (entry.awaits, entry.previous, entry.next) = (Awaits::Nothing, NIL, NIL);
    }
}
