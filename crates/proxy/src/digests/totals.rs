//! The sums of a digest, and the end of one query, which is added to them.

use shunt_admin::Label as _;
use shunt_admin::labels;
use shunt_wire::cql::message::error_code;

use super::histogram::Times;
use crate::link::Pending;
use crate::metrics::Outcome;

labels! {
    /// The kind of an error that ended a query.
    pub enum ErrorKind = "error" {
        /// No answer in time, at a node or in the proxy.
        TimedOut = "timed_out",
        /// Too few replicas were up.
        Unavailable = "unavailable",
        /// A node or the proxy had no room for it.
        Overloaded = "overloaded",
        /// The statement is wrong, or its role may not execute it.
        Invalid = "invalid",
        /// Any other error.
        Other = "other",
    }
}

impl ErrorKind {
    /// The kind of a query's end; `code` is that of the node's error. `None` if it ended well.
    pub(crate) fn of(outcome: Outcome, code: Option<i32>) -> Option<ErrorKind> {
        match outcome {
            Outcome::Ok | Outcome::Retried | Outcome::Reprepared => None,
            Outcome::TimedOut => Some(ErrorKind::TimedOut),
            Outcome::Overloaded => Some(ErrorKind::Overloaded),
            Outcome::Intercepted if code.is_none() => None,
            Outcome::LinkLost => Some(ErrorKind::Other),
            Outcome::Error | Outcome::Intercepted => {
                Some(code.map_or(ErrorKind::Other, ErrorKind::of_code))
            }
        }
    }

    fn of_code(code: i32) -> ErrorKind {
        match code {
            error_code::WRITE_TIMEOUT | error_code::READ_TIMEOUT => ErrorKind::TimedOut,
            error_code::UNAVAILABLE => ErrorKind::Unavailable,
            error_code::OVERLOADED | error_code::IS_BOOTSTRAPPING => ErrorKind::Overloaded,
            error_code::SYNTAX_ERROR
            | error_code::UNAUTHORIZED
            | error_code::INVALID
            | error_code::CONFIG_ERROR
            | error_code::ALREADY_EXISTS => ErrorKind::Invalid,
            _ => ErrorKind::Other,
        }
    }
}

/// The end of a query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) now_ns: u64,
    /// Nanoseconds in the proxy before the query went to its last node.
    pub(crate) wait_ns: u64,
    /// Nanoseconds from then until the answer; 0 if no node had it.
    pub(crate) node_ns: u64,
    /// Bytes of the request's body.
    pub(crate) bytes_in: u64,
    /// Bytes of the answer's body.
    pub(crate) bytes_out: u64,
    pub(crate) error: Option<ErrorKind>,
}

impl End {
    /// The end of a query by an answer without error.
    #[inline]
    pub(crate) fn new(pending: &Pending, now_ns: u64, bytes_in: usize, bytes_out: usize) -> Self {
        let sent_ns = if pending.sent_ns == 0 { now_ns } else { pending.sent_ns };
        Self {
            now_ns,
            wait_ns: sent_ns.saturating_sub(pending.received_ns),
            node_ns: now_ns.saturating_sub(sent_ns.max(pending.received_ns)),
            bytes_in: bytes_in as u64,
            bytes_out: bytes_out as u64,
            error: None,
        }
    }
}

/// The sums of some queries. All that a query without error changes comes first, except its bucket
/// of `times`: with the fields before them in a row that is one cache line.
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
    /// The times from the request to its answer.
    pub times: Times,
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
        self.times.add((end.wait_ns + end.node_ns) / 1_000);
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
        self.times.merge(&other.times);
    }
}
