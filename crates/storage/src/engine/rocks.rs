//! The engine on RocksDB.
//!
//! All tables are in one column family: one log, so that a batch over several tables is one write;
//! and one set of files, so that ten tables do not need ten sets of memtables. A table is a range
//! of keys; dropping it is a range deletion.
//!
//! Compaction is levelled with dynamic level sizes: it takes about 1.1 times the data on disk and
//! keeps a key in few files, which suits a node with one disk and many reads. Universal compaction
//! writes less, but needs up to twice the space and rewrites on every opening. Filters hold whole
//! keys and partitions: a read of a missing row or of a missing partition touches no disk. Blocks
//! are LZ4, those of the last level Zstandard.
//!
//! [`Engine::sync`] writes and syncs the log. Writers that wait for one sync share it, and a crash
//! of the process loses exactly as much as a crash of the machine.

use super::logs;
use super::operator::{Reading, set_merger};
use super::{
    Cursor, DataFile, Engine, EngineError, Entry, Found, LogMark, Merger, Pace, ReadTier, Sizes,
    Span, Stall, Write,
};
use crate::key::prefix_bytes;
use rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, CompactOptions, DB, DBCompressionType,
    DBRawIterator, DBRecoveryMode, ErrorKind, LogLevel, Options, ReadOptions, SliceTransform,
    WriteBatch, WriteOptions, checkpoint::Checkpoint, properties,
};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::StrDeserializer;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Options of the engine.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Size of the cache for blocks, indexes and filters in memory.
    pub block_cache_bytes: usize,
    /// Size of one memtable; there may be three.
    pub memtable_bytes: usize,
    /// Size of a block before compression; a read of a row reads one block.
    pub block_bytes: usize,
    /// Threads for flushes and compactions.
    pub background_jobs: i32,
    /// Most files kept open.
    pub open_files_max: i32,
    /// True if blocks are compressed.
    pub compression: bool,
    /// Bypass the page cache, if it is small or to measure the disk.
    pub direct_reads: bool,
    /// Collect counters of cache, filters and compaction.
    pub statistics: bool,
    /// Create the database if it is absent.
    pub create: bool,
    /// Open despite damage in the middle of the log, losing the writes behind the damage.
    pub accept_damaged_log: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            block_cache_bytes: 128 << 20,
            memtable_bytes: 64 << 20,
            block_bytes: 8 << 10,
            background_jobs: 2,
            open_files_max: 512,
            compression: true,
            direct_reads: false,
            statistics: true,
            create: true,
            accept_damaged_log: false,
        }
    }
}

/// A RocksDB database.
pub struct RocksEngine {
    db: DB,
    options: Options,
    cache: Cache,
    patient_writes: WriteOptions,
    writes_at_once: WriteOptions,
    disk_reads: ReadOptions,
    memory_reads: ReadOptions,
    /// Writers hold it shared. The thread that passes the log's buffer to the kernel holds it
    /// exclusively: if that fails, RocksDB records the failure only a moment later, and a writer in
    /// between would meet an unusable log. RocksDB would then stop permanently, or abort the
    /// process in builds with assertions. RocksDB blocks writers during that call anyway.
    log: RwLock<()>,
    directory: PathBuf,
    synced_logs: Mutex<Vec<LogMark>>,
}

impl RocksEngine {
    /// Opens or creates a database; replays the part of the log that is not in files.
    pub fn open(
        directory: &Path,
        options: &EngineOptions,
        merger: Arc<dyn Merger>,
    ) -> Result<Self, EngineError> {
        let (db_options, cache) = build_options(options, merger)?;
        let db = DB::open(&db_options, directory).map_err(engine_error)?;
        RocksEngine::from_parts(db, db_options, cache, directory)
    }

    /// Opens a database read-only; the directory stays unchanged.
    pub fn open_read_only(
        directory: &Path,
        options: &EngineOptions,
        merger: Arc<dyn Merger>,
    ) -> Result<Self, EngineError> {
        let (mut db_options, cache) = build_options(options, merger)?;
        db_options.create_if_missing(false);
        let db = DB::open_for_read_only(&db_options, directory, false).map_err(engine_error)?;
        RocksEngine::from_parts(db, db_options, cache, directory)
    }

    fn from_parts(
        db: DB,
        db_options: Options,
        cache: Cache,
        directory: &Path,
    ) -> Result<Self, EngineError> {
        let mut at_once = WriteOptions::default();
        at_once.set_no_slowdown(true);
        let disk_reads = ReadOptions::default();
        let memory_reads = memory_reads()?;
        Ok(RocksEngine {
            db,
            options: db_options,
            cache,
            patient_writes: WriteOptions::default(),
            writes_at_once: at_once,
            disk_reads,
            memory_reads,
            log: RwLock::new(()),
            directory: directory.to_owned(),
            synced_logs: Mutex::default(),
        })
    }

    /// Changes options of an open database, under RocksDB's names.
    #[cfg(test)]
    pub(super) fn set_options(&self, options: &[(&str, &str)]) {
        self.db
            .set_options(options)
            .map_err(engine_error)
            .unwrap_or_else(|error| panic!("{error}"));
    }

    fn property(&self, name: &CStr) -> u64 {
        self.db.property_int_value(name).ok().flatten().unwrap_or_default()
    }
}

/// Options for reads from memory only. This version of the crate does not export the type of its
/// read tiers, but the tier can be parsed from its name.
fn memory_reads() -> Result<ReadOptions, EngineError> {
    let mut options = ReadOptions::default();
    let name: StrDeserializer<'_, serde::de::value::Error> = "BlockCache".into_deserializer();
    options.set_read_tier(
        Deserialize::deserialize(name).map_err(|error| EngineError::Failed(error.to_string()))?,
    );
    Ok(options)
}

fn build_options(
    options: &EngineOptions,
    merger: Arc<dyn Merger>,
) -> Result<(Options, Cache), EngineError> {
    let cache = Cache::new_lru_cache(options.block_cache_bytes).map_err(engine_error)?;
    let mut table = BlockBasedOptions::default();
    table.set_block_size(options.block_bytes);
    table.set_block_cache(&cache);
    table.set_bloom_filter(10.0, false);
    table.set_whole_key_filtering(true);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_format_version(5);

    let mut db = Options::default();
    db.create_if_missing(options.create);
    db.set_block_based_table_factory(&table);
    db.set_prefix_extractor(SliceTransform::create(
        "shunt.partition",
        |key| &key[..prefix_bytes(key)],
        None,
    ));
    // A read looks for a header and a static row, which most partitions lack.
    db.set_memtable_prefix_bloom_ratio(0.02);
    db.set_memtable_whole_key_filtering(true);
    db.set_level_compaction_dynamic_level_bytes(true);
    if options.compression {
        db.set_compression_type(DBCompressionType::Lz4);
        db.set_bottommost_compression_type(DBCompressionType::Zstd);
    } else {
        db.set_compression_type(DBCompressionType::None);
    }
    db.set_write_buffer_size(options.memtable_bytes);
    db.set_max_write_buffer_number(3);
    db.set_max_background_jobs(options.background_jobs);
    db.set_max_open_files(options.open_files_max);
    db.set_manual_wal_flush(true);
    // Damage anywhere except in an unfinished write at the end prevents opening: later records were
    // acknowledged.
    db.set_wal_recovery_mode(match options.accept_damaged_log {
        false => DBRecoveryMode::TolerateCorruptedTailRecords,
        true => DBRecoveryMode::PointInTime,
    });
    db.set_use_direct_reads(options.direct_reads);
    db.set_bytes_per_sync(1 << 20);
    // RocksDB's information log gets only its options. A line that does not fit on the disk breaks
    // RocksDB's logger, and the next line aborts the process in builds with assertions, such as
    // Debian's. Such builds would also log two lines for every sync.
    db.set_log_level(LogLevel::Header);
    db.set_keep_log_file_num(4);
    db.set_stats_dump_period_sec(0);
    db.set_stats_persist_period_sec(0);
    if options.statistics {
        db.enable_statistics();
    }
    set_merger(&mut db, merger);
    Ok((db, cache))
}

fn engine_error(error: rocksdb::Error) -> EngineError {
    // RocksDB also tries LevelDB's name for a missing file, and reports only that name.
    let text = error.to_string().replace(".ldb", ".sst");
    match error.kind() {
        _ if text.contains("No space left on device") || text.contains("NoSpace") => {
            EngineError::NoSpace(text)
        }
        ErrorKind::Corruption => EngineError::Corrupt(text),
        ErrorKind::Incomplete | ErrorKind::Busy | ErrorKind::TryAgain => EngineError::Busy,
        _ => EngineError::Failed(text),
    }
}

impl Engine for RocksEngine {
    fn get(&self, key: &[u8], tier: ReadTier) -> Result<Found, EngineError> {
        let options = match tier {
            ReadTier::Disk => &self.disk_reads,
            ReadTier::Memory => &self.memory_reads,
        };
        let reading = Reading::begin(tier);
        match self.db.get_pinned_opt(key, options) {
            Ok(_) if reading.is_given_up() => Ok(Found::WouldBlock),
            Ok(None) => Ok(Found::Absent),
            Ok(Some(value)) => {
                Ok(Found::Value { bytes: value.to_vec(), fragments: reading.fragments() })
            }
            Err(error) if error.kind() == ErrorKind::Incomplete => Ok(Found::WouldBlock),
            Err(error) => Err(engine_error(error)),
        }
    }

    fn write(&self, batch: &[Write], stall: Stall) -> Result<(), EngineError> {
        let mut writes = WriteBatch::default();
        for write in batch {
            match write {
                Write::Merge(key, fragment) => writes.merge(key, fragment),
                Write::Put(key, value) => writes.put(key, value),
                Write::Delete(key) => writes.delete(key),
                Write::DeleteRange(from, to) => writes.delete_range(from, to),
            }
        }
        let _shared = self.log.read().unwrap_or_else(PoisonError::into_inner);
        let options = match stall {
            Stall::Wait => &self.patient_writes,
            Stall::Refuse => &self.writes_at_once,
        };
        self.db.write_opt(writes, options).map_err(engine_error)
    }

    fn pace(&self) -> Pace {
        match (
            self.property(properties::IS_WRITE_STOPPED),
            self.property(properties::ACTUAL_DELAYED_WRITE_RATE),
        ) {
            (0, 0) => Pace::Free,
            (0, _) => Pace::Delayed,
            _ => Pace::Stopped,
        }
    }

    fn cursor(&self, span: &Span) -> Box<dyn Cursor + '_> {
        let mut options = match span.tier {
            ReadTier::Disk => ReadOptions::default(),
            // As at the opening, which would have failed otherwise.
            ReadTier::Memory => memory_reads().unwrap_or_default(),
        };
        options.set_iterate_lower_bound(span.from.clone());
        options.set_iterate_upper_bound(span.to.clone());
        options.fill_cache(span.cache);
        if span.one_partition {
            options.set_prefix_same_as_start(true);
        } else {
            options.set_total_order_seek(true);
        }
        let iterator = self.db.raw_iterator_opt(options);
        Box::new(RocksCursor { iterator, tier: span.tier, fragments: 0, given_up: false })
    }

    fn sequence(&self) -> u64 {
        self.db.latest_sequence_number()
    }

    fn sync(&self) -> Result<(), EngineError> {
        let logs = {
            let _alone = self.log.write().unwrap_or_else(PoisonError::into_inner);
            self.db.flush_wal(false).map_err(engine_error)?;
            let known = self.synced_logs();
            // A failure only means that damage could go unnoticed.
            logs::advance(&self.directory, &known).unwrap_or(known)
        };
        self.db.flush_wal(true).map_err(engine_error)?;
        *self.synced_logs.lock().unwrap_or_else(PoisonError::into_inner) = logs;
        Ok(())
    }

    fn synced_logs(&self) -> Vec<LogMark> {
        self.synced_logs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn flush(&self) -> Result<(), EngineError> {
        self.db.flush().map_err(engine_error)
    }

    fn compact(&self, from: &[u8], to: &[u8]) {
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        options.set_exclusive_manual_compaction(false);
        self.db.compact_range_opt(Some(from), Some(to), &options);
    }

    fn drop_files(&self, from: &[u8], to: &[u8]) -> Result<(), EngineError> {
        self.db.delete_file_in_range(from, to).map_err(engine_error)
    }

    fn checkpoint(&self, directory: &Path) -> Result<(), EngineError> {
        let checkpoint = Checkpoint::new(&self.db).map_err(engine_error)?;
        checkpoint.create_checkpoint(directory).map_err(engine_error)
    }

    fn sizes(&self) -> Sizes {
        Sizes {
            disk_bytes: self.property(properties::LIVE_SST_FILES_SIZE),
            memtable_bytes: self.property(properties::CUR_SIZE_ALL_MEM_TABLES),
            cache_bytes: self.cache.get_usage() as u64,
            reader_bytes: self.property(properties::ESTIMATE_TABLE_READERS_MEM),
            keys: self.property(properties::ESTIMATE_NUM_KEYS),
            files: self.db.live_files().map_or(0, |files| files.len() as u64),
        }
    }

    fn statistics(&self) -> Vec<(String, u64)> {
        let mut figures: Vec<(String, u64)> = [
            ("rocksdb.num-running-compactions", properties::NUM_RUNNING_COMPACTIONS),
            ("rocksdb.num-running-flushes", properties::NUM_RUNNING_FLUSHES),
            (
                "rocksdb.estimate-pending-compaction-bytes",
                properties::ESTIMATE_PENDING_COMPACTION_BYTES,
            ),
            ("rocksdb.is-write-stopped", properties::IS_WRITE_STOPPED),
            ("rocksdb.background-errors", properties::BACKGROUND_ERRORS),
        ]
        .into_iter()
        .map(|(name, property)| (name.to_owned(), self.property(property)))
        .collect();
        // A line is `name COUNT : number`, or the percentiles of a histogram, which are skipped.
        let text = self.options.get_statistics().unwrap_or_default();
        figures.extend(text.lines().filter_map(|line| {
            let (name, count) = line.split_once(" COUNT : ")?;
            Some((name.to_owned(), count.trim().parse().ok()?))
        }));
        figures
    }

    fn files(&self) -> Result<Vec<DataFile>, EngineError> {
        let files = self.db.live_files().map_err(engine_error)?.into_iter();
        Ok(files
            .map(|file| DataFile {
                name: file.name,
                from: file.start_key.unwrap_or_default(),
                to: file.end_key.unwrap_or_default(),
                bytes: file.size as u64,
            })
            .collect())
    }
}

/// A RocksDB iterator.
struct RocksCursor<'a> {
    iterator: DBRawIterator<'a>,
    tier: ReadTier,
    fragments: u32,
    /// The current value is missing: its merge was left to a reader that may take longer.
    given_up: bool,
}

impl<'a> RocksCursor<'a> {
    fn moved(&mut self, how: impl FnOnce(&mut DBRawIterator<'a>)) {
        let reading = Reading::begin(self.tier);
        how(&mut self.iterator);
        (self.fragments, self.given_up) = (reading.fragments(), reading.is_given_up());
    }
}

impl Cursor for RocksCursor<'_> {
    fn seek(&mut self, key: &[u8]) {
        self.moved(|iterator| iterator.seek(key));
    }

    fn seek_before(&mut self, key: &[u8]) {
        self.moved(|iterator| {
            iterator.seek_for_prev(key);
            if iterator.key() == Some(key) {
                iterator.prev();
            }
        });
    }

    fn next(&mut self) {
        self.moved(DBRawIterator::next);
    }

    fn previous(&mut self) {
        self.moved(DBRawIterator::prev);
    }

    fn fragments(&self) -> u32 {
        self.fragments
    }

    fn entry(&self) -> Result<Option<Entry<'_>>, EngineError> {
        if self.given_up {
            return Err(EngineError::WouldBlock);
        }
        match self.iterator.item() {
            Some(entry) => Ok(Some(entry)),
            None => match self.iterator.status() {
                Ok(()) => Ok(None),
                Err(error) if error.kind() == ErrorKind::Incomplete => Err(EngineError::WouldBlock),
                Err(error) => Err(engine_error(error)),
            },
        }
    }
}
