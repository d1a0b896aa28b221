//! Limits on kinds of log lines: a kind that clients can cause is logged once a second for the
//! whole process, with the number of lines left out in between, so that no client fills a disk.
//!
//! The cores share the limits. No query consults them.

use std::sync::atomic::{AtomicU64, Ordering};

use shunt_admin::Label as _;

use crate::limits;
use crate::metrics::Closing;

/// Kinds of lines that are limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logged {
    /// A client was closed.
    Closed(Closing),
    /// An answer was longer than `frame_bytes_max`.
    LongAnswer,
    /// A node refused what the clients of a pool asked for.
    NoAccess,
    /// The row of a lock could not be written.
    LockRow,
    /// A node did not say whether a role may use locks.
    Permission,
    /// The rows that former transactions left could not be read.
    Transactions,
    /// A node's answer differs from what the proxies would have answered.
    Observed,
    /// TLS with a node or with another proxy of the fleet failed.
    Tls,
    /// An open link to a node broke.
    LinkLost,
    /// A link to a node misbehaved, fell silent or opened too slowly.
    LinkGivenUp,
    /// A link to a node could not be renewed.
    Renewal,
    /// A connection to another proxy of the fleet was given up.
    ProxyGivenUp,
}

/// Kinds other than [`Closing`].
const OTHERS: [Logged; 11] = [
    Logged::LongAnswer,
    Logged::NoAccess,
    Logged::LockRow,
    Logged::Permission,
    Logged::Transactions,
    Logged::Observed,
    Logged::Tls,
    Logged::LinkLost,
    Logged::LinkGivenUp,
    Logged::Renewal,
    Logged::ProxyGivenUp,
];
const KINDS: usize = Closing::COUNT + OTHERS.len();

impl Logged {
    fn all() -> impl Iterator<Item = Logged> {
        Closing::ALL.iter().copied().map(Logged::Closed).chain(OTHERS)
    }

    fn index(self) -> usize {
        match self {
            Logged::Closed(closing) => closing.index(),
            Logged::LongAnswer => Closing::COUNT,
            Logged::NoAccess => Closing::COUNT + 1,
            Logged::LockRow => Closing::COUNT + 2,
            Logged::Permission => Closing::COUNT + 3,
            Logged::Transactions => Closing::COUNT + 4,
            Logged::Observed => Closing::COUNT + 5,
            Logged::Tls => Closing::COUNT + 6,
            Logged::LinkLost => Closing::COUNT + 7,
            Logged::LinkGivenUp => Closing::COUNT + 8,
            Logged::Renewal => Closing::COUNT + 9,
            Logged::ProxyGivenUp => Closing::COUNT + 10,
        }
    }

    /// The name of the kind, as a line about several shows it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Logged::Closed(closing) => closing.text(),
            Logged::LongAnswer => "long_answer",
            Logged::NoAccess => "no_access",
            Logged::LockRow => "lock_row",
            Logged::Permission => "permission",
            Logged::Transactions => "transactions",
            Logged::Observed => "observed",
            Logged::Tls => "server_tls",
            Logged::LinkLost => "link_lost",
            Logged::LinkGivenUp => "link_given_up",
            Logged::Renewal => "renewal",
            Logged::ProxyGivenUp => "proxy_given_up",
        }
    }
}

/// One kind.
#[derive(Debug, Default)]
struct Kind {
    /// Earliest time of the next line.
    next_ns: AtomicU64,
    /// Lines left out since the last line.
    suppressed: AtomicU64,
}

impl Kind {
    /// Claims the line of this second, if it is free.
    fn take(&self, now_ns: u64) -> bool {
        let next = self.next_ns.load(Ordering::Relaxed);
        let after = now_ns.saturating_add(limits::LOG_INTERVAL_NS);
        now_ns >= next
            && self
                .next_ns
                .compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

/// Time of each kind's next line, and the number of lines left out.
#[derive(Debug)]
pub struct LogLimits([Kind; KINDS]);

impl Default for LogLimits {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Kind::default()))
    }
}

impl LogLimits {
    /// Decides whether a line of this kind may be written now: `Some` with the number of lines left
    /// out before it, or `None`.
    pub(crate) fn admit(&self, logged: Logged, now_ns: u64) -> Option<u64> {
        let kind = &self.0[logged.index()];
        if kind.take(now_ns) {
            return Some(kind.suppressed.swap(0, Ordering::Relaxed));
        }
        kind.suppressed.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Kinds with lines left out, no line since, and a line allowed now; with the number left out.
    pub(crate) fn overdue(&self, now_ns: u64) -> impl Iterator<Item = (Logged, u64)> + '_ {
        Logged::all().filter_map(move |logged| {
            let kind = &self.0[logged.index()];
            let due = kind.suppressed.load(Ordering::Relaxed) > 0 && kind.take(now_ns);
            due.then(|| (logged, kind.suppressed.swap(0, Ordering::Relaxed)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_place_of_its_own() {
        let places: Vec<usize> = Logged::all().map(Logged::index).collect();
        assert_eq!(places, (0..KINDS).collect::<Vec<_>>());
    }

    #[test]
    fn one_line_a_second_and_none_is_forgotten() {
        let (limits, second) = (LogLimits::default(), limits::LOG_INTERVAL_NS);
        let (mut written, mut told) = (0, 0);
        for step in 0..1_000 {
            if let Some(suppressed) = limits.admit(Logged::LongAnswer, step * second / 100) {
                written += 1;
                told += 1 + suppressed;
            }
        }
        assert_eq!(written, 10);
        assert_eq!(
            limits.admit(Logged::NoAccess, 0),
            Some(0),
            "kinds do not hold one another back"
        );
        assert_eq!(limits.overdue(10 * second - 1).count(), 0, "not before its time");
        let rest: Vec<_> = limits.overdue(10 * second).collect();
        assert_eq!(rest, [(Logged::LongAnswer, 1_000 - told)]);
        assert_eq!(limits.overdue(20 * second).count(), 0);
    }
}
