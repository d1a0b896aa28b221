//! The state of one tenant that all cores of a process share, and its numbers.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use shunt_admin::{Counter, Gauge};

use super::budget;

/// The numbers that one core counts of a tenant.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counts {
    /// Clients.
    pub(crate) clients: Gauge,
    /// Clients that wait for its limits.
    pub(crate) waiting: Gauge,
    /// Queries at nodes.
    pub(crate) in_flight: Gauge,
    /// Queries that passed.
    pub(crate) queries: Counter,
    /// Times that a query was refused or had to wait, and clients that were refused.
    pub(crate) limited: Counter,
    /// Queries and clients that `dry_run` let pass.
    pub(crate) would_limit: Counter,
}

/// The numbers that all cores have counted of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Clients.
    pub clients: u64,
    /// Clients that wait for its limits.
    pub waiting: u64,
    /// Queries at nodes.
    pub in_flight: u64,
    /// Queries that passed.
    pub queries: u64,
    /// Times that a query was refused or had to wait, and clients that were refused.
    pub limited: u64,
    /// Queries and clients that `dry_run` let pass.
    pub would_limit: u64,
}

/// One tenant of a process, whatever configuration names it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct SharedTenant {
    pub(super) queries: budget::Shared,
    pub(super) bytes: budget::Shared,
    /// Queries in flight of the cores that have a limit for them.
    in_flight: AtomicU32,
    /// Cores that have queries in flight, or clients in line.
    active: AtomicU32,
    /// Cores that have clients in line.
    waiting: AtomicU32,
    /// Clients of all cores.
    clients: AtomicU32,
    counts: OnceLock<Box<[Counts]>>,
}

impl SharedTenant {
    /// The numbers of one of the cores.
    pub(crate) fn counts(&self, core: usize, cores: usize) -> Option<&Counts> {
        let made = || (0..cores.max(core + 1)).map(|_| Counts::default()).collect();
        self.counts.get_or_init(made).get(core)
    }

    /// The numbers of all cores together.
    pub(crate) fn sums(&self) -> Counted {
        let mut sums = Counted::default();
        for core in self.counts.get().into_iter().flatten() {
            sums.clients += core.clients.get();
            sums.waiting += core.waiting.get();
            sums.in_flight += core.in_flight.get();
            sums.queries += core.queries.get();
            sums.limited += core.limited.get();
            sums.would_limit += core.would_limit.get();
        }
        sums
    }

    /// Counts one more client, if there are fewer than this many.
    pub(super) fn try_join(&self, most: u32) -> bool {
        let more = |clients: u32| (clients < most).then_some(clients + 1);
        self.clients.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Counts one more client.
    pub(super) fn join(&self) {
        self.clients.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a client less.
    pub(super) fn leave(&self) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn begin(&self, queries: u32) {
        self.in_flight.fetch_add(queries, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn end(&self, queries: u32) {
        self.in_flight.fetch_sub(queries, Ordering::Relaxed);
    }

    /// The part of a bound for one of the cores that want some of it.
    pub(super) fn part(&self, bound: u32) -> u32 {
        bound / self.active.load(Ordering::Relaxed).max(1)
    }

    /// Number of cores with clients in line.
    pub(super) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(super) fn set_active(&self, is_active: bool) {
        count(&self.active, is_active);
    }

    pub(super) fn set_waiting(&self, is_waiting: bool) {
        count(&self.waiting, is_waiting);
    }
}

fn count(number: &AtomicU32, is_one_more: bool) {
    if is_one_more {
        number.fetch_add(1, Ordering::Relaxed);
    } else {
        number.fetch_sub(1, Ordering::Relaxed);
    }
}
