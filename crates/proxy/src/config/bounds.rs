//! Bounds of values of options.

/// Stream ids of one connection (protocol v3 to v5, section 2.3: a signed 16-bit number, negative
/// ones are events).
pub const STREAMS_MAX: u32 = 32_768;
/// Largest message body the protocol specifications allow (section 2.5: 256 MB).
pub const FRAME_BYTES_LIMIT: u32 = 256 * 1024 * 1024;
/// Longest time that makes sense anywhere in the configuration: one day.
pub const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Shortest deadline for a peer, in milliseconds: a shorter one would always expire.
pub(super) const PATIENCE_MS_MIN: u64 = 10;
