//! The knowledge of all clients: who believes to hold which lock until when, and the fences in
//! their answers.
//!
//! A client counts its time from the request, by the clock of the world; if proxies' clocks are
//! faster than that it counts less, as its own clock would at their rate.

use std::collections::BTreeMap;

/// A lock: kept as rows or in memory, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lock {
    pub fast: bool,
    pub number: usize,
}

/// A hold in which its client believes.
#[derive(Clone, Copy, Debug)]
pub struct Belief {
    pub shared: bool,
    pub fence: i64,
    pub until_ns: u64,
}

/// A fence in a client's answer.
#[derive(Clone, Copy, Debug)]
struct Told {
    client: usize,
    fence: i64,
    shared: bool,
    told_ns: u64,
}

/// An answer about a client's own hold.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    pub client: usize,
    pub lock: Lock,
    pub shared: bool,
    pub fence: i64,
    /// True if this request got the lock; otherwise the client held it already.
    pub is_new: bool,
    pub sent_ns: u64,
    pub now_ns: u64,
    pub ttl_ms: u64,
}

/// The knowledge of all clients.
pub struct Witness {
    /// True if exclusion is checked, beside fences: the clocks are good enough for that.
    pub exclusion: bool,
    /// Rate of the fastest of the proxies' clocks.
    pub rate_ppm: u64,
    beliefs: BTreeMap<(Lock, usize), Belief>,
    told: BTreeMap<Lock, Vec<Told>>,
    /// The first violation.
    pub violation: Option<String>,
    pub grants: u64,
    pub answers: u64,
    pub in_doubt: u64,
    /// Holds that a second request found again.
    pub found_again: u64,
}

impl Witness {
    pub fn new(exclusion: bool, rate_ppm: u64) -> Witness {
        Witness {
            exclusion,
            rate_ppm,
            beliefs: BTreeMap::new(),
            told: BTreeMap::new(),
            violation: None,
            grants: 0,
            answers: 0,
            in_doubt: 0,
            found_again: 0,
        }
    }

    pub fn violate(&mut self, now_ns: u64, what: &str) {
        self.violation.get_or_insert_with(|| format!("at {:.6} s: {what}", now_ns as f64 / 1e9));
    }

    /// A client's belief at this time.
    pub fn belief(&self, lock: Lock, client: usize, now_ns: u64) -> Option<Belief> {
        self.beliefs.get(&(lock, client)).copied().filter(|belief| belief.until_ns > now_ns)
    }

    /// Notes that a client no longer holds a lock, or does not know.
    pub fn forget(&mut self, lock: Lock, client: usize) {
        self.beliefs.remove(&(lock, client));
    }

    /// Notes an answer that a client holds a lock.
    pub fn own(&mut self, own: Own) {
        let Own { client, lock, shared, fence, sent_ns, now_ns, .. } = own;
        self.check_fence(&own);
        if own.is_new {
            self.grants += 1;
        } else {
            self.found_again += 1;
        }
        let told = Told { client, fence, shared, told_ns: now_ns };
        self.told.entry(lock).or_default().push(told);
        // One millisecond is for the proxy's rounding.
        let ttl_ns = own.ttl_ms.saturating_sub(1) as u128 * 1_000_000;
        let until_ns = sent_ns + (ttl_ns * 1_000_000 / u128::from(self.rate_ppm)) as u64;
        let until_ns = self
            .belief(lock, client, now_ns)
            .map_or(until_ns, |known| known.until_ns.max(until_ns));
        if until_ns <= now_ns {
            return;
        }
        if self.exclusion {
            let other = self.beliefs.iter().find(|((of, by), other)| {
                *of == lock && *by != client && other.until_ns > now_ns && !(other.shared && shared)
            });
            if let Some(((_, by), other)) = other {
                let what =
                    format!("two holders of {lock:?}: client {by} by {other:?}, and {own:?}");
                self.violate(now_ns, &what);
            }
        }
        self.beliefs.insert((lock, client), Belief { shared, fence, until_ns });
    }

    /// Checks that fences rise from grant to grant. The order of two grants is known if one was
    /// answered before the other was requested.
    fn check_fence(&mut self, own: &Own) {
        let Own { client, lock, shared, fence, is_new, sent_ns, now_ns, .. } = *own;
        let known = self.belief(lock, client, now_ns);
        if let Some(known) =
            known.filter(|known| self.exclusion && (known.fence != fence || is_new))
        {
            self.violate(now_ns, &format!("a second grant of what is held by {known:?}: {own:?}"));
        }
        let told = self.told.get(&lock).map(Vec::as_slice).unwrap_or_default();
        let is_wrong = |told: &&Told| {
            let same = told.client == client && told.fence == fence && told.shared == shared;
            if same {
                return is_new;
            }
            // One of several sharers may hear of its hold, again, after a later one.
            let in_order = told.told_ns < sent_ns && (is_new || !(told.shared && shared));
            told.fence == fence || in_order && told.fence > fence
        };
        if let Some(wrong) = told.iter().find(is_wrong) {
            let what = format!("fence {fence} after {wrong:?}: {own:?}");
            self.violate(now_ns, &what);
        }
    }
}
