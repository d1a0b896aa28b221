//! Group commit: one thread syncs for all waiting writers, and watches the disk space.
//!
//! A writer takes its ticket after its batch is in the log. The thread notes the last ticket and
//! syncs, which makes everything up to that ticket durable. Writers that arrive during a sync share
//! the next. A failed sync poisons the store: the state of the disk is unknown then, and another
//! sync would not reveal it (the kernel may have dropped the pages).

use super::error::StoreError;
use super::options::{Durability, Ticket};
use super::shared::Shared;
use crate::engine::EngineError;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Called when a ticket is durable or has failed. Runs on the sync thread: it must be short and
/// must not wait.
pub type DurableCallback = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Called after every sync with the newest durable ticket or the error, so that one wake-up of an
/// event loop serves all its writers. Runs on the sync thread: it must be short, and must not call
/// the store.
pub type SyncListener = Box<dyn Fn(&Result<Ticket, StoreError>) + Send>;

/// Least time between checks of the disk space while there is some: a busy store syncs thousands of
/// times per second.
const WATCH_INTERVAL_MIN: Duration = Duration::from_millis(20);

/// Part of RocksDB's error for a write after a failed sync that the store does not know of yet.
const OF_ANOTHER: &str = "previous error";
/// Longest wait of a writer for the original error, which is known a moment later.
const OF_ANOTHER_MAX: Duration = Duration::from_secs(1);

const HEALTHY: u8 = 0;
const FULL: u8 = 1;
const POISONED: u8 = 2;

#[derive(Default)]
struct CommitState {
    /// Latest time of the next requested sync.
    deadline: Option<Instant>,
    callbacks: Vec<(Ticket, DurableCallback)>,
    reason: String,
    /// The sync thread waits for work. Needless wake-ups are system calls too.
    idle: bool,
    /// Threads in `wait`.
    blocked: usize,
    /// Last ticket of a failed sync: tickets up to here get the failure.
    failed_up_to: Ticket,
    stop: bool,
}

/// Tickets, waiting writers and the store's health.
pub(super) struct Commit {
    written: AtomicU64,
    durable: AtomicU64,
    /// Engine sequence number up to which the last sync covered everything.
    synced_sequence: AtomicU64,
    urgent: AtomicBool,
    /// Shortest requested interval for a periodic sync, in µs; `u64::MAX` for none.
    periodic_us: AtomicU64,
    health: AtomicU8,
    /// The engine ran out of disk space and has not recovered. No code may touch its log until it
    /// has, see `watch_space`.
    engine_full: AtomicBool,
    state: Mutex<CommitState>,
    /// Separate from the state, which event loops lock: each notification takes a system call.
    listeners: Mutex<Vec<SyncListener>>,
    /// Wakes the sync thread.
    work: Condvar,
    /// Wakes callers blocked in `wait`.
    progress: Condvar,
}

impl Default for Commit {
    fn default() -> Self {
        Commit {
            written: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            synced_sequence: AtomicU64::new(0),
            urgent: AtomicBool::new(false),
            periodic_us: AtomicU64::new(u64::MAX),
            health: AtomicU8::new(HEALTHY),
            engine_full: AtomicBool::new(false),
            state: Mutex::default(),
            listeners: Mutex::default(),
            work: Condvar::new(),
            progress: Condvar::new(),
        }
    }
}

impl Commit {
    /// Ticket of the log's current content.
    pub(super) fn ticket(&self) -> Ticket {
        Ticket(self.written.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// Requests the sync that a write with this durability waits for.
    pub(super) fn ask(&self, durability: Durability) {
        match durability {
            Durability::Batch => self.hurry(),
            Durability::Periodic { interval } => self.ask_within(interval),
        }
    }

    /// Requests a sync now.
    pub(super) fn hurry(&self) {
        if !self.urgent.swap(true, Ordering::AcqRel) {
            // With the lock, so that the thread is either before its check or in its wait.
            self.wake(&self.lock());
        }
    }

    /// Requests a sync within the interval. Free if one is due anyway.
    fn ask_within(&self, interval: Duration) {
        let interval_us = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX - 1);
        if self.periodic_us.fetch_min(interval_us, Ordering::AcqRel) > interval_us {
            let mut state = self.lock();
            let at = Instant::now() + interval;
            if state.deadline.is_none_or(|deadline| at < deadline) {
                state.deadline = Some(at);
                self.wake(&state);
            }
        }
    }

    fn wake(&self, state: &CommitState) {
        if state.idle {
            self.work.notify_one();
        }
    }

    pub(super) fn durable(&self) -> Ticket {
        Ticket(self.durable.load(Ordering::Acquire))
    }

    /// Returns a ticket for everything visible with the engine at `sequence`, and requests a sync
    /// unless it is durable. A recent write may not have its ticket yet: a writer takes it after
    /// its write is visible.
    pub(super) fn settle_all(&self, sequence: u64) -> Ticket {
        let newest = match sequence > self.synced_sequence.load(Ordering::Acquire) {
            true => self.ticket(),
            false => Ticket(self.written.load(Ordering::Acquire)),
        };
        if newest > self.durable() {
            self.hurry();
        }
        newest
    }

    /// Returns the outcome of a ticket, if known.
    pub(super) fn known(&self, ticket: Ticket) -> Option<Result<(), StoreError>> {
        self.outcome(&self.lock(), ticket)
    }

    pub(super) fn wait(&self, ticket: Ticket) -> Result<(), StoreError> {
        let mut state = self.lock();
        loop {
            if let Some(outcome) = self.outcome(&state, ticket) {
                return outcome;
            }
            self.hurry_locked(&state);
            state.blocked += 1;
            state = self.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.blocked -= 1;
        }
    }

    pub(super) fn when_durable(&self, ticket: Ticket, callback: DurableCallback) {
        let mut state = self.lock();
        match self.outcome(&state, ticket) {
            Some(outcome) => {
                drop(state);
                callback(outcome);
            }
            None => state.callbacks.push((ticket, callback)),
        }
    }

    pub(super) fn subscribe(&self, listener: SyncListener) {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(listener);
    }

    fn hurry_locked(&self, state: &CommitState) {
        if !self.urgent.swap(true, Ordering::AcqRel) {
            self.wake(state);
        }
    }

    fn outcome(&self, state: &CommitState, ticket: Ticket) -> Option<Result<(), StoreError>> {
        if ticket <= self.durable() {
            return Some(Ok(()));
        }
        let lost = ticket <= state.failed_up_to
            || self.health.load(Ordering::Acquire) == POISONED
            || state.stop;
        lost.then(|| Err(self.error(state)))
    }

    fn error(&self, state: &CommitState) -> StoreError {
        match self.health.load(Ordering::Acquire) {
            FULL => StoreError::Full(state.reason.clone()),
            _ => StoreError::Poisoned(state.reason.clone()),
        }
    }

    /// Checks that the store accepts writes.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match self.health.load(Ordering::Acquire) {
            HEALTHY => Ok(()),
            _ => Err(self.error(&self.lock())),
        }
    }

    /// Checks that the store accepts writes that free space.
    pub(super) fn check_sound(&self) -> Result<(), StoreError> {
        match self.health.load(Ordering::Acquire) {
            HEALTHY | FULL => Ok(()),
            _ => Err(self.error(&self.lock())),
        }
    }

    /// Records a failed write or sync, and returns the resulting error of the store.
    pub(super) fn failed(&self, error: &EngineError) -> StoreError {
        let mut state = self.lock();
        match error {
            EngineError::Busy | EngineError::WouldBlock => {
                return StoreError::Engine(error.clone());
            }
            EngineError::NoSpace(why) => {
                self.engine_full.store(true, Ordering::Release);
                self.degrade(&mut state, FULL, why);
            }
            EngineError::Corrupt(why) | EngineError::Failed(why) => {
                if why.contains(OF_ANOTHER) {
                    state = self.wait_for_reason(state);
                    if self.health.load(Ordering::Acquire) != HEALTHY {
                        return self.error(&state);
                    }
                }
                self.degrade(&mut state, POISONED, why);
            }
        }
        self.error(&state)
    }

    /// Waits until the state has a reason, up to a limit.
    fn wait_for_reason<'s>(
        &'s self,
        state: MutexGuard<'s, CommitState>,
    ) -> MutexGuard<'s, CommitState> {
        let has_none = |state: &mut CommitState| state.reason.is_empty();
        let waited = self.progress.wait_timeout_while(state, OF_ANOTHER_MAX, has_none);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn degrade(&self, state: &mut CommitState, health: u8, why: &str) {
        if self.health.fetch_max(health, Ordering::AcqRel) < health {
            why.clone_into(&mut state.reason);
            self.progress.notify_all();
        }
    }

    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.stop = true;
        if state.reason.is_empty() {
            "the store was closed".clone_into(&mut state.reason);
        }
        self.work.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, CommitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for work; returns whether to sync, and whether it is the last time.
    fn next_work(&self, watch_interval: Duration) -> (bool, bool) {
        let mut state = self.lock();
        let watch_at = Instant::now() + watch_interval;
        loop {
            let now = Instant::now();
            let due = state.deadline.is_some_and(|deadline| deadline <= now);
            if self.urgent.swap(false, Ordering::AcqRel) || state.stop || due {
                state.deadline = None;
                // Earlier requests follow earlier writes, which the sync covers.
                self.periodic_us.swap(u64::MAX, Ordering::AcqRel);
                return (true, state.stop);
            }
            let until = state.deadline.map_or(watch_at, |deadline| deadline.min(watch_at));
            if until <= now {
                return (false, false);
            }
            state.idle = true;
            state = self
                .work
                .wait_timeout(state, until - now)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            state.idle = false;
        }
    }

    /// Answers all waiters that a sync decides.
    fn settle(&self, up_to: Ticket, result: Result<(), EngineError>) {
        let outcome = match &result {
            Ok(()) => {
                self.durable.fetch_max(up_to.0, Ordering::AcqRel);
                Ok(up_to)
            }
            Err(error) => Err(self.failed(error)),
        };
        let mut state = self.lock();
        if outcome.is_err() {
            state.failed_up_to = state.failed_up_to.max(up_to);
        }
        let mut told = Vec::new();
        let waiting = std::mem::take(&mut state.callbacks);
        for (ticket, callback) in waiting {
            match self.outcome(&state, ticket) {
                Some(result) => told.push((callback, result)),
                None => state.callbacks.push((ticket, callback)),
            }
        }
        let blocked = state.blocked > 0;
        drop(state);
        if blocked {
            self.progress.notify_all();
        }
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.iter().for_each(|listener| listener(&outcome));
        drop(listeners);
        told.into_iter().for_each(|(callback, result)| callback(result));
    }
}

/// The sync thread; runs until the store is closed.
pub(super) fn run(shared: &Arc<Shared>) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| serve(shared))) {
        // Waiters would wait forever otherwise.
        let died =
            EngineError::Failed("the thread that syncs has died; the log says where".to_owned());
        let up_to = Ticket(shared.commit.written.load(Ordering::Acquire));
        shared.commit.settle(up_to, Err(died));
        resume_unwind(panic);
    }
}

fn serve(shared: &Arc<Shared>) {
    let commit = &shared.commit;
    let (mut noted, mut watched) = (Instant::now(), None::<Instant>);
    loop {
        let (sync, last) = commit.next_work(shared.options.watch_interval);
        if shared.catalogue.has_pending() {
            // Rows list their columns in the meantime, so a failure here only costs bytes.
            if shared.catalogue.persist_and(|next_id| shared.note_schemas(next_id)).is_err() {
                shared.figures.catalogue_failed();
            }
        }
        if sync && commit.health.load(Ordering::Acquire) != POISONED {
            sync_once(shared);
        }
        if last || noted.elapsed() >= shared.options.watch_interval {
            shared.note_manifest();
            noted = Instant::now();
        }
        if last {
            // Answers callbacks that no later sync would.
            commit.settle(Ticket(0), Ok(()));
            return;
        }
        let interval = WATCH_INTERVAL_MIN.min(shared.options.watch_interval);
        let writable = commit.health.load(Ordering::Acquire) == HEALTHY;
        if !writable || watched.is_none_or(|watched| watched.elapsed() >= interval) {
            watch_space(shared);
            watched = Some(Instant::now());
        }
    }
}

fn sync_once(shared: &Arc<Shared>) {
    let commit = &shared.commit;
    let up_to = Ticket(commit.written.load(Ordering::Acquire));
    if up_to == commit.durable() {
        return;
    }
    if commit.engine_full.load(Ordering::Acquire) {
        let reason = commit.lock().reason.clone();
        return commit.settle(up_to, Err(EngineError::NoSpace(reason)));
    }
    let begun = Instant::now();
    let sequence = shared.engine.sequence();
    let result = shared.engine.sync();
    if result.is_ok() {
        commit.synced_sequence.fetch_max(sequence, Ordering::AcqRel);
        if let Some(marker) = &shared.marker {
            // A failure only means that a loss could go unnoticed.
            let _ = marker.note(sequence, &shared.engine.synced_logs());
        }
    }
    shared.figures.synced(up_to.0 - commit.durable().0, begun.elapsed());
    commit.settle(up_to, result);
}

/// Closes the store for writes before the disk is completely full, which leaves room for compaction
/// to free space; opens it again when there is enough, and the engine can sync again.
///
/// After a write that found no room the engine recovers by itself: it checks for room every five
/// seconds, writes its memtables out and begins a new log. A sync in between would fail for another
/// reason than room, after which the engine gives up. The engine is therefore probed with a write,
/// which it refuses untouched until it has recovered.
fn watch_space(shared: &Arc<Shared>) {
    let commit = &shared.commit;
    let free = shared.free_bytes();
    let reserve = shared.options.reserve_bytes;
    match commit.health.load(Ordering::Acquire) {
        HEALTHY if free < reserve => {
            let why = format!("{free} bytes are free, {reserve} are kept in reserve");
            commit.degrade(&mut commit.lock(), FULL, &why);
        }
        FULL if free >= reserve => {
            let up_to = Ticket(commit.written.load(Ordering::Acquire));
            if commit.engine_full.load(Ordering::Acquire) {
                match shared.probe() {
                    Ok(()) => commit.engine_full.store(false, Ordering::Release),
                    // Also if the engine has given up, which `failed` records.
                    Err(error) => return drop(commit.failed(&error)),
                }
            }
            if shared.engine.sync().is_ok() {
                // Only from full: a failure in the meantime stays.
                let reopened = commit.health.compare_exchange(
                    FULL,
                    HEALTHY,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                );
                if reopened.is_ok() {
                    commit.lock().reason.clear();
                    commit.settle(up_to, Ok(()));
                }
            }
        }
        _ => {}
    }
}
