//! What is bounded beside numbers of holds and requests.

use crate::Mode::Exclusive;
use crate::state::{Hold, Lock};
use crate::{Asked, Handle, Lease, Limits, LoadId, Locks, Namespace, Now, Outcome, SHARDS, Sink, Ticket, Write};

const NOW: Now = Now { boot_ns: 1_000_000_000, wall_us: 1_700_000_000_000_000 };

#[derive(Default)]
struct Heard {
    granted: usize,
    refused: usize,
    loads: Vec<LoadId>,
}

impl Sink for Heard {
    fn reply(&mut self, _: Ticket, outcome: Outcome<'_>) {
        match outcome {
            Outcome::Granted { .. } => self.granted += 1,
            _ => self.refused += 1,
        }
    }

    fn write(&mut self, _: Write<'_>) {}

    fn load(&mut self, load: LoadId) {
        self.loads.push(load);
    }
}

fn locks(limits: Limits) -> (Locks, Heard) {
    let (mut locks, mut heard) = (Locks::new(limits), Heard::default());
    locks.set_lease(NOW, Lease { valid_until_ns: u64::MAX, ts_limit_us: i64::MAX }, &mut heard);
    (0..SHARDS as u8).for_each(|shard| locks.gain(NOW, shard, 0, 0, &mut heard));
    (locks, heard)
}

fn acquire(locks: &mut Locks, heard: &mut Heard, namespace: Namespace, (name, role): (&str, &str)) -> Option<Handle> {
    let asked =
        Asked { namespace, name: name.as_bytes(), role: role.as_bytes(), owner: b"ten bytes.", ticket: Ticket(0) };
    locks.acquire(NOW, &asked, Exclusive, (9_000, 0), heard)
}

/// What a million names take is told to users: a lock with its hold, and the index when it has just grown and is 7/16 full, of which
/// an entry is a number and a byte.
#[test]
fn a_lock_that_one_holds_takes_at_most_96_bytes() {
    let index = (size_of::<u32>() + 1) as f64 * 16.0 / 7.0;
    let bytes = (size_of::<Lock>() + size_of::<Hold>()) as f64 + index;
    assert!(bytes <= 96.0, "{bytes}");
}

#[test]
fn names_and_owners_have_a_bound_and_one_role_half_of_it() {
    let (mut locks, mut heard) = locks(Limits { text_bytes: 10_000, ..Limits::default() });
    let name = |number: usize| format!("{number:0>90}");
    for number in 0..100 {
        acquire(&mut locks, &mut heard, Namespace::Memory, (&name(number), "one"));
    }
    assert_eq!((heard.granted, heard.refused), (50, 50));
    for number in 100..200 {
        acquire(&mut locks, &mut heard, Namespace::Memory, (&name(number), "other"));
    }
    assert_eq!((heard.granted, heard.refused), (100, 100));
    for number in 0..50 {
        let (namespace, name) = (Namespace::Memory, name(number));
        let asked = Asked { namespace, name: name.as_bytes(), role: b"one", owner: b"ten bytes.", ticket: Ticket(0) };
        locks.release(NOW, &asked, None, false, &mut heard);
    }
    heard.granted = 0;
    acquire(&mut locks, &mut heard, Namespace::Memory, (&name(7), "one"));
    assert_eq!(heard.granted, 1, "what was released is free again");
}

/// Clients that ask and leave, while a partition is being read for long.
#[test]
fn requests_that_were_given_up_are_not_kept_until_rows_are_read() {
    let (mut locks, mut heard) = locks(Limits::default());
    for _ in 0..10_000 {
        let handle = acquire(&mut locks, &mut heard, Namespace::Durable, ("lock", "one"));
        locks.cancel(NOW, handle.expect("it waits"), &mut heard);
    }
    let kept: usize = locks.buckets.iter().map(|bucket| bucket.deferred.len()).sum();
    assert!(kept < 2_000 && kept == locks.deferred, "{kept}");
    let handle = acquire(&mut locks, &mut heard, Namespace::Durable, ("lock", "one"));
    locks.loaded(NOW, heard.loads[0], std::iter::empty(), true, &mut heard);
    assert_eq!((heard.loads.len(), heard.refused, locks.deferred, locks.holds()), (1, 0, 0, 1));
    assert!(handle.is_some());
}
