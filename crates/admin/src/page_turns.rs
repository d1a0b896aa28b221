//! Turns of the requests for pages that may take long. The process makes few pages at a time,
//! because all of them share a thread. One host has at most half of the turns, so that others never
//! wait behind all of its requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::connections::Host;

/// Pages that the process makes at a time. A large one takes its thread for tens of milliseconds,
/// and the thread of a proxy also watches the ring.
pub(crate) const TURNS_MAX: usize = 8;
/// Turns of one host.
pub(crate) const TURNS_OF_HOST_MAX: usize = TURNS_MAX / 2;

/// The turns of a process.
pub(crate) struct PageTurns {
    all: Semaphore,
    hosts: Mutex<HashMap<Host, HostTurns>>,
}

/// A host with requests that have turns, or wait for them.
struct HostTurns {
    turns: Arc<Semaphore>,
    requests: usize,
}

/// A request's turn, until it is dropped.
pub(crate) struct Turn<'t> {
    _all: Option<SemaphorePermit<'t>>,
    _own: Option<OwnedSemaphorePermit>,
    _place: Place<'t>,
}

/// A request among those of its host, until it is dropped.
struct Place<'t> {
    turns: &'t PageTurns,
    host: Host,
}

impl Default for PageTurns {
    fn default() -> Self {
        Self { all: Semaphore::new(TURNS_MAX), hosts: Mutex::default() }
    }
}

impl PageTurns {
    /// Waits for the turn of a request of this host.
    pub(crate) async fn take(&self, host: Host) -> Turn<'_> {
        let (place, own) = self.enter(host);
        // The semaphores are never closed. A request waits for all others only once it has one of
        // the few turns of its host.
        let own = own.acquire_owned().await.ok();
        let all = self.all.acquire().await.ok();
        Turn { _all: all, _own: own, _place: place }
    }

    fn enter(&self, host: Host) -> (Place<'_>, Arc<Semaphore>) {
        let mut hosts = self.hosts();
        let new = || HostTurns { turns: Arc::new(Semaphore::new(TURNS_OF_HOST_MAX)), requests: 0 };
        let known = hosts.entry(host).or_insert_with(new);
        known.requests += 1;
        (Place { turns: self, host }, Arc::clone(&known.turns))
    }

    fn hosts(&self) -> MutexGuard<'_, HashMap<Host, HostTurns>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn hosts_count(&self) -> usize {
        self.hosts().len()
    }
}

impl Drop for Place<'_> {
    /// Forgets a host with its last request.
    fn drop(&mut self) {
        let mut hosts = self.turns.hosts();
        if let Some(known) = hosts.get_mut(&self.host) {
            known.requests -= 1;
            if known.requests == 0 {
                hosts.remove(&self.host);
            }
        }
    }
}
