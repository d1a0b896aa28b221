//! Bounds of a node, in one place.

/// Bytes of answers a client may leave untaken before it is not read from any more.
pub(crate) const CLIENT_BACKLOG_BYTES: usize = 8 << 20;

/// Bytes of answers beyond which a client that does not take them is cut off.
pub(crate) const CLIENT_BACKLOG_BYTES_MAX: usize = 256 << 20;

/// Bytes of answers that all clients of a loop may leave untaken, about; beyond it the one with the
/// most is cut off.
pub(crate) const LOOP_BACKLOG_BYTES_MAX: usize = 1 << 30;

/// Statements that are kept prepared, and bytes of memory that they take together; beyond either
/// the one prepared first is forgotten.
pub(crate) const PREPARED_MAX: usize = 16_384;
pub(crate) const PREPARED_BYTES_MAX: usize = 512 << 20;

/// The memory that one takes is counted as so much, and so much for each byte of its text.
pub(crate) const PREPARED_STATEMENT_BYTES: usize = 4 << 10;
pub(crate) const PREPARED_BYTES_PER_CHARACTER: usize = 140;

/// One statement may take one part in so many of those bytes.
pub(crate) const PREPARED_SHARE: usize = 8;

/// Largest request: `native_transport_max_frame_size` of Cassandra 5 (16 MiB).
pub(crate) const REQUEST_BYTES_MAX: u32 = 16 << 20;

/// How often a loop looks after what may have been missed.
pub(crate) const TICK_NS: u64 = 250_000_000;

/// Records that an event loop reads for one request before it leaves that to a worker: half a
/// millisecond's work.
pub(crate) const LOOP_RECORDS: usize = 256;

/// Bytes of values that it reads for one.
pub(crate) const LOOP_BYTES: usize = 256 << 10;

/// Records, and bytes of values, that a worker reads for a request before it leaves that to those
/// for what takes long.
pub(crate) const WORKER_RECORDS: usize = 2048;
pub(crate) const WORKER_BYTES: usize = 4 << 20;

/// A read that has taken so long, its wait for a worker included, ends in an error: hardly a client
/// waits longer.
pub(crate) const READ_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(60);

/// Rows named one by one that are looked up as they were at one moment, and held together for that.
/// More are read past the row cache.
pub(crate) const ROWS_TOGETHER: usize = 16;

/// Writes of one turn that an event loop gathers for one batch, before it carries them out and asks
/// for a sync.
pub(crate) const GATHERED_WRITES_MAX: usize = 64;

/// Threads that execute what event loops do not wait for.
pub(crate) const WORKERS: usize = 8;

/// How many of them may be at requests that take long, so that the others are there for rows on
/// disk.
pub(crate) const WORKERS_LONG: usize = WORKERS / 2;

/// Requests that may wait for a worker, and bytes of their bodies; as many again that take long.
/// More are answered Overloaded.
pub(crate) const WAITING_REQUESTS_MAX: usize = 4096;
pub(crate) const WAITING_BYTES_MAX: usize = 64 << 20;

/// When half of that is taken, only connections with fewer requests with workers than this get more
/// of it, and with about as small a part of the bytes: no single one takes all places. Those with
/// aggregated frames have many clients behind them.
pub(crate) const WAITING_SHARE: usize = 64;

/// A request that has waited so long for a worker is answered Overloaded: its client has given up,
/// or will.
pub(crate) const WAITING_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(10);

/// How often stores are looked after, about.
pub(crate) const UPKEEP_INTERVAL: std::time::Duration = std::time::Duration::from_secs(600);

/// A table with deletions is swept at least so often, however long its grace.
pub(crate) const SWEEP_INTERVAL_MAX: std::time::Duration =
    std::time::Duration::from_secs(24 * 3600);

/// Schemas beyond those left the last time that are worth a compaction of everything, and the time
/// between two.
pub(crate) const RECLAIM_SCHEMAS: usize = 1024;
pub(crate) const RECLAIM_INTERVAL: std::time::Duration = std::time::Duration::from_secs(24 * 3600);
