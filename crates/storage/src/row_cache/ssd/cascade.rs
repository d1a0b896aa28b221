//! The thread that writes rows to SSD, and the collection of segments that makes room for them.
//!
//! A row is appended first. The index points to it afterwards, under the lock of its shard and only
//! if the row was not written since it left memory; otherwise the appended bytes are garbage.
//! Collection moves a row the same way: only if the index still points to its old place.

use std::collections::VecDeque;
use std::io;
use std::thread;

use super::super::locks::lock;
use super::super::shared::Shared;
use super::file::AlignedBuffer;
use super::index::Location;
use super::log::{Appender, Log};
use super::page::{PAGE_BYTES, RECORD_PAGES_MAX, Record, pages_here, record_pages, records};
use super::{Spill, SsdTier};

/// Pages of a segment read at once by collection; no record is larger.
const COLLECT_PAGES: usize = 64;
const _: () = assert!(COLLECT_PAGES > RECORD_PAGES_MAX);

/// Processes the queue until it is closed.
pub(crate) fn run(shared: &Shared) {
    let Some(ssd) = &shared.ssd else { return };
    let _end = End { shared, ssd };
    let mut batch = VecDeque::new();
    while ssd.queue.take(&mut batch) {
        for spill in batch.drain(..) {
            let mut appender = lock(&ssd.appender);
            let mut cascade = Cascade { shared, ssd, log: &ssd.log, appender: &mut appender };
            if let Err(error) = cascade.write(&spill) {
                drop(appender);
                ssd.counters.write_errors.increment();
                shared.turn_ssd_off(&format!("writing failed: {error}"));
            }
            ssd.queue.written(&spill);
        }
    }
}

/// Ends the tier with the thread, however it ended, so that no caller waits for it.
struct End<'a> {
    shared: &'a Shared,
    ssd: &'a SsdTier,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.ssd.queue.close();
        if thread::panicking() {
            self.shared.turn_ssd_off("its thread panicked");
        }
    }
}

struct Cascade<'a> {
    shared: &'a Shared,
    ssd: &'a SsdTier,
    log: &'a Log,
    appender: &'a mut Appender,
}

impl Cascade<'_> {
    fn write(&mut self, spill: &Spill) -> io::Result<()> {
        let record =
            Record { key: spill.row.key(), payload: spill.row.record(), epoch: spill.epoch };
        let shard = self.shared.shard(spill.hash);
        let wanted = || {
            let state = shard.read();
            state.agrees(spill.hash, spill.generation) && !state.is_on_ssd(spill.hash)
        };
        if !self.ssd.is_on() || record_pages(record.encoded_bytes()) > RECORD_PAGES_MAX || !wanted()
        {
            self.ssd.counters.rows_dropped.increment();
            return Ok(());
        }
        let mut location = self.appender.append(self.log, &record)?;
        if location.is_none() {
            self.roll()?;
            location = self.appender.append(self.log, &record)?;
        }
        let Some(location) = location else {
            self.ssd.counters.rows_dropped.increment();
            return Ok(());
        };
        let mut state = shard.write();
        // Checked again under the lock: the thread that turns the tier off empties the indexes
        // afterwards.
        if self.ssd.is_on() && state.agrees(spill.hash, spill.generation) {
            self.ssd.counters.rows_written.increment();
            self.ssd.counters.row_bytes_written.add(record.encoded_bytes() as u64);
            if state.point_to(spill.hash, location, self.log) {
                self.ssd.counters.evictions.increment();
            }
        } else {
            self.ssd.counters.rows_dropped.increment();
        }
        Ok(())
    }

    /// Continues with the next segment, and collects one if that was the last free one.
    fn roll(&mut self) -> io::Result<()> {
        self.appender.roll(self.log)?;
        if self.appender.is_last(self.log)
            && let Some(victim) = self.appender.choose(self.log)
        {
            self.collect(victim)?;
            self.appender.free(victim);
            self.ssd.counters.segments_collected.increment();
        }
        Ok(())
    }

    /// Rewrites the live, referenced rows of a segment and drops the others.
    fn collect(&mut self, victim: u32) -> io::Result<()> {
        let pages = self.log.pages_of(victim);
        let sequence = self.log.sequence(pages.start);
        let mut buffer = AlignedBuffer::new(COLLECT_PAGES * PAGE_BYTES);
        let mut page = pages.start;
        while page < pages.end && self.log.live(victim) > 0 {
            let count = COLLECT_PAGES.min((pages.end - page) as usize);
            self.log.read_pages(page, &mut buffer.bytes_mut()[..count * PAGE_BYTES])?;
            let chunk = &buffer.bytes()[..count * PAGE_BYTES];
            let mut at = 0;
            while at < count {
                let first = &chunk[at * PAGE_BYTES..];
                let spanned = pages_here(first, sequence).unwrap_or(1);
                if at > 0 && at + spanned > count {
                    break;
                }
                let end = (spanned * PAGE_BYTES).min(first.len());
                for (slot, record) in records(&first[..end], sequence) {
                    self.keep_or_drop(Location { page: page + at as u32, slot }, &record)?;
                }
                at += spanned;
            }
            page += at as u32;
        }
        // Rows on unreadable pages: no index entry may point into the segment when it is reused.
        if self.log.live(victim) > 0 {
            let forgotten: u32 = self
                .shared
                .shards
                .iter()
                .map(|shard| shard.write().forget_pages(pages.clone(), self.log))
                .sum();
            self.ssd.counters.evictions.add(forgotten.into());
        }
        debug_assert_eq!(
            self.log.live(victim),
            0,
            "something points into a segment that is free now"
        );
        Ok(())
    }

    fn keep_or_drop(&mut self, from: Location, record: &Record<'_>) -> io::Result<()> {
        let hash = self.shared.keys.hash(record.key);
        let shard = self.shared.shard(hash);
        let state = shard.read();
        let referenced = state.index.as_ref().and_then(|index| index.referenced_at(hash, from));
        // A row that is also in memory comes back here when it leaves memory.
        let in_memory = state.memory.holds(hash, record.key);
        drop(state);
        let Some(referenced) = referenced else { return Ok(()) };
        let rewrite = referenced && !in_memory && !self.appender.is_half_full(self.log);
        let to = if rewrite { self.appender.append(self.log, record)? } else { None };
        let mut state = shard.write();
        let points_here =
            state.index.as_ref().is_some_and(|index| index.referenced_at(hash, from).is_some());
        match to {
            Some(to) if points_here => {
                state.point_to(hash, to, self.log);
                self.ssd.counters.rows_rewritten.increment();
            }
            Some(_) => {}
            None => {
                if state.forget_at(hash, from, self.log) {
                    self.ssd.counters.evictions.increment();
                }
            }
        }
        Ok(())
    }
}
