//! Obsolete rows. A released lock leaves a free row, and each owner that shared one leaves a row of
//! its own: with new names or owners each time they would grow without limit.
//!
//! Deletions use a timestamp below which no row counts, on *all* replicas: a replica that missed
//! both the free row and the deletion would bring the last holder back once the others have
//! forgotten the deletion. Three kinds of rows must never be deleted:
//! - the row of a hold, granted or being granted, of this proxy or of the shard's next owner.
//!   Theirs have later timestamps, because fences rise; so no deletion uses a time at which this
//!   proxy had no lease;
//! - the row of a found hold that was not written again yet: it has its old timestamp;
//! - the last row that shows that an exclusive hold has ended, while that hold's row exists.

use crate::locks::Locks;
use crate::ownership::TOKEN_STEP;
use crate::slab::NIL;
use crate::state::{Bucket, BucketState, HoldState};
use crate::types::{
    BUCKETS, BUCKETS_PER_SHARD, LoadId, Namespace, Now, bucket_of, shard_of_bucket,
};

/// Locks with more sharers are left alone, because all of them would have to be visited.
const HOLDS_MAX: usize = 1_000;

/// Longest time that a written row may be on its way.
const ON_ITS_WAY_NS: u64 = 60_000_000_000;

/// Obsolete rows of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unneeded {
    /// Rows with this timestamp or an earlier one, microseconds.
    pub up_to_us: i64,
    /// Only rows of sharers; the exclusive row stays.
    pub of_shares: bool,
    /// Timestamp and token of a free exclusive row equivalent to the deletion, to be written unless
    /// all replicas are known to have the deletion.
    pub free_us: i64,
}

impl Locks {
    /// This core's first partition from this number on that was read, and has or may have rows.
    pub fn with_rows_from(&self, bucket: u16) -> Option<u16> {
        self.owned_from(bucket, |of| of.state == BucketState::Loaded && of.has_rows)
    }

    /// This core's first partition from this number on that was never requested:
    /// [`Locks::read_ahead`] reads it.
    pub fn unread_from(&self, bucket: u16) -> Option<u16> {
        self.owned_from(bucket, |of| of.state == BucketState::Unknown)
    }

    fn owned_from(&self, bucket: u16, is: impl Fn(&Bucket) -> bool) -> Option<u16> {
        let is_it = |bucket: &usize| {
            self.shards[bucket / BUCKETS_PER_SHARD].owned && is(&self.buckets[*bucket])
        };
        (usize::from(bucket)..BUCKETS).find(is_it).map(|bucket| bucket as u16)
    }

    /// Starts a search for obsolete rows in a partition: if it finds none, and none is written
    /// meanwhile, the partition has no rows. A row just written may arrive after the reading.
    pub fn looks_for_rows(&mut self, now: Now, known: LoadId) {
        let of = &mut self.buckets[usize::from(known.bucket)];
        if now.boot_ns.saturating_sub(of.wrote_ns) > ON_ITS_WAY_NS {
            of.has_rows = false;
        }
    }

    /// Notes that a row which could not be sent before is written now.
    pub fn writes_late(&mut self, now: Now, bucket: u16) {
        self.buckets[usize::from(bucket)].wrote(now);
    }

    /// Notes that a partition has or may have rows.
    pub fn has_rows(&mut self, bucket: u16) {
        self.buckets[usize::from(bucket)].has_rows = true;
    }

    /// Id of a partition of this core whose rows are known.
    pub fn known(&self, bucket: u16) -> Option<LoadId> {
        let shard = &self.shards[usize::from(shard_of_bucket(bucket))];
        let of = &self.buckets[usize::from(bucket)];
        let is_known = shard.owned && of.state == BucketState::Loaded;
        is_known.then_some(LoadId { bucket, generation: of.generation })
    }

    /// The rows of a lock that may be deleted.
    ///
    /// `known` is the result of [`Locks::known`] before the rows were read, and `newest_us` the
    /// latest timestamp among those of this name; `now` is later than the reading.
    pub fn unneeded(
        &self,
        now: Now,
        known: LoadId,
        name: &[u8],
        newest_us: i64,
    ) -> Option<Unneeded> {
        let shard = shard_of_bucket(known.bucket);
        let bucket = &self.buckets[usize::from(known.bucket)];
        if bucket.state != BucketState::Loaded
            || bucket.generation != known.generation
            || bucket_of(name) != known.bucket
        {
            return None;
        }
        // A valid lease now means that no other proxy granted before the rows were read.
        if self.serves(now, shard).is_err() {
            return None;
        }
        let Some(lock) = self.find(shard, Namespace::Durable, name) else {
            // A row later than all fences was not written by a proxy.
            let last_us = self.shards[usize::from(shard)].last_token;
            let is_ours = newest_us + 1 < last_us.saturating_add(TOKEN_STEP)
                && newest_us < self.lease.ts_limit_us;
            return is_ours.then_some(Unneeded {
                up_to_us: newest_us,
                of_shares: false,
                free_us: newest_us + 1,
            });
        };
        let mut hold = self.locks[lock].first_hold;
        let (mut oldest_us, mut is_shown, mut looked_at) = (i64::MAX, false, 0);
        while hold != NIL {
            let entry = &self.timed.holds[hold];
            looked_at += 1;
            if entry.state == HoldState::Unconfirmed || looked_at > HOLDS_MAX {
                return None;
            }
            // A written row shows that the lock was shared after any exclusive hold, or is the
            // exclusive one.
            is_shown |= entry.state == HoldState::Held;
            // Its row may still have this timestamp, even if a longer TTL gives the next one
            // another.
            oldest_us = oldest_us.min(entry.token);
            hold = self.next_hold(hold);
        }
        let up_to_us = oldest_us - 1;
        is_shown.then_some(Unneeded { up_to_us, of_shares: true, free_us: up_to_us })
    }
}
