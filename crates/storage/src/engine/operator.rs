//! Functions that RocksDB calls back: merging, and purging during compaction.
//!
//! A read limited to memory must not take long either, but RocksDB passes all fragments of a key at
//! once. Beyond a bound ([`super::is_quick`]) this module does not merge them for such a read.
//! RocksDB then gets a placeholder that is not a value and must never reach a caller: the reader
//! checks [`Reading::is_given_up`] first. The placeholder is not stored either, since a merge for a
//! reader goes to that reader alone.

use super::{Merger, ReadTier, Verdict, is_quick};
use rocksdb::compaction_filter::{CompactionFilter, Decision};
use rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};
use rocksdb::{MergeOperands, Options};
use rustix::process::{getpriority_process, setpriority_process};
use std::cell::Cell;
use std::ffi::CStr;
use std::sync::Arc;

thread_local! {
    /// Tier of this thread's current read, if any. The merge operator then reports the number of
    /// fragments and purges nothing.
    static READING: Cell<Option<ReadTier>> = const { Cell::new(None) };
    static FRAGMENTS: Cell<u32> = const { Cell::new(0) };
    static GIVEN_UP: Cell<bool> = const { Cell::new(false) };
    /// True if this thread's priority was lowered.
    static LOWERED: Cell<bool> = const { Cell::new(false) };
}

/// The kernel's maximum.
const NICE_MAX: i32 = 19;

/// Guard for the duration of a read.
pub(super) struct Reading(());

impl Reading {
    pub(super) fn begin(tier: ReadTier) -> Self {
        READING.set(Some(tier));
        FRAGMENTS.set(0);
        GIVEN_UP.set(false);
        Reading(())
    }

    /// Number of fragments that the value was merged from.
    pub(super) fn fragments(&self) -> u32 {
        FRAGMENTS.get().max(1)
    }

    /// True if there were more fragments than the read may merge.
    pub(super) fn is_given_up(&self) -> bool {
        GIVEN_UP.get()
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        READING.set(None);
    }
}

pub(super) fn set_merger(db: &mut Options, merger: Arc<dyn Merger>) {
    let (whole, partial) = (Arc::clone(&merger), Arc::clone(&merger));
    let merge_whole = move |key: &[u8], base: Option<&[u8]>, operands: &MergeOperands| {
        let fragments: Vec<&[u8]> = operands.iter().collect();
        let reading = READING.get();
        if let Some(tier) = reading {
            FRAGMENTS.set(fragments.len() as u32 + u32::from(base.is_some()));
            if tier == ReadTier::Memory && !is_quick(base, &fragments) {
                GIVEN_UP.set(true);
                return Some(Vec::new());
            }
        }
        Some(whole.merge(key, base, &fragments, reading.is_none()))
    };
    let merge_partial = move |key: &[u8], _: Option<&[u8]>, operands: &MergeOperands| {
        let fragments: Vec<&[u8]> = operands.iter().collect();
        partial.merge_fragments(key, &fragments)
    };
    db.set_merge_operator("shunt.rows", merge_whole, merge_partial);
    db.set_compaction_filter_factory(PurgeFactory { merger });
}

/// Amount by which compaction threads raise their nice value above the process's. On few cores they
/// would take time from event loops and syncs, which clients wait for; no client waits for
/// compaction until it is far behind.
const COMPACTION_NICE: i32 = 5;

/// Lowers the priority of this thread once.
fn lower_priority() {
    if !LOWERED.replace(true) {
        // Linux applies this call to the calling thread only. Where it is not permitted, compaction
        // competes for the CPU.
        let lower = getpriority_process(None).map(|nice| (nice + COMPACTION_NICE).min(NICE_MAX));
        let _ = lower.and_then(|nice| setpriority_process(None, nice));
    }
}

/// Creates the filter of each compaction.
struct PurgeFactory {
    merger: Arc<dyn Merger>,
}

impl CompactionFilterFactory for PurgeFactory {
    type Filter = Purge;

    /// Runs on the thread that compacts.
    fn create(&mut self, _context: CompactionFilterContext) -> Purge {
        lower_priority();
        Purge { merger: Arc::clone(&self.merger) }
    }

    fn name(&self) -> &CStr {
        c"shunt.purge"
    }
}

/// Filter that sees values merged down to their base, but no fragments above them.
struct Purge {
    merger: Arc<dyn Merger>,
}

impl CompactionFilter for Purge {
    fn filter(&mut self, _level: u32, key: &[u8], value: &[u8]) -> Decision {
        match self.merger.verdict(key, value) {
            Verdict::Keep => Decision::Keep,
            Verdict::Remove => Decision::Remove,
        }
    }

    fn name(&self) -> &CStr {
        c"shunt.purge"
    }
}
