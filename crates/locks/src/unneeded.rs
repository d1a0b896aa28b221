//! Rows that say nothing any more. A released lock leaves a row that says so, and each owner who
//! shared one leaves a row of its own: with names or owners that are new each time they would
//! become more for ever.
//!
//! They are deleted by a timestamp below which nothing counts, on *all* replicas: one that missed
//! both the free row and the deletion would bring the last holder back when the others have
//! forgotten the deletion. What may never be deleted:
//! - the row of a hold, granted or being granted, of this proxy or of the shard's next owner.
//!   Theirs have later timestamps: fences rise, and so nothing is deleted by a time at which this
//!   proxy had no lease;
//! - the row of a hold that was found and whose row was not written again yet: it has its old
//!   timestamp;
//! - the last row that shows that an exclusive hold has ended, while the row of that is there.

use crate::locks::Locks;
use crate::ownership::TOKEN_STEP;
use crate::slab::NIL;
use crate::state::{Bucket, BucketState, HoldState};
use crate::types::{
    BUCKETS, BUCKETS_PER_SHARD, LoadId, Namespace, Now, bucket_of, shard_of_bucket,
};

/// A lock that more share is left alone: they would all have to be looked at.
const HOLDS_MAX: usize = 1_000;

/// A row that was written may be on its way for so long.
const ON_ITS_WAY_NS: u64 = 60_000_000_000;

/// The rows of a lock that say nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unneeded {
    /// Those with this timestamp and all earlier ones, microseconds.
    pub up_to_us: i64,
    /// Of those who share the lock only; the exclusive row stays.
    pub of_shares: bool,
    /// The timestamp and token of a free exclusive row that says the same as the deletion: to be
    /// written if not all replicas are known to have that.
    pub free_us: i64,
}

impl Locks {
    /// The first partition of this core from this number on that was read, and has rows or may
    /// have.
    pub fn with_rows_from(&self, bucket: u16) -> Option<u16> {
        self.owned_from(bucket, |of| of.state == BucketState::Loaded && of.has_rows)
    }

    /// The first partition of this core from this number on that nobody has asked for:
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

    /// The rows of a partition are about to be read, to see what is unneeded: if there are none,
    /// and none is written meanwhile, it has none. One that was written just now may come after the
    /// reading.
    pub fn looks_for_rows(&mut self, now: Now, known: LoadId) {
        let of = &mut self.buckets[usize::from(known.bucket)];
        if now.boot_ns.saturating_sub(of.wrote_ns) > ON_ITS_WAY_NS {
            of.has_rows = false;
        }
    }

    /// A row that could not be sent before is written now.
    pub fn writes_late(&mut self, now: Now, bucket: u16) {
        self.buckets[usize::from(bucket)].wrote(now);
    }

    /// There are rows, or it is not known that there are none.
    pub fn has_rows(&mut self, bucket: u16) {
        self.buckets[usize::from(bucket)].has_rows = true;
    }

    /// A partition of this core whose rows are known here.
    pub fn known(&self, bucket: u16) -> Option<LoadId> {
        let shard = &self.shards[usize::from(shard_of_bucket(bucket))];
        let of = &self.buckets[usize::from(bucket)];
        let is_known = shard.owned && of.state == BucketState::Loaded;
        is_known.then_some(LoadId { bucket, generation: of.generation })
    }

    /// What may be deleted of a lock's rows.
    ///
    /// `known` is what [`Locks::known`] said before the rows were read, and `newest_us` the latest
    /// timestamp among those of this name; `now` is later than the reading.
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
        // With a lease now nobody else has granted anything before the rows were read.
        if self.serves(now, shard).is_err() {
            return None;
        }
        let Some(lock) = self.find(shard, Namespace::Durable, name) else {
            // A row that is later than all fences is none of a proxy's.
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
            // A row that is there, and says that the lock was shared after any exclusive hold; or
            // is the exclusive one.
            is_shown |= entry.state == HoldState::Held;
            // Its row may have this timestamp yet, whatever the next one will have: it may have
            // been made longer meanwhile.
            oldest_us = oldest_us.min(entry.token);
            hold = self.next_hold(hold);
        }
        let up_to_us = oldest_us - 1;
        is_shown.then_some(Unneeded { up_to_us, of_shares: true, free_us: up_to_us })
    }
}
