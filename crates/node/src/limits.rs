//! Bounds of a node, in one place.

/// Bytes of answers a client may leave untaken before it is not read from any more.
pub(crate) const CLIENT_BACKLOG_BYTES: usize = 8 << 20;
