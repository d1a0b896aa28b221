//! The end of one query, as the rows of clients and digests count it.

use shunt_admin::labels;
use shunt_wire::cql::message::error_code;

use crate::digests::Digest;
use crate::metrics::{Outcome, QueryKind};

labels! {
    /// The kind of an error that ended a query.
    pub enum ErrorKind = "error" {
        /// No answer in time, at a node or in the proxy.
        TimedOut = "timed_out",
        /// Too few replicas were up.
        Unavailable = "unavailable",
        /// A node or the proxy had no room for it.
        Overloaded = "overloaded",
        /// The statement is wrong.
        Invalid = "invalid",
        /// The role may not execute the statement.
        Unauthorized = "unauthorized",
        /// Any other error.
        Other = "other",
    }
}

impl ErrorKind {
    /// The kind of a query's end; `code` is that of the ERROR. `None` if it ended well.
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
            error_code::UNAUTHORIZED => ErrorKind::Unauthorized,
            error_code::SYNTAX_ERROR
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
    /// Rows of the answer, if their number can be read without its metadata.
    pub(crate) rows: Option<u32>,
    pub(crate) error: Option<ErrorKind>,
}

impl End {
    /// The end of a query by an answer without error. `sent_ns`: when it went to its last node; 0
    /// if none had it.
    #[inline]
    pub(crate) fn new(
        (received_ns, sent_ns): (u64, u64),
        now_ns: u64,
        bytes_in: usize,
        bytes_out: usize,
    ) -> Self {
        let sent_ns = if sent_ns == 0 { now_ns } else { sent_ns };
        Self {
            now_ns,
            wait_ns: sent_ns.saturating_sub(received_ns),
            node_ns: now_ns.saturating_sub(sent_ns.max(received_ns)),
            bytes_in: bytes_in as u64,
            bytes_out: bytes_out as u64,
            rows: None,
            error: None,
        }
    }

    /// Nanoseconds from the request to its answer.
    #[inline]
    pub(crate) fn time_ns(&self) -> u64 {
        self.wait_ns + self.node_ns
    }
}

/// A request that the proxy itself serves, on locks or in a transaction: the facts for its row that
/// its bytes tell, which are gone by the time of its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) digest: Digest,
    pub(crate) kind: QueryKind,
    /// Bytes of its body.
    pub(crate) body_bytes: u32,
    /// Time at which it was decoded.
    pub(crate) received_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_query_is_split_where_its_last_node_got_it() {
        let split = |sent_ns| {
            let end = End::new((1_000, sent_ns), 9_000, 1, 2);
            (end.wait_ns, end.node_ns)
        };
        assert_eq!(split(3_000), (2_000, 6_000));
        assert_eq!(split(0), (8_000, 0), "no node had it");
        assert_eq!(split(500), (0, 8_000), "a clock that steps back gives no time twice");
    }

    #[test]
    fn a_code_decides_the_kind_of_an_error() {
        let of = |code| ErrorKind::of(Outcome::Error, Some(code));
        assert_eq!(of(error_code::READ_TIMEOUT), Some(ErrorKind::TimedOut));
        assert_eq!(of(error_code::UNAVAILABLE), Some(ErrorKind::Unavailable));
        assert_eq!(of(error_code::IS_BOOTSTRAPPING), Some(ErrorKind::Overloaded));
        assert_eq!(of(error_code::SYNTAX_ERROR), Some(ErrorKind::Invalid));
        assert_eq!(of(error_code::UNAUTHORIZED), Some(ErrorKind::Unauthorized));
        assert_eq!(of(error_code::SERVER_ERROR), Some(ErrorKind::Other));
        let served = |code| ErrorKind::of(Outcome::Intercepted, code);
        assert_eq!(served(None), None, "the proxy answered it well");
        assert_eq!(served(Some(error_code::INVALID)), Some(ErrorKind::Invalid));
        assert_eq!(ErrorKind::of(Outcome::TimedOut, None), Some(ErrorKind::TimedOut));
        assert_eq!(ErrorKind::of(Outcome::Ok, None), None);
    }
}
