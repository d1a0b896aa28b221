//! The functions that RocksDB calls back: merging, and forgetting while it compacts.
//!
//! A read that may look at memory alone may not take long either, and RocksDB hands over all
//! fragments of a key at once, however many. Beyond a bound ([`super::is_quick`]) they are not
//! merged for it: what RocksDB is told then is no value, and may never be shown to anybody. Who
//! reads asks [`Reading::is_given_up`] before looking at it. It is not kept either: what is merged
//! for a reader goes to that reader alone.

use super::{Merger, ReadTier, Verdict, is_quick};
use rocksdb::compaction_filter::{CompactionFilter, Decision};
use rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};
use rocksdb::{MergeOperands, Options};
use rustix::process::{getpriority_process, setpriority_process};
use std::cell::Cell;
use std::ffi::CStr;
use std::sync::Arc;

thread_local! {
    /// Where this thread's read may look, if it is in one: the merge operator then says how much it
    /// merged, and purges nothing.
    static READING: Cell<Option<ReadTier>> = const { Cell::new(None) };
    static FRAGMENTS: Cell<u32> = const { Cell::new(0) };
    static GIVEN_UP: Cell<bool> = const { Cell::new(false) };
    /// True if this thread's priority was lowered.
    static LOWERED: Cell<bool> = const { Cell::new(false) };
}

/// The kernel's.
const NICE_MAX: i32 = 19;

/// While a read goes on.
pub(super) struct Reading(());

impl Reading {
    pub(super) fn begin(tier: ReadTier) -> Self {
        READING.set(Some(tier));
        FRAGMENTS.set(0);
        GIVEN_UP.set(false);
        Reading(())
    }

    /// From how many fragments the value was merged.
    pub(super) fn fragments(&self) -> u32 {
        FRAGMENTS.get().max(1)
    }

    /// True if there were more fragments than it may merge.
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

/// The number that compaction's threads add to the nice value of the process. On few cores they
/// would take the time of event loops and syncs, which a client waits for; nobody waits for
/// compaction until it is far behind.
const COMPACTION_NICE: i32 = 5;

/// Lowers the priority of this thread, once.
fn lower_priority() {
    if !LOWERED.replace(true) {
        // Linux takes the calling thread for the process. Where it may not be changed, compaction
        // competes.
        let lower = getpriority_process(None).map(|nice| (nice + COMPACTION_NICE).min(NICE_MAX));
        let _ = lower.and_then(|nice| setpriority_process(None, nice));
    }
}

/// Makes the filter of each compaction.
struct PurgeFactory {
    merger: Arc<dyn Merger>,
}

impl CompactionFilterFactory for PurgeFactory {
    type Filter = Purge;

    /// On the thread that compacts.
    fn create(&mut self, _context: CompactionFilterContext) -> Purge {
        lower_priority();
        Purge { merger: Arc::clone(&self.merger) }
    }

    fn name(&self) -> &CStr {
        c"shunt.purge"
    }
}

/// Sees values that are merged down to their base; fragments above them it never sees.
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
