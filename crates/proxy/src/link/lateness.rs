//! Late reads: which reads a core watches, the time after which a read is late, and the budget of
//! second reads ([`crate::retry::hedge`]).
//!
//! A core watches reads in the order in which they were sent. When the first of them becomes due,
//! it has its answer, or it is late. With `hedge = "p99"` the core then moves the time: far up for
//! a late read, and a little down for any other, so that one read in a hundred exceeds it. So the
//! core does not have to measure answers. A second read does not shorten the time, because the core
//! judges the first one.

use std::collections::VecDeque;

use shunt_reactor::Io;
use shunt_wire::cql::envelope::flag;
use shunt_wire::cql::message::Consistency;

use crate::config::{Config, Hedge};
use crate::ids::{ClientRef, LinkRef};
use crate::limits;
use crate::link::{Pending, Purpose};
use crate::plan::{After, Work};

/// Timer of the first read that becomes due.
pub(crate) const TIMER: u64 = 16;

/// Credit for one second read: each watched read adds `hedge_share_max`, in percent.
const PRICE: u64 = 100;
/// The whole, of which [`Lateness::late_part`] is a part.
const WHOLE: u32 = 1 << 16;
/// Reads over which the part of late ones is averaged.
const AVERAGED: u32 = 32;
/// The time grows by this part with a late read, and by a smaller part while more than a third of
/// the last reads were late: a pause of all nodes makes many of them late at once.
const UP: u64 = 16;
const UP_OF_MANY: u64 = 128;
/// The time shrinks by this part with a read in time: a hundredth of the growth.
const DOWN: u64 = UP * 100;

/// A read in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched {
    pub(crate) at: LinkRef,
    /// The link's stream id.
    pub(crate) stream: u16,
    client: ClientRef,
    sent_ns: u64,
}

impl Watched {
    /// True if the request in flight under its stream id is still this read. Another read of the
    /// same client, sent at the same time, is as late.
    pub(crate) fn is(&self, pending: &Pending) -> bool {
        pending.purpose == Purpose::Client
            && pending.client == self.client
            && pending.sent_ns == self.sent_ns
    }
}

/// A core's watched reads, the time after which they are late, and the budget of second reads.
#[derive(Debug, Default)]
pub(crate) struct Lateness {
    /// Time after which a read is late, nanoseconds; 0: no read is hedged.
    late_ns: u64,
    /// True if the time follows the reads.
    follows: bool,
    /// Percentage of the watched reads that may be hedged.
    share_max: u64,
    /// Credit for second reads.
    credit: u64,
    /// Part of the last reads that were late.
    late_part: u32,
    watched: VecDeque<Watched>,
    is_timed: bool,
}

impl Lateness {
    /// Takes options.
    pub(crate) fn set(&mut self, config: &Config) {
        let followed = self.follows;
        self.share_max = u64::from(config.hedge_share_max);
        self.follows = config.hedge == Hedge::P99;
        self.late_ns = match config.hedge {
            Hedge::Off => 0,
            Hedge::P99 if followed => self.late_ns,
            Hedge::P99 => limits::HEDGE_FIRST_NS,
            Hedge::After { ms } => ms * 1_000_000,
        };
        match self.is_on() {
            // The list never grows beyond it: a query allocates nothing.
            true => self.watched.reserve_exact(limits::HEDGE_WATCHED_MAX - self.watched.len()),
            false => *self = Self { is_timed: self.is_timed, ..Self::default() },
        }
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.late_ns > 0
    }

    /// Watches a request that was just sent, if it is a read that may be hedged.
    pub(crate) fn watch(
        &mut self,
        io: &mut Io,
        at: LinkRef,
        stream: u16,
        sent: &Pending,
        bytes: usize,
    ) {
        if !may_be_hedged(sent, bytes) || self.watched.len() >= limits::HEDGE_WATCHED_MAX {
            return;
        }
        self.credit = (self.credit + self.share_max).min(limits::HEDGE_BURST * PRICE);
        let sent_ns = io.now_ns();
        self.watched.push_back(Watched { at, stream, client: sent.client, sent_ns });
        self.set_timer(io);
    }

    fn set_timer(&mut self, io: &mut Io) {
        let Some(first) = self.watched.front() else { return };
        if !std::mem::replace(&mut self.is_timed, true) {
            let soonest_ns = io.now_ns() + limits::HEDGE_LOOK_NS;
            io.set_timer(soonest_ns.max(first.sent_ns + self.late_ns), TIMER);
        }
    }

    /// The timer has expired: [`next_due`](Self::next_due) has what is due.
    pub(crate) fn is_woken(&mut self) {
        self.is_timed = false;
    }

    /// Returns the next read whose time has passed. If there is none, sets the timer for the next.
    pub(crate) fn next_due(&mut self, io: &mut Io) -> Option<Watched> {
        let (now_ns, late_ns) = (io.now_ns(), self.late_ns);
        let due =
            self.watched.pop_front_if(|first| now_ns.saturating_sub(first.sent_ns) >= late_ns);
        if due.is_none() {
            self.set_timer(io);
        }
        due
    }

    /// Learns from a read whose time has passed.
    pub(crate) fn learn(&mut self, is_late: bool) {
        let are_many = self.are_many_late();
        let seen = if is_late { WHOLE } else { 0 };
        self.late_part = (self.late_part * (AVERAGED - 1) + seen) / AVERAGED;
        if self.follows {
            let up = self.late_ns / if are_many { UP_OF_MANY } else { UP };
            let changed =
                if is_late { self.late_ns + up } else { self.late_ns - self.late_ns / DOWN };
            self.late_ns = changed.clamp(limits::HEDGE_LATE_MIN_NS, limits::HEDGE_LATE_MAX_NS);
        }
    }

    /// True if more than a third of the last reads were late: the nodes are slow together, and
    /// second reads would make them slower.
    fn are_many_late(&self) -> bool {
        self.late_part > WHOLE / 3
    }

    /// True if a second read may be sent now.
    pub(crate) fn has_credit(&self) -> bool {
        self.credit >= PRICE && !self.are_many_late()
    }

    /// Pays for a second read.
    pub(crate) fn pay(&mut self) {
        self.credit = self.credit.saturating_sub(PRICE);
    }

    /// The time after which a read is late, nanoseconds; 0: no read is hedged.
    pub(crate) fn late_ns(&self) -> u64 {
        self.late_ns
    }
}

/// True for a client's short read of one key, at its first node. Range reads and pages after the
/// first are sent alone, serial reads are rounds of Paxos, and a traced request has one trace.
fn may_be_hedged(sent: &Pending, bytes: usize) -> bool {
    let Pending { plan, flags, .. } = sent;
    let is_serial =
        [Consistency::SERIAL, Consistency::LOCAL_SERIAL].contains(&Consistency(plan.consistency));
    sent.purpose == Purpose::Client
        && sent.client.is_client()
        && plan.work == Work::Read
        && plan.after == After::Deliver
        && plan.placement.is_some()
        && plan.node.is_none()
        && !plan.alone
        && !plan.is_unhedged
        && !is_serial
        && flags & flag::TRACING == 0
        && sent.retries == 0
        && sent.reprepares == 0
        && bytes <= limits::HEDGE_REQUEST_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(hedge: Hedge) -> Lateness {
        let mut lateness = Lateness::default();
        lateness.set(&Config { hedge, hedge_share_max: 2, ..Config::default() });
        lateness
    }

    /// Reads with these times in turn, for as long as it takes to follow them.
    fn follow(lateness: &mut Lateness, time_ns: impl Fn(u64) -> u64) {
        for number in 0..20_000 {
            lateness.learn(time_ns(number * 37 % 1_000) > lateness.late_ns());
        }
    }

    #[test]
    fn the_time_follows_the_slowest_hundredth_of_reads() {
        let mut lateness = set(Hedge::P99);
        // 1 to 11 ms, evenly: the 99th percentile is 10.9 ms.
        follow(&mut lateness, |number| 1_000_000 + number * 10_000);
        assert!((10_000_000..12_000_000).contains(&lateness.late_ns()), "{lateness:?}");
        follow(&mut lateness, |number| 20_000_000 + number * 200_000);
        assert!((190_000_000..240_000_000).contains(&lateness.late_ns()), "{lateness:?}");
        follow(&mut lateness, |_| 1);
        assert!(lateness.late_ns() < 2_000_000, "{lateness:?}");
        (0..100_000).for_each(|_| lateness.learn(false));
        assert_eq!(lateness.late_ns(), limits::HEDGE_LATE_MIN_NS);
        (0..100_000).for_each(|_| lateness.learn(true));
        assert_eq!(lateness.late_ns(), limits::HEDGE_LATE_MAX_NS);
    }

    #[test]
    fn a_fixed_time_stays() {
        let mut lateness = set(Hedge::After { ms: 20 });
        follow(&mut lateness, |number| number * 1_000_000);
        assert_eq!(lateness.late_ns(), 20_000_000);
    }

    #[test]
    fn nothing_is_hedged_while_more_than_a_third_of_reads_are_late() {
        let mut lateness = set(Hedge::After { ms: 20 });
        lateness.credit = 10 * PRICE;
        (0..1_000).for_each(|number| lateness.learn(number % 4 == 0));
        assert!(lateness.has_credit(), "a quarter is late");
        (0..100).for_each(|number| lateness.learn(number % 2 == 0));
        assert!(!lateness.has_credit());
        (0..100).for_each(|_| lateness.learn(false));
        assert!(lateness.has_credit());
    }

    #[test]
    fn switched_off_it_forgets_everything_and_a_reload_keeps_the_time() {
        let mut lateness = set(Hedge::P99);
        follow(&mut lateness, |number| number * 1_000);
        let (time_ns, config) =
            (lateness.late_ns(), Config { hedge: Hedge::P99, ..Config::default() });
        lateness.set(&config);
        assert_eq!(lateness.late_ns(), time_ns);
        assert!(lateness.watched.capacity() >= limits::HEDGE_WATCHED_MAX);
        lateness.credit = 10 * PRICE;
        lateness.set(&Config::default());
        assert!(!lateness.is_on() && !lateness.has_credit());
        assert_eq!(lateness.watched.capacity(), 0);
    }
}
