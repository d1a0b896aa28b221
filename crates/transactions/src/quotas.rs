//! Shares of a core's room for transactions, so that a client that asks for more than others leaves
//! them theirs.
//!
//! A client is identified by its role. Where nobody logs in, the keyspace of the transaction stands
//! in for the role. The keyspace is not used everywhere, because two roles would then share one
//! quota.

use std::collections::HashMap;
use std::sync::Arc;

use crate::rejection::Rejection;

/// Transactions that wait for a plan or are under way, on one core.
const JOBS_MAX: usize = 4_096;
/// Transactions of one client. The number is below the limit of a shard
/// ([`crate::Limits::transactions_of_shard`]).
const JOBS_OF_ONE_MAX: usize = 768;
/// Bytes of requests, beyond which no more are accepted.
const BYTES_MAX: usize = 64 << 20;
/// Bytes of one client's requests.
const BYTES_OF_ONE_MAX: usize = 32 << 20;
/// Bytes of requests, of what they read, and of their writes.
const HELD_MAX: usize = 128 << 20;
/// The same of one client.
const HELD_OF_ONE_MAX: usize = 64 << 20;

/// Transactions of one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    jobs: usize,
    bytes: usize,
}

/// The use of all clients, and of each.
#[derive(Debug, Default)]
pub struct Shares {
    all: Share,
    of: HashMap<Arc<str>, Share>,
}

impl Shares {
    /// Accepts a transaction of so many bytes.
    ///
    /// # Errors
    /// The core or the client has no room for one more.
    pub fn accept(&mut self, who: &Arc<str>, bytes: usize) -> Result<(), Rejection> {
        if self.all.jobs >= JOBS_MAX || self.all.bytes + bytes > BYTES_MAX {
            return Err(Rejection::overloaded(
                "Shunt: too many transactions are under way; ask again",
            ));
        }
        let own = self.of.get(who).copied().unwrap_or_default();
        if own.jobs >= JOBS_OF_ONE_MAX || own.bytes + bytes > BYTES_OF_ONE_MAX {
            return Err(Rejection::overloaded(
                "Shunt: too many transactions of this role (without logins: of this keyspace) are under way; ask again",
            ));
        }
        let own = self.of.entry(Arc::clone(who)).or_default();
        for share in [own, &mut self.all] {
            share.jobs += 1;
            share.bytes += bytes;
        }
        Ok(())
    }

    /// Adds bytes to a transaction. `false` means that the limit is exceeded, and the transaction
    /// has to be given up.
    #[must_use]
    pub fn grow(&mut self, who: &Arc<str>, bytes: usize) -> bool {
        let own = self.of.entry(Arc::clone(who)).or_default();
        own.bytes += bytes;
        self.all.bytes += bytes;
        own.bytes <= HELD_OF_ONE_MAX && self.all.bytes <= HELD_MAX
    }

    /// Ends a transaction.
    pub fn give_back(&mut self, who: &Arc<str>, bytes: usize) {
        self.all.jobs -= 1;
        self.all.bytes -= bytes;
        if let Some(own) = self.of.get_mut(who) {
            own.jobs -= 1;
            own.bytes -= bytes;
            if own.jobs == 0 {
                self.of.remove(who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Limits;

    use super::*;

    #[test]
    fn a_client_at_its_quota_leaves_others_room_in_its_shard_too() {
        let (greedy, other): (Arc<str>, Arc<str>) = ("greedy".into(), "other".into());
        let mut shares = Shares::default();
        while shares.accept(&greedy, 10).is_ok() {}
        assert_eq!(
            shares.of[&greedy],
            Share { jobs: JOBS_OF_ONE_MAX, bytes: 10 * JOBS_OF_ONE_MAX }
        );
        let left = Limits::default().transactions_of_shard - JOBS_OF_ONE_MAX;
        (0..left).for_each(|_| shares.accept(&other, 10).expect("room"));
        (0..JOBS_OF_ONE_MAX).for_each(|_| shares.give_back(&greedy, 10));
        assert!(shares.accept(&greedy, 10).is_ok() && shares.of.len() == 2);
    }

    #[test]
    fn bytes_of_one_leave_others_theirs_however_they_came() {
        let (greedy, other): (Arc<str>, Arc<str>) = ("greedy".into(), "other".into());
        let mut shares = Shares::default();
        assert!(
            shares.accept(&greedy, BYTES_OF_ONE_MAX).is_ok() && shares.accept(&greedy, 1).is_err()
        );
        assert!(
            !shares.grow(&greedy, HELD_OF_ONE_MAX - BYTES_OF_ONE_MAX + 1),
            "it has read too much"
        );
        shares.give_back(&greedy, HELD_OF_ONE_MAX + 1);
        assert!(shares.accept(&greedy, 1).is_ok() && shares.grow(&greedy, BYTES_OF_ONE_MAX));
        assert!(shares.accept(&other, 1).is_ok() && shares.grow(&other, BYTES_OF_ONE_MAX));
        shares.give_back(&greedy, 1 + BYTES_OF_ONE_MAX);
        shares.give_back(&other, 1 + BYTES_OF_ONE_MAX);
        assert_eq!((shares.all, shares.of.len()), (Share::default(), 0));
    }
}
