//! Bounds of what is read of HTTP/1.1.

/// Longest line with the size of a chunk, its extensions and line end included. Servers take 4 to
/// 16 KiB; extensions are in no use.
pub const CHUNK_LINE_BYTES_MAX: usize = 4 * 1024;

/// Most bytes of fields behind the last chunk.
pub const TRAILER_BYTES_MAX: usize = 16 * 1024;

/// Bounds of one head.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HeadLimits {
    /// Bytes of the whole head, with the empty line that ends it.
    pub head_bytes: usize,
    /// Bytes of the first line or of one field, with the line end.
    pub line_bytes: usize,
    /// Fields.
    pub fields: usize,
}

impl HeadLimits {
    /// What nginx and Apache take with their defaults lies below these.
    pub const DEFAULT: HeadLimits =
        HeadLimits { head_bytes: 64 * 1024, line_bytes: 16 * 1024, fields: 128 };
}

const _: () = assert!(HeadLimits::DEFAULT.line_bytes <= HeadLimits::DEFAULT.head_bytes);
// Positions within a head are kept as 32-bit numbers.
const _: () = assert!(HeadLimits::DEFAULT.head_bytes < u32::MAX as usize);
