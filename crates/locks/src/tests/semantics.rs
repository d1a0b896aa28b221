//! Semantics of a lock: its holders, their order, and the answers.

use crate::types::{
    Asked, Handle, Lease, Limits, LoadId, Mode, Namespace, NotServed, Now, Outcome, Quota, Row,
    Sink, Ticket, Write, WriteId, Written, shard_of,
};
use crate::{Locks, SHARDS};

use Mode::{Exclusive, Shared};
use Namespace::{Durable, Memory};

const WALL_US: i64 = 1_700_000_000_000_000;

/// Answer to a ticket: a keyword, and the fence if there is one.
pub(super) type Answer = (u64, &'static str, i64);
/// A write: its name, slot, owner, token, TTL and timestamp.
pub(super) type Sent = (WriteId, Vec<u8>, Vec<u8>, i64, u32, i64);

#[derive(Default)]
pub(super) struct Heard {
    pub(super) answers: Vec<Answer>,
    pub(super) writes: Vec<Sent>,
    pub(super) loads: Vec<LoadId>,
    /// The role that each free row counts for, and whether a client asked for the release.
    pub(super) freed: Vec<(String, bool)>,
}

fn word(outcome: &Outcome<'_>) -> (&'static str, i64) {
    let fence = |holder: &Option<crate::Holder<'_>>| holder.map_or(0, |holder| holder.fence);
    match outcome {
        Outcome::Granted { holder, .. } => ("granted", holder.fence),
        Outcome::Refused { holder, .. } => ("refused", fence(holder)),
        Outcome::Seen { holder, .. } => ("seen", fence(holder)),
        Outcome::Released { .. } => ("released", 0),
        Outcome::InDoubt => ("in doubt", 0),
        Outcome::Unauthorized => ("unauthorized", 0),
        Outcome::OtherMode => ("other mode", 0),
        Outcome::NotServed(NotServed::Grace) => ("grace", 0),
        Outcome::NotServed(NotServed::LeaseOver) => ("lease over", 0),
        Outcome::NotServed(NotServed::Elsewhere) => ("elsewhere", 0),
        Outcome::NotServed(NotServed::Loading) => ("loading", 0),
        Outcome::NotServed(NotServed::Store) => ("not sent", 0),
        Outcome::Quota(Quota::HoldsOfRole) => ("holds of role", 0),
        Outcome::Quota(Quota::RequestsOfRole) => ("requests of role", 0),
        Outcome::Quota(Quota::Holds | Quota::Requests) => ("full", 0),
    }
}

impl Sink for Heard {
    fn reply(&mut self, ticket: Ticket, outcome: Outcome<'_>) {
        let (word, fence) = word(&outcome);
        self.answers.push((ticket.0, word, fence));
    }

    fn write(&mut self, write: Write<'_>) {
        let row = write.row;
        if write.id == WriteId::UNWATCHED {
            assert_eq!(row.role, b"", "a free row has none itself");
            let role = String::from_utf8_lossy(write.role).into_owned();
            self.freed.push((role, write.is_release));
        }
        self.writes.push((
            write.id,
            row.slot.to_vec(),
            row.owner.to_vec(),
            row.token,
            row.ttl_ms,
            row.timestamp_us,
        ));
    }

    fn load(&mut self, load: LoadId) {
        self.loads.push(load);
    }
}

/// A core that has all shards, and a lease for an hour.
pub(super) struct Core {
    pub(super) locks: Locks,
    pub(super) heard: Heard,
    ms: u64,
    tickets: u64,
}

impl Core {
    pub(super) fn new(limits: Limits) -> Self {
        let mut core =
            Self { locks: Locks::new(limits), heard: Heard::default(), ms: 1000, tickets: 0 };
        core.lease(3_600_000);
        for shard in 0..SHARDS as u8 {
            core.locks.gain(core.now(), shard, 0, 0, &mut core.heard);
        }
        core
    }

    pub(super) fn lease(&mut self, ms: u64) {
        let lease = Lease { valid_until_ns: (self.ms + ms) * 1_000_000, ts_limit_us: i64::MAX };
        self.locks.set_lease(self.now(), lease, &mut self.heard);
    }

    pub(super) fn now(&self) -> Now {
        Now { boot_ns: self.ms * 1_000_000, wall_us: WALL_US }
    }

    pub(super) fn pass(&mut self, ms: u64) {
        self.ms += ms;
        while self.locks.tick(self.now(), &mut self.heard) {}
    }

    pub(super) fn asked<'a>(&mut self, namespace: Namespace, owner: &'a str) -> Asked<'a> {
        self.tickets += 1;
        let (role, owner) = owner.split_once('/').unwrap_or(("app", owner));
        let (role, owner) = (role.as_bytes(), owner.as_bytes());
        Asked { namespace, name: b"lock", role, owner, ticket: Ticket(self.tickets) }
    }

    pub(super) fn acquire(
        &mut self,
        namespace: Namespace,
        owner: &str,
        mode: Mode,
        ttl_ms: u32,
        wait_ms: u32,
    ) -> Option<Handle> {
        let asked = self.asked(namespace, owner);
        self.locks.acquire(self.now(), &asked, mode, (ttl_ms, wait_ms), &mut self.heard)
    }

    pub(super) fn renew(&mut self, namespace: Namespace, owner: &str, ttl_ms: u32) {
        let asked = self.asked(namespace, owner);
        self.locks.renew(self.now(), &asked, None, (ttl_ms, None), &mut self.heard);
    }

    pub(super) fn release(&mut self, namespace: Namespace, owner: &str) {
        let asked = self.asked(namespace, owner);
        self.locks.release(self.now(), &asked, None, false, &mut self.heard);
    }

    /// Answers since the last call, without fences.
    pub(super) fn said(&mut self) -> Vec<(u64, &'static str)> {
        std::mem::take(&mut self.heard.answers)
            .into_iter()
            .map(|(ticket, word, _)| (ticket, word))
            .collect()
    }

    /// Loads these rows of the lock's partition.
    pub(super) fn load(&mut self, rows: &[Row<'_>]) {
        let load = self.heard.loads.pop().expect("it wants to read");
        self.locks.loaded(self.now(), load, rows.iter().copied(), true, &mut self.heard);
    }

    /// Gives the first pending write this outcome.
    pub(super) fn written(&mut self, written: Written) -> Sent {
        let sent = self.heard.writes.remove(0);
        self.locks.written(self.now(), sent.0, written, &mut self.heard);
        sent
    }
}

#[test]
fn a_thousand_wait_and_get_it_in_the_order_in_which_they_came_without_those_who_left() {
    let mut core = Core::new(Limits::default());
    core.acquire(Memory, "first", Exclusive, 60_000, 0);
    let handles: Vec<_> = (0..1000)
        .map(|i| core.acquire(Memory, &format!("w{i}"), Exclusive, 60_000, 30_000))
        .collect();
    for handle in handles.iter().step_by(3) {
        core.locks.cancel(core.now(), handle.expect("it waits"), &mut core.heard);
    }
    core.said();
    let mut holder = "first".to_owned();
    let mut fence = 0;
    for i in (0..1000).filter(|i| i % 3 != 0) {
        core.release(Memory, &holder);
        let answers = std::mem::take(&mut core.heard.answers);
        let (ticket, word, next) = answers[0];
        assert_eq!((ticket, word), (i + 2, "granted"), "the first ticket is the first holder's");
        assert!(next > fence);
        (holder, fence) = (format!("w{i}"), next);
    }
    core.release(Memory, &holder);
    assert!(core.locks.is_empty() && core.locks.requests() == 0);
}

#[test]
fn a_reader_waits_behind_a_writer_and_adjacent_readers_share() {
    let mut core = Core::new(Limits::default());
    core.acquire(Memory, "r1", Shared, 9000, 0);
    core.acquire(Memory, "w", Exclusive, 9000, 5000);
    core.acquire(Memory, "r2", Shared, 9000, 5000);
    core.acquire(Memory, "r3", Shared, 9000, 5000);
    assert_eq!(core.said(), [(1, "granted")]);
    core.release(Memory, "r1");
    assert_eq!(core.said(), [(2, "granted"), (5, "released")]);
    core.release(Memory, "w");
    assert_eq!(core.said(), [(3, "granted"), (4, "granted"), (6, "released")]);
}

#[test]
fn readers_behind_a_writer_who_gives_up_share_with_those_who_read() {
    let mut core = Core::new(Limits::default());
    core.acquire(Memory, "r1", Shared, 9000, 0);
    core.acquire(Memory, "w", Exclusive, 9000, 100);
    core.acquire(Memory, "r2", Shared, 9000, 5000);
    core.pass(101);
    assert_eq!(core.said(), [(1, "granted"), (2, "refused"), (3, "granted")]);
}

#[test]
fn a_hold_belongs_to_role_and_owner_and_has_one_mode() {
    let mut core = Core::new(Limits::default());
    core.acquire(Memory, "app/one", Exclusive, 9000, 0);
    core.acquire(Memory, "evil/one", Exclusive, 9000, 0);
    core.renew(Memory, "evil/one", 60_000);
    core.release(Memory, "evil/one");
    core.acquire(Memory, "app/one", Shared, 9000, 0);
    let told = [
        (1, "granted"),
        (2, "unauthorized"),
        (3, "unauthorized"),
        (4, "unauthorized"),
        (5, "other mode"),
    ];
    assert_eq!(core.said(), told);
}

#[test]
fn a_repeated_request_gets_the_same_fence_and_keeps_its_deadline() {
    let mut core = Core::new(Limits::default());
    core.acquire(Memory, "one", Exclusive, 1000, 0);
    let fence = core.heard.answers[0].2;
    core.pass(600);
    core.acquire(Memory, "one", Exclusive, 1000, 0);
    assert_eq!(core.heard.answers[1], (2, "refused", fence));
    core.acquire(Memory, "two", Exclusive, 1000, 500);
    core.pass(402);
    assert_eq!(core.heard.answers[2].1, "granted", "the first hold's time was not renewed");
}

#[test]
fn one_roles_bound_does_not_affect_another_role() {
    let limits = Limits { holds_per_role: 1, requests_per_role: 1, ..Limits::default() };
    let mut core = Core::new(limits);
    core.acquire(Memory, "greedy/a", Shared, 9000, 0);
    core.acquire(Memory, "greedy/b", Shared, 9000, 0);
    core.acquire(Memory, "greedy/c", Exclusive, 9000, 5000);
    core.acquire(Memory, "greedy/d", Exclusive, 9000, 5000);
    core.acquire(Memory, "modest/e", Exclusive, 9000, 5000);
    assert_eq!(core.said(), [(1, "granted"), (2, "holds of role"), (4, "requests of role")]);
    core.release(Memory, "greedy/a");
    core.release(Memory, "greedy/c");
    assert_eq!(core.said(), [(3, "granted"), (6, "released"), (5, "granted"), (7, "released")]);
    core.release(Memory, "modest/e");
    assert_eq!(
        (core.locks.owners.len(), core.locks.roles.len()),
        (0, 0),
        "nothing is kept of who had something"
    );
}

#[test]
fn a_durable_lock_is_granted_when_its_row_is_there() {
    let mut core = Core::new(Limits::default());
    core.acquire(Durable, "one", Exclusive, 9000, 0);
    core.load(&[]);
    assert!(core.said().is_empty());
    core.acquire(Durable, "two", Exclusive, 9000, 0);
    assert_eq!(core.said(), [(2, "refused")], "of a grant that is being written");
    core.written(Written::Acknowledged);
    assert_eq!(core.said(), [(1, "granted")]);
}

#[test]
fn a_row_that_was_never_sent_is_no_grant_and_the_next_gets_the_lock() {
    let mut core = Core::new(Limits::default());
    core.acquire(Durable, "one", Exclusive, 9000, 0);
    core.load(&[]);
    core.acquire(Durable, "two", Exclusive, 9000, 5000);
    core.written(Written::NotSent);
    core.written(Written::Acknowledged);
    assert_eq!(core.said(), [(1, "not sent"), (2, "granted")]);
}

#[test]
fn a_row_whose_fate_is_unknown_is_written_again_with_the_same_token() {
    let mut core = Core::new(Limits::default());
    core.acquire(Durable, "one", Exclusive, 9000, 0);
    core.load(&[]);
    let first = core.written(Written::Unknown);
    core.acquire(Durable, "one", Exclusive, 9000, 0);
    assert_eq!(core.said(), [(1, "in doubt")]);
    core.pass(101);
    let second = core.written(Written::Acknowledged);
    assert_eq!(first, second);
    assert_eq!(core.heard.answers, [(2, "refused", first.3)], "it holds the lock, with that fence");
}

#[test]
fn a_renewal_for_longer_than_the_row_says_is_written_first() {
    let mut core = Core::new(Limits::default());
    core.acquire(Durable, "one", Exclusive, 1000, 0);
    core.load(&[]);
    let (.., token, _, _) = core.written(Written::Acknowledged);
    core.renew(Durable, "one", 1000);
    assert_eq!(core.said(), [(1, "granted"), (2, "granted")], "without a write");
    core.renew(Durable, "one", 5000);
    assert!(core.said().is_empty());
    let (.., again, ttl_ms, timestamp_us) = core.written(Written::Acknowledged);
    assert!(again == token && ttl_ms >= 5000 && timestamp_us > token && timestamp_us < token + 64);
    assert_eq!(core.said(), [(3, "granted")]);
}

#[test]
fn a_holder_found_in_a_row_has_its_whole_time_and_is_told_so_when_the_row_was_written_again() {
    let mut core = Core::new(Limits::default());
    core.acquire(Durable, "other", Exclusive, 9000, 0);
    let (token, ttl_ms) = (WALL_US - 5, 2000);
    let row = Row {
        name: b"lock",
        slot: b"",
        owner: b"one",
        role: b"app",
        token,
        ttl_ms,
        timestamp_us: token + 2,
    };
    core.load(&[row]);
    assert_eq!(core.said(), [(1, "refused")]);
    core.pass(1500);
    core.renew(Durable, "one", 2000);
    assert!(core.said().is_empty());
    let (.., again, _, timestamp_us) = core.written(Written::Acknowledged);
    assert_eq!((again, core.said()), (token, vec![(2, "granted")]));
    assert!(timestamp_us > token + 2);
    core.acquire(Durable, "other", Exclusive, 9000, 0);
    core.pass(2002);
    core.acquire(Durable, "other", Exclusive, 9000, 0);
    let sent = core.heard.writes.last().expect("a grant");
    assert!(sent.3 > token + 64, "above what was read");
}

/// The former owner granted up to this token. Its writes may arrive at any time, unless a client
/// was told of them.
const FLOOR_US: i64 = WALL_US + 9_000_000;

/// The row of the last holder that was told, as the shard's next owner finds it: later than all of
/// the former owner's writes.
#[test]
fn a_holder_found_in_a_row_is_confirmed_above_all_that_the_former_owner_wrote() {
    for (slot, mode) in [("", Exclusive), ("one", Shared)] {
        let mut core = Core::new(Limits::default());
        core.locks.gain(core.now(), shard_of(b"lock"), FLOOR_US, 0, &mut core.heard);
        core.acquire(Durable, "one", mode, 9000, 0);
        let (name, slot, token) = (&b"lock"[..], slot.as_bytes(), WALL_US);
        core.load(&[Row {
            name,
            slot,
            owner: b"one",
            role: b"app",
            token,
            ttl_ms: 9000,
            timestamp_us: token,
        }]);
        let (_, _, owner, fence, ttl_ms, timestamp_us) = core.written(Written::Acknowledged);
        assert_eq!((fence, core.said()), (token, vec![(1, "refused")]), "its own fence");
        assert!(timestamp_us > FLOOR_US + 63, "{timestamp_us}: a release of it may be on its way");
        // An exclusive row on its way ends no confirmed shared hold, nor the other way round.
        let mut next = Core::new(Limits::default());
        next.acquire(Durable, "other", Exclusive, 9000, 0);
        let found =
            Row { name, slot, owner: &owner, role: b"app", token: fence, ttl_ms, timestamp_us };
        let late_slot = if slot.is_empty() { &b"two"[..] } else { b"" };
        let (late_us, late_owner) = (FLOOR_US - 1, b"two");
        let late = Row {
            name,
            slot: late_slot,
            owner: late_owner,
            role: b"app",
            token: late_us,
            ttl_ms,
            timestamp_us: late_us,
        };
        let rows = if slot.is_empty() { [found, late] } else { [late, found] };
        next.load(&rows);
        assert_eq!(next.heard.answers, [(1, "refused", token)], "{mode:?}");
        assert_eq!(next.locks.holds(), 1, "{mode:?}");
    }
}

/// Rows not yet read may show that the hold had ended long ago, and that others share the lock
/// since.
#[test]
fn a_hold_whose_time_ends_while_rows_are_read_writes_none() {
    let mut core = Core::new(Limits { load_ms: 9000, ..Limits::default() });
    core.acquire(Durable, "other", Exclusive, 9000, 0);
    let load = core.heard.loads.pop().expect("it wants to read");
    let row = |slot, owner, token| Row {
        name: b"lock",
        slot,
        owner,
        role: b"app",
        token,
        ttl_ms: 1000,
        timestamp_us: token,
    };
    core.locks.loaded(
        core.now(),
        load,
        [row(b"", b"one", 100)].into_iter(),
        false,
        &mut core.heard,
    );
    core.pass(2000);
    core.locks.loaded(
        core.now(),
        load,
        [row(b"two", b"two", 200)].into_iter(),
        true,
        &mut core.heard,
    );
    assert_eq!((core.said(), core.heard.writes.len()), (vec![(1, "refused")], 0));
}

/// The row was written from outside: its lock is in another partition, and must not be freed when
/// the time in it is over.
#[test]
fn a_row_in_the_wrong_partition_is_nobodys() {
    let mut core = Core::new(Limits::default());
    core.acquire(Durable, "other", Exclusive, 9000, 0);
    let name = &b"of another partition"[..];
    core.load(&[Row {
        name,
        slot: b"",
        owner: b"one",
        role: b"app",
        token: 100,
        ttl_ms: 1000,
        timestamp_us: 100,
    }]);
    core.written(Written::Acknowledged);
    core.pass(2000);
    assert_eq!(
        (core.said(), core.locks.len(), core.heard.writes.len()),
        (vec![(1, "granted")], 1, 0)
    );
}

#[test]
fn rows_that_cannot_be_read_let_nobody_wait_for_long() {
    let mut core = Core::new(Limits { load_ms: 500, ..Limits::default() });
    core.acquire(Durable, "one", Exclusive, 9000, 0);
    core.pass(501);
    core.acquire(Durable, "two", Exclusive, 9000, 0);
    let load = core.heard.loads.pop().expect("it reads");
    core.locks.load_failed(load, &mut core.heard);
    core.acquire(Durable, "three", Exclusive, 9000, 0);
    assert_eq!(core.said(), [(1, "loading"), (2, "loading")]);
    // Late rows of the first reading do not complete the second.
    core.locks.loaded(core.now(), load, std::iter::empty(), true, &mut core.heard);
    assert!(core.said().is_empty());
    core.load(&[]);
    core.written(Written::Acknowledged);
    assert_eq!(core.said(), [(3, "granted")]);
}

#[test]
fn without_a_lease_nobody_is_told_anything_and_those_who_wait_are_served_when_it_is_back() {
    let mut core = Core::new(Limits::default());
    core.acquire(Memory, "one", Exclusive, 3000, 0);
    core.acquire(Memory, "two", Exclusive, 9000, 8000);
    core.lease(1000);
    core.pass(3002);
    core.renew(Memory, "one", 3000);
    assert_eq!(core.said(), [(1, "granted"), (3, "lease over")]);
    core.lease(60_000);
    assert_eq!(core.said(), [(2, "granted")]);
}

#[test]
fn a_shard_that_is_handed_over_in_its_grace_is_not_free_of_locks_in_memory() {
    let (mut core, shard) = (Core::new(Limits::default()), shard_of(b"lock"));
    assert!(core.locks.is_memory_free(core.now(), shard));
    core.acquire(Memory, "one", Exclusive, 1000, 0);
    assert!(!core.locks.is_memory_free(core.now(), shard), "somebody holds one");
    core.locks.lose(shard, &mut core.heard);
    core.locks.gain(core.now(), shard, 0, (core.ms + 1000) * 1_000_000, &mut core.heard);
    assert!(!core.locks.is_memory_free(core.now(), shard), "the former owner's may be held");
    core.pass(1000);
    assert!(core.locks.is_memory_free(core.now(), shard));
}

#[test]
fn a_shard_that_is_lost_answers_everybody_once() {
    let mut core = Core::new(Limits::default());
    core.acquire(Durable, "one", Exclusive, 9000, 0);
    core.load(&[]);
    core.acquire(Durable, "two", Exclusive, 9000, 5000);
    core.locks.lose(shard_of(b"lock"), &mut core.heard);
    assert_eq!(core.said(), [(2, "elsewhere"), (1, "in doubt")]);
    core.written(Written::Acknowledged);
    core.pass(20_000);
    assert!(core.said().is_empty() && core.locks.is_empty() && core.locks.requests() == 0);
}

#[test]
fn a_hundred_thousand_share_wait_and_leave_from_any_end() {
    let count = 100_000;
    let mut core = Core::new(Limits::default());
    for i in 0..count / 2 {
        core.acquire(Memory, &format!("r{i}"), Shared, 60_000, 0);
    }
    let handles: Vec<_> = (0..count / 2)
        .map(|i| core.acquire(Memory, &format!("w{i}"), Exclusive, 60_000, 50_000))
        .collect();
    for handle in handles.iter().rev() {
        core.locks.cancel(core.now(), handle.expect("it waits"), &mut core.heard);
    }
    for i in (0..count / 2).rev() {
        core.release(Memory, &format!("r{i}"));
    }
    assert!(core.locks.is_empty());
}

/// Ignores all answers.
struct Deaf(Option<WriteId>);

impl Sink for Deaf {
    fn reply(&mut self, _: Ticket, _: Outcome<'_>) {}

    fn write(&mut self, write: Write<'_>) {
        if write.id != WriteId::UNWATCHED {
            self.0 = Some(write.id);
        }
    }

    fn load(&mut self, _: LoadId) {}
}

#[test]
fn in_steady_state_nothing_is_allocated() {
    let mut core = Core::new(Limits::default());
    core.acquire(Durable, "one", Exclusive, 9000, 0);
    core.load(&[]);
    core.written(Written::Acknowledged);
    core.release(Durable, "one");
    let round = |core: &mut Core| {
        for namespace in [Memory, Durable] {
            for (name, owner) in [
                (&b"lock"[..], "an owner whose text is as long as that of a UUID"),
                (b"lock", "two"),
            ] {
                let asked = Asked {
                    namespace,
                    name,
                    role: b"app",
                    owner: owner.as_bytes(),
                    ticket: Ticket(1),
                };
                let (now, mut sink) = (core.now(), Deaf(None));
                core.locks.acquire(now, &asked, Exclusive, (9000, 1000), &mut sink);
                if let Some(id) = sink.0.take() {
                    core.locks.written(now, id, Written::Acknowledged, &mut sink);
                }
                core.locks.renew(now, &asked, None, (9000, None), &mut sink);
                core.locks.release(now, &asked, None, false, &mut sink);
            }
        }
    };
    round(&mut core);
    let info = allocation_counter::measure(|| (0..1000).for_each(|_| round(&mut core)));
    assert_eq!(info.count_total, 0);
}
