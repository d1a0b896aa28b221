//! Bounds of a node, in one place.

/// Bytes of answers a client may leave untaken before it is not read from any more.
pub(crate) const CLIENT_BACKLOG_BYTES: usize = 8 << 20;

/// Largest request: `native_transport_max_frame_size` of Cassandra 5 (16 MiB).
pub(crate) const REQUEST_BYTES_MAX: u32 = 16 << 20;

/// How often a loop looks after what may have been missed.
pub(crate) const TICK_NS: u64 = 250_000_000;
