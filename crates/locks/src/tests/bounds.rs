//! Bounds other than the numbers of holds and requests.

use super::semantics::Core;
use crate::Mode::Exclusive;
use crate::state::{Hold, Lock};
use crate::{
    Asked, Handle, Lease, Limits, LoadId, Locks, Namespace, Now, Outcome, SHARDS, Sink, Ticket,
    Write,
};

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

fn acquire(
    locks: &mut Locks,
    heard: &mut Heard,
    namespace: Namespace,
    (name, role): (&str, &str),
) -> Option<Handle> {
    let asked = Asked {
        namespace,
        name: name.as_bytes(),
        role: role.as_bytes(),
        owner: b"ten bytes.",
        ticket: Ticket(0),
    };
    locks.acquire(NOW, &asked, Exclusive, (9_000, 0), heard)
}

/// The documentation states the memory of a million names: a lock with its hold, and an entry (a
/// number and a byte) of an index that has just grown and is 7/16 full.
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
        let asked = Asked {
            namespace,
            name: name.as_bytes(),
            role: b"one",
            owner: b"ten bytes.",
            ticket: Ticket(0),
        };
        locks.release(NOW, &asked, None, false, &mut heard);
    }
    heard.granted = 0;
    acquire(&mut locks, &mut heard, Namespace::Memory, (&name(7), "one"));
    assert_eq!(heard.granted, 1, "what was released is free again");
}

/// Clients ask and leave while a partition takes long to read.
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

/// Holds that were released but whose free rows were lost are found by the next owner, which reads
/// all partitions by itself. They count for the holder's role, take nothing from others, and are
/// bounded, too.
#[test]
fn holds_read_for_a_role_are_bounded_and_take_no_room_from_others() {
    #[derive(Default)]
    struct Store {
        held: Vec<(Vec<u8>, i64)>,
        watched: Vec<crate::WriteId>,
        loads: Vec<LoadId>,
        said: Vec<String>,
    }
    impl Sink for Store {
        fn reply(&mut self, _: Ticket, outcome: Outcome<'_>) {
            self.said.push(format!("{outcome:?}").chars().take(24).collect());
        }
        fn write(&mut self, write: Write<'_>) {
            // Free rows are lost.
            if write.id != crate::WriteId::UNWATCHED {
                self.held.push((write.row.name.to_vec(), write.row.token));
                self.watched.push(write.id);
            }
        }
        fn load(&mut self, load: LoadId) {
            self.loads.push(load);
        }
    }
    const DAY_MS: u32 = 86_400_000;
    let limits = Limits { holds: 20, holds_per_role: 10, ..Limits::default() };
    let start = |limits: Limits| {
        let (mut locks, mut store) = (Locks::new(limits), Store::default());
        locks.set_lease(NOW, Lease { valid_until_ns: u64::MAX, ts_limit_us: i64::MAX }, &mut store);
        (0..SHARDS as u8).for_each(|shard| locks.gain(NOW, shard, 0, 0, &mut store));
        (locks, store)
    };
    let (mut first, mut store) = start(limits);
    let names: Vec<String> = (0..200).map(|number| format!("job-{number}")).collect();
    for name in &names {
        let asked = Asked {
            namespace: Namespace::Durable,
            name: name.as_bytes(),
            role: b"greedy",
            owner: b"o",
            ticket: Ticket(0),
        };
        first.acquire(NOW, &asked, Exclusive, (DAY_MS, 0), &mut store);
        while let Some(load) = store.loads.pop() {
            first.loaded(NOW, load, std::iter::empty(), true, &mut store);
        }
        let id = store.watched.pop().expect("its row is written");
        first.written(NOW, id, crate::Written::Acknowledged, &mut store);
        first.release(NOW, &asked, None, false, &mut store);
        assert_eq!(first.holds(), 0);
    }
    // The next owner.
    let read_all = |limits: Limits| {
        let (mut next, mut heard) = start(limits);
        let (mut bucket, mut failed) = (0, 0);
        while let Some(unread) = next.unread_from(bucket) {
            let load = next.read_ahead(NOW, unread, &mut heard).expect("it wants to read");
            let rows: Vec<_> =
                store.held.iter().filter(|(name, _)| crate::bucket_of(name) == unread).collect();
            let rows = rows.iter().map(|(name, token)| crate::Row {
                name,
                slot: b"",
                owner: b"o",
                role: b"greedy",
                token: *token,
                ttl_ms: DAY_MS,
                timestamp_us: *token,
            });
            let is_served = next.loaded(NOW, load, rows, true, &mut heard);
            assert_eq!((is_served, next.known(unread).is_some()), (is_served, is_served));
            failed += usize::from(!is_served);
            bucket = unread + 1;
        }
        heard.loads.clear();
        (next, heard, failed)
    };
    let (mut next, mut heard, failed) = read_all(limits);
    assert_eq!(
        (next.holds(), failed, next.text_bytes),
        (200, 0, 0),
        "nobody's lock is given to another"
    );
    let mut acquire = |next: &mut Locks, namespace, name: &str, role: &str| {
        let (name, role) = (name.as_bytes(), role.as_bytes());
        let asked = Asked { namespace, name, role, owner: b"o", ticket: Ticket(1) };
        next.acquire(NOW, &asked, Exclusive, (9_000, 0), &mut heard);
        if let Some(id) = heard.watched.pop() {
            next.written(NOW, id, crate::Written::Acknowledged, &mut heard);
        }
        heard.said.pop().unwrap_or_default().chars().take(20).collect::<String>()
    };
    for namespace in [Namespace::Durable, Namespace::Memory] {
        assert_eq!(acquire(&mut next, namespace, "modest", "modest"), "Granted { holder: Ho");
        assert_eq!(acquire(&mut next, namespace, "another", "greedy"), "Quota(HoldsOfRole)");
    }
    // A hold whose owner asks for it counts like any other.
    for name in &names[..18] {
        assert_eq!(acquire(&mut next, Namespace::Durable, name, "greedy"), "Refused { holder: So");
    }
    assert_eq!(next.apart.holds, 182);
    assert_eq!(acquire(&mut next, Namespace::Memory, "another", "modest"), "Quota(Holds)");
    let (next, _, failed) = read_all(Limits { loaded: 50, ..limits });
    assert!(next.holds() == 50 && failed > 10, "{} {failed}", next.holds());
    let (next, _, failed) = read_all(Limits { loaded_text_bytes: 100, ..limits });
    assert!((10..20).contains(&next.holds()) && failed > 10, "{} {failed}", next.holds());
    let (mut next, mut heard, _) = read_all(limits);
    (0..SHARDS as u8).for_each(|shard| next.lose(shard, &mut heard));
    assert_eq!(
        (next.holds(), next.apart.holds, next.apart.text_bytes, next.text_bytes),
        (0, 0, 0, 0)
    );
}

/// Grants of a role come faster than rows are written.
#[test]
fn rows_of_one_role_that_are_being_written_have_a_bound_and_another_does_not_feel_it() {
    let mut core = Core::new(Limits { writes_per_role: 2, ..Limits::default() });
    core.acquire(Namespace::Durable, "greedy/a", crate::Mode::Shared, 9000, 0);
    core.load(&[]);
    core.acquire(Namespace::Durable, "greedy/b", crate::Mode::Shared, 9000, 0);
    core.acquire(Namespace::Durable, "greedy/c", crate::Mode::Shared, 9000, 0);
    core.acquire(Namespace::Durable, "modest/d", crate::Mode::Shared, 9000, 0);
    core.acquire(Namespace::Memory, "greedy/e", crate::Mode::Shared, 9000, 0);
    assert_eq!(core.said(), [(3, "requests of role"), (5, "granted")]);
    // The row of a hold that has ended is still on its way.
    core.release(Namespace::Durable, "greedy/a");
    core.said();
    core.heard.writes.retain(|write| write.0 != crate::WriteId::UNWATCHED);
    core.acquire(Namespace::Durable, "greedy/f", crate::Mode::Shared, 9000, 0);
    assert_eq!(core.said(), [(7, "requests of role")]);
    core.written(crate::Written::Acknowledged);
    core.acquire(Namespace::Durable, "greedy/g", crate::Mode::Shared, 9000, 0);
    assert_eq!(core.said(), []);
    while core.heard.writes.iter().any(|write| write.0 != crate::WriteId::UNWATCHED) {
        core.written(crate::Written::Acknowledged);
    }
    assert!(core.locks.uses.iter().all(|used| used.writes == 0), "{:?}", core.locks.uses);
}
