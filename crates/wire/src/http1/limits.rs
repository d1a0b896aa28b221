//! Limits for reading HTTP/1.1.

/// Longest line with the size of a chunk, its extensions and line end included. Servers take 4 to
/// 16 KiB; extensions are not used in practice.
pub const CHUNK_LINE_BYTES_MAX: usize = 4 * 1024;

/// Most bytes of fields behind the last chunk.
pub const TRAILER_BYTES_MAX: usize = 16 * 1024;

/// Most options in the Connection fields of one head. Each field of the head is compared with all
/// of them; senders use one or two.
pub(super) const CONNECTION_OPTIONS_MAX: usize = 32;

/// Limits of one head.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HeadLimits {
    /// Bytes of the whole head, including the empty line that ends it.
    pub head_bytes: usize,
    /// Bytes of the first line or of one field, including the line end.
    pub line_bytes: usize,
    /// Number of fields.
    pub fields: usize,
}

impl HeadLimits {
    /// The defaults of nginx and Apache lie below these.
    pub const DEFAULT: HeadLimits =
        HeadLimits { head_bytes: 64 * 1024, line_bytes: 16 * 1024, fields: 128 };
}

const _: () = assert!(HeadLimits::DEFAULT.line_bytes <= HeadLimits::DEFAULT.head_bytes);
// Positions within a head are stored as 32-bit numbers.
const _: () = assert!(HeadLimits::DEFAULT.head_bytes < u32::MAX as usize);
