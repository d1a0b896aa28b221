//! Path of writes: encoded, through the gate, into the log and the memtable, visible to readers,
//! with a ticket.
//!
//! If writes arrive faster than compaction, the engine delays them, and then stops them. An event
//! loop is refused immediately ([`Store::append`]); other callers wait ([`Store::apply`]), for a
//! limited time and without holding a lock that a loop takes.

use super::error::StoreError;
use super::options::{Durability, MutationRef, Ticket};
use super::shared::{Shared, Store};
use crate::catalogue::{encode_header, encode_row};
use crate::engine::{EngineError, Pace, Stall, Write};
use crate::key::{self, Target};
use crate::row::Fragment;
use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, RwLockReadGuard, TryLockError};
use std::time::{Duration, Instant};

/// Sleep between two checks of a caller that waits for compaction.
const STALL_POLL: Duration = Duration::from_millis(5);

/// Outcome of an [`Store::append`].
#[derive(Debug)]
pub struct Appended {
    /// Ticket of everything that was written.
    pub ticket: Ticket,
    /// Requests that cannot be executed, by position, with the reason. All others are written.
    pub refused: Vec<(usize, StoreError)>,
}

impl Store {
    /// Writes all of the mutations or none. They are visible immediately, and durable with the
    /// ticket, for which a sync is requested. Must not run on an event loop: it waits if compaction
    /// falls behind, and fails with [`StoreError::Stalled`] after
    /// [`super::StoreOptions::stall_wait_max`].
    pub fn apply<'m, M>(&self, mutations: M, durability: Durability) -> Result<Ticket, StoreError>
    where
        M: IntoIterator<Item: Into<MutationRef<'m>>, IntoIter: Clone>,
    {
        self.shared.commit.check()?;
        let mutations = mutations.into_iter().map(Into::into);
        let count = Cell::new(0);
        self.shared.write_patiently(|shared, stall| {
            let mut batch = Vec::new();
            shared.encode(mutations.clone(), &mut batch)?;
            count.set(batch.len());
            shared.write_visibly(&batch, stall)
        })?;
        self.shared.figures.applied(1, count.get());
        let ticket = self.shared.commit.ticket();
        self.request_sync(durability);
        Ok(ticket)
    }

    /// Checks that [`Store::apply`] would take these mutations now, and writes nothing: for a
    /// request to several stores, none of which is to have its part if another refuses.
    pub fn check_request<'m>(
        &self,
        mutations: impl IntoIterator<Item = MutationRef<'m>>,
    ) -> Result<(), StoreError> {
        self.shared.commit.check()?;
        self.shared.encode(mutations, &mut Vec::new())
    }

    /// Writes the mutations of several requests as one batch: one record in the log, and one
    /// ticket. A request's mutations are written all or none; a refused request does not affect the
    /// others. For an event loop: if compaction falls behind, nothing is written, and the error is
    /// [`EngineError::Busy`]. Does not request a sync, see [`Store::request_sync`].
    pub fn append<'m, R>(
        &self,
        requests: impl IntoIterator<Item = R>,
    ) -> Result<Appended, StoreError>
    where
        R: IntoIterator<Item = MutationRef<'m>>,
    {
        let shared = &*self.shared;
        shared.commit.check()?;
        let (mut batch, mut refused, mut count) = (Vec::new(), Vec::new(), 0);
        {
            let _gate = shared.enter_gate_at_once().ok_or(StoreError::Engine(EngineError::Busy))?;
            for (place, request) in requests.into_iter().enumerate() {
                let before = batch.len();
                if let Err(error) = shared.encode(request, &mut batch) {
                    batch.truncate(before);
                    refused.push((place, error));
                } else {
                    count += 1;
                }
            }
            if !batch.is_empty() {
                shared.write_visibly(&batch, Stall::Refuse)?;
            }
        }
        if count > 0 {
            shared.figures.applied(count, batch.len());
        }
        Ok(Appended { ticket: shared.commit.ticket(), refused })
    }

    /// Requests the sync that makes all earlier writes durable.
    pub fn request_sync(&self, durability: Durability) {
        self.shared.commit.ask(durability);
        if self.shared.catalogue.has_pending() {
            self.shared.commit.hurry();
        }
    }
}

impl Shared {
    /// Appends the writes of a request to a batch; on an error, a part of them may be there.
    pub(super) fn encode<'m>(
        &self,
        mutations: impl IntoIterator<Item = MutationRef<'m>>,
        batch: &mut Vec<Write>,
    ) -> Result<(), StoreError> {
        let mut bytes = 0;
        for mutation in mutations {
            let key = key::record(mutation.table, mutation.partition, mutation.target)?;
            let mut record = Vec::new();
            match (mutation.fragment, mutation.target) {
                (Fragment::Header(header), Target::Header) => {
                    self.note_header(mutation.table, batch);
                    let mut header = header.clone();
                    header.canonicalise();
                    encode_header(&header, &mut record);
                }
                (Fragment::Row(row), Target::Row(_) | Target::Static) if row.is_canonical() => {
                    encode_row(row, mutation.table, &self.catalogue, &mut record);
                }
                (Fragment::Row(row), Target::Row(_) | Target::Static) => {
                    let mut row = row.clone();
                    row.canonicalise();
                    encode_row(&row, mutation.table, &self.catalogue, &mut record);
                }
                _ => return Err(StoreError::Misplaced),
            }
            bytes += key.len() + record.len();
            batch.push(Write::Merge(key, record));
        }
        if bytes > self.options.batch_bytes_max {
            return Err(StoreError::TooLarge { bytes, most: self.options.batch_bytes_max });
        }
        Ok(())
    }

    pub(super) fn write(&self, batch: &[Write], stall: Stall) -> Result<(), StoreError> {
        let outcome = self.engine.write(batch, stall);
        // A failed write leaves an unknown state; a temporarily refused one changes nothing.
        if outcome != Err(EngineError::Busy) {
            self.changes.wrote(batch, |key| self.ask_write_back(key));
        }
        outcome.map_err(|error| self.commit.failed(&error))
    }

    /// Writes through the gate, repeating while the engine refuses temporarily. Holds nothing
    /// between two attempts.
    #[allow(clippy::disallowed_methods, reason = "no event loop comes here: they append")]
    pub(super) fn write_patiently(
        &self,
        write: impl Fn(&Shared, Stall) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let first = self.attempt(&write, Stall::Refuse);
        let Err(StoreError::Engine(EngineError::Busy)) = first else { return first };
        let begun = Instant::now();
        let until = begun + self.options.stall_wait_max;
        let outcome = loop {
            if Instant::now() >= until {
                break Err(StoreError::Stalled(self.options.stall_wait_max));
            }
            let stall = match self.engine.pace() {
                Pace::Free | Pace::Stopped => {
                    std::thread::sleep(STALL_POLL);
                    Stall::Refuse
                }
                // The engine accepts the write after a delay that keeps its rate.
                Pace::Delayed => Stall::Wait,
            };
            match self.attempt(&write, stall) {
                Err(StoreError::Engine(EngineError::Busy)) => {}
                outcome => break outcome,
            }
        };
        self.figures.stalled(begun.elapsed());
        outcome
    }

    fn attempt(
        &self,
        write: &impl Fn(&Shared, Stall) -> Result<(), StoreError>,
        stall: Stall,
    ) -> Result<(), StoreError> {
        // Before the gate, so that a loop that finds it taken knows the reason.
        let waits = usize::from(stall == Stall::Wait);
        self.delayed.fetch_add(waits, Ordering::SeqCst);
        let outcome = {
            let _gate = self.enter_gate();
            write(self, stall)
        };
        self.delayed.fetch_sub(waits, Ordering::SeqCst);
        outcome
    }

    /// Enters as a writer: before or after a replacement of a row's fragments, never in between.
    fn enter_gate(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters as a writer that must not wait for one that may wait for compaction. An exclusive
    /// holder keeps the gate for one row.
    fn enter_gate_at_once(&self) -> Option<RwLockReadGuard<'_, ()>> {
        if self.delayed.load(Ordering::SeqCst) > 0 {
            return None;
        }
        match self.gate.try_read() {
            Ok(gate) => Some(gate),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if self.delayed.load(Ordering::SeqCst) > 0 => None,
            Err(TryLockError::WouldBlock) => Some(self.enter_gate()),
        }
    }
}
