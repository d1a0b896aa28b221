//! The sums of a digest.

use shunt_admin::Label as _;

use super::histogram::Times;
use crate::query_end::{End, ErrorKind};

/// Sums over queries. The fields that a query without error or rows changes come first, so that
/// they share a cache line with the fields before them in a row. The buckets of `times` are the
/// exception.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub struct Totals {
    /// Queries that ended, well or not.
    pub count: u64,
    /// Bytes of the requests' bodies.
    pub bytes_in: u64,
    /// Bytes of the answers' bodies.
    pub bytes_out: u64,
    /// Nanoseconds in the proxy before the queries went to a node.
    pub wait_ns: u64,
    /// Nanoseconds from then until the answers.
    pub node_ns: u64,
    /// The times from the request to its answer, and their parts.
    pub times: Times,
    /// Rows of the answers whose number of rows is known.
    pub rows: u64,
    /// Number of those answers.
    pub rows_known: u64,
    /// Requests that ended with an error.
    pub errors: [u64; ErrorKind::COUNT],
}

impl Totals {
    /// Adds a query.
    #[inline]
    pub(crate) fn add(&mut self, end: &End) {
        self.count += 1;
        self.bytes_in += end.bytes_in;
        self.bytes_out += end.bytes_out;
        self.wait_ns += end.wait_ns;
        self.node_ns += end.node_ns;
        self.times.add(end.wait_ns, end.node_ns);
        if let Some(rows) = end.rows {
            self.rows += u64::from(rows);
            self.rows_known += 1;
        }
        if let Some(error) = end.error {
            self.errors[error.index()] += 1;
        }
    }

    /// Adds the sums of others.
    pub fn merge(&mut self, other: &Totals) {
        self.count += other.count;
        for (errors, more) in self.errors.iter_mut().zip(other.errors) {
            *errors += more;
        }
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.wait_ns += other.wait_ns;
        self.node_ns += other.node_ns;
        self.rows += other.rows;
        self.rows_known += other.rows_known;
        self.times.merge(&other.times);
    }
}
