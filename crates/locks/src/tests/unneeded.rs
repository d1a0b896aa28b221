//! Rows that may be deleted, and the effect of a replica that misses all of it.

use super::semantics::Core;
use super::store::Store;
use super::world::Random;
use crate::Unneeded;
use crate::types::{
    Limits, LoadId, Mode, Namespace, Now, Row, Write, WriteId, Written, bucket_of, shard_of,
};

use Mode::{Exclusive, Shared};
use Namespace::Durable;

/// A core that has read the lock's partition with these rows.
fn loaded(rows: &[Row<'_>]) -> (Core, LoadId) {
    let mut core = Core::new(Limits::default());
    core.acquire(Durable, "one", Exclusive, 9000, 0);
    core.load(rows);
    let known = core.locks.known(bucket_of(b"lock")).expect("it knows the partition");
    (core, known)
}

fn unneeded(core: &Core, known: LoadId, newest_us: i64) -> Option<Unneeded> {
    core.locks.unneeded(core.now(), known, b"lock", newest_us)
}

#[test]
fn a_free_lock_needs_no_rows_and_a_held_one_no_older_shares() {
    let (mut core, known) = loaded(&[]);
    assert_eq!(unneeded(&core, known, 1), None, "its row is being written");
    let (.., held_us) = core.written(Written::Acknowledged);
    let of_shares = Unneeded { up_to_us: held_us - 1, of_shares: true, free_us: held_us - 1 };
    assert_eq!(unneeded(&core, known, held_us), Some(of_shares));
    core.release(Durable, "one");
    let (.., free_us) = core.heard.writes.pop().expect("a free row");
    let all = Unneeded { up_to_us: free_us, of_shares: false, free_us: free_us + 1 };
    assert_eq!(unneeded(&core, known, free_us), Some(all));
    assert!(
        unneeded(&core, known, free_us + 1).is_some(),
        "as a free row in the place of a deletion has it"
    );
    assert_eq!(
        unneeded(&core, known, free_us + 63),
        None,
        "a row above all fences is nobody's of ours"
    );
    // The next grant is above all deleted rows, and above the row written in their place.
    core.acquire(Durable, "two", Exclusive, 9000, 0);
    let (.., next_us) = core.written(Written::Acknowledged);
    assert!(next_us > all.free_us);
}

#[test]
fn the_oldest_of_those_who_share_says_how_far_and_one_that_is_being_granted_counts() {
    let mut core = Core::new(Limits::default());
    core.acquire(Durable, "one", Shared, 9000, 0);
    core.load(&[]);
    core.acquire(Durable, "two", Shared, 9000, 0);
    let known = core.locks.known(bucket_of(b"lock")).expect("it knows the partition");
    let first_us = core.heard.writes[0].5;
    assert_eq!(
        unneeded(&core, known, first_us),
        None,
        "no row shows that an exclusive hold has ended"
    );
    core.written(Written::Acknowledged);
    assert_eq!(unneeded(&core, known, first_us).map(|of| of.up_to_us), Some(first_us - 1));
    core.release(Durable, "one");
    assert_eq!(unneeded(&core, known, first_us), None, "the one that is left is being written");
    core.written(Written::Acknowledged);
    let up_to_us = unneeded(&core, known, first_us).expect("its row is there").up_to_us;
    assert!(up_to_us > first_us, "the row of who has left is unneeded");
}

/// Its row has the old timestamp, and counts as written once that is acknowledged.
#[test]
fn a_grant_that_is_made_longer_before_its_row_is_there_keeps_it() {
    let mut core = Core::new(Limits::default());
    core.acquire(Durable, "one", Shared, 1000, 0);
    core.load(&[]);
    let token = core.heard.writes[0].3;
    core.renew(Durable, "one", 5000);
    core.acquire(Durable, "two", Shared, 9000, 0);
    let second = core.heard.writes.remove(1);
    core.locks.written(core.now(), second.0, Written::Acknowledged, &mut core.heard);
    let known = core.locks.known(bucket_of(b"lock")).expect("it knows the partition");
    let up_to_us = unneeded(&core, known, token).expect("a row is there").up_to_us;
    assert!(up_to_us < token, "{up_to_us} {token}");
}

#[test]
fn nothing_is_deleted_of_a_holder_that_was_found_or_without_a_lease_or_by_an_old_reading() {
    let (name, token) = (&b"lock"[..], 100);
    let (mut core, known) = loaded(&[Row {
        name,
        slot: b"",
        owner: b"before",
        role: b"app",
        token,
        ttl_ms: 60_000,
        timestamp_us: token,
    }]);
    assert_eq!(unneeded(&core, known, token), None, "its row has the old timestamp yet");
    core.pass(60_002);
    let (.., free_us) = core.heard.writes.pop().expect("a free row");
    assert!(unneeded(&core, known, free_us).is_some());
    core.lease(0);
    assert_eq!(
        unneeded(&core, known, free_us),
        None,
        "the next owner may have granted it before the rows were read"
    );
    core.lease(60_000);
    let shard = shard_of(b"lock");
    core.locks.lose(shard, &mut core.heard);
    assert_eq!(
        (unneeded(&core, known, free_us), core.locks.known(bucket_of(b"lock"))),
        (None, None)
    );
    core.locks.gain(core.now(), shard, 0, 0, &mut core.heard);
    core.acquire(Durable, "one", Exclusive, 9000, 0);
    assert_eq!(core.locks.known(bucket_of(b"lock")), None, "not before its rows were read");
    core.load(&[]);
    core.written(Written::Acknowledged);
    core.release(Durable, "one");
    let (.., free_us) = core.heard.writes.pop().expect("a free row");
    assert_eq!(
        unneeded(&core, known, free_us),
        None,
        "of a reading before another proxy had the shard"
    );
    let known = core.locks.known(bucket_of(b"lock")).expect("it was read again");
    assert!(unneeded(&core, known, free_us).is_some());
}

/// A replica misses the free row and the deletion, and the others forget the deletion. Returns the
/// number of times the next owner finds the old holder.
fn found_after(replaces: bool) -> usize {
    let mut found = 0;
    for seed in 1..50 {
        let (mut random, mut store) = (Random::new(seed), Store::default());
        let bucket = bucket_of(b"lock");
        let row = |owner: &'static [u8], us| Row {
            name: b"lock",
            slot: b"",
            owner,
            role: b"",
            token: us,
            ttl_ms: 9000,
            timestamp_us: us,
        };
        store.write(
            (0, 0),
            &Write {
                id: WriteId::UNWATCHED,
                bucket,
                row: row(b"one", 100),
                role: b"",
                is_release: false,
            },
            3,
            &mut random,
        );
        store.deliver(1);
        store.write_to(&[0, 1], 2, bucket, row(b"", 200));
        let unneeded = Unneeded { up_to_us: 200, of_shares: false, free_us: 201 };
        store.delete_from(&[0, 1], 3, (bucket, b"lock", unneeded));
        if replaces {
            store.write_to(&[1, 2], 4, bucket, row(b"", unneeded.free_us));
        }
        store.deliver(5);
        store.deliver(60_000);
        found +=
            usize::from(store.read(bucket, &mut random).iter().any(|(_, stored)| stored.is_held()));
    }
    found
}

#[test]
fn a_free_row_in_the_place_of_a_deletion_that_a_replica_missed_keeps_the_last_holder_out() {
    assert_eq!(found_after(true), 0);
    assert!(found_after(false) > 0, "a check that cannot fail says nothing");
}

/// Rows of names that are never used again may lie in partitions that no request will ever read.
#[test]
fn a_partition_for_which_nobody_has_asked_is_read_ahead_and_its_rows_are_unneeded() {
    let mut core = Core::new(Limits::default());
    let bucket = bucket_of(b"lock");
    let now = core.now();
    assert_eq!((core.locks.unread_from(bucket), core.locks.known(bucket)), (Some(bucket), None));
    assert!(core.locks.read_ahead(now, bucket, &mut core.heard).is_some());
    assert!(core.locks.read_ahead(now, bucket, &mut core.heard).is_none(), "it is being read");
    core.load(&[]);
    let known = core.locks.known(bucket).expect("it knows the partition");
    assert!(unneeded(&core, known, 5).is_some_and(|found| found.up_to_us == 5 && !found.of_shares));
    core.locks.lose(shard_of(b"lock"), &mut core.heard);
    assert_eq!(
        (
            core.locks.unread_from(bucket).is_some_and(|next| next == bucket),
            core.locks.known(bucket)
        ),
        (false, None)
    );
    assert!(core.locks.read_ahead(now, bucket, &mut core.heard).is_none(), "it is another's");
}

#[test]
fn rows_of_a_shard_that_was_lost_are_not_awaited_nor_those_of_an_earlier_reading() {
    let mut core = Core::new(Limits::default());
    let (bucket, shard, now) = (bucket_of(b"lock"), shard_of(b"lock"), core.now());
    let first = core.locks.read_ahead(now, bucket, &mut core.heard).expect("it wants to read");
    assert!(core.locks.is_awaited(first));
    core.locks.lose(shard, &mut core.heard);
    assert!(!core.locks.is_awaited(first));
    core.locks.gain(now, shard, 0, 0, &mut core.heard);
    let second = core.locks.read_ahead(now, bucket, &mut core.heard).expect("it wants to read");
    assert!(core.locks.is_awaited(second) && !core.locks.is_awaited(first));
}

/// Reading a thousand empty partitions again and again would delay those that have rows.
#[test]
fn a_partition_without_rows_is_not_looked_at_until_there_is_one() {
    let mut core = Core::new(Limits::default());
    let bucket = bucket_of(b"lock");
    let is_looked_at = |core: &Core| core.locks.with_rows_from(bucket) == Some(bucket);
    let now = core.now();
    assert!(core.locks.read_ahead(now, bucket, &mut core.heard).is_some());
    core.load(&[]);
    assert!(!is_looked_at(&core));
    core.acquire(Durable, "one", Exclusive, 9000, 0);
    assert!(is_looked_at(&core));
    core.written(Written::Acknowledged);
    let known = core.locks.known(bucket).expect("it knows the partition");
    let now = core.now();
    let later = Now { boot_ns: now.boot_ns + 120_000_000_000, ..now };
    core.locks.looks_for_rows(now, known);
    assert!(is_looked_at(&core), "the row may come after the reading");
    core.locks.looks_for_rows(later, known);
    assert!(!is_looked_at(&core), "unless it is said that there are some");
    core.release(Durable, "one");
    assert!(is_looked_at(&core), "a free row was written while they were read");
    core.locks.looks_for_rows(later, known);
    core.locks.has_rows(bucket);
    assert!(is_looked_at(&core));
    let free = Row {
        name: b"lock",
        slot: b"",
        owner: b"",
        role: b"",
        token: 5,
        ttl_ms: 0,
        timestamp_us: 5,
    };
    let mut core = Core::new(Limits::default());
    let now = core.now();
    assert!(core.locks.read_ahead(now, bucket, &mut core.heard).is_some());
    core.load(&[free]);
    assert!(is_looked_at(&core), "there was one when it was read");
}

/// A member's clock was ahead once: fences are far from all clocks from then on.
#[test]
fn a_partition_without_rows_is_known_to_have_none_though_fences_are_ahead_of_the_clock() {
    let mut core = Core::new(Limits::default());
    let (bucket, now) = (bucket_of(b"lock"), core.now());
    core.locks.gain(now, shard_of(b"lock"), now.wall_us + 31_536_000_000_000, 0, &mut core.heard);
    core.acquire(Durable, "one", Exclusive, 9000, 0);
    core.load(&[]);
    core.written(Written::Acknowledged);
    core.release(Durable, "one");
    let known = core.locks.known(bucket).expect("it knows the partition");
    core.locks.looks_for_rows(now, known);
    assert_eq!(
        core.locks.with_rows_from(bucket),
        Some(bucket),
        "the row may come after the reading"
    );
    let later = Now { boot_ns: now.boot_ns + 61_000_000_000, wall_us: now.wall_us + 61_000_000 };
    core.locks.looks_for_rows(later, known);
    assert_ne!(core.locks.with_rows_from(bucket), Some(bucket));
    core.locks.writes_late(later, bucket);
    core.locks.looks_for_rows(later, known);
    assert_eq!(
        core.locks.with_rows_from(bucket),
        Some(bucket),
        "a row is written that could not be before"
    );
}
