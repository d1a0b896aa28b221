//! Bounds of what the proxy reports: slow queries, digests, hot keys and traces.

use super::SECOND_NS;

/// Slow queries of which a core keeps a record.
pub const SLOW_QUERIES_MAX: usize = 1_000;

/// Memory of these records, bytes.
pub const SLOW_QUERIES_BYTES_MAX: usize = 1 << 20;

/// Slow queries of which a core makes a record in each second.
pub const SLOW_QUERIES_PER_SECOND: usize = 50;

/// Such queries of one client's host.
pub const SLOW_QUERIES_OF_HOST_PER_SECOND: usize = 20;

/// Slow queries on record in each second that the proxy itself served: statements on locks, and
/// transactions.
pub const SLOW_SERVED_PER_SECOND: usize = 10;

/// Lines in a second after which queries that the proxy itself served get no further line.
pub const SLOW_SERVED_LINES_PER_SECOND: usize = 2;

/// Lines that a core logs about slow queries in each second.
pub const SLOW_QUERY_LINES_PER_SECOND: usize = 5;

/// Bytes of a slow query's text in logs and pages.
pub const SLOW_QUERY_TEXT_BYTES_MAX: usize = 1_024;

/// Bytes of its table's name.
pub const SLOW_QUERY_TABLE_BYTES_MAX: usize = 200;

/// Digests of which a core keeps a row, less than 2 KiB each and their text.
pub const DIGESTS_MAX: usize = 512;

/// Bytes of a digest's text.
pub const DIGEST_TEXT_BYTES_MAX: usize = 1_024;

/// Texts beyond it have no digest, bytes.
pub const DIGEST_QUERY_BYTES_MAX: usize = 4_096;

/// Texts of which a core knows the digest, 16 bytes each; a power of two.
pub const DIGEST_TEXTS_MAX: usize = 4_096;

/// Texts that a core reads for their digest in each second.
pub const DIGEST_ATTEMPTS_PER_SECOND: usize = 400;

/// Such texts of one client's host.
pub const DIGEST_ATTEMPTS_OF_HOST_PER_SECOND: usize = 100;

/// Time without a query after which a digest makes room for another of its role.
pub const DIGEST_REST_NS: u64 = 60 * SECOND_NS;

/// Time without a query after which a digest makes room for one of any role.
pub const DIGEST_STALE_NS: u64 = 3_600 * SECOND_NS;

/// Tables of which a core keeps hot keys, 5 KiB each.
pub const HOT_KEY_TABLES_MAX: usize = 32;

/// Tables without a place that replace another in a tick of a core.
pub const HOT_KEY_REPLACEMENTS_TICK_MAX: usize = 8;

/// Those of them that one account may have.
pub const HOT_KEY_REPLACEMENTS_OF_ACCOUNT_TICK_MAX: usize = 4;

/// Bytes of a key that are kept.
pub const HOT_KEY_BYTES_MAX: usize = 48;

/// Length of a window of hot keys.
pub const HOT_KEY_WINDOW_NS: u64 = 30 * SECOND_NS;

/// Traced requests in flight that a core knows, 64 bytes each.
pub const TRACES_IN_FLIGHT_MAX: usize = 4_096;

/// Traces that a core takes up in each second.
pub const TRACES_PER_SECOND: u32 = 2_048;

/// Traces of one client's host that a core takes up in each second.
pub const TRACES_OF_HOST_PER_SECOND: u16 = 1_024;

/// Counters that the hosts of a second share.
pub const TRACE_HOST_PLACES: usize = 256;

/// Entries of a custom payload that are searched for a trace.
pub const TRACE_PAYLOAD_ENTRIES_MAX: usize = 64;

/// Spans that a core keeps for the exporter, about 200 bytes each.
pub const SPANS_KEPT_MAX: usize = 4_096;

/// Spans that a core hands over at once.
pub const SPANS_FETCHED_MAX: usize = 512;

const _: () = {
    assert!(SLOW_QUERIES_OF_HOST_PER_SECOND < SLOW_QUERIES_PER_SECOND);
    assert!(SLOW_QUERY_LINES_PER_SECOND < SLOW_QUERIES_PER_SECOND);
    assert!(SLOW_SERVED_PER_SECOND < SLOW_QUERIES_PER_SECOND);
    assert!(SLOW_SERVED_LINES_PER_SECOND < SLOW_QUERY_LINES_PER_SECOND);
    assert!(DIGESTS_MAX < 1 << 16 && DIGEST_TEXTS_MAX.is_power_of_two());
    assert!(DIGEST_REST_NS < DIGEST_STALE_NS);
    assert!(DIGEST_ATTEMPTS_OF_HOST_PER_SECOND < DIGEST_ATTEMPTS_PER_SECOND);
    assert!((TRACES_OF_HOST_PER_SECOND as u32) < TRACES_PER_SECOND);
    assert!((TRACES_PER_SECOND as usize) < TRACES_IN_FLIGHT_MAX);
    assert!(2 * TRACES_PER_SECOND as usize <= SPANS_KEPT_MAX);
};
