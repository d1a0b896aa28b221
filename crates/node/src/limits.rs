//! Limits of a node, in one place.

/// Unread bytes of answers beyond which the node stops reading from a client.
pub(crate) const CLIENT_BACKLOG_BYTES: usize = 8 << 20;

/// Unread bytes of answers beyond which a client is disconnected.
pub(crate) const CLIENT_BACKLOG_BYTES_MAX: usize = 256 << 20;

/// Approximate limit on unread bytes of answers of all clients of a loop; beyond it the one with
/// the most is disconnected.
pub(crate) const LOOP_BACKLOG_BYTES_MAX: usize = 1 << 30;

/// Most prepared statements, and their total memory in bytes; beyond either the oldest is dropped.
pub(crate) const PREPARED_MAX: usize = 16_384;
pub(crate) const PREPARED_BYTES_MAX: usize = 512 << 20;

/// Estimated memory of a statement: a fixed part, and a part per byte of its text.
pub(crate) const PREPARED_STATEMENT_BYTES: usize = 4 << 10;
pub(crate) const PREPARED_BYTES_PER_CHARACTER: usize = 140;

/// Share of those bytes that one statement may take, as a divisor.
pub(crate) const PREPARED_SHARE: usize = 8;

/// Largest request: `native_transport_max_frame_size` of Cassandra 5 (16 MiB).
pub(crate) const REQUEST_BYTES_MAX: u32 = 16 << 20;

/// Interval at which a loop checks for missed events.
pub(crate) const TICK_NS: u64 = 250_000_000;

/// Most records that an event loop reads for one request before a worker takes over: half a
/// millisecond's work.
pub(crate) const LOOP_RECORDS: usize = 256;

/// Most bytes of values that a loop reads for one request.
pub(crate) const LOOP_BYTES: usize = 256 << 10;

/// Most records, and bytes of values, that a worker reads for a request before a worker for long
/// requests takes over.
pub(crate) const WORKER_RECORDS: usize = 2048;
pub(crate) const WORKER_BYTES: usize = 4 << 20;

/// Time limit of a read, including its wait for a worker; clients hardly wait longer.
pub(crate) const READ_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(60);

/// Most rows named one by one that are read as of one moment, and kept in memory together. More are
/// read past the row cache.
pub(crate) const ROWS_TOGETHER: usize = 16;

/// Most bytes of the rows that the conditions of a batch read, if they are more than those.
pub(crate) const CONDITIONS_BYTES_MAX: usize = 64 << 20;

/// Most bytes of a request's writes, with their keys, if its statements have several: for `IN`, or
/// for rows of counters that are read before they are deleted. Also those of the combinations of
/// values that the `IN`s of a statement have.
pub(crate) const GATHERED_BYTES_MAX: usize = 64 << 20;

/// Most writes of one turn that an event loop gathers before it executes them and requests a sync.
pub(crate) const GATHERED_WRITES_MAX: usize = 64;

/// Threads for requests that event loops cannot wait for.
pub(crate) const WORKERS: usize = 8;

/// Most workers for long requests, so that the others stay free for rows on disk.
pub(crate) const WORKERS_LONG: usize = WORKERS / 2;

/// Most requests waiting for a worker, and bytes of their bodies; the same again for long ones.
/// Further requests are answered Overloaded.
pub(crate) const WAITING_REQUESTS_MAX: usize = 4096;
pub(crate) const WAITING_BYTES_MAX: usize = 64 << 20;

/// Once half of that is taken, only connections with fewer waiting requests than this, and about as
/// small a share of the bytes, get more: no single connection takes all places. Connections with
/// aggregated frames have many clients behind them.
pub(crate) const WAITING_SHARE: usize = 64;

/// A request that has waited this long for a worker is answered Overloaded: its client has given
/// up, or will.
pub(crate) const WAITING_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(10);

/// Approximate interval of store upkeep.
pub(crate) const UPKEEP_INTERVAL: std::time::Duration = std::time::Duration::from_secs(600);

/// Longest interval between sweeps of a table with deletions, whatever its grace.
pub(crate) const SWEEP_INTERVAL_MAX: std::time::Duration =
    std::time::Duration::from_secs(24 * 3600);

/// Number of schemas beyond the last remainder that justify a compaction of everything, and the
/// time between two.
pub(crate) const RECLAIM_SCHEMAS: usize = 1024;
pub(crate) const RECLAIM_INTERVAL: std::time::Duration = std::time::Duration::from_secs(24 * 3600);
