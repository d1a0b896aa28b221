//! A list of a core's locks: those with the longest queues, and others that are held.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::locks::Locks;
use crate::types::{Holder, Namespace, NotServed, Now};

impl Locks {
    /// Calls `see` for up to `most` locks, with name, first holder, and number of waiting requests:
    /// first those with the longest queues, then any others that are held. Durable locks of a shard
    /// that this core has just gained appear once their partition was requested. Visits every
    /// one of the [places](Self::places) once.
    ///
    /// # Errors
    /// This core has no valid lease: other proxies may have granted the locks since.
    pub fn longest(
        &self,
        now: Now,
        namespace: Namespace,
        most: usize,
        mut see: impl FnMut(&[u8], Option<Holder<'_>>, u32),
    ) -> Result<(), NotServed> {
        if !self.has_lease(now) {
            return Err(NotServed::LeaseOver);
        }
        let mut chosen =
            BinaryHeap::with_capacity(most.saturating_add(1).min(self.len().saturating_add(1)));
        for (index, lock) in self.locks.all() {
            if lock.is_unused() || lock.namespace != namespace {
                continue;
            }
            // The shortest queue chosen so far is on top.
            let key = Reverse((self.queue_length(index), Reverse(index)));
            if chosen.len() < most {
                chosen.push(key);
            } else if chosen.peek().is_some_and(|least| key < *least) {
                chosen.pop();
                chosen.push(key);
            }
        }
        for Reverse((waiters, Reverse(index))) in chosen.into_sorted_vec() {
            let name = self.locks[index].name.bytes(&self.long_names);
            see(name, self.first_holder(now, index), waiters);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{
        Asked, Lease, Limits, LoadId, Mode, Outcome, Sink, Ticket, Write, shard_of,
    };

    struct Nobody;

    impl Sink for Nobody {
        fn reply(&mut self, _: Ticket, _: Outcome<'_>) {}
        fn write(&mut self, _: Write<'_>) {}
        fn load(&mut self, _: LoadId) {}
    }

    const NOW: Now = Now { boot_ns: 1, wall_us: 1_000_000 };

    fn acquire(locks: &mut Locks, name: &str, owner: &str, wait_ms: u32) {
        locks.gain(NOW, shard_of(name.as_bytes()), 0, 0, &mut Nobody);
        let (name, owner) = (name.as_bytes(), owner.as_bytes());
        let asked =
            Asked { namespace: Namespace::Memory, name, role: b"", owner, ticket: Ticket(0) };
        locks.acquire(NOW, &asked, Mode::Exclusive, (9_000, wait_ms), &mut Nobody);
    }

    fn seen(locks: &Locks, most: usize) -> Vec<(String, u32)> {
        let mut seen = Vec::new();
        let see = |name: &[u8], holder: Option<Holder<'_>>, waiters| {
            assert_eq!(holder.map(|holder| holder.owner), Some(&b"first"[..]));
            seen.push((String::from_utf8_lossy(name).into_owned(), waiters));
        };
        locks.longest(NOW, Namespace::Memory, most, see).expect("a lease");
        seen
    }

    #[test]
    fn the_longest_queues_come_first_and_what_was_released_not_at_all() {
        let mut locks = Locks::new(Limits::default());
        locks.set_lease(NOW, Lease { valid_until_ns: 2, ts_limit_us: i64::MAX }, &mut Nobody);
        assert_eq!(seen(&locks, 10), []);
        for (name, waiters) in [("idle", 0), ("some", 3), ("most", 9), ("gone", 0), ("few", 1)] {
            acquire(&mut locks, name, "first", 0);
            (0..waiters).for_each(|number| acquire(&mut locks, name, &number.to_string(), 1_000));
        }
        let gone = Asked {
            namespace: Namespace::Memory,
            name: b"gone",
            role: b"",
            owner: b"first",
            ticket: Ticket(0),
        };
        locks.release(NOW, &gone, None, false, &mut Nobody);
        assert_eq!((locks.len(), locks.places()), (4, 5), "the place of one that is gone stays");
        let all = [("most", 9), ("some", 3), ("few", 1), ("idle", 0)]
            .map(|(name, waiters)| (name.to_owned(), waiters));
        assert_eq!(seen(&locks, 10), all);
        assert_eq!(seen(&locks, 2), all[..2]);
        assert_eq!(seen(&locks, 0), []);
        let mut count = 0;
        locks.longest(NOW, Namespace::Durable, 10, |_, _, _| count += 1).expect("a lease");
        assert_eq!(count, 0);
        locks.set_lease(NOW, Lease::default(), &mut Nobody);
        assert_eq!(
            locks.longest(NOW, Namespace::Memory, 10, |_, _, _| ()),
            Err(NotServed::LeaseOver)
        );
    }
}
